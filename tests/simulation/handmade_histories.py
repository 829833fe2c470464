"""Histories made by hand, for the tests of the checker: each story tells the life of a task as a recorder would.

The plan is always the same: ``reserve`` (step 0), then ``charge`` (step 1).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from makegood.model.plan import StepPlan, Template
from makegood.model.policy import Policy
from makegood.model.states import Move, StepState, TaskState
from makegood.store.views import EventView, StepView, TaskDetail, TaskView
from makegood.supervisor.supervisor import LEASE
from makegood.testing.checker import Final
from makegood.testing.history import Event, History
from proofs.storms.zone_laws import ZONE

STEPS = ("reserve", "charge")
THRESHOLD = 1
KEEPS = 60.0
"""For how many seconds services remember a key."""
WITHIN = 5.0
"""For how many seconds a step waits for a signal."""
PLANS = tuple(
    StepPlan(idx, name=name, agent="a", action=name, args=Template((str(WITHIN),)), after=(0,) * idx, policy=Policy(within=10.0, threshold=THRESHOLD, undo_threshold=THRESHOLD, keeps=KEEPS))
    for idx, name in enumerate(STEPS)
)  # fmt: skip


class Story:
    """A history in the making. Each event is a tenth of a second after the one before; one commit is at one moment."""

    def __init__(self) -> None:
        self.now = 0.0
        self.history = History(lambda: self.now)
        self.rounds: dict[tuple[int, int], int] = {}
        self.told: dict[int, int] = {}
        self._spec: dict[str, Any] = {}
        self._progress: dict[str, Any] | None = None
        self._pause: tuple[float | None, float | None] = (None, None)

    def note(self, kind: str, node: str = "", task: int = 0, **fields: Any) -> None:
        """Note an event, a moment later."""
        self.now = round(self.now + 0.1, 3)
        self.history.note(kind, node, task, **fields)

    def key(self, task: int, idx: int, direction: str = "do") -> str:
        """Return the key of a step in its present round."""
        return f"t{task}/{STEPS[idx]}/{self.rounds.get((task, idx), 1)}/{direction}"

    # -- the parts of a life -------------------------------------------------------------------------------------------

    def submit(self, task: int) -> None:
        """A client is told that its task is there."""
        if task in self.told:
            self.now = round(self.now + 0.1, 3)
            self.notice("c", task, "received")
        self.note(
            "submitted", "c", task, key=f"order-{task}", steps=list(STEPS), no_return=False, on_failure="undo",
            reply_to="queue:web" if task in self.told else None,
        )  # fmt: skip
        self.hear(task)

    def notice(self, node: str, task: int, state: str) -> None:
        """Something is written for a submitter who wants to be told, in the commit under way."""
        self.told[task] += 1
        self.history.note("notice", node, task, sequence=self.told[task], state=state, queue="web")

    def hear(self, task: int) -> None:
        """The submitter hears what was written for him last."""
        last = next(
            (
                event
                for event in reversed(self.history.events)
                if event.kind == "notice" and event.task == task
            ),
            None,
        )
        if last is not None:
            self.note(
                "notified", "w1", task, sequence=last["sequence"], state=last["state"], submission=1, by="web"
            )

    def lead(self, holder: str, epoch: int) -> None:
        """A Supervisor takes the lease."""
        self.note("lease", holder, name=LEASE, epoch=epoch, holder=holder, verb="acquired")
        self.note("lease", holder, name=LEASE, epoch=epoch, holder=holder, verb="renewed")

    def commit(
        self, task: int, *moves: tuple[Any, ...], node: str = "s1", claim: int = 0, acceptance: tuple[int, str, int, str] | None = None,
        requests: Sequence[tuple[int, str, int]] = (), act: str = "", alert: str = "", end: str = "", standing: Sequence[str] = (),
        submission: int = 1,
    ) -> None:  # fmt: skip
        """A Scheduler commits a Decision: everything at one moment."""
        self.now = round(self.now + 0.1, 3)
        note = self.history.note
        if claim:
            note("claimed", node, task, epoch=claim, lost=0)
        if acceptance is not None:
            idx, doing, attempt, reply = acceptance
            note(
                "accepted", node, task, idx=idx, doing=doing, attempt=attempt, reply=reply, complete_by=self.now + 5.0, now=self.now, came=self.now - 0.05
            )  # fmt: skip
        for move in moves:
            if move[0] != "task" and move[2] == "waiting" and move[1] in ("undone", "failed", "kept"):
                self.rounds[task, move[0]] = self.rounds.get((task, move[0]), 1) + 1
        full_moves = [m if m[0] == "task" else (*m, 0, self.rounds.get((task, m[0]), 1)) for m in moves]
        note("moved", node, task, moves=full_moves, cause="", note="")
        to_tell = [m[2] for m in moves if m[0] == "task" and m[2] != "pending"] if task in self.told else []
        for state in to_tell:
            self.notice(node, task, state)
        for idx, doing, attempt in requests:
            key = self.key(task, idx, "undo" if doing == "undo" else "do")
            round_ = self.rounds.get((task, idx), 1)
            note(
                "sent", node, task, idx=idx, doing=doing, attempt=attempt, round=round_, key=key, local=False
            )
        if alert:
            note("alert", node, task, alert=alert, step="", text=alert)
        if act:
            note("act", node, task, what=act, verdict="applied", reason="")
        if end:
            note("ended", node, task, state=end, result=False, standing=list(standing), submission=submission)
        note("store", node, outcome="committed", verbs=["commit"])
        if to_tell:
            self.hear(task)

    def ask(
        self, task: int, idx: int, attempt: int, *, doing: str = "do", net: int | None = 1, reply: str = ""
    ) -> None:
        """An agent takes a request and calls its service, whose books then say ``net`` (None: the call does not arrive)."""
        self.note("taken", "a1", task, idx=idx, doing=doing, attempt=attempt, by="a1", within=0.02)
        key = self.key(task, idx, "undo" if doing == "undo" else "do")
        self.note(
            "call", "a1", task, service="bank", step=STEPS[idx], doing=doing, attempt=attempt, key=key, token=[1, attempt],
            remaining=4.0,
        )  # fmt: skip
        if net is not None:
            about = self.key(task, idx)
            self.note(
                "effect", "", task, service="bank", key=about, doing=doing, token=[1, attempt], net=net, changed=True, outcome="ok"
            )  # fmt: skip
        if reply:
            self.note("reply", "a1", task, idx=idx, doing=doing, attempt=attempt, reply=reply)

    def notes(self, task: int, idx: int, attempt: int) -> None:
        """An attempt wrote four notes, of which two are kept."""
        about = {"idx": idx, "doing": "do", "attempt": attempt}
        for n in range(10 * task + 1, 10 * task + 5):
            self.history.note("wrote", "a1", task, **about, n=n, run=10 * task)
        for n, skips in ((10 * task + 1, 0), (10 * task + 4, 2)):
            self.history.note("noted", "s1", task, **about, n=n, skipped=skips, late=False)

    # -- whole lives ---------------------------------------------------------------------------------------------------

    def begin(self, task: int) -> None:
        """Submitted, claimed, and the first step done, the second one asked for."""
        self.submit(task)
        self.commit(
            task, ("task", "pending", "processing"), (0, "waiting", "ready"), (0, "ready", "running"), claim=1, requests=[(0, "do", 1)]
        )  # fmt: skip
        self.ask(task, 0, 1, reply="done")
        self.notes(task, 0, 1)
        self.commit(
            task, (0, "running", "done"), (1, "waiting", "ready"), (1, "ready", "running"), acceptance=(0, "do", 1, "done"),
            requests=[(1, "do", 1)],
        )  # fmt: skip

    def processed(self, task: int) -> None:
        """All goes well."""
        self.begin(task)
        self.ask(task, 1, 1, reply="done")
        self.commit(
            task, (1, "running", "done"), ("task", "processing", "processed"), acceptance=(1, "do", 1, "done"), end="processed",
            standing=STEPS,
        )  # fmt: skip

    def undone(self, task: int) -> None:
        """The second step falls silent although its effect stands; an operator cancels; both are undone."""
        self.begin(task)
        self.ask(task, 1, 1)
        self.note("judged", "v1", task, idx=1, attempt=1, failures=1, epoch=1)
        self.commit(task, (1, "running", "in_doubt"))
        self.note("late", "a1", task, idx=1, doing="do", attempt=1)
        self.note("refused", "a1", task, what="reply", idx=1, attempt=1, why="late or superseded")
        self.commit(
            task, ("task", "processing", "undoing"), (1, "in_doubt", "undoing"), act="cancel", requests=[(1, "undo", 2)]
        )  # fmt: skip
        self.ask(task, 1, 2, doing="undo", net=0, reply="done")
        self.commit(
            task, (1, "undoing", "undone"), (0, "done", "undoing"), acceptance=(1, "undo", 2, "done"), requests=[(0, "undo", 2)]
        )  # fmt: skip
        self.ask(task, 0, 2, doing="undo", net=0, reply="done")
        self.commit(
            task, (0, "undoing", "undone"), ("task", "undoing", "undone"), acceptance=(0, "undo", 2, "done"), end="undone"
        )  # fmt: skip

    def resubmitted(self, task: int) -> None:
        """An undone task is sent forward again, under new keys, and processed."""
        self.undone(task)
        self.commit(
            task, (0, "undone", "waiting"), (1, "undone", "waiting"), ("task", "undone", "pending"), claim=2, act="resubmit"
        )  # fmt: skip
        self.commit(
            task, ("task", "pending", "processing"), (0, "waiting", "ready"), (0, "ready", "running"), claim=3, node="s2",
            requests=[(0, "do", 3)],
        )  # fmt: skip
        self.ask(task, 0, 3, reply="done")
        self.commit(
            task, (0, "running", "done"), (1, "waiting", "ready"), (1, "ready", "running"), acceptance=(0, "do", 3, "done"),
            requests=[(1, "do", 3)], node="s2",
        )  # fmt: skip
        self.ask(task, 1, 3, reply="done")
        self.commit(
            task, (1, "running", "done"), ("task", "processing", "processed"), acceptance=(1, "do", 3, "done"), end="processed",
            submission=2, node="s2",
        )  # fmt: skip

    def held(self, task: int) -> None:
        """The Scheduler dies and another takes over; the service refuses; the task is held for an operator."""
        self.begin(task)
        self.note("released", "v1", task, epoch=1, why="dead")
        self.ask(task, 1, 1, net=0, reply="permanent")
        self.commit(
            task, ("task", "pending", "processing"), (1, "running", "failed"), ("task", "processing", "error"), claim=2, node="s2",
            acceptance=(1, "do", 1, "permanent"), alert="held", end="error", standing=["reserve"],
        )  # fmt: skip

    def guarded(self, task: int) -> None:
        """The circuit opens while a call is under way, whose failure then does not count; a canary is answered, and it closes."""
        self.note("circuit", "a1", agent="shop/a", state="closed")
        self.submit(task)
        self.commit(
            task, ("task", "pending", "processing"), (0, "waiting", "ready"), (0, "ready", "running"), claim=1, requests=[(0, "do", 1)]
        )  # fmt: skip
        self.ask(task, 0, 1, net=None)
        self.note("circuit", "a1", agent="shop/a", state="open")
        self.note("reply", "a1", task, idx=0, doing="do", attempt=1, reply="gave_up")
        self.commit(task, (0, "running", "in_doubt"), acceptance=(0, "do", 1, "gave_up"))
        self.note("circuit", "a1", agent="shop/a", state="half-open")
        self.commit(task, (0, "in_doubt", "running"), requests=[(0, "do", 2)])
        self.ask(task, 0, 2, reply="done")
        self.note("circuit", "a1", agent="shop/a", state="release")
        self.note("circuit", "a1", agent="shop/a", state="closed")
        self.commit(
            task, (0, "running", "done"), (1, "waiting", "ready"), (1, "ready", "running"), acceptance=(0, "do", 2, "done"),
            requests=[(1, "do", 1)],
        )  # fmt: skip
        self.ask(task, 1, 1, reply="done")
        self.commit(
            task, (1, "running", "done"), ("task", "processing", "processed"), acceptance=(1, "do", 1, "done"), end="processed",
            standing=STEPS,
        )  # fmt: skip

    def signalled(self, task: int) -> None:
        """One of two signals ends a wait; another wait times out, and what comes then is kept. (Steps stand for waits here.)"""
        for seq, (id_, name, now) in enumerate((("a", "charge", 1.0), ("b", "charge", 2.0)), 1):
            self.note("signalled", "c", task, name=name, id=id_, step="", seq=seq, now=now)
        self.note("acknowledged", "c", task, name="charge", id="a", created=True)
        self.note("kept", "s1", task, name="charge", id="b")
        self.note("timeout", "s1", task, idx=0, due=WITHIN + 3.0, now=3.0)
        self.note("used", "s1", task, name="charge", id="a", idx=1)
        self.note("waited", "s1", task, idx=1, reason="signal_came", now=3.5)
        self.note("signalled", "c", task, name="reserve", id="c", step="", seq=3, now=WITHIN + 3.1)
        self.note("waited", "s1", task, idx=0, reason="timed_out", now=WITHIN + 3.2)
        self.note("kept", "s1", task, name="reserve", id="c")

    def slept(self, task: int) -> None:
        """Its second step's service asks to come back later: the task is let go, and claimed at that moment."""
        self.begin(task)
        self.ask(task, 1, 1, net=None, reply="later")
        self.commit(
            task, (1, "running", "ready"), ("task", "processing", "sleeping"), acceptance=(1, "do", 1, "later")
        )  # fmt: skip
        at = self.now
        self.history.note("suspended", "s1", task, wakes=0.3, due=0.3)
        self.now = at + 0.3
        self.commit(
            task, ("task", "sleeping", "processing"), (1, "ready", "running"), claim=2, node="s2", requests=[(1, "do", 2)]
        )  # fmt: skip
        self.ask(task, 1, 2, reply="done")
        self.commit(
            task, (1, "running", "done"), ("task", "processing", "processed"), acceptance=(1, "do", 2, "done"), end="processed",
            standing=STEPS, node="s2",
        )  # fmt: skip

    def place(self, task: int, state: str, node: str = "s1") -> None:
        """A task's place in the one lane changes, in the commit before; its number is the task's."""
        self.history.note("lane", node, task, lane="ada", seq=task, at_once=1, state=state)

    def lane_mates(self, *tasks: int) -> None:
        """Tasks of one lane: all are submitted, and each begins when the one before has ended."""
        for task in tasks:
            self.submit(task)
            self.place(task, "waiting", "c")
        for task in tasks:
            self.commit(
                task, ("task", "queued", "processing"), (0, "waiting", "ready"), (0, "ready", "running"), claim=1, requests=[(0, "do", 1)]
            )  # fmt: skip
            self.place(task, "held")
            self.ask(task, 0, 1, reply="done")
            self.commit(
                task, (0, "running", "done"), (1, "waiting", "ready"), (1, "ready", "running"), acceptance=(0, "do", 1, "done"),
                requests=[(1, "do", 1)],
            )  # fmt: skip
            self.ask(task, 1, 1, reply="done")
            self.commit(
                task, (1, "running", "done"), ("task", "processing", "processed"), acceptance=(1, "do", 1, "done"), end="processed",
                standing=STEPS,
            )  # fmt: skip
            self.place(task, "out")

    def scheduled(self) -> None:
        """A schedule, each ten seconds: it is fired in time, at the end of a gap and late, skips what is too long ago, and is paused."""
        self.note("zones", "v2", zone=ZONE, change=28, before=0, after=15)
        times = {"cron": "0-59/10 0-59 0-23 * * *", "timezone": ZONE, "end": 80.0}
        self.declare("tick", {"times": times, "catch_up": 10.0, "coalesce": False})
        self.fire(10.5, 10.0, fires="00:10")
        self.fire(20.2, 20.0, fires="00:20")
        self.fire(33.0, 28.0, fires="00:30", skips={"gap": 1})
        self.fire(56.0, 55.0, fires="01:10", skips={"missed": 2})
        self.fire(57.0, 55.0, verb="pause", pause=(57.0, None))
        self.fire(66.0, 65.0, skips={"paused": 1}, pause=(57.0, None))
        self.fire(76.0, 75.0, verb="resume", skips={"paused": 1})

    def scheduled_elsewhere(self) -> None:
        """Two more, by a Supervisor whose rules repeat a stretch: of late moments one is fired, the latest or the first."""
        self.note("zones", "v3", zone=ZONE, change=28, before=0, after=-15)
        times = {"cron": "0-59/10 0-59 0-23 * * *", "timezone": ZONE, "end": 80.0}
        self.declare("tock", {"times": times})
        self.fire(46.0, 45.0, fires="00:30", skips={"coalesced": 2, "fold": 1}, node="v3")
        self.declare("tack", {"times": times, "coalesce": False})
        self.fire(46.0, 45.0, fires="00:10", skips={"overlap": 2, "fold": 1}, node="v3")

    def declare(self, name: str, options: Mapping[str, Any]) -> None:
        """A schedule is written, five seconds after the beginning of 1970."""
        self._spec = {"app": "shop", "name": name, **options}
        self._progress = None
        self.fire(5.0, 5.0, verb="apply", node="c")

    def fire(
        self, calendar: float, since: float, *, verb: str = "fire", fires: str = "", skips: Mapping[str, int] | None = None,
        pause: tuple[float | None, float | None] = (None, None), node: str = "v2",
    ) -> None:  # fmt: skip
        """An operation on the schedule, whose time is ``calendar``."""
        before, name = self._progress, self._spec["name"]
        counts = Counter({} if before is None else before["skips"]) + Counter(skips or {})
        firings = (0 if before is None else before["firings"]) + bool(fires)
        self._progress = {"since": since, "firings": firings, "skips": dict(counts)}
        tasks = [(int(calendar) + 100, f"{name}@1970-01-01T00:{fires}[{ZONE}]")] if fires else []
        self.note(
            "schedule", node, name=name, verb=verb, calendar=calendar, spec=self._spec, before=before, progress=self._progress,
            last_task=None, former_pause=self._pause, pause=pause, tasks=tasks,
        )  # fmt: skip
        self._pause = pause

    def removed(self, task: int) -> None:
        """A task is removed long after its end."""
        self.note(
            "removed", "v2", task, state="undone", unsent=0, unheard=0, ended=self.now - 60.0, now=self.now
        )
        self.note("swept", overdue=[])

    def messages(self, task: int) -> None:
        """Two messages are sent: the task is made of one, the other is a dead letter."""
        self.note("posted", "c", queue="orders", id="m1")
        self.note("made", "i1", task, message="m1")
        self.history.note("handled", "i1", queue="orders", id="m1", state="done")
        self.note("posted", "c", queue="orders", id="m2")
        self.note("handled", "i1", queue="orders", id="m2", state="dead")
        self.history.note("alert", "i1", alert="dead_letter", step="orders/m2", text="no")

    def rest(self, tasks: int) -> None:
        """Faults stop, and the world comes to rest."""
        self.note("healed")
        self.note("rest", tasks=tasks, orphans=[], leases_held_by_dead=[], inbox_rows=0, request_rows=0)


