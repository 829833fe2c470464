"""Promises: placeholders, inside a workflow function, for results that are not there yet.

Type checkers see the result's type. The object is a ``Promise``, which can be passed on to actions, be
compared with ``==`` and ``!=`` for ``mg.when``, and taken apart by attribute and key. Everything else that
would need the value raises ``PromiseError`` and says what to write instead.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, Literal, NoReturn, Protocol, cast

import msgspec

from makegood.errors import PromiseError
from makegood.workflow import annotation_paths


class Scope:
    """A part of a workflow function that its promises do not leave: a branch, a side of a ``when``, a body of
    an ``each``.

    ``name`` says which, for messages; the workflow function itself has no parent.
    """

    __slots__ = ("is_open", "name", "parent")

    def __init__(self, name: str, parent: "Scope | None") -> None:
        self.name = name
        self.parent = parent
        self.is_open = False
        """Whether it has ended and always runs: then its promises may be used in what follows."""

    def within(self, other: "Scope") -> bool:
        """Return whether this is ``other`` or is inside it."""
        scope: Scope | None = self
        while other.is_open and other.parent is not None:
            other = other.parent
        while scope is not None and scope is not other:
            scope = scope.parent
        return scope is not None


class Origin(msgspec.Struct, eq=False):
    """A step that promises come from, as far as they need it."""

    plan: object
    """The plan under construction that it belongs to."""
    name: str
    depth: int
    """The number of ``each`` bodies around it."""
    position: int
    """In the innermost body."""
    serial: int
    """In the plan; -1: it is no step."""
    input: int = -1
    """The place of the workflow input that it is; -1: it is a step."""
    scope: Scope | None = None
    """The part that its promises do not leave, if it was put there after it was recorded."""


class Promised(msgspec.Struct, eq=False):
    """What a promise represents: the result of a step, or an item of an ``each``."""

    origin: Origin
    annotation: Any
    scope: Scope
    """The scope that it does not leave; moved outwards when a branch returns it."""
    path: tuple[str | int, ...] = ()
    """The way into the result."""
    item: bool = False
    """It represents one item of an ``each``."""

    def __str__(self) -> str:
        name = f"item of {self.origin.name}" if self.item else self.origin.name
        return name + "".join(f".{key}" if isinstance(key, str) else f"[{key}]" for key in self.path)

    def part(self, member: annotation_paths.Member) -> "Promise":
        """Return the promise of a part."""
        path = (*self.path, member.key)
        return Promise(Promised(self.origin, member.annotation, self.scope, path=path, item=self.item))


class PromiseSource(Protocol):
    """Gives promises that are almost never asked what they stand for. ``number`` says which of them."""

    def content_of(self, number: int) -> Promised:
        """Return what that promise stands for."""


class Promise:
    """Stands for a result inside a workflow function. ``content_of`` returns what it stands for."""

    __slots__ = ("_promised", "_promised_as", "_promised_by")
    _promised: Promised
    _promised_as: int
    _promised_by: PromiseSource | None

    def __init__(self, subject: Promised) -> None:
        _set_promised(self, subject)
        _set_by(self, None)

    def __getattr__(self, name: str) -> Any:
        if name == "_promised" and self._promised_by is not None:  # not set yet
            return self._promised_by.content_of(self._promised_as)
        if name.startswith("__"):  # what Python and libraries ask of any object
            raise AttributeError(name)
        mine = self._promised
        return mine.part(annotation_paths.attribute(mine.annotation, name, mine))

    def __getitem__(self, key: Any) -> Any:
        mine = self._promised
        return mine.part(annotation_paths.item(mine.annotation, key, mine))

    def __eq__(self, other: object) -> Any:
        return PromiseCondition("eq", self, other)

    def __ne__(self, other: object) -> Any:
        return PromiseCondition("ne", self, other)

    def __repr__(self) -> str:
        return f"<promise of {self._promised}>"

    def __copy__(self) -> "Promise":
        return self

    def __deepcopy__(self, memo: object) -> "Promise":
        return self

    def __hash__(self) -> int:  # noqa: PLE0309 - it refuses
        _refuse(self, "used as a key or in a set", "a dict by name or a list can hold promises")


_new = object.__new__
_set_promised = Promise.__dict__["_promised"].__set__  # bypasses the refusal of assignments
_set_as, _set_by = Promise.__dict__["_promised_as"].__set__, Promise.__dict__["_promised_by"].__set__


class _Moment:
    """The type of ``mg.MOMENT``, which stands for the moment among the inputs of a schedule."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "mg.MOMENT"


MOMENT: Final[datetime] = cast("datetime", _Moment())
"""Stands for the moment, among the inputs of a schedule: ``shop.schedule("nightly", report, "eu", mg.MOMENT,
cron="0 3 * * *")``. The workflow gets an aware datetime.
"""


def promise_of(source: PromiseSource, number: int) -> Promise:
    """Return a promise that asks its ``source`` what it stands for, when needed."""
    promise = _new(Promise)
    _set_by(promise, source)
    _set_as(promise, number)
    return promise


def number_of(promise: Promise, source: PromiseSource) -> int:
    """Return the number of this promise among those of ``source``; -1 if it is not one of them."""
    return promise._promised_as if promise._promised_by is source else -1  # noqa: SLF001 - as below


def settle(promise: Promise, subject: Promised) -> None:
    """Set what a promise stands for, for good."""
    _set_promised(promise, subject)


Operator = Literal["eq", "ne", "true", "all", "any", "not"]


