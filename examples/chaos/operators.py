"""The operators: they cancel, undo, resubmit and settle orders at random, and what they say is true.

Who settles a step knows what stands at the service, or sees to it by hand: *done* is said of what stands in the services'
books, or of what the operator did there under a key of its own; *failed* and *undone* only after the operator had it taken
back there, which also bars whatever is still on its way. Nobody does anything by hand for an order while the answer to another act on it
is missing: that act may be carried out at any moment.
"""

import asyncio
import http.client
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from examples.orders.auditor import AuditError, read_books
from examples.orders.shop import Order
from makegood import ActRefusedError, Client, StoreUnavailableError, WaitExpiredError
from makegood.base import ids
from makegood.store.views import Filter, StepView, TaskDetail

from .customers import Ledger, Placed
from .kinds import Kind
from .orders import BRIEF, brief, by_hand, in_line

PLACES: Final = {
    "reserve": ("stock/reserve", "stock/release"),
    "charge": ("payments/charge", "payments/refund"),
    "book": ("carrier/book", "carrier/cancel"),
    "pack": ("stock/pack", "stock/unpack"),
    BRIEF: ("stock/pack", "stock/unpack"),
    "ship": ("carrier/ship", "carrier/recall"),
    "email": ("carrier/email", ""),
}
"""Where an action's effect is made, and where it is taken back; "" where it cannot be."""
ANSWER_WITHIN: Final = 8.0
PAUSE: Final = 0.2
CERTAIN: Final = ("applied", "noop")


class ServiceError(Exception):
    """A service did not do what an operator asked it for by hand."""


