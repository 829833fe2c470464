"""Holes in JSON: the places of a step's arguments that results of earlier steps fill.

A whole value goes into a hole by one join of bytes, so nothing that a user wrote is decoded, let alone
changed, on its way from one step to the next. If a hole takes *part* of a value, only the path down to it is
decoded; the part is passed on as it was written.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

from makegood.base.sizes import PAYLOAD_LIMIT
from makegood.errors import MissingValueError, PayloadError
from makegood.payload.codec import FLAT, UNREADABLE, shallow

PLAN_PAYLOADS = 16
"""Combined payloads (the texts of a plan, the arguments of a step, a list of results) may be this many times
the limit of one payload.
"""
_MADE = "what the plan puts together here"


# -- holes ---------------------------------------------------------------------------------------------------


class Hole(Protocol):
    """What fills a hole: for filling, only the path into the looked-up value matters."""

    @property
    def path(self) -> tuple[str | int, ...]:
        """Names of object members and positions in arrays, outermost first; empty for the whole value."""


R = TypeVar("R", bound=Hole)
R_co = TypeVar("R_co", bound=Hole, covariant=True)


class Holed(Protocol[R_co]):
    """JSON with holes: ``parts[0] + value(refs[0]) + parts[1] + ...``, one more part than refs."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The text around the holes."""

    @property
    def refs(self) -> tuple[R_co, ...]:
        """What fills the holes."""


_BARE = "", ""
"""The parts of a template that is one value: nearly always a task's result."""
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
    """Return the template's JSON with each hole filled: ``lookup`` returns the whole value that a ref names.

    ``lists`` splits arrays on the way down a path; a caller that fills many holes from one long array may
    cache the result. ``limit``: of one payload; see ``join_pieces``. Raises ``MissingValueError`` if a value
    has nothing at the ref's path, or if the JSON would be too large or nested too deeply; exceptions of
    ``lookup`` pass through.
    """
    parts, refs = template.parts, template.refs
    if not refs:
        return parts[0].encode()
    if parts == _BARE and not refs[0].path:
        value = lookup(refs[0])
        return value if len(value) <= FLAT else join_pieces([value], limit)
    pieces = [parts[0].encode()]
    for n, ref in enumerate(refs, 1):
        value = lookup(ref)
        pieces += walk(value, ref.path, lists=lists) if ref.path else value, parts[n].encode()
    return join_pieces(pieces, limit)


def join_pieces(pieces: Sequence[bytes], limit: int) -> bytes:
    """Return pieces of JSON as one.

    Raises ``MissingValueError`` if they have more than ``PLAN_PAYLOADS`` times ``limit`` bytes (checked
    before many pieces are joined), or are nested too deeply.
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


def flat(pieces: int, limit: int) -> int:
    """Return up to how many bytes so many pieces need no examination once they are one; 0: examine them
    first.
    """
    return min(FLAT, limit) if pieces <= _FEW else 0


def arguments(data: bytes, limit: int) -> bytes:
    """Return the arguments of a step, one JSON object; raises ``MissingValueError`` if one has more than
    ``limit`` bytes.
    """
    if len(data) > limit:
        for name, value in _members(data).items():
            if (size := len(bytes(value))) > limit:
                raise _too_large(f"the argument {name}", size, limit)
    return data


def _too_large(subject: str, size: int, limit: int) -> MissingValueError:
    return MissingValueError(
        f"{subject} has {size:,} bytes as JSON once it is filled in, the limit is {limit:,}: pass parts of the values on, or raise the limit "
        "with App(payload_limit=...)"
    )


def walk(
    value: bytes, path: tuple[str | int, ...], *, lists: Callable[[bytes], Sequence[msgspec.Raw]] = read_list
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
            place = "".join(f"[{k!r}]" for k in path[:depth])
            raise MissingValueError(
                f"there is no {key!r} in the value{f' at {place}' if place else ''}: it is {_kind(value)}"
            ) from None
    return value


def elements(value: bytes) -> list[bytes]:
    """Return the elements of a JSON array, each as it was written; raises ``MissingValueError`` for anything
    else.
    """
    try:
        return [bytes(element) for element in read_list(value)]
    except UNREADABLE:
        raise MissingValueError(f"a list was expected, the value is {_kind(value)}") from None


def _kind(value: bytes) -> str:
    """Describe a JSON value without showing it: payloads do not belong in messages and logs."""
    try:
        data = msgspec.json.decode(value)
    except UNREADABLE:
        return "not JSON"
    if isinstance(data, dict):
        return f"an object with {len(data)} members"
    if isinstance(data, list):
        return f"a list of {len(data)}"
    if data is None:
        return "null"
    return {bool: "true or false", str: "a string"}.get(type(data), "a number")
