"""The customers: each places orders all the time through a connection of its own, and waits for their ends.

An order whose submission was not acknowledged is submitted again under its key until it is; some are submitted twice on
purpose, and some to begin later. What is kept is what they were told. Whoever is asked for consent answers from a process of
its own (``approver.py``), which reads in a file which orders there are.
"""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from examples.orders.shop import Order
from makegood import Client, StoreUnavailableError, TaskHandle, TaskInError, TaskUndone

from .orders import ASKING, wanted

AT_ONCE: Final = 6
"""Submissions that a customer has under way."""
TWICE: Final = 0.1
"""The share of orders that are submitted again after their acknowledgement."""
PAUSE: Final = 0.2
LATER: Final = 0.15
"""The share of orders that are to begin later."""
DELAYS: Final = (0.5, 3.0)
"""By how many seconds, at least and at most."""


@dataclass(slots=True)
class Placed:
    """An order whose submission was acknowledged. ``first``: the end that its customer was told first, "" until then."""

    order: Order
    handle: TaskHandle[str]
    workflow: str
    first: str = ""
    delay: float = 0.0
    """Seconds after which it was to begin."""
    submit_time: float = 0.0
    """When its submission was first tried, in seconds since 1970."""
    ack_seconds: float = 0.0
    """Seconds from then to its acknowledgement."""
    released: float | None = None
    """When an operator asked that its lanes be released, on the store's clock."""
    acts: list[str] = field(default_factory=list)
    """What operators asked for, whatever came of it."""
    unanswered: bool = False
    """One of these acts was not answered in time: it may be carried out yet, so nobody knows what the order is about to do."""
    by_hand: bool = False
    """An operator did something for it at a service: nobody else may touch it."""


class Ledger:
    """All orders, by id. ``complaints`` are sentences about what customers were told wrongly; ``counts`` what happened.

    ``questions``: the file that gets a line for each order whose customer is asked for consent.
    """

    def __init__(self, questions: Path) -> None:
        self._questions = questions
        self.orders: dict[str, Placed] = {}
        self.complaints: list[str] = []
        self.counts: Counter[str] = Counter()
        self.example: Placed | None = None
        """An order in error that operators leave as it is, so that each run ends with one."""

    def enter(self, placement: Placed) -> None:
        """Enter an order that was acknowledged."""
        self.orders[placement.order.id] = placement
        if placement.workflow in ASKING:
            line = {
                "order": placement.order.id,
                "workflow": placement.workflow,
                "task": placement.handle.id,
                "delay": placement.delay,
            }
            with self._questions.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def under_way(self) -> list[Placed]:
        """The orders whose customers wait."""
        return [placement for placement in self.orders.values() if not placement.first]

    def told(self, *outcomes: str) -> list[Placed]:
        """The orders of which the customers were told one of these ends."""
        return [placement for placement in self.orders.values() if placement.first in outcomes]

    def ends(self) -> Counter[str]:
        """How many customers were told what."""
        return Counter(placement.first for placement in self.orders.values() if placement.first)


class Customer:
    """One customer."""

    def __init__(self, number: int, client: Client, ledger: Ledger, rng: random.Random) -> None:
        self._client = client
        self._ledger = ledger
        self._rng = rng
        self._wanted = wanted(number, rng)
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._submitting: set[asyncio.Task[None]] = set()
        self._following: set[asyncio.Task[None]] = set()

    async def shop(self, rate: float, over: Callable[[], bool]) -> None:
        """Place ``rate`` orders a second on average until it is ``over``."""
        while True:
            await asyncio.sleep(self._rng.expovariate(rate))
            if over():
                return
            await self._gate.acquire()
            workflow, order = next(self._wanted)
            again = self._rng.random() < TWICE
            delay = self._rng.uniform(*DELAYS) if self._rng.random() < LATER else 0.0
            task = asyncio.get_running_loop().create_task(
                self._place(workflow, order, delay, again=again), name=order.id
            )
            self._submitting.add(task)
            task.add_done_callback(self._submitting.discard)

    async def acknowledged(self, timeout: float) -> list[str]:
        """Wait until every submission was acknowledged; return the ids of those that were not within ``timeout`` seconds."""
        if not self._submitting:
            return []
        ready, open_ = await asyncio.wait(set(self._submitting), timeout=timeout)
        for task in ready:
            task.result()
        return sorted(task.get_name() for task in open_)

    async def leave(self) -> None:
        """Wait for nothing more."""
        tasks = {*self._submitting, *self._following}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _place(self, workflow: Any, order: Order, delay: float, *, again: bool) -> None:
        begin = time.time()
        try:
            handle = await self._submit(workflow, order, delay)
        finally:
            self._gate.release()
        placement = Placed(
            order, handle, workflow.name, delay=delay, submit_time=begin, ack_seconds=time.time() - begin
        )
        self._enter(placement)
        if not handle.created:
            self._ledger.counts["acknowledged at a later try"] += 1
        if again:
            other = await self._submit(workflow, order, delay)
            self._ledger.counts["submitted twice"] += 1
            if other.created or other.number != handle.number:
                self._ledger.complaints.append(
                    f"order {order.id}, submitted twice, became two tasks: {handle.id} and {other.id}"
                )

    def _enter(self, placement: Placed) -> None:
        """Enter an order that is a task, and wait for its end."""
        self._ledger.enter(placement)
        following = asyncio.get_running_loop().create_task(self._follow(placement), name=placement.order.id)
        self._following.add(following)
        following.add_done_callback(self._followed)

    async def _submit(self, workflow: Any, order: Order, delay: float) -> TaskHandle[str]:
        while True:
            try:
                handle: TaskHandle[str] = await self._client.submit(
                    workflow, order, key=order.id, delay=delay or None
                )
            except StoreUnavailableError:
                self._ledger.counts["submissions refused"] += 1
                await asyncio.sleep(PAUSE)
            else:
                return handle

    async def _follow(self, placement: Placed) -> None:
        while True:
            try:
                placement.first, standing, _ = await ending(placement.handle)
            except StoreUnavailableError:
                await asyncio.sleep(PAUSE)
            else:
                if placement.first == "error" and standing and "ship" not in standing and not placement.acts:
                    self._ledger.example = self._ledger.example or placement
                return

    def _followed(self, task: "asyncio.Task[None]") -> None:
        self._following.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._ledger.complaints.append(f"waiting for order {task.get_name()} failed: {error!r}")


async def ending(handle: TaskHandle[Any]) -> tuple[str, Sequence[str], str]:
    """Wait for a task's end; return the outcome, the names of the steps that stand after all, and why."""
    try:
        await handle.result()
    except TaskUndone as undo:
        return "undone", undo.standing, undo.cause
    except TaskInError as error:
        return "error", error.standing, error.cause
    return "processed", (), ""