def good() -> History:
    """Return a history that keeps every invariant, and gives each something to look at."""
    story = Story()
    story.told = {1: 0, 2: 0}
    story.lead("v1", 1)
    story.note("began", "s1", 1, early=-0.1)
    story.processed(1)
    story.undone(2)
    story.resubmitted(3)
    story.held(4)
    story.lead("v2", 2)
    story.messages(4)
    story.signalled(4)
    story.slept(6)
    story.guarded(5)
    story.scheduled()
    story.note("cancelled", "s1", 2, idx=1, attempt=1, by="a1")
    story.note("hears", "a1", 2, idx=1, attempt=1)
    story.lane_mates(7, 8)
    story.rest(8)
    story.removed(2)
    return story.history


def final(history: History, **changes: Any) -> Final:
    """Return the rows that a store would hold at the end of a history. ``changes``: fields of ``Final``."""
    tasks: dict[int, TaskState] = {}
    steps: dict[tuple[int, int], tuple[StepState, int]] = {}
    rows: dict[int, list[EventView]] = {}
    for event in history.events:
        if event.kind == "submitted":
            tasks.setdefault(event.task, "pending")
            steps |= {(event.task, idx): ("waiting", 1) for idx in range(len(STEPS))}
        elif event.kind == "released":
            tasks[event.task] = "pending"
            requeue = [Move("task", "processing", "pending", "")]
            rows.setdefault(event.task, []).append(EventView(0, event.task, event.at, 1, requeue))
        elif event.kind == "moved":
            moves = [
                Move("task", m[1], m[2], "claimed")
                if m[0] == "task"
                else Move(STEPS[m[0]], m[1], m[2], "reply")
                for m in event["moves"]
            ]
            rows.setdefault(event.task, []).append(EventView(0, event.task, event.at, 1, moves))
            for move in event["moves"]:
                if move[0] == "task":
                    tasks[event.task] = move[2]
                else:
                    steps[event.task, move[0]] = (move[2], move[4])
    details = [
        _detail(task, state, [steps[task, idx] for idx in range(len(STEPS))]) for task, state in tasks.items()
    ]
    outcome = Final(tasks=details, histories=rows)
    return replace(outcome, **changes)


