"""NATS JetStream: orders from a stream by a durable pull consumer, notices to subjects that a stream keeps.

A message's id is its ``Nats-Msg-Id``; without one it is the stream, its sequence number there, and the moment
at which the stream stored it, in nanoseconds. The number alone is not enough: a stream that was deleted and
created again counts from 1 again.

The server delivers again what was not acknowledged within the consumer's ``ack_wait``. So whatever this
process holds is reported as in progress three times in that span, and what a killed process held comes to the
others after one such span.

JetStream has no dead letters: the relay keeps what it refuses, and acknowledges it.
"""

import asyncio
import contextlib
import json
import re
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from nats import errors as failed
from nats.aio.msg import Msg

from makegood.brokers.address import BrokerAddress
from makegood.brokers.kinds import Target
from makegood.brokers.nats_connection import INBOX, NatsConnection, servers_of
from makegood.brokers.protocol import (
    MOST_BYTES,
    Backlog,
    Delivery,
    OutgoingEvent,
    Reader,
    RefusedTargetError,
    Requirement,
    next_batch,
    raise_first_error,
)
from makegood.errors import BrokerUnavailableError, ConfigError, DeliveryError

ACK_WAIT: Final = 30.0
"""Seconds after which a consumer that makegood creates delivers again what was not acknowledged."""

_ANSWER: Final = 4.0
_OPEN: Final = 9.0
_CLOSE: Final = 1.0
_AT_ONCE: Final = 0.1
_BURST: Final = 0.05
_SHORT_ACK_WAIT: Final = 10.0
_MOST_PENDING: Final = 1000
_SECOND: Final = 1_000_000_000
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_-]")
_NAME: Final = re.compile(r"[^\s.*>/\\]+")
_SUBJECT: Final = re.compile(r"[^\s.*>]+(\.[^\s.*>]+)*")
_ACK: Final = "$JS.ACK."
_SHORT_ACK: Final = 9  # words of $JS.ACK.stream.consumer.count.number.consumer's.stored.pending
_TRIES: Final = 4
_HEADER_BYTES: Final = 128
_AGAIN_AFTER: Final = 0.25  # a cluster that elects a leader says "no responders", too
_NO_STREAM, _NO_CONSUMER, _TOO_LARGE = 10059, 10014, 10054
_BUSY: Final = 503
_OFF: Final = (10039, 10076)
_NOT_ON: Final = "no JetStream answers: is it switched on (nats-server -js), and for this account?"


class _ApiError(Exception):
    """JetStream refused a request."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("description", error)))
        self.code = int(error.get("err_code", 0))
        self.is_passing = error.get("code") == _BUSY


class _Intake:
    """What has arrived on one connection. The client's callback only notes it down here."""

    def __init__(self) -> None:
        self.buffer: deque[Delivery] = deque()
        self.replies: dict[tuple[str, str], str] = {}
        """By number and moment in the stream, where to acknowledge what is not acknowledged yet."""
        self.credit = 0
        """Messages that may still come for the request under way."""
        self.request = 0
        """The number of that request."""
        self.overdue_at = 0.0
        self.has_more = False
        """Whether the server had more for this consumer when it sent the last message."""
        self.is_alone = False
        """Whether the next message is longer than a batch may be."""
        self.complaint = ""

    def hear(self, message: Msg) -> None:
        """Note a message, or what the server says of the request."""
        if message.reply.startswith(_ACK):
            self._note(message)
        elif message.subject.endswith(f".{self.request}"):
            headers = message.headers or {}
            status, text = headers.get("Status", ""), headers.get("Description", "").strip()
            self.is_alone = "MaxBytes" in text and self.has_more is False
            self.credit = 0
            if status == "503" or "Consumer" in text or text.startswith("Exceeded"):
                self.complaint = text or status

    def _note(self, message: Msg) -> None:
        words = message.reply.split(".")
        at = 4 if len(words) == _SHORT_ACK else 6
        count, number, _, moment, pending = words[at : at + 5]
        self.credit = max(0, self.credit - 1)
        self.has_more = pending != "0"
        key = (number, moment)
        is_known = key in self.replies
        self.replies[key] = message.reply
        if is_known:
            return  # it was delivered again while it is held: only the place to acknowledge it has moved
        headers = {name: text for name, text in (message.headers or {}).items() if isinstance(text, str)}
        self.buffer.append(
            Delivery(
                receipt=key,
                body=message.data,
                id=headers.get("Nats-Msg-Id") or f"{words[at - 2]}-{number}-{moment}",
                headers=headers,
                kind=headers.get("ce_type") or headers.get("ce-type", ""),
                sent_at=int(moment) / _SECOND,
                count=int(count),
            )
        )

    def take(self, limit: int) -> list[Delivery]:
        """Remove and return the next deliveries."""
        return next_batch(self.buffer, limit)


