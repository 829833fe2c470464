"""Mutants of operators' acts, of coming to rest, and of the promises that agents, services and operators have made."""

from copy import copy
from dataclasses import replace
from typing import Any

import pytest

from makegood.agent import attempt_runner
from makegood.model import states
from makegood.model.messages import Alert, TaskMessage
from makegood.model.task import Step
from makegood.saga import acts, decisions, replies, rules, undo
from makegood.saga.decision_builder import DecisionBuilder
from makegood.store import supervision
from makegood.store.sqlite import decision_rows, requests
from makegood.store.sqlite.transaction import WriteTransaction
from makegood.testing.simulator.members import FleetMember
from proofs.storms.operator import RandomOperator
from proofs.storms.services import StormService
from tests.simulation.mutants_making import mutant
from tests.simulation.mutants_store import JUDGED_WHATEVER_THE_ATTEMPT
from tests.simulation.mutants_worlds import (
    APART,
    DOUBTFUL,
    FAULTS_OF_ALL_KINDS,
    QUICK,
    SLOW,
    SUPERVISORS,
    UNDOING,
    aimed,
    distant,
    distant_carrier,
    gated,
    obstinate,
    too_late,
)

# -- the turn to undo --------------------------------------------------------------------------------------------------


@mutant(replace(UNDOING, layout=APART, messages={}), "place_order")
def withdraw_cas(m: pytest.MonkeyPatch) -> None:
    """A request is withdrawn although an agent has taken it."""
    in_flight = (
        "select task, idx, attempt, null from makegood_request where task in ({marks}) and kind <> 'timer'"
    )
    m.setattr(decision_rows, "_IN_FLIGHT", in_flight)


DYING = replace(
    UNDOING,
    layout=APART,
    services={"service refuses": 0.3},
    engine=replace(QUICK, heartbeat=0.2, dead_after=0.5),
)
"""A process is taken for dead long before the deadlines of its attempts."""


@mutant(DYING, "settle", twist=aimed("kill", "do before call", 0.5), within=24)
def undo_before_deadline(m: pytest.MonkeyPatch) -> None:
    """An undo begins before the deadline of an attempt whose process seems dead."""
    m.setattr(rules, "runs_on", lambda _step, _now: 0.0)


@mutant(replace(UNDOING, tasks=10, pace=2.0, services={"service refuses": 0.3}), "place_order")
def answer_after_the_turn(m: pytest.MonkeyPatch) -> None:
    """An answer that comes after the turn to undo is thrown away: the step counts as not done."""
    answers = replies._ANSWERS["do"]
    true = answers["done"]

    def dropped(w: DecisionBuilder, step: Step, message: TaskMessage) -> None:
        if w.task.goal == "undo":
            w.move(step, "failed", "refused", doubt=False)
        else:
            true(w, step, message)

    m.setitem(answers, "done", dropped)


@mutant(UNDOING, "place_order")
def rest_in_flight(m: pytest.MonkeyPatch) -> None:
    """A task that is undone comes to rest with something in flight."""

    def early(w: DecisionBuilder) -> None:
        if w.any(lambda step: step.state not in rules.SETTLED):
            w.move_task("error", "undo_incomplete")
            w.alert(Alert("undo_incomplete", text="mutant"))
        else:
            w.move_task("undone", "reverted")

    m.setattr(decisions, "rest_when_undone", early)


@mutant(
    replace(UNDOING, tasks=10, pace=2.0, storm=25.0, services={"service refuses": 0.4}),
    "hasty",
    twist=obstinate,
    within=48,
)
def stuck_stops_others(m: pytest.MonkeyPatch) -> None:
    """An undo that is stuck stops those that do not depend on it."""
    true = undo.is_barred

    def all_barred(w: DecisionBuilder, idx: int) -> bool:
        return true(w, idx) or bool(w.any(lambda step: step.state == "undo_failed"))

    m.setattr(undo, "is_barred", all_barred)


@mutant(replace(DOUBTFUL, layout=APART, rates={"operator": 3.0, "kill": 0.5}), "place_order")
def cancelled_in_flight(m: pytest.MonkeyPatch) -> None:
    """A pending task that is cancelled is undone at once, whatever is in flight or in place."""
    m.setattr(rules, "are_untouched", lambda _steps: True)


@mutant(replace(UNDOING, services={"service refuses": 0.1}), "place_order", twist=too_late)
def cancelled_after_the_end(m: pytest.MonkeyPatch) -> None:
    """A cancel changes a task that has ended, and the table of moves allows it."""
    m.setattr(acts, "_ENDED", ())
    table: Any = {**states.TASK_MOVES, "processed": {"undoing": ("cancelled", "operator_undo")}}
    m.setattr(states, "TASK_MOVES", table)


