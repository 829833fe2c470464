"""Mutants of keys that services forget: outages and pauses that last longer than a service remembers a key."""

from dataclasses import replace

import pytest

from makegood.model.attempt import Attempt
from makegood.saga import rules
from makegood.testing.simulator.swarm import LAYOUTS
from tests.simulation.mutants_making import mutant
from tests.simulation.mutants_worlds import APART, FAULTS_OF_ALL_KINDS, aimed

PAUSES = replace(
    FAULTS_OF_ALL_KINDS,
    layout=APART,
    tasks=6,
    storm=40.0,
    points={"kill": 0.004, "stop": 0.004},
    rates={"stop": 0.3, "outage": 0.15, "kill": 0.1},
    services={"service does it and times out": 0.3, "service hangs": 0.1},
)
"""The store is away for long, processes stand still for long, and services do what they do not answer."""
ALONE = replace(PAUSES, layout=LAYOUTS[1], points={}, rates={}, services={"service refuses": 0.1})
"""One process, which now and then stands still in the middle of a call, and does all itself when it wakes up."""
ONE_AGENT = replace(ALONE, layout=LAYOUTS[2])
"""One process of agents, which stands still while others go on, and then finds what they have asked for."""


def _no_agent_looks(m: pytest.MonkeyPatch) -> None:
    m.setattr(Attempt, "keep_key", lambda _self, _until, _taken_at: None)


@mutant(PAUSES, "brief_order")
def sent_under_a_forgotten_key(m: pytest.MonkeyPatch) -> None:
    """A request is sent again however long ago the first one was: neither the rules nor the agent look at the time."""
    m.setattr(rules, "is_forgotten", lambda _step, _moment: False)
    _no_agent_looks(m)


@mutant(ALONE, "brief_hasty", twist=aimed("stop", "undo after call", 0.5))
def undo_under_a_forgotten_key(m: pytest.MonkeyPatch) -> None:
    """An undo is sent again however long ago the first one was."""
    true = rules.is_forgotten
    m.setattr(rules, "is_forgotten", lambda step, moment: step.state != "undoing" and true(step, moment))
    _no_agent_looks(m)


@mutant(PAUSES, "brief_order")
def first_time_forgotten(m: pytest.MonkeyPatch) -> None:
    """A retry goes out as if nobody had had its key."""
    m.setattr(rules, "first_sent", lambda step, _message: step.first_sent)


@mutant(ONE_AGENT, "brief_order", twist=aimed("stop", "do after call", 0.3))
def agent_sends_what_is_old(m: pytest.MonkeyPatch) -> None:
    """An agent does not look at the time again when it has the request."""
    _no_agent_looks(m)
