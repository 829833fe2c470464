"""What a visitor of the stage does to orders by makegood's own means: approves, refuses, and has the day settled."""

from pathlib import Path
from typing import Final

from makegood import Client, MakegoodError, StoreUnavailableError
from makegood.store.views import StepView, TaskDetail
from makegood.story.waits import listens

from .approver import Decision, answer
from .customers import Customers
from .shop import LIMIT, settle_now

VISITOR: Final = "you"
"""The name under which a visitor answers."""
WHY: Final = "pressed on the stage"


class RefusedError(Exception):
    """A button that there is not, or that can do nothing now. The message says why."""


class Visitor:
    """A visitor. Each submission of an order has one answer of theirs."""

    def __init__(self, client: Client, customers: Customers, folder: Path) -> None:
        self._client = client
        self._customers = customers
        self._folder = folder
        self._answers: dict[tuple[str, int], bool] = {}

    async def task(self, order: str) -> TaskDetail | None:
        """Return the task of an order, None if there is none yet, or the store is away."""
        try:
            view = await self._customers.view(order)
            return await self._client.store.tasks.detail(view.id) if view else None
        except StoreUnavailableError:
            return None

    async def answer(self, order: str, *, yes: bool, why: str = WHY) -> None:
        """Approve a large order, or refuse it, by a signal. Raises ``RefusedError``."""
        customer = self._customers.orders.get(order)
        if customer is None or customer.order.cents <= LIMIT:
            raise RefusedError(f"no order {order!r} needs an approval")
        detail = await self.task(order)
        submission = detail.task.submission if detail else 1
        if self._answers.setdefault((order, submission), yes) is not yes:
            raise RefusedError(f"you have {'refused' if yes else 'approved'} {order} already")
        try:
            await answer(self._client, self._folder, Decision(order, yes, VISITOR, why, submission))
        except MakegoodError as error:
            raise RefusedError(f"{order} takes no answer: {error}") from error

    async def settle(self) -> None:
        """Trigger the nightly settlement. Raises ``RefusedError``."""
        try:
            await settle_now(self._client, WHY)
        except MakegoodError as error:
            raise RefusedError(str(error)) from error


def waiting_step(detail: TaskDetail | None) -> StepView | None:
    """Return the step of a task that waits for somebody's answer."""
    return next(filter(listens, detail.steps if detail else ()), None)
