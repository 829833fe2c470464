"""Kafka: orders come from a topic, and notices go to one.

Offsets are committed by hand, after the store's commit: of each partition the longest run of records that are
acknowledged. Whatever happens to a reader (a rebalance, its death, a late commit), records come again, and
the store's queue knows their ids.

The id of a record is its topic's UUID, partition, offset and timestamp. An offset alone is not enough: a
topic that was deleted and created again counts from 0 again, and after an unclean election of a leader the
offsets behind the new leader's end are given a second time.

With each offset goes a note of the topic's UUID, so that no reader goes by what was committed of a topic of
the same name that is gone.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final
from urllib.parse import unquote

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka import errors as kafka_errors

from makegood.base.cancelling import cancel_and_wait
from makegood.base.clock import DAY, SystemClock
from makegood.base.sizes import MIB
from makegood.base.urls import parts_of
from makegood.brokers.address import BrokerAddress
from makegood.brokers.kafka_cluster import (
    ANSWER,
    EARLIEST,
    LATEST,
    Cluster,
    Topic,
    creates_nothing,
    end,
    explain,
    options_of,
    requirements_of,
    servers_of,
    session_of,
)
from makegood.brokers.kinds import Target, check_each
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
    Sender,
    Source,
    UnsentError,
    next_batch,
)
from makegood.errors import BrokerUnavailableError, ConfigError, DeliveryError, MakegoodError

_SILENCE: Final = 6.0
"""Seconds for which a partition may say nothing, not even that it has nothing."""
_SHARING: Final = 45.0
"""Seconds that the group may take to share out its partitions."""
_CHECK_EVERY: Final = 1.0
"""Seconds after which an idle reader makes sure that the topic is still the same."""
_LEAVE: Final = 2.0
"""Seconds for saying goodbye to the group."""
_RECALL: Final = 13 * DAY
"""How far to go back where the log was cut off: a day less than ids are remembered."""
_REMEMBERED: Final = int(14 * DAY * 1000)
"""Milliseconds for which the store's queue remembers the ids of messages."""
_FOREVER: Final = 2**31 - 1
"""Milliseconds."""
_MOST_SENT: Final = 2**30
"""Bytes: the broker decides what is too large, not the client."""
_REFUSALS: Final = (
    kafka_errors.UnknownTopicOrPartitionError, kafka_errors.InvalidTopicError,
    kafka_errors.MessageSizeTooLargeError, kafka_errors.RecordListTooLargeError,
)  # fmt: skip
"""What sending again does not change."""
_NOT_IDEMPOTENT: Final = (kafka_errors.UnknownError, kafka_errors.IncompatibleBrokerVersion)
"""How programs that speak Kafka's protocol, and are not Kafka, refuse a producer the id by which they would
drop what it repeats.
"""
_STARTS: Final = {"earliest": EARLIEST, "latest": LATEST}
_NOTE: Final = "topic "


def open_source(target: Target, address: BrokerAddress, reader: Reader) -> Source:
    """Return the source at a topic. Raises ``ConfigError`` for a wrong parameter or URL."""
    return KafkaSource(target, address, reader)


def open_sender(target: Target) -> Sender:
    """Return what sends to the topics of a cluster. Raises ``ConfigError`` for a wrong URL."""
    options_of(target)
    return KafkaSender(target)


def permissions(target: Target, sources: Sequence[str], places: Sequence[str]) -> str:
    """Return commands that grant what reading ``sources`` and sending to ``places`` needs."""
    user = unquote(parts_of(target.url).netloc.rpartition("@")[0].partition(":")[0]) or "ANONYMOUS"
    add = (
        f"kafka-acls.sh --bootstrap-server {servers_of(target)[0]} --command-config admin.properties --add \\\n"
        f"  --allow-principal 'User:{user}' "
    )
    lines = ["# admin.properties: the login of an administrator"]
    lines += [
        f"{add}--operation Read --operation Describe --operation DescribeConfigs --topic {topic}"
        for topic in sources
    ]
    if sources:
        lines.append("# the groups that makegood reads with; another one if an address says ?group=")
        lines.append(f"{add}--operation Read --group makegood- --resource-pattern-type prefixed")
    lines += [
        f"{add}--operation Write --operation Describe --operation DescribeConfigs --topic {topic}"
        for topic in places
    ]
    if places:
        lines.append("# only for Kafka before 2.8")
        lines.append(f"{add}--operation IdempotentWrite --cluster")
    return "\n".join(lines)


