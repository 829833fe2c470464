"""A store seen through a glass: every call goes on to the real store, is written down, and may be the point of a fault.

The engine has no places for faults and gets none: the process of a test hands its Node this store instead of the real
one. At its point the process kills itself (SIGKILL), stops itself (SIGSTOP: it does not know that time passes), or
waits for a file; what it did, and what the store answered, stands in its trace, one JSON object a line.

A point is ``NAME:ACT`` or ``NAME:ACT:when-armed``; the latter strikes only once the file ``NAME-OF-PROCESS.arm`` exists.
A fault strikes once; ``NAME-OF-PROCESS.struck`` is written just before it does.
"""

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import msgspec

from makegood.election.protocol import Grant
from makegood.errors import FencedOffError
from makegood.model.messages import Request, TaskMessage
from makegood.store import Store
from makegood.store.queue_records import Handed, Outgoing, Receipt, Sent
from makegood.store.records import NO_LIMIT, Batch, Committed, Judged, Offer, Taken, TaskMessages
from makegood.store.schedule_records import FiringPass
from makegood.testing.simulator.doubles import Doubled
from makegood.transactions import Caller

T = TypeVar("T")

Point = Literal[
    "claiming",  # a commit that wants tasks is about to begin
    "claimed",  # a commit has returned with claimed tasks
    "handing",  # such a commit, with a request that is to be handed over in memory
    "dispatched",  # a commit of a task held already, with a request in it, has returned
    "heard",  # a reply, or a signal, was read from the store and is not decided yet
    "deciding",  # a commit that uses up a reply is about to begin
    "retrying",  # a commit that asks for a step again, and uses up nothing, is about to begin
    "resting",  # a commit that lets a task go is about to begin
    "rested",  # it has returned
    "signalling",  # a commit that uses a signal is about to begin
    "taken",  # requests were taken and are not begun
    "answering",  # a reply is about to be sent
    "answered",  # a reply was accepted by the store
    "judging",  # a leading Supervisor is about to judge
    "judged",  # it has judged at least one attempt; the rest of the pass is to come
    "releasing",  # it is about to free the tasks of the dead
    "firing",  # a leading Supervisor is about to fire what is due
    "fired",  # it has fired something
    "received",  # messages were received from a queue and are not begun
    "acknowledging",  # a message's task was written and the message acknowledged; the transaction is not committed
    "accepted",  # it has been committed
    "carried",  # entries of an outbox are in their queues, and not deleted yet
]
Act = Literal["kill", "stop", "wait", "twice", "copy", "replay"]
REPLIES = frozenset(
    {"done", "permanent", "refused", "later", "gave_up", "happened", "not_happened", "signal"}
)


def end_now() -> None:
    """Die of SIGKILL; nothing of this process runs on."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)  # the signal may take a moment to reach this thread: it must not go on meanwhile


def stop_now(folder: Path) -> None:
    """Stop until ``Child.resume``. SIGCONT alone leads no further: the test may let other threads end their transaction."""
    resume = folder / f"{os.getpid()}.resumed"
    resume.unlink(missing_ok=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    while not resume.exists():
        time.sleep(0.005)


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens at which point; see the module's text."""

    point: Point
    act: Act
    armed: bool = False

    @classmethod
    def parse(cls, text: str) -> "Fault":
        """Return the fault that ``NAME:ACT[:when-armed]`` means; raises ``ValueError``."""
        name, act, *rest = text.split(":")
        if name not in get_args(Point) or act not in get_args(Act) or rest not in ([], ["when-armed"]):
            raise ValueError(f"{text!r} is no fault")
        return cls(name, act, bool(rest))  # type: ignore[arg-type]  # both were just looked up


