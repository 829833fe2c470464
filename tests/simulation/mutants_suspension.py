"""Mutants of tasks that are let go."""

from dataclasses import replace
from typing import Any

import pytest

from makegood.saga import rules
from makegood.scheduler import claims, commits, task_table
from makegood.store import changes
from makegood.store.sqlite import claim, decision_rows
from tests.simulation.mutants_making import mutant
from tests.simulation.mutants_worlds import BAD_SERVICES, EVERY, FAULTS_OF_ALL_KINDS, QUICK, approving

WAITING = replace(
    FAULTS_OF_ALL_KINDS,
    tasks=6,
    services={**BAD_SERVICES, "service refuses": 0.3, "service fails": 0.3},
    engine=replace(QUICK, linger=0.1),
)
"""Services that ask to wait, or fail, and Schedulers that let go of what waits."""
UNWATCHED = replace(
    WAITING,
    points={},
    messages={},
    layout=EVERY,
    rates={"operator": 3.0},
    engine=replace(QUICK, linger=0.1, poll_every=None),
)
"""Nothing makes up for a wake-up that is forgotten."""


@mutant(WAITING, within=24)
def let_go_while_it_runs(m: pytest.MonkeyPatch) -> None:
    """A task is let go although another of its steps is in flight."""
    m.setattr(rules, "is_in_flight", lambda _step: False)


@mutant(WAITING, within=24)
def last_reply_beside_a_wait(m: pytest.MonkeyPatch) -> None:
    """The timers of a task are forgotten when a reply is decided: the last one beside a wait takes the fast path."""
    m.setattr(task_table.Timers, "left", lambda *_: {})


@mutant(WAITING)
def slept_too_long(m: pytest.MonkeyPatch) -> None:
    """A task that was let go wakes long after its timer."""
    true = changes.moment_of
    m.setattr(decision_rows, "moment_of", lambda now, wakes: true(now, wakes * 3 + 5))


@mutant(UNWATCHED)
def moment_of_the_let_go_forgotten(m: pytest.MonkeyPatch) -> None:
    """A Scheduler does not remember when a task is due that it lets go."""

    def forget(*_: Any) -> None:
        """Remember nothing."""

    m.setattr(claims.Claims, "sleeps", forget)


@mutant(
    replace(
        UNWATCHED, tasks=1, points={"slow commit": 0.8}, services={}, rates={}, parallel_from=1, pace=0.2
    ),
    twist=approving,
    within=24,
)
def messages_of_the_let_go_forgotten(m: pytest.MonkeyPatch) -> None:
    """What came for a task while it was let go is forgotten with it."""

    def let_go(_self: Any, _task: int, wakes: float, turn: Any) -> None:
        turn.wakes = min(turn.wakes, wakes)

    m.setattr(commits.Commits, "_let_go", let_go)


@mutant(WAITING)
def due_and_let_go(m: pytest.MonkeyPatch) -> None:
    """Nobody looks for tasks that are due."""
    m.setattr(claim, "DUE", claim.DUE.replace("'sleeping'", "'?'"))
