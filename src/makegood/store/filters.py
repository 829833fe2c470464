"""The filter language: which tasks to find, in one line of text.

The command line, the console and the API read it here. ``state:error,undoing workflow:place_order
age:>5m``: a task must match all terms. ``name=value`` means the same as ``name:value``. A word without a
name is a task's id or its exact key. A ``*`` at the end of a key, a correlation id, a lane or the value of
an attribute stands for any end of it; a ``*`` in quotes is a star.
"""

import difflib
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from makegood.base.counts import quantity
from makegood.base.durations import AS_TEXT, exact_duration, seconds
from makegood.base.text import refuse_unstorable
from makegood.errors import ConfigError
from makegood.model.states import TaskState
from makegood.store.views import Exact, Filter, Prefix

STATES: Final[Sequence[TaskState]] = (
    "pending",
    "sleeping",
    "queued",
    "processing",
    "processed",
    "undoing",
    "undone",
    "error",
)
MOST = 2**31 - 1
"""The highest number that a count may be compared with."""
LONGEST: Final = 2000
"""The most characters of a filter."""
_MOST_EXCERPT = 40
"""Characters of a filter that an error shows, from where it is wrong."""

_SAME = (
    "workflow",
    "key",
    "lane",
    "older",
    "word",
    "step",
    "waits",
    "error",
    "failing",
    "doubt",
    "failures",
    "priority",
)
"""Names that a term and the filter's field share."""
_FLAGS = MappingProxyType({"yes": True, "no": False})
_QUOTED = re.compile(r"""'[^']*'|"(?:[^"\\]|\\.)*"|\\.""", re.DOTALL)
_STAR: Final = "\0"
"""A star that was quoted. No filter contains this character."""


def parse_terms(text: str) -> dict[str, Any]:
    """Return what a filter's text says, by name; a word without a name is ``word``.

    >>> parse_terms("state=error,undone older=1h key='a b'")
    {'state': ('error', 'undone'), 'older': 3600.0, 'key': 'a b'}
    >>> parse_terms("o-1187 failures:>=3 age:<5m failing:yes")
    {'word': 'o-1187', 'failures': (3, 2147483647), 'since': 300.0, 'failing': True}
    >>> parse_terms("key:2026-11-28/* correlation:night attribute:customer=ada")
    {'key': Prefix(text='2026-11-28/'), 'correlation': 'night', 'attribute': {'customer': 'ada'}}

    Raises ``ConfigError`` that names what is wrong.
    """
    if len(text) > LONGEST:
        raise ConfigError(f"the filter has {len(text):,} characters; at most {LONGEST:,} are allowed")
    refuse_unstorable(ConfigError, filter=text)
    values: dict[str, Any] = {}
    try:
        words = shlex.split(_QUOTED.sub(lambda part: part[0].replace("*", _STAR), text))
    except ValueError as wrong:
        raise ConfigError(_open_quote(text)) from wrong
    for word in words:
        name, value = _term(word)
        if name == "age":
            name, value = _age(value)
        elif name == "word" and value.endswith("*"):
            name = "key"
        meaning = read(name, value)
        if name == "attribute" and not meaning.keys() & values.get(name, {}).keys():
            meaning |= values.pop(name, {})
        if name in values:
            subject = "a word without a name" if name == "word" else name
            hint = "; separate several states by commas" if name == "state" else ""
            raise ConfigError(f"{subject} is given twice{hint}")
        values[name] = meaning
    return values


def _open_quote(text: str) -> str:
    """Say which quote of a filter is not closed."""
    rest = _QUOTED.sub(lambda part: " " * len(part[0]), text)
    if (mark := re.search(r"""['"]""", rest)) is None:
        return r"the filter ends with a \: write \\ for one that is meant"
    at = mark.start()
    return f"no closing quote for {text[at : at + _MOST_EXCERPT]}, character {at + 1} of the filter"


def read(name: str, value: str) -> Any:
    """Return what a term's value means. Raises ``ConfigError``."""
    if name not in STARRED and "*" in value:
        readable = value.replace(_STAR, "*")
        names = ", ".join(STARRED)
        raise ConfigError(
            f"{name}:{readable} is not understood: write a * only at the end of a value of {names}; put a star that is meant in quotes"
        )
    return _READ[name](name, value if name in STARRED else value.replace(_STAR, "*"))


def build_filter(values: Mapping[str, Any]) -> Filter:
    """Return the filter of what ``parse_terms`` found."""
    app, _, agent = str(values.get("agent") or "").rpartition("/")
    return Filter(
        states=tuple(values.get("state", ())),
        app=values.get("app") or app or None,
        agent=agent or None,
        younger=values.get("since"),
        correlation_id=values.get("correlation"),
        attributes=values.get("attribute"),
        **{name: values[name] for name in _SAME if name in values},
    )


def parse_filter(text: str) -> Filter:
    """Return the filter that a text describes. Raises ``ConfigError``.

    >>> parse_filter("agent:shop/payments").agent
    'payments'
    """
    return build_filter(parse_terms(text))


