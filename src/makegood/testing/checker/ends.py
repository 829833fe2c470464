"""L1 to L5 and I12: what must hold once the world has settled."""

from datetime import datetime
from typing import Any, ClassVar

from msgspec import json

from makegood.model.plan import UNTIL
from makegood.model.states import AT_REST, TEXTS
from makegood.testing.checker.reading import PASSED, HistoryState, TaskNow
from makegood.testing.checker.report import Report, join_names
from makegood.testing.checker.rule import EPSILON, Rule, when
from makegood.testing.history import Event

_OTHER_COMMITS = frozenset({("task", "processing", "pending"), ("task", "undoing", "pending")})
"""What a Scheduler that ends in good order does with the tasks it holds: another claims them, with its own
commit.
"""


_SETTLED = frozenset({"undone", "failed", "skipped", "kept"})
"""States of a step of a branch that was not the first one, in a task that is processed."""


_QUEUES = ("task", "sleeping", "queued")
"""A task that begins later waits for its lanes only then: a commit of its own."""


class NothingLost(Rule):
    """I12: an acknowledged submission is there: its row in the end, or at least some trace; one key gives one
    task.
    """

    name: ClassVar[str] = "I12"
    says: ClassVar[str] = "every acknowledged submission exists"
    kinds: ClassVar[frozenset[str]] = frozenset({"submitted"})

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._by_key: dict[tuple[str, tuple[str, ...]], Event] = {}

    def before(self, event: Event, _world: HistoryState) -> None:
        """Check whether a key that was acknowledged before gives the same task."""
        self.saw()
        if event["key"]:
            submission = (event["key"], tuple(event["steps"]))
            first = self._by_key.setdefault(submission, event)
            if first.task != event.task:
                self.wrong(f"the key {event['key']} was given two tasks", first)

    def end(self, world: HistoryState) -> None:
        """Check whether every submission is there."""
        rows = {detail.task.id for detail in world.final.tasks}
        submissions = [task for task in world.tasks.values() if task.submit_event is not None]
        for task in submissions:
            assert task.submit_event is not None
            if task.id in world.removals:
                continue
            missing = task.id not in rows if rows else world.rest is not None and not task.commits
            if missing:
                text = f"the submission told {when(task.submit_event)} is not in the store in the end"
                self.wrong(text, task.submit_event)
        if world.rest is not None and world.rest["tasks"] + world.removed_by_rest < len(submissions):
            text = f"{len(submissions)} submissions were acknowledged, the store holds {world.rest['tasks']} tasks in the end"
            self.wrong(text, world.rest)


class SleepsInTime(Rule):
    """I19: a task that begins later does not begin before its start, and no sleep ends before its moment,
    unless somebody wakes the task.
    """

    name: ClassVar[str] = "I19"
    says: ClassVar[str] = "no task that sleeps begins before its start, and no sleep ends before its moment"
    part: ClassVar[tuple[str, str] | None] = ("began", "no task was submitted to begin later")
    kinds: ClassVar[frozenset[str]] = frozenset({"began", "slept"})

    def before(self, event: Event, world: HistoryState) -> None:
        """Compare the moment with the clock of the claim, or of the commit that ended the sleep."""
        self.saw()
        task = world.task(event.task)
        early = event["early"] if event.kind == "began" else _early(task, event)
        if early <= EPSILON or "wake" in task.acts:
            return
        if event.kind == "began":
            self.wrong(f"the task began {early:.3f} s before its start {when(event)}")
        else:
            self.wrong(f"{task.name(event['idx'])} ended {early:.3f} s before its moment {when(event)}")


def _early(task: TaskNow, event: Event) -> float:
    """Return how many seconds before its moment a sleep ended; 0 if the plan does not say when it is."""
    plan = task.plans.get(event["idx"])
    if plan is None or plan.args is None or plan.args.refs:
        return 0.0
    value = json.decode(plan.args.parts[0])
    if plan.action != UNTIL:
        return float(value - event["length"])
    moment = datetime.fromisoformat(value.partition("[")[0])
    return moment.timestamp() - float(event["calendar"])


