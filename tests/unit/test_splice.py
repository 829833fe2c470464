"""Filling templates: values are spliced in as they were written, and what is not there is said in words."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from makegood.errors import MissingValueError
from makegood.model.plan import Ref, Template
from makegood.payload.splice import elements, fill, walk

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def test_whole_values_are_joined_unread() -> None:
    """What goes in whole is not decoded: not even spaces are touched."""
    template = Template(('{"a":', ',"b":', "}"), (Ref("input", 0), Ref("step", 1)))
    values = {Ref("input", 0): b'{ "x" : 1.50 }', Ref("step", 1): b"1e400"}
    assert fill(template, values.__getitem__) == b'{"a":{ "x" : 1.50 },"b":1e400}'
    assert fill(Template(('{"ü": 1}',)), lambda _: b"") == '{"ü": 1}'.encode()


def test_parts_are_passed_on_as_they_were_written() -> None:
    """Only the path is decoded; numbers keep their digits."""
    value = b'{"a": [1.50, {"b": 12345678901234567890123}]}'
    assert walk(value, ("a", 0)) == b"1.50"
    assert walk(value, ("a", 1, "b")) == b"12345678901234567890123"
    assert walk(value, ("a", -1, "b")) == b"12345678901234567890123"
    assert walk(value, ()) is value


@pytest.mark.parametrize(
    ("value", "path", "text"),
    [
        (b'{"a": 1}', ("b",), "there is no 'b' in the value: it is an object with 1 members"),
        (
            b'{"a": {"b": "secret"}}',
            ("a", "b", "c"),
            "there is no 'c' in the value at ['a']['b']: it is a string",
        ),
        (b"[1, 2]", (2,), "there is no 2 in the value: it is a list of 2"),
        (b"[1]", ("x",), "it is a list of 1"),
        (b'{"0": 1}', (0,), "it is an object with 1 members"),
        (b"null", ("x",), "it is null"),
        (b"true", ("x",), "it is true or false"),
        (b"7", ("x",), "it is a number"),
        (b"{nonsense", ("x",), "it is not JSON"),
    ],
)
def test_what_is_not_there_is_said_without_showing_the_value(
    value: bytes, path: tuple[str | int, ...], text: str
) -> None:
    """The message says which part, how far the path went and what was found; never the payload."""
    with pytest.raises(MissingValueError) as missing:
        walk(value, path)
    assert text in str(missing.value)
    assert "secret" not in str(missing.value)


def test_elements() -> None:
    """An array's elements as they were written; anything else is refused."""
    assert elements(b'[1.0, {"a": 2}]') == [b"1.0", b'{"a": 2}']
    with pytest.raises(MissingValueError, match="a list was expected, the value is an object"):
        elements(b"{}")


@given(st.lists(VALUES, max_size=4), st.data())
def test_a_filled_template_is_the_json_of_the_filled_value(values: list[object], data: st.DataObject) -> None:
    """Filling holes by text and building the value in memory come to the same."""
    path: list[str | int] = []
    whole: object = {"values": values}
    part = whole
    while isinstance(part, dict | list) and part and data.draw(st.booleans()):
        if isinstance(part, dict):
            key: str | int = data.draw(st.sampled_from(sorted(part)))
            part = part[key]
        else:
            key = data.draw(st.integers(0, len(part) - 1))
            part = part[key]
        path.append(key)
    template = Template(('{"got":', "}"), (Ref("step", 0, tuple(path)),))
    text = fill(template, lambda _: msgspec.json.encode(whole))
    assert msgspec.json.decode(text) == {"got": part}
