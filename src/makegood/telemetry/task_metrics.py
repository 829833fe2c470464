"""Counts a Scheduler's commits: how attempts ended, what followed on failures, which tasks came to rest and
how.

It uses committed Decisions and the messages that led to them. So nothing is counted that was not written, and
nothing is counted twice if a commit was overtaken and repeated.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from makegood.base import ids
from makegood.base.clock import Clock
from makegood.model.decision import Decision
from makegood.model.messages import TaskMessage
from makegood.model.plan import WAITS
from makegood.model.policy import Policy
from makegood.model.shape import HeldTask
from makegood.model.states import AT_REST, ENDED
from makegood.model.task import Step
from makegood.store.records import Committed
from makegood.telemetry import catalogue
from makegood.telemetry.counters import Counters
from makegood.telemetry.hooks import Decided, Heard

OUTCOMES: Final[Mapping[str, str]] = {
    "done": "ok", "happened": "ok", "not_happened": "ok", "gave_up": "transient", "permanent": "permanent", "refused": "permanent",
    "later": "later", "expired": "timeout",
}  # fmt: skip
"""How an attempt ended, by the kind of its message. The silence of a dead process is ``lost`` instead."""

_CAUSES: Final[Mapping[str, str]] = {
    "deadline": "complete_by",
    "operator_undo": "operator",
    "cancelled": "cancel",
}
"""Causes of an undo that its reason says."""
_FAILED: Final = frozenset({"gave_up", "permanent", "expired"})
_WAIT_ENDS: Final[Mapping[str, str]] = {
    "moment_came": "moment", "woken_early": "moment", "signal_came": "signal", "timed_out": "timeout", "no_signal": "timeout",
    "goal_changed": "dropped", "branch_lost": "dropped", "ended_early": "dropped",
}  # fmt: skip
"""How a wait ended, by the reason of its step's move."""
_MOST_WAITS: Final = 4_000
"""The most waits whose beginning is remembered."""
_PLAIN: Final = Policy(within=60.0)
_CERTAIN: Final = frozenset({"permanent", "refused"})


def outcomes_with_steps(
    held_task: HeldTask, decision: Decision, messages: Iterable[TaskMessage]
) -> list[tuple[Step, TaskMessage]]:
    """Return the messages that ended an attempt, each with the step before it.

    Late and superseded ones are left out.
    """
    remaining = set(decision.used_requests)
    outcomes: list[tuple[Step, TaskMessage]] = []
    for message in messages:
        if message.kind not in OUTCOMES or not 0 <= message.idx < len(held_task.steps):
            continue
        step = held_task.steps[message.idx]
        current = step.doing == message.doing and step.attempt == message.attempt
        if current and (message.kind == "expired" or (message.idx, message.attempt) in remaining):
            outcomes.append((step, message))
            remaining.discard((message.idx, message.attempt))
    return outcomes


def _gave_way(message: TaskMessage) -> bool:
    """Whether an attempt ended without a result because nobody needs it: no failure."""
    return message.kind == "gave_up" and message.since_cancel is not None


def outcome(message: TaskMessage) -> str:
    """Return the word for how an attempt ended."""
    if _gave_way(message):
        return "cancelled"
    return "lost" if message.kind == "expired" and message.died else OUTCOMES[message.kind]


def written_decisions(decisions: Decided, outcome: Committed) -> Iterator[tuple[HeldTask, Decision]]:
    """Yield the Decisions that a commit wrote, those on the tasks that it claimed last."""
    lost_tasks = outcome.losses | {task for task, _ in outcome.rejections}
    yield from (pair for pair in decisions if pair[1].task.id not in lost_tasks)
    yield from outcome.claims


def is_end(decision: Decision) -> bool:
    """Whether the task came to rest with this Decision."""
    return decision.task.state in AT_REST and decision.before.state != decision.task.state


def cause_of_undo(decision: Decision) -> str:
    """Return why the task turned to undo with this Decision, "" if it did not."""
    turns = (move.reason for move in decision.moves if move.of_task and move.after == "undoing")
    reason = next(turns, "claimed")
    if reason == "claimed":  # nothing turned, or its undo began before, under another Scheduler
        return ""
    if reason in _CAUSES:
        return _CAUSES[reason]
    certain = any(move.after == "failed" and move.reason != "fenced" for move in decision.moves)
    return "permanent" if certain else "threshold"


