"""I6, I7 and I8: who may decide, who may judge, and what counts."""

from typing import ClassVar

from makegood.model.states import AT_REST
from makegood.supervisor.supervisor import LEASE
from makegood.testing.checker.reading import Dispatch, HistoryState
from makegood.testing.checker.report import Report
from makegood.testing.checker.rule import EPSILON, Rule, when
from makegood.testing.history import Event


class OneOwner(Rule):
    """I6: epochs of a task's claims rise; only the last claimer decides; a hand-out has one owner.

    (A task at rest, or queued, may be claimed for an act that changes nothing: nobody holds it afterwards.)
    """

    name: ClassVar[str] = "I6"
    says: ClassVar[str] = "one claim per task and epoch, one owner per attempt, and only the owner decides"
    kinds: ClassVar[frozenset[str]] = frozenset({"claimed", "moved", "taken"})

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._claims: dict[int, Event] = {}

    def before(self, event: Event, world: HistoryState) -> None:
        """Look at claims, decisions and takings."""
        self.saw()
        if event.kind == "claimed":
            self._claimed(event, world)
        elif event.kind == "moved":
            self._moved(event, world)
        else:
            self._taken(event, world)

    def _claimed(self, event: Event, world: HistoryState) -> None:
        task, earlier = world.task(event.task), self._claims.get(event.task)
        if event["epoch"] <= task.epoch:
            text = f"the task was claimed under epoch {event['epoch']} {when(event)}; epoch {task.epoch} had been given"
            self.wrong(text, earlier)
        if task.owner is not None and task.state not in (*AT_REST, "sleeping", "queued"):
            self.wrong(f"the task was claimed {when(event)} while {task.owner} held it", earlier)
        self._claims[event.task] = event

    def _moved(self, event: Event, world: HistoryState) -> None:
        task = world.task(event.task)
        unheard = task.owner is None and task.epoch == 0  # It may be held since its submission.
        if not unheard and event.node != task.owner:
            text = f"{event.node} decided {when(event)} on a task that {task.owner or 'nobody'} holds"
            self.wrong(text, self._claims.get(event.task))

    def _taken(self, event: Event, world: HistoryState) -> None:
        dispatch, name = world.dispatch_of(event), world.task(event.task).name(event["idx"])
        if dispatch is None:
            self.wrong(
                f"attempt {event['attempt']} of {name} was taken {when(event)}, which no commit had handed out"
            )
        elif dispatch.by is not None and dispatch.by != event["by"]:
            text = f"attempt {dispatch.attempt} of {name} was taken by {event['by']} {when(event)}, {dispatch.by} had it already"
            self.wrong(text, dispatch.event)


class OnlyTheTerm(Rule):
    """I7: a process that judges and frees holds the lease, under its newest epoch; epochs of a lease rise."""

    name: ClassVar[str] = "I7"
    says: ClassVar[str] = "no act by a superseded term"
    kinds: ClassVar[frozenset[str]] = frozenset({"judged", "released", "lease"})

    def before(self, event: Event, world: HistoryState) -> None:
        """Look at acts of a term, and at terms."""
        if event.kind == "lease":
            self._lease(event, world)
            return
        self.saw()
        lease = world.leases.get(LEASE)
        did = "judged an attempt" if event.kind == "judged" else "freed a task"
        if lease is None:
            self.wrong(f"{event.node} {did} {when(event)} although nobody ever held the lease")
        elif event["epoch"] != lease.epoch:
            self.wrong(
                f"the term {event['epoch']} {did} {when(event)}, superseded by the term {lease.epoch} of {lease.holder} "
                f"{when(lease.event)}",
                lease.event,
            )
        elif not lease.is_held:
            self.wrong(
                f"the term {event['epoch']} {did} {when(event)}, after its lease was given back", lease.event
            )

    def _lease(self, event: Event, world: HistoryState) -> None:
        lease = world.leases.get(event["name"])
        if event["verb"] not in ("acquired", "renewed"):
            return
        self.saw()
        if lease is None:
            return
        again = event["epoch"] == lease.epoch and event["holder"] == lease.holder
        if event["verb"] == "acquired" and event["epoch"] <= lease.epoch and not (again and lease.is_held):
            self.wrong(
                f"{event['holder']} acquired the lease {event['name']} under epoch {event['epoch']} {when(event)}; "
                f"{lease.holder} had had epoch {lease.epoch}",
                lease.event,
            )
        if event["verb"] == "renewed" and not again:
            text = f"the term {event['epoch']} renewed the lease {event['name']} {when(event)}, superseded by the term {lease.epoch}"
            self.wrong(text, lease.event)


class CountedOnce(Rule):
    """I8: silences, lost locks and failures are counted once.

    - A silence is judged once, not if it was answered, and not before its complete-by, unless its process
      is dead, and it is an attempt of an action whose service honours keys.
    - A lost lock is freed once.
    - Failures stay within threshold + 2: those up to the threshold wait, one more try waits longer, then
      comes the verdict. (A step with a probe may fail once more: it is asked a last time.)
    """

    name: ClassVar[str] = "I8"
    says: ClassVar[str] = (
        "one silence is counted once, not before its complete-by, and never more than the threshold allows"
    )
    kinds: ClassVar[frozenset[str]] = frozenset({"judged", "released"})

    def before(self, event: Event, world: HistoryState) -> None:
        """Look at a verdict on silence."""
        self.saw()
        task = world.task(event.task)
        if event.kind == "released":
            if task.owner is None and task.epoch > 0:
                self.wrong(f"the lock of a task that nobody held was freed {when(event)}")
            return
        idx, attempt = event["idx"], event["attempt"]
        name, dispatch = task.name(idx), world.dispatch_of(event)
        if dispatch is None:
            self.wrong(f"attempt {attempt} of {name} was judged {when(event)}, which was never handed out")
            return
        if dispatch.verdict is not None:
            text = f"the silence of attempt {attempt} of {name} was counted twice: {when(dispatch.verdict)} and {when(event)}"
            self.wrong(text, dispatch.verdict)
        if dispatch.answer is not None:
            text = f"attempt {attempt} of {name} was answered {when(dispatch.answer)} and judged silent {when(event)}"
            self.wrong(text, dispatch.answer)
        plan = task.plans.get(idx)
        if not event.fields.get("dead"):
            self._too_early(event, dispatch, name)
        elif dispatch.doing != "do" or task.backward or (plan and plan.policy and not plan.policy.resumes):
            self.wrong(
                f"attempt {attempt} of {name} ({dispatch.doing}) was judged {when(event)} as its process was dead; it is not resumed"
            )
        if plan is None or plan.policy is None:
            return
        undo = dispatch.doing == "undo"
        threshold = plan.policy.undo_threshold if undo else plan.policy.threshold
        limit = threshold + 2 + (plan.policy.probe and not undo)
        if event["failures"] > limit:
            self.wrong(
                f"{name} failed {event['failures']} times {when(event)}; its threshold is {threshold}, so at most {limit}"
            )

    def _too_early(self, event: Event, dispatch: Dispatch, name: str) -> None:
        """Whoever takes a request has its whole time, in true time; an extension only adds to it."""
        if dispatch.taking is None or (within := dispatch.taking.fields.get("within")) is None:
            return
        wait = event.at - dispatch.taking.at
        if wait < within - EPSILON:
            text = f"attempt {dispatch.attempt} of {name} was judged silent {when(event)}, after {wait:.3f} s of the {within:.3f} s that it had"
            self.wrong(text, dispatch.taking)
