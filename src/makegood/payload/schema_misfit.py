"""Whether a value is of a JSON schema, as far as that is easy to say.

A signal that is sent by its name alone, from a command line or another language, is checked by no type of
Python: the schema that its task stores is all that is known. Only what would surely be refused later is found
here; keywords that this module does not know refuse nothing.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from makegood.payload.codec import UNREADABLE

_WORDS: Final[Mapping[str, str]] = {
    "string": "a text", "number": "a number", "integer": "a whole number", "boolean": "true or false", "null": "null",
    "array": "a list", "object": "an object",
}  # fmt: skip
_DEPTH: Final = 30
"""Levels of a schema that are read."""
_ITEMS: Final = 1000
"""Items of a list that are read."""
_SHOWN: Final = 60


def misfit(schema: str, value: bytes) -> str:
    """Return why a value, as JSON, is not of a JSON schema; "" if nothing is against it.

    >>> schema = '{"type":"object","properties":{"yes":{"type":"boolean"}},"required":["yes"]}'
    >>> misfit(schema, b'{"yes": "true"}')
    'yes is "true", and must be true or false'
    >>> misfit(schema, b"{}"), misfit(schema, b'{"yes": true}'), misfit("", b"7")
    ('yes is missing', '', '')
    """
    if not schema:
        return ""
    try:
        root = msgspec.json.decode(schema.encode())
        return _Check(root).misfit(root, msgspec.json.decode(value), "", _DEPTH)
    except (*UNREADABLE, AttributeError, KeyError, TypeError):  # a row that nobody of makegood wrote
        return ""


class _Check:
    """The check of one value; ``root`` holds what its schema refers to."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root

    def misfit(self, node: Any, value: Any, place: str, depth: int) -> str:
        """Return what is wrong at a place, "" if nothing is."""
        if depth < 1 or not isinstance(node, dict):
            return ""
        if (ref := node.get("$ref")) is not None:
            target = self._root["$defs"][str(ref).removeprefix("#/$defs/")]
            return self.misfit(target, value, place, depth - 1)
        sides = node.get("anyOf")
        if sides is not None:
            reasons = [self.misfit(side, value, place, depth - 1) for side in sides]
            others = [reason for side, reason in zip(sides, reasons, strict=True) if side != {"type": "null"}]
            return (
                (others[0] if len(others) == 1 else _wrong(place, value, "one of its types"))
                if all(reasons)
                else ""
            )
        if "enum" in node and not any(_same(value, each) for each in node["enum"]):
            return _wrong(place, value, f"one of {', '.join(map(_text, node['enum']))}")
        kind = node.get("type")
        if isinstance(kind, str) and not _is(kind, value, str(node.get("format", ""))):
            return _wrong(place, value, _WORDS.get(kind, kind))
        if isinstance(value, dict):
            return self._members(node, value, place, depth)
        if isinstance(value, list) and isinstance(node.get("items"), dict):
            for position, item in enumerate(value[:_ITEMS]):
                if reason := self.misfit(node["items"], item, f"{place}[{position}]", depth - 1):
                    return reason
        return ""

    def _members(self, node: dict[str, Any], value: dict[str, Any], place: str, depth: int) -> str:
        prefix = f"{place}." if place else ""
        for name in node.get("required") or ():
            if name not in value:
                return f"{prefix}{name} is missing"
        for name, part in (node.get("properties") or {}).items():
            if name in value and (reason := self.misfit(part, value[name], f"{prefix}{name}", depth - 1)):
                return reason
        return ""


def _is(kind: str, value: Any, form: str) -> bool:
    """Whether a value is of a kind of JSON; of one that is not known it is."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    kinds = {
        "string": isinstance(value, str) or (form == "decimal" and is_number),
        "number": is_number,
        "integer": is_number and (isinstance(value, int) or value.is_integer()),
        "boolean": isinstance(value, bool),
        "null": value is None,
        "array": isinstance(value, list),
        "object": isinstance(value, dict),
    }
    return kinds.get(kind, True)


def _same(value: Any, other: Any) -> bool:
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _wrong(place: str, value: Any, domain: str) -> str:
    return f"{place or 'the value'} is {_text(value)}, and must be {domain}"


def _text(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