@asynccontextmanager
async def _connection(target: Target, where: str, reader: Reader) -> AsyncIterator[Cluster]:
    """A connection for questions, and ten seconds for them. ``where`` begins the messages of its faults."""
    cluster = Cluster(target, f"makegood-{reader.name}")
    try:
        async with asyncio.timeout(2 * ANSWER):
            await cluster.connect()
            yield cluster
    except (kafka_errors.KafkaError, OSError, TimeoutError) as fault:
        raise explain(fault, target, where) from fault
    finally:
        await cluster.close()


async def check(
    target: Target, sources: Sequence[BrokerAddress], places: Sequence[str], reader: Reader
) -> Answers:
    """Check each topic, and for those that are read where the group begins."""

    async def read(cluster: Cluster, address: BrokerAddress) -> list[Requirement]:
        try:
            return (await KafkaSource(target, address, reader).examine(cluster))[2]
        except kafka_errors.KafkaError as fault:
            raise explain(fault, target, str(address)) from fault

    async def check_place(cluster: Cluster, place: str) -> list[Requirement]:
        try:
            topic = await cluster.topic(place)
            return requirements_of(place, topic, await cluster.settings(place), read=False)
        except (kafka_errors.UnknownTopicOrPartitionError, kafka_errors.InvalidTopicError):
            what = "there is no such topic, so nothing can be sent to it"
            return [Requirement("error", what, f"kafka-topics.sh --create --topic {place}")]
        except kafka_errors.KafkaError as fault:
            raise explain(fault, target, f"{target.where}/{place}") from fault

    async with _connection(target, target.where, reader) as cluster:
        return await check_each(
            target, sources, partial(read, cluster), places, partial(check_place, cluster)
        )


class _Mark:
    """A record that was fetched, until it and all before it are acknowledged. Its delivery's receipt."""

    __slots__ = ("is_done", "offset", "partition")

    def __init__(self, partition: Any, offset: int) -> None:
        self.partition = partition
        self.offset = offset
        self.is_done = False


class _Partition:
    """What was fetched of a partition, while it is this reader's."""

    __slots__ = ("commit_offset", "next", "pending", "polled_at", "silent")

    def __init__(self) -> None:
        self.pending: deque[_Mark] = deque()
        """In the order of fetching, from the first that is not acknowledged."""
        self.next: int | None = None
        """The offset behind the last one that was fetched."""
        self.commit_offset: int | None = None
        self.polled_at: int | None = None
        """When the broker last said what there is, as aiokafka puts it."""
        self.silent = 0.0
        """Seconds of waiting since that changed."""


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """Hears which partitions are this reader's, and only notes it down."""

    def __init__(self, session: "_Session") -> None:
        self._session = session

    def on_partitions_revoked(self, partitions: Iterable[Any]) -> None:  # noqa: ARG002 - aiokafka's interface
        self._session.unassigned = 0.0

    def on_partitions_assigned(self, partitions: Iterable[Any]) -> None:
        self._session.assign(partitions)


