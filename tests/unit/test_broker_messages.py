"""Messages about brokers name each place once, end each sentence once, and say what to write and where."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType
from unittest.mock import Mock, create_autospec

import aiormq.exceptions
import pytest
from aiokafka import errors as kafka_errors
from pamqp import commands

from makegood import Options
from makegood.brokers import (
    BrokerAddress,
    MissingPlaceError,
    OutgoingEvent,
    Reader,
    Target,
    UnsentError,
    check,
    kafka_cluster,
    open_source,
    redis_connection,
)
from makegood.brokers.kafka_cluster import explain
from makegood.brokers.kinds import target_for, targets_of
from makegood.brokers.protocol import failed_send
from makegood.brokers.rabbitmq import _publish
from makegood.brokers.rabbitmq_link import AmqpLink, place_of, problem
from makegood.errors import BrokerUnavailableError, ConfigError
from makegood.messaging.hosts import Hosts

ORDERS = BrokerAddress("amqp", "main", "orders", MappingProxyType({}))


def test_a_notice_that_was_not_sent_names_its_place_once() -> None:
    fault = BrokerUnavailableError("amqp:main/notices: Connection refused")
    assert (
        str(failed_send("amqp:main/notices", fault, began=False)) == "amqp:main/notices: Connection refused"
    )
    plain = failed_send("amqp:main/notices", TimeoutError("no answer"), began=True)
    assert str(plain) == "amqp:main/notices: no answer"


def test_what_rabbitmq_says_has_one_full_stop() -> None:
    place = place_of(Target("amqp", "main", "amqp://shop:secret@mq.example/"))
    refusal = aiormq.exceptions.ProbableAuthenticationError(
        "ACCESS_REFUSED. For details see the broker logfile."
    )
    text = str(problem(place, "amqp:main", refusal))
    assert text.endswith("see the broker logfile. Correct user and password in [brokers]")


def test_a_kafka_that_was_lost_on_the_way_is_out_of_reach() -> None:
    """Its client speaks of an attempt to send a request to a node which is not ready."""
    fault = kafka_errors.NodeNotReadyError(
        "Attempt to send a request to node which is not ready (node id 1)."
    )
    error = explain(fault, Target("kafka", "main", "kafka://mq.example"), "kafka:main/orders")
    assert type(error) is BrokerUnavailableError
    assert str(error) == "kafka:main/orders: a broker of the cluster cannot be reached"


NODE_AWAY = aiormq.exceptions.ChannelNotFoundEntity(
    "NOT_FOUND - home node 'b@mq' of durable queue 'orders' in vhost '/' is down or inaccessible"
)
"""What RabbitMQ 3.10.8 says in a cluster of two, when the one that has the queue was killed."""


@pytest.mark.parametrize(
    "fault",
    [
        NODE_AWAY,
        aiormq.exceptions.ChannelNotFoundEntity("NOT_FOUND - queue 'orders' in vhost '/' process is stopped by supervisor"),
        aiormq.exceptions.ChannelNotFoundEntity("NOT_FOUND - queue 'orders' in vhost '/' has crashed and failed to restart"),
        aiormq.exceptions.ChannelNotFoundEntity("NOT_FOUND - failed to perform operation on queue 'orders' in vhost '/' due to timeout"),
    ],
    ids=str,
)  # fmt: skip
def test_a_queue_whose_node_is_away_is_no_queue_that_is_missing(fault: Exception) -> None:
    place = place_of(Target("amqp", "main", "amqp://mq.example/"))
    away = problem(place, str(ORDERS), fault)
    missing = aiormq.exceptions.ChannelNotFoundEntity("NOT_FOUND - no queue 'orders' in vhost '/'")
    assert type(away) is BrokerUnavailableError
    assert "Declare the queue" not in str(away)
    assert type(problem(place, str(ORDERS), missing)) is ConfigError


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (False, MissingPlaceError, "there is no such queue: declare it, or correct its name"),
        (NODE_AWAY, UnsentError, "is down or inaccessible"),
        (True, UnsentError, "which is there"),
    ],
)
async def test_a_notice_is_given_up_only_if_there_is_no_queue(
    answer: bool | Exception, kind: type[Exception], text: str
) -> None:
    """In a cluster one comes back, too, while the node that has the queue is away."""
    link = create_autospec(AmqpLink, instance=True)
    link.publish.side_effect = aiormq.exceptions.PublishError(
        Mock(delivery=commands.Basic.Return(312, "NO_ROUTE", "", "notices")), Mock()
    )
    link.exists.side_effect = [answer]
    with pytest.raises(kind, match=text) as error:
        await _publish(link, "amqp:main/notices", "notices", OutgoingEvent("e1", "task-1", b"{}"))
    assert type(error.value) is kind


def test_a_broker_that_the_settings_lack_comes_with_the_lines_to_add() -> None:
    with pytest.raises(
        ConfigError, match=r"add it to makegood\.toml, \[brokers\] main = .*, or set MAKEGOOD_BROKERS_MAIN"
    ):
        target_for(ORDERS, {})


def test_a_scheme_of_no_broker_and_an_unknown_parameter_are_refused_in_plain_words() -> None:
    with pytest.raises(ConfigError, match="'http' is not the scheme of a broker: write one of amqp://"):
        targets_of({"main": "http://mq.example"})
    address = BrokerAddress("amqp", "main", "orders", MappingProxyType({"x": "1"}))
    with pytest.raises(ConfigError, match="there is no parameter 'x'; an address takes dead-letters"):
        open_source(address, targets_of({"main": "amqp://mq.example"}), Reader("g", "one"))


def test_a_reply_to_that_is_not_allowed_comes_with_the_setting() -> None:
    hosts = Hosts.of(Options())
    with pytest.raises(ConfigError, match=r'add reply_to_brokers = "amqp:main/notices" to makegood\.toml'):
        hosts.check("amqp:main/notices")
    with pytest.raises(ConfigError, match=r'add webhook_hosts = "shop\.example" to makegood\.toml'):
        hosts.check("https://shop.example:8443/told")


def test_a_reply_to_that_is_not_allowed_is_appended_to_those_that_are() -> None:
    options = Options(
        brokers={"main": "amqp://mq.example"}, reply_to_brokers="amqp:main/notices", webhook_hosts="a.example",
        webhook_secret="whsec_" + "A" * 32,
    )  # fmt: skip
    hosts = Hosts.of(options)
    with pytest.raises(
        ConfigError, match=r"it lists amqp:main/notices: append amqp:main/missing after a space$"
    ):
        hosts.check("amqp:main/missing")
    with pytest.raises(ConfigError, match=r"it lists a\.example: append shop\.example after a space$"):
        hosts.check("https://shop.example/told")


@asynccontextmanager
async def server(greeting: bytes | None) -> AsyncIterator[int]:
    """The port of a server that says one thing to each that connects, whatever it wants; None: it hangs up."""
    connections: list[asyncio.Task[None] | None] = []

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(asyncio.current_task())
        if greeting is None:
            await reader.read(1)
        else:
            writer.write(greeting)
            with suppress(ConnectionError):
                await reader.read()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as listener:
        yield listener.sockets[0].getsockname()[1]
        await asyncio.gather(*filter(None, connections))


@pytest.mark.parametrize(
    ("kind", "scheme", "greeting", "text"),
    [
        ("amqp", "amqps", b"AMQP\x00\x00\x09\x01", "does not speak TLS: write amqp://, or the port for TLS \\(5671\\)$"),
        ("redis", "rediss", b"-ERR\r\n", "does not speak TLS: write redis://, or the port for TLS$"),
        ("redis", "redis", b'INFO {"server_id":"N"}\r\n', "^redis:main: what answers there is not Redis: correct host and port$"),
    ],
)  # fmt: skip
async def test_a_url_that_leads_to_another_port_is_to_be_corrected(
    kind: str, scheme: str, greeting: bytes, text: str
) -> None:
    async with server(greeting) as port:
        target = Target(kind, "main", f"{scheme}://127.0.0.1:{port}/")
        with pytest.raises(ConfigError, match=text):
            await check(target, [], ["notices"], Reader("g", "one"))


@pytest.mark.parametrize("greeting", [b"", None], ids=["silence", "hang-up"])
@pytest.mark.parametrize(("kind", "scheme"), [("redis", "rediss"), ("kafka", "kafka+tls")])
async def test_a_port_that_may_not_speak_tls_is_named_as_such(
    kind: str, scheme: str, greeting: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis answers nothing to the beginning of TLS, and Kafka hangs up."""
    for module in (redis_connection, kafka_cluster):
        monkeypatch.setattr(module, "ANSWER", 0.5)
    async with server(greeting) as port:
        for each, is_hint in ((scheme, True), (kind, False)):
            target = Target(kind, "main", f"{each}://127.0.0.1:{port}/")
            with pytest.raises(BrokerUnavailableError) as outage:
                await check(target, [], ["notices"], Reader("g", "one"))
            assert (
                str(outage.value).endswith(f"; if that port does not speak TLS, write {kind}://") is is_hint
            )
