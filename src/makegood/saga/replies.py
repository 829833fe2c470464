"""What agents, timers and the Supervisor report about one step, and its effect on the step.

Only the reply to the request in flight counts. Any other is late or superseded: it is kept for the history,
its value for the undo, and it changes nothing else.
"""

from collections.abc import Callable

from msgspec.structs import replace

from makegood.errors import IllegalTransitionError
from makegood.model.messages import REPLIES, TaskMessage, attempt_end, cancel_noted
from makegood.model.note import Note
from makegood.model.states import TEXTS, UNBEGUN, Reason, StepState
from makegood.model.task import FailureTally, Step
from makegood.saga import rules
from makegood.saga.decision_builder import NULL, DecisionBuilder
from makegood.saga.forward import fall
from makegood.saga.undo import undo_failed


def reply(work: DecisionBuilder, message: TaskMessage) -> None:
    """Fold in an answer, a verdict on silence, or a withdrawn request."""
    kind = message.kind
    step = work.find(message.idx)
    answers = _ANSWERS[message.doing]
    if step is None or kind not in answers or not rules.current(step, message):
        late(work, message)
        return
    if work.task.state in UNBEGUN:
        raise IllegalTransitionError(
            f"{kind} for a task that nobody has claimed; this is a defect of makegood, please report it"
        )
    if kind in REPLIES:
        work.use(message)
    if kind in ("expired", "not_happened") or message.seq or message.error is not None:  # no move shows these
        _note_end(work, message)
    work.agenda.news.append(message.idx)
    step = replace(step, doing=None, first_sent=rules.first_sent(step, message))
    answers[kind](work, step, message)
    if step.again and message.doing != "undo":
        work.put(replace(work.step(message.idx), again=False))


def _note_end(work: DecisionBuilder, message: TaskMessage) -> None:
    """Note how an attempt ended, for the history; a request that was withdrawn was no attempt."""
    if message.kind == "expired":
        work.out.attempts.append(attempt_end(replace(message, error=_text(message))))
    elif message.kind in REPLIES:
        work.out.attempts.append(attempt_end(message))


def late(work: DecisionBuilder, message: TaskMessage) -> None:
    """Keep a reply that changes nothing; its value is offered to the undo as ``call.late_result``."""
    if message.note is not None:
        note(work, message, message.note)
        return
    if message.kind not in REPLIES and message.kind != "late":
        return
    if message.kind != "late":  # the store wrote the other kind into the history when it came
        work.out.attempts.append(replace(attempt_end(message), late=True))
    if message.kind not in ("done", "late") or message.doing != "do" or message.value is None:
        return
    step = work.find(message.idx)
    undo_may_need_it = step is not None and step.state in (
        "running",
        "in_doubt",
        "ready",
        "undoing",
        "undo_failed",
    )
    if step is not None and undo_may_need_it and rules.late_of_this_round(step, message.attempt):
        work.put(replace(step, late=message.value))


def note(work: DecisionBuilder, message: TaskMessage, words: Note) -> None:
    """Keep a note in the history; it changes nothing else."""
    step = work.find(message.idx)
    if step is None:
        return
    is_late = not rules.current(step, message)
    about = {"idx": message.idx, "attempt": message.attempt, "doing": message.doing}
    words = replace(words, **about, late=is_late)
    work.out.notes.append(words)
    if not is_late:
        work.notify_of(step, words)


def retry(work: DecisionBuilder, message: TaskMessage) -> None:
    """A step's timer is due."""
    step = work.find(message.idx)
    if step is None or not step.waiting or message.idx in work.out.timers:
        return  # none is set, or only in this Decision: the message is about an earlier one
    step = work.drop_timer(step)
    work.agenda.due.add(message.idx)
    work.agenda.news.append(message.idx)
    if step.state == "ready":
        (work.agenda.waits if rules.is_wait(step.plan) else work.agenda.ready).append(message.idx)
    elif step.state == "in_doubt":
        work.agenda.doubts.append(message.idx)


def _text(message: TaskMessage) -> str:
    if message.error:
        return message.error
    if message.kind == "expired" and message.died:
        return "the process that ran it died"
    return TEXTS.get(message.kind, message.kind)


