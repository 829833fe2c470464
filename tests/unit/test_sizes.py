"""Sizes as people write them."""

from typing import Any

import pytest

from makegood.base.sizes import size, size_text
from makegood.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expectation"),
    [
        (1, 1),
        (268435456, 268435456),
        ("4096", 4096),
        (" 12 B ", 12),
        ("64kB", 64_000),
        ("64MB", 64_000_000),
        ("1GB", 10**9),
        ("256MiB", 256 * 1024**2),
        ("256 mib", 256 * 1024**2),
        ("1.5GiB", 3 * 512 * 1024**2),
        ("0.1KiB", 102),
        ("2TiB", 2 * 1024**4),
    ],
)
def test_sizes_are_taken_in_every_form(text: Any, expectation: int) -> None:
    assert size(text) == expectation


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "MiB",
        "12 apples",
        "1.5",
        "1.5B",
        "-5MiB",
        "1,5MiB",
        "1e9",
        "٣MiB",
        "9" * 30,
        True,
        1.5,
        None,
        b"1",
    ],
)
def test_what_is_no_size_is_named_with_what_to_write(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r'queue_bytes=.* is not a size: write whole bytes .*"256MiB"'):
        size(wrong, name="queue_bytes")


@pytest.mark.parametrize("wrong", [0, -1, "0", "0.0001kB", 1 << 63, "99999999TiB"])
def test_a_size_out_of_range_is_named_with_the_range(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="must be at least 1 B, and below 8 EiB"):
        size(wrong, name="queue_bytes")


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1024**2 - 1, "1 MiB"),
        (256 * 1024**2, "256 MiB"),
        (1288490189, "1.2 GiB"),
        (5000 * 1024**4, "5000 TiB"),
    ],
)
def test_sizes_are_shown_in_short(octets: int, text: str) -> None:
    assert size_text(octets) == text
