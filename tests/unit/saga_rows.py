"""The rows of one task, and the Scheduler that decides on them, for the property runs of the rules.

``Rows`` stands for the store: request rows, timers, an inbox, failure counts that only rise by one. It writes a Decision
whole, or not at all when a request that it uses up was judged meanwhile.
"""

import collections
import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from makegood import saga
from makegood.model.decision import Decision
from makegood.model.messages import Request, TaskMessage
from makegood.model.plan import Ref, StepPlan, Template
from makegood.model.shape import HeldTask, KeptSignal
from makegood.model.states import UNBEGUN
from makegood.model.task import Step, TaskRecord
from makegood.saga import rules
from tests.unit.saga_plans import ITEMS, Planner

MOST_DECISIONS = 4000


@dataclass
class Row:
    """A request row. ``silent``: nobody will answer; ``acted``: an agent has run it; ``answered``: its reply is in the inbox.

    ``first_sent``: when a request under its key first came to an agent, if this one has. ``forward``: it was sent while the task
    went forward. ``hears``: its agent knows that nobody needs it.
    """

    request: Request
    taken: bool = False
    acted: bool = False
    silent: bool = False
    answered: bool = False
    first_sent: float = 0.0
    forward: bool = True
    hears: bool = False


@dataclass
class Record:
    """What a run has met, over many runs: moves, ends, acts and rarities, so that a run that proves nothing shows."""

    moves: collections.Counter[tuple[str, str, str, str]] = field(default_factory=collections.Counter)
    ends: collections.Counter[tuple[str, str]] = field(default_factory=collections.Counter)
    acts: collections.Counter[tuple[str, str]] = field(default_factory=collections.Counter)
    seen: collections.Counter[str] = field(default_factory=collections.Counter)


def _signal_names(plans: Sequence[StepPlan]) -> set[str]:
    """Return the names of the signals that steps wait for, also within bodies."""
    names = {plan.action for plan in plans if plan.kind == "wait_for"}
    return names.union(*(_signal_names(plan.body) for plan in plans))


