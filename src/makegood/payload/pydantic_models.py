"""Whether a pydantic model's JSON keeps everything in the model.

A ``SecretStr`` becomes asterisks, an excluded field is left out, a serializer may write anything: the action
would get another value than was submitted, and nobody would notice. Problems that the class shows are refused
at its declaration; where they depend on values, each value is read back. Which models need that is worked out
once per class, so that the others cost nothing.
"""

import dataclasses
import functools
import typing
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from makegood.errors import DefinitionError

Doubt = Literal["", "reading", "values"]
"""How far a model's JSON must be verified.

"": not at all. "reading": the value that was read back must have the same JSON. "values": its fields must
have the same values.
"""

REMEDY = "pass on where it is kept, and let the action fetch it: the store keeps values in clear text"


def is_model(cls: Any) -> bool:
    """Return whether this is a pydantic model, recognised by its methods."""
    return callable(getattr(cls, "model_dump", None)) and hasattr(cls, "model_validate_json")


def is_pydantic_dataclass(cls: Any) -> bool:
    """Return whether this is a dataclass that pydantic made."""
    return isinstance(cls, type) and "__pydantic_validator__" in vars(cls) and dataclasses.is_dataclass(cls)


def is_typed_dict(cls: Any) -> bool:
    """Return whether this is a TypedDict, of ``typing`` or of typing_extensions."""
    return isinstance(cls, type) and issubclass(cls, dict) and hasattr(cls, "__required_keys__")


def is_field_info(value: Any) -> bool:
    """Return whether this is what pydantic's ``Field`` returns, or a subclass of it."""
    return any(
        base.__name__ == "FieldInfo" and base.__module__.startswith("pydantic")
        for base in type(value).__mro__
    )


def alias_value(annotation: Any) -> Any:
    """Return what a type alias (``type X = ...``) stands for, or the bound of a type variable; None for any
    other annotation.

    Raises ``TypeError`` for one that cannot be evaluated.
    """
    if isinstance(annotation, typing.TypeVar):
        return _evaluate(annotation, "__bound__", f"the bound of {annotation}")
    alias = typing.get_origin(annotation) or annotation
    if type(alias).__name__ != "TypeAliasType":
        return None
    value = _evaluate(alias, "__value__", f"the type alias {alias}")
    arguments = dict(zip(alias.__type_params__, typing.get_args(annotation), strict=False))
    inner = getattr(value, "__parameters__", ())
    return (
        value[tuple(arguments.get(parameter, Any) for parameter in inner)] if arguments and inner else value
    )


def _evaluate(owner: Any, attribute: str, subject: str) -> Any:
    """Return an attribute that Python evaluates when it is read. ``subject``: its name in messages."""
    try:
        value = getattr(owner, attribute)
    except NameError as error:
        raise TypeError(f"{subject} cannot be evaluated: {error}") from None
    if isinstance(value, str | typing.ForwardRef):
        raise TypeError(f"{subject} is a text, which Python does not evaluate: write it without quotes")
    return value


def field_hints(cls: Any) -> Mapping[str, Any]:
    """Return the annotations of the fields of a dataclass, attrs class, TypedDict, named tuple or Struct.

    Empty for any other class, and while a name in them is unknown: decoding to the class reports that.
    """
    if not (
        dataclasses.is_dataclass(cls)
        or is_typed_dict(cls)
        or hasattr(cls, "_fields")
        or hasattr(cls, "__attrs_attrs__")
        or (isinstance(cls, type) and issubclass(cls, msgspec.Struct))
    ):
        return {}
    hints = _type_hints(cls)
    if not dataclasses.is_dataclass(cls):
        return hints
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.name in hints}


@functools.lru_cache(maxsize=512)
def doubt(model: Any) -> Doubt:
    """Return how far each value of a model must be verified, according to its schema and those inside it."""
    weakness: Doubt = ""
    for part in schema_parts(model):
        if _alters(part):
            return "values"
        if _may_not_read(part):
            weakness = "reading"
    return weakness