@dataclass(slots=True)
class Operators:
    """Acts on orders at random. ``services`` is where the services answer an operator, whatever the network does."""

    client: Client
    ledger: Ledger
    services: str
    books: Path
    rng: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    """How often each act was applied, nothing to do, refused, or not answered in time."""
    _busy: set[str] = field(default_factory=set)
    _free: set[int] = field(default_factory=set)
    """Tasks whose lanes are released."""

    async def act(self, kind: Kind, over: Callable[[], bool]) -> int:
        """Find an order for the act and carry it out; wait for one until ``over``. Returns how often it was applied."""
        while not over():
            placement = self._pick(kind)
            if placement is not None:
                self._busy.add(placement.order.id)
                try:
                    count = await self._carry_out(kind, placement)
                finally:
                    self._busy.discard(placement.order.id)
                if count:
                    return count
            await asyncio.sleep(PAUSE)
        return 0

    def _pick(self, kind: Kind) -> Placed | None:
        match kind:
            case Kind.CANCEL:
                candidates = self.ledger.under_way()
            case Kind.UNDO:
                candidates = self.ledger.told("processed", "error")
            case Kind.RESUBMIT:
                candidates = self.ledger.told("undone", "error")
            case _:
                candidates = [
                    placement for placement in self.ledger.told("error") if not placement.unanswered
                ]
        free = [
            placement
            for placement in candidates
            if placement.order.id not in self._busy
            and not placement.by_hand
            and placement is not self.ledger.example
        ]
        if kind in (Kind.UNDO, Kind.RESUBMIT):  # makegood warns that what is sent again may be done twice
            free = [p for p in free if p.workflow != brief.name]
        return self.rng.choice(free[-50:]) if free else None

    async def _carry_out(self, kind: Kind, placement: Placed) -> int:
        task = self.client.task(placement.handle.number)
        acts = {Kind.CANCEL: task.cancel, Kind.UNDO: task.undo, Kind.RESUBMIT: task.resubmit}
        try:
            if kind is Kind.SETTLE:
                return await self._settle(placement, await task.status())
            placement.acts.append(kind.value)
            answer = await acts[kind](who="operator", why="at random", timeout=ANSWER_WITHIN)
        except ActRefusedError:
            self.counts[f"{kind.value}: refused"] += 1
            return 0
        except (StoreUnavailableError, WaitExpiredError):
            self.counts[f"{kind.value}: no answer"] += 1
            placement.unanswered = True
            return 0
        self.counts[f"{kind.value}: {answer.verdict}"] += 1
        return int(answer.verdict == "applied")

    async def release_lanes(self) -> None:
        """Let the orders go that wait behind one in error: nobody acts on it any more."""
        with suppress(StoreUnavailableError, WaitExpiredError):
            for view in await self.client.find(Filter(states=("error",), workflow=in_line.name, limit=1000)):
                placement = next((p for p in self.ledger.orders.values() if p.handle.number == view.id), None)
                if placement is None or view.id in self._free:
                    continue
                if placement.released is None:
                    placement.released = await self.client.store.now()
                with suppress(ActRefusedError):
                    await self.client.task(view.id).release_lane(
                        who="operator", why="the run is over", timeout=ANSWER_WITHIN
                    )
                    self.counts["operator releases lanes"] += 1
                self._free.add(view.id)

    # -- settling -------------------------------------------------------------------------------------------------------

    async def _settle(self, placement: Placed, detail: TaskDetail) -> int:
        """Settle one step of a task in error, truly, and have the task go on when it is held."""
        if detail.task.state != "error":
            return 0
        open_ = self._open(placement, detail)
        steps = [s for s in detail.steps if s.action in PLACES and s.state in open_]
        if not steps:
            return 0
        step = self.rng.choice(steps)
        placement.by_hand = True
        placement.acts.append(Kind.SETTLE.value)
        try:
            outcome, value = await self._see_to(placement.order, detail.task.id, step)
        except (ServiceError, OSError, http.client.HTTPException, AuditError):
            self.counts["operator settles: the service would not"] += 1
            return 0
        verdict = await self._say(placement, step.name, outcome, value)
        self.counts[f"{Kind.SETTLE.value} as {outcome}: {verdict}"] += 1
        if verdict in CERTAIN and detail.task.goal == "hold":
            await self._resubmit(placement)
        return int(verdict == "applied")

    @staticmethod
    def _open(placement: Placed, detail: TaskDetail) -> Sequence[str]:
        """The states of steps that may be settled. What failed is done by hand only where nobody will undo the order
        afterwards: an undo knows nothing of the key under which an operator did it.
        """
        if detail.task.goal != "hold":
            return ("in_doubt", "undo_failed")
        stays = detail.task.workflow == by_hand.name and not placement.acts
        return ("in_doubt", "failed") if stays else ("in_doubt",)

    async def _see_to(self, order: Order, task: int, step: StepView) -> tuple[str, str | None]:
        """Make sure of what stands at the service; return the outcome to state, and its result."""
        do, undo = PLACES[step.action]
        key = ids.key(self.client.store.identity.store_id, task, step.name, step.round, "do")
        if step.state == "failed":
            return "done", await self._ask(do, order, f"by-hand-{key}")
        if step.state == "in_doubt":
            entries = await asyncio.to_thread(read_books, self.books)
            if sum(entry.change for entry in entries if entry.key == key) > 0:
                return "done", f"{step.action}-by-hand"
        if not undo:
            return "done", await self._ask(do, order, f"by-hand-{key}")
        await self._ask(undo, order, f"by-hand-{key}/undo", undoes=key)
        return ("undone" if step.state == "undo_failed" else "failed"), None

    async def _say(self, placement: Placed, step: str, outcome: str, value: str | None) -> str:
        """Say it until it is answered: what was done by hand must not remain unsaid."""
        task = self.client.task(placement.handle.number)
        while True:
            try:
                answer = await task.settle(
                    step, outcome=outcome, value=value, who="operator", why="seen to", timeout=ANSWER_WITHIN
                )
            except ActRefusedError as error:
                self.ledger.complaints.append(
                    f"order {placement.order.id}: {step} was settled as {outcome} and refused: {error}"
                )
                return "refused"
            except (StoreUnavailableError, WaitExpiredError):
                await asyncio.sleep(PAUSE)
            else:
                return answer.verdict

    async def _resubmit(self, placement: Placed) -> None:
        placement.acts.append(Kind.RESUBMIT.value)
        task = self.client.task(placement.handle.number)
        while True:
            try:
                await task.resubmit(who="operator", why="settled", timeout=ANSWER_WITHIN)
            except ActRefusedError:  # it has ended, or another step must be settled first
                return
            except (StoreUnavailableError, WaitExpiredError):
                await asyncio.sleep(PAUSE)
            else:
                return

    async def _ask(self, place: str, order: Order, key: str, *, undoes: str = "") -> str:
        """Ask a service by hand until it gives a definite answer; return its id of the effect. Raises ``ServiceError``."""
        for _ in range(40):
            try:
                status, body = await asyncio.to_thread(self._request, place, order, key, undoes)
            except (OSError, http.client.HTTPException, ValueError):
                await asyncio.sleep(PAUSE)
                continue
            if status == 200:
                return str(body.get("id", ""))
            if status < 500 and status != 429:
                raise ServiceError(f"{place}: {body}")
            await asyncio.sleep(PAUSE)
        raise ServiceError(f"{place} does not answer")

    def _request(self, place: str, order: Order, key: str, undoes: str) -> tuple[int, dict[str, object]]:
        url = urlsplit(self.services)
        connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=2.0)
        try:
            facts = {"order_id": order.id, "sku": order.sku, "cents": order.cents}
            # a key of the operator's own, which the service does not forget
            headers = {
                "Idempotency-Key": key.replace(".", "-"),
                **({"Makegood-Undoes": undoes} if undoes else {}),
            }
            connection.request("POST", f"/{place}", json.dumps(facts), headers)
            response = connection.getresponse()
            body: dict[str, object] = json.loads(response.read())
        finally:
            connection.close()
        return response.status, body
