"""Rules in annotations that look as if makegood checked them, and that nobody would check.

msgspec reads values and checks ``msgspec.Meta``; it skips all other metadata of ``Annotated``. Pydantic's
rules hold in pydantic's own classes alone. So makegood refuses a rule elsewhere at the declaration, with what
to write instead, and lets metadata pass that only describes. It refuses type aliases that contain themselves.
"""

import dataclasses
import re
import typing
from collections.abc import Iterator
from types import UnionType
from typing import Any, NamedTuple

import msgspec

from makegood.errors import DefinitionError
from makegood.payload.pydantic_models import (
    alias_value,
    field_hints,
    is_field_info,
    is_model,
    is_pydantic_dataclass,
    is_typed_dict,
    refuse_hidden,
)  # fmt: skip

_LIBRARIES = {"annotated_types", "pydantic", "pydantic_core", "beartype", "attr", "attrs"}
"""Libraries whose metadata are rules, unless ``_DESCRIBES`` says otherwise."""
_DESCRIBES = {"Doc", "DocInfo", "WithJsonSchema", "SkipJsonSchema", "Examples"}
_LIMITS = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern")
"""Limits that have the same name in ``msgspec.Meta``."""
_LIMITED = (int, float, str, bytes, bytearray, list, dict, set, frozenset, tuple)
_CALL = "makegood.declare.call.Call"
_MODEL = "make the value a pydantic model, or check it in the action"


class Metadata(NamedTuple):
    """A piece of metadata, with the annotation that has it and its field; "" if it is not in a class."""

    place: str
    base: Any
    said: Any


def refuse_unchecked(annotation: Any) -> None:
    """Raise ``TypeError`` for an annotation with a rule in it that nobody would check."""
    for metadata in metadata_in(annotation):
        if _is_rule(metadata.said):
            raise TypeError(
                f"{_at(metadata.place)}{_name(metadata.said)} is a rule that nobody would check here: {_remedy(metadata)}"
            )


def refuse_default(default: Any, name: str) -> None:
    """Raise ``TypeError`` for the default of a parameter or field that stands for a rule."""
    if is_field_info(default) or type(default).__name__ == "_CountingAttr":
        raise TypeError(
            f"the default of {name} is {_name(default)}, which only {_library(type(default))}'s own classes understand: "
            f"{_remedy(Metadata(name, int, default))}"
        )


def refuse_unkept(annotation: Any, subject: str) -> None:
    """Raise ``DefinitionError`` for an annotation that promises what makegood does not do: to keep a secret,
    to check a rule, or to pass the call.
    """
    for part in (annotation, *typing.get_args(annotation)):
        if f"{getattr(part, '__module__', '')}.{getattr(part, '__qualname__', '')}" == _CALL:
            raise DefinitionError(
                f"{subject} is annotated mg.Call, which is not a value that a task keeps, and makegood passes none: leave it out, and write "
                "`call = mg.current_call()` in the action"
            )
    refuse_hidden(annotation, subject)
    try:
        refuse_unchecked(annotation)
    except TypeError as wrong:
        raise DefinitionError(f"{subject}: {wrong}") from None


def limits_in(annotation: Any) -> list[msgspec.Meta]:
    """Return what ``msgspec.Meta`` says in an annotation and in the classes in it, if it restricts values."""
    limits = [one.said for one in metadata_in(annotation) if isinstance(one.said, msgspec.Meta)]
    return [meta for meta in limits if any(getattr(meta, name) is not None for name in _LIMITS)]


def metadata_in(annotation: Any) -> Iterator[Metadata]:
    """Yield the metadata of an annotation and of the fields of classes in it, which pydantic does not check.

    Raises ``TypeError`` for what is read without its rules, and for a type alias that contains itself.
    """
    yield from _metadata(annotation, "", _Path((), set(), (), inside=False))


class _Path(NamedTuple):
    aliases: tuple[Any, ...]
    """The aliases around an annotation."""
    classes: set[Any]
    """Those seen so far."""
    given: tuple[Any, ...]
    """The type variables of the class around it, if their values are arguments."""
    inside: bool
    """In a class that msgspec makes."""


