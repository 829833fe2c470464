"""A world for the rules: one task, its rows, agents, a Supervisor, operators and remote services with books of their own.

Everything is driven by one ``random.Random``, so a seed (or hypothesis) replays a run. ``World.run`` runs a task until nobody
has anything more to do and raises ``AssertionError`` as soon as something is not as it must be. The services are *real*:
they do what a request says when it reaches them, late or twice if the run wants it so, and only what they have promised
(``saga_plans`` says which kinds there are) protects them.
"""

import json
import random
from collections import Counter
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from makegood.model.messages import Act, Request, SignalRef, TaskMessage
from makegood.model.states import AT_REST, UNBEGUN
from makegood.model.task import Step, standing
from makegood.saga import waits
from tests.unit.saga_checks import Checked
from tests.unit.saga_plans import ITEMS
from tests.unit.saga_rows import Record, Row
from tests.unit.saga_service import Service

KEEPS = 8.0
"""How long forgetful services remember a key, in moments of a run."""


class World(Checked):
    """One task from its submission until nobody has anything more to do. ``forgets``, ``certain``, ``hasty``, ``careless``: broken
    promises. ``with_poison``: no action that has a probe is ever answered, its agent excuses all its failures, and no deadline ends the task.
    """

    def __init__(
        self,
        r: random.Random,
        record: Record,
        *,
        hostile: bool,
        forgets: bool = False,
        certain: bool = False,
        hasty: bool = False,
        careless: bool = False,
        with_poison: bool = False,
    ) -> None:
        super().__init__(r, record)
        if not hostile and not with_poison:
            self._forgetful()
        self.careless = careless
        self.poisoned = with_poison
        self.in_vain: Counter[int] = Counter()
        self.hostile = hostile
        self.forgets, self.certain, self.hasty = forgets, certain, hasty
        self.duplicates = r.random() < 0.3
        self.trouble = r.choice([0.05, 0.2, 0.5])
        self.arrives = r.choice([0.01, 0.05, 0.2])
        self.zombies: list[Callable[[], object]] = []
        self.operated = self.signal_count = 0
        self.asking = random.Random(f"signals {r.getstate()}")
        """Draws signals, so that the other choices stay what they are."""
        self.sent: dict[str, float] = {}
        """When a request under each key first came to an agent."""
        self.hearing = random.Random(f"hears {r.getstate()}")

    def _forgetful(self) -> None:
        """Let the services of two steps in three, if they know keys, forget them after a while.

        No operator acts in such a world: one who had a request sent again under an old key would do twice what was done.
        """
        for n, step in enumerate(self.steps):
            policy = step.plan.policy
            if n % 3 < 2 and policy is not None and not policy.never:
                waits = {"wait": 1.0, "extended": 2.0, "undo_wait": 1.0, "undo_extended": 2.0}
                plan = replace(step.plan, policy=replace(policy, keeps=KEEPS, **waits))
                self.steps[n] = replace(step, plan=plan)

    # -- agents --------------------------------------------------------------------------------------------------------

    def service(self, idx: int) -> Service:
        """Return the service that a step talks to."""
        plan = self.steps[idx].plan
        if idx not in self.services:
            harmless = plan.policy is not None and not plan.policy.undoable
            service = self.services[idx] = Service(plan.action, harmless=harmless, forgets=self.forgets)
            service.keeps = 0.0 if plan.policy is None else plan.policy.keeps
        return self.services[idx]

    def act(self, idx: int) -> None:
        """An agent runs a request, with tries of its own, and answers; or falls silent; or answers too late."""
        r, row = self.r, self.rows[idx]
        row.taken = row.acted = True
        row.first_sent = self._first_sent(row.request)
        if self.poisoned and row.request.doing == "do" and self._probed(idx):
            self._in_vain(idx, row.request)
            return
        outcome, unclear = self._too_old(row) or self._tries(idx, row.request)
        if row.hears and self.hearing.random() < 0.7:  # whatever came of it, it ends without a result
            self.record.seen["heard"] += 1
            message = self._reply(row.request, "gave_up", unclear=unclear)
            self.memory.append(replace(message, since_cancel=1.0, excused=True, final=False))
            return
        if outcome is None:
            if r.random() < 0.5:
                row.silent = True  # dead, or past complete-by: the Supervisor will judge it
                return
            outcome = "gave_up"
        message = self._reply(row.request, outcome, unclear=unclear)
        if r.random() < self.trouble * 0.4:
            row.silent = True
            self.zombies.append(lambda: self._too_late(message))
        elif self.held is not None and r.random() < 0.7:
            self.memory.append(message)
            if r.random() < 0.1:
                self.memory.append(message)
        else:
            row.answered = True
            self.post(message)

    def _too_old(self, row: Row) -> tuple[str, bool] | None:
        """The agent does not send a request again whose key is too old by now."""
        request = row.request
        repeats = request.keeps and request.doing != "probe" and request.first_sent
        if not repeats or self.careless or self.now < request.first_sent + request.keeps:
            return None
        self.record.seen["not sent"] += 1
        return "later", False

    def _first_sent(self, request: Request) -> float:
        """Return when a request under this key first came to an agent; check that the Scheduler knew, if it ever did."""
        key = self.key(request.idx, request.round, "undo" if request.doing == "undo" else "do")
        assert request.first_sent == self.sent.get(key, 0.0), "the time of the first request is another one"
        if request.doing == "probe":
            return request.first_sent
        return self.sent.setdefault(key, self.now)

    def _probed(self, idx: int) -> bool:
        policy = self.steps[idx].plan.policy
        return policy is not None and policy.probe and not policy.never

    def _in_vain(self, idx: int, request: Request) -> None:
        """Nobody answers the action, and its agent takes that for an outage."""
        self.in_vain[idx] += 1
        assert self.in_vain[idx] < 9, "asked on and on, although its probe is answered"
        self.memory.append(replace(self._reply(request, "gave_up", unclear=True), excused=True, final=False))

    def _too_late(self, message: TaskMessage) -> None:
        row = self.rows.get(message.idx)
        if row is not None and row.request.attempt == message.attempt:
            return  # not judged yet: the store takes no reply after complete-by
        self.record.seen["late reply"] += 1
        if self.task.state not in ("processed", "undone"):
            self.post(replace(message, kind="late") if self.r.random() < 0.5 else message)

    def _reply(self, request: Request, outcome: str, *, unclear: bool) -> TaskMessage:
        value = self._value(request) if outcome in ("done", "happened") and request.doing != "undo" else None
        final = outcome == "gave_up" and self.r.random() < 0.1
        wait = 3.0 if outcome == "later" else 0.0
        return TaskMessage(
            outcome,  # type: ignore[arg-type]
            request.idx,
            request.doing,
            request.attempt,
            value=value,
            unclear=unclear and request.doing == "do" and outcome != "done",
            final=final,
            wait=wait,
            first_sent=0.0 if outcome == "done" else self.rows[request.idx].first_sent,
        )

    def _value(self, request: Request) -> bytes:
        """Return the action's result: always the same under the same key."""
        key = self.key(request.idx, request.round)
        if key not in self.values:
            values = {"b": self.r.random() < 0.5, "l": json.loads(self.r.choice(ITEMS))}
            self.values[key] = json.dumps(values).encode()
        return self.values[key]

    def _tries(self, idx: int, request: Request) -> tuple[str | None, bool]:
        """Call the service: returns what it said (None: nothing) and whether an earlier try is unanswered."""
        r, service, policy = self.r, self.service(idx), self.steps[idx].plan.policy
        assert policy is not None
        key, doing, token = self.key(idx, request.round), request.doing, request.attempt

        def call(how: str = "") -> str:
            if doing != "probe":
                own = key if doing == "do" else self.key(idx, request.round, "undo")
                assert service.arrives(own, self.now), f"{doing} under a key that the service has forgotten"
            if doing == "do":
                return service.do(key, token, how)
            if doing == "undo":
                return service.undo(self.key(idx, request.round, "undo"), key, token)
            return service.probe(key, token, fences=policy.fences)

        # Requests arrive twice only where the declaration promises to bear it.
        late = partial(self._in_time, service, key, call)
        if self.duplicates and service.kind in "Kk" and r.random() < 0.3:
            self.zombies.append(late)
        unclear = self.duplicates and not self.certain
        for _ in range(1 if policy.never else r.randint(1, 2)):
            if r.random() < self.trouble:  # unanswered: it arrives now, later, or never
                x = r.random()
                if x < 0.4:
                    call()
                elif x < 0.7 and service.kind in "Kkf":
                    self.zombies.append(late)
                unclear = not self.certain
                continue
            verdict = self._answer(doing, service, call)
            assert verdict != "superseded", "a live attempt was refused by its token"
            return verdict, unclear
        return None, unclear

    def _in_time(self, service: Service, key: str, call: Callable[[], str]) -> None:
        """Let a request arrive late; none is under way for longer than a service remembers its key."""
        first = [service.first[k] for k in service.first if k.rpartition("/")[0] == key.rpartition("/")[0]]
        if not service.keeps or not first or self.now < min(first) + service.keeps:
            call()

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

    def die(self) -> None:
        """The Scheduler dies; the Supervisor frees the task, or the Scheduler gave it back itself."""
        if self.r.random() < 0.5:
            self.decide([*self.memory, TaskMessage("dead")])
            return
        self.held = None
        self.memory.clear()
        self._silence()
        self.record.moves["task", self.task.state, "pending", "scheduler_dead"] += 1
        failures = self.task.failure_count + 1
        self.task = replace(self.task, state="pending", lost=self.task.lost + 1, failure_count=failures)

    def operate(self) -> None:
        """An operator does something, sensible or not."""
        self.operated += 1
        kind = self.r.choice(["cancel", "undo", "resubmit", "settle", "settle", "settle"])
        if self.task.state == "sleeping":
            kind = self.apart.choice(["wake", "wake", "cancel", "undo", "resubmit"])
        elif self.apart.random() < 0.3 and any(map(waits.sleeps, self.steps)):
            kind = "wake"
        act = Act(f"act{self.operated}", "ada", self.r.choice(["", "a reason"]))
        if kind != "settle":
            self.post(TaskMessage(kind, act=act))  # type: ignore[arg-type]
            return
        if self.held is not None:  # nobody has looked at the service: such an act must not be carried out
            self.decide([TaskMessage("settle", self.r.randrange(len(self.steps)), settled="failed", act=act)])
            return
        if self.task.state in UNBEGUN or self.inbox:
            return
        for step in self.r.sample(self.steps, len(self.steps)):
            if (
                step.plan.kind == "wait_for"
                and step.state == "failed"
                and self.task.goal == "hold"
                and not step.loser
            ):
                self.post(TaskMessage("settle", step.plan.idx, settled="done", value=b'{"b": true}', act=act))
                self.claim()
                return
            if step.plan.kind == "action" and step.state in ("in_doubt", "undo_failed", "failed"):
                message = self._settled(step)
                if message is not None:
                    self.post(replace(message, act=act))
                    self.claim()
                    return

    def _settled(self, step: Step) -> TaskMessage | None:
        """Look at the service, when nothing can arrive there any more, and say (or make) what is so."""
        idx, service = step.plan.idx, self.service(step.plan.idx)
        if not self.hasty:
            self.land()
        key = self.key(idx, step.round)
        if step.state == "undo_failed":
            service.stands.clear()
            return TaskMessage("settle", idx, settled="undone")
        if step.state == "failed":
            if self.task.goal != "hold" or self.task.state != "error" or self.r.random() < 0.5 or step.loser:
                return None
            service.stands[key] = 1
            service.answers[key] = "done"
        elif not service.standing():
            return TaskMessage("settle", idx, settled="failed")
        if step.state == "failed":
            self.inputs[idx] = self._before(idx)
        value = self._value(Request(1, idx, "do", 0, "", "", "", "", step.round, 0.0, b""))
        return TaskMessage("settle", idx, settled="done", value=value)

    def land(self) -> None:
        """Let everything that is still under way arrive."""
        self.now += 1.0
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
        self.now += 1.0
        if self.zombies and r.random() < self.arrives:
            self.zombies.pop(r.randrange(len(self.zombies)))()
        if self.hostile and self.operated < 12 and x < 0.06:
            self.operate()
        elif (
            x < 0.075
            and not self.poisoned
            and self.task.timed
            and self.task.state in ("pending", "processing")
        ):
            self.post(TaskMessage("task_expired"))
        elif self.held is not None and x < (0.3 if self._unheard() else 0.12):
            self.die()
        elif self.is_crowded and self.held and not self.memory and self.rows and self.resting.random() < 0.1:
            self.decide([TaskMessage("rest")])  # its Scheduler makes room
        elif self.held is None and (self.task.state in UNBEGUN or self.inbox):
            if r.random() < 0.5:
                self.claim()
            else:
                self._somebody()
        elif self.held is not None and (self.memory or self.inbox) and r.random() < 0.7:
            self._fold()
        elif not self._somebody():
            return self._nothing_to_do()
        return True

    def _unheard(self) -> bool:
        """Whether a request was taken back and the Scheduler has not decided on it yet: a good moment to die."""
        return any(message.kind == "withdrawn" for message in self.memory)

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
        if any(step.plan.kind == "wait_for" for step in self.steps) and self._misses_a_signal():
            todo.append(self._signal)
        if self.held is not None:
            due = [i for i in self.timers if not any(m.kind == "retry" and m.idx == i for m in self.memory)]
            todo += [lambda idx=idx: self._fire(idx) for idx in due]  # type: ignore[misc]
        if todo:
            self.r.choice(todo)()
        return bool(todo)

    def _misses_a_signal(self) -> bool:
        """Whether a step waits, or somebody sends too early or too many."""
        waits = any(step.plan.kind == "wait_for" and step.state == "ready" for step in self.steps)
        return (waits and not self.inbox) or self.asking.random() < 0.02

    def _signal(self) -> None:
        """Somebody outside sends a signal."""
        self.signal_count += 1
        steps = [step for step in self.steps if step.plan.kind == "wait_for"]
        ready = [step for step in steps if step.state == "ready"]
        step = self.asking.choice(ready or steps)
        name = step.name if self.asking.random() < 0.2 else ""
        ref = SignalRef(step.plan.action, str(self.signal_count), name)
        self.post(TaskMessage("signal", value=b'{"b": true}', signal=ref))

    def _fire(self, idx: int) -> None:
        """A timer fires, sooner or later. That of a wait for a signal is decided with the whole inbox."""
        if self.steps[idx].plan.kind == "wait_for":
            place = self.asking.randint(0, len(self.inbox))
            self.decide([*self.inbox[:place], TaskMessage("retry", idx), *self.inbox[place:]])
            return
        if self.steps[idx].state == "ready" or self.decisions % 2:
            self.now += 7.0
        self.memory.append(TaskMessage("retry", idx))

    def _nothing_to_do(self) -> bool:
        if self.held is not None and not self.memory and not self.inbox:
            rows = {s.name: (s.state, s.doing, s.waiting) for s in self.steps}
            raise AssertionError(f"stuck: {self.task.state} {self.task.goal} {rows}")
        if self.task.state in AT_REST and not self.inbox and self.hostile and self.operated < 12:
            self.operate()
            return True
        return self.held is not None or self.task.state in UNBEGUN or bool(self.inbox)

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
            losers = {s.plan.idx for s in actions if s.loser}
            assert among("done", "skipped") - losers == {s.plan.idx for s in actions} - losers
            assert among("undone", "failed", "kept", "skipped") >= losers, (
                "processed before its losers are settled"
            )
            early = [s.result for s in self.steps if s.plan.kind == "done" and s.state == "done"]
            assert not early or task.result in early, "not the result of its early end"
            assert real - harmless == among("done") - harmless, "processed, but the books differ"
            for i in among("done"):
                step = self.steps[i]
                if step.plan.policy and not step.plan.policy.no_return:
                    assert self.inputs[i] == self._before(i), "done with inputs of an earlier round"
                assert step.result == self.values[self.key(i, step.round)], (
                    "another result than the service gave"
                )
        elif task.state == "undone":
            assert real - harmless <= among("kept"), "an effect stands in an undone task"
        else:
            effects = {s.plan.idx for s in standing(self.steps)}
            assert real - harmless <= effects, "an effect that stands is not listed"
            assert among("done") - harmless <= real, "done, but nothing stands"
