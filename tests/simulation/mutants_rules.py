"""Mutants of keys, tokens and the rules."""

from dataclasses import replace
from typing import Any, get_args

import pytest
from msgspec.structs import replace as changed

from makegood.base import ids
from makegood.declare.call import Call, Token
from makegood.model import states
from makegood.saga import replies, rules, undo
from makegood.saga.decision_builder import DecisionBuilder
from tests.simulation.mutants_making import mutant
from tests.simulation.mutants_worlds import (
    BAD_SERVICES,
    BARE,
    DOUBTFUL,
    FAULTS_OF_ALL_KINDS,
    KEYS_ALONE,
    UNDOING,
    distant,
    gated,
    resubmitting,
    stubborn,
)


def also_lawful(m: pytest.MonkeyPatch, before: str, after: str) -> None:
    """Open the rules' own table of moves, so that not it but the checker and the books find the mutant."""
    table: Any = {state: {**following} for state, following in states.STEP_MOVES.items()}
    table[before][after] = (*table[before].get(after, ()), *get_args(states.StepReason))
    m.setattr(states, "STEP_MOVES", table)


# -- keys and tokens ---------------------------------------------------------------------------------------------------


@mutant(replace(FAULTS_OF_ALL_KINDS, tasks=2), "place_order", services=BARE)
def service_key(_: pytest.MonkeyPatch) -> None:
    """No service looks at the idempotency key."""


@mutant(replace(FAULTS_OF_ALL_KINDS, tasks=2), "place_order")
def key_per_attempt(m: pytest.MonkeyPatch) -> None:
    """The agent sends a new idempotency key with every attempt."""

    def per_attempt(call: Call, _form: str, *, undo: bool) -> str:
        request = call._request
        attempt = request.step if undo else f"{request.step}.{request.attempt}"
        return ids.key(call._store_id, request.task, attempt, request.round, "undo" if undo else "do")

    m.setattr(Call, "_key", per_attempt)


@mutant(replace(FAULTS_OF_ALL_KINDS, tasks=3), "place_order")
def token_never_rises(m: pytest.MonkeyPatch) -> None:
    """The agent sends the same token with every attempt."""
    m.setattr(Call, "token", property(lambda call: Token(call._generation, 1)))


@mutant(DOUBTFUL, "sequence", services=KEYS_ALONE)
def service_token(_: pytest.MonkeyPatch) -> None:
    """The token is not passed on: services know keys alone, and the actions do not settle."""


@mutant(replace(UNDOING, tidying=1, tombstones=False), "place_order")
def same_round(m: pytest.MonkeyPatch) -> None:
    """The round is not in the key: what was undone is asked for under its old key."""
    true = ids.key
    m.setattr(ids, "key", lambda store, task, step, _round, direction: true(store, task, step, 1, direction))


@mutant(
    replace(
        FAULTS_OF_ALL_KINDS,
        tasks=8,
        storm=60.0,
        rates={"operator": 1.5},
        services={"service late": 0.6, "service hangs": 0.1},
    ),
    "held",
    twist=resubmitting,
)
def round_in_doubt(m: pytest.MonkeyPatch) -> None:
    """A step still in doubt gets a new key when its task is resubmitted."""
    also_lawful(m, "in_doubt", "waiting")
    true = rules.restarts
    m.setattr(rules, "restarts", lambda step: true(step) or step.state == "in_doubt")


# -- the rules -----------------------------------------------------------------------------------------------------------


@mutant(UNDOING, "place_order")
def undo_known_only(m: pytest.MonkeyPatch) -> None:
    """Only what is known to be done is undone, not what is in doubt."""
    m.setattr(rules, "to_be_undone", lambda step: step.state == "done")
    m.setattr(rules, "SETTLED", rules.SETTLED | {"in_doubt"})


@mutant(FAULTS_OF_ALL_KINDS, "place_order", twist=gated)
def failed_on_doubt(m: pytest.MonkeyPatch) -> None:
    """``Permanent`` is taken for certain although an earlier try or attempt is unanswered."""
    m.setattr(rules, "certain", lambda _step, **_: True)


@mutant(FAULTS_OF_ALL_KINDS, "place_order")
def transient_is_failed(m: pytest.MonkeyPatch) -> None:
    """Silence and giving up are taken for a certain refusal."""
    answers = replies._ANSWERS["do"]
    m.setitem(answers, "gave_up", answers["refused"])
    m.setitem(answers, "expired", answers["refused"])


@mutant(replace(FAULTS_OF_ALL_KINDS, pace=1.0), "hasty")
def undo_running(m: pytest.MonkeyPatch) -> None:
    """The undo does not await what is in flight: it is taken for in doubt at once."""
    clear = undo.clear

    def impatient(w: DecisionBuilder) -> None:
        for step in w.steps():
            if step.doing == "do":
                w.move(changed(step, doing=None), "in_doubt", "withdrawn", doubt=True)
        clear(w)

    m.setattr(undo, "clear", impatient)


@mutant(DOUBTFUL, "settle")
def no_settle(m: pytest.MonkeyPatch) -> None:
    """A step in doubt at a service without tokens is undone without being settled first."""
    m.setattr(rules, "must_be_definite", lambda step: rules.policy(step).never)


@mutant(
    replace(
        FAULTS_OF_ALL_KINDS,
        tasks=6,
        services={**BAD_SERVICES, "service refuses": 0.4},
        rates={"operator": 1.0},
        storm=30.0,
    ),
    "place_order",
    twist=stubborn,
)
def resubmitted_over_a_failed_undo(m: pytest.MonkeyPatch) -> None:
    """A task goes forward again although one of its undos is not confirmed."""
    also_lawful(m, "undo_failed", "waiting")
    true = rules.restarts
    m.setattr(rules, "why_not_resubmit", lambda _step: "")
    m.setattr(rules, "restarts", lambda step: true(step) or step.state == "undo_failed")


@mutant(FAULTS_OF_ALL_KINDS, "never")
def never_retried(m: pytest.MonkeyPatch) -> None:
    """A step at a service without keys is asked again when in doubt."""
    m.setattr(rules, "next_try", lambda _step: "do")


@mutant(UNDOING, "place_order")
def undo_in_forward_order(m: pytest.MonkeyPatch) -> None:
    """A step is undone before those that came after it."""
    m.setattr(rules, "bars_undo", lambda _step: False)


@mutant(replace(FAULTS_OF_ALL_KINDS, services={}, tasks=8), "sequence", twist=distant)
def probe_no(m: pytest.MonkeyPatch) -> None:
    """A probe's "not happened" is believed although the service does not fence."""
    m.setattr(rules, "not_happened_for_good", lambda _step: True)
