"""Mutants of calls that hear that nobody needs them."""

from dataclasses import replace

import pytest

from makegood.agent import attempts
from makegood.model.attempt import Attempt
from makegood.model.messages import TaskMessage
from makegood.model.task import Step
from makegood.saga import replies
from makegood.saga.decision_builder import DecisionBuilder
from tests.simulation.mutants_making import mutant
from tests.simulation.mutants_worlds import APART, FAULTS_OF_ALL_KINDS

HANGING = replace(
    FAULTS_OF_ALL_KINDS,
    layout=APART,
    tasks=8,
    points={},
    messages={},
    services={"service hangs": 0.4, "service late": 0.2},
    rates={"operator": 3.0},
)
"""Calls that nobody answers, and an operator who cancels; nothing else goes wrong."""


@mutant(HANGING)
def nobody_is_told(m: pytest.MonkeyPatch) -> None:
    """An agent reads what is cancelled, and no attempt hears of it."""
    m.setattr(attempts.Attempts, "cancel", lambda *_: None)


@mutant(HANGING)
def runs_on_although_cancelled(m: pytest.MonkeyPatch) -> None:
    """An attempt that is declared ``cancellable`` hears, and is not cancelled."""

    def hear(self: Attempt, now: float) -> None:
        self.cancelled_at, self.was_stopped = now, self.may_stop

    m.setattr(Attempt, "hear", hear)


@mutant(HANGING, within=24)
def heard_is_nothing_happened(m: pytest.MonkeyPatch) -> None:
    """An attempt that ended because nobody needs it is taken for one that did nothing: it is not undone."""
    true = replies._ANSWERS["do"]["gave_up"]

    def believes(w: DecisionBuilder, step: Step, message: TaskMessage) -> None:
        if message.since_cancel is None:
            true(w, step, message)
        else:
            w.move(step, "failed", "refused", doubt=False)

    m.setitem(replies._ANSWERS["do"], "gave_up", believes)
