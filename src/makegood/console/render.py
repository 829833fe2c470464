"""Draws pages: the templates of this package, escaped everywhere, and what they may use.

Invisible characters of a text appear as escapes, except where a form sends the text back: ``value|exact``.

A page's template fills the blocks ``title`` and ``main`` of ``base.html``. A fragment is the element of the
page with that ``id``, in a block of the same name, or found in the whole page: so the two cannot differ.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request

from makegood.base.clock import date_text, iso
from makegood.base.durations import brief
from makegood.base.ids import show
from makegood.base.stored_values import FARTHEST
from makegood.base.terminal_text import visible, visible_lines
from makegood.console.day_time import near_time
from makegood.console.redaction import Redaction
from makegood.console.static_files import StaticFiles
from makegood.console.visits import NOBODY, Visitor
from makegood.payload.envelopes import describe

FOLDER: Final = Path(__file__).parent / "templates"
MACROS: Final = (
    "trace",
    "i",
    "badge",
    "ticks",
    "dots",
    "pips",
    "spark",
    "meter",
    "ring",
    "cmd",
    "value_fields",
)
"""Macros of ``parts.html`` that every template may use."""

MOST: Final = 25_000
"""Characters of one text that a page shows: somebody may have written a key of a megabyte into a row."""

LABEL: Final = 60
"""Characters of a button's label: its dialog says the whole."""
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
    ("schedules", "Schedules", "waiting"),
    ("lanes", "Lanes", "lock"),
    ("brokers", "Brokers", "send"),
    ("bulk", "Bulk acts", "bulk"),
    ("audit", "Audit", "audit"),
    ("stores", "Store", "db"),
)

_FORMAT: Final = re.compile("[\xa0-\U0010ffff]")

_TICKS: Final[Mapping[str, str]] = {
    "ok": "answered", "none": "no answer", "fail": "refused", "bad": "failed", "run": "running",
    "probe-": "probe, not happened", "probe+": "probe, happened", "plan": "planned", "later": "asked to come back later", "undo": "undone", "|": "new round",
}  # fmt: skip


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


PAYLOADS: Final = 150_000
"""Characters of payloads that a page shows; the one that exceeds them is the last."""


class _Room:
    """How many characters of payloads fit into the page that is drawn."""

    def __init__(self) -> None:
        self.characters = PAYLOADS


_ROOM: ContextVar[_Room] = ContextVar("makegood_room")
_SHELL: ContextVar[Shell] = ContextVar("makegood_shell", default=Shell())  # noqa: B039 - it is frozen


class Lines(str):
    """A text of several lines, for an element that shows them as such."""

    __slots__ = ()


def legible(value: Any) -> Any:
    r"""Return a value as a template writes it.

    Of a text: what an encoded value holds in place of it, each invisible character as an escape, and no more
    than ``MOST`` characters.

    >>> print(legible("invoice\u202e7\u200b"), legible(7), len(legible("k" * 1_000_000)))
    invoice\u202e7\u200b 7 25024
    """
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    if "mg1:" in value:
        value = type(value)(describe(value))
    short = value if len(value) <= MOST else f"{value[:MOST]}… ({len(value):,} characters)"
    return visible_lines(short) if isinstance(value, Lines) else visible(short)


def exact(value: object) -> Markup:
    r"""Return a value for an attribute that a form sends back.

    It is unchanged for the browser, and legible in the page's source.

    >>> print(exact("invoice\u202e7"))
    invoice&#x202e;7
    """
    return Markup(_FORMAT.sub(lambda match: f"&#x{ord(match[0]):x};", escape(value)))  # noqa: S704 - it is escaped


def short(text: str) -> str:
    """Return a text for a button.

    >>> short("Undo o-7"), len(short("k" * 500))
    ('Undo o-7', 60)
    """
    return text if len(text) <= LABEL else f"{text[: LABEL - 1]}…"


