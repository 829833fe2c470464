"""The relay: copies the entries of an application's outbox into queues of the store, once for each key.

An application writes its outbox in its own database. The relay sends an entry to its queue under its key,
then deletes it. If the relay dies in between, it or another relay sends the entry again, and the queue, which
remembers the key forever, keeps what it has. So any number of relays may run, and be killed at any moment.

An entry that no queue can take (because its payload is not JSON, for example) is set aside in the outbox,
with the reason and an alert; the others continue. A queue is given what it has room for, in order; a full
queue holds up only its own entries.
"""

import asyncio
import logging
import random
from collections.abc import Sequence
from typing import Final

from makegood.actor.actor import Actor
from makegood.actor.setbacks import Setbacks
from makegood.base.pacing import event_within
from makegood.base.text import without_backticks
from makegood.client.queues import outgoing
from makegood.errors import PayloadError
from makegood.messaging.outbox import Entry, Outbox
from makegood.messaging.queue_feed import QueueFeed, check_body
from makegood.model.messages import Alert
from makegood.payload.codec import UNREADABLE
from makegood.store.protocol import Store
from makegood.store.queue_records import Outgoing
from makegood.store.records import NO_LIMIT

log = logging.getLogger("makegood.relay")

BATCH: Final = 200
"""Entries of one turn."""
FOREVER: Final = 100 * 365 * 86_400.0
"""Seconds for which a key is remembered once its message was acknowledged."""

_MOST_ALERTS: Final = 1000
"""Open alerts that are read, to end those of entries that were fixed."""


class Relay(Actor):
    """Relays entries of ``outbox`` to the queues of ``store``.

    ``most``: messages that may wait in a queue. ``most_bytes``: their bytes. ``poll``: seconds between reads
    of an empty outbox.
    """

    def __init__(
        self,
        store: Store,
        outbox: Outbox,
        *,
        most: int,
        most_bytes: int = NO_LIMIT,
        rng: random.Random,
        poll: float = 0.5,
    ) -> None:
        self._store = store
        self._outbox = outbox
        self._feed = QueueFeed(store.queues, most, most_bytes)
        self._has_more = False
        self._rng = rng
        self._poll = poll
        self._ending = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    async def run(self) -> None:
        """Relay entries until cancelled. Raises ``ConfigError`` when there is no outbox."""
        setbacks = Setbacks("relay", self._store.alerts, self._rng)
        try:
            while not self._ending.is_set():
                rest = await setbacks.turn(self._paced_turn, log, "the relay cannot copy entries now: %s")
                await event_within(self._ending, rest)
            await asyncio.Event().wait()  # it was drained, and is cancelled next
        finally:
            await self._outbox.close()

    async def drain(self, limit: float) -> None:
        """Take nothing more, and wait up to ``limit`` seconds for what is under way."""
        self._ending.set()
        if not await event_within(self._is_idle, limit):
            log.warning("%s does not answer; the entries under way are sent once more", self._outbox.where)

    async def _paced_turn(self) -> float:
        """Relay a batch; returns the seconds to rest."""
        self._is_idle.clear()
        try:
            await self.turn()
        finally:
            self._is_idle.set()
        return 0.0 if self._has_more else self._poll * self._rng.uniform(0.8, 1.2)

    async def turn(self) -> int:
        """Relay a batch; returns how many entries it read."""
        async with self._outbox.take(BATCH, self._feed.full()) as taking:
            self._has_more = taking.more
            if not taking.entries:
                return 0
            refusals: list[tuple[Entry, str]] = []
            pairs: list[tuple[Entry, Outgoing]] = []
            for entry in taking.entries:
                try:
                    pairs.append((entry, _message(entry)))
                except (PayloadError, *UNREADABLE) as why:
                    refusals.append((entry, str(why)))
            deliveries = await self._send(pairs, refusals)
            await self._raise_alerts(refusals)
            await self._end_alerts(deliveries)
            await taking.settle(
                [entry.seq for entry in deliveries], [(entry.seq, why) for entry, why in refusals]
            )
            log.debug("relayed %d entries from %s", len(deliveries), self._outbox.where)
            return len(taking.entries)

    async def _send(
        self, pairs: list[tuple[Entry, Outgoing]], refusals: list[tuple[Entry, str]]
    ) -> list[Entry]:
        """Send messages; returns the entries that their queues have now.

        Entries that a queue refuses are added to ``refusals``.
        """
        outcome = await self._feed.send(pairs)
        refusals += outcome.refusals
        if self._feed.complaint is not None and self._feed.full():
            log.warning("%s", self._feed.complaint)
        for entry, answer in outcome.answers:
            if answer.conflict:
                log.warning(
                    "queue %s has a message %s with another value: that one stays, the entry of %s was not sent",
                    entry.queue, entry.key, self._outbox.where,
                )  # fmt: skip
        return [entry for entry, _ in outcome.answers]

    async def _raise_alerts(self, refusals: Sequence[tuple[Entry, str]]) -> None:
        alerts = [
            Alert(
                "dead_letter", step=_alert_subject(entry),
                text=without_backticks(
                    f"entry {entry.key!r} of {self._outbox.where} cannot be put into queue {entry.queue!r}: {why}; correct the row and set its "
                    "error to null, or delete it"
                ),
            )
            for entry, why in refusals
        ]  # fmt: skip
        if alerts:
            await self._store.alerts.alert(alerts)

    async def _end_alerts(self, deliveries: Sequence[Entry]) -> None:
        """End the alerts of entries that were fixed, now that their queues have them."""
        open_subjects = {alert.step for alert in await self._store.alerts.views(_MOST_ALERTS, ended=False)}
        if names := [name for entry in deliveries if (name := _alert_subject(entry)) in open_subjects]:
            await self._store.alerts.ease(
                [Alert("dead_letter", step=name) for name in names], "fixed, and sent to its queue"
            )


def _alert_subject(entry: Entry) -> str:
    """Return the subject of an entry's alert: that row. It stays the same when a column other than the key is
    corrected.
    """
    return f"outbox/{entry.seq}/{entry.key}"


def _message(entry: Entry) -> Outgoing:
    """Return an entry as a message. Raises ``ConfigError``, ``PayloadError`` for what no queue can take."""
    body = check_body(entry.payload.encode(), f"the payload of {entry.key!r}")
    return outgoing(
        entry.queue, entry.key, body, reply_to=entry.reply_to,
        correlation_id=entry.correlation_id, remember=FOREVER,
    )  # fmt: skip
