"""Plan cache: the calls of the last run, its *trail*, so that an identical run can reuse its plan.

Nearly all tasks of a workflow have the same plan as one before. The cost of a step is in checking,
naming, binding and comparing. All of that is known for a call that the trail has in this place, with the same
inputs, results of the same steps and constants as arguments. ``plan_run`` follows the trail; a workflow has
one for each combination of ``provenance.Mark``. Only sequences
of actions and ``mg.parallel`` make trails; the insides of ``when``, ``branches`` and ``each`` are always
recorded.
"""

import dis
import functools
import inspect
from collections.abc import Callable, Container, Mapping
from types import CodeType, FunctionType, NoneType
from typing import Any

import msgspec

from makegood.declare.action import Action
from makegood.model.plan import Ref, Signals, Template
from makegood.model.shape import Shape
from makegood.workflow.promise import Promise, content_of
from makegood.workflow.provenance import Site, Sites

NOTHING = -2


class Demand(msgspec.Struct, frozen=True):
    """What an action requires of an input passed to it, beyond its type."""

    place: int
    """The input's place."""
    annotation: Any
    subject: str
    """Names the input in messages."""


class Called(msgspec.Struct, frozen=True):
    """A call of an action."""

    action: Action[..., Any]
    places: tuple[int, ...]
    """Where its arguments are among the inputs and, after them, the promises given out so far; ``~n``:
    ``constants[n]``.
    """
    names: tuple[str, ...]
    """Names of the arguments given by name, which come last."""
    serial: int
    """Its number among the promises given out."""
    step: str
    template: Template
    returns: Any
    needs: tuple[int, ...]
    """Serials."""
    constants: tuple[object, ...] = ()
    demands: tuple[Demand, ...] = ()
    site: Site | None = None
    """Where the call is, if that decides what its ambiguous arguments are."""


class ParallelGroup(msgspec.Struct, frozen=True):
    """A call of ``mg.parallel``, with the serials of its steps."""

    serials: tuple[int, ...]


class CachedPlan(msgspec.Struct, frozen=True):
    """The calls that an earlier run recorded, and the plan that they led to."""

    calls: tuple[Called | ParallelGroup, ...]
    steps: Shape
    input_places: frozenset[int]
    """The places of the inputs that steps were given unchanged."""
    end: int
    """The serial of the step whose result it returned; ``NOTHING`` for none, -1 for anything else."""
    returns: Template
    demands: tuple[Demand, ...] = ()
    """Requirements of the inputs beyond the workflow's own annotations."""
    signals: Signals = ()
    """The signals that its steps wait for."""

    def call(self, serial: int) -> Called:
        """Return the call that recorded this step."""
        return [call for call in self.calls if isinstance(call, Called)][serial]


NO_TRAIL = CachedPlan((), Shape(), frozenset(), -1, Template(("null",), ()))


CONSTANTS = (str, int, float, bool, NoneType)
"""Immutable types: the same object again, in the same place, is the same value, so that its text can be
kept.
"""


_WRITTEN = {"LOAD_SMALL_INT", "LOAD_COMMON_CONSTANT"}
"""Instructions whose constant is not in ``co_consts``.

Since Python 3.14 a small number is part of its instruction; since 3.15 so are others that all functions
share.
"""


class FunctionCode:
    """What is known of a workflow function before it runs: its constants, and what its source passes on."""

    def __init__(self, fn: Callable[..., object], sites: Sites) -> None:
        self._fn = inspect.unwrap(fn)
        self.sites = sites

    @functools.cached_property
    def literals(self) -> Container[int]:
        """The constants in the function, and those in its module under names that it uses, by ``id``.

        A value taken out of an input is not among them: it is another value each time.
        """
        fn = self._fn
        return _literals(fn, fn.__code__) if isinstance(fn, FunctionType) else {}

    def is_constant(self, value: object) -> bool:
        """Whether a value is written in the function, or in one inside it."""
        return type(value) in CONSTANTS and id(value) in self._constant_ids

    @functools.cached_property
    def _constant_ids(self) -> Container[int]:
        """The constants of the function and of those inside it, by ``id``."""
        fn = self._fn
        return _nested_literals(fn, fn.__code__) if isinstance(fn, FunctionType) else {}


def _literals(fn: FunctionType, code: CodeType) -> dict[int, object]:
    """Return the constants in code, and those of the module that it names."""
    constants = (each.argval for each in dis.get_instructions(code) if each.opname in _WRITTEN)
    values = (*code.co_consts, *constants, *(fn.__globals__.get(name) for name in code.co_names))
    return {id(value): value for value in values if type(value) in CONSTANTS}


def _nested_literals(fn: FunctionType, code: CodeType) -> dict[int, object]:
    """Return those of code and of the functions inside it."""
    by_id = _literals(fn, code)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            by_id |= _nested_literals(fn, inner)
    return by_id


def places(
    plan: object,
    refs: Mapping[str, Ref],
    count: int,
    literals: Container[int],
    arguments: Mapping[str, object],
) -> tuple[tuple[int, ...], tuple[object, ...]] | None:
    """Return the arguments ``arguments`` to a call as a trail keeps them, and the constants among them.

    Returns None if one is neither an input nor a whole result nor written in the function. ``refs``: of those
    that are inputs or results; ``count``: of the inputs; ``literals``: those of its ``FunctionCode``.
    """
    numbers: list[int] = []
    constants: list[object] = []
    for name, value in arguments.items():
        if type(value) is Promise:
            subject = content_of(value)
            if subject.path or subject.item or subject.origin.plan is not plan:
                return None
            numbers.append(count + subject.origin.serial)
        elif (ref := refs.get(name)) is not None:
            numbers.append(ref.index)
        elif id(value) in literals:
            numbers.append(~len(constants))
            constants.append(value)
        else:
            return None
    return tuple(numbers), tuple(constants)
