"""The fields of a cron text: read before cronsim sees them, because its refusals do not say what to write
instead.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from makegood.errors import ConfigError

LONGEST = 1000
"""Characters of a cron text."""


class _Field(NamedTuple):
    """A field of a cron text: its name, its range, and the names of its values, from the least on."""

    label: str
    least: int
    most: int
    names: Sequence[str] = ()


_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAY = _Field("day of month", 1, 31)
_WEEKDAY = _Field("day of week", 0, 7, ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"))
_FIELDS = (
    _Field("second", 0, 59),
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _DAY,
    _Field("month", 1, 12, _MONTHS),
    _WEEKDAY,
)
_NICKNAMES = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}
_TERM = re.compile(r"(?:\*|([0-9A-Z]+)(?:-([0-9A-Z]+))?)(?:/([0-9]{1,4}))?")
_FORMS = "write `*`, a number, a range such as `1-5`, a step such as `*/2`, or a list of these with commas"


def fields_of(text: str) -> tuple[str, ...]:
    """Return the six fields of a cron text, seconds first, in capitals; of five fields the second is 0.

    Raises ``ConfigError``, which names the field and what to write.

    >>> fields_of("30 2 * * mon-fri")
    ('0', '30', '2', '*', '*', 'MON-FRI')
    """
    fields = text[:LONGEST].upper().split()
    if fields and fields[0].startswith("@"):
        instead = _NICKNAMES.get(fields[0])
        remedy = f"write {instead!r}" if instead else "write five fields, such as '30 4 * * *'"
        raise ConfigError(f"cron={text!r:.80}: names with @ are not known: {remedy}")
    if len(text) > LONGEST or len(fields) not in (5, 6):
        size = f"{len(fields)} fields" if len(text) <= LONGEST else f"more than {LONGEST} characters"
        raise ConfigError(
            f"cron={text!r:.80} has {size}: write five (minute, hour, day of month, month, day of week), "
            "or six, with the seconds first"
        )
    if len(fields) == 5:
        fields.insert(0, "0")
    for field, value in zip(_FIELDS, fields, strict=True):
        for term in value.split(","):
            try:
                _check(field, term)
            except ValueError as wrong:
                raise ConfigError(f"cron={text!r:.80}: {field.label} {term!r:.20}: {wrong}") from None
    return tuple(fields)


def _check(field: _Field, term: str) -> None:
    """Raise ``ValueError`` with the remedy if a term is not one of that field."""
    if "?" in term:
        raise ValueError("write `*` for any")
    if field is _DAY and (term in {"L", "LW"} or term.endswith("W")):
        if term not in {"L", "LW"}:
            raise ValueError("write the day alone, or `LW` for the last weekday of the month")
        return
    if field is _WEEKDAY and "#" in term:
        day, _, nth = term.partition("#")
        _number(field, day)
        if nth not in {"1", "2", "3", "4", "5"}:
            raise ValueError("write 1 to 5 behind the #: `MON#1` is the first Monday of the month")
        return
    if field is _WEEKDAY and term.endswith("L"):
        if not re.fullmatch("[0-7]L", term):
            raise ValueError("write a digit before the L: `5L` is the last Friday of the month")
        return
    _check_plain(field, term)


def _check_plain(field: _Field, term: str) -> None:
    match = _TERM.fullmatch(term)
    if match is None:
        raise ValueError(_FORMS)
    first, last, step = match.groups()
    start = field.least if first is None else _number(field, first)
    end = field.most if last is None else _number(field, last)
    if end < start:
        raise ValueError(f"the range runs backwards: write `{_in_order(field, first, last)}`")
    if step is not None and not 1 <= int(step) <= field.most:
        raise ValueError(f"write a step of 1 to {field.most}; a longer one would always begin again")


def _number(field: _Field, text: str) -> int:
    if text in field.names:
        return field.names.index(text) + field.least
    if not text.isdecimal():
        names = f", or {field.names[0]} to {field.names[-1]}" if field.names else ""
        raise ValueError(f"write a number from {field.least} to {field.most}{names}")
    if len(text) > 4 or not field.least <= int(text) <= field.most:
        raise ValueError(f"{field.label} goes from {field.least} to {field.most}")
    return int(text)


def _in_order(field: _Field, first: str, last: str) -> str:
    """Return a range that runs over the end of its field as two that do not.

    >>> _in_order(_WEEKDAY, "MON", "SUN"), _in_order(_WEEKDAY, "6", "1"), _in_order(_FIELDS[2], "22", "2")
    ('MON-SAT,SUN', '6,0-1', '22-23,0-2')
    """
    most = 6 if field is _WEEKDAY else field.most
    top = str(most) if first.isdecimal() else field.names[-1]
    bottom = str(field.least) if last.isdecimal() else field.names[0]
    return f"{first if first == top else f'{first}-{top}'},{last if last == bottom else f'{bottom}-{last}'}"
