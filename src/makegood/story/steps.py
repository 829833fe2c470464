"""Steps as people see them: which states go together, and how the items of an ``each`` belong to it.

An item of an ``each`` has the name of its body's step, with its number.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from makegood.saga.rules import owner
from makegood.store.views import StepView

ORDER: Final = (
    "undo_failed", "in_doubt", "failed", "undoing", "running", "ready", "waiting", "done", "undone", "kept", "skipped",
)  # fmt: skip
"""The states of a step, those that need somebody first."""
TURNED: Final = ("undoing", "undone", "undo_failed", "kept")
"""States of a step that was done, or in doubt, and of which an undo has been decided."""
ODD: Final = ("failed", "in_doubt", "undo_failed")
"""States of items of an ``each`` that are named one by one."""
QUIET: Final = ("waiting", "done", "skipped", "undone", "kept")
"""States of steps that may be folded together where a ladder is long."""
MOST_ODD: Final = 5
"""Items of an ``each`` that get a line of their own, at most."""
JOINS: Final = ("merge", "gather")
"""Control steps that only join what others decided: they are no rung."""


def stem(name: str) -> str:
    """Return the name of the body's step that an item of an ``each`` is a copy of.

    >>> stem("create_zone[17]"), stem("charge")
    ('create_zone', 'charge')
    """
    return name.partition("[")[0]


def stem_of(step: StepView) -> str:
    """Return the stem of an item of an ``each``, and the whole name of any other step."""
    return stem(step.name) if step.plan is not None and step.plan.nth >= 0 else step.name


def outermost(step: StepView, steps: Mapping[int, StepView]) -> int | None:
    """Return the ``each`` that a step belongs to, the outermost one; None for a step of the plan itself."""
    each = None
    while step.plan is not None and (idx := owner(step.plan)) in steps and idx != step.idx:
        each, step = idx, steps[idx]
    return each


def winner_text(race: StepView, steps: Iterable[StepView]) -> str:
    """Return which branch of a ``first`` has won, by its steps; "" while none has."""
    if race.state != "done" or race.plan is None or not race.plan.branches:
        return ""
    places = range(race.plan.branches[0], race.idx)
    names = [s.name for s in steps if s.idx in places and not s.loser and s.kind not in (*JOINS, "first")]
    return f"{join_names(names)} won" if names else ""


def why_it_stays(step: StepView) -> str:
    """Return why the effect of a step that cannot be undone is left in place."""
    return "no way back" if step.no_return else "nothing to undo"


def join_names(names: Sequence[str], most: int = 3, *, more: int = 0) -> str:
    """Return names as a list in a sentence; ``more``: others that are only counted.

    >>> join_names(["book", "pack"]), join_names(["a", "b", "c", "d", "e"]), join_names(["a"], more=2)
    ('book and pack', 'a, b, c and 2 more', 'a and 2 more')
    """
    if (others := max(0, len(names) - most) + more) > 0:
        return f"{', '.join(names[:most])} and {others:,} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
