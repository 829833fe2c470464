"""A world for the rules: one task, its rows, agents, a Supervisor, operators and remote services with books of their own.

Everything is driven by one ``random.Random``, so a seed (or hypothesis) replays a run. ``World.run`` runs a task until nobody
has anything more to do and raises ``AssertionError`` as soon as something is not as it must be. The services are *real*:
they do what a request says when it reaches them, late or twice if the run wants it so, and only what they have promised
(``saga_plans`` says which kinds there are) protects them.
"""

import collections
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from makegood import saga
from makegood.decision import Decision
from makegood.messages import Act, Message, Request
from makegood.saga.rules import AT_REST, SETTLED
from makegood.states import check_step, check_task
from makegood.task import Held, Ref, Step, Task, Template, standing
from tests.unit.saga_plans import ITEMS, Planner

MOST_DECISIONS = 4000


class Service:
    """A remote service with books. ``stands``: effects by key; ``answers``: what it remembers; ``high``: highest token."""

    def __init__(self, kind: str, *, harmless: bool, forgets: bool) -> None:
        self.kind = kind
        self.harmless = harmless
        self.forgets = forgets
        self.high = 0
        self.answers: dict[str, str] = {}
        self.stands: collections.Counter[str] = collections.Counter()

    def _superseded(self, token: int) -> bool:
        if self.kind not in "Kf":
            return False
        if token < self.high:
            return True
        self.high = token
        return False

    def do(self, key: str, token: int, how: str = "") -> str:
        """Carry out the action; ``how``: "refuse" it, or leave a "tombstone" for its key."""
        if self._superseded(token):
            return "superseded"
        remembers = self.kind in "Kk"
        if remembers and key in self.answers:
            return self.answers[key]
        if how == "tombstone" and not self.stands[key]:
            self.answers[key] = "refused"
            return "refused"
        if how == "refuse":
            if self.kind == "k" and not self.forgets:
                self.answers[key] = "permanent"
            return "permanent"
        self.stands[key] += 1
        if remembers:
            self.answers[key] = "done"
        most = max(self.stands.values()) if self.harmless else sum(self.stands.values())
        assert most <= 1, f"double effect at {self.kind}"
        return "done"

    def undo(self, key: str, undoes: str, token: int) -> str:
        """Take back what was done under ``undoes``."""
        if self._superseded(token):
            return "superseded"
        if self.kind == "k" and key in self.answers:
            return "done"
        self.stands[undoes] = 0
        if self.kind == "k":
            self.answers[key] = "done"
        return "done"

    def probe(self, key: str, token: int, *, fences: bool) -> str:
        """Say whether it happened."""
        if fences and self._superseded(token):
            return "superseded"
        return "happened" if self.stands[key] else "not_happened"

    def standing(self) -> int:
        """Return how many effects stand."""
        return sum(self.stands.values())


@dataclass
class Row:
    """A request row. ``silent``: nobody will answer; ``acted``: an agent has run it; ``answered``: its reply is in the inbox."""

    request: Request
    taken: bool = False
    acted: bool = False
    silent: bool = False
    answered: bool = False


@dataclass
class Record:
    """What a run has met, over many runs: moves, ends, acts and rarities, so that a run that proves nothing shows."""

    moves: collections.Counter[tuple[str, str, str]] = field(default_factory=collections.Counter)
    ends: collections.Counter[tuple[str, str]] = field(default_factory=collections.Counter)
    acts: collections.Counter[tuple[str, str]] = field(default_factory=collections.Counter)
    seen: collections.Counter[str] = field(default_factory=collections.Counter)


