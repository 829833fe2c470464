"""Plan cache: the calls of the last run, its *trail*, so that an identical run can reuse its plan.

Nearly all tasks of a workflow have the same plan as the one before. The cost of a step is in checking,
naming, binding and comparing. All of that is known for a call that the trail has in this place, with the same
inputs, results of the same steps and constants as arguments. ``plan_run`` follows the trail. Only sequences
of actions and ``mg.parallel`` make trails; the insides of ``when``, ``branches`` and ``each`` are always
recorded.
"""

import dis
import inspect
from collections.abc import Callable, Container, Mapping, Sequence
from types import FunctionType, NoneType
from typing import Any

import msgspec

from makegood.declare.action import Action
from makegood.model.plan import Template
from makegood.model.shape import Shape
from makegood.workflow.promise import Promise, promised

NOTHING = -2


class Demand(msgspec.Struct, frozen=True):
    """What an action requires of an input passed to it, beyond its type."""

    place: int
    """The input's place."""
    annotation: Any
    what: str
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


class ParallelGroup(msgspec.Struct, frozen=True):
    """A call of ``mg.parallel``, with the serials of its steps."""

    serials: tuple[int, ...]


class CachedPlan(msgspec.Struct, frozen=True):
    """The calls that an earlier run recorded, and the plan that they led to."""

    kinds: tuple[type, ...]
    """The types of that run's inputs."""
    calls: tuple[Called | ParallelGroup, ...]
    steps: Shape
    referred: frozenset[int]
    end: int
    """The serial of the step whose result it returned; ``NOTHING`` for none, -1 for anything else."""
    returns: Template
    constants: frozenset[int] = frozenset()
    """The arguments that are written in the function, by ``id``."""
    demands: tuple[Demand, ...] = ()
    """Requirements of the inputs beyond the workflow's own annotations."""

    def called(self, serial: int) -> Called:
        """Return the call that recorded this step."""
        return [call for call in self.calls if isinstance(call, Called)][serial]


NO_TRAIL = CachedPlan((), (), Shape(), frozenset(), -1, Template(("null",), ()))


CONSTANTS = (str, int, float, bool, NoneType)
"""Immutable types: the same object again, in the same place, is the same value, so that its text can be
kept.
"""


_WRITTEN = {"LOAD_SMALL_INT", "LOAD_COMMON_CONSTANT"}
"""Instructions whose constant is not in ``co_consts``.

Since Python 3.14 a small number is part of its instruction; since 3.15 so are others that all functions
share.
"""


def literals(fn: Callable[..., object]) -> dict[int, object]:
    """Return the constants in a function, and those in its module under names that it uses, by ``id``.

    A value taken out of an input is not among them: it is another value each time.
    """
    bare = inspect.unwrap(fn)
    if not isinstance(bare, FunctionType):
        return {}
    written = (said.argval for said in dis.get_instructions(bare) if said.opname in _WRITTEN)
    named = (bare.__globals__.get(name) for name in bare.__code__.co_names)
    return {
        id(value): value for value in (*bare.__code__.co_consts, *written, *named) if type(value) in CONSTANTS
    }


def places(
    plan: object, inputs: Mapping[int, int], count: int, written: Container[int], given: Sequence[object]
) -> tuple[tuple[int, ...], tuple[object, ...]] | None:
    """Return the arguments ``given`` to a call as a trail keeps them, and the constants among them.

    Returns None if one is neither an input nor a whole result nor written in the function. ``inputs``: the
    place of each by its ``id``; ``count``: their number; ``written``: the function's ``literals``.
    """
    found: list[int] = []
    constants: list[object] = []
    for value in given:
        if type(value) is Promise:
            what = promised(value)
            if what.path or what.item or what.origin.plan is not plan:
                return None
            found.append(count + what.origin.serial)
        elif (place := inputs.get(id(value))) is not None:
            found.append(place)
        elif id(value) in written:
            found.append(~len(constants))
            constants.append(value)
        else:
            return None
    return tuple(found), tuple(constants)
