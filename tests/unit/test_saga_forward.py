"""Forward, sentence by sentence: what is asked, in which order, and what follows on every kind of answer."""

from typing import Any

import pytest

from makegood.model.messages import TaskMessage
from makegood.model.plan import Ref
from makegood.model.states import Move
from tests.unit.saga_case import Case, action, result_of, template

ONE = action(0)


# -- in order ----------------------------------------------------------------------------------------------------------


def test_claim_and_first_dispatch_are_one_decision() -> None:
    """A claim asks for every step without predecessors, and for no other."""
    case = Case(action(0), action(1), action(2, 0, 1))
    assert case.asked == [(0, "do"), (1, "do")]
    assert case.states == "running running waiting"
    assert case.last.moves[0] == Move("task", "pending", "processing", "claimed")
    assert case.task.timed
    assert not case.last.release


def test_n_steps_in_a_row_cost_n_plus_one_decisions() -> None:
    """Step n done and step n + 1 asked for are one Decision; the last one ends the task and lets go of it."""
    case = Case(action(0), action(1, 0), action(2, 1))
    for idx in range(3):
        assert case.asked == [(idx, "do")]
        case.done(idx)
    assert case.task.state == "processed"
    assert case.last.release
    assert not case.last.requests


def test_a_step_waits_for_all_its_predecessors() -> None:
    """The last of several predecessors frees the step, in whichever order they end."""
    case = Case(action(0), action(1), action(2, 0, 1, 1))
    case.done(1)
    assert case.asked == []
    case.done(0)
    assert case.asked == [(2, "do")]


def test_several_replies_are_folded_into_one_decision() -> None:
    """Two replies in one batch are one Decision, which uses up both request rows."""
    case = Case(action(0), action(1), action(2, 0, 1))
    decision = case.say(case.reply(0, "done"), case.reply(1, "done"))
    assert decision.used_requests == [(0, 1), (1, 1)]
    assert case.asked == [(2, "do")]


def test_a_decision_holds_only_what_changed() -> None:
    """A reply touches its step and the next one, not the hundred others."""
    case = Case(*(action(i, *([i - 1] if i else [])) for i in range(100)))
    case.done(0)
    assert sorted(case.last.steps) == [0, 1]
    assert case.last.task is case.last.before


def test_a_request_is_whole() -> None:
    """A request carries all that an agent needs: the arguments with results and inputs spliced in, as they were written."""
    plans = action(0), action(1, 0, args=template('{"o":', Ref("input", 0), ',"h":', result_of(0, "id"), "}"))
    case = Case(*plans, inputs=(b'{"cents": 2.50}',), priority=4, trace="00-ab")
    case.answer(0, value=b'{"id": "h-1"}')
    request = case.request
    assert request.args == b'{"o":{"cents": 2.50},"h":"h-1"}'
    assert (request.task, request.idx, request.doing, request.attempt, request.round) == (7, 1, "do", 1, 1)
    assert (request.app, request.agent, request.action, request.step) == ("shop", "bank", "charge", "s1")
    assert (request.within, request.priority, request.trace) == (30.0, 4, "00-ab")
    assert (request.in_doubt, request.result, request.late, request.isolate) == (False, None, None, False)


def test_the_result_is_what_the_workflow_returns() -> None:
    """A processed task's result is put together from its steps' results."""
    case = Case(ONE, returns=template('["got",', result_of(0, "of"), "]"))
    case.done(0)
    assert case.task.result == b'["got",0]'


def test_a_result_of_none_is_null() -> None:
    """A step that returns nothing has the result null, and so has a task that returns nothing."""
    case = Case(ONE)
    case.answer(0, value=None)
    assert case.step(0).result == b"null"
    assert case.task.result == b"null"


def test_a_task_without_steps_is_processed_at_once() -> None:
    """Nothing to do is done."""
    assert Case().task.state == "processed"


# -- values that are not there -------------------------------------------------------------------------------------------


