"""The approver: answers orders that are too large to ship without a yes, as a person at a desk would.

``python -m orders.approver --folder DIR --seed 7``

It finds the tasks that wait for the signal ``approval``, thinks for a moment, notes its answer in the shop's book, and sends it.
Most large orders it approves, some it refuses, and very large ones it leaves to somebody else: on the stage, to you. The answer
follows from the seed and the order: a process that is killed between its note and its signal gives the same one again, and a
task takes a signal of one id only once.
"""

import argparse
import asyncio
import contextlib
import random
from pathlib import Path
from typing import Any, Final, NamedTuple

from makegood import Client, Filter, Signalled, SignalRefused, StoreUnavailableError, TaskNotFoundError

from .shop import Approval, approval, place_order
from .storefront import TOLD, WANTED, Lines, append

BY: Final = "desk"
"""The name under which the process answers."""
MAY_APPROVE: Final = 60_000
"""Cents up to which the desk answers."""
REFUSES: Final = 0.2
"""The share of large orders that it refuses."""
THINKS: Final = 0.6
"""Seconds between two looks at what waits."""
YES: Final = ("a customer of many years", "within the budget", "the stock is there")
NO: Final = ("a new customer, who has never paid before", "more than this customer's limit")


class Decision(NamedTuple):
    """An answer to a large order: whose, and why."""

    order: str
    yes: bool
    by: str
    why: str
    submission: int = 1
    """Counts the resubmissions of an undone order: each needs an answer of its own."""

    @property
    def line(self) -> dict[str, str]:
        """Return it as the shop's book has it."""
        return {
            "order": self.order,
            "approved_by" if self.yes else "refused_by": self.by,
            "why": self.why,
        }


def decide(order: str, seed: int) -> Decision:
    """Return the desk's answer to an order.

    >>> decide("o-001", 1) == decide("o-001", 1)
    True
    """
    rng = random.Random(f"{seed} desk {order}")
    yes = rng.random() >= REFUSES
    return Decision(order, yes, BY, rng.choice(YES if yes else NO))


async def answer(client: Client, folder: Path, decision: Decision) -> Signalled:
    """Note an answer in the shop's book, and then send it. Raises what ``Client.signal`` raises."""
    append(folder / TOLD, decision.line)
    return await client.signal(
        place_order, approval, Approval(decision.yes, decision.by), key=decision.order,
        id=f"{decision.by}/{decision.order}/{decision.submission}", who=decision.by, why=decision.why,
    )  # fmt: skip


class Desk:
    """Answers what waits. ``folder``: the shop's; ``seed``: which orders are refused."""

    def __init__(self, folder: Path, client: Client, seed: int) -> None:
        self._folder = folder
        self._client = client
        self._seed = seed
        self._lines = Lines(folder / WANTED)
        self._orders: dict[str, dict[str, Any]] = {}
        self._answers: set[tuple[str, int]] = set()
        """The orders and submissions whose answer is durable."""

    async def work(self) -> None:
        """Answer what waits, for ever."""
        while True:
            await asyncio.sleep(THINKS)
            with contextlib.suppress(StoreUnavailableError):  # it is back soon, and what waits waits
                await self.answer_all()

    async def answer_all(self) -> None:
        """Answer each order of this shop that waits, and is not too large for the desk."""
        waiting = await self._client.find(Filter(waits=approval.name, workflow=place_order.name))
        self._orders |= {line["id"]: line for line in self._lines}
        for view in waiting:
            name, submission = view.key or "", view.submission
            order = self._orders.get(name)
            if order is None or order["cents"] > MAY_APPROVE or (name, submission) in self._answers:
                continue
            decision = decide(name, self._seed)._replace(submission=submission)
            with contextlib.suppress(SignalRefused, TaskNotFoundError):  # it waits no more
                await answer(self._client, self._folder, decision)
            self._answers.add((name, submission))


async def keep_desk(folder: Path, seed: int) -> None:
    """Answer until cancelled."""
    async with Client() as client:
        await Desk(folder, client, seed).work()


def main(arguments: list[str] | None = None) -> int:
    """Answer until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(
        prog="orders.approver", description="Answers the large orders of the order example."
    )
    parser.add_argument("--folder", type=Path, required=True, help="where wanted.jsonl and answers.jsonl are")
    parser.add_argument("--seed", type=int, default=0, help="which orders are refused")
    options = parser.parse_args(arguments)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(keep_desk(options.folder, options.seed))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