class Rows:
    """One task as the store has it, and who holds it. ``memory``: what the Scheduler has heard and not yet decided."""

    def __init__(self, r: random.Random, record: Record) -> None:
        self.r = r
        self.record = record
        self.shapes = saga.Shapes()
        values = {"b": r.random() < 0.5, "l": json.loads(r.choice(ITEMS))}
        plans = Planner(r).plan()
        self.steps = [Step(plan) for plan in plans]
        self.apart = random.Random(repr(r.getstate()))
        self.resting = random.Random(f"{r.getstate()} resting")
        self.dying = random.Random(f"{r.getstate()} dying")
        self.run_on: dict[int, float] = {}
        """Until when attempts may run that were judged before their deadline, by step."""
        self.is_crowded = self.resting.random() < 0.3
        self.task = TaskRecord(
            1,
            "shop",
            "order",
            on_failure=r.choice(["undo", "undo", "undo", "hold"]),
            within=1.0,
            inputs=(json.dumps(values).encode(),),
            returns=Template(("", ""), (Ref("step", len(plans) - 1),)),
            signals=tuple(sorted((name, "") for name in _signal_names(plans))),
        )
        if self.apart.random() < 0.2:
            self.task = replace(self.task, state="sleeping")
        self.has_begun = False
        self.linger = random.Random(repr(self.apart.getstate())).choice((1.0, math.inf))
        self.rows: dict[int, Row] = {}
        self.timers: set[int] = set()
        self.signals: list[KeptSignal] = []
        self.uses: dict[str, int] = {}
        """The step that used a signal, by the signal's id."""
        self.inbox: list[TaskMessage] = []
        self.memory: list[TaskMessage] = []
        self.counts: collections.Counter[int] = collections.Counter()
        self.held: HeldTask | None = None
        self.seq = self.decisions = 0
        self.now = 1_000_000.0

    # -- the store -----------------------------------------------------------------------------------------------------

    def post(self, message: TaskMessage) -> None:
        """Leave a message in the task's inbox."""
        self.seq += 1
        self.inbox.append(replace(message, seq=self.seq))

    def load(self) -> list[Step]:
        """Return the steps as the store has them: ``doing`` and ``waiting`` come from the request rows."""
        return [
            replace(
                step,
                doing=self.rows[i].request.doing if i in self.rows else None,
                waiting=i in self.timers,
                failures=self.counts[i],
            )
            for i, step in enumerate(self.steps)
        ]

    def claim(self) -> None:
        """A Scheduler takes the task (pending, asleep, or at rest with messages waiting), and decides at once."""
        self.held = memory = saga.hold(self.task, self.load(), tuple(self.signals))
        for _ in range(2):  # as if one of its shape had come before
            self.shapes.share(memory)
        due = self.task.state == "pending" or self.has_begun or not self.inbox or self.apart.random() < 0.3
        first = [TaskMessage("claim")] if self.task.state in UNBEGUN and due else []
        wakes = self.task.state == "sleeping" and self.has_begun and not self.inbox
        if first and self.task.lost >= 3:
            first.append(TaskMessage("poison"))
            self.record.seen["poison"] += 1
        repairs = saga.repair(memory, self.inbox)
        for message in repairs:
            self.record.seen[f"repaired {message.doing} {message.kind}"] += 1
        timers = [i for i in self.timers if self.apart.random() < 0.5] or [*self.timers][:wakes]
        self.decide([*first, *repairs, *self.inbox, *(TaskMessage("retry", i) for i in timers if first)])

    def commit(self, memory: HeldTask, decision: Decision) -> bool:
        """Write a Decision, whole or (when a request it consumes was judged meanwhile) not at all."""
        for idx, attempt in decision.used_requests:
            row = self.rows.get(idx)
            if row is None or row.request.attempt != attempt:
                self.record.seen["lost decision"] += 1
                return False
        self._write(memory, decision)
        assert not set(decision.withdraw) & set(decision.used_requests), "used up and taken back"
        for idx, attempt in decision.withdraw:
            row = self.rows.get(idx)
            if row is not None and not row.taken and row.request.attempt == attempt:
                del self.rows[idx]
                self.memory.append(TaskMessage("withdrawn", idx, row.request.doing, attempt))
        self._recall(decision)
        return True

    def _recall(self, decision: Decision) -> None:
        """Let attempts under way hear that nobody needs them; see that all of those do, and no others."""
        assert not set(decision.cancels) & set(decision.used_requests), "used up and cancelled"
        for idx, attempt in decision.cancels:
            row = self.rows.get(idx)
            if row is not None and row.request.attempt == attempt:
                row.hears = True
        for idx, row in self.rows.items():
            is_lost = decision.task.goal == "undo" or self.steps[idx].loser
            needed = not is_lost or row.request.doing != "do" or not row.forward
            assert row.hears is not needed, (
                "an attempt that is needed hears" if needed else "nobody lets it hear"
            )

    def _write(self, memory: HeldTask, decision: Decision) -> None:
        for idx, _ in decision.used_requests:
            del self.rows[idx]
        for idx in decision.stale_timers:
            assert idx in self.timers, "a timer is dropped that is not there"
            self.timers.discard(idx)
        for idx, step in decision.steps.items():
            self.steps[idx] = step
        self.steps += decision.new_steps
        for idx, (reset, increment) in decision.failure_counts.items():
            self.counts[idx] = (0 if reset else self.counts[idx]) + increment
        for request in decision.requests:
            assert request.idx not in self.rows, "two requests of one step in flight"
            goes_forward = decision.task.goal == "forward" and not self.steps[request.idx].loser
            self.rows[request.idx] = Row(request, taken=self.r.random() < 0.3, forward=goes_forward)
        self.timers |= set(decision.timers)
        self._signals(decision)
        if decision.wakes is not None:
            rests = any(move.reason == "rested" for move in decision.moves)
            assert rests or not self.rows, "a task is let go with a request in flight"
            wakes = self.timers or self.rows or self.inbox or decision.task.signals
            assert wakes, "a task is let go that nothing wakes"
            seconds = {**decision.timers, **dict.fromkeys(self.timers - set(decision.timers), 60.0)}
            first = min(seconds.values(), default=math.inf)
            assert decision.wakes <= first, "a task sleeps longer than its first timer"
        self.inbox = [m for m in self.inbox if m.seq not in decision.seqs]
        failures = sum(n for _, n in decision.failure_counts.values())
        assert decision.task.failure_count == decision.before.failure_count + failures
        self.task = decision.task

    def _signals(self, decision: Decision) -> None:
        """Write what becomes of signals: each ends one wait at most, and of those that are kept the oldest comes first."""
        for name, signal, idx in decision.used_signals:
            assert signal not in self.uses, "a signal is used twice"
            self.uses[signal] = idx
            step = self.steps[idx]
            assert step.plan.action == name, "a signal of another name is used"
            older = [each.id for each in self.signals if rules.may_use(step, each)]
            assert signal not in {each.id for each in self.signals} or signal == older[0], (
                "a later one is used first"
            )
            self.signals = [each for each in self.signals if each.id != signal]
        self.signals += decision.kept_signals
        self.record.seen["kept signal"] += len(decision.kept_signals)
        self.record.seen["used signal"] += len(decision.used_signals)

    # -- a Scheduler ---------------------------------------------------------------------------------------------------

    def decide(self, messages: list[TaskMessage]) -> None:
        """Let the rules decide, commit, check, and dispatch."""
        self.decisions += 1
        assert self.decisions < MOST_DECISIONS, "does not end"
        memory = self.held
        assert memory is not None
        before = (list(memory.steps), list(memory.followers), list(memory.open), memory.left, memory.task)
        due = {i: 60.0 for i in self.timers if not any(m.kind == "retry" and m.idx == i for m in self.memory)}
        decision = saga.decide(memory, messages, saga.At(self.now, self.now, self.linger), due)
        assert before == (memory.steps, memory.followers, memory.open, memory.left, memory.task), (
            "the held was changed"
        )
        # Between deciding and committing the Supervisor may judge what the Decision uses up.
        candidates = [i for i, row in self.rows.items() if row.acted and not row.answered]
        if candidates and self.r.random() < 0.03:
            self.judge(self.r.choice(candidates))
        if len(messages) == 1 and messages[0].since_cancel is not None:
            assert not any(n for _, n in decision.failure_counts.values()), "a cancel counts as a failure"
        old = list(self.steps)
        if not self.commit(memory, decision):
            self.memory.clear()
            self._silence()
            self.held = memory = saga.hold(self.task, self.load(), tuple(self.signals))
            for _ in range(2):  # as if one of its shape had come before
                self.shapes.share(memory)
            self.memory += saga.repair(memory, self.inbox)
            return
        saga.apply(memory, decision)
        self.has_begun |= any(m.of_task and m.after in ("processing", "undoing") for m in decision.moves)
        self.check(old, decision)
        self._note(decision)
        if decision.release:
            self.held = None
            self.memory.clear()
            self._silence()

    def _silence(self) -> None:
        """Replies that were handed over in memory only die with their process: the Supervisor will find the silence."""
        for row in self.rows.values():
            if row.acted and not row.answered:
                row.silent = True

    def _note(self, decision: Decision) -> None:
        for move in decision.moves:
            kind = "task" if move.of_task else self._kind(move.name)
            self.record.moves[kind, move.before, move.after, move.reason] += 1
        for answer in decision.answers:
            self.record.acts[answer.kind, answer.verdict] += 1
            assert answer.outcome
        for alert in decision.alerts:
            self.record.seen[f"alert {alert.kind}"] += 1
            self.record.seen["key too old"] += "that the service keeps it" in alert.text
            assert alert.text
        for step in [*decision.steps.values(), *decision.new_steps]:
            self.record.seen["late value"] += step.late is not None
        self.record.seen["folded"] += len(decision.moves) > 8
        self.record.seen["isolated"] += any(q.isolate for q in decision.requests)
        self.record.seen["undo in doubt"] += any(q.doing == "undo" and q.in_doubt for q in decision.requests)

    def _kind(self, name: str) -> str:
        return "action" if name.startswith("action") else "control"

    def check(self, old: list[Step], decision: Decision) -> None:
        """Look at what was just committed; ``old``: the steps before."""

    def judge(self, idx: int) -> None:
        """The Supervisor judges a silence: it counts, takes the row away, and leaves ``expired``."""
        row = self.rows.pop(idx)
        self.counts[idx] += 1
        request = row.request
        is_early = request.doing == "do" and self.task.goal == "forward" and self.dying.random() < 0.3
        runs_until = self.now + 20.0 if is_early else 0.0
        self.run_on[idx] = max(self.run_on.get(idx, 0.0), runs_until)
        self.post(
            TaskMessage(
                "expired",
                idx,
                request.doing,
                request.attempt,
                failures=self.counts[idx],
                died=self.r.random() < 0.3 or is_early,
                first_sent=row.first_sent,
                runs_until=runs_until,
            )
        )