class _Session:
    """One membership of the group, from joining it to the first fault. Raises aiokafka's errors."""

    def __init__(
        self, topic: str, topic_id: str, begins: dict[int, int], cluster: Cluster, consumer: Any
    ) -> None:
        self._topic = topic
        self.topic_id = topic_id
        self.cluster = cluster
        self.consumer = consumer
        self.requirements: Sequence[Requirement] = ()
        self.paused = False
        self.unassigned: float | None = 0.0
        """Seconds of waiting for the group to share out its partitions; None: it has."""
        self._begins = begins
        """Offsets at which partitions begin that are this reader's first, whatever is committed of them."""
        self._partitions: dict[Any, _Partition] = {}
        self._buffer: deque[Delivery] = deque()
        self._checked_at = 0.0

    def assign(self, partitions: Iterable[Any]) -> None:
        """Keep what was fetched of partitions that stay, and forget that of others.

        aiokafka would read those that stay from the committed offset on, what was taken already too.
        """
        self._partitions = {tp: self._partitions.get(tp) or _Partition() for tp in partitions}
        for tp, part in self._partitions.items():
            part.silent = 0.0
            begin = self._begins.get(tp.partition) if part.next is None else part.next
            if begin is not None:
                self.consumer.seek(tp, begin)
        self._begins = {}
        self._buffer = deque(each for each in self._buffer if each.receipt.partition in self._partitions)
        self.unassigned = None
        if self.paused:
            self.consumer.pause(*self._partitions)

    def pause(self) -> None:
        self.paused = True
        self.consumer.pause(*self.consumer.assignment())

    async def take(self, limit: int, wait: float) -> list[Delivery]:
        if self.paused:
            self.paused = False
            self.consumer.resume(*self.consumer.assignment())
        if not self._buffer:
            await self._fetch(limit, wait)
        return next_batch(self._buffer, limit)

    async def _fetch(self, limit: int, wait: float) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        records: Mapping[Any, Sequence[Any]] = {}
        try:
            async with asyncio.timeout(wait + 0.1):  # aiokafka waits for partitions without a limit
                records = await self.consumer.getmany(timeout_ms=int(wait * 1000), max_records=limit)
        except TimeoutError:
            pass
        except kafka_errors.NoOffsetForPartitionError as fault:
            self.consumer.seek(fault.args[0], 0)  # it was added to the topic: all of it is new
        except kafka_errors.OffsetOutOfRangeError as fault:
            for tp, offset in fault.args[0].items():
                await self._cross_gap(tp, offset)
        for tp, batch in records.items():
            # Nothing may wait between here and `getmany`: what it returned, aiokafka counts as read.
            part = self._partitions.setdefault(tp, _Partition())
            for record in batch:
                mark = _Mark(tp, record.offset)
                part.pending.append(mark)
                self._buffer.append(_delivery(record, self.topic_id, mark))
            part.next = batch[-1].offset + 1
        if records or clock() - self._checked_at > _CHECK_EVERY:
            await self._check_topic()
            self._checked_at = clock()
        if not self._buffer:
            self._notice_silence(clock() - began)
            await self.commit()

    async def _check_topic(self) -> None:
        """Raise if what was fetched may be of another topic than its ids say."""
        topic = await self.cluster.topic(self._topic)
        if topic.id != self.topic_id:
            raise kafka_errors.KafkaError(
                "the topic was deleted and created a second time; makegood reads the new one from its first message"
            )

    def _notice_silence(self, waited: float) -> None:
        """Raise if the group or a partition has not answered for too long: aiokafka tries forever, and keeps
        it to itself.
        """
        if self.unassigned is not None:
            self.unassigned += waited
            if self.unassigned > _SHARING:
                raise kafka_errors.KafkaTimeoutError(
                    f"the group has not shared out its partitions for {self.unassigned:.0f} seconds"
                )
            return
        for tp in self.consumer.assignment():
            part = self._partitions.setdefault(tp, _Partition())
            polled_at = self.consumer.last_poll_timestamp(tp)
            part.silent = 0.0 if polled_at != part.polled_at else part.silent + waited
            part.polled_at = polled_at
            if part.silent > _SILENCE:
                raise kafka_errors.KafkaTimeoutError(
                    f"partition {tp.partition} has not answered for {part.silent:.0f} seconds"
                )

    async def _cross_gap(self, tp: Any, offset: int) -> None:
        """Continue where the log has records again, and leave a delivery that reports what is missing."""
        leader = {tp.partition: (await self.cluster.topic(tp.topic)).leaders.get(tp.partition, -1)}

        async def at(time: int) -> int:
            return (await self.cluster.offsets(tp.topic, leader, time))[tp.partition]

        first, last = await at(EARLIEST), await at(LATEST)
        if offset < first:
            begin = first
            why = (
                f"messages {offset} to {first - 1} of partition {tp.partition} expired before they were read"
            )
        elif offset > last:
            begin = await at(int((SystemClock().wall() - _RECALL) * 1000))
            begin = last if begin < 0 else begin
            why = (
                f"partition {tp.partition} ends at {last}, and was read up to {offset} before: the cluster lost messages that it had "
                f"confirmed, perhaps when it elected a leader that lagged behind; makegood reads it again from {begin}"
            )
        else:
            return  # in range meanwhile
        part = self._partitions.setdefault(tp, _Partition())
        mark = _Mark(tp, offset)
        part.pending.append(mark)
        part.next = begin
        id_ = f"{self.topic_id or tp.topic}/{tp.partition}/{offset}/gap"
        self._buffer.append(Delivery(receipt=mark, body=b"", id=id_, fault=why))
        self.consumer.seek(tp, begin)

    async def commit(self) -> None:
        """Commit the offsets up to which all is acknowledged, where they are new.

        Not while the group shares out its partitions: aiokafka gives up its membership when that is refused.
        """
        if self.unassigned is not None:
            return
        current = self.consumer.assignment()
        offsets = {}
        for tp, part in self._partitions.items():
            while part.pending and part.pending[0].is_done:
                part.pending.popleft()
            if tp not in current:
                continue
            if part.pending:
                offset = part.pending[0].offset
            elif self.consumer.last_poll_timestamp(tp) is not None:
                offset = await self.consumer.position(tp)  # beyond the marks of transactions, too
            else:
                continue
            if offset != part.commit_offset:
                offsets[tp] = offset
        if not offsets:
            return
        try:
            async with asyncio.timeout(2 * ANSWER):
                await self.consumer.commit(
                    {tp: (offset, _NOTE + self.topic_id) for tp, offset in offsets.items()}
                )
        except (kafka_errors.CommitFailedError, kafka_errors.IllegalStateError):
            return  # the group is rebalancing: the next commit repeats it
        for tp, offset in offsets.items():
            if part := self._partitions.get(tp):  # type: ignore[assignment]  # mypy knows it from the loop above
                part.commit_offset = offset

    async def close(self, *, leave: bool) -> None:
        """Let go. ``leave``: say so to the group, if it listens, so that others take over at once."""
        stopping = asyncio.ensure_future(self.consumer.stop())
        try:
            await asyncio.wait({stopping}, timeout=_LEAVE if leave else 0)
        finally:
            await end(self.consumer._client)  # noqa: SLF001 - there is no public way
            await asyncio.wait({stopping}, timeout=_LEAVE)
            await cancel_and_wait(stopping)
            await self.cluster.close()