@mutant(replace(FAULTS_OF_ALL_KINDS, services={}, rates={"kill": 0.2}), "never", twist=distant)
def never_undone_blindly(m: pytest.MonkeyPatch) -> None:
    """A step in doubt at a service without keys is undone although nobody can tell whether it happened."""
    m.setattr(rules, "must_be_definite", lambda step: rules.policy(step).remembers)
    m.setattr(rules, "holds_in_doubt", lambda step: rules.policy(step).then == "hold")


@mutant(replace(UNDOING, tidying=1), "place_order")
def reset_token(m: pytest.MonkeyPatch) -> None:
    """The attempt begins at 0 with each round."""
    m.setattr(rules, "token_of_new_round", lambda _step: 0)


# -- fences ------------------------------------------------------------------------------------------------------------


@mutant(
    replace(FAULTS_OF_ALL_KINDS, tasks=8, layout=APART, messages={"delay": 0.7}, services={}, engine=SLOW),
    "place_order",
)
def late_reply(m: pytest.MonkeyPatch) -> None:
    """The store does not check whether a reply came before its deadline."""
    m.setattr(
        requests, "_IN_FLIGHT", requests._IN_FLIGHT.replace("taken_by, complete_by,", "taken_by, 9e18,")
    )


@mutant(
    replace(
        FAULTS_OF_ALL_KINDS,
        layout=SUPERVISORS,
        points={},
        messages={"drop": 0.4},
        rates={"kill": 0.3},
        storm=30.0,
    ),
    twist=aimed("stop", "judge asked", 0.3),
)
def supervisor_fences(m: pytest.MonkeyPatch) -> None:
    """The Supervisor's verdict on silence carries neither the epoch of its term nor the attempt."""
    m.setattr(WriteTransaction, "fence", lambda _tx, _term: None)
    m.setattr(supervision, "JUDGED", JUDGED_WHATEVER_THE_ATTEMPT)
    overdue, silent = copy(supervision.OVERDUE), copy(supervision.SILENT[0])
    overdue.sqlite = overdue.sqlite.replace("complete_by < (select ?4) - ?3", "complete_by is not null")
    silent.sqlite = silent.sqlite.replace(
        "coalesce(r.complete_by, 'infinity') < (select ?3) - ?2", "r.complete_by is not null"
    )
    m.setattr(supervision, "OVERDUE", overdue)
    m.setattr(supervision, "SILENT", (silent, silent))


# -- promises of others ------------------------------------------------------------------------------------------------


@mutant(
    replace(FAULTS_OF_ALL_KINDS, tasks=8, services={"service does it and times out": 0.6}),
    "place_order",
    twist=gated,
)
def agent_hides_its_tries(m: pytest.MonkeyPatch) -> None:
    """An agent does not say that an earlier try of the same attempt is unanswered."""
    true = attempt_runner._message

    def certain(request: Any, kind: str, **fields: Any) -> TaskMessage:
        return true(request, kind, **{**fields, "unclear": False})

    m.setattr(attempt_runner, "_message", certain)


@mutant(
    replace(DOUBTFUL, tasks=12, services={"service late": 0.5, "service refuses": 0.4}, rates={}), "settle"
)
def forgets_refusal(m: pytest.MonkeyPatch) -> None:
    """A service that is declared with ``remembers`` forgets its refusals."""
    true = StormService._do

    def forgetful(service: StormService, request: Any, entry: Any) -> Any:
        entry.is_refused, entry.refused_token = False, None
        return true(service, request, entry)

    m.setattr(StormService, "_do", forgetful)


@mutant(replace(FAULTS_OF_ALL_KINDS, services={}, tasks=8), "place_order", twist=distant_carrier)
def service_probe_does_not_fence(m: pytest.MonkeyPatch) -> None:
    """A probe that is declared as fencing does not fence."""
    true = StormService.probe
    m.setattr(StormService, "probe", lambda service, **_: true(service))


@mutant(
    replace(FAULTS_OF_ALL_KINDS, tasks=20, storm=60.0, services={}, rates={"operator": 3.0}),
    "never",
    twist=distant,
)
def hasty_operator(m: pytest.MonkeyPatch) -> None:
    """An operator says *failed* while something can still arrive."""
    m.setattr(RandomOperator, "_quiet", lambda *_: True)


# -- one clock ------------------------------------------------------------------------------------------------


class _Wall:
    """A clock whose every answer is the wall clock's."""

    def __init__(self, clock: Any) -> None:
        self._clock = clock

    def monotonic(self) -> float:
        return float(self._clock.wall())

    def wall(self) -> float:
        return float(self._clock.wall())

    def boot_id(self) -> str:
        return str(self._clock.boot_id())


@mutant(replace(FAULTS_OF_ALL_KINDS, rates={"clock jump": 1.0}, skew=30.0, layout=APART), "place_order")
def store_clock_of_each(m: pytest.MonkeyPatch) -> None:
    """The store's clock is the wall clock of whoever looks."""
    true = FleetMember._store

    def off(member: FleetMember) -> Any:
        store = true(member)
        store._database.clock.clock = _Wall(member.clock)
        return store

    m.setattr(FleetMember, "_store", off)