def _detail(task: int, state: TaskState, steps: Sequence[tuple[StepState, int]]) -> TaskDetail:
    views = [
        StepView(idx, "action", STEPS[idx], "a", STEPS[idx], state=now, attempt=9, round=round_, failures=0, doubt=False, undoable=True, plan=PLANS[idx])
        for idx, (now, round_) in enumerate(steps)
    ]  # fmt: skip
    view = TaskView(
        task, "shop", "order", f"order-{task}", state, "forward", 1, 0, "", 0, None, 1, None, 0.0, None, None
    )
    return TaskDetail(view, views)


# -- falsifying --------------------------------------------------------------------------------------------------------

Pick = Callable[[Event], bool]


def picks(kind: str, task: int = 0, **fields: Any) -> Pick:
    """Return what picks events of a kind, of a task, with these fields."""
    return lambda event: (
        event.kind == kind
        and task in (0, event.task)
        and all(event.fields.get(name) == value for name, value in fields.items())
    )


def moving(task: int, *move: Any) -> Pick:
    """Return what picks the commit that makes this move."""
    return lambda event: (
        event.kind == "moved" and event.task == task and any(tuple(m[:3]) == move for m in event["moves"])
    )


def find(history: History, pick: Pick) -> int:
    """Return the place of the first event picked; there must be one, or the falsification would be none."""
    return next(n for n, event in enumerate(history.events) if pick(event))