def test_a_step_whose_arguments_are_missing_fails_with_an_alert() -> None:
    """Part of a result that is not there fails the step, for certain and with words; it kills no Scheduler."""
    case = Case(action(0), action(1, 0, args=template('{"h":', result_of(0, "id"), "}")))
    case.done(0)
    assert case.alerts == ["step_gave_up"]
    assert case.states == "undoing failed"
    assert "no 'id'" in case.task.cause
    assert "s1" in case.last.alerts[0].text


def test_nothing_else_is_asked_when_one_step_cannot_begin() -> None:
    """Whatever turns the direction is found out before the first request is made."""
    case = Case(
        action(0), action(1, 0), action(2, 0, args=template('{"h":', result_of(0, "id"), "}")), action(3, 0)
    )
    case.done(0)
    assert case.states == "undoing waiting failed waiting"
    assert case.asked == [(0, "undo")]


def test_a_result_that_cannot_be_put_together_fails_the_task() -> None:
    """Every step done but a result that cannot be told is a failure like any other."""
    case = Case(ONE, returns=template("", result_of(0, "missing"), ""))
    case.done(0)
    assert case.task.state == "undoing"
    assert case.alerts == ["step_gave_up"]
    assert "the result cannot be put together" in case.task.cause


# -- certain failures ----------------------------------------------------------------------------------------------------


def test_permanent_without_an_unanswered_try_is_a_certain_failure() -> None:
    """Permanent = certainly nothing happened: nothing to undo there, the task ends undone, with a plain cause."""
    case = Case(ONE)
    case.answer(0, "permanent", error="card refused")
    assert case.states == "failed"
    assert case.task.state == "undone"
    assert case.task.cause == "s0: card refused"
    assert case.alerts == []


@pytest.mark.parametrize("unclear_now", [True, False])
def test_permanent_after_an_unanswered_try_is_in_doubt(*, unclear_now: bool) -> None:
    """An unanswered try, in this attempt or an earlier one, makes Permanent a doubt, which is not tried again."""
    case = Case(ONE)
    if not unclear_now:
        case.silence(0)
        case.due(0)
    case.answer(0, "permanent", unclear=unclear_now)
    assert case.task.state == "undoing"
    assert case.asked == [(0, "undo")]
    assert case.request.in_doubt


def test_permanent_in_doubt_is_probed_before_the_verdict() -> None:
    """After a Permanent in doubt there is no retry: probe, then verdict."""
    case = Case(action(0, probe=True))
    case.answer(0, "permanent", unclear=True)
    assert case.asked == [(0, "probe")]
    assert case.request.in_doubt
    case.answer(0, "not_happened")
    assert case.task.state == "undoing"


def test_permanent_is_certain_when_the_service_remembers() -> None:
    """remembers=True: the service remembers its answer per key, refusals too."""
    case = Case(action(0, remembers=True))
    case.answer(0, "permanent", unclear=True)
    assert case.task.state == "undone"
    assert case.states == "failed"


def test_refused_is_certain_whatever_was_before() -> None:
    """The service itself says that nothing stands for this key, now or later."""
    case = Case(ONE)
    case.silence(0)
    case.due(0)
    case.answer(0, "refused", unclear=True)
    assert case.states == "failed"
    assert not case.step(0).doubt


def test_refused_by_a_probe_is_certain() -> None:
    """The same from a probe: asking again under this key is pointless."""
    case = Case(action(0, probe=True))
    case.silence(0)
    case.answer(0, "refused")
    assert case.states == "failed"
    assert case.task.state == "undone"


# -- silence and giving up -----------------------------------------------------------------------------------------------