class EverythingEnds(Rule):
    """L1: once the world has settled, every task is processed, undone or in error."""

    name: ClassVar[str] = "L1"
    says: ClassVar[str] = "in the end every task is processed, undone or in error"

    def end(self, world: HistoryState) -> None:
        """Look at the state of every task."""
        if world.rest is None:
            return
        for task in world.tasks.values():
            self.saw()
            if task.state not in AT_REST:
                self.wrong(
                    f"the world has come to rest {when(world.rest)}, and the task is {task.state}, "
                    f"its steps: {join_names(f'{task.name(i)} {s.state}' for i, s in sorted(task.steps.items()))}",
                    world.rest,
                    task=task.id,
                )


class EffectsAsRecorded(Rule):
    """L2: the services' books agree with the record. An operator's statement on a step is taken as it is.

    Processed: the effect of every step that called a service is in place once, and none of a branch that was
    not the first one, except kept ones. Undone: none is, except kept ones. In error: an alert was raised,
    and the record lists every effect that is in place.
    """

    name: ClassVar[str] = "L2"
    says: ClassVar[str] = "in the end what is in place is what the record says"
    kinds: ClassVar[frozenset[str]] = frozenset({"alert"})

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._alerts: set[int] = set()

    def before(self, event: Event, _world: HistoryState) -> None:
        """Note which tasks have an alert."""
        self._alerts.add(event.task)

    def end(self, world: HistoryState) -> None:
        """Compare the record with the services' books."""
        if world.rest is None:
            return
        for task in world.tasks.values():
            if task.state not in AT_REST:
                continue  # L1 reports it.
            self.saw()
            for idx in sorted({*task.steps, *task.plans}):
                self._step(world, task, idx)
            if task.state == "error":
                self._error(world, task)

    def _step(self, world: HistoryState, task: TaskNow, idx: int) -> None:
        step, name = task.step(idx), task.name(idx)
        has_lost = task.has_lost(idx)
        ends = _SETTLED if has_lost else PASSED
        if not task.plans:  # it was removed: nobody knows which of its steps had lost
            ends |= _SETTLED
        if task.state == "processed" and step.state not in ends:
            self.wrong(f"the task is processed, and {name} is {step.state}", task=task.id)
        nets = world.standing(task.id, idx)
        for round_ in sorted({*nets, *step.rounds, step.round}):
            now = round_ == step.round
            state, net = (step.state if now else step.rounds.get(round_, "")), nets.get(round_, 0)
            if now and step.by_hand:
                continue
            has_call = (task.id, idx, round_) in world.calls
            if state == "done" and has_call and net != 1:
                text = f"{name} is done, and its effect is in place {net} times"
                self.wrong(text, *_last(world, task.id, idx), task=task.id)
            elif state in ("undone", "failed", "waiting", "skipped") and net:
                text = f"{name} is {state}{'' if now else f' in round {round_}'}, and its effect is in place {net} times"
                self.wrong(text, *_last(world, task.id, idx), task=task.id)

    def _error(self, world: HistoryState, task: TaskNow) -> None:
        if task.id not in self._alerts:
            self.wrong("the task is in error, and no alert was raised", task.end, task=task.id)
        listing = _listed_steps(world, task)
        if listing is None:
            return
        real = {
            task.name(idx)
            for idx, step in task.steps.items()
            if sum(world.standing(task.id, idx).values()) and not step.by_hand
        }
        missing = sorted(real - listing)
        if missing:
            text = f"these effects stand and are not listed: {join_names(missing)}; listed: {join_names(sorted(listing))}"
            self.wrong(text, task.end, task=task.id)


def _listed_steps(world: HistoryState, task: TaskNow) -> set[str] | None:
    """Return the steps that the record lists as in place: by the final rows, else by the task's end event."""
    for detail in world.final.tasks:
        if detail.task.id == task.id:
            return {view.name for view in detail.steps if view.stands}
    return None if task.end is None else set(task.end["standing"])


