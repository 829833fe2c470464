"""A recorded world in which tasks wait: they sleep, begin later, wait for signals; a schedule fires.

Customers send signals in commits of the store's and in transactions of their own.
"""

import asyncio
import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from makegood.client.client import Client
from makegood.errors import MakegoodError, SignalRefused, TaskNotFoundError
from makegood.testing.simulator.customers import Order
from makegood.testing.simulator.quiescence import Eye
from makegood.transactions.caller import at_once
from makegood.workflow.app import App
from proofs.powercut.operations import CALLER
from proofs.powercut.recording import RecordedWorld, eventful
from proofs.powercut.wait_checks import SCHEDULE
from proofs.storms.shop import ASKING, CONSENT, NOON, orders

_EVERY: Final = 1.5
_TASKS: Final = 9
_NAPPING: Final = 0.25
_STORM: Final = 12.0
_PAUSE: Final = 0.5


def waiting_orders(app: App, rng: random.Random, count: int) -> Sequence[Order]:
    """Draw orders, some of which sleep."""
    return [
        order._replace(workflow=app._find_workflow("nap"), key=f"nap-{n}")
        if rng.random() < _NAPPING
        else order
        for n, order in enumerate(orders(app, rng, count, "lone"))
    ]


class WaitingWorld(RecordedWorld):
    """The world of a seed in which tasks wait, on tape."""

    def __init__(self, seed: int, *, template: bytes, settings: Sequence[str] = ()) -> None:
        swarm = eventful(random.Random(f"{seed} recording"))
        super().__init__(
            seed, template=template, settings=settings, draw_orders=waiting_orders,
            swarm=replace(swarm, tasks=_TASKS, asking=0.6, delayed=0.4, engine=replace(swarm.engine, linger=0.2)),
        )  # fmt: skip

    async def _live(self, eye: Eye) -> None:
        tasks = [self.loop.create_task(self._schedule()), self.loop.create_task(self._send_joined())]
        try:
            await super()._live(eye)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _schedule(self) -> None:
        """Write the schedule, whose moments end with the storm."""
        lone: Any = self.app._find_workflow("lone")
        end = datetime.fromtimestamp(NOON + _STORM, UTC)
        while True:
            await asyncio.sleep(_PAUSE)
            member = self.members["operator"]
            if member.client is not None:
                writing = self.loop.create_task(
                    member.client.schedule(SCHEDULE, lone, SCHEDULE, every=_EVERY, end=end),
                    context=member.process.context.copy(),
                )
                try:
                    await writing
                except MakegoodError:
                    continue
                return

    async def _send_joined(self) -> None:
        """Send signals in transactions of a caller's, on its own connection."""
        rng = random.Random(f"{self.seed} callers")
        keys: set[str] = set()
        while True:
            await asyncio.sleep(rng.uniform(0.1, 1.0))
            client = self.members["operator"].client
            for key, number in list(self.customers.acks.items()):
                if client is not None and key not in keys and key.startswith(ASKING) and rng.random() < 0.5:
                    keys.add(key)
                    self._join_signal(client, number)

    def _join_signal(self, client: Client, task: int) -> None:
        """Send a signal in a transaction of its own; nothing else happens in the world meanwhile."""
        self.marks.began += 1
        self.tape.mark("begun", self.marks.began)
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.execute("pragma synchronous = full")
            connection.execute("begin immediate")
            try:
                at_once(client.signal(client.task(task), CONSENT, "yes", id=CALLER, connection=connection))
            except (SignalRefused, TaskNotFoundError):
                connection.execute("rollback")
            else:
                connection.execute("commit")
            self.tape.mark("done", self.marks.began)
            row = connection.execute(
                "select seq, at from makegood_signal where task = ? and id = ?", (task, CALLER)
            ).fetchone()
        self.enter_state()
        if row is not None:
            self.history.note(
                "signalled", "operator", task, name=CONSENT, id=CALLER, step="", seq=row[0], now=row[1]
            )
            self.history.note("acknowledged", "operator", task, name=CONSENT, id=CALLER, created=True)
