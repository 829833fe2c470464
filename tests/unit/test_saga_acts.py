"""Operators' acts: when they are lawful, what they change, and what they are answered."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from makegood import saga
from makegood.base.service_keys import MOST_ROUNDS, longest_key
from makegood.model.messages import MOST_EXTENSION, Act, TaskMessage
from makegood.model.plan import Condition, StepPlan
from makegood.model.task import standing
from tests.unit.saga_case import Case, action, failing, template


def pending() -> Case:
    return Case(action(0), claim=False)


def processing() -> Case:
    return Case(action(0), action(1, 0))


def draining() -> Case:
    case = Case(action(0), action(1), on_failure="hold")
    case.answer(1, "permanent", error="no")
    return case


def sleeping() -> Case:
    return Case(action(0), claim=False, state="sleeping")


def past_return() -> Case:
    case = Case(action(0, no_return=True), action(1, 0))
    case.done(0)
    return case


def undoing() -> Case:
    return failing(action(0), action(1, 0))


def processed() -> Case:
    case = Case(action(0))
    case.done(0)
    return case


def undone() -> Case:
    case = undoing()
    case.answer(0)
    return case


def held() -> Case:
    case = failing(action(0), action(1, 0), on_failure="hold")
    assert case.task.state == "error"
    return case


def incomplete() -> Case:
    case = undoing()
    case.answer(0, "permanent", error="gone")
    assert case.task.state == "error"
    return case


TABLE = [
    (pending, "cancel", "applied", "undone", "nothing had been done"),
    (sleeping, "cancel", "applied", "undone", "nothing had been done"),
    (sleeping, "undo", "refused", "sleeping", "cancel it"),
    (sleeping, "resubmit", "refused", "sleeping", "only one in error or undone"),
    (sleeping, "wake", "applied", "processing", "it begins now"),
    (pending, "wake", "noop", "pending", "the task does not sleep: it is pending"),
    (processing, "wake", "noop", "processing", "the task does not sleep"),
    (processed, "wake", "noop", "processed", "the task does not sleep"),
    (undone, "wake", "noop", "undone", "the task does not sleep"),
    (held, "wake", "noop", "error", "the task does not sleep"),
    (processing, "cancel", "applied", "undoing", "being undone"),
    (draining, "cancel", "applied", "undoing", "being undone"),
    (past_return, "cancel", "refused", "processing", "s0 cannot be undone"),
    (undoing, "cancel", "noop", "undoing", "being undone already"),
    (
        processed,
        "cancel",
        "refused",
        "processed",
        "the task had ended: processed; undo takes back what it did",
    ),
    (undone, "cancel", "refused", "undone", "the task had ended: undone"),
    (held, "cancel", "applied", "undoing", "being undone"),
    (
        incomplete,
        "cancel",
        "applied",
        "undoing",
        "the undo of s0 is tried again; if it fails again, undo the effect by hand, and settle",
    ),
    (pending, "undo", "refused", "pending", "cancel it"),
    (processing, "undo", "refused", "processing", "cancel it"),
    (draining, "undo", "applied", "undoing", "being undone"),
    (undoing, "undo", "noop", "undoing", "being undone already"),
    (processed, "undo", "applied", "undoing", "being undone"),
    (undone, "undo", "noop", "undone", "undone already"),
    (held, "undo", "applied", "undoing", "being undone"),
    (incomplete, "undo", "applied", "undoing", "the undo of s0 is tried again"),
    (pending, "resubmit", "refused", "pending", "only one in error or undone"),
    (processing, "resubmit", "refused", "processing", "only one in error or undone"),
    (undoing, "resubmit", "refused", "undoing", "only one in error or undone"),
    (processed, "resubmit", "refused", "processed", "only one in error or undone"),
    (undone, "resubmit", "applied", "pending", "submission 2"),
    (held, "resubmit", "applied", "pending", "forward again"),
    (incomplete, "resubmit", "refused", "error", "the undo of s0 has failed"),
]


@pytest.mark.parametrize(
    ("make", "kind", "verdict", "state", "reason"),
    TABLE,
    ids=[f"{row[1]}-{row[0].__name__}" for row in TABLE],
)
def test_an_act_in_every_state(make: object, kind: str, verdict: str, state: str, reason: str) -> None:
    """Each act is applied, refused or without effect as the table of states says, and answers in words."""
    case = make()  # type: ignore[operator]
    result, why = case.act(kind)
    assert (result, case.task.state) == (verdict, state)
    assert reason in why


def test_a_task_at_rest_is_let_go_after_a_refused_act() -> None:
    """It was claimed for this decision only."""
    case = processed()
    case.act("resubmit")
    assert case.last.release
    assert case.last.moves == []


def test_the_cause_names_who_and_why() -> None:
    """A cancel gives the task its cause."""
    case = processing()
    case.act("cancel")
    assert case.task.cause == "cancelled by ada: wrong address"
    case = processing()
    case.say(TaskMessage("cancel"))
    assert case.task.cause == "cancelled"


def test_the_first_cause_stays() -> None:
    """An operator who undoes a failed task does not hide why it failed."""
    case = held()
    case.act("undo")
    assert case.task.cause == "s1: card refused"
    case = processed()
    case.act("undo")
    assert case.task.cause == "undo requested by ada: wrong address"


def test_undo_tries_a_failed_undo_again() -> None:
    """undo_failed to undoing: with counts at 0 and the next attempt."""
    case = incomplete()
    case.act("undo")
    assert case.asked == [(0, "undo")]
    assert case.step(0).failures == 0
    case.answer(0)
    assert case.task.state == "undone"


# -- resubmit ----------------------------------------------------------------------------------------------------------


def test_resubmission_of_an_undone_task() -> None:
    """Rounds + 1 where the effect is known to be gone, attempts go on, time and counts begin anew."""
    case = failing(action(0), action(1, 0, undoable=False), action(2, 1), within=9.0)
    case.answer(0)
    assert case.states == "undone kept failed"
    case.act("resubmit")
    decision, task = case.last, case.task
    assert case.states == "waiting waiting waiting"
    assert [s.round for s in case.held.steps] == [2, 2, 2]
    assert [s.attempt for s in case.held.steps] == [2, 1, 1]
    assert all(s.result is None and s.error is None and not s.doubt for s in case.held.steps)
    assert (task.submission, task.goal, task.cause, task.timed) == (2, "forward", "", False)
    assert decision.clear_complete_by
    assert decision.release
    case.say(TaskMessage("claim"))
    assert (case.request.attempt, case.request.round) == (3, 2)


def test_what_was_kept_in_an_earlier_round_stands_although_a_later_one_does_not_reach_it() -> None:
    """A harmless effect is listed for good: also when the resubmitted task is undone before it comes to it again."""
    case = failing(action(0), action(1, 0, undoable=False), action(2, 1), within=9.0)
    case.answer(0)
    case.act("resubmit")
    assert [s.stood for s in case.held.steps] == [False, True, False]
    assert [s.name for s in standing(case.held.steps)] == ["s1"]
    case.say(TaskMessage("claim"))
    case.answer(0, "permanent")
    assert (case.task.state, case.states) == ("undone", "failed waiting waiting")
    assert [s.name for s in standing(case.held.steps)] == ["s1"]
    case.act("resubmit")
    assert [s.stood for s in case.held.steps] == [False, True, False]


def test_resubmission_of_a_held_task_keeps_what_is_done_and_the_keys_of_doubts() -> None:
    """Done keeps its result, in doubt its key, failed begins a new round; the submission stays."""
    case = Case(action(0), action(1), action(2), on_failure="hold")
    case.done(0)
    case.silence(1)
    case.answer(2, "permanent")
    assert case.states == "done in_doubt failed"
    case.act("resubmit")
    assert case.states == "done in_doubt waiting"
    assert [s.round for s in case.held.steps] == [1, 1, 2]
    assert case.step(1).failures == 0
    assert case.task.submission == 1
    case.say(TaskMessage("claim"))
    assert sorted(case.asked) == [(1, "do"), (2, "do")]
    assert case.step(1).round == 1


def test_a_doubt_is_probed_first_when_resubmitted() -> None:
    """The probe is asked anew, although it was asked before."""
    case = Case(action(0, never=True, probe=True, fences=True, threshold=0))
    for _ in range(2):
        case.silence(0)
    assert case.task.state == "error"
    assert case.act("resubmit")[0] == "applied"
    case.say(TaskMessage("claim"))
    assert case.asked == [(0, "probe")]


def test_resubmission_is_barred_by_an_unsettled_doubt_without_keys() -> None:
    """retry=mg.NEVER without a fencing probe: settle it first."""
    case = Case(action(0, never=True))
    case.silence(0)
    assert case.act("resubmit") == ("refused", "s0 is in doubt and must not be repeated: settle it first")
    assert case.act("settle", 0, "failed")[0] == "applied"
    assert case.act("resubmit")[0] == "applied"


# -- settle ------------------------------------------------------------------------------------------------------------


def doubtful() -> Case:
    case = Case(action(0), action(1), on_failure="hold")
    case.silence(0)
    case.answer(1, "permanent")
    assert (case.states, case.task.state) == ("in_doubt failed", "error")
    return case


@pytest.mark.parametrize(
    ("idx", "settlement", "verdict", "reason"),
    [
        (0, "done", "applied", "s0 is done; the task is still in error: resubmit it to continue, or undo it"),
        (
            0,
            "failed",
            "applied",
            "s0 is failed; the task is still in error: resubmit it to continue, or undo it",
        ),
        (0, "undone", "refused", "it can be settled as done or failed"),
        (1, "done", "applied", "s1 is done; the task is still in error: s0 can be settled too"),
        (1, "failed", "noop", "failed already"),
        (1, "undone", "refused", "it can be settled as done"),
        (9, "done", "refused", "no such step"),
    ],
)
def test_settle_in_a_held_task(idx: int, settlement: str, verdict: str, reason: str) -> None:
    """in_doubt to done or failed, failed to done: nothing else."""
    result, why = doubtful().act("settle", idx, settlement)
    assert result == verdict
    assert reason in why


def test_everything_settled_by_hand_ends_a_held_task() -> None:
    """From error to processed, with the result put together."""
    case = doubtful()
    case.act("settle", 0, "done", b'"by hand"')
    assert case.step(0).result == b'"by hand"'
    assert not case.step(0).doubt
    assert not case.last.moves[1:]
    case.act("settle", 1, "done")
    assert case.task.state == "processed"
    assert case.step(1).result == b"null"
    assert case.task.cause == "", "a task that was processed has no failure to show"


def test_the_last_one_settled_by_hand_ends_an_undo() -> None:
    """From error to undone; a failed step cannot be called done when the task is not held."""
    case = incomplete()
    assert case.act("settle", 1, "done")[0] == "refused"
    assert case.act("settle", 0, "undone") == ("applied", "s0 is undone")
    assert case.task.state == "undone"


def test_who_settles_the_step_on_which_an_undo_was_stuck_is_told_to_undo_again() -> None:
    """What came before it waits in error until somebody says so, and then goes on."""
    case = failing(action(0), action(1, 0), action(2, 1))
    case.answer(1, "permanent")
    result = case.act("settle", 1, "undone")
    rest = "undo it again to have the rest undone, or resubmit it to go forward"
    assert result == ("applied", f"s1 is undone; the task is still in error: {rest}")
    assert case.act("undo")[0] == "applied"
    assert case.asked == [(0, "undo")]


def test_a_step_that_is_done_keeps_its_result_and_the_operator_is_told() -> None:
    """His value is not dropped in silence: another one is refused with what can be done, the same one is nothing to do."""
    case = doubtful()
    assert case.act("settle", 0, "done", b'{"a":1,"b":2}')[0] == "applied"
    assert case.act("settle", 0, "done", b'{"b": 2, "a": 1}') == ("noop", "s0 is done already")
    result, why = case.act("settle", 0, "done", b'"another"')
    assert result == "refused"
    assert "s0 is done already" in why
    assert "undo the task" in why
    assert case.act("settle", 0, "done")[0] == "refused"
    assert case.step(0).result == b'{"a":1,"b":2}'


def test_settle_only_in_error() -> None:
    """A step in doubt of a running task is none of the operator's business yet."""
    case = Case(action(0))
    case.silence(0)
    assert case.act("settle", 0, "done")[0] == "refused"


