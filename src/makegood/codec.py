"""Payloads: JSON bytes, and the holes in them.

``fill`` splices values into a template: where a whole value goes into a hole this is one join of bytes, so nothing that a
user wrote is decoded, let alone changed, on its way from one step to the next. Where a hole takes *part* of a value, only
the path down to it is decoded; what is found there is passed on as it was written.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from makegood.errors import MissingValueError


class Hole(Protocol):
    """What goes into a hole, as far as filling is concerned: the path to walk into the value that is looked up."""

    @property
    def path(self) -> tuple[str | int, ...]:
        """Names of object members and positions in arrays, outermost first; empty for the whole value."""
        ...


H = TypeVar("H", bound=Hole)
H_co = TypeVar("H_co", bound=Hole, covariant=True)


class Holed(Protocol[H_co]):
    """JSON with holes: ``parts[0] + value(refs[0]) + parts[1] + ...``, one more part than refs."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The text around the holes."""
        ...

    @property
    def refs(self) -> tuple[H_co, ...]:
        """What goes into the holes."""
        ...


_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode


def fill(template: Holed[H], lookup: Callable[[H], bytes]) -> bytes:
    """Return the template's JSON with each hole filled: ``lookup`` gives the whole value that a ref names.

    Raises ``MissingValueError`` when a value has nothing at the ref's path, and whatever ``lookup`` raises.
    """
    parts = template.parts
    if not template.refs:
        return parts[0].encode()
    pieces = [parts[0].encode()]
    for ref, part in zip(template.refs, parts[1:], strict=True):
        value = lookup(ref)
        pieces.append(walk(value, ref.path) if ref.path else value)
        pieces.append(part.encode())
    return b"".join(pieces)


def walk(value: bytes, path: tuple[str | int, ...]) -> bytes:
    """Return the part of a JSON value that ``path`` leads to, as it was written there.

    >>> walk(b'{"a": [1, 2.50]}', ("a", 1))
    b'2.50'

    Raises ``MissingValueError`` that says how far the path went.
    """
    for depth, key in enumerate(path):
        try:
            value = bytes(_elements(value)[key] if isinstance(key, int) else _members(value)[key])
        except (msgspec.DecodeError, KeyError, IndexError):
            walked = "".join(f"[{k!r}]" for k in path[:depth])
            raise MissingValueError(
                f"there is no {key!r} in the value{f' at {walked}' if walked else ''}: it is {_kind(value)}"
            ) from None
    return value


def elements(value: bytes) -> list[bytes]:
    """Return the elements of a JSON array, each as it was written; raises ``MissingValueError`` for anything else."""
    try:
        return [bytes(element) for element in _elements(value)]
    except msgspec.DecodeError:
        raise MissingValueError(f"a list was expected, the value is {_kind(value)}") from None


def _kind(value: bytes) -> str:
    """Say what a JSON value is, without showing it: payloads do not belong into messages and logs."""
    try:
        decoded = msgspec.json.decode(value)
    except msgspec.DecodeError:
        return "not JSON"
    if isinstance(decoded, dict):
        return f"an object with {len(decoded)} members"
    if isinstance(decoded, list):
        return f"a list of {len(decoded)}"
    if decoded is None:
        return "null"
    return {bool: "true or false", str: "a string"}.get(type(decoded), "a number")
