"""The broker under fire: a private, real server, to which publishers send orders and makegood sends notices.

It is killed and stopped like everything else. What it confirmed must survive that, so it is started again on its port and in its
folder. The servers and their administration are those of the tests of brokers.
"""

import asyncio
import json
from collections import Counter
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Self

from makegood import Client
from makegood.store.views import Filter
from tests.brokers.rig import Draft, Rig

from .kinds import Kind
from .network import Sleep

RIGS: Final = {
    "rabbitmq": "tests.brokers.rigs.rabbitmq:QuorumRig",
    "nats": "tests.brokers.rigs.nats:NatsRig",
    "kafka": "tests.brokers.rigs.kafka:TansuRig",
    "redis": "tests.brokers.rigs.redis:RedisRig",
}
"""By what ``--broker`` is given: the module and class that start a server."""
FILE: Final = "broker.json"
SOURCE_VARIABLE, NOTICES_VARIABLE = "MAKEGOOD_CHAOS_SOURCE", "MAKEGOOD_CHAOS_NOTICES"
INBOX_MODULE: Final = f"{__package__}.broker_inbox"
"""Only the processes of the inbox import it: it declares one more inbox of the shop."""
ORDERS, NOTICES = "orders-placed", "orders-notices"
GROUP: Final = "chaos"
PUBLISH_WITHIN: Final = 5.0
"""Seconds without a confirmation after which a publisher publishes again."""
ASK_WITHIN: Final = 10.0


class Broker:
    """A broker of a kind, one of ``RIGS``. ``published`` counts how often each order was sent, by its id."""

    def __init__(self, name: str) -> None:
        module, _, attribute = RIGS[name].partition(":")
        self._make = getattr(import_module(module), attribute)
        self._rig: Rig
        self.name = name
        self.published: Counter[str] = Counter()

    async def __aenter__(self) -> Self:
        """Start the server and make its two places. Raises ``ConfigError`` if it is not installed."""
        self._rig = self._make()
        try:
            await asyncio.to_thread(self._rig.start)
            self._orders = await self._rig.declare(ORDERS)
            self._notices = await self._rig.declare(NOTICES)
        except BaseException:
            await asyncio.to_thread(self._rig.kill)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Kill it and remove its folder."""
        with suppress(Exception):  # some ask the server to forget what it has, which may be away
            await asyncio.to_thread(self._rig.close)

    def environment(self) -> dict[str, str]:
        """Return the settings of the processes that use it."""
        parameters = dict(self._orders.parameters)
        if self._orders.kind == "redis":
            parameters["group"] = GROUP
        query = "&".join(f"{name}={value}" for name, value in parameters.items())
        target = self._rig.target
        return {
            f"MAKEGOOD_BROKERS_{target.name.upper()}": target.url,
            "MAKEGOOD_REPLY_TO_BROKERS": str(self._notices),
            SOURCE_VARIABLE: f"{self._orders}?{query}" if query else str(self._orders),
            NOTICES_VARIABLE: str(self._notices),
        }

    async def publish(self, order: str, body: object) -> bool:
        """Publish an order under its id; return whether the broker confirmed it. If not, it may have arrived."""
        self.published[order] += 1
        with suppress(Exception):  # each client has errors of its own, and all mean the same here
            async with asyncio.timeout(PUBLISH_WITHIN):
                await self._rig.publish(ORDERS, [Draft(json.dumps(body).encode(), order)])
                return True
        return False

    async def strike(self, kind: Kind, away: float, sleep: Sleep) -> int:
        """Kill the server, or stop it, and start or continue it after ``away`` seconds; return 1."""
        begin, end = (self._rig.kill, self._rig.start)
        if kind is Kind.STOP_BROKER:
            begin, end = (self._rig.stop, self._rig.resume)
        await asyncio.to_thread(begin)
        try:
            await sleep(away)
        finally:
            await asyncio.to_thread(end)
        return 1

    async def left(self, client: Client) -> list[str]:
        """Return, in words, what waits at the broker or for it."""
        leftovers = []
        with suppress(Exception):  # not back yet, or too busy to say
            async with asyncio.timeout(ASK_WITHIN):
                waiting = await self._rig.waiting(self._orders, GROUP)
                leftovers += [f"{waiting} orders wait at the broker"] if waiting > 0 else []
                receivers = (await client.brokers()).receivers
                leftovers += [f"{r.waiting} notices for {r.broker} wait" for r in receivers if r.waiting]
                return leftovers
        return ["the broker does not say what waits"]

    async def read(self, client: Client) -> dict[str, Any]:
        """Return what was published, the tasks that came of it, and all notices in the order in which the broker has them."""
        tasks = {
            order: [client.task(view.id).id for view in await client.find(Filter(correlation_id=order))]
            for order in self.published
        }
        notices = []
        for message in await self._rig.read(NOTICES):
            event = json.loads(message.body)
            data = event["data"]
            notices.append(
                {
                    "id": event["id"],
                    "order": data["correlation_id"],
                    **{name: data[name] for name in ("task", "sequence", "state")},
                }
            )
        dead = [f"message {view.message.id} of the store" for view in await client.messages(dead=True)]
        if self._rig.has_dead_letters:
            dead += [body.decode() for body in await self._rig.dead_letters(ORDERS)]
        return {"published": dict(self.published), "tasks": tasks, "notices": notices, "dead": dead}


def write(folder: Path, facts: dict[str, Any]) -> None:
    """Write them to the run's folder."""
    (folder / FILE).write_text(json.dumps(facts), encoding="utf-8")