class NatsSource:
    """Takes the messages of a stream, or those of one of its subjects."""

    keeps_refusals = False

    def __init__(self, target: Target, address: BrokerAddress, reader: Reader) -> None:
        self.where = str(address)
        self._target = target
        self._stream = address.place
        self._subject = address.parameters.get("subject", "")
        self._consumer = address.parameters.get("consumer") or _UNFIT.sub("-", reader.group)
        self._batch = reader.batch
        for what, name in (("stream", self._stream), ("consumer", self._consumer)):
            if _NAME.fullmatch(name) is None:
                raise ConfigError(
                    f"{self.where}: {name!r} does not name a {what} of NATS: without spaces, dots, *, >, / and \\"
                )
        servers_of(target)
        self._link: NatsConnection | None = None
        self._intake = _Intake()
        self._inbox = ""
        self._requirements: Sequence[Requirement] = ()
        self._keeping: asyncio.Task[None] | None = None

    async def open(self) -> Sequence[Requirement]:
        """Connect, and create the durable consumer if it does not exist."""
        if self._link is not None and self._link.fault is None:
            return self._requirements
        await self._let_go()
        self._intake = _Intake()
        link = NatsConnection(self._target, self.where)
        try:
            async with asyncio.timeout(_OPEN):
                await link.open()
                stream = await self._asked(link, f"STREAM.INFO.{self._stream}")
                consumer = await self._found(link) or await self._created(link)
                self._requirements = _of_stream(stream) + _of_consumer(consumer, self._batch, self._subject)
                raise_first_error(self._requirements, self.where)
                self._inbox = await link.listen(self._intake.hear)
        except TimeoutError as silent:
            await link.close()
            raise BrokerUnavailableError(f"{self.where}: no answer within {_OPEN:g} s") from silent
        except BaseException:
            await link.close()
            raise
        self._link = link
        every = consumer["ack_wait"] / _SECOND / 3
        self._keeping = asyncio.get_running_loop().create_task(_keep(link, self._intake, every))
        return self._requirements

    async def check(self) -> Sequence[Requirement]:
        """Check the stream, and the consumer if it exists."""
        link = NatsConnection(self._target, self.where)
        try:
            async with asyncio.timeout(_OPEN):
                await link.open()
                result = _of_stream(await self._asked(link, f"STREAM.INFO.{self._stream}"))
                consumer = await self._found(link)
        except TimeoutError as silent:
            raise BrokerUnavailableError(f"{self.where}: no answer within {_OPEN:g} s") from silent
        finally:
            await link.close()
        return result + (_of_consumer(consumer, self._batch, self._subject) if consumer else [])

    async def take(self, limit: int, wait: float) -> Sequence[Delivery]:
        """Ask for as many messages as may be taken, and return what comes first, with what came beside it."""
        link, intake, clock = self._opened(), self._intake, asyncio.get_running_loop().time
        end = clock() + wait
        has_asked = False
        while not intake.buffer:
            link.check()
            if intake.complaint:
                raise link.lose(self._meant(intake.complaint))
            if not intake.credit:
                if has_asked and clock() >= end:
                    return []
                await self._pull(link, limit, max(end - clock(), 0.0))
                has_asked = True
            # A request of this call is answered by the server when its time is over; silence is a fault.
            until = intake.overdue_at if has_asked else min(end, intake.overdue_at)
            if clock() < until:
                await link.change(until - clock())
            elif clock() >= intake.overdue_at:
                await self._asked(link, f"CONSUMER.INFO.{self._stream}.{self._consumer}")
                intake.credit = 0
            else:
                return []
        while len(intake.buffer) < limit and intake.has_more and intake.credit:
            if not await link.change(_BURST):
                break
        return intake.take(limit)

    async def _pull(self, link: NatsConnection, limit: int, wait: float) -> None:
        intake = self._intake
        wish: dict[str, Any] = {"batch": min(limit, self._batch), "max_bytes": MOST_BYTES + link.max_payload}
        if intake.is_alone:
            wish = {"batch": 1}
        wish |= {"expires": round(wait * _SECOND)} if wait > _AT_ONCE else {"no_wait": True}
        intake.request += 1
        intake.credit = wish["batch"]
        intake.is_alone = intake.has_more = False
        intake.overdue_at = asyncio.get_running_loop().time() + wait + _ANSWER
        reply = f"{self._inbox}.{intake.request}"
        next_message = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}"
        await link.publish(next_message, json.dumps(wish).encode(), reply)

    async def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge each. The connection keeps their order, so that the last one's answer covers all."""
        link = self._opened()
        replies = [reply for one in deliveries if (reply := self._intake.replies.pop(one.receipt, None))]
        for reply in replies[:-1]:
            await link.publish(reply, b"+ACK")
        if replies:
            try:
                await link.request(replies[-1], b"+ACK", timeout=_ANSWER)
            except failed.NoRespondersError:
                raise link.lose(self._meant("Consumer Deleted")) from None

    async def refuse(self, delivery: Delivery, why: str) -> None:  # noqa: ARG002 - nobody there keeps it
        """Acknowledge it: JetStream has no dead letters, so that the caller has kept it."""
        await self.acknowledge([delivery])

    async def pause(self) -> None:
        """Ask for nothing more. What was asked for may still come: it is reported as in progress."""
        self._opened()

    async def backlog(self) -> Backlog:
        """Return what the consumer has not delivered, or not been told of."""
        link = self._opened()
        info = await self._asked(link, f"CONSUMER.INFO.{self._stream}.{self._consumer}")
        return Backlog(info["num_pending"] + info["num_ack_pending"])

    async def close(self) -> None:
        """Give back what is held, so that it is delivered at once, and leave."""
        link = self._link
        if link is not None and link.fault is None and self._intake.replies:
            *others, last = self._intake.replies.values()
            with contextlib.suppress(BrokerUnavailableError, ConfigError, failed.NoRespondersError):
                for reply in others:
                    await link.publish(reply, b"-NAK")
                await link.request(last, b"-NAK", timeout=_CLOSE)
        await self._let_go()

    async def _let_go(self) -> None:
        link, self._link = self._link, None
        if self._keeping is not None:
            self._keeping.cancel()
        self._keeping = None
        if link is not None:
            await link.close()

    def _opened(self) -> NatsConnection:
        if self._link is None:
            raise BrokerUnavailableError(f"{self.where}: it is not open")
        self._link.check()
        return self._link

    def _meant(self, complaint: str) -> BrokerUnavailableError | ConfigError:
        """Return the error for what the server says of a request for messages."""
        if complaint.startswith("Exceeded Max") and "Waiting" not in complaint:
            return ConfigError(
                f"{self.where}: the consumer {self._consumer!r} limits requests below batches of {self._batch} ({complaint}): raise the limit, or "
                "name another consumer (?consumer=)"
            )
        return BrokerUnavailableError(f"{self.where}: the consumer {self._consumer!r} is gone ({complaint})")

    async def _found(self, link: NatsConnection) -> dict[str, Any] | None:
        """Return the configuration of the consumer, None if it does not exist."""
        with contextlib.suppress(_ApiError):
            info = await self._asked(link, f"CONSUMER.INFO.{self._stream}.{self._consumer}")
            return info["config"]  # type: ignore[no-any-return]
        return None

    async def _created(self, link: NatsConnection) -> dict[str, Any]:
        """Create the consumer."""
        wish = {
            "durable_name": self._consumer, "ack_policy": "explicit", "deliver_policy": "all",
            "ack_wait": round(ACK_WAIT * _SECOND), "max_deliver": -1, "max_ack_pending": max(_MOST_PENDING, 5 * self._batch),
        }  # fmt: skip
        if self._subject:
            wish["filter_subject"] = self._subject
        body = json.dumps({"stream_name": self._stream, "config": wish}).encode()
        info = await self._asked(link, f"CONSUMER.DURABLE.CREATE.{self._stream}.{self._consumer}", body)
        return info["config"]  # type: ignore[no-any-return]

    async def _asked(self, link: NatsConnection, call: str, body: bytes = b"") -> dict[str, Any]:
        """Return the answer to a call of JetStream's API.

        Raises ``_ApiError`` if there is no consumer, while the source is not open.
        """
        try:
            return await _api(link, call, body)
        except failed.NoRespondersError:
            raise link.lose(BrokerUnavailableError(f"{self.where}: {_NOT_ON}")) from None
        except _ApiError as refusal:
            if refusal.code == _NO_STREAM:
                text = f"there is no stream {self._stream!r}: correct the name, or create it (`nats stream add {self._stream}`)"
                raise link.lose(ConfigError(f"{self.where}: {text}")) from None
            if refusal.code in _OFF:
                raise link.lose(ConfigError(f"{self.where}: {refusal}: {_NOT_ON}")) from None
            if refusal.code == _NO_CONSUMER:
                if self._link is link:
                    raise link.lose(self._meant(str(refusal))) from None
                raise
            kind = BrokerUnavailableError if refusal.is_passing else ConfigError
            raise link.lose(kind(f"{self.where}: NATS refuses {call}: {refusal}")) from refusal


