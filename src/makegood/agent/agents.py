"""Agents: each wraps one remote service and runs its actions, probes and undos.

One ``Agents`` object runs all the agents of a process. It has slots, and takes at most as many requests as it
has free ones: from the store (``Puller``), or handed over in memory by a Scheduler of the same process
(``hand``). An attempt is bounded by its complete-by, counted here on a clock that runs through suspend:
transient errors are tried again within it under the same key; at complete-by an ``async def`` action is
cancelled and *nothing is said* (the Supervisor finds silence); a ``def`` action cannot be stopped, so its
slot stays taken until it returns, and what it then says is refused by the store and kept in the history. A
process that dies says nothing either. An attempt that nobody needs any more hears of it (``CancelListener``).
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from makegood.actor.actor import Actor
from makegood.actor.setbacks import Setbacks
from makegood.actor.slot_pool import Reservation
from makegood.agent.attempts import Attempts
from makegood.agent.cancel_listener import CancelListener
from makegood.agent.circuit_watch import CircuitWatch
from makegood.agent.intake import Intake
from makegood.agent.open_setups import OpenSetups
from makegood.agent.puller import Puller
from makegood.agent.reply_sender import ReplySender
from makegood.agent.sealed_calls import SealedCalls
from makegood.agent.slots import Slots
from makegood.base.clock import Clock
from makegood.base.pacing import event_within
from makegood.channels.protocol import Channel
from makegood.errors import StoreUnavailableError
from makegood.model.attempt import Attempt
from makegood.model.messages import Request, TaskMessage
from makegood.store.alerts import AlertVerbs
from makegood.store.records import Identity
from makegood.store.views import AgentInfo
from makegood.telemetry.hooks import Answering

log = logging.getLogger("makegood.agent")

_LONGEST_LOOK = 1.0
"""Seconds for which a claim waits for a look at the store: longer than nearly all last."""


async def _ask_nobody(_address: str) -> None:
    """There are no other processes to ask."""


class Agents(Actor):
    """Runs the agents of one process.

    ``slots``: the agents by address. ``poll``: seconds between looks at the store behind the wake-ups, None =
    never. ``beside_scheduler``: a Scheduler runs in this process, so isolated requests are taken only when
    nothing else runs. ``observe``: wraps the attempt runner, for telemetry. ``alerts``: where it alerts of
    exceptions that nobody expected. ``setups``: values in place of the app's setups of these names.
    """

    def __init__(
        self,
        channel: Channel,
        slots: Mapping[str, Slots],
        identity: Callable[[], Identity],
        *,
        clock: Clock,
        rng: random.Random,
        poll: float | None = 1.0,
        beside_scheduler: bool = False,
        observe: Callable[[Answering], Answering] | None = None,
        alerts: AlertVerbs | None = None,
        setups: Mapping[str, Any] | None = None,
    ) -> None:
        self.node = 0
        """The process's number."""
        self.slots = slots
        self.deliver: Callable[[int, TaskMessage, int], bool] = lambda _task, _message, _node: False
        """Offered each reply in time first; True: a Scheduler of this process takes it in memory."""
        self.on_change: Callable[[], None] = lambda: None
        """Told when a circuit opens, is released, or closes again."""
        self.inform: Callable[[str], Awaitable[None]] = _ask_nobody
        """Lets the circuit of an address know what other processes know of its service."""
        self.intake = Intake(beside_scheduler=beside_scheduler)
        self._circuits = circuits = CircuitWatch(
            channel, self.intake,
            node=lambda: self.node, on_change=lambda: self.on_change(), inform=lambda where: self.inform(where),  # noqa: PLW0108 - they are set later
            clock=clock, rng=rng,
        )  # fmt: skip
        self._setups = OpenSetups(slots, setups or {}, on_ready=self.intake.look, alerts=alerts, rng=rng)
        self.attempts = Attempts(
            channel, slots, self.intake, circuits,
            setups=self._setups.values, identity=identity, on_answer=self._deliver_answer, on_note=self._pass_on, observe=observe, clock=clock, rng=rng,
            sealed_calls=SealedCalls(alerts, clock, self._note_decoding),
        )  # fmt: skip
        self._replies = ReplySender(channel, Setbacks("agents (answering)", alerts, rng), rng)
        self._puller = Puller(
            channel, slots, self.intake, self.attempts, circuits,
            node=lambda: self.node, setbacks=Setbacks("agents (taking)", alerts, rng), clock=clock, rng=rng, poll=poll,
        )  # fmt: skip
        self._cancels = CancelListener(channel, self.attempts, Setbacks("agents (hearing)", None, rng), rng)
        for each in slots.values():
            each.free = each.size

    # -- what a Scheduler of the same process uses -----------------------------------------------------------

    @cached_property
    def actions(self) -> Mapping[str, Container[str]]:
        """The names of the actions of each agent, by its address."""
        return {where: each.actions for where, each in self.slots.items()}

    def reserve(self, now: float) -> Reservation:
        """Return a reservation of slots, for a commit that begins ``now`` on the store's clock."""
        return Reservation(self, self.attempts.clock.monotonic(), now)

    def lend(self, address: str, action: str) -> bool:
        """Set a slot aside for an action that runs here.

        An agent lends no slot while it has a backlog in the store, while its circuit is not closed, or when
        the store enforces its rate: requests that wait there may have higher priority.
        """
        slots = self.slots.get(address)
        if slots is None or action not in slots.actions or self.intake.mode != "open" or not slots.lendable:
            return False
        slots.free -= 1
        return True

    def lend_all(self) -> dict[str, int]:
        """Set aside all slots that may be lent now; returns how many, by agent address."""
        if not self.intake.open:
            return {}
        counts = {}
        for address, slots in self.slots.items():
            if lendable := slots.lendable:
                counts[address] = lendable
                slots.free -= lendable
        return counts

    async def catch_up(self) -> None:
        """Let agents of which half is free look at the store first, if something may wait there for them.

        A claim that follows at once finds no slot to lend, so that its requests would go to the store as
        well, and keep those of the next claim from being handed over, and so on. A look that did not come in
        time is not waited for again: whoever looks may pause after a defect.
        """
        intake = self.intake
        if (
            intake.open
            and intake.end_of_look.is_set()
            and any(
                ((slots.needs_look and slots.free) or intake.taking)
                and slots.lends
                and 2 * slots.running <= slots.size
                for slots in self.slots.values()
            )
        ):
            intake.end_of_look.clear()
            await event_within(intake.end_of_look, _LONGEST_LOOK)

    def give_back(self, slots: Mapping[str, int]) -> None:
        """Take back slots that were set aside and not used."""
        for address, n in slots.items():
            self.slots[address].free += n
            self.intake.note_free_slot(self.slots[address])

    def tasks(self) -> set[int]:
        """Return the tasks of which an attempt runs here."""
        return {attempt.request.task for attempt in self.attempts.running}

    def note_backlog(self, address: str) -> None:
        """Note that a request for this agent went to the store.

        Later requests queue behind it until the backlog is drained.
        """
        if (slots := self.slots.get(address)) is not None:
            slots.backlog = True

    def hand(self, requests: Sequence[Request], began: float, handed_at: float) -> None:
        """Begin requests in slots that were set aside. ``began``: local clock before their rows were
        written.
        """
        begin, node = self.attempts.begin, self.node
        for request in requests:
            begin(request, node, began, handed_at)

    def resend(self, node: int, task: int, message: TaskMessage) -> None:
        """Send through the store a reply or a note that a Scheduler of this process could not use."""
        if message.note is not None:
            self.attempts.let_follow(task, message)
        self._replies.send(node, task, message)

    def _note_decoding(self, address: str, works: bool) -> None:  # noqa: FBT001 - it is what the note says
        self.slots[address].note_decoding(self.attempts.clock.monotonic(), works=works)

    def _deliver_answer(self, attempt: Attempt, message: TaskMessage, now: float) -> None:
        """Give an answer to this process's Scheduler if it comes in time for it, else to the store."""
        node, task = attempt.node, attempt.request.task
        if message.error is not None:
            message = replace(message, took=round(now - attempt.began, 6))
        by_store = now > attempt.deadline or attempt.by_store or node != self.node
        if by_store or not self.deliver(task, message, node):
            self.resend(node, task, replace(message, took=round(now - attempt.began, 6), node=node))

    def _pass_on(self, attempt: Attempt, message: TaskMessage) -> None:
        """Give a note to this process's Scheduler, else to the store: then the answer goes there too."""
        node, task = attempt.node, attempt.request.task
        if attempt.by_store or node != self.node or not self.deliver(task, message, node):
            self.resend(node, task, replace(message, node=node))

    # -- life ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Take requests and answer them until cancelled; call ``drain`` first for an orderly end."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._setups.run(), name="agents set up")
                group.create_task(self._puller.run(), name="agents pull")
                group.create_task(self._replies.run(), name="agents answer")
                group.create_task(self._cancels.run(), name="agents hear")
        finally:
            self.attempts.stop()

    def rename(self, node: int) -> None:
        """Continue as ``node``, and read the store at once: a process declared dead was given no requests."""
        self.node = node
        self._cancels.listen_as(node)
        for slots in self.slots.values():
            self.intake.look(slots)

    async def drain(self, limit: float) -> None:
        """Take nothing more; wait up to ``limit`` seconds for what runs and until replies are accepted.

        What then still runs is cut off. Its silence does not count for a step if its failure would not.
        """
        self.intake.close()
        end = self.attempts.clock.monotonic() + limit
        while self._busy() and self.attempts.clock.monotonic() < end:  # noqa: ASYNC110 - a drain looks seldom, and once
            await asyncio.sleep(0.02)
        self.attempts.name_what_runs(limit)
        if self._replies.waiting:
            log.warning(
                "%d answers could not be given to the store within the drain's %g s: their steps are in doubt once their "
                "deadline has passed",
                len(self._replies.waiting), limit,
            )  # fmt: skip
        self._circuits.cut_off(self.slots, self.attempts.running, self._replies.waiting)
        if self._circuits.excuses:
            try:
                await self._circuits.excuse()
            except StoreUnavailableError as away:
                log.warning("the silence of calls that are cut off counts for their steps: %s", away)
        await self._setups.close(max(1.0, end - self.attempts.clock.monotonic()))

    def _busy(self) -> bool:
        return bool(self.attempts.running or self._replies.waiting) or self.intake.taking

    def infos(self) -> tuple[AgentInfo, ...]:
        """Return what this process publishes of its agents."""
        now = self.attempts.clock.monotonic()
        return tuple(slots.info(now) for slots in self.slots.values())
