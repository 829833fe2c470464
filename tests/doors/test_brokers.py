"""``makegood broker``: what waits, what is wrong with a broker, and which rights it grants; in a real process where a broker is none."""

import asyncio
import json
from collections.abc import Mapping, Sequence

import pytest

from examples.orders.free_port import free_port
from makegood.base.clock import SystemClock
from makegood.brokers import BrokerAddress, Reader, Target, address_of
from makegood.brokers.protocol import Answers
from makegood.cli import broker_checks
from makegood.messaging.source_report import SourceReport
from makegood.store import open_store
from makegood.store.views import SourceInfo
from tests.conformance.builders import draft, info
from tests.doors.conftest import Shop


def test_without_brokers_each_command_says_what_to_write(shop: Shop) -> None:
    shop.done("store", "migrate")
    empty = shop.call("broker", "list")
    assert (empty.exit_code, "no process takes orders from a broker" in empty.output) == (0, True)
    assert shop.json("broker", "list") == {"sources": [], "receivers": []}
    nothing = shop.call("broker", "check")
    assert (nothing.exit_code, "[brokers] in makegood.toml, or MAKEGOOD_BROKERS_NAME" in nothing.stderr) == (
        2,
        True,
    )
    unknown = shop.call("broker", "permissions", "main")
    assert (unknown.exit_code, "neither a broker of the settings" in unknown.stderr) == (2, True)
    absent = shop.call("inbox", "--from", "amqp:main/orders")
    assert (absent.exit_code, "which the settings of this process lack" in absent.stderr) == (2, True)
    table = shop.call("inbox", "--from", "amqp:main/orders", "--ddl")
    assert (table.exit_code, "a broker has no table" in table.stderr) == (2, True)


@pytest.mark.parametrize("shop_on", ["shop", "shop_on_postgres"])
def test_more_notices_than_are_counted_are_shown_as_more(
    shop_on: str, request: pytest.FixtureRequest
) -> None:
    """The count ends at 1,001, which is not the number of tasks."""
    shop: Shop = request.getfixturevalue(shop_on)
    shop.done("store", "migrate")

    async def submit() -> None:
        store = open_store(shop.url)
        await store.open()
        try:
            await store.tasks.submit([draft(n, reply_to="amqp:main/notices") for n in range(1, 1006)])
        finally:
            await store.close()

    asyncio.run(submit())
    assert "amqp:main   more than 1,000 " in shop.done("broker", "list")
    [receiver] = shop.json("broker", "list")["receivers"]
    assert (receiver["waiting"], receiver["dead"]) == (1001, 0)


def test_a_broker_in_place_of_a_queue_leads_to_the_queue(shop: Shop) -> None:
    """Each command on queues names the one that has what is taken from there."""
    shop.done("store", "migrate")
    main = {"MAKEGOOD_BROKERS_MAIN": "amqp://shop:hunter-2@127.0.0.1:1/"}
    for words in (
        ("list", "{}"), ("list", "{}", "--dead"), ("send", "{}", "1"), ("receive", "{}"), ("replay", "{}", "--all"), ("drop", "{}", "--all"),
        ("ack", "{}", "1.1"),
    ):  # fmt: skip
        for name, says in (
            ("amqp:main/orders", "into queue amqp-main-orders, or"),
            ("amqp:main/orders?queue=orders", "`makegood queue list orders`"),
            ("amqp:main", "`makegood broker list`"),
            ("amqp://shop:hunter-2@host", "`makegood broker list`"),
        ):
            outcome = shop.call("queue", *(word.format(name) for word in words), **main)
            assert (outcome.exit_code, says in outcome.stderr) == (2, True), outcome.stderr
            assert "hunter-2" not in outcome.stdout + outcome.stderr
    bare = shop.call("queue", "list", "main", **main)
    assert (bare.exit_code, "main is a broker of the settings: `makegood broker list`" in bare.stderr) == (
        0,
        True,
    )


