"""Whether a step or its service is to blame: what is known here, what other processes know, and what looks like an outage."""

from makegood.model.blame import CallingStep, Evidence, FailingStep
from makegood.model.breaker import Breaker, Circuit, Outcome


def step(task: int, failures: int = 0, **of: str) -> CallingStep:
    """Return the step of a task."""
    return CallingStep(task, 0, "charge", failures=failures, **of)  # type: ignore[arg-type]


def answered_between(failures: int = 1) -> Evidence:
    """Return what is known once step 1 has failed, another was answered, and step 1 has failed again."""
    evidence = Evidence()
    evidence.record_failure(step(1), 10.0, 10.0)
    evidence.record_answer(step(2), 11.0)
    evidence.record_failure(step(1, failures), 20.0, 20.0)
    return evidence


def test_a_step_that_fails_alone_is_to_blame_if_another_was_answered_since_it_failed_first() -> None:
    evidence = answered_between()
    assert not evidence.blames(step(1)), "nobody has asked the other processes yet"
    evidence.learn(None, None, [])
    assert evidence.blames(step(1))


def test_the_first_try_that_failed_is_the_first_failure() -> None:
    """The others were answered while it was tried again within its attempt."""
    evidence = Evidence()
    evidence.record_answer(step(2), 11.0)
    evidence.record_failure(step(1), 12.0, 10.0)
    evidence.learn(None, None, [])
    assert evidence.blames(step(1))


def test_an_answer_before_it_failed_first_says_nothing() -> None:
    evidence = Evidence()
    evidence.record_answer(step(2), 9.0)
    evidence.record_failure(step(1), 10.0, 10.0)
    evidence.learn(8.0, 8.0, [])
    assert not evidence.blames(step(1))


def test_its_own_answer_is_not_that_of_another() -> None:
    """Its probe's answers are weighed by the rules: see ``probe_answer``."""
    evidence = Evidence()
    evidence.record_failure(step(1), 10.0, 10.0)
    evidence.record_answer(step(1, doing="probe"), 11.0)
    evidence.record_failure(step(1), 20.0, 20.0)
    evidence.learn(None, None, [])
    assert not evidence.blames(step(1))
    evidence.record_answer(step(2), 22.0)
    evidence.record_answer(step(1, doing="probe"), 23.0)
    evidence.record_failure(step(1), 30.0, 30.0)
    evidence.learn(None, None, [])
    assert evidence.blames(step(1)), "another was answered too"


def test_a_probe_that_another_process_made_may_have_been_its_own() -> None:
    evidence = Evidence()
    evidence.record_failure(step(1), 10.0, 10.0)
    evidence.record_failure(step(1), 20.0, 20.0)
    evidence.learn(15.0, None, [])
    assert not evidence.blames(step(1))
    evidence.learn(15.0, 14.0, [])
    assert evidence.blames(step(1)), "the answer to an action was another's"


def test_counted_failures_of_a_step_with_a_probe_say_nothing_of_others() -> None:
    """They count once the probe was answered, and a step without one has only others to thank."""
    evidence = Evidence()
    evidence.record_failure(step(1, 3), 10.0, 10.0)
    evidence.learn(None, None, [])
    assert evidence.blames(step(1, 3))
    assert not evidence.blames(CallingStep(1, 0, "charge", failures=3, has_probe=True))


def test_another_step_that_fails_looks_like_an_outage_wherever_it_fails() -> None:
    evidence = answered_between()
    evidence.record_failure(step(3), 20.5, 20.5)
    evidence.learn(None, None, [])
    assert not evidence.blames(step(1))
    evidence = answered_between()
    evidence.learn(None, None, [FailingStep(step(3), 20.5)])
    assert not evidence.blames(step(1))
    evidence.learn(None, None, [FailingStep(step(1), 20.5)])
    assert evidence.blames(step(1)), "it is the same step there"
    evidence.learn(None, None, [FailingStep(step(3), 10.5)])
    assert evidence.blames(step(1)), "the service has answered since the other one failed"


def test_an_answer_to_another_process_clears_others_and_is_one_since_the_first_failure() -> None:
    evidence = Evidence()
    evidence.record_failure(step(3), 9.0, 9.0)
    evidence.record_failure(step(1), 10.0, 10.0)
    evidence.record_failure(step(1), 20.0, 20.0)
    evidence.learn(15.0, 15.0, [])
    assert evidence.blames(step(1))
    assert [each.step.task for each in evidence.failing] == [1]


def test_what_its_failures_say_outlives_the_process() -> None:
    """A new process has heard nothing: two failures that counted stand for an answer between them."""
    for failures, guilty in ((1, False), (2, True)):
        evidence = Evidence()
        evidence.record_failure(step(1, failures), 10.0, 10.0)
        evidence.learn(None, None, [])
        assert evidence.blames(step(1, failures)) is guilty


