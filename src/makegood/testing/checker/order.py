"""I9 and I10: what may begin when, forward and back."""

from typing import ClassVar

from makegood.testing.checker.reading import PASSED, SETTLED, TaskNow, World
from makegood.testing.checker.report import listed
from makegood.testing.checker.rule import Rule, when
from makegood.testing.history import Event


class UndoInOrder(Rule):
    """I9: an undo is asked only of a task that is being undone, of a step that was asked to do, with nothing of it in flight,
    after all that followed it is settled; and an undone task has nothing done or in doubt.
    """

    name: ClassVar[str] = "I9"
    kinds: ClassVar[frozenset[str]] = frozenset({"sent", "moved"})

    def before(self, event: Event, world: World) -> None:
        """Look at what was in flight when an undo is asked."""
        if event.kind != "sent" or event["doing"] != "undo":
            return
        self.saw()
        task, idx = world.task(event.task), event["idx"]
        step, name = task.step(idx), task.name(idx)
        if task.state != "undoing":
            self.wrong(
                f"the undo of {name} was asked {when(event)} although the task was {task.state}", event
            )
        if not any(asked.doing == "do" for asked in step.asked.values()):
            self.wrong(f"the undo of {name} was asked {when(event)}, which certainly never started", event)
        for asked in step.asked.values():
            if asked.open:
                self.wrong(
                    f"the undo of {name} was asked {when(event)} while its attempt {asked.attempt} ({asked.doing}) was in flight",
                    asked.event,
                    event,
                )
        barring = self._barring(task, idx)
        if barring:
            said = [f"{task.name(other)} ({task.step(other).state})" for other in barring]
            self.wrong(
                f"the undo of {name} was asked {when(event)} before what came after it was settled: {listed(said)}",
                event,
            )

    def _barring(self, task: TaskNow, idx: int) -> list[int]:
        """Return what came after a step and is not settled; what was skipped passes the question on."""
        found: list[int] = []
        seen, todo = {idx}, task.followers(idx)
        while todo:
            other = todo.pop()
            if other in seen:
                continue
            seen.add(other)
            state = task.step(other).state
            if state not in SETTLED:
                found.append(other)
            elif state == "skipped":
                todo += task.followers(other)
        return sorted(found)

    def after(self, event: Event, world: World) -> None:
        """Look whether an undone task has all of it undone."""
        task = world.task(event.task)
        if event.kind != "moved" or task.state != "undone":
            return
        self.saw()
        left = [
            f"{task.name(idx)} ({step.state})"
            for idx, step in task.steps.items()
            if step.state not in SETTLED
        ]
        if left:
            self.wrong(f"the task was undone {when(event)}, but these were not: {listed(left)}", event)


class ForwardInOrder(Rule):
    """I10: an action is asked when all that comes before it is done or skipped, and never of a task at rest."""

    name: ClassVar[str] = "I10"
    kinds: ClassVar[frozenset[str]] = frozenset({"sent"})

    def before(self, event: Event, world: World) -> None:
        """Look at what comes before a step that is asked."""
        if event["doing"] != "do":
            return
        task, idx = world.task(event.task), event["idx"]
        if idx in task.plans:
            self.saw()
        open_ = [other for other in task.before(idx) if task.step(other).state not in PASSED]
        if open_:
            said = [f"{task.name(other)} ({task.step(other).state})" for other in open_]
            self.wrong(
                f"{task.name(idx)} was started {when(event)} before what it follows: {listed(said)}", event
            )
        if task.state not in ("processing", "undoing"):
            self.wrong(
                f"{task.name(idx)} was started {when(event)} although the task was {task.state}", event
            )
