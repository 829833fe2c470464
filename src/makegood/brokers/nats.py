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
from datetime import datetime
from functools import partial
from itertools import zip_longest
from typing import Any, Final

from nats import errors as failed
from nats.aio.msg import Msg

from makegood.base.clock import SystemClock
from makegood.brokers.address import BrokerAddress
from makegood.brokers.connection import SendersConnection, opening
from makegood.brokers.kinds import Target, check_each
from makegood.brokers.nats_connection import INBOX, NatsConnection, servers_of
from makegood.brokers.protocol import (
    MOST_BYTES,
    Answers,
    Backlog,
    Delivery,
    MissingPlaceError,
    OutgoingEvent,
    Reader,
    RefusedTargetError,
    Requirement,
    Requirements,
    UnsentError,
    failed_send,
    next_batch,
    raise_first_error,
)
from makegood.errors import BrokerUnavailableError, ConfigError, DeliveryError, MakegoodError

ACK_WAIT: Final = 30.0
"""Seconds after which a consumer that makegood creates delivers again what was not acknowledged."""

_ANSWER: Final = 4.0
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
_NO_MESSAGE: Final = 2**53
"""A number in a stream that no message has."""
_SHORT_ACK: Final = 9  # words of $JS.ACK.stream.consumer.count.number.consumer's.stored.pending
_TRIES: Final = 4
_HEADER_BYTES: Final = 128
_AGAIN_AFTER: Final = 0.25
_NO_STREAM, _NO_CONSUMER, _TOO_LARGE, _NOT_STORED = 10059, 10014, 10054, 10077
_BUSY: Final = 503
_OFF: Final = (10039, 10076)
_NOT_ON: Final = "no JetStream answers: is it switched on (nats-server -js), and for this account?"
_SILENT: Final = f"{_NOT_ON} A cluster that elects a leader does not answer either"