class NatsSender:
    """Publishes to subjects that a stream keeps; each is sent once the stream has confirmed it."""

    def __init__(self, target: Target) -> None:
        servers_of(target)
        self.where = target.where
        self._target = target
        self._link: NatsConnection | None = None
        self._turn = asyncio.Lock()

    async def send(self, place: str, event: OutgoingEvent, timeout: float) -> None:
        """Publish to a subject, with the event's id as ``Nats-Msg-Id``."""
        where = f"{self.where}/{place}"
        if _SUBJECT.fullmatch(place) is None:
            raise RefusedTargetError(
                f"{where}: nothing can be sent to a subject with * or >, or an empty word"
            )
        begun_at = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(timeout):
                link = await self._connected()
                size = len(event.body) + _HEADER_BYTES + len(event.id.encode())
                if size > link.max_payload:  # a server that gets more closes the connection
                    text = f"the event has {size} bytes with its headers, and the server takes {link.max_payload}"
                    raise RefusedTargetError(f"{where}: {text} (max_payload)")
                await self._publish(link, place, event, timeout)
        except TimeoutError as silent:
            error = DeliveryError(f"{where}: no answer within {timeout:g} s")
            if self._link is not None and self._link.answered_at < begun_at:
                self._link.lose(BrokerUnavailableError(f"{self.where}: it does not answer"))
            raise error from silent
        except (BrokerUnavailableError, ConfigError) as fault:
            raise DeliveryError(f"{where}: {fault}") from fault

    async def _publish(self, link: NatsConnection, place: str, event: OutgoingEvent, timeout: float) -> None:
        where = f"{self.where}/{place}"
        message = await self._answered(link, place, event, timeout)
        try:
            answer = json.loads(message.data)
            error, is_kept = answer.get("error"), bool(answer.get("stream")) and "seq" in answer
        except (ValueError, AttributeError):
            error, is_kept = None, False
        if error is not None:
            refusal = _ApiError(error)
            kind = RefusedTargetError if refusal.code == _TOO_LARGE else DeliveryError
            raise kind(f"{where}: the stream does not take it: {refusal}")
        if not is_kept:
            raise DeliveryError(
                f"{where}: something else than a stream answered, so that nobody is known to keep it"
            )

    async def _answered(self, link: NatsConnection, place: str, event: OutgoingEvent, timeout: float) -> Msg:
        headers = {"Nats-Msg-Id": event.id, "content-type": event.content_type}
        for _ in range(_TRIES):
            with contextlib.suppress(failed.NoRespondersError):
                return await link.request(place, event.body, timeout=timeout, headers=headers)
            await asyncio.sleep(_AGAIN_AFTER)
        raise RefusedTargetError(
            f"{self.where}/{place}: no stream has this subject: create one (`nats stream add --subjects {place}`), or correct the name"
        )

    async def check(self, places: Sequence[str]) -> Sequence[Requirement]:
        """Return for each subject whether a stream keeps what is sent to it, and how safely."""
        try:
            async with asyncio.timeout(_OPEN):
                link = await self._connected()
                return [one for place in places for one in await self._checked(link, place)]
        except TimeoutError as silent:
            raise BrokerUnavailableError(f"{self.where}: no answer within {_OPEN:g} s") from silent

    async def _checked(self, link: NatsConnection, place: str) -> list[Requirement]:
        try:
            names = (await _api(link, "STREAM.NAMES", json.dumps({"subject": place}).encode()))["streams"]
            if not names and _NAME.fullmatch(place) is not None and await _is_stream(link, place):
                return [Requirement("ok", f"{place} is a stream; notices go to one of its subjects")]
            if not names:
                return [
                    Requirement(
                        "error",
                        f"No stream has the subject {place}",
                        f"Create one: nats stream add --subjects {place}",
                    )
                ]
            return _of_stream(await _api(link, f"STREAM.INFO.{names[0]}"), is_sent_to=True)
        except ConfigError as fault:
            return [
                Requirement(
                    "warning",
                    f"The stream of {place} cannot be checked: {fault}",
                    "Grant the rights that `makegood broker permissions` prints",
                )
            ]
        except failed.NoRespondersError:
            return [Requirement("error", f"{self.where}: {_NOT_ON}", "Switch JetStream on")]
        except _ApiError as refusal:
            return [Requirement("error", f"The stream of {place}: {refusal}", "Correct it")]

    async def close(self) -> None:
        """Leave."""
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def _connected(self) -> NatsConnection:
        async with self._turn:
            if self._link is None or self._link.fault is not None:
                await self.close()
                link = NatsConnection(self._target, self.where)
                try:
                    await link.open()
                except BaseException:
                    await link.close()
                    raise
                self._link = link
            return self._link


