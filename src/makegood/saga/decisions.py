"""Folds messages into one Decision."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from makegood.model.decision import NEVER, At, Decision
from makegood.model.messages import ACTS, Alert, Answer, TaskMessage
from makegood.model.shape import HeldTask
from makegood.model.states import UNBEGUN, words
from makegood.model.task import TaskRecord
from makegood.saga import rules, signals
from makegood.saga.acts import ActResult, act
from makegood.saga.decision_builder import DecisionBuilder
from makegood.saga.fast_path import straight
from makegood.saga.forward import advance, dispatch, look_at_all, turn
from makegood.saga.replies import late, reply, retry
from makegood.saga.suspension import NOTHING_DUE, Due, suspend, suspend_in_flight
from makegood.saga.undo import (
    backward,
    clear,
    rest_when_drained,
    rest_when_lost,
    rest_when_undone,
    undo_failed,
)

_OF_A_STEP = frozenset(
    {"done", "permanent", "refused", "later", "gave_up", "happened", "not_happened", "expired", "withdrawn"}
)


def decide(
    held_task: HeldTask, messages: Sequence[TaskMessage], at: At = NEVER, due: Due = NOTHING_DUE
) -> Decision:
    """Return what follows from ``messages`` for ``held_task``, which stays unchanged.

    ``at``: when it is decided. Without it no key grows too old to be sent again, no moment has come, and no
    task is let go. ``due``: seconds until the timer of each step that waits fires.

    A pending task is claimed: ``claim`` comes first. So is one that sleeps, once its moment has come; until
    then, and at rest (error, processed, undone), a task may be claimed for the one decision that an operator
    command needs. Raises ``IllegalTransitionError`` for a move outside the table, and for a reply that is
    folded into a pending task without a claim: both are defects of makegood.
    """
    if (
        len(messages) == 1
        and not due
        and (decision := straight(held_task, messages[0])) is not None
        # else it may be let go, if a signal is all that it waits for now
        and (decision.requests or decision.release or not held_task.task.signals)
    ):
        return decision
    return fold(held_task, messages, at, due)


def fold(
    held_task: HeldTask, messages: Sequence[TaskMessage], at: At = NEVER, due: Due = NOTHING_DUE
) -> Decision:
    """Return what ``decide`` returns, without the fast path."""
    return _Folding(held_task, messages, at).decide(due)


class _Folding:
    """One call of ``decide``: its messages, and what must wait until all of them are folded in."""

    claim = False
    poison = False
    releases = False
    makes_room = False
    verdicts: frozenset[tuple[int, int]] = frozenset()
    results: Sequence[tuple[TaskMessage, ActResult, bytes | None]] = ()

    def __init__(self, held_task: HeldTask, messages: Sequence[TaskMessage], at: At) -> None:
        self.work = DecisionBuilder(held_task, at)
        self.messages = messages

    def decide(self, due: Due) -> Decision:
        """Fold in all messages, then do what follows."""
        messages = self.messages
        if len(messages) > 1:
            silences = [m for m in messages if m.kind == "expired"]
            if silences:
                self.verdicts = frozenset((m.idx, m.attempt) for m in silences)
                messages = [*(m for m in messages if m.kind == "claim"), *silences]
                messages += [m for m in self.messages if m.kind not in ("claim", "expired")]
            self.poison = any(m.kind == "poison" for m in messages)
            messages = signals.before_timers(messages)
        for message in messages:
            if message.seq:
                self.work.out.seqs.append(message.seq)
            self._fold(message)
        self._follow(due)
        return self.work.out

    def _fold(self, message: TaskMessage) -> None:
        kind, work = message.kind, self.work
        if kind in _OF_A_STEP:
            if self.claim:
                self._claim()
            if self.verdicts and kind != "expired" and (message.idx, message.attempt) in self.verdicts:
                late(work, message)
            else:
                reply(work, message)
        elif kind == "claim":
            self.claim = work.task.state in UNBEGUN
        elif kind in ACTS:
            self._act(message)
        elif kind == "dead":
            self.releases = True
        elif kind == "rest":
            self.makes_room = len(self.messages) == 1  # else it is not quiet
        elif kind in _SIMPLE:
            _SIMPLE[kind](work, message)
        elif kind == "signal":
            self._advance()  # one that is about to wait may be meant
            signals.keep(work, message)
        else:
            if self.claim:
                self._claim()
            if kind == "retry":
                retry(work, message)
            elif kind == "task_expired":
                self._expire()
            elif kind == "poison":
                _poison(work, message)

    def _claim(self) -> None:
        """Claim the task now: a later message needs it, or no message is left that could end the task
        first.
        """
        work = self.work
        self.claim = False
        if work.task.state not in UNBEGUN or work.out.clear_complete_by:
            return
        before = work.held_task.task.state
        if work.task.lanes and work.task.state == "sleeping" and not work.any(rules.has_begun):
            work.move_task("queued", "due")
        if work.task.state == "queued" != before:  # its lanes are those of the next claim to find free
            return
        work.task = rules.with_deadline(work.task)
        if work.task.goal == "undo":
            work.agenda.everything = True
            work.move_task("undoing", "claimed")
        else:
            work.move_task("processing", "claimed")
            if work.task.goal == "forward" or work.agenda.losers:
                look_at_all(work)

    def _act(self, message: TaskMessage) -> None:
        waking = message.kind == "wake" and self.work.any(rules.has_begun)
        if self.claim and (
            waking or message.kind == "extend"
        ):  # its time, and its waits, begin with the claim
            self._claim()
        self._advance()
        if self.poison:
            result: ActResult = (
                "refused",
                "the task is being put to error, as it may be what kills its Schedulers: act on it there",
            )
        else:
            result = act(self.work, message)
        self.results = [*self.results, (message, result, self.work.change)]
        self.work.change = None

    def _expire(self) -> None:
        """The task's own deadline has passed. It never applies to an undo, nor to time that begins only
        now.
        """
        self._advance()
        work = self.work
        if rules.only_undoes(work.left, work.agenda.losers):
            return
        if work.held_task.task.timed and work.task.state == "processing":
            turn(work, "deadline")

    def _advance(self) -> None:
        task = self.work.task
        if task.goal == "forward" and task.state == "processing":
            advance(self.work)

    def _follow(self, due: Due) -> None:
        """Do everything that follows without a further event."""
        work = self.work
        if self.claim:
            self._claim()
        self._advance()
        if self.releases and work.task.state in ("processing", "undoing"):
            _leave_to_next_scheduler(work)
            if not suspend(work, due, 0.0, "released"):
                work.move_task("pending", "released")
        if work.task.state == "processing" and work.task.goal == "forward":
            dispatch(work)
        if work.task.state == "processing" and work.agenda.losers:
            backward(work)
            self._advance()  # undone may be the last that was left
        if work.task.state == "processing" and work.task.goal == "forward" and work.agenda.losers:
            rest_when_lost(work)
        if work.task.state == "processing" and work.task.goal == "hold":
            rest_when_drained(work)
        if work.task.state == "undoing":
            backward(work)
            rest_when_undone(work)
        if self.makes_room and work.task.state in ("processing", "undoing"):
            suspend_in_flight(work, due, work.at.linger)
        elif due or work.out.timers or work.task.signals:
            suspend(work, due, work.at.linger)
        if work.out.used_requests:  # answered in the same batch, after the task had turned
            work.out.withdraw = [key for key in work.out.withdraw if key not in work.out.used_requests]
            work.out.cancels = [key for key in work.out.cancels if key not in work.out.used_requests]
        task = work.out.task = work.task
        work.out.release = task.state not in ("processing", "undoing")
        for message, (verdict, why), change in self.results:
            if message.act is not None:
                answer = Answer(message.act, message.kind, verdict, why, task.state, change)
                work.out.answers.append(answer)


def _end_untouched(work: DecisionBuilder, _: TaskMessage) -> None:
    """End a task that does not wait for its lanes, unless something of it was done before."""
    task = work.task
    if task.state == "queued" and task.goal == "forward" and rules.are_untouched(work.steps()):
        work.task = replace(task, goal="undo", cause=words("lane_taken"))
        work.move_task("undone", "lane_taken")


def _leave_to_next_scheduler(work: DecisionBuilder) -> None:
    """Leave the follow-up of a doubt that was just answered to the next Scheduler, marked by an immediate
    timer.
    """
    for idx in work.agenda.news:
        step = work.step(idx)
        if rules.is_taken_back(work.task, step) and step.state == "in_doubt" and rules.idle(step):
            work.timer(step, 0.0)


def _poison(work: DecisionBuilder, message: TaskMessage) -> None:
    """The task may be what kills its Schedulers: begin nothing new, await what is in flight, then go to
    error.
    """
    text = message.error or f"it lost its Scheduler {work.task.lost} times in a row"
    work.alert(Alert("poison", text=f"put to error: {text}"))
    stop(work, text)


def stop(work: DecisionBuilder, cause: str) -> None:
    """Begin nothing new: hold a task that goes forward; in an undo, await only what is in flight."""
    task = work.task
    if task.state == "processing":
        if task.goal == "forward":
            work.task = replace(task, goal="hold", cause=cause)
        clear(work)
    for each in work.steps():
        if rules.is_taken_back(task, each):
            step = work.drop_timer(each) if each.waiting else each
            if step.state == "undoing" and step.doing is None:
                undo_failed(work, step, cause)
            elif step.state not in rules.SETTLED:
                work.put(replace(step, stuck=True))


def put_to_error(held_task: HeldTask, messages: Sequence[TaskMessage], alert: Alert) -> Decision:
    """Return a Decision for a task whose messages the rules cannot decide (unreadable data, a defect).

    Every message is used up and counts as silence for its request. The task is stopped, and goes to error
    once nothing is in flight. Its remaining replies are decided as usual.
    """
    work = DecisionBuilder(held_task)
    work.alert(alert)
    if work.task.state in UNBEGUN:
        work.task = rules.with_deadline(work.task)
        work.move_task("undoing" if work.task.goal == "undo" else "processing", "claimed")
    for message in messages:
        if message.seq:
            work.out.seqs.append(message.seq)
        if message.act is not None:
            work.out.answers.append(Answer(message.act, message.kind, "refused", alert.text, work.task.state))
        step = work.find(message.idx)
        if step is None or step.doing is None or not rules.current(step, message):
            continue
        if message.kind not in ("expired", "withdrawn"):
            work.use(message)
        first_sent = rules.first_sent(step, message)
        step = work.put(replace(step, doing=None, error=alert.text, first_sent=first_sent))
        if step.state == "running":
            work.move(step, "in_doubt", "undecided", doubt=True)
    stop(work, alert.text)
    if work.task.state == "processing":
        rest_when_drained(work)
    elif work.task.state == "undoing":
        rest_when_undone(work)
    work.out.task = work.task
    work.out.release = work.task.state not in ("processing", "undoing")
    return work.out


_SIMPLE: Final[Mapping[str, Callable[[DecisionBuilder, TaskMessage], None]]] = MappingProxyType(
    {"late": late, "lane_taken": _end_untouched}
)
"""What messages do that need nothing else."""


def without_losses(task: TaskRecord) -> TaskRecord:
    """Return the task of a Scheduler that has lived to decide on a reply: none is lost in a row any more."""
    return replace(task, lost=0)
