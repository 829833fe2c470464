"""Mutants of tasks that are let go."""

from dataclasses import replace
from typing import Any

import pytest

from makegood.agent.agents import Agents
from makegood.saga import rules
from makegood.scheduler import claims, task_table
from makegood.store import changes
from makegood.store.sqlite import claim, decision_rows, requests
from tests.simulation.mutants_making import mutant
from tests.simulation.mutants_worlds import APART, BAD_SERVICES, EVERY, FAULTS_OF_ALL_KINDS, QUICK

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

CROWDED = replace(
    FAULTS_OF_ALL_KINDS,
    tasks=8,
    layout=EVERY,
    services={"service late": 0.5, "service does it and times out": 0.2, "service hangs": 0.2},
    engine=replace(QUICK, max_tasks=2),
)
"""Slow services, and Schedulers that hold two tasks: others rest."""
HANGING = replace(CROWDED, layout=APART, services={"service hangs": 0.5})
"""Most attempts of those that rest are not answered."""


@mutant(WAITING, within=24)
def let_go_while_it_runs(m: pytest.MonkeyPatch) -> None:
    """A task is let go although another of its steps is in flight."""
    m.setattr(rules, "is_in_flight", lambda _step: False)


@mutant(WAITING, within=24)
def last_reply_beside_a_wait(m: pytest.MonkeyPatch) -> None:
    """The timers of a task are forgotten when a reply is decided: the last one beside a wait takes the fast path."""
    m.setattr(task_table.Timers, "seconds_left", lambda *_: {})


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


@mutant(WAITING)
def due_and_let_go(m: pytest.MonkeyPatch) -> None:
    """Nobody looks for tasks that are due."""
    m.setattr(claim, "DUE", claim.DUE.replace("'sleeping'", "'?'"))


@mutant(CROWDED)
def rests_while_it_runs(m: pytest.MonkeyPatch) -> None:
    """A task rests although an attempt of it runs in the process of its Scheduler."""
    m.setattr(Agents, "tasks", lambda _agents: set())


@mutant(HANGING)
def late_request_wakes_nobody(m: pytest.MonkeyPatch) -> None:
    """The message about a late request does not wake a task that rests."""
    m.setattr(
        requests,
        "INBOX",
        requests.INBOX.replace(
            "<> 'pending'", "<> 'pending' and (t.state <> 'sleeping' or i.kind <> 'expired')"
        ),
    )