async def _api(link: NatsConnection, call: str, body: bytes = b"") -> dict[str, Any]:
    message = await link.request(f"$JS.API.{call}", body, timeout=_ANSWER)
    answer: dict[str, Any] = json.loads(message.data)
    if error := answer.get("error"):
        raise _ApiError(error)
    return answer


async def _is_stream(link: NatsConnection, name: str) -> bool:
    """Whether there is a stream of that name; an address of a source has one."""
    try:
        await _api(link, f"STREAM.INFO.{name}")
    except _ApiError:
        return False
    return True


async def _keep(link: NatsConnection, intake: _Intake, every: float) -> None:
    """Report what is held as in progress, so that the server does not deliver it to others."""
    with contextlib.suppress(
        BrokerUnavailableError, ConfigError
    ):  # whoever uses the connection next hears of it
        while True:
            await asyncio.sleep(every)
            for reply in list(intake.replies.values()):
                await link.publish(reply, b"+WPI")


def _of_stream(info: dict[str, Any], *, is_sent_to: bool = False) -> list[Requirement]:
    """Return what a stream promises."""
    config = info["config"]
    name = config["name"]
    edit = f"nats stream edit {name}"
    result = [
        Requirement("ok", f"The stream {name} exists, with {config.get('retention', 'limits')} retention")
    ]
    if config.get("storage") == "memory":
        result.append(
            Requirement(
                "warning",
                f"The stream {name} is kept in memory: a restart of the server loses its messages",
                "Create it with file storage",
            )
        )
    if config.get("num_replicas", 1) == 1:
        result.append(
            Requirement(
                "warning", f"The stream {name} has one replica, and NATS writes to the disk in the background: a power cut loses the last messages",
                f"{edit} --replicas 3, or sync_interval: always in the server's configuration",
            )
        )  # fmt: skip
    if is_sent_to:
        if config.get("no_ack"):
            result.append(
                Requirement("error", f"The stream {name} confirms nothing (no_ack)", f"{edit} --ack")
            )
        return result
    limits = [
        text
        for text in ("max_age", "max_msgs", "max_bytes", "max_msgs_per_subject")
        if config.get(text, 0) > 0
    ]
    if limits and (config.get("discard", "old") == "old" or "max_age" in limits):
        result.append(
            Requirement(
                "warning", f"The stream {name} deletes messages by {', '.join(limits)}, also those that nobody has taken",
                f"Set limits that no outage reaches, or {edit} --discard new",
            )
        )  # fmt: skip
    if config.get("retention") == "interest":
        result.append(
            Requirement(
                "warning", f"The stream {name} keeps only messages for which a consumer exists: one that is sent while the consumer is deleted is lost",
                "Never delete the consumer, or use limits or work queue retention",
            )
        )  # fmt: skip
    return result


