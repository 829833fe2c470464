"""Counts a Scheduler's commits: how attempts ended, what followed on failures, which tasks came to rest and
how.

It uses committed Decisions and the messages that led to them. So nothing is counted that was not written, and
nothing is counted twice if a commit was overtaken and repeated.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from makegood.base import ids
from makegood.base.clock import Clock
from makegood.model.decision import Decision
from makegood.model.messages import TaskMessage
from makegood.model.policy import Policy
from makegood.model.shape import HeldTask
from makegood.model.states import AT_REST
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

# states of tasks: a step may be called "task"
_TURNS: Final = frozenset({"pending", "processing", "processed", "error"})
_FAILED: Final = frozenset({"gave_up", "permanent", "expired"})
_PLAIN: Final = Policy(within=60.0)
_CERTAIN: Final = frozenset({"permanent", "refused"})


def told(
    held: HeldTask, decision: Decision, messages: Iterable[TaskMessage]
) -> list[tuple[Step, TaskMessage]]:
    """Return the messages that ended an attempt, each with the step before it.

    Late and superseded ones are left out.
    """
    used = set(decision.consumed)
    found: list[tuple[Step, TaskMessage]] = []
    for message in messages:
        if message.kind not in OUTCOMES or not 0 <= message.idx < len(held.steps):
            continue
        step = held.steps[message.idx]
        current = step.doing == message.doing and step.attempt == message.attempt
        if current and (message.kind == "expired" or (message.idx, message.attempt) in used):
            found.append((step, message))
            used.discard((message.idx, message.attempt))
    return found


def outcome(message: TaskMessage) -> str:
    """Return the word for how an attempt ended."""
    return "lost" if message.kind == "expired" and message.died else OUTCOMES[message.kind]


def written_decisions(decided: Decided, committed: Committed) -> Iterator[tuple[HeldTask, Decision]]:
    """Yield the Decisions that a commit wrote, those on the tasks that it claimed last."""
    gone = committed.lost | {task for task, _ in committed.guilty}
    yield from (pair for pair in decided if pair[1].task.id not in gone)
    yield from committed.claimed


def ended(decision: Decision) -> bool:
    """Whether the task came to rest with this Decision."""
    return decision.task.state in AT_REST and decision.before.state != decision.task.state


def cause_of_undo(decision: Decision, messages: Iterable[TaskMessage]) -> str:
    """Return why the task turned to undo with this Decision, "" if it did not."""
    turned = ((why, was) for name, was, to, why in decision.moves if (name, to) == ("task", "undoing"))
    why = next((why for why, was in turned if was in _TURNS), "claimed")
    if why == "claimed":  # nothing turned, or its undo began before, under another Scheduler
        return ""
    if why == "complete-by passed":
        return "complete_by"
    if decision.before.state in AT_REST:
        return "operator"
    if why.startswith("cancelled") and any(message.kind == "cancel" for message in messages):
        return "cancel"
    certain = any(to == "failed" and reason != "a fencing probe" for _, _, to, reason in decision.moves)
    return "permanent" if certain else "threshold"


class Accounts:
    """Counts commits; see ``hooks.Watch``."""

    def __init__(self, tally: Counters, clock: Clock) -> None:
        self._tally = tally
        self._clock = clock

    def decided(self, heard: Heard, decided: Decided, committed: Committed) -> None:
        """Count a commit."""
        if committed.lost:
            self._tally.count(catalogue.FENCED, "scheduler", by=len(committed.lost))
        for held, decision in written_decisions(decided, committed):
            self._one(held, decision, heard.get(decision.task.id, ()))

    def _one(self, held: HeldTask, decision: Decision, messages: Sequence[TaskMessage]) -> None:
        tally, task = self._tally, decision.task
        failed: list[Step] = []
        for step, message in told(held, decision, messages):
            labels = (task.app, task.workflow, step.plan.action, step.plan.agent, outcome(message))
            tally.count(catalogue.ATTEMPTS, *labels)
            if message.kind in _FAILED or (message.kind in _CERTAIN and message.doing != "undo"):
                failed.append(step)
        for message in decision.stale:
            if 0 <= message.idx < len(held.steps):
                tally.count(catalogue.LATE, task.app, held.steps[message.idx].plan.agent)
        if failed:
            self._followed(decision, failed)
        if task.goal != "forward" or decision.before.goal != "forward":
            self._taken_back(held, decision)
            if cause := cause_of_undo(decision, messages):
                tally.count(catalogue.UNDOS, task.app, task.workflow, cause)
        if ended(decision):
            tally.count(catalogue.TASKS_ENDED, task.app, task.workflow, task.state)
            lasted = self._clock.wall() - ids.drawn_at(task.id)
            tally.observe(catalogue.TASK_SECONDS, lasted, task.app, task.workflow, task.state)

    def _followed(self, decision: Decision, failed: Sequence[Step]) -> None:
        """Count what followed on failures: another attempt for each step, or one verdict on the task."""
        before, task = decision.before, decision.task
        for step in failed:
            if step.idx in decision.timers:
                policy = step.plan.policy or _PLAIN
                threshold = policy.undo_threshold if step.doing == "undo" else policy.threshold
                longer = decision.steps[step.idx].failures > threshold
                self._tally.count(catalogue.DECISIONS, "wait" if longer else "retry")
        turned = task.goal not in (before.goal, "forward")
        stuck = any(to == "undo_failed" for _, _, to, _ in decision.moves)
        if turned or stuck:
            self._tally.count(catalogue.DECISIONS, "undo" if turned and task.goal == "undo" else "hold")

    def _taken_back(self, held: HeldTask, decision: Decision) -> None:
        plans = {step.name: step.plan for step in held.steps}
        for name, _, to, _ in decision.moves:
            plan = plans.get(name)
            settled = {"undone": "undone", "undo_failed": "failed", "kept": "kept"}.get(to)
            if settled is not None and plan is not None and plan.kind == "action":
                self._tally.count(catalogue.UNDO_STEPS, decision.task.app, plan.agent, plan.action, settled)
