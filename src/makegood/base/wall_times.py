"""Moments of the calendar as people write them: aware datetimes, and the wall time of a named zone.

A zone's rules change, sometimes with days of notice. So the wall time and the zone of a moment are kept
beside it, and the moment is computed from the rules that this machine has now (``zones``).
"""

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from makegood.base.zones import zone
from makegood.errors import ConfigError

AHEAD = 7200.0
"""Seconds before its start at which a task with a zone is looked at: its zone's rules may have changed
meanwhile, and made the moment earlier.
"""
_FORM = re.compile(r"([^\[\]]+)\[([^\[\]]+)\](~?)")
_SECOND = "~"
"""Marks a wall time that stands for the later of two moments, when clocks were set back."""


def moment(value: object, *, name: str = "at") -> tuple[float, str]:
    """Return a moment in seconds since 1970, and its wall time with its zone; "" for a fixed offset.

    ``name``: the parameter's name for messages. Raises ``ConfigError`` for what is not an aware datetime.

    >>> moment(datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")))
    (1792891800.0, '2026-10-25T02:30:00[Europe/Berlin]~')
    >>> moment(datetime(1970, 1, 1, 1, tzinfo=UTC))
    (3600.0, '')
    """
    if not isinstance(value, datetime):
        raise ConfigError(
            f'{name}={value!r:.60} is not a moment: write datetime(..., tzinfo=ZoneInfo("Europe/Berlin"))'
        )
    if value.utcoffset() is None:
        raise ConfigError(
            f'{name}={value!r} has no time zone: write datetime(..., tzinfo=ZoneInfo("Europe/Berlin")), or tzinfo=UTC'
        )
    try:
        seconds = value.astimezone(UTC).timestamp()
    except OverflowError as far:
        raise ConfigError(
            f"{name}={value!r} is beyond the calendar of UTC: name a moment in this age"
        ) from far
    key = value.tzinfo.key if isinstance(value.tzinfo, ZoneInfo) else None
    if not key or key == "UTC":
        return seconds, ""
    return seconds, f"{value.replace(tzinfo=None, fold=0).isoformat()}[{key}]{_SECOND * value.fold}"


def moment_text(value: datetime, *, name: str = "at") -> str:
    """Return a moment as a plan keeps it: ISO 8601 with its offset, and its zone in brackets.

    ``name``: the parameter's name for messages. Raises ``ConfigError`` for what is not an aware datetime.

    >>> moment_text(datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")))
    '2026-10-25T02:30:00+01:00[Europe/Berlin]~'
    >>> moment_text(datetime(1970, 1, 1, 1, tzinfo=UTC))
    '1970-01-01T01:00:00+00:00'
    """
    _, wall = moment(value, name=name)
    return value.isoformat() + wall[len(value.replace(tzinfo=None).isoformat()) :]


def kept_moment(text: str) -> tuple[float, str]:
    """Return what ``moment`` returned for the moment that a text names: one of ``moment_text``, or ISO 8601
    as in JSON. Raises ``ConfigError``.

    >>> kept_moment("2026-10-25T02:30:00+01:00[Europe/Berlin]~")
    (1792891800.0, '2026-10-25T02:30:00[Europe/Berlin]~')
    """
    time, bracket, zone_and_fold = text.partition("[")
    try:
        value = datetime.fromisoformat(time)
    except ValueError as wrong:
        raise ConfigError(f"{text!r:.60} is not a moment: return a datetime with a time zone") from wrong
    seconds, _ = moment(value, name="the moment")
    return seconds, value.replace(tzinfo=None).isoformat() + bracket + zone_and_fold if bracket else ""


def read_moment(text: str, *, name: str = "at") -> datetime:
    """Return the moment that a text names: ISO 8601 with an offset, or a wall time with its zone in brackets.

    ``name``: the option's name for messages. Raises ``ConfigError``.

    >>> read_moment("2026-12-24T09:00[Europe/Berlin]") == read_moment("2026-12-24T09:00+01:00")
    True
    """
    form = "write 2026-12-24T09:00+01:00, or 2026-12-24T09:00[Europe/Berlin]"
    time, bracket, key = text.strip().removesuffix("]").partition("[")
    try:
        moment = datetime.fromisoformat(time)
    except ValueError as wrong:
        raise ConfigError(f"{name} {text!r:.60} is not a moment: {form}") from wrong
    if bracket and moment.tzinfo is None:
        return moment.replace(tzinfo=zone(key))
    if bracket or moment.tzinfo is None:
        raise ConfigError(f"{name} {text!r:.60} must have an offset or a time zone, one of them: {form}")
    return moment


def by_present_rules(seconds: float, wall: str) -> float:
    """Return the moment that a wall time with its zone is by the rules of this machine.

    ``seconds``: the moment by the rules when it was written. It stands when ``wall`` is "", cannot be read,
    or names a zone that this machine does not know.

    >>> by_present_rules(0.0, "2026-10-25T02:30:00[Europe/Berlin]~"), by_present_rules(7.0, "")
    (1792891800.0, 7.0)
    """
    parts = _FORM.fullmatch(wall)
    if parts is None:
        return seconds
    time, key, second = parts.groups()
    try:
        return datetime.fromisoformat(time).replace(tzinfo=zone(key), fold=int(bool(second))).timestamp()
    except (ConfigError, ValueError, OverflowError):  # a ConfigError: no such zone
        return seconds