def _of_consumer(config: dict[str, Any], batch: int, subject: str) -> list[Requirement]:
    """Return whether a consumer delivers each message until it is acknowledged."""
    name = config.get("durable_name") or config.get("name", "")
    again = "Delete the consumer, and makegood creates it, or name another one (?consumer=)"
    result = [Requirement("ok", f"The durable consumer {name} exists")]
    if config.get("deliver_subject"):
        result.append(Requirement("error", f"{name} is a push consumer", again))
    if config.get("ack_policy") != "explicit":
        result.append(
            Requirement(
                "error",
                f"{name} has the ack policy {config.get('ack_policy')!r}, which acknowledges messages that nobody has taken",
                again,
            )
        )
    if config.get("headers_only"):
        result.append(Requirement("error", f"{name} delivers headers without bodies", again))
    if subject and subject not in (config.get("filter_subject"), *config.get("filter_subjects", ())):
        result.append(
            Requirement(
                "error", f"{name} does not filter by the subject {subject} that the address names", again
            )
        )
    if config.get("max_deliver", -1) > 0:
        result.append(
            Requirement(
                "error", f"{name} gives up a message after {config['max_deliver']} deliveries, and every restart of a process can use one up",
                f"nats consumer edit --max-deliver=-1 STREAM {name}",
            )
        )  # fmt: skip
    if config.get("inactive_threshold"):
        result.append(
            Requirement(
                "warning",
                f"{name} is deleted when nobody has read for {config['inactive_threshold'] / _SECOND:g} s",
                again,
            )
        )
    if config.get("ack_wait", 0) < _SHORT_ACK_WAIT * _SECOND:
        result.append(
            Requirement(
                "warning", f"{name} delivers again after {config.get('ack_wait', 0) / _SECOND:g} s: messages of a busy process come twice",
                f"nats consumer edit --wait=30s STREAM {name}",
            )
        )  # fmt: skip
    if 0 < config.get("max_ack_pending", -1) < batch:
        result.append(
            Requirement(
                "warning",
                f"{name} delivers {config['max_ack_pending']} messages at once, fewer than a batch of {batch}",
                f"nats consumer edit --max-pending={_MOST_PENDING} STREAM {name}",
            )
        )
    return result