def test_control_steps_cannot_be_settled() -> None:
    """They have no effect anywhere."""
    when = StepPlan(0, "when", name="w", condition=Condition("true", template("7")))
    case = Case(when, action(1, 0), on_failure="hold")
    case.answer(1, "permanent")
    assert case.act("settle", 0, "failed") == ("refused", "w is not an action: it has no effect to settle")


# -- what is lawful ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [pending, processing, draining, past_return, undoing, processed, undone, held, incomplete, doubtful],
)
def test_the_lawful_acts_are_those_that_are_applied_when_asked_for(make: object) -> None:
    """All of them and no other, tried one by one; a cancel that would do what an undo does is not named, and nothing moves."""

    def fresh() -> Case:
        case: Case = make()  # type: ignore[operator]
        return case

    case = fresh()
    before = (case.task, list(case.held.steps))
    acts = {(message.kind, message.idx, message.settled) for message in saga.possible_commands(case.held)}
    assert (case.task, case.held.steps) == before
    attempts = [(kind, -1, "") for kind in ("cancel", "undo", "resubmit")]
    attempts += [
        ("settle", idx, settlement)
        for idx in range(len(before[1]))
        for settlement in ("done", "failed", "undone")
    ]
    successes = {
        (kind, idx, settlement)
        for kind, idx, settlement in attempts
        if fresh().act(kind, idx, settlement)[0] == "applied"
    }
    if ("undo", -1, "") in successes:
        successes.discard(("cancel", -1, ""))
    assert acts == successes