class Seen(Doubled):
    """The store of one process. ``folder`` takes the trace and the signs; ``name`` is the process's."""

    def __init__(self, store: Store, folder: Path, name: str, fault: Fault | None) -> None:
        super().__init__(store)
        self._store: Store = store
        self._folder = folder
        self._name = name
        self._fault = fault
        self._trace = (folder / f"{name}.trace").open("a", buffering=1, encoding="utf-8")
        self._shut = False
        self.schedules: Any = SeenSchedules(store.schedules, self._note, self._at)

    def shut(self) -> None:
        """Close the trace."""
        self._trace.close()

    # -- faults ----------------------------------------------------------------------------------------------------------

    def _note(self, what: str, **facts: object) -> None:
        self._trace.write(json.dumps({"what": what, "at": time.time(), **facts}) + "\n")

    def _due(self, point: Point, *acts: Act) -> bool:
        fault = self._fault
        if fault is None or fault.point != point or fault.act not in acts:
            return False
        return not fault.armed or (self._folder / f"{self._name}.arm").exists()

    def _strike(self, point: Point) -> Fault:
        assert self._fault is not None
        fault, self._fault = self._fault, None
        self._note("struck", point=point, act=fault.act)
        (self._folder / f"{self._name}.struck").write_text(
            f"{point} {fault.act} {os.getpid()}", encoding="utf-8"
        )
        return fault

    async def _at(self, point: Point) -> None:
        if not self._due(point, "kill", "stop", "wait"):
            return
        act = self._strike(point).act
        if act == "kill":
            end_now()
        elif act == "stop":
            stop_now(self._folder)
            self._note("resumed", point=point)
        else:
            await self._pass_file(f"{self._name}.go")

    async def _pass_file(self, name: str) -> None:
        while not (self._folder / name).exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.01)

    # -- the Scheduler's calls -----------------------------------------------------------------------------------------------

    async def commit(self, batch: Batch) -> Committed:
        """Points: claiming, resting, signalling, deciding and retrying before, claimed, handing, rested and dispatched after."""
        if batch.claim is not None and batch.claim.limit:
            await self._at("claiming")
        rests = any(decision.wakes is not None for decision in batch.decisions)
        if rests:
            await self._at("resting")
        if any(decision.used_signals for decision in batch.decisions):
            await self._at("signalling")
        if any(decision.used_requests for decision in batch.decisions):
            await self._at("deciding")
        elif any(request.attempt > 1 for decision in batch.decisions for request in decision.requests):
            await self._at("retrying")
        outcome = await self._store.tasks.commit(batch)
        claims = [memory.task.id for memory, _ in outcome.claims]
        sends = [
            [r.task, r.idx, r.attempt]
            for decision in batch.decisions
            if decision.before.id not in outcome.losses
            for r in decision.requests
        ]
        self._note(
            "commit",
            node=batch.node,
            wanted=batch.claim.limit if batch.claim is not None else 0,
            decided=[decision.before.id for decision in batch.decisions],
            claimed=claims,
            lost=sorted(outcome.losses),
            sent=sends,
        )
        if claims:
            await self._at("claimed")
            if any(decision.handovers for _, decision in outcome.claims):
                await self._at("handing")
        if rests:
            await self._at("rested")
        if sends:
            await self._at("dispatched")
        return outcome

    async def inbox(
        self, node: int, limit: int, room: int = NO_LIMIT, *, at_rest: bool = True
    ) -> TaskMessages:
        """Point: heard, when there is a reply."""
        inbox = await self._store.tasks.inbox(node, limit, room, at_rest=at_rest)
        kinds = [m.kind for messages in inbox.messages.values() for m in messages]
        if kinds:
            self._note("inbox", kinds=kinds)
        if REPLIES.intersection(kinds):
            await self._at("heard")
        return inbox

    # -- the Agents' calls ---------------------------------------------------------------------------------------------------

    async def take(self, node: int, offers: Sequence[Offer], *, alone: bool = False) -> Taken:
        """Point: taken. After a reply of this process was held back or copied requests were run, nothing more is taken."""
        if self._shut:
            return Taken()
        file = self._folder / "copied"
        if self._due("taken", "replay"):
            if not file.exists():
                return Taken()
            self._strike("taken")
            self._shut = True
            requests = Taken(
                msgspec.json.decode(line, type=Request) for line in file.read_bytes().splitlines()
            )
        else:
            requests = await self._store.requests.take(node, offers, alone=alone)
        if requests:
            self._note(
                "take",
                requests=[[r.task, r.idx, r.attempt, r.doing, r.isolate] for r in requests],
                alone=alone,
            )
            if self._due("taken", "copy"):
                self._strike("taken")
                part = file.with_suffix(".part")
                part.write_bytes(b"\n".join(msgspec.json.encode(r) for r in requests))
                part.rename(file)
            await self._at("taken")
        return requests

    async def answer(self, node: int, replies: Sequence[tuple[int, TaskMessage]]) -> list[bool]:
        """Points: answering before (``twice`` sends each reply two more times), answered after."""
        if self._due("answering", "wait"):
            self._shut = True
        await self._at("answering")
        in_time = await self._store.requests.answer(node, replies)
        self._note("answer", node=node, replies=_short(replies), accepted=in_time)
        if self._due("answering", "twice"):
            self._strike("answering")
            again = await self._store.requests.answer(node, [*replies, *replies])
            self._note("answered at once again", replies=_short(replies), accepted=again)
            await self._pass_file(f"{self._name}.go")
            again = await self._store.requests.answer(node, replies)
            self._note("answered much later again", replies=_short(replies), accepted=again)
        if any(in_time):
            await self._at("answered")
        return in_time

    # -- the submission process's calls --------------------------------------------------------------------------------------

    async def receive_messages(
        self, queue: str, taker: str, limit: int, lease: float, threshold: int
    ) -> Handed:
        """Point: received."""
        delivery = await self._store.queues.receive_messages(queue, taker, limit, lease, threshold)
        if delivery.messages:
            self._note("received", messages=[[m.id, m.tries] for m in delivery.messages])
            await self._at("received")
        return delivery

    async def send_messages(
        self, messages: Sequence[Outgoing], most: int, most_bytes: int = NO_LIMIT
    ) -> list[Sent]:
        """Point: carried."""
        answers = await self._store.queues.send_messages(messages, most, most_bytes)
        self._note("sent", messages=[[m.id, m.created] for m in answers])
        await self._at("carried")
        return answers

    async def accept(self, caller: Caller, receipt: Receipt) -> bool:
        """Point: acknowledging, after it, in the open transaction."""
        ours = await self._store.queues.accept(caller, receipt)
        if self._due("acknowledging", "kill"):
            self._strike("acknowledging")
            end_now()
        return ours

    async def transact(
        self, work: Callable[[Caller], Coroutine[Any, Any, T]], *, waits: bool, idle: float = 60.0
    ) -> T:
        """Point: accepted, after it."""
        result = await self._store.transact(work, waits=waits, idle=idle)
        await self._at("accepted")
        return result

    # -- the Supervisor's calls ----------------------------------------------------------------------------------------------

    async def judge(self, term: Grant, grace: float, limit: int) -> Judged:
        """Points: judging before, judged after when there was something."""
        await self._at("judging")
        # In a task of its own: an answer is written down even when the caller's term ended while it was on its way.
        verdict = await asyncio.shield(asyncio.create_task(self._judge(term, grace, limit)))
        if isinstance(verdict, FencedOffError):
            raise verdict
        if verdict.requests:
            self._note("judged", epoch=term.epoch, requests=[list(request) for request in verdict.requests])
            await self._at("judged")
        return verdict

    async def _judge(self, term: Grant, grace: float, limit: int) -> Judged | FencedOffError:
        try:
            return await self._store.supervision.judge(term, grace, limit)
        except FencedOffError as error:
            self._note("fenced off", epoch=term.epoch)
            return error

    async def judge_dead(self, term: Grant, grace: float, limit: int) -> Judged:
        """Write down what was judged before its deadline."""
        verdict = await self._store.supervision.judge_dead(term, grace, limit)
        if verdict.requests:
            self._note("judged dead", epoch=term.epoch, requests=[list(each) for each in verdict.requests])
        return verdict

    async def release_dead(self, term: Grant, limit: int, *, marks: bool = True) -> list[int]:
        """Point: releasing, before."""
        await self._at("releasing")
        tasks = await self._store.supervision.release_dead(term, limit, marks=marks)
        if tasks:
            self._note("freed", epoch=term.epoch, tasks=tasks)
        return tasks

    async def alert_starved(self, term: Grant, after: float, limit: int, outage: float = 300.0) -> list[int]:
        """Write down that a pass came to its end."""
        alerts = await self._store.supervision.alert_starved(term, after, limit, outage)
        self._note("pass", epoch=term.epoch, starved=alerts)
        return alerts


class SeenSchedules(Doubled):
    """The schedules of a process's store. ``note`` and ``at`` are those of ``Seen``."""

    def __init__(
        self,
        schedules: Any,
        note: Callable[..., None],
        at: Callable[[Point], Coroutine[Any, Any, None]],
    ) -> None:
        super().__init__(schedules)
        self._note = note
        self._at = at

    async def fire(self, term: Grant, limit: int, following: Any) -> FiringPass:
        """Points: firing before, fired after when there was something."""
        await self._at("firing")
        try:
            outcome: FiringPass = await self._store.fire(term, limit, following)
        except FencedOffError:
            self._note("fenced off", epoch=term.epoch)
            raise
        if tasks := [task for firing in outcome.firings for task in firing.tasks]:
            self._note("fired", epoch=term.epoch, tasks=tasks)
            await self._at("fired")
        return outcome


def _short(replies: Sequence[tuple[int, TaskMessage]]) -> list[list[object]]:
    return [[task, m.kind, m.idx, m.doing, m.attempt] for task, m in replies]