def test_recover_waits_then_waits_longer_then_gives_the_verdict() -> None:
    """Failures up to the threshold wait ``wait``, one more try waits ``extended``, then the verdict; the key stays."""
    case = Case(action(0, threshold=2, wait=5.0, extended=300.0))
    for wait in (5.0, 5.0, 300.0):
        case.silence(0)
        assert case.last.timers == {0: wait}
        assert case.states == "in_doubt"
        case.due(0)
        assert case.last.stale_timers == [0]
        assert case.request.round == 1
    case.silence(0)
    assert case.task.cause == "s0: no answer by its deadline (4 failures)"
    assert case.task.state == "undoing"
    assert case.alerts == ["step_gave_up"]
    assert [move.after for move in case.last.moves] == ["in_doubt", "undoing", "undoing"]


FAILED = "HTTPStatusError: 500 for 'https://dns/zones/c-013'\nFor more information check: https://example.org"
SILENT = {"kind": "expired"}
DEAD = {"kind": "expired", "died": True}
WORDS = {"kind": "gave_up", "error": FAILED}


@pytest.mark.parametrize(
    ("failures", "note"),
    [
        ([WORDS] * 4, "(4 failures)"),
        ([WORDS, WORDS, WORDS, DEAD], "(3 of 4; then the process died)"),
        ([WORDS, WORDS, WORDS, SILENT], "(3 of 4; then no answer by its deadline)"),
        ([WORDS, WORDS, SILENT, DEAD], "(2 of 4; then 2 times no answer, the last time as the process died)"),
        ([DEAD, WORDS, WORDS, WORDS], "(3 of 4 failures)"),
        ([WORDS, DEAD, WORDS, SILENT], "(2 of 4; then no answer by its deadline)"),
    ],
)
def test_the_cause_is_the_last_failure_that_has_words(failures: list[dict[str, Any]], note: str) -> None:
    """A failure without words, such as the death of a process, hides the reason of none before it: it is counted beside it."""
    case = Case(action(0, threshold=2, wait=5.0, extended=300.0))
    for n, failure in enumerate(failures):
        if n:
            case.due(0)
        if failure["kind"] == "expired":
            case.silence(0, died=failure.get("died", False))
        else:
            case.answer(0, **failure)
    line, _, rest = FAILED.partition("\n")
    assert case.task.cause == f"s0: {line} {note}\n{rest}"
    assert case.last.alerts[0].text == f"{case.task.cause}; it may have happened"


def test_the_words_of_an_action_are_not_those_of_its_undo() -> None:
    """A silent undo of a step whose action had words has none of its own; its own words outlive a death."""
    case = Case(action(0, threshold=0, undo_threshold=1, undo_wait=1.0, extended=1.0))
    case.answer(0, "gave_up", error="the bank says no")
    case.due(0)
    case.answer(0, "gave_up", error="the bank says no")
    assert case.asked == [(0, "undo")]
    case.silence(0)
    assert case.step(0).error == "no answer by its deadline"
    case.due(0)
    case.answer(0, "gave_up", error="refunds are closed")
    case.due(0)
    case.silence(0, died=True)
    assert case.states == "undo_failed"
    assert case.step(0).error == "refunds are closed (1 of 3; then the process died)"


@pytest.mark.parametrize("policy", [{"then": "hold"}, {}])
def test_hold_wins_if_either_says_so(policy: dict[str, Any]) -> None:
    """``Recover(then="hold")`` and ``on_failure="hold"``: each alone holds a task whose step stays in doubt."""
    case = Case(action(0, threshold=0, **policy), on_failure="undo" if policy else "hold")
    case.silence(0)
    case.due(0)
    case.silence(0)
    assert (case.task.state, case.task.goal) == ("error", "hold")
    assert case.alerts == ["step_gave_up", "held"]
    assert "s0 (in doubt)" in case.last.alerts[1].text


def test_then_hold_does_not_speak_about_certain_failures() -> None:
    """``then`` is the verdict past the threshold; a certain refusal is judged by the workflow's on_failure."""
    case = Case(action(0, then="hold"))
    case.answer(0, "permanent")
    assert case.task.state == "undone"