class _ApiError(Exception):
    """JetStream refused a request."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("description", error)))
        self.code = int(error.get("err_code", 0))
        self.is_passing = error.get("code") == _BUSY
        self.is_full = self.code == _NOT_STORED and str(self).endswith("exceeded")
        """Whether a limit of the stream refused a message, so that it was surely not stored: other errors of
        this code may be those of a disk that was writing.
        """


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
        self._may_not_get = False
        """Whether this user may not read a message by its number, which only its age takes."""
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
        async with opening(link):
            await link.open()
            stream = await self._ask(link, f"STREAM.INFO.{self._stream}")
            consumer = await self._read_consumer(link) or await self._create_consumer(link)
            self._requirements = _of_stream(stream, self._subject) + _of_consumer(
                consumer, self._batch, self._subject
            )
            raise_first_error(self._requirements, self.where)
            self._inbox = await link.listen(self._intake.hear)
        self._link = link
        every = consumer["ack_wait"] / _SECOND / 3
        self._keeping = asyncio.get_running_loop().create_task(_keep(link, self._intake, every))
        return self._requirements

    async def examine(self, link: NatsConnection) -> Requirements:
        """Return what is to be said of the stream, of the consumer if it exists, and of missing rights.

        It consumes and creates nothing: what it asks for to learn of rights is not in JSON, and the message
        that it extends is none.
        """
        result = _of_stream(await self._ask(link, f"STREAM.INFO.{self._stream}"), self._subject)
        config = await self._read_consumer(link)
        api, name = "$JS.API.CONSUMER", f"{self._stream}.{self._consumer}"
        if config is None:
            calls = {f"{api}.DURABLE.CREATE.{name}": b"{"}
        else:
            result.extend(_of_consumer(config, self._batch, self._subject))
            calls = {
                f"{api}.MSG.NEXT.{name}": b"{",
                f"{_ACK}{name}.1.{_NO_MESSAGE}.{_NO_MESSAGE}.0.0": b"+WPI",
            }
        for subject, body in calls.items():
            try:
                await link.request(subject, body, timeout=_ANSWER)
            except ConfigError as fault:
                result.add("error", str(fault).removeprefix(f"{self.where}: "))
            except failed.NoRespondersError:  # of a consumer that cannot be read, which is said above
                continue
        return result

    async def take(self, limit: int, wait: float) -> Sequence[Delivery]:
        """Ask for as many messages as may be taken, and return what comes first, with what came beside it."""
        link, intake, clock = self._open_link(), self._intake, asyncio.get_running_loop().time
        end = clock() + wait
        has_asked = False
        while not intake.buffer:
            link.check()
            if intake.complaint:
                raise link.lose(self._error_for(intake.complaint))
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
                await self._ask(link, f"CONSUMER.INFO.{self._stream}.{self._consumer}")
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
        link = self._open_link()
        replies = [reply for one in deliveries if (reply := self._intake.replies.pop(one.receipt, None))]
        for reply in replies[:-1]:
            await link.publish(reply, b"+ACK")
        if replies:
            try:
                await link.request(replies[-1], b"+ACK", timeout=_ANSWER)
            except failed.NoRespondersError:
                raise link.lose(self._error_for("Consumer Deleted")) from None

    async def refuse(self, delivery: Delivery, why: str) -> None:  # noqa: ARG002 - nobody there keeps it
        """Acknowledge it: JetStream has no dead letters, so that the caller has kept it."""
        await self.acknowledge([delivery])

    async def pause(self) -> None:
        """Ask for nothing more. What was asked for may still come: it is reported as in progress."""
        self._open_link()

    async def backlog(self) -> Backlog:
        """Return what the consumer has not delivered, and what is not acknowledged.

        The oldest is one that this process holds, else the first that the stream has behind what is
        acknowledged; unknown where the user may not read that, or the consumer filters by several subjects.
        """
        link = self._open_link()
        info = await self._ask(link, f"CONSUMER.INFO.{self._stream}.{self._consumer}")
        waiting = info["num_pending"] + info["num_ack_pending"]
        moments = [int(moment) / _SECOND for _, moment in self._intake.replies]
        if waiting and not moments:
            moments = await self._first_waiting(link, info)
        age = max(0.0, SystemClock().wall() - min(moments)) if moments else None
        return Backlog(waiting, age)

    async def _first_waiting(self, link: NatsConnection, info: dict[str, Any]) -> list[float]:
        """Return when the stream stored the first message that is not acknowledged, if that can be known."""
        if info["config"].get("filter_subjects") or self._may_not_get:
            return []
        wish = {
            "seq": info["ack_floor"]["stream_seq"] + 1,
            "next_by_subj": info["config"].get("filter_subject") or ">",
        }
        try:
            answer = await _api(link, f"STREAM.MSG.GET.{self._stream}", json.dumps(wish).encode())
        except ConfigError:
            self._may_not_get = True
            return []
        except _ApiError:  # it was acknowledged meanwhile
            return []
        return [datetime.fromisoformat(answer["message"]["time"]).timestamp()]

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

    def _open_link(self) -> NatsConnection:
        if self._link is None:
            raise BrokerUnavailableError(f"{self.where}: it is not open")
        self._link.check()
        return self._link

    def _error_for(self, complaint: str) -> BrokerUnavailableError | ConfigError:
        """Return the error for what the server says of a request for messages."""
        if complaint.startswith("Exceeded Max") and "Waiting" not in complaint:
            return ConfigError(
                f"{self.where}: the consumer {self._consumer!r} limits requests below batches of {self._batch} ({complaint}): raise the limit, or "
                "name another consumer (?consumer=)"
            )
        return BrokerUnavailableError(f"{self.where}: the consumer {self._consumer!r} is gone ({complaint})")

    async def _read_consumer(self, link: NatsConnection) -> dict[str, Any] | None:
        """Return the configuration of the consumer, None if it does not exist."""
        with contextlib.suppress(_ApiError):
            info = await self._ask(link, f"CONSUMER.INFO.{self._stream}.{self._consumer}")
            return info["config"]  # type: ignore[no-any-return]
        return None

    async def _create_consumer(self, link: NatsConnection) -> dict[str, Any]:
        """Create the consumer."""
        wish = {
            "durable_name": self._consumer, "ack_policy": "explicit", "deliver_policy": "all",
            "ack_wait": round(ACK_WAIT * _SECOND), "max_deliver": -1, "max_ack_pending": max(_MOST_PENDING, 5 * self._batch),
        }  # fmt: skip
        if self._subject:
            wish["filter_subject"] = self._subject
        body = json.dumps({"stream_name": self._stream, "config": wish}).encode()
        info = await self._ask(link, f"CONSUMER.DURABLE.CREATE.{self._stream}.{self._consumer}", body)
        return info["config"]  # type: ignore[no-any-return]

    async def _ask(self, link: NatsConnection, call: str, body: bytes = b"") -> dict[str, Any]:
        """Return the answer to a call of JetStream's API.

        Raises ``_ApiError`` if there is no consumer, while the source is not open.
        """
        try:
            return await _api(link, call, body)
        except failed.NoRespondersError:
            raise link.lose(BrokerUnavailableError(f"{self.where}: {_SILENT}")) from None
        except _ApiError as refusal:
            if refusal.code == _NO_STREAM:
                text = f"there is no stream {self._stream!r}: correct the name, or create it (`nats stream add {self._stream}`)"
                raise self._lose(link, ConfigError(f"{self.where}: {text}")) from None
            if refusal.code in _OFF:
                raise self._lose(link, ConfigError(f"{self.where}: {refusal}: {_NOT_ON}")) from None
            if refusal.code == _NO_CONSUMER:
                if self._link is link:
                    raise link.lose(self._error_for(str(refusal))) from None
                raise
            kind = BrokerUnavailableError if refusal.is_passing else ConfigError
            error = kind(f"{self.where}: NATS refuses {call}: {refusal}")
            raise self._lose(link, error) from refusal

    def _lose(self, link: NatsConnection, error: BrokerUnavailableError | ConfigError) -> MakegoodError:
        """Return an error, and give the connection up if it is the one that is read by."""
        return link.lose(error) if link is self._link else error


class NatsSender:
    """Publishes to subjects that a stream keeps; each is sent once the stream has confirmed it."""

    def __init__(self, target: Target) -> None:
        servers_of(target)
        self.where = target.where
        self._connection = SendersConnection(partial(NatsConnection, target, self.where))

    async def send(self, place: str, event: OutgoingEvent, timeout: float) -> None:
        """Publish to a subject, with the event's id as ``Nats-Msg-Id``."""
        where = f"{self.where}/{place}"
        if _SUBJECT.fullmatch(place) is None:
            raise RefusedTargetError(
                f"{where}: nothing can be sent to a subject with * or >, or an empty word"
            )
        begun_at, link, began = asyncio.get_running_loop().time(), None, False
        try:
            async with asyncio.timeout(timeout):
                link = await self._connection.open()
                size = len(event.body) + _HEADER_BYTES + len(event.id.encode())
                if size > link.max_payload:  # a server that gets more closes the connection
                    text = f"the event has {size} bytes with its headers, and the server takes {link.max_payload}"
                    raise RefusedTargetError(f"{where}: {text} (max_payload)")
                link.check()
                began = True
                await self._publish(link, place, event, timeout)
        except TimeoutError as silent:
            error = failed_send(where, TimeoutError(f"no answer within {timeout:g} s"), began=began)
            if (connection := self._connection.present) is not None and connection.answered_at < begun_at:
                connection.lose(BrokerUnavailableError(f"{self.where}: it does not answer"))
            raise error from silent
        except (BrokerUnavailableError, ConfigError) as fault:
            # A right that is missing ends the one call; the connection and other calls with it only then
            # if NATS does not say whose it was.
            is_barred = isinstance(fault, ConfigError) and link is not None and link.fault is None
            raise failed_send(where, fault, began=began and not is_barred) from fault

    async def _publish(self, link: NatsConnection, place: str, event: OutgoingEvent, timeout: float) -> None:
        where = f"{self.where}/{place}"
        message = await self._request_answer(link, place, event, timeout)
        try:
            answer = json.loads(message.data)
            error, is_kept = answer.get("error"), bool(answer.get("stream")) and "seq" in answer
        except (ValueError, AttributeError):
            error, is_kept = None, False
        if error is not None:
            refusal = _ApiError(error)
            kind = (
                RefusedTargetError
                if refusal.code == _TOO_LARGE
                else DeliveryError
                if refusal.is_passing and not refusal.is_full
                else UnsentError
            )
            raise kind(f"{where}: the stream does not take it: {refusal}")
        if not is_kept:
            raise DeliveryError(
                f"{where}: something else than a stream answered, so that nobody is known to keep it"
            )

    async def _request_answer(
        self, link: NatsConnection, place: str, event: OutgoingEvent, timeout: float
    ) -> Msg:
        headers = {"Nats-Msg-Id": event.id, "content-type": event.content_type}
        for _ in range(_TRIES):
            with contextlib.suppress(failed.NoRespondersError):
                return await link.request(place, event.body, timeout=timeout, headers=headers)
            await asyncio.sleep(_AGAIN_AFTER)
        raise await self._no_answer_error(link, place)

    async def _no_answer_error(self, link: NatsConnection, place: str) -> DeliveryError:
        """Return the error for a subject at which nobody answers: no stream has it, or the stream's leader is
        gone, and its replicas elect another one within seconds.
        """
        where = f"{self.where}/{place}"
        try:
            names = await _streams_of(link, place)
        except (failed.NoRespondersError, _ApiError, BrokerUnavailableError) as fault:
            text = _SILENT if isinstance(fault, failed.NoRespondersError) else fault
            return UnsentError(f"{where}: {text}")
        except ConfigError as fault:
            error = UnsentError(
                f"{where}: nobody answers there, and whether a stream has it is unknown: {fault}"
            )
            error.__cause__ = fault
            return error
        if names:
            return UnsentError(f"{where}: the stream {names[0]} has no leader now")
        return MissingPlaceError(
            f"{where}: no stream has this subject: create one (`nats stream add --subjects {place}`), or correct the name"
        )

    async def close(self) -> None:
        """Leave."""
        await self._connection.close()


