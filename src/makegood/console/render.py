"""Draws pages: the templates of this package, escaped everywhere, and what they may use.

A page's template fills the blocks ``title`` and ``main`` of ``base.html``. A fragment is the element of the
page with that ``id``, in a block of the same name, or found in the whole page: so the two cannot differ.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup
from starlette.requests import Request

from makegood.base.clock import iso
from makegood.base.durations import brief
from makegood.base.ids import show
from makegood.console.redaction import Redaction
from makegood.console.static_files import StaticFiles
from makegood.console.visits import NOBODY, Denied, Visitor

FOLDER: Final = Path(__file__).parent / "templates"
MACROS: Final = ("i", "badge", "ticks", "dots", "pips", "spark", "meter", "ring", "cmd")
"""Macros of ``parts.html`` that every template may use."""

THEMES: Final = ("light", "dark")
THEME_COOKIE: Final = "makegood_theme"

NAVIGATION: Final[tuple[tuple[str, str, str], ...]] = (
    ("overview", "Overview", "home"),
    ("tasks", "Tasks", "tasks"),
    ("alerts", "Alerts", "bell"),
    ("errors", "Errors", "bug"),
    ("", "", ""),
    ("agents", "Agents", "agents"),
    ("cluster", "Cluster", "cluster"),
    ("", "", ""),
    ("bulk", "Bulk acts", "bulk"),
    ("audit", "Audit", "audit"),
    ("stores", "Store", "db"),
)

_TICKS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ok": "answered", "none": "no answer", "fail": "refused", "bad": "failed", "run": "running",
        "probe-": "probe, not happened", "probe+": "probe, happened", "plan": "planned", "later": "asked to come back later", "undo": "undone", "|": "new round",
    }
)  # fmt: skip
_PIPS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "d": "done",
        "r": "running",
        "u": "undone",
        "?": "in doubt",
        "x": "failed",
        "!": "undo failed",
        "k": "kept",
        "-": "waiting",
    }
)


@dataclass(frozen=True, slots=True)
class Shell:
    """What surrounds every page."""

    base: str = ""
    visitor: Visitor = NOBODY
    theme: str = ""
    store: str = ""
    """The store, as the bar shows it."""
    warning: str = ""
    """What every page warns of, "" for nothing."""
    paths: frozenset[str] = frozenset()
    """The paths of all pages: the navigation leaves out what is missing."""
    here: str = ""
    events: str = ""
    """The page's own path, for the live stream; "" for a page that does not change."""
    alerts: int = 0
    """What needs somebody, in the navigation."""
    toast: Any = None
    """What the last act came to, with ``tone``, ``title`` and ``text``; None for nothing."""
    whole: bool = False
    """Whether payloads are shown uncovered: the look of an administrator, which is audited."""


_SHELL: ContextVar[Shell] = ContextVar("makegood_shell", default=Shell())  # noqa: B039 - it is frozen


class Renderer:
    """Draws templates."""

    def __init__(self, files: StaticFiles, redaction: Redaction, folders: Sequence[Path] = ()) -> None:
        """``folders``: where templates of other pages are, before those of this package."""
        self._files = files
        self._redaction = redaction
        self._environment = Environment(
            loader=FileSystemLoader([*folders, FOLDER]),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=StrictUndefined,
            auto_reload=False,
        )
        self._environment.filters.update(
            {
                "tickword": lambda code: _TICKS[code.lstrip("~")],
                "countwords": lambda states: _counted(state.replace("_", " ") for state in states),
                "pipwords": lambda codes: _counted(_PIPS[code] for code in codes),
                "duration": brief,
                "task_id": show,
                "iso": iso,
                "payload": self._payload,
                "clock": clock_time,
            }
        )
        self._environment.globals.update(
            {
                "navigation": NAVIGATION,
                "url": url,
                "asset": self._asset,
                "shell": _SHELL.get,
                "csrf": _csrf,
                "ago": ago,
                "until": until,
            }
        )
        parts = self._environment.get_template("parts.html").module
        self._environment.globals.update({name: getattr(parts, name) for name in MACROS})

    def page(self, shell: Shell, template: str, context: Mapping[str, Any]) -> str:
        """Return a whole page."""
        drawn = self._environment.get_template(template)
        with _in(shell):
            return drawn.render(context)

    def fragments(self, shell: Shell, template: str, context: Mapping[str, Any], names: Sequence[str]) -> str:
        """Return elements of a page by their ids, one after another. Raises ``Denied`` if the page has none
        of them.
        """
        drawn = self._environment.get_template(template)
        with _in(shell):
            parts = {name: _block(drawn, name, context) for name in names}
            if None in parts.values():
                whole = elements(
                    drawn.render(context), [name for name, part in parts.items() if part is None]
                )
                parts |= whole
        found = [part for part in parts.values() if part is not None]
        if not found:
            raise Denied(404, "Not found", "This page has no such part (any more).")
        return "\n".join(found)

    def _payload(self, payload: bytes | None) -> str:
        return self._redaction.text(payload, whole=_SHELL.get().whole)

    def _asset(self, name: str) -> str:
        return _SHELL.get().base + self._files.path(name)