def test_giving_up_is_counted_once_by_the_rules() -> None:
    """gave_up: + 1 for step and task, by increment."""
    case = Case(ONE)
    case.answer(0, "gave_up", error="503")
    assert case.last.failure_counts == {0: (False, 1)}
    assert (case.step(0).failures, case.task.failure_count) == (1, 1)
    assert case.step(0).error == "503"


def test_silence_is_never_counted_again() -> None:
    """The message carries the sum that the Supervisor has counted."""
    case = Case(ONE)
    case.silence(0, failures=3)
    assert case.last.failure_counts == {}
    assert case.step(0).failures == 3


def test_a_result_that_cannot_be_encoded_is_not_retried() -> None:
    """In doubt, no retry, undone with result None."""
    case = Case(ONE)
    case.answer(0, "gave_up", final=True, error="the result cannot be kept")
    assert case.asked == [(0, "undo")]
    assert case.request.in_doubt
    assert case.request.result is None


def test_after_two_deaths_a_step_runs_alone() -> None:
    """The second death of a process under a step isolates it; the count is the step's."""
    case = Case(action(0, threshold=5))
    for isolate in (False, True, True):
        case.silence(0, died=True)
        assert case.step(0).error == "the process that ran it died"
        case.due(0)
        assert case.request.isolate is isolate


# -- probes --------------------------------------------------------------------------------------------------------------


def test_a_probe_is_asked_before_a_retry() -> None:
    """A step in doubt is probed if it can be; happened = done, with the result, and the task goes on."""
    case = Case(action(0, probe=True), action(1, 0))
    case.silence(0)
    assert case.asked == [(0, "probe")]
    assert (case.request.attempt, case.request.within) == (2, 30.0)
    case.answer(0, "happened", value=b'"c-1"')
    assert case.step(0).result == b'"c-1"'
    assert case.asked == [(1, "do")]


def test_not_happened_means_retry_under_the_same_key() -> None:
    """Without fences the doubt stays: the answer may have been too early."""
    case = Case(action(0, probe=True))
    case.silence(0)
    case.answer(0, "not_happened")
    assert case.step(0).doubt
    assert case.last.timers == {0: 5.0}
    case.due(0)
    assert (case.asked, case.request.round) == ([(0, "do")], 1)


def test_a_fencing_probe_settles_the_doubt() -> None:
    """Past the threshold "not happened" of a fencing probe is a certain failure: nothing is undone."""
    case = Case(action(0, probe=True, fences=True, threshold=0))
    case.silence(0, failures=2)
    case.answer(0, "not_happened")
    assert case.states == "failed"
    assert case.task.state == "undone"


def test_an_unanswered_probe_counts_as_a_failure_and_is_not_repeated() -> None:
    """Once per attempt: after it the action itself is tried again."""
    case = Case(action(0, probe=True))
    case.silence(0)
    case.answer(0, "gave_up")
    assert case.step(0).failures == 2
    assert case.last.timers == {0: 5.0}
    case.due(0)
    assert case.asked == [(0, "do")]
    case.silence(0)
    assert case.asked == [(0, "probe")]


def test_a_probe_that_is_told_to_wait_is_asked_again() -> None:
    """Later is not a failure, of a probe neither."""
    case = Case(action(0, probe=True))
    case.silence(0)
    case.answer(0, "later", wait=9.0)
    assert case.last.timers == {0: 9.0}
    assert case.step(0).failures == 1
    case.due(0)
    assert case.asked == [(0, "probe")]


# -- Later ---------------------------------------------------------------------------------------------------------------


def test_later_waits_without_a_failure() -> None:
    """Later: ready with a timer, no failure counted, the same round, the next attempt."""
    case = Case(ONE)
    case.answer(0, "later", wait=12.5)
    assert case.states == "ready"
    assert case.last.timers == {0: 12.5}
    assert case.last.failure_counts == {}
    case.due(0)
    assert case.states == "running"
    assert (case.request.attempt, case.request.round) == (2, 1)


