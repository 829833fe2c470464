"""What an app declares about an inbox: which queue, what takes its messages, how failures are met."""

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from makegood.base.ids import checked_queue
from makegood.declare.parameters import signature
from makegood.errors import ConfigError, DefinitionError, PayloadError
from makegood.model.plan import Plan
from makegood.model.policy import Retry
from makegood.payload.annotations import hints
from makegood.payload.codec import decode, shallow
from makegood.transactions import Transaction

T = TypeVar("T")

Answered: TypeAlias = Plan[Any] | None
"""What takes a message answers: the plan of the task to be submitted, None for none."""

Accepts = Callable[[T, Transaction], Answered] | Callable[[T, Transaction], Awaitable[Answered]]

TRIES = Retry(tries=8, wait="1s", factor=4.0, longest="1h")
"""How often a message is delivered by default, and the waits between."""


class Inbox(Generic[T]):
    """A queue's messages become tasks: declared with ``@app.inbox("orders")``. Called, it is the function below the decorator.

    ``concurrency``: messages at once in one process; ``retry``: deliveries, and the waits between; ``lease``: seconds for which a
    message belongs to the process that took it. ``waits``: it is an ``async def``.
    """

    def __init__(
        self,
        queue: str,
        fn: Accepts[T],
        *,
        app: str,
        concurrency: int,
        retry: Retry,
        lease: float,
        names: Mapping[str, Any] | None,
    ) -> None:
        self.queue = checked_queue(queue)
        self.where = f"{app}'s inbox {queue}"
        self.fn = fn
        self.retry = retry
        self.lease = lease
        self.concurrency = concurrency
        self.waits = inspect.iscoroutinefunction(fn)
        self._names = names
        parameters = list(signature(fn, self.where).parameters.values())
        by_place = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        if len(by_place) < 2 or any(p.default is p.empty for p in parameters if p not in by_place[:2]):
            raise DefinitionError(
                f"{self.where} takes the message's payload and the transaction: `def {getattr(fn, '__name__', 'accept')}(order: Order, "
                f"tx: mg.Transaction) -> mg.Plan[...]`"
            )
        self._payload = by_place[0].name
        if not isinstance(concurrency, int) or concurrency < 1:
            raise DefinitionError(f"{self.where}: concurrency={concurrency!r}: a whole number from 1")
        self.__doc__ = fn.__doc__
        self.__name__ = getattr(fn, "__name__", queue)

    def __repr__(self) -> str:
        return f"<inbox {self.queue}>"

    def __call__(self, payload: T, tx: Transaction, /) -> Any:
        """Call the function itself, as a test does."""
        return self.fn(payload, tx)

    @functools.cached_property
    def _annotation(self) -> Any:
        return hints(self.fn, self._names, self.where).get(self._payload, Any)

    def prepare(self) -> Any:
        """Return the payload's annotation. Raises ``DefinitionError`` when it cannot be evaluated."""
        return self._annotation

    def read(self, body: bytes) -> T:
        """Return a message's body as the payload that the function takes. Raises ``PayloadError``, ``DefinitionError``."""
        what = f"the message to {self.where}"
        payload: T = decode(shallow(body, what), self._annotation, what)
        return payload

    def checked(self, answer: object) -> Answered:
        """Return what the function answered. Raises ``DefinitionError`` when it is no plan."""
        if answer is None or isinstance(answer, Plan):
            return answer
        raise DefinitionError(
            f"{self.where} answered {type(answer).__name__}: it returns a plan, `return place_order.plan(order)`, or None for no task"
        )

    def pause(self, tries: int) -> float:
        """Return the wait in seconds after the ``tries``-th delivery, without jitter."""
        pauses = self.retry.pauses()
        return pauses[min(tries, len(pauses)) - 1] if pauses else 0.0


def is_final(fault: BaseException) -> bool:
    """Whether a message that met this would meet it every time.

    >>> is_final(PayloadError("no JSON")), is_final(ValueError())
    (True, False)
    """
    return isinstance(fault, ConfigError | DefinitionError | PayloadError)
