"""Takes requests from the store for free slots, and releases those that must not begin any more."""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from makegood.actor.setbacks import Setbacks
from makegood.agent.attempts import Attempts
from makegood.agent.circuit_watch import CircuitWatch
from makegood.agent.intake import Intake
from makegood.agent.slots import Slots
from makegood.base.clock import Clock
from makegood.base.ids import address
from makegood.base.pacing import Pauses, event_within
from makegood.channels.protocol import Channel
from makegood.errors import StoreUnavailableError
from makegood.model.messages import Request
from makegood.store.records import Offer, Taken

log = logging.getLogger("makegood.agent")


class Puller:
    """Takes requests and has them begun.

    ``node``: returns the process's number. ``poll``: seconds between reads of the store when no wake-up
    arrives; None: never.
    """

    def __init__(
        self,
        channel: Channel,
        slots: Mapping[str, Slots],
        intake: Intake,
        attempts: Attempts,
        circuits: CircuitWatch,
        *,
        node: Callable[[], int],
        setbacks: Setbacks,
        clock: Clock,
        rng: random.Random,
        poll: float | None,
    ) -> None:
        self._channel = channel
        self._slots = slots
        self._intake = intake
        self._attempts = attempts
        self._circuits = circuits
        self._node = node
        self._setbacks = setbacks
        self._clock = clock
        self._rng = rng
        self._poll = poll
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Take requests when something may wait, until cancelled."""
        stops = [
            self._channel.subscribe(where, partial(self._intake.look, slots))
            for where, slots in self._slots.items()
        ]
        try:
            await self._pull()
        finally:
            for stop in stops:
                stop()
            if self._timer is not None:
                self._timer.cancel()

    async def _pull(self) -> None:
        intake, poll, pauses = self._intake, self._poll, Pauses(self._rng)
        while True:
            intake.wake.clear()
            more = False
            if intake.open or self._circuits.excuses:
                try:
                    if self._circuits.excuses:
                        await self._circuits.excuse()
                    more = intake.open and await self._take()
                    pauses.reset()
                    if self._setbacks.count:
                        await self._setbacks.over()
                except StoreUnavailableError as away:
                    log.warning("requests cannot be taken now: %s", away)
                    await asyncio.sleep(pauses.draw())
                    continue
                except Exception as defect:  # noqa: BLE001 - a request must not end the others
                    await asyncio.sleep(await self._setbacks.pause_after(defect))
                    continue
            if not more:
                await event_within(intake.wake, None if poll is None else poll * self._rng.uniform(0.8, 1.2))

    async def _take(self) -> bool:
        """Take what the store has for free slots and begin it; returns whether more may wait for them."""
        offers = self._offers()
        self._look_when_due()
        if not offers:
            return False
        # Alone: nothing runs, and no slot is lent to the Scheduler for a commit under way.
        alone = self._intake.beside_scheduler and all(s.free == s.size for s in self._slots.values())
        aside = {offer.agent: self._slots[offer.agent].free for offer in offers}
        for offer in offers:
            self._slots[offer.agent].free = 0
            self._slots[offer.agent].needs_look = False
        node, began = self._node(), self._clock.monotonic()
        requests = Taken()
        self._intake.taking = True
        slots_in_use: dict[str, int] = {}
        try:
            requests = await self._channel.take(node, offers, alone=alone)
            ours = await self._keep_allowed(node, self._ours(requests))
            for request in ours:
                where = address(request.app, request.agent)
                slots_in_use[where] = slots_in_use.get(where, 0) + 1
            now = self._clock.monotonic()
            for offer in offers:
                agent = offer.agent
                self._slots[agent].took(offer, slots_in_use.get(agent, 0), requests.again.get(agent), now)
        finally:
            self._intake.taking = False
            self._intake.end_of_look.set()
            for where, free in aside.items():
                self._slots[where].free += free - slots_in_use.get(where, 0)
        for request in ours:
            self._intake.begins(request)
            self._attempts.begin(request, node, began)
        if not ours and requests.again:
            self._look_when_due()  # a rate lets nothing begin yet
        # Another look would set all free slots aside again, and a claim meanwhile would have none to lend.
        return any(r.isolate or self._slots[address(r.app, r.agent)].is_wanted for r in ours)

    def _offers(self) -> list[Offer]:
        """Return what may be taken now."""
        now = self._clock.monotonic()
        return [offer for slots in self._slots.values() if (offer := slots.offer(now)) is not None]

    def _look_when_due(self) -> None:
        """Wake up when the passing of time alone allows another offer."""
        now = self._clock.monotonic()
        waits = [wait for slots in self._slots.values() if (wait := slots.waits(now))]
        if waits:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(min(waits), self._intake.wake.set)

    def _ours(self, requests: Sequence[Request]) -> Sequence[Request]:
        """Return the requests for agents of this process. Others, written by SQL, are never answered."""
        ours = [request for request in requests if address(request.app, request.agent) in self._slots]
        if len(ours) < len(requests):
            log.error("%d requests were stored under another agent's name", len(requests) - len(ours))
        return ours

    async def _keep_allowed(self, node: int, requests: Sequence[Request]) -> Sequence[Request]:
        """Return the requests that may begin; release those that a drain or an open circuit now forbids."""
        ours: list[Request] = []
        returns: list[tuple[int, int, int]] = []
        for request in requests:
            slots = self._slots[address(request.app, request.agent)]
            if self._intake.mode == "closed" or self._circuits.shut(slots):
                returns.append((request.task, request.idx, request.attempt))
            else:
                ours.append(request)
        if returns:
            await self._channel.give_back(node, returns)
        return ours
