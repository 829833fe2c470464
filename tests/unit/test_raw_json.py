"""What nobody could read again is refused where it enters: msgspec copies a ``Raw`` as it is."""

from typing import Any

import msgspec
import pytest

import makegood as mg
from makegood.payload.codec import encode, encode_with_holes

shop = mg.App("raws")
desk = shop.agent("desk")


@desk.action(complete_within="5s", undo=mg.NOTHING)
def pack(order: Any) -> Any:
    """Return what it was given."""
    return order


@shop.workflow(complete_within="1h")
def place(order: Any) -> Any:
    """Pack an order."""
    return pack(order)


@shop.workflow(complete_within="1h")
def fixed(order: Any) -> Any:
    """Pack what the workflow itself says."""
    return pack([order, msgspec.Raw(b"{bad")])


BROKEN = (
    b"{bad", b"NaN", b"-Infinity", b'"\\ud800"', b'"\\udc00a"', b"1 2", b"[1,]", b"01", b'"\xff"', b'"a\x00"', b"'a'", b"tru", b"\xef\xbb\xbf1",
)  # fmt: skip
TOO_LARGE = (b"1" * 10_000, b"-" + b"9" * 5000, b"1e999999999", b"1E+400", b"-1e400", b"1e" + b"9" * 5000)


def within(raw: bytes) -> list[Any]:
    """Return values that hold a Raw, in every way that values hold others."""
    one = msgspec.Raw(raw)
    return [one, [one], {"a": one}, (1, {"b": [one]}), msgspec.defstruct("Order", ["id"])(one)]


@pytest.mark.parametrize("raw", [*BROKEN, *TOO_LARGE])
def test_json_that_cannot_be_read_is_refused(raw: bytes) -> None:
    """With words that say which: no JSON, or a number too large."""
    words = "number in it is too large" if raw in TOO_LARGE else "not JSON|invalid start byte|not be decoded"
    for value in within(raw):
        with pytest.raises(mg.PayloadError, match=words):
            encode(value)
        with pytest.raises(mg.PayloadError, match=words):
            encode_with_holes(value, lambda _: None)


@pytest.mark.parametrize("raw", [BROKEN[0], BROKEN[1], BROKEN[3], TOO_LARGE[0], TOO_LARGE[2]])
def test_every_entrance_refuses_it(raw: bytes) -> None:
    """Inputs of a plan, and results of an action; messages, settlements and corrections go through the same door."""
    for value in within(raw)[:4]:
        with pytest.raises(mg.PayloadError):
            place.plan(value)
        with pytest.raises(mg.PayloadError):
            pack._encode(value)
    with pytest.raises(mg.PayloadError):
        fixed.plan(1)


@pytest.mark.parametrize(
    "value",
    [msgspec.Raw(b'{"a": [1, 2.50]}'), msgspec.Raw(b'"\\ud83d\\ude00"'), 10**400, msgspec.Raw(b"1" * 400), "1e999", ["x1e999", "9" * 5000], 1e308,
     {"a": msgspec.Raw(b"null")}, msgspec.Raw(b"0." + b"1" * 10_000)],
)  # fmt: skip
def test_json_that_can_be_read_is_kept_as_it_was_written(value: Any) -> None:
    """A pair of surrogates is a letter; a text may look like a number."""
    data = encode(value)
    assert data == msgspec.json.encode(value)
    msgspec.json.decode(data)
    assert encode_with_holes(value, lambda _: None) == ((data.decode(),), ())