def test_running_sources_are_checked_as_they_are_read(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the parameters of their address and under their own name: a group that exists is not new to its topic."""
    shop.done("store", "migrate")
    source = SourceInfo("kafka:main/orders", "kafka-main-orders", parameters={"start": "earliest"}, group="g")
    checks: list[tuple[str, list[Mapping[str, str]], list[str]]] = []

    async def check(
        _: Target, sources: Sequence[BrokerAddress], places: Sequence[str], reader: Reader
    ) -> Answers:
        checks.append((reader.group, [each.parameters for each in sources], list(places)))
        return []

    async def register() -> None:
        store = open_store(shop.url)
        await store.open()
        try:
            for name in ("a-1", "a-2"):
                await store.nodes.register(info(name, ("inbox",), 3600.0, sources=(source,)))
        finally:
            await store.close()

    asyncio.run(register())
    monkeypatch.setattr(broker_checks, "check", check)
    main = {"MAKEGOOD_BROKERS_MAIN": "kafka://127.0.0.1:1"}
    assert shop.call("broker", "check", MAKEGOOD_REPLY_TO_BROKERS="kafka:main/notices", **main).exit_code == 0
    assert checks == [("g", [{"start": "earliest"}], []), ("makegood-check", [], ["notices"])]
    checks.clear()
    assert shop.call("broker", "check", "kafka:main/orders", "kafka:main/others", **main).exit_code == 0
    assert [names.rpartition("-kafka-")[2] for names, _, _ in checks] == ["g", "main-others"]
    checks.clear()
    bare = shop.call("broker", "check", "kafka:main/orders", "--to", "a", "--to", "kafka:main/b", **main)
    assert (bare.exit_code, [places for _, _, places in checks]) == (0, [[], ["a", "b"]])
    url = shop.call("broker", "check", "kafka:main/orders", "--to", "tls://me:hunter-2@host/x", **main)
    assert (url.exit_code, "hunter-2" in url.output + url.stderr) == (2, False)
    alone = shop.call("broker", "check", "--to", "a", **main)
    assert (alone.exit_code, "--to='a': write an address at a broker" in alone.stderr) == (2, True)


def test_a_check_of_places_opens_the_store_only_if_their_readers_have_names_at_the_broker(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    visits: list[str] = []

    async def check(_: Target, sources: Sequence[BrokerAddress], __: Sequence[str], ___: Reader) -> Answers:
        visits.extend(each.kind for each in sources)
        return []

    def looked(*_: object) -> tuple[list[object], str]:
        visits.append("store")
        return [], "store-1"

    monkeypatch.setattr(broker_checks, "check", check)
    monkeypatch.setattr(broker_checks, "run_read", looked)
    urls = {
        "amqp": "amqp://127.0.0.1:1/",
        "sqs": "sqs://eu-west-1",
        "kafka": "kafka://127.0.0.1:1",
        "nats": "nats://127.0.0.1:1",
    }
    for kind, url in urls.items():
        done = shop.call("broker", "check", f"{kind}:main/orders", MAKEGOOD_BROKERS_MAIN=url)
        assert done.exit_code == 0, done.stderr
    assert visits == ["amqp", "sqs", "store", "kafka", "store", "nats"]


def test_a_broker_that_is_away_is_an_error_with_a_remedy_and_no_password(shop: Shop) -> None:
    """The command, the doctor and the rights show where the broker is, and never the password."""
    shop.done("store", "migrate")
    main = {"MAKEGOOD_BROKERS_MAIN": f"amqp://shop:hunter-2@127.0.0.1:{free_port()}/"}
    check = shop.call("broker", "check", "amqp:main/orders", **main)
    assert (check.exit_code, check.stdout.count("amqp:main: ")) == (1, 1), "the broker is asked once"
    doctor = shop.call("doctor", "--json", **main)
    report = json.loads(doctor.stdout)
    assert [finding["severity"] for finding in report["findings"] if finding["check"] == "broker"] == [
        "error"
    ]
    settings = {row["name"]: row["value"] for row in report["settings"]}
    assert settings["brokers"]["main"].startswith("amqp://shop:•••@127.0.0.1:")
    rights = shop.call("broker", "permissions", "amqp:main/orders", "--to", "notices", **main)
    assert "set_permissions" in rights.stdout
    places = ("--from", "amqp:main/orders", "--to", "amqp:main/notices")
    assert shop.call("broker", "permissions", "main", *places, **main).stdout == rights.stdout
    wrong = shop.call("broker", "check", "kafka:main/orders", **main)
    assert (wrong.exit_code, "'main' is RabbitMQ" in wrong.stderr) == (2, True)
    for call in (check, doctor, rights, wrong):
        assert "hunter-2" not in call.stdout + call.stderr


def test_places_that_nobody_reads_are_checked_as_their_inbox_would_read_them(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the name of its group, so that one that has begun needs no ?start=."""
    shop.done("store", "migrate")
    names: list[str] = []

    async def check(_: Target, __: Sequence[BrokerAddress], ___: Sequence[str], reader: Reader) -> Answers:
        names.append(reader.group)
        return []

    monkeypatch.setattr(broker_checks, "check", check)
    main = {"MAKEGOOD_BROKERS_MAIN": "kafka://127.0.0.1:1"}
    addresses = ("kafka:main/orders", "kafka:main/orders?queue=orders")
    assert shop.call("broker", "check", *addresses, **main).exit_code == 0

    async def groups() -> list[str]:
        store = open_store(shop.url)
        await store.open()
        try:
            clock = SystemClock()
            reports = [
                SourceReport(store, address, address.queue, clock) for address in map(_kafka, addresses)
            ]
            return [report.group for report in reports]
        finally:
            await store.close()

    assert names == asyncio.run(groups())


def test_a_check_refuses_a_queue_that_a_source_would_refuse(shop: Shop) -> None:
    outcome = shop.call(
        "broker", "check", "amqp:main/orders?queue=a b", MAKEGOOD_BROKERS_MAIN="amqp://127.0.0.1:1"
    )
    assert (outcome.exit_code, "queue name 'a b' is not allowed" in outcome.stderr) == (2, True)


def _kafka(text: str) -> BrokerAddress:
    return address_of(text, {"kafka"})


def test_a_broker_whose_check_fails_by_itself_hides_no_other(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.done("store", "migrate")

    async def check(target: Target, *_: object) -> Answers:
        if target.name == "main":
            raise ValueError("a fault of the client")
        return []

    monkeypatch.setattr(broker_checks, "check", check)
    urls = {"MAKEGOOD_BROKERS_MAIN": "nats://127.0.0.1:1", "MAKEGOOD_BROKERS_OTHER": "nats://127.0.0.1:1"}
    outcome = shop.call("doctor", **urls)
    assert (outcome.exit_code, outcome.stderr) == (1, "")
    assert "nats:main: unexpected ValueError: a fault of the client" in outcome.stdout
    assert "nats:other: it answers" in outcome.stdout