async def _api(link: NatsConnection, call: str, body: bytes = b"") -> dict[str, Any]:
    message = await link.request(f"$JS.API.{call}", body, timeout=_ANSWER)
    answer: dict[str, Any] = json.loads(message.data)
    if error := answer.get("error"):
        raise _ApiError(error)
    return answer


async def _streams_of(link: NatsConnection, subject: str) -> list[str]:
    """Return the names of the streams that keep a subject."""
    answer = await _api(link, "STREAM.NAMES", json.dumps({"subject": subject}).encode())
    return answer["streams"] or []


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


def _have_common(one: str, other: str) -> bool:
    """Return whether any subject fits both of two, which may have wildcards.

    >>> _have_common("orders.*", "*.new"), _have_common("orders", "orders.>")
    (True, False)
    """
    for words in zip_longest(one.split("."), other.split(".")):
        if None in words:
            return False
        if ">" in words:
            return True
        if words[0] != words[1] and "*" not in words:
            return False
    return True


def _of_stream(info: dict[str, Any], subject: str = "", *, is_sent_to: bool = False) -> Requirements:
    """Return what a stream promises. ``subject``: the only one that is read; "" if all are."""
    config, result = info["config"], Requirements()
    name = config["name"]
    edit = f"nats stream edit {name}"
    result.add("ok", f"The stream {name} exists, with {config.get('retention', 'limits')} retention")
    if config.get("storage") == "memory":
        what = f"The stream {name} is kept in memory: a restart of the server loses its messages"
        result.add("warning", what, "Create it with file storage")
    if config.get("num_replicas", 1) == 1:
        what = f"The stream {name} has one replica, and NATS writes to the disk in the background: a power cut loses the last messages"
        remedy = f"{edit} --replicas 3, or sync_interval: always in the server's configuration"
        result.add("warning", what, remedy)
    if is_sent_to:
        if config.get("no_ack"):
            result.add("error", f"The stream {name} confirms nothing (no_ack)", f"{edit} --ack")
        return result
    limits = [
        text
        for text in ("max_age", "max_msgs", "max_bytes", "max_msgs_per_subject")
        if config.get(text, 0) > 0
    ]
    if limits and (config.get("discard", "old") == "old" or "max_age" in limits):
        what = f"The stream {name} deletes messages by {', '.join(limits)}, also those that nobody has taken"
        result.add("warning", what, f"Set limits that no outage reaches, or {edit} --discard new")
    # A mirror, or a stream that changes subjects, does not say which it has.
    is_plain = not any(config.get(source) for source in ("mirror", "sources", "subject_transform"))
    if subject and is_plain and not any(_have_common(subject, each) for each in config.get("subjects") or ()):
        what = f"The stream {name} does not have the subject {subject} that the address names: nothing comes"
        result.add("warning", what, f"Correct ?subject=, or add it: {edit} --subjects")
    if config.get("retention") == "interest":
        what = f"The stream {name} keeps only messages for which a consumer exists: one that is sent while the consumer is deleted is lost"
        result.add("warning", what, "Never delete the consumer, or use limits or work queue retention")
    return result


