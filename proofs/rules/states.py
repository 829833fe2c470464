"""I1 and I16: ended tasks stay as they are, and every state is the fold of allowed moves."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from makegood.model.states import AT_REST, CONTROL_MOVES, STEP_MOVES, TASK_MOVES, UNBEGUN
from makegood.testing.checker.reading import HistoryState, TaskNow
from makegood.testing.checker.report import join_names
from makegood.testing.checker.rule import Rule, when
from makegood.testing.history import Event

_LEAVES = MappingProxyType(
    {
        ("undone", "pending"): frozenset({"resubmit"}),
        ("error", "pending"): frozenset({"resubmit"}),
        ("undone", "queued"): frozenset({"resubmit"}),
        ("error", "queued"): frozenset({"resubmit", "undo", "cancel"}),
        ("processed", "queued"): frozenset({"undo"}),
        ("error", "undoing"): frozenset({"undo", "cancel"}),
        ("error", "processed"): frozenset({"settle"}),
        ("error", "undone"): frozenset({"settle"}),
        ("processed", "undoing"): frozenset({"undo"}),
    }
)
"""The only ways out of a task's rest, with the acts that open them."""


class FinalStates(Rule):
    """I1: a task at rest moves only in the commit that carries out an operator's act; if resubmitted, its
    submission rises.
    """

    name: ClassVar[str] = "I1"
    says: ClassVar[str] = "what has ended stays as it is, but for an operator's act"
    kinds: ClassVar[frozenset[str]] = frozenset({"moved", "ended", "released"})

    def before(self, event: Event, world: HistoryState) -> None:
        """Check whether tasks at rest are left alone."""
        task = world.task(event.task)
        if event.kind == "released":
            if task.state in AT_REST:
                self.wrong(f"the lock of a task that had ended ({task.state}) was freed {when(event)}")
        elif event.kind == "moved":
            self._moved(event, task)

    def _moved(self, event: Event, task: TaskNow) -> None:
        state: str = task.state
        for move in event["moves"]:
            if move[0] != "task":
                if state in AT_REST and not task.acts:
                    self.wrong(
                        f"{task.name(move[0])} of a task that had ended ({state}) went from {move[1]} to {move[2]} "
                        f"{when(event)}, and no operator had asked for it",
                        task.end,
                    )
                continue
            if state in AT_REST:
                self.saw()
                acts = _LEAVES.get((state, move[2]), frozenset())
                if not acts & set(task.acts):
                    self.wrong(
                        f"a task that had ended ({state}) went to {move[2]} {when(event)}; "
                        f"that takes {' or '.join(sorted(acts)) or 'more than any act may do'}, "
                        f"acts in that commit: {join_names(task.acts)}",
                        task.end,
                    )
            state = move[2]

    def after(self, event: Event, world: HistoryState) -> None:
        """Check the number of the submission that has ended."""
        if event.kind != "ended":
            return
        self.saw()
        task = world.task(event.task)
        if event["submission"] != task.submission:
            self.wrong(
                f"submission {event['submission']} ended {when(event)}, but the task was resubmitted from undone "
                f"{task.submission - 1} times, so it should be number {task.submission}"
            )


class Folding(Rule):
    """I16: each move begins where the one before ended, each is allowed, and the final rows agree with the
    recorded moves and with the store's own history rows.
    """

    name: ClassVar[str] = "I16"
    says: ClassVar[str] = "the state row is the fold of its history"
    kinds: ClassVar[frozenset[str]] = frozenset({"moved", "ended"})

    def before(self, event: Event, world: HistoryState) -> None:
        """Check each move of a commit."""
        task = world.task(event.task)
        if event.kind == "ended":
            self.saw()
            if event["state"] != task.state:
                self.wrong(
                    f"the task is said to have ended {event['state']} {when(event)}, its moves say {task.state}"
                )
            return
        now: dict[Any, str] = {"task": task.state}
        for move in event["moves"]:
            self.saw()
            subject, old, new = move[0], move[1], move[2]
            step = task.steps.get(subject) if subject != "task" else None
            so_far = now.get(subject, step.state if step is not None else "waiting")
            name = "the task" if subject == "task" else task.name(subject)
            if so_far != old:
                self.wrong(f"{name} went from {old} to {new} {when(event)}, but it was {so_far}")
            if not _is_allowed(task, subject, old, new):
                self.wrong(f"{name} went from {old} to {new} {when(event)}: not an allowed move")
            now[subject] = new

    def end(self, world: HistoryState) -> None:
        """Compare the moves with the rows, and the rows with the store's own history of them."""
        for detail in world.final.tasks:
            task = world.task(detail.task.id)
            self.saw()
            if detail.task.state != task.state:
                self.wrong(
                    f"the task's row says {detail.task.state}, its moves say {task.state}", task=task.id
                )
            for view in detail.steps:
                step_now = task.steps.get(view.idx)
                state, round_ = (step_now.state, step_now.round) if step_now else ("waiting", 1)
                if (view.state, view.round) != (state, round_):
                    text = f"the row of {view.name} says {view.state} in round {view.round}, its moves say {state} in round {round_}"
                    self.wrong(text, task=task.id)
                if step_now and step_now.last is not None and step_now.last.attempt > view.attempt:
                    text = f"the row of {view.name} says attempt {view.attempt}, but attempt {step_now.last.attempt} was handed out"
                    self.wrong(text, step_now.last.event)
            if task.id in world.final.histories:
                rows = {"task": detail.task.state, **{step.name: step.state for step in detail.steps}}
                self._own_history(world, task.id, rows)

    def _own_history(self, world: HistoryState, number: int, rows: Mapping[str, str]) -> None:
        self.saw()
        fold: dict[str, str] = {}
        for row in world.final.histories[number]:
            for name, old, new, _ in row.moves:
                was = fold.get(name, old if name == "task" and old in UNBEGUN else "waiting")
                if was != old:
                    text = (
                        f"history row {row.seq} says that {name} went from {old} to {new}, but it was {was}"
                    )
                    self.wrong(text, task=number)
                fold[name] = new
        for name, state in rows.items():
            fold_state = fold.get(name, state if name == "task" and state in UNBEGUN else "waiting")
            if fold_state != state:
                self.wrong(
                    f"the row of {name} says {state}, the store's history of it says {fold_state}",
                    task=number,
                )


def _is_allowed(task: TaskNow, subject: Any, old: Any, new: Any) -> bool:
    if subject == "task":
        return new in TASK_MOVES.get(old, ())
    if subject in task.plans:
        return new in (CONTROL_MOVES if task.is_control(subject) else STEP_MOVES).get(old, ())
    return new in STEP_MOVES.get(old, ()) or new in CONTROL_MOVES.get(old, ())