def _metadata(annotation: Any, place: str, path: _Path) -> Iterator[Metadata]:
    if isinstance(annotation, typing.TypeVar) and annotation in path.given:
        return
    value = alias_value(annotation)
    if value is not None:
        alias = typing.get_origin(annotation) or annotation
        if alias in path.aliases:
            raise TypeError(
                f"{_at(place)}the type alias {alias} contains itself: write a dataclass that holds itself, or Any for the inner "
                f"value"
            )
        yield from _metadata(value, place, path._replace(aliases=(*path.aliases, alias)))
        return
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return
    if origin is typing.Annotated:
        base, *metadata = arguments
        for note in metadata:
            yield Metadata(place, base, note)
        yield from _metadata(base, place, path)
        return
    if isinstance(annotation, typing.NewType):
        yield from _metadata(annotation.__supertype__, place, path)
        return
    for argument in arguments:
        if not isinstance(argument, list):  # the parameters of a Callable
            yield from _metadata(argument, place, path)
    cls = origin or annotation
    if isinstance(cls, type) and cls not in path.classes:
        if not is_pydantic_dataclass(cls):  # each of its places may be the wrong one
            path.classes.add(cls)
        parameters = getattr(cls, "__parameters__", ()) if arguments else ()
        yield from _in_class(cls, place, path._replace(given=parameters))


def _in_class(cls: Any, place: str, path: _Path) -> Iterator[Metadata]:
    if is_model(cls):
        return
    if is_pydantic_dataclass(cls):
        if path.inside:
            raise TypeError(
                f"{place} is a {cls.__name__}, a pydantic dataclass, whose rules nobody would check inside a class that is not "
                f"pydantic's: make that class a pydantic dataclass or model too"
            )
        return
    if any(map(is_pydantic_dataclass, cls.__mro__)):
        raise TypeError(
            f"{_at(place)}{cls.__name__} inherits from a pydantic dataclass, whose rules nobody would check in it: make it a pydantic "
            f"dataclass too"
        )
    if hasattr(cls, "__get_pydantic_core_schema__"):
        raise TypeError(f"{_at(place)}{cls.__name__} has rules that only pydantic knows: {_MODEL}")
    _refuse_own_making(cls)
    if is_typed_dict(cls):  # whose values are dicts, of which any part can be made by pydantic
        _refuse_open(cls)
    else:
        path = path._replace(inside=True)
        for argument in _base_arguments(cls):
            yield from _metadata(argument, f"a parameter of {cls.__name__}'s bases", path)
    for name, hint in field_hints(cls).items():
        inner = f"{cls.__name__}.{name}"
        refuse_default(_default(cls, name), inner)
        yield from _metadata(hint, inner, path)


def _refuse_open(cls: Any) -> None:
    """Refuse a TypedDict that says more of its keys and values than is checked."""
    extra = getattr(cls, "__extra_items__", None)
    if getattr(cls, "__closed__", None) or not (extra is None or str(extra).endswith("NoExtraItems")):
        raise TypeError(
            f"{cls.__name__} says which other keys it may have, and nobody would check that: write a msgspec.Struct with "
            f"forbid_unknown_fields=True, or a dict"
        )
    for name, hint in field_hints(cls).items() if typing.Generic in cls.__mro__ else ():
        variables = (hint,) if isinstance(hint, typing.TypeVar) else getattr(hint, "__parameters__", ())
        if not {*variables} <= {*getattr(cls, "__parameters__", ())}:
            raise TypeError(
                f"{cls.__name__}.{name} has its type from what a generic base was given, and nobody would check that: write the field out "
                f"in {cls.__name__}, or make it a dataclass"
            )