class World:
    """One task from its submission until nobody has anything more to do. ``forgets``, ``certain``, ``hasty``: broken promises."""

    def __init__(
        self,
        r: random.Random,
        record: Record,
        *,
        hostile: bool,
        forgets: bool = False,
        certain: bool = False,
        hasty: bool = False,
    ) -> None:
        self.r, self.record, self.hostile = r, record, hostile
        self.forgets, self.certain, self.hasty = forgets, certain, hasty
        self.duplicates = r.random() < 0.3
        self.trouble = r.choice([0.05, 0.2, 0.5])
        given = {"b": r.random() < 0.5, "l": json.loads(r.choice(ITEMS))}
        plans = Planner(r).plan()
        self.steps = [Step(plan) for plan in plans]
        self.task = Task(
            1,
            "shop",
            "order",
            on_failure=r.choice(["undo", "undo", "undo", "hold"]),
            within=1.0,
            inputs=(json.dumps(given).encode(),),
            returns=Template(("", ""), (Ref("step", len(plans) - 1),)),
        )
        self.rows: dict[int, Row] = {}
        self.timers: set[int] = set()
        self.inbox: list[Message] = []
        self.memory: list[Message] = []
        self.counts: collections.Counter[int] = collections.Counter()
        self.attempts: collections.Counter[int] = collections.Counter()
        self.held: Held | None = None
        self.services: dict[int, Service] = {}
        self.zombies: list[Callable[[], object]] = []
        self.values: dict[str, bytes] = {}
        self.inputs: dict[int, frozenset[tuple[int, int]]] = {}
        self.seq = self.decisions = self.operated = 0
        self.by_hand = False
        self.edges: tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]] = ((), ())

    # -- the store -----------------------------------------------------------------------------------------------------

    def post(self, message: Message) -> None:
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
        """A Scheduler takes the task (pending, or at rest with messages waiting), and decides at once."""
        self.held = held = saga.hold(self.task, self.load())
        first = [Message("claim")] if self.task.state == "pending" else []
        if first and self.task.lost >= 3:
            first.append(Message("poison"))
            self.record.seen["poison"] += 1
        mended = saga.repair(held, self.inbox)
        for message in mended:
            self.record.seen[f"repaired {message.doing} {message.kind}"] += 1
        self.decide([*first, *mended, *self.inbox])

    def commit(self, held: Held, decision: Decision) -> bool:
        """Write a Decision, whole or (when a request it consumes was judged meanwhile) not at all."""
        for idx, attempt in decision.consumed:
            row = self.rows.get(idx)
            if row is None or row.request.attempt != attempt:
                self.record.seen["lost decision"] += 1
                return False
        self._write(held, decision)
        assert not set(decision.withdraw) & set(decision.consumed), "used up and taken back"
        for idx, attempt in decision.withdraw:
            row = self.rows.get(idx)
            if row is not None and not row.taken and row.request.attempt == attempt:
                del self.rows[idx]
                self.memory.append(Message("withdrawn", idx, row.request.doing, attempt))
        return True

    def _write(self, held: Held, decision: Decision) -> None:
        for idx, _ in decision.consumed:
            del self.rows[idx]
        for idx in decision.dropped:
            assert idx in self.timers, "a timer is dropped that is not there"
            self.timers.discard(idx)
        for idx, step in decision.steps.items():
            self.steps[idx] = step
        self.steps += decision.added
        for idx, (reset, increment) in decision.counted.items():
            self.counts[idx] = (0 if reset else self.counts[idx]) + increment
        for request in decision.requests:
            assert request.idx not in self.rows, "two requests of one step in flight"
            assert request.attempt > self.attempts[request.idx], "an attempt that is not above all before"
            self.attempts[request.idx] = request.attempt
            self.rows[request.idx] = Row(request, taken=self.r.random() < 0.3)
        self.timers |= set(decision.timers)
        self.inbox = [m for m in self.inbox if m.seq not in decision.seqs]
        failures = sum(n for _, n in decision.counted.values())
        assert decision.task.failure_count == decision.before.failure_count + failures
        self.task = decision.task

    # -- a Scheduler ---------------------------------------------------------------------------------------------------

    def decide(self, messages: list[Message]) -> None:
        """Let the rules decide, commit, check, and dispatch."""
        self.decisions += 1
        assert self.decisions < MOST_DECISIONS, "does not end"
        held = self.held
        assert held is not None
        before = (list(held.steps), list(held.followers), list(held.open), held.left, held.task)
        decision = saga.decide(held, messages)
        assert before == (held.steps, held.followers, held.open, held.left, held.task), "the held was changed"
        judged = [i for i, row in self.rows.items() if row.silent and not row.answered]
        if judged and self.r.random() < 0.1:
            self.judge(self.r.choice(judged))
        old = list(self.steps)
        if not self.commit(held, decision):
            self.memory.clear()
            self._silence()
            self.held = held = saga.hold(self.task, self.load())
            self.memory += saga.repair(held, self.inbox)
            return
        saga.apply(held, decision)
        for answer in decision.answers:
            if answer.verdict == "applied" and answer.kind != "settle":
                self.by_hand = answer.kind != "resubmit"
        self._check(old, decision)
        self._same_as_loaded(held)
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
        for what, before, after, _ in decision.moves:
            self.record.moves["task" if what == "task" else self._kind(what), before, after] += 1
        for answer in decision.answers:
            self.record.acts[answer.kind, answer.verdict] += 1
            assert answer.reason
        for alert in decision.alerts:
            self.record.seen[f"alert {alert.kind}"] += 1
            assert alert.text
        for step in [*decision.steps.values(), *decision.added]:
            self.record.seen["late value"] += step.late is not None
        self.record.seen["folded"] += len(decision.moves) > 8
        self.record.seen["isolated"] += any(q.isolate for q in decision.requests)
        self.record.seen["undo in doubt"] += any(q.doing == "undo" and q.in_doubt for q in decision.requests)

    def _kind(self, name: str) -> str:
        return "action" if name.startswith("action") else "control"

    # -- what must hold after every commit -----------------------------------------------------------------------------

    def _same_as_loaded(self, held: Held) -> None:
        """What is held in memory is what another Scheduler would load, but for verdicts not yet read."""
        again = saga.hold(self.task, self.steps)
        assert again.open == held.open
        assert again.left == held.left
        assert [sorted(f) for f in again.followers] == [sorted(f) for f in held.followers]
        unread = {m.idx for m in [*self.inbox, *self.memory]}
        for i, step in enumerate(self.load()):
            assert i in unread or step == held.steps[i], ("memory and rows differ", step, held.steps[i])

    def _check(self, old: list[Step], decision: Decision) -> None:
        task = self.task
        for what, before, after, why in decision.moves:
            assert why
            if what == "task":
                check_task(before, after)  # type: ignore[arg-type]
            else:
                check_step(before, after, control=self._kind(what) == "control")  # type: ignore[arg-type]
        for was, now in zip(old, self.steps, strict=False):
            self._check_round(was, now)
            known = now.state == "undone" and was.state != "undone"
            if known and not self.by_hand:
                for i in self._after(now.plan.idx):
                    after = self.steps[i]
                    no_return = after.plan.policy is not None and after.plan.policy.no_return
                    assert not (no_return and after.state == "kept"), "undone before a point of no return"
        for request in decision.requests:
            if request.doing == "undo":
                self._check_order(request.idx)
            if request.doing == "do":
                self.inputs[request.idx] = self._before(request.idx)
        if task.state in AT_REST:
            assert not self.rows, "in flight at rest"
            assert not self.timers, "a timer at rest"
            assert all(s.doing is None and not s.waiting for s in self.load()), "in flight at rest"
            assert decision.release
            entered = any(what == "task" and after == "error" for what, _, after, _ in decision.moves)
            assert bool(decision.alerts) or not entered, "error without an alert"
        if task.state == "undone":
            left = [s.name for s in self.steps if s.state not in SETTLED]
            assert not left, ("left in an undone task", left)

    def _check_round(self, was: Step, now: Step) -> None:
        assert now.attempt >= was.attempt, "the attempt fell"
        assert now.round >= was.round
        policy = now.plan.policy
        if now.round > was.round and policy is not None and policy.undoable and not policy.no_return:
            assert was.state in ("failed", "undone", "skipped", "waiting"), ("a new round over", was.state)

    def _reach(self, idx: int, edges: Sequence[Sequence[int]]) -> set[int]:
        found: set[int] = set()
        todo = [idx]
        while todo:
            for other in edges[todo.pop()]:
                if other not in found:
                    found.add(other)
                    todo.append(other)
        return found

    def _after(self, idx: int) -> set[int]:
        """Return all steps that come after this one."""
        return self._reach(idx, self._edges()[0])

    def _edges(self) -> tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]]:
        """Return followers and predecessors of every step."""
        if len(self.edges[0]) != len(self.steps):
            followers = saga.hold(self.task, self.steps).followers
            before: list[list[int]] = [[] for _ in followers]
            for i, after in enumerate(followers):
                for f in after:
                    before[f].append(i)
            self.edges = (followers, before)
        return self.edges

    def _check_order(self, idx: int) -> None:
        """When a step is undone, everything after it is settled, in the record and in the services' books."""
        for i in self._after(idx):
            after = self.steps[i]
            assert after.state in SETTLED, (
                "undo out of order",
                self.steps[idx].name,
                after.name,
                after.state,
            )
            kept = after.state == "kept" or self.steps[i].plan.kind != "action"
            policy = after.plan.policy
            if (
                not kept
                and i in self.services
                and policy is not None
                and policy.undoable
                and not policy.no_return
            ):
                assert not self.services[i].standing(), ("what came after still stands", after.name)

    def _before(self, idx: int) -> frozenset[tuple[int, int]]:
        """Return the actions that come before a step, with the round in which they stand."""
        found = self._reach(idx, self._edges()[1])
        return frozenset(
            (i, self.steps[i].round)
            for i in found
            if self.steps[i].state != "skipped"
            and self.steps[i].plan.policy is not None
            and not self.steps[i].plan.policy.no_return
        )

    # -- agents --------------------------------------------------------------------------------------------------------

    def service(self, idx: int) -> Service:
        """Return the service that a step talks to."""
        plan = self.steps[idx].plan
        if idx not in self.services:
            harmless = plan.policy is not None and not plan.policy.undoable
            self.services[idx] = Service(plan.action, harmless=harmless, forgets=self.forgets)
        return self.services[idx]

    def act(self, idx: int) -> None:
        """An agent runs a request, with tries of its own, and answers; or falls silent; or answers too late."""
        r, row = self.r, self.rows[idx]
        row.taken = row.acted = True
        outcome, unclear = self._tries(idx, row.request)
        if outcome is None:
            if r.random() < 0.5:
                row.silent = True  # dead, or past complete-by: the Supervisor will judge it
                return
            outcome = "gave_up"
        message = self._reply(row.request, outcome, unclear=unclear)
        if r.random() < self.trouble * 0.3:
            row.silent = True
            self.zombies.append(lambda: self._too_late(message))
        elif self.held is not None and r.random() < 0.7:
            self.memory.append(message)
            if r.random() < 0.1:
                self.memory.append(message)
        else:
            row.answered = True
            self.post(message)

    def _too_late(self, message: Message) -> None:
        row = self.rows.get(message.idx)
        if row is not None and row.request.attempt == message.attempt:
            return  # not judged yet: the store takes no reply after complete-by
        self.record.seen["late reply"] += 1
        if self.task.state not in ("processed", "undone"):
            self.post(replace(message, kind="late") if self.r.random() < 0.5 else message)

    def _reply(self, request: Request, outcome: str, *, unclear: bool) -> Message:
        value = self._value(request) if outcome in ("done", "happened") and request.doing != "undo" else None
        final = outcome == "gave_up" and self.r.random() < 0.1
        wait = 3.0 if outcome == "later" else 0.0
        return Message(
            outcome,  # type: ignore[arg-type]
            request.idx,
            request.doing,
            request.attempt,
            value=value,
            unclear=unclear and request.doing == "do" and outcome != "done",
            final=final,
            wait=wait,
        )

    def _value(self, request: Request) -> bytes:
        """Return the action's result: always the same under the same key."""
        key = self._key(request.idx, request.round)
        if key not in self.values:
            given = {"b": self.r.random() < 0.5, "l": json.loads(self.r.choice(ITEMS))}
            self.values[key] = json.dumps(given).encode()
        return self.values[key]

    def _key(self, idx: int, round_: int, direction: str = "do") -> str:
        return f"{idx}/{round_}/{direction}"

    def _tries(self, idx: int, request: Request) -> tuple[str | None, bool]:
        """Call the service: returns what it said (None: nothing) and whether an earlier try is unanswered."""
        r, service, policy = self.r, self.service(idx), self.steps[idx].plan.policy
        assert policy is not None
        key, doing, token = self._key(idx, request.round), request.doing, request.attempt

        def call(how: str = "") -> str:
            if doing == "do":
                return service.do(key, token, how)
            if doing == "undo":
                return service.undo(self._key(idx, request.round, "undo"), key, token)
            return service.probe(key, token, fences=policy.fences)

        # Requests arrive twice only where the declaration promises to bear it.
        if self.duplicates and service.kind in "Kk" and r.random() < 0.3:
            self.zombies.append(call)
        unclear = self.duplicates and not self.certain
        for _ in range(1 if policy.never else r.randint(1, 2)):
            if r.random() < self.trouble:  # unanswered: it arrives now, later, or never
                x = r.random()
                if x < 0.4:
                    call()
                elif x < 0.7 and service.kind in "Kkf":
                    self.zombies.append(call)
                unclear = not self.certain
                continue
            said = self._answer(doing, service, call)
            assert said != "superseded", "a live attempt was refused by its token"
            return said, unclear
        return None, unclear

    def _answer(self, doing: str, service: Service, call: Callable[..., str]) -> str:
        x, trouble = self.r.random(), self.trouble
        if doing == "do" and x < trouble * 0.5:
            return call("refuse")
        if doing == "do" and x < trouble * 0.6 and service.kind in "Kk":
            return call("tombstone")
        if x < trouble * 0.7:
            return "later"
        if doing == "undo" and x < trouble * 0.9:
            return "permanent"
        return call()

    # -- Supervisor and operators --------------------------------------------------------------------------------------

    def judge(self, idx: int) -> None:
        """The Supervisor judges a silence: it counts, takes the row away, and leaves ``expired``."""
        row = self.rows.pop(idx)
        self.counts[idx] += 1
        request = row.request
        self.post(
            Message(
                "expired",
                idx,
                request.doing,
                request.attempt,
                failures=self.counts[idx],
                died=self.r.random() < 0.3,
            )
        )

    def die(self) -> None:
        """The Scheduler dies; the Supervisor frees the task, or the Scheduler gave it back itself."""
        if self.r.random() < 0.5:
            self.decide([*self.memory, Message("dead")])
            return
        self.held = None
        self.memory.clear()
        self._silence()
        self.record.moves["task", self.task.state, "pending"] += 1
        failures = self.task.failure_count + 1
        self.task = replace(self.task, state="pending", lost=self.task.lost + 1, failure_count=failures)

    def operate(self) -> None:
        """An operator does something, sensible or not."""
        self.operated += 1
        kind = self.r.choice(["cancel", "undo", "resubmit", "settle", "settle", "settle"])
        act = Act(f"act{self.operated}", "ada", self.r.choice(["", "a reason"]))
        if kind != "settle":
            self.post(Message(kind, act=act))  # type: ignore[arg-type]
            return
        if self.held is not None:  # nobody has looked at the service: such an act must not be carried out
            self.decide([Message("settle", self.r.randrange(len(self.steps)), settled="failed", act=act)])
            return
        if self.task.state == "pending" or self.inbox:
            return
        for step in self.r.sample(self.steps, len(self.steps)):
            if step.plan.kind == "action" and step.state in ("in_doubt", "undo_failed", "failed"):
                message = self._settled(step)
                if message is not None:
                    self.post(replace(message, act=act))
                    self.claim()
                    return

    def _settled(self, step: Step) -> Message | None:
        """Look at the service, when nothing can arrive there any more, and say (or make) what is so."""
        idx, service = step.plan.idx, self.service(step.plan.idx)
        if not self.hasty:
            self.land()
        key = self._key(idx, step.round)
        if step.state == "undo_failed":
            service.stands.clear()
            return Message("settle", idx, settled="undone")
        if step.state == "failed":
            if self.task.goal != "hold" or self.task.state != "error" or self.r.random() < 0.5:
                return None
            service.stands[key] = 1
            service.answers[key] = "done"
        elif not service.standing():
            return Message("settle", idx, settled="failed")
        if step.state == "failed":
            self.inputs[idx] = self._before(idx)
        value = self._value(Request(1, idx, "do", 0, "", "", "", "", step.round, 0.0, b""))
        return Message("settle", idx, settled="done", value=value)

    def land(self) -> None:
        """Let everything that is still under way arrive."""
        zombies, self.zombies = self.zombies, []
        for arrive in zombies:
            arrive()

    # -- the run -------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run until nobody has anything more to do, then look at the books."""
        while self._turn():
            pass
        self.land()
        if self.inbox:
            self.claim()
        self._end()

    def _turn(self) -> bool:
        """Let one thing happen; returns False when nothing more will."""
        r, x = self.r, self.r.random()
        if self.zombies and r.random() < 0.1:
            self.zombies.pop(r.randrange(len(self.zombies)))()
        if self.hostile and self.operated < 12 and x < 0.06:
            self.operate()
        elif x < 0.075 and self.task.timed and self.task.state in ("pending", "processing"):
            self.post(Message("task_expired"))
        elif self.held is not None and x < 0.12:
            self.die()
        elif self.held is None and (self.task.state == "pending" or self.inbox):
            if r.random() < 0.5:
                self.claim()
            else:
                self._somebody()
        elif self.held is not None and (self.memory or self.inbox) and r.random() < 0.7:
            self._fold()
        elif not self._somebody():
            return self._nothing_to_do()
        return True

    def _fold(self) -> None:
        """Fold in some of what has arrived, in memory and in the store."""
        r = self.r
        if r.random() < 0.6:
            r.shuffle(self.memory)
            n = r.randint(1, 3)
            messages, self.memory = self.memory[:n], self.memory[n:]
            messages += self.inbox[: r.randint(0, 3)] if r.random() < 0.5 else []
        else:
            messages = list(self.inbox[: r.randint(1, 3)])
        if messages:
            self.decide(messages)

    def _somebody(self) -> bool:
        """Let an agent act, the Supervisor judge, or a timer fire; returns False when there is nothing of the kind."""
        todo: list[Callable[[], None]] = []
        for idx, row in self.rows.items():
            if not row.acted:
                todo.append(lambda idx=idx: self.act(idx))  # type: ignore[misc]
            elif row.silent and not row.answered:
                todo.append(lambda idx=idx: self.judge(idx))  # type: ignore[misc]
        if self.held is not None:
            due = [i for i in self.timers if not any(m.kind == "retry" and m.idx == i for m in self.memory)]
            todo += [lambda idx=idx: self.memory.append(Message("retry", idx)) for idx in due]  # type: ignore[misc]
        if todo:
            self.r.choice(todo)()
        return bool(todo)

    def _nothing_to_do(self) -> bool:
        if self.held is not None and not self.memory and not self.inbox:
            rows = {s.name: (s.state, s.doing, s.waiting) for s in self.steps}
            raise AssertionError(f"stuck: {self.task.state} {self.task.goal} {rows}")
        if self.task.state in AT_REST and not self.inbox and self.hostile and self.operated < 12:
            self.operate()
            return True
        return self.held is not None or self.task.state == "pending" or bool(self.inbox)

    # -- the end -------------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Compare the record with the services' own books."""
        task = self.task
        self.record.ends[task.state, task.goal] += 1
        actions = [s for s in self.steps if s.plan.policy is not None]
        harmless = {s.plan.idx for s in actions if s.plan.policy and not s.plan.policy.undoable}
        real = {i for i, service in self.services.items() if service.standing()}

        def among(*states: str) -> set[int]:
            return {s.plan.idx for s in actions if s.state in states}

        assert task.state in AT_REST
        if task.state == "processed":
            assert among("done", "skipped") == {s.plan.idx for s in actions}
            assert real - harmless == among("done") - harmless, "processed, but the books differ"
            for i in among("done"):
                step = self.steps[i]
                if step.plan.policy and not step.plan.policy.no_return:
                    assert self.inputs[i] == self._before(i), "done with inputs of an earlier round"
                assert step.result == self.values[self._key(i, step.round)], (
                    "another result than the service gave"
                )
        elif task.state == "undone":
            assert real - harmless <= among("kept"), "an effect stands in an undone task"
        else:
            listed = {s.plan.idx for s in standing(self.steps)}
            assert real - harmless <= listed, "an effect that stands is not listed"
            assert among("done") - harmless <= real, "done, but nothing stands"