def _of_consumer(config: dict[str, Any], batch: int, subject: str) -> Requirements:
    """Return whether a consumer delivers each message until it is acknowledged."""
    name, result = config.get("durable_name") or config.get("name", ""), Requirements()
    again = "Delete the consumer, and makegood creates it, or name another one (?consumer=)"
    result.add("ok", f"The durable consumer {name} exists")
    if config.get("deliver_subject"):
        result.add("error", f"{name} is a push consumer", again)
    if config.get("ack_policy") != "explicit":
        policy = config.get("ack_policy")
        what = f"{name} has the ack policy {policy!r}, which acknowledges messages that nobody has taken"
        result.add("error", what, again)
    if config.get("headers_only"):
        result.add("error", f"{name} delivers headers without bodies", again)
    if subject and subject not in (config.get("filter_subject"), *config.get("filter_subjects", ())):
        result.add("error", f"{name} does not filter by the subject {subject} that the address names", again)
    if config.get("max_deliver", -1) > 0:
        what = f"{name} gives up a message after {config['max_deliver']} deliveries, and every restart of a process can use one up"
        result.add("error", what, f"nats consumer edit --max-deliver=-1 STREAM {name}")
    if config.get("inactive_threshold"):
        seconds = config["inactive_threshold"] / _SECOND
        result.add("warning", f"{name} is deleted when nobody has read for {seconds:g} s", again)
    if config.get("ack_wait", 0) < _SHORT_ACK_WAIT * _SECOND:
        seconds = config.get("ack_wait", 0) / _SECOND
        what = f"{name} delivers again after {seconds:g} s: messages of a busy process come twice"
        result.add("warning", what, f"nats consumer edit --wait=30s STREAM {name}")
    if 0 < config.get("max_ack_pending", -1) < batch:
        pending = config["max_ack_pending"]
        what = f"{name} delivers {pending} messages at once, fewer than a batch of {batch}"
        result.add("warning", what, f"nats consumer edit --max-pending={_MOST_PENDING} STREAM {name}")
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