def _last(world: HistoryState, task: int, idx: int) -> list[Event]:
    return [event for (_, of, step, _), event in world.nets.items() if (of, step) == (task, idx)][-1:]


class NothingLeftOver(Rule):
    """L4: no message, request or orphan, and no lease of a dead process, is left; no slot is taken by
    nothing.
    """

    name: ClassVar[str] = "L4"
    says: ClassVar[str] = (
        "in the end nothing is left over: no messages, requests, orphans, leases of the dead, slots "
        "that no call has"
    )

    def end(self, world: HistoryState) -> None:
        """Look at what the store holds, and the agents."""
        rest = world.rest
        if rest is None:
            return
        for field, remains in (
            ("orphans", "rows without a task"),
            ("leases_held_by_dead", "leases held by the dead"),
            ("inbox_rows", "messages that nobody used up"),
            ("request_rows", "requests of tasks that have ended"),
        ):
            self.saw()
            left: Any = rest.fields.get(field)
            if left:
                self.wrong(f"in the end the store holds {remains}: {left}", rest)
        self.saw()
        if slots := rest.fields.get("slots_lost"):
            self.wrong(f"in the end slots are taken that no call has: {join_names(slots)}", rest)


def _is_early(event: Event) -> bool:
    """Whether a task was let go until a moment before its first timer."""
    wakes, due = event["wakes"], event["due"]
    return wakes is not None and due is not None and wakes < due


class FewCommits(Rule):
    """L5: an undisturbed task needs at most one commit per step that was asked (to do or to undo), one per
    wait that ended, one per signal that it keeps, one if it begins later and has lanes, and one more.

    Undisturbed: it met no fault, no operator and no failing service. A Scheduler whose clock runs fast lets
    it sleep until just before its timer: then it is claimed once more.
    """

    name: ClassVar[str] = "L5"
    says: ClassVar[str] = "a task that met no fault needs one commit per step, signal and wait, and one more"
    kinds: ClassVar[frozenset[str]] = frozenset(
        {
            "submitted",
            "claimed",
            "moved",
            "sent",
            "slept",
            "accepted",
            "act",
            "judged",
            "released",
            "fault",
            "ended",
            "kept",
            "waited",
            "suspended",
        }
    )

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._faults: list[float] = []
        self._span: dict[int, tuple[float, float]] = {}
        self._dispatches: dict[int, int] = {}
        self._troubles: set[int] = set()

    def before(self, event: Event, _world: HistoryState) -> None:
        """Note when each task lived, what it was asked, and what disturbed it."""
        kind, task = event.kind, event.task
        if kind == "fault":
            self._faults.append(event.at)
            return
        first, _ = self._span.get(task, (event.at, event.at))
        self._span[task] = (first, event.at)
        if (
            kind in ("sent", "slept", "kept", "waited")
            or (kind == "moved" and _QUEUES in event["moves"])
            or (kind == "suspended" and _is_early(event))
        ):
            self._dispatches[task] = self._dispatches.get(task, 0) + 1
        elif (
            kind in ("act", "judged", "released")
            or (kind == "suspended" and event.fields.get("rests"))
            or (kind == "accepted" and event["reply"] in ("later", "gave_up", "not_happened"))
            or (kind == "moved" and any(tuple(move[:3]) in _OTHER_COMMITS for move in event["moves"]))
            or (kind == "moved" and event["cause"] == TEXTS["deadline"])
        ):
            self._troubles.add(task)

    def end(self, world: HistoryState) -> None:
        """Count the commits of undisturbed tasks."""
        for number, (first, last) in self._span.items():
            task = world.task(number)
            calm = number not in self._troubles and not any(first <= at <= last for at in self._faults)
            if not calm or task.state not in ("processed", "undone"):
                continue
            self.saw()
            limit = self._dispatches.get(number, 0) + 1
            if task.commits > limit:
                text = f"{task.commits} commits for {limit - 1} requests although nothing disturbed it: at most {limit}"
                self.wrong(text, task.end, task=number)