# Extending a deadline


def extended(case: Case, seconds: float) -> tuple[str, str]:
    """Let an operator move the task's deadline."""
    case.say(TaskMessage("extend", wait=seconds, act=Act("a", "ada", "the bank is slow")))
    (answer,) = case.last.answers
    return answer.verdict, answer.outcome


def without_deadline() -> Case:
    return Case(action(0), within=None)


@pytest.mark.parametrize(
    ("make", "seconds", "verdict"),
    [
        (processing, 60.0, "applied"),
        (processing, MOST_EXTENSION, "applied"),
        (processing, MOST_EXTENSION + 1, "refused"),
        (processing, 0.0, "refused"),
        (processing, -5.0, "refused"),
        (pending, 60.0, "refused"),
        (without_deadline, 60.0, "refused"),
        (draining, 60.0, "refused"),
        (undoing, 60.0, "refused"),
        (processed, 60.0, "refused"),
        (undone, 60.0, "refused"),
        (held, 60.0, "refused"),
        (incomplete, 60.0, "refused"),
    ],
)
def test_only_the_deadline_of_a_task_that_goes_forward_is_moved(
    make: Callable[[], Case], seconds: float, verdict: str
) -> None:
    case = make()
    before = case.task
    assert extended(case, seconds)[0] == verdict
    assert case.last.extends == (seconds if verdict == "applied" else 0.0)
    assert case.task == before