async def check(
    target: Target, sources: Sequence[BrokerAddress], places: Sequence[str], reader: Reader
) -> Answers:
    """Check the streams that are read and their consumers, and for each subject whether a stream keeps what
    is sent to it, and how safely.
    """
    link = NatsConnection(target, target.where)
    async with opening(link):
        await link.open()
        answers = await check_each(
            target, sources, lambda each: NatsSource(target, each, reader).examine(link), places, partial(_check_place, link)
        )  # fmt: skip
    await link.close()
    return answers


async def _check_place(link: NatsConnection, place: str) -> list[Requirement]:
    try:
        names = await _streams_of(link, place)
        if not names and _NAME.fullmatch(place) is not None and await _is_stream(link, place):
            return [Requirement("ok", f"{place} is a stream; notices go to one of its subjects")]
        if not names:
            create = f"Create one: nats stream add --subjects {place}"
            return [Requirement("error", f"No stream has the subject {place}", create)]
        return _of_stream(await _api(link, f"STREAM.INFO.{names[0]}"), is_sent_to=True)
    except ConfigError as fault:
        return [Requirement("warning", f"The stream of {place} cannot be checked: {fault}")]
    except failed.NoRespondersError:
        return [Requirement("error", _SILENT, "Switch JetStream on")]
    except _ApiError as refusal:
        return [Requirement("error", f"The stream of {place}: {refusal}", "Correct it")]


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
            f"API.STREAM.MSG.GET.{stream}",
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
