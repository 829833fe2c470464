"""Plans that were seen before: a run of a workflow function that records the same calls as an earlier one follows its *trail*.

Nearly all tasks of a workflow have the plan of the one before. What a step of a plan costs is checking, naming, binding and
comparing; of a call that the trail has in this place, with the same inputs and results of the same steps as arguments, all of
that is known. The promises that the function gets are this run's own all the same, so where it leaves the trail, the steps so
far are put down as if there had been none, and the rest is recorded as ever. Only sequences of actions and ``mg.parallel`` make
trails; what is inside of ``when``, ``branches`` and ``each`` is always recorded.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from makegood.declaration import Action
from makegood.promise import Promise, promised
from makegood.task import StepPlan, Template

Given = tuple[int, type]
"""An argument: the serial of the step whose result it is with ``Promise``; the place of the input that it is with its type."""

NOTHING = -2


class Called(msgspec.Struct, frozen=True):
    """A call of an action. ``names``: those of the arguments given by name, which come last in ``given``; ``needs``: serials."""

    action: Action[..., Any]
    given: tuple[Given, ...]
    names: tuple[str, ...]
    step: str
    template: Template
    returns: Any
    needs: tuple[int, ...]

    def inputs(self) -> list[int]:
        """Return the places of the inputs among the arguments."""
        return [place for place, kind in self.given if kind is not Promise]


class Together(msgspec.Struct, frozen=True):
    """A call of ``mg.parallel``, with the serials of its steps."""

    serials: tuple[int, ...]


class Trail(msgspec.Struct, frozen=True):
    """What an earlier run recorded, call by call, and the plan that it led to. ``end``: the serial of the step whose result it
    returned, ``NOTHING`` for none, -1 for anything else.
    """

    calls: tuple[Called | Together, ...]
    steps: tuple[StepPlan, ...]
    referred: frozenset[int]
    end: int
    returns: Template


NO_TRAIL = Trail((), (), frozenset(), -1, Template(("null",), ()))


def given(
    plan: object, inputs: Mapping[int, int], args: Sequence[object], kwargs: Mapping[str, object]
) -> tuple[Given, ...] | None:
    """Return the arguments of a call as a trail keeps them; None when one is neither an input nor a whole result.

    ``inputs``: the place of each by its ``id``.
    """
    found: list[Given] = []
    for value in (*args, *kwargs.values()):
        if type(value) is Promise:
            what = promised(value)
            if what.path or what.item or what.origin.plan is not plan:
                return None
            found.append((what.origin.serial, Promise))
        else:
            place = inputs.get(id(value))
            if place is None:
                return None
            found.append((place, type(value)))
    return tuple(found)


def is_called(
    known: Called,
    plan: object,
    inputs: Sequence[object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> bool:
    """Return whether a call with these arguments is the one that is known."""
    if kwargs or known.names:
        if tuple(kwargs) != known.names:
            return False
        args = (*args, *kwargs.values())
    if len(args) != len(known.given):
        return False
    for n, value in enumerate(args):
        index, kind = known.given[n]
        if type(value) is not kind:
            return False
        if kind is not Promise:
            if value is not inputs[index]:
                return False
            continue
        what = promised(value)  # type: ignore[arg-type]  # its type was just compared
        origin = what.origin
        if origin.serial != index or what.path or what.item or origin.plan is not plan:
            return False
    return True


def are_together(known: Together, plan: object, steps: Sequence[object]) -> bool:
    """Return whether ``mg.parallel`` of these steps is the call that is known."""
    serials = []
    for step in steps:
        if type(step) is not Promise or promised(step).origin.plan is not plan:
            return False
        serials.append(promised(step).origin.serial)
    return tuple(serials) == known.serials