class PromiseCondition:
    """The condition of ``mg.when``: ``eq`` / ``ne`` of two values, ``true`` of one, ``all`` / ``any`` /
    ``not`` of conditions.
    """

    __slots__ = ("op", "values")

    def __init__(self, op: Operator, *values: object) -> None:
        self.op: Operator = op
        self.values = values

    def __repr__(self) -> str:
        return f"<condition {self.op} {', '.join(map(repr, self.values))}>"

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        raise PromiseError(
            "a condition on a promise was compared: write mg.not_(condition), or compare the promise itself"
        )

    def __bool__(self) -> bool:
        raise PromiseError(
            "a promise was compared where the answer is needed now (if, and, or, not, in): its value is known only when the step is "
            "done. Write mg.when(promise == x, then=..., otherwise=...), with mg.all_of(...), mg.any_of(...), mg.not_(...) "
            "for and, or, not"
        )


def _refuse(promise: Promise, doing: str, remedy: str) -> NoReturn:
    raise PromiseError(
        f"{content_of(promise)} is not known yet: a promise cannot be {doing}. Instead, {remedy}"
    )


def content_of(promise: Promise) -> Promised:
    """Return what a promise stands for."""
    return promise._promised  # noqa: SLF001 - a promise has no public names of its own: they are its value's


_ACTION = "do it in an action, which gets the value"
_WHEN = "write mg.when(promise == x, then=..., otherwise=...)"
_EACH = "write mg.each(promise, body) for its elements, promise[0] for one"
_REFUSED = (
    ("used as a condition", f"{_WHEN}, or mg.when(promise, ...) when it is a bool", "__bool__"),
    ("iterated over or unpacked", _EACH, "__iter__ __reversed__ __aiter__"),
    ("searched (in)", f"{_ACTION}, or {_WHEN}", "__contains__"),
    ("measured (len)", _ACTION, "__len__ __length_hint__"),
    ("made a text (str, format, f-string)", _ACTION, "__str__ __format__ __bytes__ __fspath__"),
    ("compared with <, <=, > or >=", f"{_ACTION} and returns a bool, and decide on that with mg.when", "__lt__ __le__ __gt__ __ge__"),
    ("calculated with", _ACTION, (
        "__add__ __radd__ __iadd__ __sub__ __rsub__ __isub__ __mul__ __rmul__ __imul__ __truediv__ __rtruediv__ __floordiv__ "
        "__rfloordiv__ __mod__ __rmod__ __divmod__ __rdivmod__ __pow__ __rpow__ __matmul__ __rmatmul__ __lshift__ __rlshift__ "
        "__rshift__ __rrshift__ __neg__ __pos__ __abs__ __invert__ __round__ __trunc__ __floor__ __ceil__ __int__ __float__ "
        "__complex__ __index__"
    )),
    ("combined with &, | or ^", "write mg.all_of(...) or mg.any_of(...) of conditions", (
        "__and__ __rand__ __or__ __ror__ __xor__ __rxor__"
    )),
    ("called", _ACTION, "__call__"),
    ("awaited", "leave out await: in a workflow function calling an action records a step", "__await__"),
    ("used in a with statement", _ACTION, "__enter__ __exit__ __aenter__ __aexit__"),
    ("changed", _ACTION, "__setattr__ __delattr__ __setitem__ __delitem__"),
    ("pickled", "pass it to an action of the same plan", "__reduce__ __reduce_ex__"),
)  # fmt: skip


def _refusing(doing: str, remedy: str) -> Callable[..., NoReturn]:
    def refuse(self: Promise, *_: object) -> NoReturn:
        _refuse(self, doing, remedy)

    return refuse


for _doing, _remedy, _names in _REFUSED:
    for _name in _names.split():
        setattr(Promise, _name, _refusing(_doing, _remedy))


def as_condition(value: object, where: str) -> bool | PromiseCondition:
    """Return the condition of ``mg.when`` and its like: a condition, or a bool that is known now.

    Raises ``PromiseError`` for a promise that will not be a bool, and for anything else.
    """
    if isinstance(value, bool | PromiseCondition):
        return value
    if isinstance(value, Promise):
        if annotation_paths.maybe_bool(content_of(value).annotation):
            return PromiseCondition("true", value)
        raise PromiseError(f"{where}: {content_of(value)} will be no bool: compare it, {where}(promise == x)")
    raise PromiseError(
        f"{where} takes a condition on a promise, as in promise == x, or a bool, not {type(value).__name__}: write bool(...) for a "
        f"value that is known now"
    )


def all_of(*conditions: bool) -> bool:
    """Return the condition that all of these hold, for ``mg.when``: ``mg.all_of(a == 1, b != 2)``. With none,
    it holds.
    """
    open_ = [c for c in (as_condition(c, "mg.all_of") for c in conditions) if c is not True]
    if any(c is False for c in open_) or not open_:
        return not open_
    return PromiseCondition("all", *open_)  # type: ignore[return-value]  # a comparison of promises is a bool to type checkers


def any_of(*conditions: bool) -> bool:
    """Return the condition that at least one of these holds, for ``mg.when``. With none, it does not hold."""
    open_ = [c for c in (as_condition(c, "mg.any_of") for c in conditions) if c is not False]
    if any(c is True for c in open_) or not open_:
        return bool(open_)
    return PromiseCondition("any", *open_)  # type: ignore[return-value]  # as above


def not_(condition: bool) -> bool:  # noqa: FBT001 - a condition, not a flag
    """Return the condition that this one does not hold, for ``mg.when``."""
    value = as_condition(condition, "mg.not_")
    return not value if isinstance(value, bool) else PromiseCondition("not", value)  # type: ignore[return-value]  # as above
