"""Fake services with the rules of the real ones take the keys of every preset: for the action, its retries and its undo."""

import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

import makegood as mg
from makegood import keys
from makegood.keys import Preset
from makegood.node.node import Node
from makegood.store.protocol import Store
from makegood.workflow.app import App
from tests.actors.conftest import QUIET
from tests.conformance.worlds import eventually

BOTH = ("scheduler", "agent")
PRESETS = {name: value for name, value in vars(keys).items() if isinstance(value, Preset) and name.isupper()}

UUID = "[0-9a-f]{8}-[0-9a-f]{4}-%s[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
RULES = {
    "PLAIN": r"[A-Za-z0-9_.\-/\[\]]+",
    "ADYEN": UUID % "4",
    "CHECKOUT": UUID % "4",
    "MOLLIE": UUID % "4",
    "KLARNA": UUID % "5",
    "WORLDLINE": r"[\x21-\x7e]{1,40}",
    "RAZORPAY": r"[A-Za-z0-9_ -]{4,36}",
    "SQUARE": ".{1,45}",
    "WISE": UUID % "[1-8]",
    "DYNAMODB": r"[^/]{1,36}",
    "AWS": r"[A-Za-z0-9_-]{1,64}",
    "GOOGLE": UUID % "4",
    "AZURE": UUID % "[1-8]",
    "SPARKPOST": r"[A-Za-z0-9._-]{1,255}",
    "EXPEDIA": r"[^<>()&]{3,28}",
    "PLAID": ".{1,50}",
    "QUICKBOOKS": ".{1,50}",
    "IETF": f'"{UUID % "[1-8]"}"',
}
"""What the services document of their keys beyond a length."""


class Service:
    """A service that looks at its keys as the real one does, and loses its first answer to each of them."""

    def __init__(self, name: str, preset: Preset) -> None:
        self.preset = preset
        self.rule = re.compile(RULES.get(name, ".+"))
        self.requests: dict[str, tuple[str, str]] = {}
        """By key: what was asked for, and of what."""
        self.first_sent: dict[str, str] = {}
        self.standing: Counter[str] = Counter()
        """How often the effect of each key is in place."""

    def send(self, path: str, body: str) -> str:
        """Carry a request out, once for each key."""
        call, preset = mg.current_call(), self.preset
        key = call.headers[preset.header] if preset.header is not None else call.key
        if len(key) > (preset.limit or 255) or not self.rule.fullmatch(key):
            raise mg.Permanent(f"400: {preset.service} does not take the key {key!r}")
        if preset.first_sent is not None:
            moment = call.headers[preset.first_sent]
            if datetime.now(UTC) - parsedate_to_datetime(moment) > timedelta(minutes=5):
                raise mg.Permanent(f"412: {moment} is too long ago")
            if self.first_sent.setdefault(key, moment) != moment:
                raise mg.Permanent(f"400: it was sent at {self.first_sent[key]}, not {moment}")
        if key in self.requests:
            if self.requests[key] != (path, body):
                raise mg.Permanent(f"422: the key {key!r} was used for {self.requests[key]}")
            return f"answer to {key}"
        self.requests[key] = path, body
        if path == "undo":
            self.standing[call.undoes or ""] -= 1
        else:
            self.standing[key] += 1
        raise ConnectionError("the answer is lost")


class Shop:
    """A workflow with long names, second steps, steps side by side and a step for each item."""

    def __init__(self, service: Service) -> None:
        self.fails = True
        self.app = App("shop")
        agent = self.app.agent("services")
        patient = mg.Recover(threshold=5, wait=0, extended=0)
        once = mg.Retry(tries=1)

        @agent.action(complete_within="30s", key=service.preset, retry=once, recover=patient)
        def charge_the_customer_of_an_order(order: str) -> str:
            return service.send("charge", order)

        @charge_the_customer_of_an_order.undo
        def refund(order: str, *, result: str | None) -> None:
            service.send("undo", order)

        @agent.action(complete_within="30s", key=service.preset, retry=once, recover=patient)
        async def book(order: str) -> str:
            return service.send("book", order)

        @book.probe
        async def find_booking(order: str) -> mg.Happened[str] | mg.NotHappened:
            undoes = mg.current_call().undoes
            return mg.Happened(order) if undoes in service.requests else mg.NOT_HAPPENED

        @book.undo
        async def cancel(order: str, *, result: str | None) -> None:
            service.send("undo", order)

        @agent.action(complete_within="30s", undo=mg.NOTHING)
        def lines(order: str) -> list[str]:
            return [f"{order}/{n}" for n in range(3)]

        @agent.action(complete_within="30s", undo=mg.NOTHING)
        def ship(order: str) -> None:
            if self.fails:
                raise mg.Permanent("sold out")

        @self.app.workflow
        def buy(order: str) -> None:
            charge_the_customer_of_an_order(order)
            mg.parallel(charge_the_customer_of_an_order(f"{order}, the second"), book(order))
            mg.each(lines(order), book)
            ship(order)

        self.buy: Any = buy


