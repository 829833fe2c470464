"""What is kept of a run of a workflow function for those that follow: its *trail*.

Nearly all tasks of a workflow have the plan of the one before. What a step of a plan costs is checking, naming, binding and
comparing; of a call that the trail has in this place, with the same inputs, results of the same steps and constants as arguments, all of
that is known. ``planning`` follows it. Only sequences of actions and ``mg.parallel`` make trails; what is inside of ``when``,
``branches`` and ``each`` is always recorded.
"""

import dis
import inspect
from collections.abc import Callable, Container, Mapping, Sequence
from types import FunctionType, NoneType
from typing import Any

import msgspec

from makegood.declare.action import Action
from makegood.model.plan import StepPlan, Template
from makegood.workflow.promise import Promise, promised

NOTHING = -2


class Demand(msgspec.Struct, frozen=True):
    """What an action asks of the input at a place that it is given, beyond its type; ``what`` names it in messages."""

    place: int
    annotation: Any
    what: str


class Called(msgspec.Struct, frozen=True):
    """A call of an action. ``places``: where its arguments are among the inputs and, after them, the promises given out so far, or
    ``~n`` for ``constants[n]``; ``names``: those of the arguments given by name, which come last; ``needs``: serials.
    """

    action: Action[..., Any]
    places: tuple[int, ...]
    names: tuple[str, ...]
    step: str
    template: Template
    returns: Any
    needs: tuple[int, ...]
    constants: tuple[object, ...] = ()
    demands: tuple[Demand, ...] = ()


class Together(msgspec.Struct, frozen=True):
    """A call of ``mg.parallel``, with the serials of its steps."""

    serials: tuple[int, ...]


class Trail(msgspec.Struct, frozen=True):
    """What an earlier run with inputs of these ``kinds`` recorded, call by call, and the plan that it led to. ``end``: the serial of
    the step whose result it returned, ``NOTHING`` for none, -1 for anything else. ``constants``: what of the arguments was written in
    the function, by ``id``. ``demands``: what the inputs are to be held to beyond the workflow's own annotations.
    """

    kinds: tuple[type, ...]
    calls: tuple[Called | Together, ...]
    steps: tuple[StepPlan, ...]
    referred: frozenset[int]
    end: int
    returns: Template
    constants: frozenset[int] = frozenset()
    demands: tuple[Demand, ...] = ()

    def called(self, serial: int) -> Called:
        """Return the call that recorded this step."""
        return [call for call in self.calls if isinstance(call, Called)][serial]


NO_TRAIL = Trail((), (), (), frozenset(), -1, Template(("null",), ()))


CONSTANTS = (str, int, float, bool, NoneType)
"""What nobody can change: the same object again, in the same place, is the same value, so that its text can be kept."""


_WRITTEN = {"LOAD_SMALL_INT", "LOAD_COMMON_CONSTANT"}
"""Instructions whose constant is not among ``co_consts``: since Python 3.14 a small number is part of its instruction, since 3.15 so are
others that all functions share."""


def literals(fn: Callable[..., object]) -> dict[int, object]:
    """Return what is written in a function, and in its module under names that it uses, by ``id``: of constants alone.

    What was taken out of an input is none: it is another value each time.
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
    plan: object,
    inputs: Mapping[int, int],
    count: int,
    written: Container[int],
    given: Sequence[object],
) -> tuple[tuple[int, ...], tuple[object, ...]] | None:
    """Return the arguments ``given`` to a call as a trail keeps them, and the constants among them; None when one is neither an input
    nor a whole result nor written in the function.

    ``inputs``: the place of each by its ``id``; ``count``: how many there are; ``written``: the function's ``literals``.
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
