"""The relay from a broker: what it delivers is committed into a queue of the store, then acknowledged.

    take ──► send_messages (one commit, ids remembered for 14 days) ──► acknowledge ──► take …
                  │ no room, or the store is away
                  └──► pause: keep what was delivered, take nothing more; commit again later

The relay may be killed at each arrow. The broker delivers again what was not acknowledged, and the queue
knows its id: one message, and so one task. Any number of relays may read one source.

The relay refuses a delivery that no queue can take (it is not JSON, is too large, or its id is known with
another body). It becomes a dead letter of the broker if the broker has dead letters, else of the queue in the
store. Either way the next delivery follows.

The sender or the broker may repeat a message, and if it has no id of its own, nothing in it shows that. It is
sent under a drawn id, with the header ``WITHOUT_ID``; the inbox takes it only if the task's plan has a key.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from makegood.actor.actor import Actor
from makegood.actor.setbacks import Setbacks
from makegood.base.pacing import Pauses, event_within
from makegood.base.text import words
from makegood.brokers import Delivery, Source
from makegood.errors import BrokerUnavailableError, CodecError, ConfigError, MakegoodError
from makegood.messaging.queue_feed import QueueFeed
from makegood.messaging.source_messages import SourceMessages
from makegood.messaging.source_report import SourceReport
from makegood.store.protocol import Store
from makegood.store.queue_records import DeadLetter, Outgoing

log = logging.getLogger("makegood.relay")

BATCH: Final = 200
"""Messages that one commit takes."""

_WAIT: Final = 1.0
"""Seconds that one take waits for a message."""


@dataclass(slots=True)
class _Batch:
    """What was taken, and is neither committed nor refused yet."""

    deliveries: deque[Delivery] = field(default_factory=deque)
    """Those of which no message was made yet."""
    pairs: list[tuple[Delivery, Outgoing]] = field(default_factory=list)
    """Those with a message for the queue."""
    refusals: list[tuple[Delivery, str]] = field(default_factory=list)
    """Those that no queue can take, each with the reason."""

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.deliveries or self.pairs or self.refusals)


class SourceRelay(Actor):
    """Relays what a source delivers into a queue of the store.

    ``open_source`` returns the source for a group of readers; ``messages`` makes messages of deliveries;
    ``report`` is what people see of it. ``most``, ``most_bytes``: what may wait in the queue.
    """

    def __init__(
        self,
        store: Store,
        open_source: Callable[[str], Source],
        messages: SourceMessages,
        report: SourceReport,
        *,
        most: int,
        most_bytes: int,
        rng: random.Random,
    ) -> None:
        self.report = report
        self._store = store
        self._open = open_source
        self._feed = QueueFeed(store.queues, most, most_bytes)
        self._messages = messages
        self._rng = rng
        self._source: Source | None = None
        self._batch = _Batch()
        self._ending = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._pauses = Pauses(rng, first=0.1, longest=5.0)

    async def begin(self) -> None:
        """Open the source, so that a start refuses what is set up wrongly. Raises ``ConfigError``.

        A broker that is away is left to ``run``.
        """
        try:
            await self._open_source()
        except BrokerUnavailableError as fault:
            log.warning("%s is away; the relay continues when it is back: %s", self._messages.address, fault)

    async def run(self) -> None:
        """Relay until cancelled."""
        address = self._messages.address
        setbacks = Setbacks(f"relay {address}", self._store.alerts, self._rng)
        away = "what %s delivered waits, and nothing more is taken: %s"
        try:
            while not self._ending.is_set():
                rest = await setbacks.turn(self.turn, log, away, address)
                if rest and self._batch:
                    await self._pause_source()
                await event_within(self._ending, rest)
            await asyncio.Event().wait()  # it was drained, and is cancelled next
        finally:
            await self._close_source()

    async def drain(self, limit: float) -> None:
        """Take nothing more, and wait up to ``limit`` seconds for what is under way."""
        self._ending.set()
        if not await event_within(self._is_idle, limit):
            address = self._messages.address
            log.warning(
                "%s or the store does not answer; the messages under way are delivered once more", address
            )

    async def turn(self) -> float:
        """Take a batch, commit it, and acknowledge it; return the seconds to rest.

        Whatever the broker does, the relay continues. Raises ``StoreUnavailableError``.
        """
        self._is_idle.clear()
        try:
            rest = await self._relay()
        except (BrokerUnavailableError, ConfigError) as fault:
            rest = await self._back_off(fault)
        finally:
            self._is_idle.set()
        return rest

    async def _relay(self) -> float:
        source = await self._open_source()
        if not self._batch:
            self._batch.deliveries += await source.take(BATCH, _WAIT)
            self.report.count("redelivered", sum(each.count > 1 for each in self._batch.deliveries))
        if not (self._batch.pairs or self._batch.refusals):
            await self._prepare()
        await self._commit(source)
        await self._refuse(source)
        await self.report.look(source)
        full = self._feed.complaint if self._batch.pairs else None
        await self.report.back(f"{full}; what waits at the broker stays there" if full is not None else "")
        return self._pauses.draw() if self._batch.pairs else 0.0

    async def _open_source(self) -> Source:
        """Return the source, opened if it was not. Raises ``BrokerUnavailableError``, ``ConfigError``."""
        if self._source is None:
            self._source = self._open(self.report.group)
        self.report.heed(await self._source.open())
        return self._source

    async def _prepare(self) -> None:
        """Sort deliveries into those with a message to commit, and those of which none can be made. Raises
        ``CodecError``, and keeps what is left until the codec works again.
        """
        batch = self._batch
        while batch.deliveries:
            delivery = batch.deliveries[0]
            try:
                batch.pairs.append((delivery, await self._messages.message(delivery)))
            except CodecError:
                raise  # not the fault of the message
            except MakegoodError as why:
                batch.refusals.append((delivery, str(why)))
            batch.deliveries.popleft()

    async def _commit(self, source: Source) -> None:
        """Send what was taken to the queue, then acknowledge what the queue has."""
        if not self._batch.pairs:
            return
        outcome = await self._feed.send(self._batch.pairs)
        self._batch.refusals += outcome.refusals
        self._batch.refusals += [
            (
                delivery,
                f"queue {self._messages.queue} has a message {answer.id} with another value: that one stays",
            )
            for delivery, answer in outcome.answers
            if answer.conflict
        ]
        deliveries = [delivery for delivery, answer in outcome.answers if not answer.conflict]
        done = {id(delivery) for delivery in (*deliveries, *(refusal[0] for refusal in self._batch.refusals))}
        self._batch.pairs = [pair for pair in self._batch.pairs if id(pair[0]) not in done]
        if deliveries:
            self._pauses.reset()
            self.report.count("taken", sum(answer.created for _, answer in outcome.answers))
            await source.acknowledge(deliveries)

    async def _refuse(self, source: Source) -> None:
        """Give messages to the dead letters of the broker, or of the store, each with the reason."""
        if not self._batch.refusals:
            return
        refusals = self._batch.refusals
        keeper = "the broker's own dead letters"
        if not source.keeps_refusals:
            queue = self._messages.queue
            keeper = f"the dead letters of queue {queue} (`makegood queue list --dead {queue}`)"
        alert = self.report.refusal_alert(refusals, keeper)
        if source.keeps_refusals:
            await self._store.alerts.alert([alert])  # first: whatever is refused has an alert
            for delivery, why in refusals:
                await source.refuse(delivery, why)
            count = len(refusals)
        else:
            letters = [DeadLetter(self._messages.letter(delivery), why) for delivery, why in refusals]
            count = sum(sent.created for sent in await self._store.queues.keep_dead_letters(letters, alert))
            await source.acknowledge([delivery for delivery, _ in refusals])
        self._batch.refusals = []
        self.report.refusals(count, refusals[-1][1], alert.text)

    async def _pause_source(self) -> None:
        """Take nothing more, and keep what was delivered."""
        if self._source is not None:
            try:
                await self._source.pause()
            except (BrokerUnavailableError, ConfigError) as fault:
                await self._back_off(fault)

    async def _back_off(self, fault: MakegoodError) -> float:
        """Close the source after a fault; return the seconds to rest before it is opened again.

        The broker redelivers the messages that were taken.
        """
        await self._close_source()
        self._batch = _Batch()
        await self.report.away(fault)
        return self._pauses.draw()

    async def _close_source(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            try:
                await source.close()
            except Exception as fault:  # noqa: BLE001 - the source is not used any more, whatever it raises
                log.debug("%s: closing it: %s", self._messages.address, words(fault, named=True))