def schema_parts(model: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the schema of a pydantic model, and all schemas in it."""
    pending: list[object] = [getattr(model, "__pydantic_core_schema__", None)]
    while pending:
        part = pending.pop()
        if isinstance(part, Mapping):
            yield part
            pending.extend(part.values())
        elif isinstance(part, list | tuple):
            pending.extend(part)


def _alters(part: Mapping[str, Any]) -> bool:
    """Return whether the JSON of a part of a schema may be read back as another value."""
    config, kind = part.get("config"), part.get("type")
    return (
        isinstance(part.get("serialization"), Mapping)
        or part.get("serialization_exclude") is True
        or (isinstance(config, Mapping) and any(str(key).startswith("ser_json") for key in config))
        or (kind == "union" and _ambiguous(part.get("choices")))
        or (kind == "dict" and _kind(part.get("keys_schema")) in _LOSSY_KEYS)
    )


_PLAIN_KINDS = {"none", "bool", "int", "float", "str"}
"""Kinds of schemas whose values differ in their JSON, so that any of them may be members of one union."""
_CONTAINER_KINDS = {"model", "typed-dict", "dict", "list"}
"""Kinds of schemas of which a union may have one, beside plain kinds."""
_LOSSY_KEYS = {"union", "nullable", "none", "tuple", "list", "definition-ref"}
"""Kinds of a dict's keys that JSON, whose keys are texts, may not keep."""


def _ambiguous(choices: object) -> bool:
    """Return whether the JSON of one union member may be read as another: a ``Dog`` as a ``Cat``, an enum as
    a text.
    """
    members = choices if isinstance(choices, list) else []
    others = [kind for kind in map(_kind, members) if kind not in _PLAIN_KINDS]
    return len(others) > 1 or not _CONTAINER_KINDS.issuperset(others)


def _kind(schema: object) -> object:
    inner = schema[0] if isinstance(schema, tuple) else schema  # a union's member may have a name
    return inner.get("type") if isinstance(inner, Mapping) else None


def _may_not_read(part: Mapping[str, Any]) -> bool:
    """Return whether a part of a schema may fail to read its own JSON, or read it differently.

    It has a validator that is a function, another name for reading, or a computed field.
    """
    kind = part.get("type")
    return (
        (isinstance(kind, str) and (kind == "json" or kind.startswith("function-")))
        or part.get("serialization_alias") != part.get("validation_alias")
        or bool(part.get("computed_fields"))
    )


def check_kept(value: Any, back: Any, weakness: Doubt) -> None:
    """Raise ``ValueError`` if a model was read ``back`` from its JSON with other values.

    ``weakness``: the ``doubt`` of the model, not "". If only the reading is in doubt, models with equal JSON
    are equal.
    """
    model = type(value)
    field = next((name for name in model.model_fields if not _equal(*_attributes(value, back, name))), None)
    if field is not None and (weakness == "values" or _model_data(value) != _model_data(back)):
        raise ValueError(
            f"{model.__qualname__}.{field} would come back with another value, as its JSON does not keep it; of a secret {REMEDY}; "
            f"otherwise write JSON that reads back: a serializer, a union with a discriminator, a validator that leaves its own values alone"
        )


def _model_data(model: Any) -> object:
    return model.model_dump(mode="json", by_alias=True)


def _attributes(value: Any, back: Any, name: str) -> tuple[Any, Any]:
    return getattr(value, name, None), getattr(back, name, None)


def _equal(one: Any, other: Any) -> bool:
    """Return whether the values are equal.

    The kinds of lists do not matter, as a ``Sequence`` may be any. Instances of a class that does not define
    equality are compared by their attributes.
    """
    try:
        if one == other:
            return True
    except Exception:  # noqa: BLE001 - comparing arrays gives an array, which is neither true nor false
        return type(one) is type(other)
    if type(one) in _LISTS and type(other) in _LISTS:  # not a named tuple: its names would be missed
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_equal(part, other[name]) for name, part in one.items())
    cls: Any = type(one)
    if cls is not type(other):
        return False
    if is_model(cls):
        return all(_equal(*_attributes(one, other, name)) for name in cls.model_fields)
    return getattr(cls, "__eq__", None) is object.__eq__ and getattr(one, "__dict__", None) == getattr(
        other, "__dict__", None
    )


_LISTS = (list, tuple, set, frozenset, deque)


def refuse_hidden(annotation: Any, subject: str) -> None:
    """Raise ``DefinitionError`` for an annotation with a secret in it that JSON surely does not keep.

    A model with serializers of its own may keep it: that depends on its values.
    """
    if (place := next(_secrets_in(annotation, "", set()), None)) is not None:
        raise DefinitionError(f"{subject}: {place}, whose JSON is asterisks; {REMEDY}")


def _secrets_in(annotation: Any, where: str, classes: set[Any]) -> Iterator[str]:
    """Yield, in words, each place of an annotation where JSON loses a secret.

    ``where``: the place of the annotation, such as "Order.card"; "" for the outermost. ``classes``: those
    that were searched, as they may contain themselves.
    """
    if typing.get_origin(annotation) is not None:
        arguments = typing.get_args(annotation)
        if not any(map(_is_serializer, arguments)):  # of Annotated
            yield from _secrets_in_class(typing.get_origin(annotation), where, classes)
            for argument in arguments:
                yield from _secrets_in(argument, where, classes)
    else:
        yield from _secrets_in_class(annotation, where, classes)


def _secrets_in_class(cls: Any, where: str, classes: set[Any]) -> Iterator[str]:
    if not isinstance(cls, type) or cls in classes:
        return
    classes.add(cls)
    if hasattr(cls, "get_secret_value"):
        yield f"{where} is a {cls.__name__}" if where else f"it is a {cls.__name__}"
        classes.discard(cls)  # report each of its places
    elif is_model(cls):
        if not _serializes(cls):
            for name, field in cls.model_fields.items():  # type: ignore[attr-defined]  # a pydantic model has them
                if not any(map(_is_serializer, field.metadata)):
                    yield from _secrets_in(field.annotation, f"{cls.__name__}.{name}", classes)
    else:
        for name, kind in field_hints(cls).items():
            yield from _secrets_in(kind, f"{cls.__name__}.{name}", classes)


def _is_serializer(annotation: object) -> bool:
    """Return whether this is a serializer of pydantic, recognised by its attribute."""
    return hasattr(annotation, "when_used")


def _serializes(model: Any) -> bool:
    """Return whether a model has serializers of its own."""
    decorators = getattr(model, "__pydantic_decorators__", None)
    return bool(
        getattr(decorators, "field_serializers", None)
        or getattr(decorators, "model_serializers", None)
        or model.model_config.get("json_encoders")
    )


def _type_hints(cls: type) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except (NameError, TypeError):  # not known yet, or not at all: decoding to the class reports it
        return {}