class KafkaSource:
    """A topic from which orders are taken, as a member of a consumer group. See ``Source``."""

    keeps_refusals = False

    def __init__(self, target: Target, address: BrokerAddress, reader: Reader) -> None:
        self.where = str(address)
        self._target = target
        self._address = address
        self._reader = reader
        self._group = address.parameters.get("group") or reader.group
        self._start = address.parameters.get("start")
        if self._start is not None and self._start not in _STARTS:
            raise ConfigError(
                f"{self.where}: start={self._start!r:.60}: write start=earliest or start=latest"
            )
        options_of(target)
        session_of(target)
        self._session: _Session | None = None
        self._one_by_one = False
        """Whether a fetch asks for a single batch, so that a damaged one takes no others with it."""

    async def open(self) -> Sequence[Requirement]:
        """Join the group. See ``Source.open``."""
        if self._session is not None:
            return self._session.requirements
        async with _connection(self._target, self.where, self._reader) as cluster:
            topic, begins, requirements = await self.examine(cluster)
            if begins and await cluster.commit(self._group, self._address.place, begins, _NOTE + topic.id):
                # A process that ends before its first message does not leave the beginning to the next one.
                begins = {}
            session = await self._join(topic.id, begins)
        session.requirements = requirements
        self._session = session
        return requirements

    async def take(self, limit: int, wait: float) -> Sequence[Delivery]:
        """Return the next deliveries. See ``Source.take``."""
        async with self._membership() as session:
            try:
                return await session.take(limit, wait)
            except kafka_errors.CorruptRecordException as fault:
                raise await self._damage(session, fault) from fault

    async def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Commit the offsets up to which everything is acknowledged. See ``Source.acknowledge``."""
        async with self._membership() as session:
            for delivery in deliveries:
                delivery.receipt.is_done = True
            await session.commit()

    async def refuse(self, delivery: Delivery, why: str) -> None:  # noqa: ARG002 - the interface
        """Raise ``ConfigError``: Kafka keeps no dead letters."""
        raise ConfigError(
            f"{self.where}: Kafka has no dead letters; the store keeps what makegood refuses ({why})"
        )

    async def pause(self) -> None:
        """Fetch nothing more, and remain a member of the group. See ``Source.pause``."""
        async with self._membership() as session:
            session.pause()

    async def backlog(self) -> Backlog:
        """Return how many messages the group has not acknowledged. See ``Source.backlog``."""
        place = self._address.place
        async with _connection(self._target, self.where, self._reader) as cluster:
            leaders = (await cluster.topic(place)).leaders
            firsts = await cluster.offsets(place, leaders, EARLIEST)
            lasts = await cluster.offsets(place, leaders, LATEST)
            offsets = await cluster.group_offsets(self._group, place, leaders)
        begins = {part: max(first, offsets.get(part, (first, ""))[0]) for part, first in firsts.items()}
        return Backlog(sum(max(0, last - begins[part]) for part, last in lasts.items()))

    async def close(self) -> None:
        """Leave the group. See ``Source.close``."""
        session, self._session = self._session, None
        if session is not None:
            await session.close(leave=True)

    @asynccontextmanager
    async def _membership(self) -> AsyncIterator[_Session]:
        """The session; after a fault of it there is none."""
        session = self._session
        if session is None:
            raise BrokerUnavailableError(f"{self.where} is not open")
        try:
            yield session
        except Exception as fault:
            self._session = None
            await session.close(leave=isinstance(fault, ConfigError))
            raise explain(fault, self._target, self.where) from fault

    async def examine(self, cluster: Cluster) -> tuple[Topic, dict[int, int], list[Requirement]]:
        """Return the topic, the offsets at which the group begins where it has none, and what was checked.

        Those of an older topic of this name are none.
        """
        place = self._address.place
        topic = await cluster.topic(place)
        leaders, note = topic.leaders, _NOTE + topic.id
        offsets = await cluster.group_offsets(self._group, place, leaders)
        foreign = [part for part, (_, said) in offsets.items() if said.startswith(_NOTE) and said != note]
        if not offsets and self._start is None:
            raise ConfigError(
                f"{self.where}: the group {self._group!r} is new to this topic (or was away until Kafka forgot it), so say where it begins: "
                "?start=earliest, with the oldest message that is there, or ?start=latest, with those that come from now on"
            )
        wanted = foreign if offsets else leaders
        at = EARLIEST if offsets else _STARTS[str(self._start)]
        begins = await cluster.offsets(place, {part: leaders[part] for part in wanted}, at)
        settings = await cluster.settings(place)
        requirements = requirements_of(place, topic, settings, read=True)
        return (
            topic,
            begins,
            requirements + _requirements_of_ids(topic, settings, has_start=self._start is not None),
        )

    async def _join(self, topic_id: str, begins: dict[int, int]) -> _Session:
        cluster = Cluster(self._target, f"makegood-{self._reader.name}")
        patience = int(session_of(self._target) * 1000)
        consumer = AIOKafkaConsumer(
            **cluster.options,
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            check_crcs=True,
            fetch_max_wait_ms=500,
            fetch_max_bytes=1 if self._one_by_one else MOST_BYTES,
            max_partition_fetch_bytes=1 if self._one_by_one else MIB,
            session_timeout_ms=patience,
            rebalance_timeout_ms=patience,
            heartbeat_interval_ms=patience // 5,
            request_timeout_ms=patience + int(ANSWER * 1000),  # to join takes as long as a rebalance
            max_poll_interval_ms=_FOREVER,  # a pause is no reason to leave
        )
        session = _Session(self._address.place, topic_id, begins, cluster, consumer)
        creates_nothing(consumer._client)  # noqa: SLF001 - there is no public way
        try:
            await cluster.connect()
            await consumer.start()
            consumer.subscribe([self._address.place], listener=_Listener(session))
        except BaseException:
            await session.close(leave=False)
            raise
        return session

    async def _damage(self, session: _Session, fault: Exception) -> MakegoodError:
        """Return the error for a batch whose checksum is wrong.

        aiokafka delivers none of the batches before it that came with the same fetch, so they are fetched
        one by one from now on.
        """
        if not self._one_by_one:
            self._one_by_one = True
            return BrokerUnavailableError(
                f"{self.where}: a batch is damaged ({fault}); makegood looks for it"
            )
        places = [
            f"partition {tp.partition} at offset {await session.consumer.position(tp)}"
            for tp in session.consumer.assignment()
            if str(tp) in str(fault)
        ]
        return ConfigError(
            f"{self.where}: the batch in {' or '.join(places)} is damaged, its checksum is wrong. Restore the broker's disk, or step over "
            f"it while no process reads: kafka-consumer-groups.sh --group {self._group} --topic {self._address.place} --reset-offsets "
            "--shift-by 1 --execute"
        )


class KafkaSender:
    """Sends to the topics of a cluster. See ``Sender``."""

    def __init__(self, target: Target) -> None:
        self.where = target.where
        self._target = target
        self._producer: Any = None
        self._opening = asyncio.Lock()

    async def send(self, place: str, event: OutgoingEvent, timeout: float) -> None:
        """Send an event with its task's id as the key. See ``Sender.send``."""
        where = f"{self.where}/{place}"
        producer, began = None, False
        try:
            async with asyncio.timeout(timeout):
                producer = await self._open()
                if producer.client.cluster.partitions_for_topic(place) is None:
                    await self._look_up(place)
                began = True
                await producer.send_and_wait(
                    place,
                    event.body,
                    key=event.task.encode(),
                    headers=[("ce_id", event.id.encode()), ("content-type", event.content_type.encode())],
                )
        except (kafka_errors.KafkaError, OSError, TimeoutError, ConfigError, BrokerUnavailableError) as fault:
            if isinstance(fault, _REFUSALS):
                is_missing = isinstance(fault, kafka_errors.UnknownTopicOrPartitionError)
                error = MissingPlaceError if is_missing else RefusedTargetError
                raise error(str(explain(fault, self._target, where))) from fault
            await self._drop(producer)  # what it holds must not be sent later
            reason = explain(fault, self._target, where)
            raise (DeliveryError if began else UnsentError)(str(reason)) from reason

    async def close(self) -> None:
        """Let go of the broker."""
        await self._drop(self._producer)

    async def _open(self) -> Any:
        async with self._opening:
            if self._producer is None:
                cluster = Cluster(self._target, "makegood-notices")
                try:
                    await cluster.connect()  # for what is said of a failure: aiokafka's producer says nothing
                finally:
                    await cluster.close()
                try:
                    self._producer = await self._start(cluster.options, idempotent=True)
                except _NOT_IDEMPOTENT:
                    self._producer = await self._start(cluster.options, idempotent=False)
            return self._producer

    async def _start(self, options: Mapping[str, Any], *, idempotent: bool) -> Any:
        producer = AIOKafkaProducer(
            **options,
            acks="all",
            enable_idempotence=idempotent,
            linger_ms=0,
            max_request_size=_MOST_SENT,
            request_timeout_ms=int(2 * ANSWER * 1000),
        )
        creates_nothing(producer.client)
        try:
            await producer.start()
        except BaseException:
            await _stop(producer)
            raise
        return producer

    async def _look_up(self, place: str) -> None:
        """Raise aiokafka's error for a topic to which nothing can be sent: its producer waits for it."""
        cluster = Cluster(self._target, "makegood-notices")
        try:
            await cluster.connect()
            await cluster.topic(place)
        finally:
            await cluster.close()

    async def _drop(self, producer: Any) -> None:
        if producer is not None and self._producer is producer:
            self._producer = None
            await _stop(producer)


