"""The processes of a storm: with webhook receivers and short retention around them, and submitters that
receive from a queue.
"""

import asyncio
import random
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from makegood.agent.attempts import Attempts
from makegood.base import zones
from makegood.client.client import Client
from makegood.errors import StoreUnavailableError
from makegood.model.attempt import Attempt
from makegood.node.node import Node
from makegood.options import Options
from makegood.store import Store
from makegood.testing.simulator.members import FleetMember, Home
from makegood.testing.simulator.stores import VERBS
from proofs.storms.broker_receiver import NOTICES, PATIENCE, URL, BrokerWorld, poster
from proofs.storms.services import SERVICES, StormService
from proofs.storms.surroundings import QUEUE, SWEEP
from proofs.storms.swarm import StormSwarm
from proofs.storms.timetable import ScheduleOperator
from proofs.storms.webhook_receivers import TIMEOUT, Post, hosts, note, patience

LEASE = 4.0
"""Seconds for which a consumer holds a message."""

_PATIENCE = 1000

_ENDS_WITHIN, _LOOK_AGAIN = 0.9, 0.1
"""Seconds within which an attempt ends that was cancelled."""

AROUND = frozenset(
    [
        "send_messages",
        "receive_messages",
        "return_messages",
        "transact",
        "prune",
        "expire_messages",
        "shorten_queues",
        "acknowledge_messages",
        "notices_due",
        "take_notices",
        "settle_notices",
    ]
)
"""Verbs that faults strike only in worlds with surroundings; other worlds draw nothing for them."""
SCHEDULING = frozenset(
    ["apply", "pause", "resume", "delete", "launch", "fire", "fail", "retime", "ahead", "schedules"]
)
"""The same of worlds with schedules; "schedules" are the views of these."""


class StormHome(Home, BrokerWorld, Protocol):
    """The parts of a storm's world that its processes need."""

    swarm: StormSwarm
    services: dict[str, StormService]
    clockwork: ScheduleOperator | None


@dataclass(slots=True, eq=False)
class StormMember(FleetMember):
    """One process of a storm's fleet."""

    world: StormHome

    def start(self) -> None:
        """Start the process again, with the remote services that its actions find."""
        FleetMember.start(self)  # super() does not know a class with slots
        self.process.context.run(SERVICES.set, self.world.services)
        if self.world.clockwork is not None:
            self.process.context.run(zones.FOLDERS.set, self.world.clockwork.folders(self.name))

    def _verbs_to_strike(self) -> frozenset[str]:
        swarm = self.world.swarm
        verbs = VERBS if swarm.around is None else VERBS | AROUND
        if swarm.asking:
            verbs |= {"signal"}  # customers send theirs again, under the same id
        return verbs if swarm.timetable is None else verbs | SCHEDULING

    def _options(self) -> Options:
        engine = FleetMember._options(self)  # noqa: SLF001 - its own; super() does not know a class with slots
        if self.world.swarm.around is None:
            return engine
        engine = replace(engine, webhook_timeout=TIMEOUT)
        if self.world.swarm.around.posted:
            engine = replace(engine, brokers={NOTICES.name: URL}, reply_to_brokers=str(NOTICES))
        keep = self.world.swarm.around.keep
        return engine if keep is None else replace(engine, retention=keep, cleanup_every=SWEEP)

    def _surround(self, node: Node) -> None:
        """Send a Node's notices to the world's receivers as well."""
        FleetMember._surround(self, node)  # noqa: SLF001 - as above
        if node._agents is not None:
            self._listen(node._agents.attempts)
        around = self.world.swarm.around
        if around is not None and node._notifier is not None:
            shares, delivery = node._notifier.shares, node._notifier.delivery
            shares.hosts, delivery.poster, delivery.patience = (
                hosts(),
                Post(self.world),
                patience(around.keep),
            )
            if around.posted:
                delivery.poster = poster(self.world, shares.hosts, delivery.poster)
                delivery.patience = PATIENCE
            delivery.receivers.hosts = shares.hosts
            node.client.submitter.only_to(shares.hosts.check)

    def _listen(self, attempts: Attempts) -> None:
        """Note attempts that hear that nobody needs them, and those that go on although cancelled."""
        world, cancel = self.world, attempts.cancel

        def note(what: str, attempt: Attempt) -> None:
            request = attempt.request
            world.history.note(what, self.name, request.task, idx=request.idx, attempt=request.attempt)

        def look(attempt: Attempt, *, again: bool) -> None:
            if attempt not in attempts.running:
                return
            if again:  # a process that stood still does first what it has to do
                world.loop.call_later(_LOOK_AGAIN, partial(look, attempt, again=False))
            else:
                note("runs on", attempt)

        runs: dict[Attempt, int] = {}  # the number of the first note of each
        take = attempts.note

        def written(attempt: Attempt, value: Any) -> None:
            request = attempt.request
            about = {"idx": request.idx, "doing": request.doing, "attempt": request.attempt}
            run = runs.setdefault(attempt, value)
            world.history.note("wrote", self.name, request.task, **about, n=value, run=run)
            take(attempt, value)

        def watched(requests: Collection[tuple[int, int, int]], node: int) -> None:
            before = {attempt for attempt in attempts.running if attempt.cancelled}
            cancel(requests, node)
            for attempt in [one for one in attempts.running if one.cancelled and one not in before]:
                note("hears", attempt)
                if attempt.was_stopped:
                    world.loop.call_later(_ENDS_WITHIN, partial(look, attempt, again=True))

        attempts.note = written  # type: ignore[method-assign]  # as below
        attempts.cancel = watched  # type: ignore[method-assign]  # of this one process


@dataclass(slots=True, eq=False)
class Consumer(StormMember):
    """A submitter's process: it receives the states of its tasks, records them, and acknowledges.

    It is also killed and stopped between receiving a message and acknowledging it.
    """

    async def _serve(self, store: Store, rng: random.Random) -> None:
        client = Client(store, poll_every=1.0, clock=self.clock, rng=rng)
        await client.open()
        queue = client.queue(QUEUE, lease=LEASE, tries=_PATIENCE)
        while True:
            try:
                for message in await queue.receive(rng.choice((1, 3)), timeout=2.0):
                    note(self.world.recorder.history, self.name, QUEUE, message.body)
                    await self.world.point("between receiving and acknowledging", "kill", "stop")
                    await queue.acknowledge(message)
            except StoreUnavailableError:
                await asyncio.sleep(rng.uniform(0.1, 1.0))


def tells(member: FleetMember) -> bool:
    """Return whether a process handles notices: it has a Notifier, or is a submitter."""
    return not member.roles or "scheduler" in member.roles


def slots_lost(member: FleetMember) -> list[str]:
    """Return the agents, by display name, that have a slot taken without a call; none while some are set
    aside for a moment.
    """
    node = member.node
    if not member.up or node is None or node._agents is None:
        return []
    agents, scheduler = node._agents, node._scheduler
    setting_aside = scheduler is not None and not scheduler.idle()
    if setting_aside or agents.intake.taking:
        return []
    return [
        f"{member.name}, {slots.address}: {slots.free} of {slots.size} free, {slots.running} called"
        for slots in agents.slots.values()
        if slots.free + slots.running != slots.size
    ]