def test_two_steps_that_fail_alone_need_more_than_an_outage_leaves_them() -> None:
    """It begins while some are answered: its first steps fail, another is answered, they fail again."""
    for failures, guilty in ((2, False), (3, True)):
        evidence = Evidence()
        for task in (1, 2):
            evidence.record_failure(step(task, failures), 10.0, 10.0)
        evidence.learn(None, None, [])
        assert [evidence.blames(step(task, failures)) for task in (1, 2)] == [guilty] * 2


def test_several_steps_are_to_blame_if_enough_others_were_answered_since_each_of_them_failed_first() -> None:
    """Five at least, and two for each step that fails, in whatever process."""
    for answers, guilty in ((4, False), (5, True)):
        evidence = Evidence()
        for task in (1, 2):
            evidence.record_failure(step(task), 10.0, 10.0)
        for n in range(answers):
            evidence.record_answer(step(100 + n), 11.0)
        for task in (1, 2):
            evidence.record_failure(step(task, 1), 20.0, 20.0)
        evidence.learn(None, None, [])
        assert [evidence.blames(step(task, 1)) for task in (1, 2)] == [guilty] * 2
        evidence.learn(None, None, [FailingStep(step(3, 1), 20.5, 100)])
        assert not evidence.blames(step(1, 1)), "three need six"


def test_answers_of_its_own_probe_are_none_to_others() -> None:
    evidence = Evidence()
    evidence.record_failure(step(1), 10.0, 10.0)
    for at in (11.0, 12.0):
        evidence.record_answer(step(1, doing="probe"), at)
        evidence.record_answer(step(2), at)
    evidence.record_failure(step(1), 20.0, 20.0)
    assert [each.answers for each in evidence.failing] == [2]


def test_an_action_and_its_undo_are_two_and_an_action_and_its_probe_one() -> None:
    evidence = answered_between()
    evidence.learn(None, None, [])
    assert evidence.blames(step(1, doing="probe"))
    assert not evidence.blames(step(1, doing="undo"))


def test_each_step_that_has_failed_since_the_last_answer_is_named_once() -> None:
    evidence = Evidence()
    assert evidence.callers() == []
    evidence.record_failure(step(1), 10.0, 10.0)
    evidence.record_failure(step(1, doing="probe"), 11.0, 11.0)
    assert [caller.task for caller in evidence.callers()] == [1]
    evidence.learn(None, None, [FailingStep(step(2), 11.5), FailingStep(step(1), 11.6)])
    assert sorted(caller.task for caller in evidence.callers()) == [1, 2]
    evidence.record_answer(None, 13.0)
    assert evidence.callers() == []
    assert evidence.failing == []


def test_the_steps_that_are_remembered_are_bounded() -> None:
    evidence = Evidence()
    for task in range(3000):
        evidence.record_failure(step(task), float(task), float(task))
    assert len(evidence.failing) == 1000
    assert len(evidence._first) == 1000


def end(circuit: Circuit, outcome: Outcome, now: float, caller: CallingStep, since: float | None) -> bool:
    """Let a call begin and end, once it may."""
    circuit.room(now, 4)
    return circuit.record_end(
        circuit.began(now), outcome, now, since=since, caller=caller, first_failure=since
    )


def test_the_trial_calls_of_a_step_to_blame_count() -> None:
    """Its failures alone open the circuit; with each trial call it comes nearer to its verdict."""
    circuit = Circuit(Breaker(failures=1, reset=10), 4)
    assert end(circuit, "failed", 0.0, step(1), None)
    end(circuit, "answered", 10.0, step(2), None)
    for _ in range(3):
        end(circuit, "answered", 10.0, step(2), None)
    assert end(circuit, "failed", 12.0, step(1, 1), 1.0), "the service has answered since it failed last"
    counts = []
    for n in range(1, 5):
        circuit.evidence.learn(None, None, [])
        counts.append(end(circuit, "failed", 12.0 + 20.0 * n, step(1, 1 + n), 12.0 + 20.0 * n - 5.0))
        assert circuit.state == "open"
    assert counts == [True] * 4


def test_those_of_a_step_in_an_outage_do_not() -> None:
    """Another step fails as well: whatever was answered before, nothing counts."""
    circuit = Circuit(Breaker(failures=2, reset=10), 4)
    assert end(circuit, "failed", 0.0, step(1), None)
    end(circuit, "answered", 1.0, step(2), None)
    assert end(circuit, "failed", 5.0, step(1, 1), 0.5)
    assert end(circuit, "failed", 6.0, step(3), None)
    for n in range(1, 20):
        now = 6.0 + 20.0 * n
        circuit.evidence.learn(None, None, [])
        assert not end(circuit, "failed", now, step(1, 2), now - 5.0)
