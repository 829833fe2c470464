"""The relay from a broker: what it delivers is committed into a queue of the store, then acknowledged.

    take ──► send_messages (one commit, ids remembered for 14 days) ──► acknowledge ──► take …
                  │ no room, or the store is away
                  └──► pause: keep what was delivered, take nothing more; commit again later

The relay may be killed at each arrow. The broker delivers again what was not acknowledged, and the queue
knows its id: one message, and so one task. Any number of relays may read one source.

A delivery that no queue can take (it is no JSON, is too large, or its id is known with another body) is
refused: the broker keeps it as a dead letter of its own where it has such, and the store keeps it otherwise,
as a dead letter of the queue. Either way the next one follows.

A message without an id of its own may be sent twice by its sender's or the broker's repetition, and nothing
in it says so. It is sent under a drawn id, with the header ``WITHOUT_ID``; the inbox takes it only if the
task's plan has a key.
"""

import asyncio
import hashlib
import logging
import random
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from makegood.actor.actor import Actor
from makegood.actor.setbacks import Setbacks
from makegood.base import ids
from makegood.base.clock import Clock
from makegood.base.counts import counted
from makegood.base.pacing import Pauses, event_within
from makegood.base.text import without_backticks, words
from makegood.brokers import BrokerAddress, Delivery, Reader, Requirement, Source
from makegood.client.queues import outgoing
from makegood.declare.inbox import WITHOUT_ID
from makegood.errors import BrokerUnavailableError, ConfigError, MakegoodError, PayloadError
from makegood.messaging.queue_feed import QueueFeed, checked_body
from makegood.model.messages import Alert
from makegood.payload import envelopes
from makegood.payload.envelopes import Codec, message_context
from makegood.store.protocol import Store
from makegood.store.queue_records import DeadLetter, Outgoing
from makegood.store.views import SourceInfo
from makegood.telemetry.hooks import Observer

log = logging.getLogger("makegood.relay")

BATCH: Final = 200
"""Messages that one commit takes."""

REMEMBERED: Final = 14 * 86_400.0
"""Seconds for which a message's id is known once its message was acknowledged by the inbox: brokers may
deliver a message again long after its acknowledgement.
"""

AWAY: Final = 30.0
"""Seconds without the broker after which an alert is raised."""

_WAIT: Final = 1.0
"""Seconds that one take waits for a message."""
_LOOK: Final = 15.0
"""Seconds between two looks at what waits at the broker."""
_MOST_ID: Final = 300
_MOST_HEADERS: Final = 64 * 1024


