"""What is kept of a run of a workflow function for those that follow: its *trail*.

Nearly all tasks of a workflow have the plan of the one before. What a step of a plan costs is checking, naming, binding and
comparing; of a call that the trail has in this place, with the same inputs and results of the same steps as arguments, all of
that is known. ``planning`` follows it. Only sequences of actions and ``mg.parallel`` make trails; what is inside of ``when``,
``branches`` and ``each`` is always recorded.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from makegood.declaration import Action
from makegood.promise import Promise, promised
from makegood.task import StepPlan, Template

NOTHING = -2


class Called(msgspec.Struct, frozen=True):
    """A call of an action. ``places``: where its arguments are among the inputs and, after them, the promises given out so far;
    ``names``: those of the arguments given by name, which come last; ``needs``: serials.
    """

    action: Action[..., Any]
    places: tuple[int, ...]
    names: tuple[str, ...]
    step: str
    template: Template
    returns: Any
    needs: tuple[int, ...]


class Together(msgspec.Struct, frozen=True):
    """A call of ``mg.parallel``, with the serials of its steps."""

    serials: tuple[int, ...]


class Trail(msgspec.Struct, frozen=True):
    """What an earlier run with inputs of these ``kinds`` recorded, call by call, and the plan that it led to. ``end``: the serial of
    the step whose result it returned, ``NOTHING`` for none, -1 for anything else.
    """

    kinds: tuple[type, ...]
    calls: tuple[Called | Together, ...]
    steps: tuple[StepPlan, ...]
    referred: frozenset[int]
    end: int
    returns: Template

    def called(self, serial: int) -> Called:
        """Return the call that recorded this step."""
        return [call for call in self.calls if isinstance(call, Called)][serial]


NO_TRAIL = Trail((), (), (), frozenset(), -1, Template(("null",), ()))


def places(
    plan: object, inputs: Mapping[int, int], count: int, args: Sequence[object], kwargs: Mapping[str, object]
) -> tuple[int, ...] | None:
    """Return the arguments of a call as a trail keeps them; None when one is neither an input nor a whole result.

    ``inputs``: the place of each by its ``id``; ``count``: how many there are.
    """
    found: list[int] = []
    for value in (*args, *kwargs.values()):
        if type(value) is Promise:
            what = promised(value)
            if what.path or what.item or what.origin.plan is not plan:
                return None
            found.append(count + what.origin.serial)
        else:
            place = inputs.get(id(value))
            if place is None:
                return None
            found.append(place)
    return tuple(found)