async def _stop(producer: Any) -> None:
    await end(producer.client)
    stopping = asyncio.ensure_future(producer.stop())
    await asyncio.wait({stopping}, timeout=_LEAVE)
    await cancel_and_wait(stopping)


def _delivery(record: Any, topic_id: str, mark: _Mark) -> Delivery:
    headers = {}
    for name, value in record.headers:
        with suppress(UnicodeDecodeError):
            headers[name] = (value or b"").decode()
    own = f"{topic_id or record.topic}/{record.partition}/{record.offset}/{record.timestamp}"
    if record.key is not None:
        with suppress(UnicodeDecodeError):
            headers.setdefault("kafka_key", record.key.decode())
    return Delivery(
        receipt=mark,
        body=record.value or b"",
        id=headers.get("ce_id") or own,
        headers=headers,
        kind=headers.get("ce_type", ""),
        sent_at=record.timestamp / 1000 if record.timestamp >= 0 else None,
        fault=""
        if record.value is not None
        else "it has no value: to Kafka, a mark that deletes what has its key",
    )


def _requirements_of_ids(
    topic: Topic, settings: Mapping[str, str] | None, *, has_start: bool
) -> Requirements:
    findings = Requirements()
    if not topic.id:
        what = "this broker is older than Kafka 2.8 and gives topics no ids: if the topic is deleted, created again and filled with the same times, its messages are taken for known ones"
        findings.add("warning", what, "upgrade the brokers")
    retention = (settings or {}).get("retention.ms", "0")
    if has_start and (not retention.isdecimal() or int(retention) > _REMEMBERED):
        what = "start= is said, and messages are kept for more than 14 days: should Kafka forget the group, older ones would become orders again"
        findings.add("warning", what, "leave out start= once the group has begun to read")
    return findings