def _count_failure(work: DecisionBuilder, step: Step, message: TaskMessage) -> Step:
    """Count a failure, once: the Supervisor has counted silence, and reports the sum; giving up is counted
    here.

    A request that was sent before the task turned to undo (``again``) does not count for the undo.
    """
    idx, failures = step.plan.idx, step.failures + 1
    if rules.excuses(step, message):
        failures = step.failures
    elif step.again and step.state != "undoing":
        failures = 0
        if message.kind == "expired":
            work.reset(idx)
        else:
            work.count(-1)
    elif message.kind == "expired" and not message.excused:
        failures = message.failures
    else:
        work.count(idx)
    answer = step.probe_answer and message.doing != "do"
    error, tally = _words(step, message, failures)
    return replace(
        step,
        failures=failures,
        deaths=step.deaths + message.died,
        error=error,
        probe_answer=answer,
        tally=tally,
    )


def _words(step: Step, message: TaskMessage, failures: int) -> tuple[str, FailureTally | None]:
    """Return the error of a step after a failure, and its tally. A failure without words leaves those of the
    one before.
    """
    tally = step.tally if step.failures else None
    count = int(failures > step.failures)
    if message.error:
        with_words = count + (0 if tally is None else tally.with_words)
        return message.error, FailureTally(with_words) if with_words else None
    if tally is None or step.error is None:
        return _text(message), None
    return step.error, replace(tally, silences=tally.silences + count, by_death=message.died)


# -- the action ----------------------------------------------------------------------------------------------


def _complete(work: DecisionBuilder, step: Step, message: TaskMessage) -> None:
    work.move(
        step, "done", "reply", detail=cancel_noted(message), result=message.value or NULL, doubt=False, final=False, error=None,
        tally=None,
    )  # fmt: skip


def _refuse(work: DecisionBuilder, step: Step, message: TaskMessage) -> None:
    _certainly_not(work, step, message, "refused")


def _permanent(work: DecisionBuilder, step: Step, message: TaskMessage) -> None:
    if rules.certain(step, unclear=message.unclear):
        _certainly_not(work, step, message, "permanent")
    else:
        work.move(
            step,
            "in_doubt",
            "permanent_after_silence",
            doubt=True,
            final=True,
            error=_text(message),
            tally=None,
        )
        work.agenda.doubts.append(step.plan.idx)


def _certainly_not(work: DecisionBuilder, step: Step, message: TaskMessage, reason: Reason) -> None:
    text = _text(message)
    fall(work, work.move(step, "failed", reason, doubt=False, final=False, error=text, tally=None), text)


def _later(work: DecisionBuilder, step: Step, message: TaskMessage) -> None:
    forward = rules.goes_forward(work.task, step)
    old = rules.too_old(step, work.at.now, message.wait) if forward else ""
    doubt = step.doubt or message.unclear or bool(old)
    state: StepState = "in_doubt" if doubt else "ready" if forward else "waiting"
    error = f"{message.error}; {old}" if old else message.error
    why = error if old and error else ""
    step = work.move(
        step, state, "later", detail=why, doubt=doubt, final=step.final or bool(old), error=error, tally=None
    )
    if step.loser and state == "waiting":
        _skip_lost(work, step)
    elif old:  # no wait for a moment at which nothing may be sent
        work.agenda.doubts.append(step.plan.idx)
    elif state == "ready" or _will_be_asked(work, step):
        work.timer(step, message.wait)


def _skip_lost(work: DecisionBuilder, step: Step) -> None:
    """Skip a step of a lost branch of which nothing has come."""
    if step.loser and step.state == "waiting":
        work.move(step, "skipped", "branch_lost")


def _will_be_asked(work: DecisionBuilder, step: Step) -> bool:
    """Whether a step in doubt will be asked for a definite answer again: going forward, or before its
    undo.
    """
    if work.task.goal == "undo" or step.loser:
        return rules.is_taken_back(work.task, step) and rules.must_be_definite(step)
    return work.task.goal == "forward"


def _silent(work: DecisionBuilder, step: Step, message: TaskMessage) -> None:
    # The effect may be in place, may come later, or never: in doubt, never failed.
    step = _count_failure(work, step, message)
    reason: Reason = "gave_up"
    if message.kind == "expired":
        reason = "process_died" if message.runs_until else "expired"
    runs_until = max(step.runs_until, message.runs_until)
    note = cancel_noted(message)
    work.move(
        step,
        "in_doubt",
        reason,
        detail=note,
        doubt=True,
        final=step.final or message.final,
        runs_until=runs_until,
    )
    if rules.resumes(step, message):
        work.agenda.due.add(step.plan.idx)
    work.agenda.doubts.append(step.plan.idx)


