"""Lengths of time as people write them: 20, 0.5, "200ms", "20s", "5m", "2h", "1d", or a ``timedelta``."""

import math
import re
from datetime import timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache

from makegood.errors import ConfigError

Duration = float | int | str | timedelta
"""Seconds, a ``timedelta``, or a number with one of the units ms, s, m, h, d."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_FORM = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*(ms|s|m|h|d)\s*", re.ASCII)
_NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*", re.ASCII)


@lru_cache(maxsize=100)  # a program has few, and uses some of them for each task
def _read(text: str) -> float | None:
    """Return the seconds of a number with a unit; None if the text is not one."""
    match = _FORM.fullmatch(text)
    return None if match is None else float(match[1]) * _UNITS[match[2]]


_MOST = 1e308
"""Seconds; a whole number far above cannot be a float."""

LONGEST_WAIT = 604_800.0
"""Seconds, a week: after a longer wait that a service asked for, it is asked again all the same."""

IN_PYTHON = 'write seconds, a timedelta, or "200ms", "20s", "5m", "2h", "30d"'
"""How to write a duration in a program."""
AS_TEXT = 'write seconds, or "200ms", "20s", "5m", "2h", "30d"'
"""How to write a duration where it is text: on a command line, in the environment, in a file."""


def seconds(
    value: Duration, *, name: str = "duration", least: float = 0.0, written: str = IN_PYTHON
) -> float:
    """Return ``value`` as seconds.

    For the message, ``name`` is the parameter's name and ``written`` says how to write it. Raises
    ``ConfigError`` if the value is not a duration, not finite, or below ``least``.

    >>> seconds("200ms"), seconds("2h"), seconds(3)
    (0.2, 7200.0, 3.0)
    """
    if isinstance(value, str) and (read := _read(value)) is not None:
        result = read
    elif isinstance(value, timedelta):
        result = value.total_seconds()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        result = float(value) if -_MOST < value < _MOST else math.inf
    elif isinstance(value, str) and _FORM.fullmatch(value.strip().removeprefix("-")):
        result = -1.0  # whatever its length: it is refused below
    elif isinstance(value, str) and _NUMBER.fullmatch(value):
        number = value.strip()
        raise ConfigError(f'{name}={value!r} has no unit: write "{number}s", or {number} without quotes')
    else:
        raise ConfigError(f"{name}={value!r} is not a duration: {written}")
    if result < 0:
        raise ConfigError(f"{name}={value!r} is negative: write a duration of at least {least:g} s")
    if not math.isfinite(result) or result < least:
        raise ConfigError(f"{name}={value!r} must be a finite duration of at least {least:g} s")
    return result


def retry_after(value: Duration, now: float) -> float:
    """Return the seconds to wait: ``value`` is a duration, or the value of an HTTP Retry-After header.

    Such a header holds whole seconds ("120") or a date; ``now`` is the wall clock in seconds since 1970, to
    compare a date with. An unreadable value means 1 second, no wait is negative, and none is longer than
    ``LONGEST_WAIT``: a service that asks for time is never an error, nor for a year.

    >>> retry_after("120", 0.0), retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 0.0), retry_after("soon", 0.0)
    (120.0, 60.0, 1.0)
    """
    try:
        wait = seconds(float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value)
    except ConfigError:
        try:
            wait = max(0.0, parsedate_to_datetime(str(value)).timestamp() - now)
        except Exception:  # noqa: BLE001 - whatever a user put there
            wait = 1.0
    return min(wait, LONGEST_WAIT)


_SENSELESS = 1e11
"""Seconds, 3,000 years: nobody waits so long, and a row of the store that says so is not right."""


def brief(value: float) -> str:
    """Return seconds as pages show them: one or two units, no more exact than an eye needs.

    >>> brief(0.02), brief(4.12), brief(46.3), brief(190), brief(7142), brief(200_000)
    ('20 ms', '4.1 s', '46 s', '3 min', '1 h 59 min', '2 d')
    >>> brief(1e300), brief(float("nan"))
    ('?', '?')
    """
    if not abs(value) < _SENSELESS:
        return "?"
    if value < 0.9995:
        return f"{value * 1000:.0f} ms"
    if value < 59.5:
        return f"{value:.1f} s" if value < 9.95 else f"{value:.0f} s"
    minutes = round(value / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        hours, rest = divmod(minutes, 60)
        return f"{hours} h {rest} min" if rest and hours < 10 else f"{hours} h"
    return f"{minutes // 1440} d"


def exact_duration(value: float) -> str:
    """Return seconds as one number with a unit, in a form from which they can be read again.

    >>> exact_duration(5400), exact_duration(7200), exact_duration(0.5), exact_duration(1e9)
    ('90m', '2h', '0.5s', '1000000000s')
    """
    for unit in ("d", "h", "m"):
        count = value / _UNITS[unit]
        if count >= 1 and count.is_integer():
            return f"{count:.0f}{unit}"
    return f"{value:.15g}s"


def short_duration(value: float) -> str:
    """Return seconds as people write them, for tables and messages.

    >>> short_duration(0.2), short_duration(90), short_duration(7200)
    ('200ms', '1m30s', '2h')
    >>> short_duration(float("inf"))
    '?'
    """
    if not abs(value) < _SENSELESS:
        return "?"
    if value < 1:
        return f"{value * 1000:.0f}ms"
    if value < 60:
        return f"{value:.1f}".rstrip("0").rstrip(".") + "s"
    full = round(value)
    parts = [(full // 86400, "d"), (full % 86400 // 3600, "h"), (full % 3600 // 60, "m"), (full % 60, "s")]
    return "".join(f"{n}{unit}" for n, unit in parts if n)
