"""Whether a value is of a JSON schema, as far as that is easy to say, and which defaults it leaves out.

A signal that is sent by its name alone, from a command line or another language, is checked by no type of
Python: the schema that its task stores is all that is known. Only what would surely be refused later is found
here, and members that nobody would read; keywords that this module does not know refuse nothing. A reason
never quotes the value, which may be a secret.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from makegood.base.did_you_mean import did_you_mean
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
"""Characters of a value that a schema names."""


def misfit(schema: str, value: bytes) -> str:
    """Return why a value, as JSON, is not of a JSON schema; "" if nothing is against it.

    >>> schema = '{"type":"object","properties":{"yes":{"type":"boolean"}},"required":["yes"]}'
    >>> misfit(schema, b'{"yes": "true"}')
    'yes is a text, and must be true or false'
    >>> misfit(schema, b"{}"), misfit(schema, b'{"yes": true}'), misfit("", b"7")
    ('yes is missing', '', '')
    """
    if not schema:
        return ""
    try:
        root = msgspec.json.decode(schema.encode())
        return _Check(root).misfit(root, msgspec.json.decode(value), "", _DEPTH)
    except UNREADABLE:  # a row that nobody of makegood wrote
        return ""


def fill_defaults(schema: str, value: bytes) -> bytes:
    """Return a value, as JSON, with the members that it leaves out and for which a JSON schema has a default.

    A step that reads one member of a signal reads JSON, and knows no class whose default it is.

    >>> fill_defaults('{"type":"object","properties":{"by":{"type":"string","default":""}}}', b"{}")
    b'{"by":""}'
    """
    if '"default"' not in schema:
        return value
    try:
        root, members = msgspec.json.decode(schema.encode()), msgspec.json.decode(value)
        whole = _Check(root).complete(root, members, _DEPTH)
    except UNREADABLE:
        return value
    return value if whole == members else msgspec.json.encode(whole)


def sorted_text(value: bytes) -> bytes:
    """Return a value, as JSON, with the members of its objects in the order of their names.

    >>> sorted_text(b'{"yes": true, "by": "ann"}')
    b'{"by":"ann","yes":true}'
    """
    if value[:1] not in (b"{", b"["):
        return value
    try:
        return msgspec.json.encode(msgspec.json.decode(value), order="sorted")
    except UNREADABLE:
        return value


class _Check:
    """A look at one value; ``root`` holds what its schema refers to."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root

    def misfit(self, node: Any, value: Any, place: str, depth: int) -> str:
        """Return what is wrong at a place, "" if nothing is."""
        if depth < 1 or not isinstance(node, dict):
            return ""
        if "$ref" in node:
            return self.misfit(self._target(node), value, place, depth - 1)
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
            return f"{place or 'the value'} must be one of {', '.join(map(_text, node['enum']))}"
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
        parts = node.get("properties") or {}
        for name, part in parts.items():
            if name in value and (reason := self.misfit(part, value[name], f"{prefix}{name}", depth - 1)):
                return reason
        if parts and "additionalProperties" not in node:
            for name in value:
                if name not in parts:
                    hint = did_you_mean(name, list(parts)) or f"there are {', '.join(parts)}"
                    return f"{prefix}{name} is unknown; {hint}"
        return ""

    def complete(self, node: Any, value: Any, depth: int) -> Any:
        """Return a value with its defaults."""
        if depth < 1 or not isinstance(node, dict):
            return value
        if "$ref" in node:
            return self.complete(self._target(node), value, depth - 1)
        for side in node.get("anyOf") or ():
            if not self.misfit(side, value, "", depth - 1):
                return self.complete(side, value, depth - 1)
        if isinstance(value, dict):
            parts = node.get("properties") or {}
            whole = {name: self.complete(parts.get(name), part, depth - 1) for name, part in value.items()}
            return whole | {
                name: part["default"]
                for name, part in parts.items()
                if name not in value and "default" in part
            }
        if isinstance(value, list) and isinstance(node.get("items"), dict):
            return [self.complete(node["items"], item, depth - 1) for item in value]
        return value

    def _target(self, node: dict[str, Any]) -> Any:
        return self._root["$defs"][str(node["$ref"]).removeprefix("#/$defs/")]


def _is(kind: str, value: Any, form: str) -> bool:
    """Whether a value is of a kind of JSON; of one that is not known it is."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    kinds = {
        "string": isinstance(value, str) or (form == "decimal" and is_number),
        "number": is_number,
        "integer": is_number and isinstance(value, int),
        "boolean": isinstance(value, bool),
        "null": value is None,
        "array": isinstance(value, list),
        "object": isinstance(value, dict),
    }
    return kinds.get(kind, True)


def _same(value: Any, other: Any) -> bool:
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _wrong(place: str, value: Any, domain: str) -> str:
    return f"{place or 'the value'} is {_word(value)}, and must be {domain}"


def _word(value: Any) -> str:
    """Return what kind of JSON a value is."""
    if value is None or isinstance(value, bool):
        return _text(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _WORDS["integer" if isinstance(value, int) else "number"]
    return next(word for kind, word in _WORDS.items() if _is(kind, value, ""))


def _text(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