def test_the_time_of_a_pending_task_begins_before_it_is_extended() -> None:
    case = pending()
    decision = case.say(TaskMessage("claim"), TaskMessage("extend", wait=60.0, act=Act("a", "ada")))
    assert (decision.answers[0].verdict, decision.extends, case.task.timed) == ("applied", 60.0, True)


def test_an_extension_comes_too_late_for_a_task_whose_deadline_was_judged() -> None:
    case = processing()
    decision = case.say(TaskMessage("task_expired"), TaskMessage("extend", wait=60.0, act=Act("a", "ada")))
    assert (decision.answers[0].verdict, decision.extends) == ("refused", 0.0)


def undone_in_round(round_: int, **policy: Any) -> Case:
    """Return a task whose one step was undone in this round."""
    case = failing(action(0, **policy), action(1, 0))
    case.answer(0)
    case.held.steps[0] = replace(case.step(0), round=round_)
    return case


def test_a_round_whose_key_would_be_too_long_for_the_service_is_refused() -> None:
    """Round 10 needs a character more than round 9."""
    limit = longest_key("s0", "undo")
    assert undone_in_round(8, key_limit=limit).act("resubmit")[0] == "applied"
    verdict, why = undone_in_round(9, key_limit=limit).act("resubmit")
    assert (verdict, why) == (
        "refused",
        f"in round 10 a key of s0 has {limit + 1} characters, and its service takes {limit}",
    )
    assert undone_in_round(9, key_limit=limit, key_form="uuid").act("resubmit")[0] == "applied"
    assert undone_in_round(9).act("resubmit")[0] == "applied"


def test_a_form_has_room_for_so_many_rounds() -> None:
    assert undone_in_round(MOST_ROUNDS - 1, key_form="uuid").act("resubmit")[0] == "applied"
    verdict, why = undone_in_round(MOST_ROUNDS, key_form="uuid").act("resubmit")
    assert (verdict, why) == ("refused", "s0 has had 65,535 rounds, as many as its keys can tell")


def test_a_resubmission_of_an_undone_task_asks_under_keys_that_nobody_has_seen() -> None:
    case = Case(action(0), action(1, 0))
    case.answer(0, "gave_up", error="no answer", first_sent=7.0)
    assert case.step(0).first_sent == 7.0
    case.due(0)
    assert case.last.requests[0].first_sent == 7.0
    case.done(0)
    case.answer(1, "permanent", error="no")
    assert case.last.requests[0].first_sent == 0.0
    case.answer(0)
    assert case.act("resubmit")[0] == "applied"
    case.say(TaskMessage("claim"))
    assert [request.first_sent for request in case.last.requests] == [0.0]


@pytest.mark.parametrize("make", [held, incomplete])
def test_an_automatic_cancel_leaves_a_task_in_error_to_its_operator(make: Callable[[], Case]) -> None:
    """It was sent while the task was under way, and came after its end."""
    case = make()
    states = case.states
    case.say(TaskMessage("cancel", act=Act("a-1", "schedule shop/nightly"), automatic=True))
    (answer,) = case.last.answers
    assert (answer.verdict, case.task.state, case.states) == ("noop", "error", states)
    assert "an operator decides" in answer.outcome


def test_an_automatic_cancel_stops_a_task_that_is_under_way() -> None:
    case = processing()
    case.say(TaskMessage("cancel", act=Act("a-1", "schedule shop/nightly"), automatic=True))
    (answer,) = case.last.answers
    assert (answer.verdict, case.task.goal) == ("applied", "undo")