def text_of(condition: Filter) -> str:
    """Return a filter in the filter language; tasks selected by their ids are only counted.

    >>> text_of(Filter(states=("error",), error="card refused", younger=3600.0))
    "state:error error:'card refused' since:1h"
    """
    terms: dict[str, object] = {"state": ",".join(condition.states) or None}
    terms |= {
        name: getattr(condition, name)
        for name in ("app", "workflow", "key", "lane", "step", "agent", "waits", "error")
    }
    terms["correlation"] = condition.correlation_id
    terms |= {"older": condition.older, "since": condition.younger}
    terms |= {name: getattr(condition, name) for name in ("failing", "doubt", "failures", "priority")}
    parts = [f"{name}:{_value_text(value)}" for name, value in terms.items() if value is not None]
    parts += [
        f"attribute:{shlex.quote(name)}={_value_text(v)}" for name, v in (condition.attributes or {}).items()
    ]
    parts += [shlex.quote(condition.word)] if condition.word is not None else []
    parts += [f"{quantity(len(condition.ids), 'task')} selected by hand"] if condition.ids else []
    return " ".join(parts) or "all tasks"


def _value_text(value: object) -> str:
    match value:
        case Prefix(text=text):
            return f"{shlex.quote(text)}*"
        case Exact(text=text):
            return shlex.quote(text)
        case bool():
            return "yes" if value else "no"
        case float():
            return exact_duration(value)
        case (low, high):
            return f"{low}" if low == high else f">={low}" if low else f"<={high}"
        case _:
            return shlex.quote(str(value))


def _term(word: str) -> tuple[str, str]:
    """Return the name and the value of a term; the first ":" or "=" parts them."""
    at = min((n for n in (word.find(":"), word.find("=")) if n >= 0), default=-1)
    if at < 0:
        return "word", word
    name, value = word[:at], word[at + 1 :]
    if name in NAMES and not value:
        raise ConfigError(f"{word!r} has no value: write it after the {word[at]}, without a space")
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=1)
        mark, readable = word[at], word.replace(_STAR, "*")
        hint = (
            f"did you mean {near[0]}{mark}...?" if near else f"write name{mark}value, of {', '.join(NAMES)}."
        )
        # What looks like a URL may hold a password.
        attribute = (
            "NAME=VALUE" if value.startswith("/") or "@" in value else f"{name}={readable[at + 1 :] or '...'}"
        )
        raise ConfigError(
            f"{readable!r} is not understood; {hint} An attribute of a task is attribute:{attribute}"
        )
    return name, value


def _age(value: str) -> tuple[str, str]:
    """Return an age as the name that means the same: above is ``older``, below is ``since``."""
    names = {">": "older", "<": "since"}
    if value[:1] not in names:
        raise ConfigError(f"age:{value} is not understood; write age:>5m or age:<5m")
    return names[value[0]], value[1:].removeprefix("=")


def _states(_: str, value: str) -> tuple[str, ...]:
    states = tuple(value.split(","))
    if strange := [state for state in states if state not in STATES]:
        raise ConfigError(f"{strange[0]!r} is not a state; the states are {', '.join(STATES)}")
    return states


def _duration(name: str, value: str) -> float:
    try:
        return seconds(float(value), name=name, written=AS_TEXT)
    except ValueError:
        return seconds(value, name=name, written=AS_TEXT)


def _flag(name: str, value: str) -> bool:
    if value not in _FLAGS:
        raise ConfigError(f"{name}:{value} is not understood; write {name}:yes or {name}:no")
    return _FLAGS[value]


def _range(name: str, value: str) -> tuple[int, int]:
    """Return the lowest and the highest number that a comparison allows."""
    mark = next((mark for mark in (">=", "<=", ">", "<") if value.startswith(mark)), "")
    digits = value.removeprefix(mark)
    if not (digits.isascii() and digits.isdecimal() and int(digits) < MOST):
        raise ConfigError(f"{name}:{value} is not understood; write {name}:3, {name}:>=3 or {name}:<3")
    number = int(digits)
    return {
        "": (number, number), ">=": (number, MOST), ">": (number + 1, MOST), "<=": (0, number), "<": (0, number - 1),
    }[mark]  # fmt: skip


def _text(_: str, value: str) -> str:
    return value


def _pattern(name: str, value: str, mark: str = ":") -> str | Prefix | Exact:
    """Return a text as a filter has it: a star at its end that is not quoted makes it a prefix."""
    start, star = (value[:-1], True) if value.endswith("*") else (value, False)
    text = start.replace(_STAR, "*")
    if "*" in start or (star and not start):
        raise ConfigError(
            f"{name}{mark}{value.replace(_STAR, '*')} is not understood: write a * only at the end, after the beginning that all have; "
            "put a star that is meant in quotes"
        )
    if star:
        return Prefix(text)
    return Exact(text) if text.endswith("*") else text


def _attribute(name: str, value: str) -> dict[str, str | Prefix | Exact]:
    attribute, mark, text = value.partition("=")
    if not (attribute and mark) or "*" in attribute:
        raise ConfigError(f"{name}:{value.replace(_STAR, '*')} is not understood; write {name}:customer=ada")
    attribute = attribute.replace(_STAR, "*")
    return {attribute: _pattern(f"{name}:{attribute}", text, mark)}


STARRED: Final = ("key", "correlation", "lane", "attribute")
"""Names whose values may end with a star."""
_READ: Mapping[str, Callable[[str, str], Any]] = MappingProxyType(
    {
        "state": _states, "app": _text, "workflow": _text, "key": _pattern, "correlation": _pattern, "lane": _pattern, "attribute": _attribute, "older": _duration, "since": _duration,
        "step": _text, "agent": _text, "waits": _text, "error": _text, "failing": _flag, "doubt": _flag, "failures": _range,
        "priority": _range, "word": _text,
    }
)  # fmt: skip
NAMES: Final = (*(name for name in _READ if name != "word"), "age")
"""The names that a term may have."""