class Accounts:
    """Counts commits; see ``hooks.Watch``."""

    def __init__(self, tally: Counters, clock: Clock) -> None:
        self._tally = tally
        self._clock = clock
        self._waits: OrderedDict[tuple[int, str], float] = OrderedDict()
        """When waits began, by task and step, by the wall clock; the oldest are forgotten."""

    def decided(self, messages: Heard, decisions: Decided, outcome: Committed) -> None:
        """Count a commit."""
        if outcome.losses:
            self._tally.count(catalogue.FENCED, "scheduler", by=len(outcome.losses))
        for held_task, decision in written_decisions(decisions, outcome):
            self._one(held_task, decision, messages.get(decision.task.id, ()))

    def _one(self, held_task: HeldTask, decision: Decision, messages: Sequence[TaskMessage]) -> None:
        tally, task = self._tally, decision.task
        failures: list[Step] = []
        for step, message in outcomes_with_steps(held_task, decision, messages):
            labels = (task.app, task.workflow, step.plan.action, step.plan.agent, outcome(message))
            tally.count(catalogue.ATTEMPTS, *labels)
            if _gave_way(message):
                continue
            if message.kind in _FAILED or (message.kind in _CERTAIN and message.doing != "undo"):
                failures.append(step)
        for end in decision.attempts:
            if end.late and 0 <= end.idx < len(held_task.steps):
                tally.count(catalogue.LATE, task.app, held_task.steps[end.idx].plan.agent)
        if failures:
            self._count_consequences(decision, failures)
        if task.goal != "forward" or decision.before.goal != "forward":
            self._count_undo(held_task, decision)
            if cause := cause_of_undo(decision):
                tally.count(catalogue.UNDOS, task.app, task.workflow, cause)
        if decision.used_signals or decision.kept_signals:
            self._signals(decision)
        if decision.shape_step is None and any(step.plan.kind in WAITS for step in held_task.steps):
            self._count_waits(held_task, decision)
        if is_end(decision):
            tally.count(catalogue.TASKS_ENDED, task.app, task.workflow, task.state)
            duration = self._clock.wall() - ids.draw_time(task.id)
            tally.observe(catalogue.TASK_SECONDS, duration, task.app, task.workflow, task.state)

    def _signals(self, decision: Decision) -> None:
        """Count what became of signals. A task that had ended keeps what comes too late."""
        task = decision.task
        for name, _, _ in decision.used_signals:
            self._tally.count(catalogue.SIGNALS, task.app, task.workflow, name, "used")
        fate = "late" if task.state in ENDED else "kept"
        for signal in decision.kept_signals:
            self._tally.count(catalogue.SIGNALS, task.app, task.workflow, signal.name, fate)

    def _count_waits(self, held_task: HeldTask, decision: Decision) -> None:
        """Note which waits began, and count those that ended."""
        task, now = decision.task, self._clock.wall()
        waits = {
            step.name: step.plan
            for step in (*held_task.steps, *decision.new_steps)
            if step.plan.kind in WAITS
        }
        for move in decision.moves:
            plan = waits.get(move.name)
            if plan is None or move.of_task:
                continue
            key = (task.id, move.name)
            if move.after == "ready":
                self._waits[key] = now
                if len(self._waits) > _MOST_WAITS:
                    self._waits.popitem(last=False)
            elif (outcome := _WAIT_ENDS.get(move.reason)) and (
                start := self._waits.pop(key, None)
            ) is not None:
                label = plan.action if plan.kind == "wait_for" else plan.kind
                labels = (task.app, task.workflow, label, outcome)
                self._tally.observe(catalogue.WAIT_SECONDS, now - start, *labels)

    def _count_consequences(self, decision: Decision, failures: Sequence[Step]) -> None:
        """Count what followed on failures: another attempt for each step, or one verdict on the task."""
        before, task = decision.before, decision.task
        for step in failures:
            if step.idx in decision.timers:
                policy = step.plan.policy or _PLAIN
                threshold = policy.undo_threshold if step.doing == "undo" else policy.threshold
                longer = decision.steps[step.idx].failures > threshold
                self._tally.count(catalogue.DECISIONS, "wait" if longer else "retry")
        goal_change = task.goal not in (before.goal, "forward")
        is_stuck = any(move.after == "undo_failed" for move in decision.moves)
        if goal_change or is_stuck:
            self._tally.count(catalogue.DECISIONS, "undo" if goal_change and task.goal == "undo" else "hold")

    def _count_undo(self, held_task: HeldTask, decision: Decision) -> None:
        plans = {step.name: step.plan for step in held_task.steps}
        for name, _, to, _ in decision.moves:
            plan = plans.get(name)
            outcome = {"undone": "undone", "undo_failed": "failed", "kept": "kept"}.get(to)
            if outcome is not None and plan is not None and plan.kind == "action":
                self._tally.count(catalogue.UNDO_STEPS, decision.task.app, plan.agent, plan.action, outcome)
