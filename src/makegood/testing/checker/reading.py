"""The world as a history describes it so far: tasks, steps, requests, leases, effects.

``HistoryState.take`` folds one event in. The rules of this package see an event twice: before it is folded in
(what held until now?) and after. Nothing here judges, and nothing here uses the engine's rules: a mistake in
them would excuse itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from makegood.model.plan import StepPlan
from makegood.model.states import StepState, TaskState
from makegood.store.views import EventView, TaskDetail
from makegood.testing.history import Event, History

PASSED = frozenset({"done", "skipped"})

_ORDER = (
    ("lane",),
    ("claimed",),
    ("noted", "signalled"),
    ("accepted", "withdrawn", "late", "refused", "counted"),
    ("act",),
    ("began", "slept"),
    ("moved",),
    ("kept", "used", "waited", "timeout"),
    ("notice",),
    ("sent", "taken", "given back", "cancelled"),
    ("alert",),
    ("suspended", "lingers", "overfull"),
    ("ended",),
)
_RANK = {kind: rank for rank, kinds in enumerate(_ORDER) for kind in kinds}


@dataclass(frozen=True, slots=True)
class Final:
    """What is known beside the history."""

    tasks: Sequence[TaskDetail] = ()
    """Every task as the store has it in the end, with the steps' plans: their predecessors, how many failures
    they may have.
    """
    histories: Mapping[int, Sequence[EventView]] = field(default_factory=dict)
    """The store's own history rows, by task."""


@dataclass(slots=True)
class Dispatch:
    """One hand-out of a step."""

    event: Event
    doing: str
    attempt: int
    round: int
    key: str
    local: bool = False
    """Whether it was created already taken."""
    by: object = None
    """Who took it; None: nobody."""
    taking: Event | None = None
    """The event ``taking``."""
    answer: Event | None = None
    """The event that ended it, if that was an answer."""
    verdict: Event | None = None
    """The event that ended it, if that was a verdict."""
    withdrawal: Event | None = None
    """The event that ended it, if that was a withdrawal."""

    @property
    def open(self) -> bool:
        """Whether it is taken, and neither answered, nor judged, nor withdrawn."""
        return (self.local or self.by is not None) and not (self.answer or self.verdict or self.withdrawal)


@dataclass(slots=True)
class StepNow:
    """A step as the moves describe it."""

    idx: int
    state: StepState = "waiting"
    round: int = 1
    dispatches: dict[int, Dispatch] = field(default_factory=dict)
    """Its hand-outs, by attempt."""
    rounds: dict[int, str] = field(default_factory=dict)
    """The last state of each earlier round."""
    by_hand: bool = False
    """Whether an operator's statement settled it."""

    @property
    def last(self) -> Dispatch | None:
        """Return the last hand-out."""
        return next(reversed(self.dispatches.values()), None)


@dataclass(slots=True)
class TaskNow:
    """A task as its events describe it."""

    id: int
    state: TaskState = "pending"
    owner: str | None = None
    """The node that claimed it last and still has it."""
    epoch: int = 0
    submit_event: Event | None = None
    end: Event | None = None
    commits: int = 0
    submission: int = 1
    backward: bool = False
    """Whether it is being undone, also while it is pending between two Schedulers."""
    names: Sequence[str] = ()
    plans: Mapping[int, StepPlan] = field(default_factory=dict)
    steps: dict[int, StepNow] = field(default_factory=dict)
    winners: dict[int, int] = field(default_factory=dict)
    """The branch that each ``first`` has decided for."""
    acts: list[str] = field(default_factory=list)
    """The kinds of the operator commands that the present commit applies, such as "settle"."""
    fresh: dict[int, str] = field(default_factory=dict)
    """The kind of the reply that the present commit accepts, by step."""

    def step(self, idx: int) -> StepNow:
        """Return a step; one without events is waiting."""
        if idx not in self.steps:
            self.steps[idx] = StepNow(idx)
        return self.steps[idx]

    def name(self, idx: int) -> str:
        """Return a step's name, or its number if the name is unknown."""
        if idx in self.plans:
            return self.plans[idx].name
        return self.names[idx] if 0 <= idx < len(self.names) else f"step {idx}"

    def is_control(self, idx: int) -> bool:
        """Whether the plan says that the rules do this step themselves."""
        return idx in self.plans and self.plans[idx].kind != "action"

    def races(self, idx: int) -> Iterator[tuple[int, int]]:
        """Yield each ``first`` that a step is in a branch of, the innermost one first, and the branch."""
        while idx >= 0:
            around = [p for p in self.plans.values() if p.branches and p.branches[0] <= idx < p.idx]
            for first in sorted(around, key=lambda plan: plan.idx):
                yield first.idx, sum(start <= idx for start in first.branches) - 1
            idx = _each_of(self.plans[idx]) if idx in self.plans else -1

    def has_lost(self, idx: int) -> bool:
        """Whether a step is in a branch that was not the first one."""
        return any(self.winners.get(first, branch) != branch for first, branch in self.races(idx))

    def decide(self, first: int) -> None:
        """Note which branch of a ``first`` is done: of several, the earliest in the plan."""
        plan = self.plans[first]
        for branch, start in enumerate(plan.branches):
            end = [*plan.branches, first][branch + 1]
            if all(self.step(idx).state == "done" for idx in plan.after if start <= idx < end):
                self.winners[first] = branch
                return

    def free(self) -> None:
        """Release the task; if it was under way, another Scheduler claims it."""
        self.owner = None
        if self.state in ("processing", "undoing"):
            self.state = "pending"

    def before(self, idx: int) -> list[int]:
        """Return the steps that a step waits for; a ``gather`` waits for every item of its ``each`` as
        well.
        """
        plan = self.plans.get(idx)
        if plan is None:
            return []
        predecessors = [*plan.after, *(guard for guard, _ in plan.guards), plan.of, plan.item_of]
        if plan.kind == "gather":
            predecessors += [
                predecessor for predecessor, item in self.plans.items() if _each_of(item) == plan.of
            ]
        return [predecessor for predecessor in dict.fromkeys(predecessors) if predecessor >= 0]

    def followers(self, idx: int) -> list[int]:
        """Return the steps that wait for a step."""
        return [follower for follower in self.plans if idx in self.before(follower)]