def open_source(target: Target, address: BrokerAddress, reader: Reader) -> NatsSource:
    """Return the source at a stream. Raises ``ConfigError`` for a URL or a name that NATS cannot have."""
    return NatsSource(target, address, reader)


def open_sender(target: Target) -> NatsSender:
    """Return what sends to subjects. Raises ``ConfigError`` for a URL that cannot be used."""
    return NatsSender(target)


def _pattern(subject: str) -> str:
    """Return a subject as NATS writes what it stands for."""
    if not subject.endswith("*"):
        return subject
    words = subject.split(".")[:-1]
    return ".".join([*words, ">"]) if words else "*"


def permissions(target: Target, sources: Sequence[str], places: Sequence[str]) -> str:
    """Return the part of the server's configuration that gives a user these rights.

    ``sources``: streams. ``places``: subjects; a * at the end means any further text, as far as NATS has a
    form for it: of a word's beginning only the words before it are kept.
    """
    publish = [
        f"$JS.{right}"
        for stream in sources
        for right in (
            f"API.STREAM.INFO.{stream}",
            f"API.CONSUMER.INFO.{stream}.*",
            f"API.CONSUMER.DURABLE.CREATE.{stream}.*",
            f"API.CONSUMER.MSG.NEXT.{stream}.*",
            f"ACK.{stream}.>",
        )
    ]
    if places:
        publish += [*map(_pattern, places), "$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO.*"]
    lines = ",\n          ".join(f'"{subject}"' for subject in publish)
    return f"""\
# {target.where}: in the server's configuration; then `nats-server --signal reload`.
authorization {{
  users: [
    {{ user: makegood, password: "…", permissions: {{
        publish: {{ allow: [
          {lines}
        ] }}
        subscribe: {{ allow: ["{INBOX}.>"] }}
    }} }}
  ]
}}
"""