class SourceRelay(Actor):
    """Relays what ``source``, read by ``open_source(reader)`` at ``address``, delivers to ``queue``.

    ``most``, ``most_bytes``: what may wait in the queue. ``codec``: encodes bodies before they are stored.
    ``identify`` returns a delivery's id, in place of the broker's. ``may_reply`` returns whether a place at
    the broker may be named as ``reply_to``.
    """

    def __init__(
        self,
        store: Store,
        address: BrokerAddress,
        open_source: Callable[[Reader], Source],
        *,
        queue: str,
        name: str,
        most: int,
        most_bytes: int,
        clock: Clock,
        rng: random.Random,
        codec: Codec | None = None,
        identify: Callable[[Delivery], str | None] | None = None,
        may_reply: Callable[[BrokerAddress], bool] = lambda _: False,
        telemetry: Observer | None = None,
    ) -> None:
        self.address = address
        self.queue = queue
        self._store = store
        self._open = open_source
        self._name = name
        self._feed = QueueFeed(store.queues, most, most_bytes)
        self._clock = clock
        self._rng = rng
        self._codec = codec
        self._identify = identify
        self._may_reply = may_reply
        self._telemetry = telemetry
        self._source: Source | None = None
        self._pairs: list[tuple[Delivery, Outgoing]] = []
        """Deliveries that are not committed yet, with their messages."""
        self._refusals: list[tuple[Delivery, str]] = []
        """Deliveries that no queue can take, and that no dead letters have yet."""
        self._ending = asyncio.Event()
        self._rests = asyncio.Event()
        self._rests.set()
        self._pauses = Pauses(rng, first=0.1, longest=5.0)
        self._away_since: float | None = None
        self._warnings: set[str] = set()
        self._alerts: set[str] = set()
        """Kinds of alerts that this relay has raised and not ended."""
        self._next_look = 0.0
        self._info = SourceInfo(str(address), queue)

    def info(self) -> SourceInfo:
        """Return what this process publishes about the source."""
        away = self._away_since
        return replace(self._info, away=None if away is None else self._clock.monotonic() - away)

    async def begin(self) -> None:
        """Open the source, so that a start refuses what is set up wrongly. Raises ``ConfigError``.

        A broker that is away is left to ``run``.
        """
        try:
            await self._opened()
        except BrokerUnavailableError as fault:
            log.warning("%s is away; the relay continues when it is back: %s", self.address, fault)

    async def run(self) -> None:
        """Relay until cancelled."""
        setbacks = Setbacks(f"relay {self.address}", self._store.alerts, self._rng)
        away = "what %s delivered waits, and nothing more is taken: %s"
        try:
            while not self._ending.is_set():
                rest = await setbacks.turn(self.turn, log, away, self.address)
                if rest and (self._pairs or self._refusals):
                    await self._hold()
                await event_within(self._ending, rest)
            await asyncio.Event().wait()  # it was drained, and is cancelled next
        finally:
            await self._let_go()

    async def drain(self, limit: float) -> None:
        """Take nothing more, and wait up to ``limit`` seconds for what is under way."""
        self._ending.set()
        if not await event_within(self._rests, limit):
            log.warning("%s or the store does not answer; what is on its way comes once more", self.address)

    # -- a turn ----------------------------------------------------------------------------------------------

    async def turn(self) -> float:
        """Take a batch, commit it, and acknowledge it; return the seconds to rest.

        Whatever the broker does, the relay continues. Raises ``StoreUnavailableError``.
        """
        self._rests.clear()
        try:
            rest = await self._relay()
            await self._back()
        except (BrokerUnavailableError, ConfigError) as fault:
            rest = await self._broken(fault)
        finally:
            self._rests.set()
        return rest

    async def _relay(self) -> float:
        source = await self._opened()
        if not (self._pairs or self._refusals):
            await self._prepare(await source.take(BATCH, _WAIT))
        await self._commit(source)
        await self._refuse(source)
        await self._look(source)
        if not self._pairs:
            return 0.0
        if self._feed.complaint is not None:
            log.warning("%s: %s; what waits stays there", self.address, self._feed.complaint)
            self._info = replace(self._info, error=str(self._feed.complaint))
        return self._pauses.draw()

    async def _opened(self) -> Source:
        """Return the source, opened. Raises ``BrokerUnavailableError``, ``ConfigError``."""
        if self._source is None:
            group = f"makegood-{self._store.identity.store_id}-{self.queue}"
            self._source = self._open(Reader(group, self._name, BATCH))
        for requirement in await self._source.open():
            self._heed(requirement)
        return self._source

    def _heed(self, requirement: Requirement) -> None:
        """Log what was checked of the broker, each sentence once. Raises ``ConfigError`` for an error."""
        text = f"{self.address}: {requirement.what}; {requirement.remedy}"
        if requirement.severity == "error":
            raise ConfigError(text)
        if requirement.severity == "warning" and text not in self._warnings:
            self._warnings.add(text)
            log.warning("%s", text)

    async def _prepare(self, deliveries: Sequence[Delivery]) -> None:
        """Sort deliveries into those with a message to commit, and those of which none can be made."""
        for delivery in deliveries:
            try:
                self._pairs.append((delivery, await self._message(delivery)))
            except MakegoodError as why:
                self._refusals.append((delivery, str(why)))
        again = sum(delivery.count > 1 for delivery in deliveries)
        self._count("redelivered", again)

    async def _commit(self, source: Source) -> None:
        """Send what was taken to the queue, then acknowledge what the queue has."""
        if not self._pairs:
            return
        fed = await self._feed.send(self._pairs)
        self._refusals += fed.refusals
        self._refusals += [
            (delivery, f"queue {self.queue} has a message {answer.id} with another value: that one stays")
            for delivery, answer in fed.sent
            if answer.conflict
        ]
        deliveries = [delivery for delivery, answer in fed.sent if not answer.conflict]
        settled = {id(delivery) for delivery in (*deliveries, *(refusal[0] for refusal in self._refusals))}
        self._pairs = [pair for pair in self._pairs if id(pair[0]) not in settled]
        new = sum(answer.created for _, answer in fed.sent)
        if deliveries:
            self._pauses.reset()
            self._count("taken", new)
            await source.acknowledge(deliveries)
            log.debug("%s: %d taken, %d of them new", self.address, len(deliveries), new)

    async def _refuse(self, source: Source) -> None:
        """Give messages to the dead letters of the broker, or of the store, each with the reason."""
        if not self._refusals:
            return
        refusals = self._refusals
        if source.keeps_refusals:
            for delivery, why in refusals:
                await source.refuse(delivery, why)
            keeper = "the broker's own dead letters"
        else:
            await self._store.queues.keep_dead_letters(
                [DeadLetter(self._letter(delivery), why) for delivery, why in refusals]
            )
            await source.acknowledge([delivery for delivery, _ in refusals])
            keeper = f"the dead letters of queue {self.queue}"
        self._refusals = []
        delivery, why = refusals[-1]
        self._count("refused", len(refusals))
        self._info = replace(self._info, error=why)
        text = (
            f"{counted(self._info.refused, 'message')} of {self.address} could not be taken since this process began; the latest, "
            f"{delivery.id or 'without an id'}: {why}; they are in {keeper}"
        )
        log.error("%s", text)
        await self._alert("source_refused", text)

    def _letter(self, delivery: Delivery) -> Outgoing:
        """Return a delivery that no queue can take as a message that is kept as it is."""
        name = delivery.id or hashlib.sha256(delivery.body).hexdigest()
        # The name of a dead letter is one of its own: the queue may have a message of that id.
        return Outgoing(
            queue=self.queue, id=f"refused-{hashlib.sha256(name.encode()).hexdigest()[:32]}", body=delivery.body,
            headers=_fitting(delivery.headers), remember=REMEMBERED,
        )  # fmt: skip

    # -- a message -------------------------------------------------------------------------------------------

    async def _message(self, delivery: Delivery) -> Outgoing:
        """Return a delivery as a message of the queue. Raises ``PayloadError`` if none can be made of it."""
        subject = f"message {delivery.id or 'without an id'} of {self.address}"
        if delivery.fault:
            raise PayloadError(f"{subject}: {delivery.fault}")
        body = checked_body(delivery.body, subject)
        name = self._id(delivery, subject)
        message_id = name or ids.random_uuid(self._rng)
        if self._codec is not None:
            body = await envelopes.encode(self._codec, body, message_context(self.queue, message_id))
        headers = _fitting(delivery.headers)
        if name is None:
            headers[WITHOUT_ID] = str(self.address)
        correlation_id = _printable(delivery.correlation_id)
        if delivery.correlation_id and correlation_id is None:
            headers["correlation-id"] = delivery.correlation_id
        return outgoing(
            self.queue, message_id, body, kind=_printable(delivery.kind) or "", correlation_id=correlation_id,
            reply_to=self._reply_to(delivery, headers), headers=headers, remember=REMEMBERED,
        )  # fmt: skip

    def _id(self, delivery: Delivery, subject: str) -> str | None:
        """Return the id under which the queue knows a delivery; None if it has none."""
        try:
            name = delivery.id if self._identify is None else self._identify(delivery)
        except Exception as defect:
            raise PayloadError(f"{subject}: id= of the inbox raised {words(defect, named=True)}") from defect
        if name is None or name == "":
            return None
        if not isinstance(name, str):
            raise PayloadError(f"{subject}: id= of the inbox returned {type(name).__name__}, not a text")
        if len(name) <= _MOST_ID and name.isprintable():
            return name
        return f"sha256:{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()}"

    def _reply_to(self, delivery: Delivery, headers: dict[str, str]) -> str | None:
        """Return where the sender wants to be notified, if it may name that place."""
        if not delivery.reply_to:
            return None
        address = BrokerAddress(self.address.kind, self.address.name, delivery.reply_to)
        if self._may_reply(address):
            return str(address)
        headers["reply-to"] = delivery.reply_to
        return None

    # -- the broker's absence --------------------------------------------------------------------------------

    async def _hold(self) -> None:
        """Take nothing more, and keep what was delivered."""
        if self._source is not None:
            try:
                await self._source.pause()
            except (BrokerUnavailableError, ConfigError) as fault:
                await self._broken(fault)

    async def _broken(self, fault: MakegoodError) -> float:
        """Begin anew with the broker; return how long to rest before. What was taken comes again."""
        if self._away_since is None:
            self._away_since = self._clock.monotonic()
            log.warning("%s is away: %s", self.address, fault)
        await self._let_go()
        self._pairs, self._refusals = [], []
        self._info = replace(self._info, error=str(fault))
        if isinstance(fault, ConfigError) or self._clock.monotonic() - self._away_since >= AWAY:
            await self._alert("source_away", f"{self.address} gives no messages: {fault}")
        return self._pauses.draw()

    async def _back(self) -> None:
        """Record that the broker answers."""
        if self._away_since is not None:
            self._away_since = None
            log.info("%s is back", self.address)
        if "source_away" in self._alerts:
            await self._store.alerts.ease([Alert("source_away", step=str(self.address))], "it answers again")
            self._alerts.discard("source_away")

    def _count(self, outcome: Literal["taken", "refused", "redelivered"], count: int) -> None:
        """Add to one of the counts that this process publishes."""
        if count:
            self._info = replace(self._info, **{outcome: getattr(self._info, outcome) + count})
            if self._telemetry is not None:
                self._telemetry.source_messages(str(self.address), outcome, count)

    async def _alert(self, kind: Any, text: str) -> None:
        if kind not in self._alerts or kind == "source_refused":
            await self._store.alerts.alert(
                [Alert(kind, step=str(self.address), text=without_backticks(text)[:1000])]
            )
            self._alerts.add(kind)

    async def _look(self, source: Source) -> None:
        """Read what waits at the broker, now and then."""
        if (now := self._clock.monotonic()) < self._next_look:
            return
        self._next_look = now + _LOOK
        backlog = await source.backlog()
        self._info = replace(self._info, waiting=backlog.waiting, oldest=backlog.oldest)

    async def _let_go(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            try:
                await source.close()
            except Exception as fault:  # noqa: BLE001 - it is let go of, whatever it says to that
                log.debug("%s: closing it: %s", self.address, words(fault, named=True))


def _printable(text: str | None) -> str | None:
    """Return a text that a message may have as its kind or correlation id, None for any other."""
    return text if text and len(text) <= _MOST_ID and text.isprintable() else None


def _fitting(headers: Any) -> dict[str, str]:
    """Return headers, without the longest ones if they are too many to keep."""
    kept = dict(headers)
    while kept and len(msgspec.json.encode(kept)) > _MOST_HEADERS:
        del kept[max(kept, key=lambda name: len(kept[name]))]
    return kept