@pytest.mark.parametrize("name", sorted(PRESETS))
async def test_a_service_takes_every_key_and_what_was_done_is_undone_once(store: Store, name: str) -> None:
    """Two rounds: the first is undone, the second stays. Each answer is lost once."""
    service = Service(name, PRESETS[name])
    shop = Shop(service)
    async with Node(shop.app, store, roles=BOTH, options=QUIET) as node:
        task = await node.client.submit(shop.buy, "o1")
        with pytest.raises(mg.TaskUndone) as error:
            await task.result(timeout=60)
        assert (error.value.cause, set(service.standing.values())) == ("ship: sold out", {0})
        assert len(service.requests) == 12
        shop.fails = False
        await task.resubmit()
        await node.client.task(task.id).result(timeout=60)
        assert Counter(service.standing.values()) == {0: 6, 1: 6}
        assert len(service.requests) == 18
        status = await task.status()
        service_keys = {keys.service_key for step in status.steps if (keys := status.keys(step)) is not None}
        assert {key for key, times in service.standing.items() if times} <= service_keys
        for key in service.requests:  # support finds the task by what the service shows
            assert node.client.task(key).id == task.id
            word = key if service.preset.form == "plain" else key.upper()
            assert [view.id for view in await node.client.find(mg.Filter(word=word))] == [task.number]
    if service.preset.form != "plain":
        assert len({len(key) for key in service.requests}) == 1


async def test_new_code_does_not_change_the_key_of_a_step_that_was_sent(store: Store) -> None:
    """Form, limit and ``keeps`` stay with the step: the retry in a new version goes out under the key of the old one."""
    calls: list[tuple[str, datetime]] = []
    versions: list[str] = []

    def version(key: Preset, name: str) -> tuple[App, Any]:
        app = App("shop")
        agent = app.agent("services")

        @agent.action(
            complete_within="30s", key=key, retry=mg.Retry(tries=1), recover=mg.Recover(threshold=9, wait=0)
        )
        def charge(order: str) -> str:
            call = mg.current_call()
            calls.append((call.key, call.first_sent))
            versions.append(name)
            if name == "old":
                raise ConnectionError("the answer is lost")
            return "paid"

        @app.workflow
        def buy(order: str) -> str:
            return charge(order)

        @charge.undo
        def refund(order: str, *, result: str | None) -> None: ...

        return app, buy

    old, buy = version(keys.ADYEN, "old")
    new, _ = version(keys.KLARNA, "new")
    async with Node(old, store, roles=BOTH, options=QUIET) as node:
        task = await node.client.submit(buy, "o1")
        await eventually(lambda: len(calls) > 1, "a retry")
    async with Node(new, store, roles=BOTH, options=QUIET) as node:
        assert await node.client.task(task.id).result(timeout=60) == "paid"
    assert len(set(calls)) == 1, "the same key, and the same time"
    assert set(versions) == {"old", "new"}


async def test_the_first_time_is_the_same_for_every_attempt_and_new_for_an_undo_and_a_round(
    store: Store,
) -> None:
    calls: dict[str, list[datetime]] = {}
    app = App("shop")
    agent = app.agent("services")
    fails = True

    @agent.action(
        complete_within="30s", key="uuid", retry=mg.Retry(tries=1), recover=mg.Recover(threshold=9, wait=0)
    )
    def charge(order: str) -> str:
        return note(3)

    @charge.undo
    def refund(order: str, *, result: str | None) -> None:
        note(2)

    def note(times: int) -> str:
        call = mg.current_call()
        moments = calls.setdefault(call.key_as("plain").split("/", 1)[1], [])
        moments.append(call.first_sent)
        if len(moments) < times:
            raise ConnectionError("the answer is lost")
        return "done"

    @agent.action(complete_within="30s", undo=mg.NOTHING)
    def ship(order: str) -> None:
        if fails:
            raise mg.Permanent("sold out")

    @app.workflow
    def buy(order: str) -> None:
        charge(order)
        ship(order)

    async with Node(app, store, roles=BOTH, options=QUIET) as node:
        began = await store.now()
        task = await node.client.submit(buy, "o1")
        with pytest.raises(mg.TaskUndone):
            await task.result(timeout=60)
        fails = False
        await task.resubmit()
        await node.client.task(task.id).result(timeout=60)
    assert {key: len(times) for key, times in calls.items()} == {
        "charge/1/do": 3,
        "charge/1/undo": 2,
        "charge/2/do": 3,
    }
    assert all(len(set(times)) == 1 for times in calls.values())
    assert all(abs(times[0].timestamp() - began) < 60 for times in calls.values())