@dataclass(slots=True)
class LeaseNow:
    """A lease: the newest epoch, its holder, and whether the holder still has it."""

    epoch: int
    holder: str
    is_held: bool
    event: Event


@dataclass(slots=True)
class HistoryState:
    """Everything that the events so far describe."""

    final: Final = field(default_factory=Final)
    tasks: dict[int, TaskNow] = field(default_factory=dict)
    leases: dict[str, LeaseNow] = field(default_factory=dict)
    keys: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """The task, step and round of each key."""
    nets: dict[tuple[str, int, int, int], Event] = field(default_factory=dict)
    """The last effect event, by service, task, step and round: it says how many effects are in place."""
    calls: set[tuple[int, int, int]] = field(default_factory=set)
    """Steps that called a service, by round."""
    removals: set[int] = field(default_factory=set)
    removed_by_rest: int = 0
    rest: Event | None = None

    def __post_init__(self) -> None:
        """Take over the plans."""
        for detail in self.final.tasks:
            task = self.task(detail.task.id)
            task.plans = {step.idx: step.plan for step in detail.steps if step.plan is not None}

    def task(self, number: int) -> TaskNow:
        """Return a task; one without events is pending."""
        if number not in self.tasks:
            self.tasks[number] = TaskNow(number)
        return self.tasks[number]

    def dispatch_of(self, event: Event) -> Dispatch | None:
        """Return the hand-out that an event is about; None if no commit had handed it out."""
        return self.task(event.task).step(event["idx"]).dispatches.get(event["attempt"])

    def standing(self, task: int, idx: int) -> dict[int, int]:
        """Return how many effects of a step are in place, by round, as far as services reported."""
        counts: dict[int, int] = {}
        for (_, of, step, round_), event in self.nets.items():
            if (of, step) == (task, idx):
                counts[round_] = counts.get(round_, 0) + event["net"]
        return counts

    def take(self, event: Event) -> None:
        """Fold an event in."""
        fold = _FOLDS.get(event.kind)
        if fold is not None:
            fold(self, event)


def in_order(history: History) -> Iterator[Event]:
    """Yield the events; those of one commit about one task are sorted: first what the commit rests on (claim,
    replies, acts), then the moves, then what follows from them.

    Rows of the store's history that move nothing are left out, as are those that repeat ``released``.
    """
    for _, run in groupby(enumerate(_telling(history)), key=_commit):
        events = [event for _, event in run]
        if len(events) > 1:
            first: dict[int, int] = {}
            for event in events:
                first.setdefault(event.task, len(first))
            events.sort(key=lambda event: (first[event.task], _RANK[event.kind]))
        yield from events


def _telling(history: History) -> Iterator[Event]:
    releases: set[tuple[float, str, int]] = set()
    for event in history.events:
        if event.kind == "released":
            releases.add((event.at, event.node, event.task))
        elif event.kind == "moved":
            moves = event["moves"]
            back = len(moves) == 1 and moves[0][0] == "task" and moves[0][2] == "pending"
            if not moves or (back and (event.at, event.node, event.task) in releases):
                continue
        yield event


def _commit(entry: tuple[int, Event]) -> object:
    number, event = entry
    return (event.at, event.node) if event.kind in _RANK else number


def _each_of(plan: StepPlan) -> int:
    """Return the ``each`` that this step is an item of; -1 for none."""
    if plan.item_of >= 0:
        return plan.item_of
    return plan.of if plan.nth >= 0 and plan.kind not in ("merge", "gather") else -1


# -- how each kind changes the world ---------------------------------------------------------------


def _apply_submission(world: HistoryState, event: Event) -> None:
    task = world.task(event.task)
    task.submit_event = task.submit_event or event
    task.names = tuple(event.fields.get("steps", ())) or task.names


