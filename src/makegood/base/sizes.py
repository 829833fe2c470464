"""Sizes in bytes as people write them: 268435456, "256MiB", "64MB", "1.5GiB"."""

import math
import re
from functools import lru_cache

from makegood.errors import ConfigError

PAYLOAD_LIMIT = 1 << 20
"""Default limit of one payload (an input, the arguments of a step, a result) as JSON, in bytes."""


Size = int | str
"""Whole bytes, or a number with a unit: B, kB, MB, GB, TB (powers of 1,000), KiB, MiB, GiB, TiB (powers of
1,024).
"""

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

_UNITS = {
    "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": KIB, "mib": MIB, "gib": GIB, "tib": 1 << 40,
}  # fmt: skip
_FORM = re.compile(r"\s*(\d{1,18}(?:\.\d{1,18})?)\s*([a-z]+)?\s*", re.ASCII | re.IGNORECASE)
LARGEST = (1 << 63) - 1
"""The largest whole number that a database holds."""

WRITTEN = 'write whole bytes (268435456), or a size such as "256MiB", "64MB", "1GiB"'
"""How to write a size."""


@lru_cache(maxsize=100)  # a program has few
def _read(text: str) -> int | None:
    """Return the bytes that a text means; None if it is not a size in whole bytes."""
    match = _FORM.fullmatch(text)
    if match is None or (unit := (match[2] or "b").lower()) not in _UNITS:
        return None
    whole, _, part = match[1].partition(".")
    if part and _UNITS[unit] == 1:
        return None
    rest: int = int(part or 0) * _UNITS[unit] // 10 ** len(part)
    return int(whole) * _UNITS[unit] + rest


def size(value: Size, *, name: str = "size", least: int = 1) -> int:
    """Return ``value`` in bytes.

    ``name`` is the parameter's name, for the message. Raises ``ConfigError`` if the value is not a size, or
    below ``least``.

    >>> size("256MiB"), size("64MB"), size("1.5KiB"), size(4096), size("4096")
    (268435456, 64000000, 1536, 4096, 4096)
    """
    count = _read(value) if isinstance(value, str) else value
    if count is None or isinstance(count, bool) or not isinstance(count, int):
        raise ConfigError(f"{name}={value!r:.60} is not a size: {WRITTEN}")
    if not least <= count <= LARGEST:
        raise ConfigError(
            f"{name}={value!r:.60} must be at least {size_text(least)}, and below 8 EiB: {WRITTEN}"
        )
    return count


def size_text(count: int) -> str:
    """Return bytes as people write them, for tables and messages: exact below 1 KiB, otherwise one decimal.

    >>> size_text(0), size_text(1000), size_text(268435456), size_text(1288490189), size_text(1048575)
    ('0 B', '1000 B', '256 MiB', '1.2 GiB', '1 MiB')
    """
    if count < KIB:
        return f"{count} B"
    power = min(int(math.log2(count)) // 10, 4)
    number = count / (1 << 10 * power)
    if power < 4 and number >= 1023.95:
        power, number = power + 1, 1.0
    text = f"{number:.1f}".removesuffix(".0")
    return f"{text} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"