def changed(history: History, pick: Pick, **fields: Any) -> History:
    """Return the history with other fields in the first event picked."""
    at = find(history, pick)
    event = history.events[at]
    return _with(history, at, [replace(event, fields={**event.fields, **fields})])


def dropped(history: History, pick: Pick) -> History:
    """Return the history without the first event picked."""
    return _with(history, find(history, pick), [])


def repeated(
    history: History, pick: Pick, *, after: Pick | None = None, later: float = 0.01, **fields: Any
) -> History:
    """Return the history in which the first event picked happens once more, right behind it or behind another."""
    event = history.events[find(history, pick)]
    at = find(history, after or pick)
    behind = history.events[at]
    again = replace(event, at=behind.at + later, fields={**event.fields, **fields})
    return _with(history, at, [behind, again])


def moved_behind(history: History, pick: Pick, after: Pick) -> History:
    """Return the history in which the first event picked happens only behind another."""
    event = history.events[find(history, pick)]
    rest = dropped(history, pick)
    at = find(rest, after)
    behind = rest.events[at]
    return _with(rest, at, [behind, replace(event, at=behind.at + 0.01)])


def _with(history: History, at: int, events: list[Event]) -> History:
    return History(events=[*history.events[:at], *events, *history.events[at + 1 :]])