def test_later_with_an_unanswered_try_is_in_doubt() -> None:
    """The doubt is kept, the wait is kept."""
    case = Case(ONE)
    case.answer(0, "later", wait=3.0, unclear=True)
    assert case.states == "in_doubt"
    assert case.last.timers == {0: 3.0}
    case.due(0)
    assert case.asked == [(0, "do")]


# -- services without keys -------------------------------------------------------------------------------------------------


def test_never_in_doubt_is_held() -> None:
    """retry=mg.NEVER: neither repeated nor undone; held whatever on_failure says."""
    case = Case(action(0, never=True))
    case.silence(0)
    assert (case.task.state, case.task.goal) == ("error", "hold")
    assert case.asked == []


def test_never_with_a_probe_that_does_not_fence() -> None:
    """Happened settles it; not happened may be too early, and is held."""
    case = Case(action(0, never=True, probe=True), action(1, 0))
    case.silence(0)
    case.answer(0, "not_happened")
    assert (case.task.state, case.states) == ("error", "in_doubt waiting")
    case = Case(action(0, never=True, probe=True), action(1, 0))
    case.silence(0)
    case.answer(0, "happened")
    assert case.asked == [(1, "do")]


def test_never_with_a_fencing_probe_is_asked_until_it_tells() -> None:
    """Only the probe is repeated, never the action; "not happened" allows a new try."""
    case = Case(action(0, never=True, probe=True, fences=True, threshold=2))
    case.silence(0)
    assert case.asked == [(0, "probe")]
    case.answer(0, "gave_up")
    case.due(0)
    assert case.asked == [(0, "probe")]
    case.answer(0, "not_happened")
    assert not case.step(0).doubt
    case.due(0)
    assert case.asked == [(0, "do")]


# -- complete-by and the point of no return ----------------------------------------------------------------------------------


def test_the_tasks_complete_by_turns_it() -> None:
    """Complete-by passed: undo, unless on_failure says hold."""
    case = Case(action(0), action(1, 0))
    case.done(0)
    case.say(TaskMessage("task_expired"))
    assert (case.task.state, case.task.cause) == ("undoing", "the deadline passed")
    assert case.last.withdraw == [(1, 1)]
    case = Case(ONE, on_failure="hold")
    case.say(TaskMessage("task_expired"))
    assert (case.task.state, case.task.goal) == ("processing", "hold")


def test_complete_by_never_applies_to_an_undo_nor_to_an_ended_task() -> None:
    """The first verdict wins; what is done is done."""
    case = Case(ONE)
    case.say(case.reply(0, "done"), TaskMessage("task_expired"))
    assert case.task.state == "processed"
    case = Case(action(0), action(1, 0))
    case.done(0)
    case.answer(1, "permanent", error="no")
    case.say(TaskMessage("task_expired"))
    assert case.task.cause == "s1: no"


@pytest.mark.parametrize("state", ["running", "in_doubt", "done"])
def test_past_return_a_failure_is_held(state: str) -> None:
    """A no_return step that is running, in doubt or done: another step's failure holds the task."""
    case = Case(action(0, no_return=True), action(1))
    if state == "done":
        case.done(0)
    elif state == "in_doubt":
        case.silence(0)
    assert case.step(0).state == state
    case.answer(1, "permanent", error="no")
    assert case.task.goal == "hold"


def test_a_no_return_step_that_certainly_failed_bars_nothing() -> None:
    """Failed = nothing happened, so there is a way back."""
    case = Case(action(0), action(1, 0, no_return=True))
    case.done(0)
    case.answer(1, "permanent")
    assert case.asked == [(0, "undo")]


def test_the_first_verdict_wins() -> None:
    """Two steps fail in one batch: the first one is the cause."""
    case = Case(action(0), action(1))
    case.say(case.reply(0, "permanent", error="first"), case.reply(1, "permanent", error="second"))
    assert case.task.cause == "s0: first"
    assert case.states == "failed failed"