def _refuse_own_making(cls: Any) -> None:
    """Refuse a class with code of its own that makes or converts its values: whoever reads them calls only
    ``__post_init__`` and validators.
    """
    if not field_hints(cls):
        return
    names = [name for name, owners in _MAKERS.items() if not _is_generated(cls, name, owners)]
    if names:
        raise TypeError(
            f"{cls.__name__} has {names[0]} of its own, which nobody would call when a value is read: write what it checks in "
            f"__post_init__ (attrs: in a validator), or make the class a pydantic model"
        )
    for each in getattr(cls, "__attrs_attrs__", ()):
        if each.converter is not None:
            raise TypeError(
                f"{cls.__name__}.{each.name} has a converter, which nobody would call when a value is read: convert in the action, or make "
                f"the class a pydantic model"
            )


def _is_generated(cls: Any, name: str, marks: tuple[str, ...]) -> bool:
    """Return whether a class has a method from the library that made the class, or from ``object``.

    ``marks``: attributes that a class has which that library made.
    """
    owner = next(base for base in cls.__mro__ if name in vars(base))
    members = vars(owner)
    if name == "__init__" and "__dataclass_params__" in members:
        return bool(members["__dataclass_params__"].init)
    if name == "__init__" and "__attrs_init__" in members:  # beside one of the user's own
        return False
    return owner.__module__ in _BUILT_IN or any(mark in members for mark in marks)


_BUILT_IN = ("builtins", "typing", "typing_extensions", "msgspec", "msgspec._core")
_MAKERS = {"__init__": ("__attrs_attrs__",), "__new__": ("_field_defaults",)}


def _base_arguments(cls: Any) -> Iterator[Any]:
    """Yield what a class gives its generic bases: ``class Orders(Page[Order])``."""
    for owner in cls.__mro__ if field_hints(cls) else ():
        for base in vars(owner).get("__orig_bases__", ()):
            yield from (one for one in typing.get_args(base) if not isinstance(one, typing.TypeVar))


def _default(cls: Any, name: str) -> Any:
    if dataclasses.is_dataclass(cls):
        return cls.__dataclass_fields__[name].default if name in cls.__dataclass_fields__ else None
    if hasattr(cls, "_field_defaults"):
        return cls._field_defaults.get(name)
    if issubclass(cls, msgspec.Struct):
        defaults = cls.__struct_defaults__
        position = cls.__struct_fields__.index(name) - len(cls.__struct_fields__) + len(defaults)
        return defaults[position] if position >= 0 else None
    return None


def _is_rule(note: Any) -> bool:
    cls = note if isinstance(note, type) else type(note)
    if isinstance(note, str | msgspec.Meta) or cls.__name__ in _DESCRIBES:
        return False
    if is_field_info(note):
        return bool(
            note.metadata
            or note.discriminator
            or note.alias
            or note.validation_alias
            or not note.is_required()
        )
    return (
        any(_library(base) in _LIBRARIES for base in cls.__mro__)
        or hasattr(cls, "__get_pydantic_core_schema__")
        or isinstance(note, re.Pattern | range | slice)
        or (callable(note) and not isinstance(note, type))
    )


def _remedy(metadata: Metadata) -> str:
    """Return what to write instead of a rule."""
    pieces = [metadata.said, *(metadata.said.metadata if is_field_info(metadata.said) else ())]
    limits = {
        name: getattr(piece, name)
        for piece in pieces
        for name in _LIMITS
        if getattr(piece, name, None) is not None
    }
    base = typing.get_origin(metadata.base) or metadata.base
    while isinstance(base, typing.NewType):
        base = base.__supertype__
    if not limits or base not in (*_LIMITED, typing.Union, UnionType):
        return _MODEL
    options = ", ".join(f"{name}={getattr(value, 'pattern', value)!r}" for name, value in limits.items())
    return f"write Annotated[{_short(metadata.base)}, msgspec.Meta({options})]"


def _short(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")


def _name(note: Any) -> str:
    name = note.__name__ if isinstance(note, type) else type(note).__name__
    return {"FieldInfo": "pydantic's Field", "function": "a function"}.get(name, name)


def _library(cls: type) -> str:
    return cls.__module__.partition(".")[0]


def _at(place: str) -> str:
    return f"{place}: " if place else ""
