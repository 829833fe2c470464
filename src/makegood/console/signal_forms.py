"""The form of a signal, made of the JSON schema of its values.

Texts, numbers, booleans, choices and objects of these have fields; anything else is one field of JSON.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from makegood.payload.codec import UNREADABLE, shallow
from makegood.payload.envelopes import SCHEMA

MOST_FIELDS: Final = 30
"""Members of an object that get fields of their own, at most."""
LONGEST: Final = 200
"""Characters of a description, of a choice and of an example, at most."""

FieldKind = Literal["text", "number", "integer", "boolean", "choice", "json"]
_SCALARS: Final[Mapping[str, FieldKind]] = {
    "string": "text", "number": "number", "integer": "integer", "boolean": "boolean",
}  # fmt: skip
_DEEPEST: Final = 3
"""Levels of an example, at most."""
_NULL: Final = {"type": "null"}


@dataclass(frozen=True, slots=True)
class FormField:
    """A field of a form."""

    kind: FieldKind
    member: str = ""
    """The member of the object; "": the field is the whole value."""
    about: str = ""
    optional: bool = False
    """It may be left empty: then the member is left out, or the value is null."""
    choices: tuple[str, ...] = ()
    """The values of a choice, as JSON."""
    position: int = 0
    example: str = "null"
    """For a field of JSON: a value of the type, with empty texts and zeros."""

    @property
    def name(self) -> str:
        """Its name in the form: a position, since members of an object may have any name."""
        return f"value-{self.position}"

    def read(self, text: str) -> Any:
        """Return the value that a field holds; ``UNSET`` for an optional one that is empty.

        Raises ``ValueError``, which says what it takes.
        """
        label = self.member or "the value"
        if not text and self.optional:
            return msgspec.UNSET
        match self.kind:
            case "text":
                return text
            case "choice" if text not in self.choices:
                raise ValueError(f"{label} is one of {', '.join(self.choices)}")
            case "boolean" if text not in ("true", "false"):
                raise ValueError(f"{label} is true or false")
        try:
            value = msgspec.json.decode(shallow(text.encode(), label))
        except UNREADABLE as wrong:
            raise ValueError(f"{label} is not JSON: {wrong}") from None
        numbers: tuple[type, ...] = (int,) if self.kind == "integer" else (int, float)
        if self.kind in ("number", "integer") and (isinstance(value, bool) or not isinstance(value, numbers)):
            raise ValueError(f"{label} is a {'whole ' if self.kind == 'integer' else ''}number")
        return value


class FieldError(ValueError):
    """What is wrong with what a field holds. ``field``: its name in the form."""

    def __init__(self, text: str, field: str) -> None:
        super().__init__(text)
        self.field = field


def fields_of(schema: str) -> tuple[FormField, ...]:
    """Return the fields of a form for values of a JSON schema: one of JSON where it is unknown, or of a kind
    that has no form.

    >>> [(f.kind, f.member) for f in fields_of('{"type":"object","properties":{"yes":{"type":"boolean"}}}')]
    [('boolean', 'yes')]
    >>> [f.kind for f in fields_of("")], [f.kind for f in fields_of('{"type":"array"}')]
    (['json'], ['json'])
    """
    if schema == SCHEMA:  # nobody knows the type of encoded values
        return (FormField("json", about="the codec of the console encodes it"),)
    try:
        root = msgspec.json.decode(schema.encode()) if schema else {}
        return _fields(root) or (FormField("json", example=_cut(_example(root, root))),)
    except (*UNREADABLE, AttributeError, KeyError, TypeError):  # a row that nobody of makegood wrote
        return (FormField("json"),)


def value_of(fields: tuple[FormField, ...], form: Mapping[str, str]) -> Any:
    """Return the value that a form holds. Raises ``FieldError``."""
    if len(fields) == 1 and not fields[0].member:
        value = _read(fields[0], form)
        return None if value is msgspec.UNSET else value
    members = {field.member: _read(field, form) for field in fields}
    return {name: value for name, value in members.items() if value is not msgspec.UNSET}


def _read(field: FormField, form: Mapping[str, str]) -> Any:
    try:
        return field.read(_text(field, form))
    except ValueError as wrong:
        raise FieldError(str(wrong), field.name) from None


def _text(field: FormField, form: Mapping[str, str]) -> str:
    text = form.get(field.name, "")
    return text if field.kind == "text" else text.strip()


def _fields(root: dict[str, Any]) -> tuple[FormField, ...]:
    node = _resolve(root, root)
    if node.get("type") != "object":
        return _only(_field(node, root))
    properties = node.get("properties") or {}
    if not 0 < len(properties) <= MOST_FIELDS:
        return ()
    required = node.get("required") or []
    fields = []
    for position, (member, part) in enumerate(properties.items()):
        field = _field(_resolve(part, root), root, member, position, optional=member not in required)
        if field is None:
            return ()
        fields.append(field)
    return tuple(fields)


def _only(field: FormField | None) -> tuple[FormField, ...]:
    return () if field is None else (field,)


def _resolve(node: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """Return what a node refers to, within the schema."""
    for _ in range(10):
        if (ref := node.get("$ref")) is None:
            return node
        node = root["$defs"][str(ref).removeprefix("#/$defs/")]
    raise KeyError("a reference to itself")


def _cut(example: Any) -> str:
    text = msgspec.json.encode(example).decode()
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _example(node: dict[str, Any], root: dict[str, Any], depth: int = 0) -> Any:
    """Return a value that shows the form of a type; None where a schema has no one form, or is deep."""
    node = _resolve(node, root)
    if (sides := node.get("anyOf")) is not None and len(
        values := [side for side in sides if side != _NULL]
    ) == 1:
        node = _resolve(values[0], root)
    if depth > _DEEPEST:
        return None
    match node.get("type"):
        case "object":
            members = [*(node.get("properties") or {}).items()][:MOST_FIELDS]
            return {name: _example(part, root, depth + 1) for name, part in members}
        case "array":
            items = node.get("items")
            return [_example(items, root, depth + 1)] if items else []
        case kind:
            return {"string": "", "number": 0.0, "integer": 0, "boolean": False}.get(str(kind))


def _field(
    node: dict[str, Any], root: dict[str, Any], member: str = "", position: int = 0, *, optional: bool = False
) -> FormField | None:
    """Return the field of one scalar; None for anything else."""
    if (sides := node.get("anyOf")) is not None:
        values = [_resolve(side, root) for side in sides if side != _NULL]
        if len(values) != 1 or len(sides) != len(values) + 1:
            return None
        node, optional = values[0], True
    about = str(node.get("description") or "")[:LONGEST]
    if "enum" in node:
        choices = tuple(msgspec.json.encode(value).decode() for value in node["enum"])
        if len(choices) > MOST_FIELDS or max(map(len, choices), default=0) > LONGEST:
            return None
        return FormField("choice", member, about, optional, choices, position)
    kind = _SCALARS.get(str(node.get("type")))
    return (
        None
        if kind is None or node.get("contentEncoding")
        else FormField(kind, member, about, optional, (), position)
    )
