"""Kafka: librdkafka's mock cluster, tansu, or a real one.

The mock cluster forgets at a restart, and knows no users; tansu forgets nothing. ``MAKEGOOD_TEST_KAFKA=HOST:PORT`` names a real cluster without a
login, on which the suites run as well.
"""

import asyncio
import json
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its own documented import

from examples.orders.private_servers import KafkaServer, ServerProcess
from makegood.base.sizes import MIB
from makegood.brokers import BrokerAddress, Target, address_of
from makegood.errors import ConfigError
from tests.brokers.rig import Draft, Received
from tests.brokers.rigs.private_server import PrivateProgram, ServerRig

_WAIT = 60.0
_TOPIC_DENIED = 29
_SILENT = 1.0


class KafkaRig(ServerRig[ServerProcess]):
    """librdkafka's mock cluster, with one broker; a topic has one partition."""

    kind = "kafka"
    gives_ids = True
    takes_ids = True
    takes_empty = True
    keeps_order = True
    durable_after = 0.0
    takes_bytes = True
    has_connection = True
    keeps_over_restart = False
    survives_a_kill_while_written_to = True
    has_dead_letters = False
    has_single_acknowledgements = False
    checks_rights = True
    has_proxy = False
    redelivery = 15.0
    """The session's timeout, and the time to share out the partitions."""
    most_bytes = 1_000_000
    secrets: Sequence[str] = ()

    def __init__(self) -> None:
        script = Path(__file__).with_name("mock_kafka.py")
        self.server = PrivateProgram(
            "kafka", lambda _, port: [sys.executable, str(script), str(port), self._control]
        )
        self.port = self.server.port
        self._control = str(self.server.folder / "control")
        self._places: dict[str, int] = {}

    def start(self) -> None:
        """Start the cluster; all that it had is gone, except that its topics are there."""
        Path(self._control).unlink(missing_ok=True)
        self.server.start()
        for place, partitions in self._places.items():
            self.command("topic_create", place, partitions, 1)

    def command(self, *words: str | int) -> None:
        """Have the cluster carry out a function of librdkafka's mock API."""
        with socket.socket(socket.AF_UNIX) as way:
            way.settimeout(_WAIT)
            way.connect(self._control)
            way.sendall(json.dumps(words).encode() + b"\n")
            assert way.recv(16) == b"ok\n"

    @property
    def target(self) -> Target:
        """The cluster as the settings name it."""
        return Target("kafka", "main", f"kafka://127.0.0.1:{self.port}?session=8")

    async def declare(self, place: str, partitions: int = 1) -> BrokerAddress:
        """Create a topic."""
        self._places[place] = partitions
        self.command("topic_create", place, partitions, 1)
        return address_of(f"kafka:main/{place}?start=earliest&group={place}", {"kafka"})

    async def delete(self, place: str) -> None:
        """Delete a topic."""
        del self._places[place]
        self.command("topic_delete", place)

    async def publish(self, place: str, drafts: Sequence[Draft], **more: Any) -> None:
        """Produce records, with the id in the header ``ce_id``."""
        await asyncio.to_thread(self._produce, place, drafts, more)

    def _produce(self, place: str, drafts: Sequence[Draft], more: dict[str, Any]) -> None:
        # The mock cluster keeps 5 MiB of a partition, counted as they are sent: compressed.
        settings = {
            "bootstrap.servers": self._server,
            "linger.ms": 0,
            "message.max.bytes": 2 * MIB,
            "compression.type": "gzip",
            **more.pop("settings", {}),
        }
        producer = Producer(settings)
        for draft in drafts:
            headers: list[tuple[str, str | bytes | None]] = list(draft.headers.items())
            headers += [("ce_id", draft.id)] if draft.id is not None else []
            producer.produce(place, draft.body, headers=headers, **more)
        assert producer.flush(_WAIT) == 0

    async def waiting(self, address: BrokerAddress, group: str) -> int:
        """Return the end of each partition less what the group has committed."""
        return await asyncio.to_thread(self._lag, address.place, address.parameters.get("group", group))

    def _lag(self, place: str, group: str) -> int:
        consumer = self._consumer(group)
        try:
            lag = 0
            partitions = [TopicPartition(place, n) for n in range(self._places[place])]
            for part in consumer.committed(partitions, timeout=_WAIT):
                low, high = self._ends(consumer, part)
                lag += high - (part.offset if part.offset >= 0 else low)
            return lag
        finally:
            consumer.close()

    async def read(self, place: str) -> list[Received]:
        """Read a topic from its beginning."""
        return await asyncio.to_thread(self._read, place)

    def _read(self, place: str) -> list[Received]:
        consumer = self._consumer("rig")
        try:
            result = []
            for number in range(self._places[place]):
                part = TopicPartition(place, number, 0)
                low, high = self._ends(consumer, part)
                consumer.assign([TopicPartition(place, number, low)])
                for _ in range(low, high):
                    message = consumer.poll(_WAIT)
                    assert message is not None
                    pairs = cast("list[tuple[str, bytes | None]]", message.headers() or [])
                    headers = {name: (value or b"").decode() for name, value in pairs}
                    key = message.key()
                    result.append(
                        Received(
                            message.value() or b"",
                            headers.get("ce_id"),
                            None if key is None else key.decode(),
                            headers.get("content-type"),
                        )
                    )
            return result
        finally:
            consumer.close()

    def _ends(self, consumer: Consumer, part: TopicPartition) -> tuple[int, int]:
        """Return the offsets of a partition's first message and of the next one."""
        low, high = consumer.get_watermark_offsets(part, timeout=_WAIT)
        return low, high

    def _consumer(self, group: str) -> Consumer:
        return Consumer(
            {"bootstrap.servers": self._server, "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        )  # fmt: skip

    @property
    def _server(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def dead_letters(self, place: str) -> list[bytes]:
        """Kafka has none."""
        raise AssertionError(place)

    async def disconnect(self, place: str) -> None:
        """Break all connections."""
        self.command("sever")

    async def revoke(self) -> None:
        """Deny all topics, as Kafka does without the right to read: the mock cluster knows no users."""
        for place in self._places:
            self.command("topic_set_error", place, _TOPIC_DENIED)

    async def grant(self) -> None:
        """Allow them again."""
        for place in self._places:
            self.command("topic_set_error", place, 0)


class LastingKafkaRig(KafkaRig):
    """A cluster that keeps what it has over a restart."""

    keeps_over_restart = True
    checks_rights = False

    def __init__(self) -> None:
        self._places = {}

    def _delete(self, places: list[str]) -> None:
        admin = self._admin()  # kept until the futures are done, which end with it
        for future in admin.delete_topics(places).values() if places else ():
            future.result(_WAIT)

    def _create(self, place: str, partitions: int) -> None:
        admin = self._admin()
        for future in admin.create_topics([NewTopic(place, partitions, 1)]).values():
            future.result(_WAIT)

    async def declare(self, place: str, partitions: int = 1) -> BrokerAddress:
        """Create a topic."""
        self._places[place] = partitions
        await asyncio.to_thread(self._create, place, partitions)
        return address_of(f"kafka:main/{place}?start=earliest&group={place}", {"kafka"})

    async def delete(self, place: str) -> None:
        """Delete a topic, and wait until it is gone."""
        del self._places[place]
        await asyncio.to_thread(self._delete, [place])

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._server})


class TansuRig(LastingKafkaRig):
    """The broker of the demo. Its connections cannot be broken one by one."""

    has_connection = False

    def __init__(self) -> None:
        super().__init__()
        self.server = KafkaServer()

    def start(self) -> None:
        """Start it, with all that it had."""
        self.server.start()

    @property
    def target(self) -> Target:
        """The broker as the settings name it."""
        return Target("kafka", "main", f"kafka://{self._server}?session=6")

    async def disconnect(self, place: str) -> None:
        """Break all connections: only a restart does."""
        await asyncio.to_thread(self.kill)
        await asyncio.to_thread(self.start)

    def _ends(self, consumer: Consumer, part: TopicPartition) -> tuple[int, int]:
        """Read on to the end: tansu says that a partition ends behind the first message of its last batch, whose rest comes with it."""
        low, high = super()._ends(consumer, part)
        consumer.assign([TopicPartition(part.topic, part.partition, low)])
        end = low
        while (message := consumer.poll(_WAIT if end < high else _SILENT)) is not None:
            end = cast("int", message.offset()) + 1
        assert end >= high
        return low, end

    def command(self, *words: str | int) -> None:
        """Skip the case."""
        pytest.skip("only the mock cluster fails on request")

    @property
    def _server(self) -> str:
        return f"127.0.0.1:{self.server.port}"


class RealKafkaRig(LastingKafkaRig):
    """The cluster of ``MAKEGOOD_TEST_KAFKA``. It is not ours: no case stops it."""

    redelivery = 30.0

    def __init__(self) -> None:
        super().__init__()
        self._address = os.environ.get("MAKEGOOD_TEST_KAFKA", "")

    def start(self) -> None:
        """Make sure that it is there."""
        if not self._address:
            raise ConfigError(
                "no MAKEGOOD_TEST_KAFKA=HOST:PORT: retention and transactions are shown by a real Kafka only"
            )
        self._admin().list_topics(timeout=_WAIT)

    def kill(self) -> None:
        """Skip the case."""
        pytest.skip("the cluster of MAKEGOOD_TEST_KAFKA is not ours to stop")

    stop = resume = kill

    def close(self) -> None:
        """Delete the topics of the run."""
        self._delete(list(self._places))

    @property
    def target(self) -> Target:
        """The cluster as the settings name it."""
        return Target("kafka", "main", f"kafka://{self._address}?session=10")

    async def disconnect(self, place: str) -> None:
        """Skip the case."""
        self.kill()

    def command(self, *words: str | int) -> None:
        """Skip the case: only the mock cluster fails on request."""
        self.kill()

    @property
    def _server(self) -> str:
        return self._address
