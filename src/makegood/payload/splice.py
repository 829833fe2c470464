"""Holes in JSON: the places of a step's arguments that results of earlier steps fill."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

from makegood.base.sizes import PAYLOAD_LIMIT
from makegood.errors import MissingValueError, PayloadError
from makegood.payload.codec import FLAT, UNREADABLE, shallow

PLAN_PAYLOADS = 16
"""What is put together of payloads (the texts of a whole plan, the arguments of a step, a list of results) may have so many times the
limit of one.
"""
_MADE = "what the plan puts together here"


# -- holes ---------------------------------------------------------------------------------------------------


class Hole(Protocol):
    """What goes into a hole, as far as filling is concerned: the path to walk into the value that is looked up."""

    @property
    def path(self) -> tuple[str | int, ...]:
        """Names of object members and positions in arrays, outermost first; empty for the whole value."""
        ...


R = TypeVar("R", bound=Hole)
R_co = TypeVar("R_co", bound=Hole, covariant=True)


class Holed(Protocol[R_co]):
    """JSON with holes: ``parts[0] + value(refs[0]) + parts[1] + ...``, one more part than refs."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The text around the holes."""
        ...

    @property
    def refs(self) -> tuple[R_co, ...]:
        """What goes into the holes."""
        ...


_FEW = 16

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
read_list: Callable[[bytes], Sequence[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw]).decode
"""Split a JSON array into its elements, each as it was written."""


def fill(
    template: Holed[R],
    lookup: Callable[[R], bytes],
    *,
    lists: Callable[[bytes], Sequence[msgspec.Raw]] = read_list,
    limit: int = PAYLOAD_LIMIT,
) -> bytes:
    """Return the template's JSON with each hole filled: ``lookup`` gives the whole value that a ref names.

    ``lists`` splits arrays on the way down a path; who fills many holes from one long array may remember what it read. ``limit``: of one
    payload; see ``joined``. Raises ``MissingValueError`` when a value has nothing at the ref's path, when the JSON would be too large or
    nested too deeply, and whatever ``lookup`` raises.
    """
    parts = template.parts
    if not template.refs:
        return parts[0].encode()
    pieces = [parts[0].encode()]
    for n, ref in enumerate(template.refs, 1):
        value = lookup(ref)
        pieces += walk(value, ref.path, lists=lists) if ref.path else value, parts[n].encode()
    return joined(pieces, limit)


def joined(pieces: Sequence[bytes], limit: int) -> bytes:
    """Return pieces of JSON as one. Raises ``MissingValueError`` when they have more than ``PLAN_PAYLOADS`` times ``limit`` bytes, before
    they are put together, or when they are nested too deeply.
    """
    if len(pieces) > _FEW and (size := sum(map(len, pieces))) > limit * PLAN_PAYLOADS:
        raise _too_large(_MADE, size, limit * PLAN_PAYLOADS)
    data = b"".join(pieces)
    if len(data) <= FLAT:
        return data
    if len(data) > limit * PLAN_PAYLOADS:
        raise _too_large(_MADE, len(data), limit * PLAN_PAYLOADS)
    try:
        return shallow(data, _MADE, around=1)
    except PayloadError as deep:
        raise MissingValueError(str(deep)) from None


def arguments(data: bytes, limit: int) -> bytes:
    """Return the arguments of a step, one JSON object; raises ``MissingValueError`` when one of them has more than ``limit`` bytes."""
    if len(data) > limit:
        for name, value in _members(data).items():
            if (size := len(bytes(value))) > limit:
                raise _too_large(f"the argument {name}", size, limit)
    return data


def _too_large(what: str, size: int, limit: int) -> MissingValueError:
    return MissingValueError(
        f"{what} has {size:,} bytes as JSON once it is filled in, the limit is {limit:,}: pass parts of the values on, or raise the limit "
        "with App(payload_limit=...)"
    )


def walk(
    value: bytes,
    path: tuple[str | int, ...],
    *,
    lists: Callable[[bytes], Sequence[msgspec.Raw]] = read_list,
) -> bytes:
    """Return the part of a JSON value that ``path`` leads to, as it was written there.

    >>> walk(b'{"a": [1, 2.50]}', ("a", 1))
    b'2.50'

    Raises ``MissingValueError`` that says how far the path went.
    """
    for depth, key in enumerate(path):
        try:
            value = bytes(lists(value)[key] if isinstance(key, int) else _members(value)[key])
        except UNREADABLE:
            walked = "".join(f"[{k!r}]" for k in path[:depth])
            raise MissingValueError(
                f"there is no {key!r} in the value{f' at {walked}' if walked else ''}: it is {_kind(value)}"
            ) from None
    return value


def elements(value: bytes) -> list[bytes]:
    """Return the elements of a JSON array, each as it was written; raises ``MissingValueError`` for anything else."""
    try:
        return [bytes(element) for element in read_list(value)]
    except UNREADABLE:
        raise MissingValueError(f"a list was expected, the value is {_kind(value)}") from None


def _kind(value: bytes) -> str:
    """Say what a JSON value is, without showing it: payloads do not belong into messages and logs."""
    try:
        decoded = msgspec.json.decode(value)
    except UNREADABLE:
        return "not JSON"
    if isinstance(decoded, dict):
        return f"an object with {len(decoded)} members"
    if isinstance(decoded, list):
        return f"a list of {len(decoded)}"
    if decoded is None:
        return "null"
    return {bool: "true or false", str: "a string"}.get(type(decoded), "a number")