def _apply_claim(world: HistoryState, event: Event) -> None:
    task = world.task(event.task)
    task.owner, task.epoch = event.node, event["epoch"]


def _sleeps(world: HistoryState, event: Event) -> None:
    world.task(event.task).state = "sleeping"


def _lane(world: HistoryState, event: Event) -> None:
    task = world.task(event.task)
    if event["state"] == "waiting" and not task.commits and task.state == "pending":
        task.state = "queued"


def _is_automatic(act: Event) -> bool:
    """Whether a task asked for its lane, or a schedule for its next moment, and nobody."""
    who = act.fields.get("who", "")
    return bool(who == "lane" or who.startswith("schedule "))


def _act(world: HistoryState, event: Event) -> None:
    if event["verdict"] == "applied" and not _is_automatic(event):
        world.task(event.task).acts.append(event["what"])


def _apply_moves(world: HistoryState, event: Event) -> None:
    task = world.task(event.task)
    task.commits += 1
    if task.owner is None and task.epoch == 0:
        task.owner, task.epoch = event.node, 1  # Held since its submission.
    for move in event["moves"]:
        if move[0] == "task":
            task.submission += move[1] == "undone" and move[2] in ("pending", "queued")
            task.state = move[2]
            task.backward = "undoing" in (move[1], move[2])
        else:
            _step_moved(task, move)
    if task.state not in ("processing", "undoing"):
        task.owner = None
    task.acts.clear()
    task.fresh.clear()


def _step_moved(task: TaskNow, move: Sequence[Any]) -> None:
    step = task.step(move[0])
    if move[2] == "waiting" and move[1] in ("failed", "undone", "kept", "skipped"):
        step.rounds[step.round] = step.state
        step.round += 1
        step.by_hand = False
    step.state = move[2]
    if move[0] in task.plans and task.plans[move[0]].kind == "first":
        if move[2] == "done":
            task.decide(move[0])
        elif move[2] == "waiting":
            task.winners.pop(move[0], None)
    if "settle" in task.acts and move[0] not in task.fresh and move[2] in ("done", "failed", "undone"):
        step.by_hand = True


def _apply_dispatch(world: HistoryState, event: Event) -> None:
    step = world.task(event.task).step(event["idx"])
    dispatch = Dispatch(event, event["doing"], event["attempt"], event["round"], event["key"])
    dispatch.local = bool(event.fields.get("local"))
    step.dispatches.pop(dispatch.attempt, None)
    step.dispatches[dispatch.attempt] = dispatch
    world.keys.setdefault(dispatch.key, (event.task, event["idx"], dispatch.round))


def _dispatch(world: HistoryState, event: Event) -> None:
    """Fold in what becomes of a hand-out."""
    dispatch = world.dispatch_of(event)
    if dispatch is None:
        return
    match event.kind:
        case "accepted":
            dispatch.answer = dispatch.answer or event
            world.task(event.task).fresh[event["idx"]] = event["reply"]
        case "taken":
            dispatch.by, dispatch.taking = event["by"], event
        case "given back":
            dispatch.by, dispatch.taking, dispatch.local = None, None, False
        case "withdrawn":
            dispatch.withdrawal = dispatch.withdrawal or event
        case _:
            dispatch.verdict = dispatch.verdict or event


def _apply_release(world: HistoryState, event: Event) -> None:
    world.task(event.task).free()


def _apply_restore(world: HistoryState, _event: Event) -> None:
    for task in world.tasks.values():
        task.free()
    for lease in world.leases.values():
        lease.is_held = False


def _lease(world: HistoryState, event: Event) -> None:
    name, lease = event["name"], world.leases.get(event["name"])
    if event["verb"] == "acquired":
        world.leases[name] = LeaseNow(event["epoch"], event["holder"], is_held=True, event=event)
    elif event["verb"] == "released" and lease is not None and lease.epoch == event["epoch"]:
        lease.is_held = False


def _call(world: HistoryState, event: Event) -> None:
    owner = world.keys.get(event["key"])
    if event["doing"] == "do" and owner is not None:
        world.calls.add(owner)


def _effect(world: HistoryState, event: Event) -> None:
    owner = world.keys.get(event["key"])
    if owner is not None:
        world.nets[(event["service"], *owner)] = event


def _apply_end(world: HistoryState, event: Event) -> None:
    world.task(event.task).end = event


def _apply_removal(world: HistoryState, event: Event) -> None:
    world.removals.add(event.task)


def _rest(world: HistoryState, event: Event) -> None:
    world.rest = event
    world.removed_by_rest = len(world.removals)


_FOLDS = {
    **dict.fromkeys(("accepted", "taken", "given back", "withdrawn", "judged"), _dispatch),
    "submitted": _apply_submission,
    "claimed": _apply_claim,
    "act": _act,
    "sleeps": _sleeps,
    "lane": _lane,
    "moved": _apply_moves,
    "sent": _apply_dispatch,
    "released": _apply_release,
    "restored": _apply_restore,
    "lease": _lease,
    "call": _call,
    "effect": _effect,
    "ended": _apply_end,
    "removed": _apply_removal,
    "rest": _rest,
}
