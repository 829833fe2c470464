"""The Decision builder: collects the changes of one Decision.

``DecisionBuilder`` is a layer over the records that a Scheduler holds. It reads through to them and writes
only its own copies, so a Decision that is never committed leaves no trace. Every change of state goes through
``move`` or ``move_task``, which check the table of allowed moves. It also maintains the counters (``open``:
predecessors of a step that are neither done nor skipped), so that the next steps are found by counting and
never by scanning.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from makegood.base import sizes
from makegood.errors import IllegalTransitionError, MissingValueError
from makegood.model.decision import NEVER, At, OpenDecision
from makegood.model.messages import Alert, Request, TaskMessage
from makegood.model.note import Note
from makegood.model.notices import notice_of, notice_of_note
from makegood.model.plan import INPUTS, Ref, StepPlan, Template
from makegood.model.shape import HeldTask, KeptSignal
from makegood.model.states import Move, Reason, StepState, TaskState, check_step, check_task
from makegood.model.task import Doing, Step, TaskRecord
from makegood.payload import splice
from makegood.saga import rules

NULL, EMPTY = b"null", b"{}"


class Agenda:
    """The steps to examine before the Decision is made, by index and by reason."""

    __slots__ = ("doubts", "due", "everything", "firsts", "free", "losers", "news", "ready", "waits")

    def __init__(self, losers: int) -> None:
        self.losers = losers
        """How many steps of lost branches have not passed."""
        self.free: list[int] = []
        """Their last predecessor has passed; a ``first``: one of them has."""
        self.firsts: set[int] = set()
        """Each ``first`` of which a branch may be done."""
        self.ready: list[int] = []
        """Actions to be dispatched."""
        self.doubts: list[int] = []
        """In doubt, to be followed up when the task goes forward."""
        self.due: set[int] = set()
        """Their timer has fired."""
        self.waits: list[int] = []
        """Waits that are ready, to be looked at: their timer is due, or the task was just claimed."""
        self.news: list[int] = []
        """Something was said about them."""
        self.everything = False
        """The undo begins, or is claimed, so all steps are to be looked at."""


class DecisionBuilder:
    """One Decision in the making; see the module's text."""

    __slots__ = (
        "_count",
        "_links",
        "_lists",
        "_open",
        "agenda",
        "at",
        "change",
        "held_task",
        "left",
        "out",
        "signals",
        "task",
    )

    def __init__(self, held_task: HeldTask, at: At = NEVER) -> None:
        self.held_task = held_task
        self.at = at
        self.task: TaskRecord = held_task.task
        self.out = OpenDecision(held_task.task, held_task.task)
        self.agenda = Agenda(held_task.losers)
        self.change: bytes | None = None
        """What the act under way has replaced, for its answer."""
        self.left = held_task.left
        """How many steps have not passed."""
        self.signals: Sequence[KeptSignal] = held_task.signals
        """Signals that no step has used yet, in the order in which they came."""
        self._count = len(held_task.steps)
        self._open: dict[int, int] = {}
        self._lists: dict[int, tuple[bytes, Sequence[msgspec.Raw]]] = {}
        self._links: dict[int, list[int]] = {}

    # -- reading ---------------------------------------------------------------------------------------------

    def size(self) -> int:
        """Return the number of steps."""
        return self._count + len(self.out.new_steps)

    def find(self, idx: int) -> Step | None:
        """Return a step as it is now, None when there is none of this index."""
        step = self.out.steps.get(idx)
        if step is not None:
            return step
        if 0 <= idx < self._count:
            return self.held_task.steps[idx]
        return self.out.new_steps[idx - self._count] if 0 <= idx < self.size() else None

    def step(self, idx: int) -> Step:
        """Return a step as it is now."""
        step = self.out.steps.get(idx)
        if step is not None:
            return step
        return self.held_task.steps[idx] if idx < self._count else self.out.new_steps[idx - self._count]

    def steps(self) -> list[Step]:
        """Return all steps as they are now, in order."""
        changes = self.out.steps
        if not changes:
            return self.held_task.steps + self.out.new_steps
        return [changes.get(i) or s for i, s in enumerate(self.held_task.steps)] + self.out.new_steps

    def any(self, matches: Callable[[Step], bool]) -> bool:
        """Whether any step matches; those that changed are asked first."""
        changes = self.out.steps
        return (
            any(map(matches, changes.values()))
            or any(map(matches, self.out.new_steps))
            or any(matches(s) for i, s in enumerate(self.held_task.steps) if i not in changes)
        )

    def followers(self, idx: int) -> Sequence[int]:
        """Return the steps that wait for this one."""
        followers: Sequence[int] = self.held_task.followers[idx] if idx < self._count else ()
        return (*followers, *self._links[idx]) if self._links and idx in self._links else followers

    def open(self, idx: int) -> int:
        """Return how many predecessors of a step are neither done nor skipped."""
        count = self._open.get(idx)
        return self.held_task.open[idx] if count is None else count

    # -- values ----------------------------------------------------------------------------------------------

    def lookup(self, ref: Ref) -> bytes:
        """Return the whole value that a ref names: a workflow input, or the result of a step."""
        if ref.of == "step":
            step = self.find(ref.index)
            if step is not None:
                return step.result or NULL
        elif ref.of in INPUTS and 0 <= ref.index < len(self.task.inputs):
            return self.task.inputs[ref.index]
        raise MissingValueError(f"there is no {ref.of} {ref.index}")

    def fill(self, template: Template, limit: int = sizes.PAYLOAD_LIMIT) -> bytes:
        """Return a template's JSON, filled; raises ``MissingValueError``. ``limit``: bytes of a payload."""
        return splice.fill(template, self.lookup, lists=self._list, limit=limit)

    def arguments(self, plan: StepPlan) -> bytes:
        """Return the arguments of a step, filled in; raises ``MissingValueError``."""
        if plan.args is None:
            return EMPTY
        return splice.arguments(self.fill(plan.args, plan.payload_limit), plan.payload_limit)

    def _list(self, value: bytes) -> Sequence[msgspec.Raw]:
        """Split an array once per Decision: a thousand items each take their part of the same array."""
        entry = self._lists.get(id(value))
        if entry is None or entry[0] is not value:
            entry = self._lists[id(value)] = (value, splice.read_list(value))
        return entry[1]

    # -- writing ---------------------------------------------------------------------------------------------

    def put(self, step: Step) -> Step:
        """Write a step whose state stays as it is."""
        idx = step.plan.idx
        if idx < self._count:
            self.out.steps[idx] = step
        else:
            self.out.new_steps[idx - self._count] = step
        return step

    def move(
        self, step: Step, state: StepState, reason: Reason, *, detail: str = "", who: str = "", **changes: Any
    ) -> Step:
        """Move a step to another state, with the changes that go with it. ``detail``, ``who``: as in
        ``Move``.
        """
        self._note(step.plan, Move(step.plan.name, step.state, state, reason, "", detail, who))
        return self._change(step, replace(step, state=state, **changes))

    def lose(self, step: Step) -> Step:
        """Write that the step is of a branch that has lost."""
        return self._change(step, replace(step, loser=True))

    def _change(self, before: Step, step: Step) -> Step:
        was, passes = rules.passes(before), rules.passes(step)
        if step.loser or before.loser:
            self.agenda.losers += (step.loser and not passes) - (before.loser and not was)
        self.put(step)
        if passes and not was:
            self._pass(step.plan.idx)
        elif was and not passes:
            self._block(step.plan.idx)
        return step

    def _note(self, plan: StepPlan, move: Move) -> None:
        """Record an allowed move; any other move is a defect."""
        check_step(move, control=plan.kind != "action")
        self.out.moves.append(move)

    def move_task(
        self, state: TaskState, reason: Reason, *, step: str = "", detail: str = "", who: str = ""
    ) -> None:
        """Move the task to another state. ``step``, ``detail``, ``who``: as in ``Move``."""
        before = self.task.state
        move = Move("task", before, state, reason, step, detail, who)
        check_task(move)
        self.out.moves.append(move)
        self.task = replace(self.task, state=state)
        if self.task.reply is not None:
            self._notify()

    def _notify(self) -> None:
        """Tell the submitter of the task's state, as it is at this very move."""
        notice = notice_of(self.task, self.steps)
        if notice is not None:
            self.out.notices.append(notice)
            self.task = replace(self.task, told=notice.state, notified=notice.sequence)

    def notify_of(self, step: Step, note: Note) -> None:
        """Tell the submitter of a note, if notes are wanted."""
        notice = notice_of_note(self.task, step.name, note)
        if notice is not None:
            self.out.notices.append(notice)
            self.task = replace(self.task, notified=notice.sequence)

    def _pass(self, idx: int) -> None:
        self.left -= 1
        counts, before = self._open, self.held_task.open
        for follower in self.followers(idx):
            count = counts.get(follower)
            counts[follower] = count = (before[follower] if count is None else count) - 1
            if count == 0 or self.step(follower).plan.kind == "first":
                self.agenda.free.append(follower)

    def _block(self, idx: int) -> None:
        self.left += 1
        for follower in self.followers(idx):
            self._open[follower] = self.open(follower) + 1

    def add(self, plan: StepPlan, before: Sequence[int]) -> None:
        """Add a step that an ``each`` has made; ``before``: its predecessors, including those of its item."""
        idx = self._count + len(self.out.new_steps)
        if plan.idx != idx:
            raise IllegalTransitionError(
                f"step {plan.idx} would be added as number {idx}; this is a defect of makegood"
            )
        self.out.new_steps.append(Step(plan))
        self.left += 1
        self._open[idx] = 0
        for other in before:
            self.link(other, idx)

    def link(self, before: int, after: int) -> None:
        """Let step ``after`` wait for step ``before`` too."""
        self._links.setdefault(before, []).append(after)
        if self.step(before).state not in rules.PASSED:
            self._open[after] = self.open(after) + 1

    # -- requests and timers ---------------------------------------------------------------------------------

    def begin(self, step: Step, args: bytes) -> None:
        """Dispatch a step: waiting, ready, running and its request row, all at once."""
        state = step.state
        if state == "waiting":
            self._note(step.plan, Move(step.plan.name, state, "ready", "preceded"))
            state = "ready"
        reason: Reason = "retry" if state == "in_doubt" else "dispatched"
        self._note(step.plan, Move(step.plan.name, state, "running", reason))
        self.send(step, "do", args, state="running")

    def send(self, step: Step, doing: Doing, args: bytes, *, state: StepState | None = None) -> None:
        """Make a request, with the next attempt. ``state``: of the step, when its move is noted already."""
        plan, task, policy = step.plan, self.task, step.plan.policy or rules.PLAIN
        attempt = step.attempt + 1
        last_probe = attempt if doing == "probe" else step.asked
        step = self.put(
            replace(step, state=state or step.state, doing=doing, attempt=attempt, asked=last_probe)
        )
        undoing = doing == "undo"
        self.out.requests.append(
            Request(
                task=task.id,
                idx=plan.idx,
                doing=doing,
                attempt=attempt,
                app=task.app,
                agent=plan.agent,
                action=plan.action,
                step=plan.name,
                round=step.round,
                within=policy.undo_within or policy.within if undoing else policy.within,
                args=args,
                priority=task.priority,
                in_doubt=doing != "do" and step.doubt,
                result=step.result if undoing and not step.doubt else None,
                late=None if doing == "do" else step.late,
                isolate=step.deaths >= rules.MOST_DEATHS,
                trace=task.trace,
                key_form=policy.key_form,
                keeps=policy.keeps,
                first_sent=step.first_sent,
                failures=max(0, step.failures - step.deaths),
            )
        )

    def timer(self, step: Step, seconds: float) -> Step:
        """Let the step rest for this many seconds; a ``retry`` message ends the rest."""
        idx = step.plan.idx
        self.out.timers[idx] = seconds
        if idx in self.out.stale_timers:
            self.out.stale_timers.remove(idx)
        return self.put(replace(step, waiting=True))

    def drop_timer(self, step: Step) -> Step:
        """Remove the step's timer: it has fired or is no longer wanted."""
        idx = step.plan.idx
        self.out.timers.pop(idx, None)
        if idx < self._count and self.held_task.steps[idx].waiting:
            self.out.stale_timers.append(idx)
        return self.put(replace(step, waiting=False))

    def cancel(self, step: Step) -> None:
        """Nobody needs the answer of the step's action any more: let the attempt in flight hear of it.

        Probes and undos never hear: what they find out or take back is needed.
        """
        if rules.may_hear(step):
            self.out.cancels.append((step.plan.idx, step.attempt))

    # -- counts, alerts --------------------------------------------------------------------------------------

    def count(self, idx: int) -> None:
        """Count one failure of a step (-1: of the task alone).

        It is written as an increment, so that the Supervisor's counting is not overwritten.
        """
        reset, increment = self.out.failure_counts.get(idx, (False, 0))
        self.out.failure_counts[idx] = (reset, increment + 1)
        self.task = replace(self.task, failure_count=self.task.failure_count + 1)

    def reset(self, idx: int) -> None:
        """Restart the step's failure count at 0 in the store; failures just counted stay in the task's
        count.
        """
        _, failures = self.out.failure_counts.get(idx, (False, 0))
        self.out.failure_counts[idx] = (True, 0)
        if failures:
            _, alone = self.out.failure_counts.get(-1, (False, 0))
            self.out.failure_counts[-1] = (False, alone + failures)

    def alert(self, alert: Alert) -> None:
        """Tell the operators."""
        self.out.alerts.append(replace(alert, task=self.task.id))

    def ease(self, step: str = "*") -> None:
        """End the alerts of a step, or all of the task."""
        if step not in self.out.alert_ends:
            self.out.alert_ends.append(step)

    def use(self, message: TaskMessage) -> None:
        """Note that a reply uses up the request row it is about."""
        self.out.used_requests.append((message.idx, message.attempt))


def arguments(held_task: HeldTask, idx: int) -> bytes:
    """Return the arguments with which a step would be asked now, as JSON. Raises ``MissingValueError`` if a
    value that they need does not exist.
    """
    return DecisionBuilder(held_task).arguments(held_task.steps[idx].plan)