_FRAME: Final = frozenset(("title", "head", "page", "main"))
"""Blocks of the frame of every page: no elements, and what a page sets before them is not known in them alone."""


def _counted(words: Iterable[str]) -> str:
    return ", ".join(f"{n} {word}" for word, n in Counter(words).items())


@contextmanager
def _in(shell: Shell) -> Iterator[None]:
    before = _SHELL.set(shell)
    try:
        yield
    finally:
        _SHELL.reset(before)


def _block(template: Template, name: str, context: Mapping[str, Any]) -> str | None:
    """Return a block of a template that is called like the id of its element; None if there is none."""
    block = None if name in _FRAME else template.blocks.get(name)
    return None if block is None else "".join(block(template.new_context(dict(context)))).strip()


def theme_of(request: Request) -> str:
    """Return the theme that the visitor chose, "" for the system's."""
    chosen = request.cookies.get(THEME_COOKIE, "")
    return chosen if chosen in THEMES else ""


def url(path: str, **query: object) -> str:
    """Return the URL of a page of the console; a value of None leaves its name out of the query."""
    asked = urlencode({name: value for name, value in query.items() if value is not None})
    return _SHELL.get().base + quote(path) + (f"?{asked}" if asked else "")


def _csrf() -> Markup:
    """Return the field that every form carries."""
    return Markup('<input type="hidden" name="csrf" value="{}">').format(_SHELL.get().visitor.token)


def clock_time(at: float) -> str:
    """Return a time for people, in UTC: 2026-11-25 13:28:01."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def ago(at: float, now: float) -> Markup:
    """Return how long ago something was, with the time itself on hover; the page's script keeps it up to
    date.
    """
    text = f"{brief(max(0.0, now - at))} ago"
    return Markup('<time datetime="{}" title="{} UTC" data-since="{}">{}</time>').format(
        iso(at), clock_time(at), round(max(0.0, now - at), 3), text
    )


def until(seconds: float) -> Markup:
    """Return a countdown to a moment that is so many seconds ahead; at 0 it reads "now"."""
    text = "now" if seconds <= 0 else f"in {brief(seconds)}"
    return Markup('<span class="nowrap" data-until="{}">{}</span>').format(round(max(0.0, seconds), 3), text)


_VOID: Final = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr")
)


class _Elements(HTMLParser):
    """Finds where elements with given ids begin and end."""

    def __init__(self, wanted: Sequence[str]) -> None:
        super().__init__(convert_charrefs=False)
        self._wanted = set(wanted)
        self._open: list[tuple[str, str, tuple[int, int]]] = []
        self.found: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _VOID:
            self._open.append((tag, dict(attrs).get("id") or "", self.getpos()))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Pass over an element without content, such as a part of a drawing."""

    def handle_endtag(self, tag: str) -> None:
        while self._open:
            name, found, begin = self._open.pop()
            if name == tag:
                if found in self._wanted and found not in self.found:
                    line, column = self.getpos()
                    self.found[found] = begin, (line, column + len(tag) + 3)
                return


def elements(text: str, names: Sequence[str]) -> dict[str, str | None]:
    """Return the elements of a page that have these ids; None for an id that the page does not have."""
    parser = _Elements(names)
    parser.feed(text)
    parser.close()
    starts = [0, *(found.end() for found in re.finditer("\n", text))]

    def at(place: tuple[int, int]) -> int:
        return starts[place[0] - 1] + place[1]

    return {
        name: text[at(parser.found[name][0]) : at(parser.found[name][1])] if name in parser.found else None
        for name in names
    }