def _attempt_withdrawn(work: DecisionBuilder, step: Step, _message: TaskMessage) -> None:
    _skip_lost(work, work.move(step, "in_doubt" if step.doubt else "waiting", "withdrawn"))
    if work.task.goal == "forward":
        work.agenda.doubts.append(step.plan.idx)
        work.agenda.free.append(step.plan.idx)


# -- its probe -----------------------------------------------------------------------------------------------


def _confirm(work: DecisionBuilder, step: Step, message: TaskMessage) -> None:
    work.move(
        step, "done", "probe", result=message.value or NULL, doubt=False, final=False, error=None, tally=None
    )


def _not_happened(work: DecisionBuilder, step: Step, _message: TaskMessage) -> None:
    doubt = step.doubt and not rules.not_happened_for_good(step)
    final = step.final or (doubt and rules.is_forgotten(step, work.at.now))
    work.put(replace(step, doubt=doubt, final=final, probe_answer=True))
    work.agenda.doubts.append(step.plan.idx)


def _probe_refused(work: DecisionBuilder, step: Step, message: TaskMessage) -> None:
    # Nothing is in place for this key, now or later: asking again under the same key is pointless.
    _certainly_not(work, step, message, "probe")


def _probe_later(work: DecisionBuilder, step: Step, message: TaskMessage) -> None:
    asks_again = work.task.goal != "hold" or step.loser
    if asks_again and rules.probe_must_answer(step, work.at.now):
        text = f"its probe asks to wait ({_text(message)})" if message.error else "its probe asks to wait"
        _probe_silent(work, step, replace(message, error=text))
        return
    step = work.put(replace(step, asked=step.attempt - 1))
    if asks_again:
        work.timer(step, rules.wait_of_probe(step, work.at.now, message.wait))


def _probe_silent(work: DecisionBuilder, step: Step, message: TaskMessage) -> None:
    work.put(_count_failure(work, step, message))
    work.agenda.doubts.append(step.plan.idx)


def _probe_withdrawn(work: DecisionBuilder, step: Step, _message: TaskMessage) -> None:
    work.put(replace(step, asked=step.attempt - 1))
    work.agenda.doubts.append(step.plan.idx)


# -- its undo ------------------------------------------------------------------------------------------------


def _undo_done(work: DecisionBuilder, step: Step, _message: TaskMessage) -> None:
    work.move(step, "undone", "reply", doubt=False, final=False, error=None, tally=None)


def _undo_later(work: DecisionBuilder, step: Step, message: TaskMessage) -> None:
    old = rules.too_old(step, work.at.now, message.wait)
    if step.stuck or old:
        undo_failed(work, step, f"{_text(message)}; {old}" if old else _text(message))
    else:
        work.timer(work.put(replace(step, error=message.error, tally=None)), message.wait)


def _undo_silent(work: DecisionBuilder, step: Step, message: TaskMessage) -> None:
    step, policy = work.put(_count_failure(work, step, message)), rules.policy(step)
    choice = rules.what_follows_undo(step)
    wait = policy.undo_wait if choice == "retry" else policy.undo_extended
    if choice in ("undo", "hold") or step.stuck or not rules.is_taken_back(work.task, step):
        undo_failed(work, step, rules.silence_noted(step))
    elif old := rules.too_old(step, work.at.now, wait):
        undo_failed(work, step, f"{rules.silence_noted(step)}; {old}")
    else:
        work.timer(step, wait)


def _undo_permanent(work: DecisionBuilder, step: Step, message: TaskMessage) -> None:
    undo_failed(work, step, _text(message))


def _undo_withdrawn(work: DecisionBuilder, step: Step, _message: TaskMessage) -> None:
    if step.stuck:
        undo_failed(work, step, "taken back")
    else:
        work.put(step)


_ANSWERS: dict[str, dict[str, Callable[[DecisionBuilder, Step, TaskMessage], None]]] = {
    "do": {
        "done": _complete,
        "refused": _refuse,
        "permanent": _permanent,
        "later": _later,
        "gave_up": _silent,
        "expired": _silent,
        "withdrawn": _attempt_withdrawn,
    },
    "probe": {
        "happened": _confirm,
        "not_happened": _not_happened,
        "refused": _probe_refused,
        "later": _probe_later,
        "permanent": _probe_silent,
        "gave_up": _probe_silent,
        "expired": _probe_silent,
        "withdrawn": _probe_withdrawn,
    },
    "undo": {
        "done": _undo_done,
        "refused": _undo_done,
        "permanent": _undo_permanent,
        "later": _undo_later,
        "gave_up": _undo_silent,
        "expired": _undo_silent,
        "withdrawn": _undo_withdrawn,
    },
}