class Renderer:
    """Draws templates."""

    def __init__(
        self,
        files: StaticFiles,
        redaction: Redaction,
        folders: Sequence[Path] = (),
        *,
        trace_url: str | None = None,
    ) -> None:
        """``folders``: where templates of other pages are, before those of this package."""
        self._files = files
        self._redaction = redaction
        self._environment = Environment(
            loader=FileSystemLoader((*folders, FOLDER)),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=StrictUndefined,
            finalize=legible,
            auto_reload=False,
        )
        self._environment.filters.update(
            {
                "tickword": lambda code: _TICKS.get(code.lstrip("~"), code),
                "countwords": lambda states: _count_text(state.replace("_", " ") for state in states),
                "duration": brief,
                "task_id": show,
                "iso": iso,
                "payload": self._payload,
                "lines": Lines,
                "short": short,
                "exact": exact,
                "clock": clock_time,
                "near": near_time,
            }
        )
        self._environment.globals.update(
            {
                "navigation": NAVIGATION,
                "url": url,
                "asset": self._asset,
                "shell": _SHELL.get,
                "csrf": _csrf,
                "trace_url": lambda trace: (trace_url or "").replace("{trace}", trace),
                "ago": ago,
                "until": until,
            }
        )
        parts = self._environment.get_template("parts.html").module
        self._environment.globals.update({name: getattr(parts, name) for name in MACROS})

    def page(self, shell: Shell, template: str, context: Mapping[str, Any]) -> str:
        """Return a whole page."""
        jinja_template = self._environment.get_template(template)
        _ROOM.set(_Room())
        with _in(shell):
            return jinja_template.render(context)

    def _payload(self, payload: bytes | None, name: str = "") -> Lines:
        room = _ROOM.get()
        if room.characters <= 0:
            return Lines(f"{len(payload or b''):,} bytes: this page shows no more values")
        text = self._redaction.text(payload, name, whole=_SHELL.get().whole)
        room.characters -= len(text)
        return Lines(text)

    def _asset(self, name: str) -> str:
        return _SHELL.get().base + self._files.path(name)


def _count_text(words: Iterable[str]) -> str:
    return ", ".join(f"{n} {word}" for word, n in Counter(words).items())


@contextmanager
def _in(shell: Shell) -> Iterator[None]:
    before = _SHELL.set(shell)
    try:
        yield
    finally:
        _SHELL.reset(before)


def theme_of(request: Request) -> str:
    """Return the theme that the visitor chose, "" for the system's."""
    theme = request.cookies.get(THEME_COOKIE, "")
    return theme if theme in THEMES else ""


def url(path: str, **query: object) -> str:
    """Return the URL of a page of the console; a value of None leaves its name out of the query."""
    suffix = urlencode({name: value for name, value in query.items() if value is not None})
    return _SHELL.get().base + quote(path) + (f"?{suffix}" if suffix else "")


def _csrf() -> Markup:
    """Return the field that every form carries."""
    return Markup('<input type="hidden" name="csrf" value="{}">').format(_SHELL.get().visitor.token)


def clock_time(at: float) -> str:
    """Return a time for people, in UTC: 2026-11-25 13:28:01; "?" for one that is none."""
    return date_text(at, "%Y-%m-%d %H:%M:%S")


def ago(at: float, now: float) -> Markup:
    """Return how long ago something was, with the time itself on hover; the page's script keeps it up to
    date.
    """
    if (clock := clock_time(at)) == "?":
        return Markup("<span>?</span>")
    text = f"{brief(max(0.0, now - at))} ago"
    since = round(max(0.0, now - at), 3)
    return Markup(  # noqa: S704 - dates, numbers and our own words
        f'<time datetime="{iso(at)}" title="{clock} UTC" data-since="{since}">{text}</time>'
    )


def until(seconds: float) -> Markup:
    """Return a countdown to a moment that is so many seconds ahead; at 0 it reads "now"."""
    text = "now" if seconds <= 0 else f"in {brief(seconds)}"
    left = round(max(0.0, min(seconds, FARTHEST)), 3)
    return Markup(f'<span class="nowrap" data-until="{left}">{text}</span>')  # noqa: S704 - a number, our own words
