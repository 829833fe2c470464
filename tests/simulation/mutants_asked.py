"""Mutants of what is asked of a step, how often, and of what is taken back; and of what is decided at once."""

from dataclasses import replace
from typing import Any

import pytest

from makegood.agent.attempt_runner import AttemptRunner
from makegood.model.attempt import Attempt
from makegood.model.messages import TaskMessage
from makegood.model.task import Step
from makegood.saga import forward, rules
from makegood.scheduler.task_table import TaskTable
from proofs.storms.services import StormService
from tests.simulation.mutants_making import mutant
from tests.simulation.mutants_rules import also_lawful
from tests.simulation.mutants_worlds import APART, FAULTS_OF_ALL_KINDS, QUICK, resubmitting, wavering

# -- services without keys ---------------------------------------------------------------------------------------------


@mutant(replace(FAULTS_OF_ALL_KINDS, tasks=6), "never")
def never_tried_twice(m: pytest.MonkeyPatch) -> None:
    """An agent tries an action at a service without keys a second time within an attempt."""
    true = AttemptRunner.answer

    async def twice(runner: AttemptRunner, attempt: Attempt, action: Any) -> TaskMessage | None:
        reply = await true(runner, attempt, action)
        if (
            not action.retry.never
            or attempt.request.doing != "do"
            or reply is None
            or reply.kind != "gave_up"
        ):
            return reply
        attempt.retries, attempt.phase = 1, "waiting"
        return await true(runner, attempt, action)

    m.setattr(AttemptRunner, "answer", twice)


@mutant(
    replace(FAULTS_OF_ALL_KINDS, storm=40.0, services={"service late": 0.4}, rates={"operator": 2.0}),
    "never",
    twist=resubmitting,
)
def never_resubmitted_in_doubt(m: pytest.MonkeyPatch) -> None:
    """A step in doubt at a service without keys does not bar a resubmission, and is asked again."""
    also_lawful(m, "in_doubt", "waiting")
    true, begins = rules.why_not_resubmit, rules.restarts

    def unkeyed(step: Step) -> bool:
        return step.state == "in_doubt" and rules.policy(step).never

    m.setattr(rules, "why_not_resubmit", lambda step: "" if unkeyed(step) else true(step))
    m.setattr(rules, "restarts", lambda step: begins(step) or unkeyed(step))


# -- hold ----------------------------------------------------------------------------------------------------------------


@mutant(
    replace(
        FAULTS_OF_ALL_KINDS,
        tasks=10,
        layout=APART,
        services={"service refuses": 0.3},
        pace=2.0,
        engine=replace(QUICK, slots=1),
    ),
    "held_apart",
)
def hold_no_withdraw(m: pytest.MonkeyPatch) -> None:
    """A held task neither drops its timers nor withdraws its requests."""
    m.setattr(forward, "clear", lambda _work: None)


# -- undo ----------------------------------------------------------------------------------------------------------------


@mutant(
    replace(FAULTS_OF_ALL_KINDS, tasks=8, points={}, services={}, rates={"operator": 0.2}, storm=60.0),
    "settle",
    twist=wavering,
)
def undo_by_key(m: pytest.MonkeyPatch) -> None:
    """An undo undoes whatever is in place of its step, not what was done under the key that it names."""
    true = StormService._undo

    def whatever(service: StormService, request: Any, entry: Any) -> Any:
        for key, other in service.books.items():
            if other.net and key.startswith(f"{request.scope}/"):
                request.about = key
                service.undone_by.discard(request.key)
                return true(service, request, other)
        return true(service, request, entry)

    m.setattr(StormService, "_undo", whatever)


# -- one Decision per task -------------------------------------------------------------------------------------------------


class _Apart(dict[int, list[TaskMessage]]):
    """The messages of tasks, of which each is decided by itself."""

    def items(self) -> Any:
        return [(task, [message]) for task, messages in super().items() for message in messages]


@mutant(
    replace(FAULTS_OF_ALL_KINDS, tasks=8, points={"slow commit": 0.5}, rates={"operator": 1.0}, services={}),
    "place_order",
)
def two_decisions(m: pytest.MonkeyPatch) -> None:
    """Two messages for one task are decided apart, from the same state, and committed together."""

    def given(tasks: Any, messages: dict[int, list[TaskMessage]]) -> None:
        vars(tasks)["_apart"] = _Apart(messages)

    m.setattr(TaskTable, "messages", property(lambda t: vars(t)["_apart"], given), raising=False)
