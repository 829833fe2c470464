"""An app's declaration of an inbox: its queue, the function for its messages, what follows failures."""

import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from makegood.base.function_layers import is_async
from makegood.base.ids import checked_queue
from makegood.base.wrapped_errors import leaves
from makegood.brokers import BrokerAddress, Delivery
from makegood.declare.action import Shared
from makegood.declare.parameters import signature
from makegood.declare.signal import SignalByKey
from makegood.declare.verdicts import verdict_in
from makegood.errors import (
    ConfigError,
    DefinitionError,
    KeyConflict,
    PayloadError,
    Permanent,
    SignalRefused,
)
from makegood.model.plan import Plan
from makegood.model.policy import Retry
from makegood.payload.annotations import hints
from makegood.payload.codec import decode, decoder, shallow
from makegood.payload.unchecked_rules import refuse_unkept
from makegood.transactions.transaction import Transaction

T = TypeVar("T")

Answered: TypeAlias = Plan[Any] | SignalByKey | None
"""What the function of an inbox returns: the plan of the task to submit, the signal to send to a task, or
None for neither.
"""

Accepts = Callable[[T, Transaction], Answered] | Callable[[T, Transaction], Awaitable[Answered]]

TRIES = Retry(tries=8, wait="1s", factor=4.0, longest="1h")
"""The default number of deliveries of a message, and the waits between them."""


WITHOUT_ID = "makegood-without-id"
"""The header of a message that came from a broker without an id: a repetition of it cannot be known."""


class Inbox(Generic[T]):
    """Turns a queue's messages into tasks: declared with ``@app.inbox("orders")``. Calling it calls the
    function.
    """

    def __init__(
        self,
        queue: str,
        fn: Accepts[T],
        *,
        registry: Shared,
        concurrency: int,
        retry: Retry,
        lease: float,
        names: Mapping[str, Any] | None,
        source: BrokerAddress | None = None,
        identify: Callable[[Delivery], str | None] | None = None,
    ) -> None:
        self.queue = checked_queue(queue)
        self.source = source
        """Where the messages come from, if not from the store's own queue alone."""
        self.identify = identify
        """Returns the id of a message of ``source``, in place of the broker's."""
        self.where = f"{registry.app}'s inbox {queue}"
        self.fn = fn
        self.registry = registry
        """What the app's declarations share: its hooks, its codec."""
        self.retry = retry
        """Deliveries of a message, and the waits between them."""
        self.lease = lease
        """Seconds for which a message belongs to the process that took it."""
        self.concurrency = concurrency
        """Messages at once in one process."""
        self.waits = is_async(fn)
        """A call of the function has to wait: it is an ``async def``, or returned a coroutine before."""
        self._names = names
        parameters = list(signature(fn, self.where, by_name=False).parameters.values())
        by_place = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        if len(by_place) < 2 or any(p.default is p.empty for p in parameters if p not in by_place[:2]):
            raise DefinitionError(
                f"{self.where} takes the message's payload and the transaction: `def {getattr(fn, '__name__', 'accept')}(order: Order, "
                f"tx: mg.Transaction) -> mg.Plan[...]`"
            )
        self._payload = by_place[0].name
        if not isinstance(concurrency, int) or concurrency < 1:
            raise DefinitionError(f"{self.where}: concurrency={concurrency!r}: a whole number from 1")
        try:
            hints(fn, names, self.where)
        except DefinitionError:  # it names what is defined further down
            pass
        else:
            self._prepare()
        self.__doc__ = fn.__doc__
        self.__name__ = getattr(fn, "__name__", queue)

    def __repr__(self) -> str:
        return f"<inbox {self.queue}>"

    def __call__(self, payload: T, tx: Transaction, /) -> Any:
        """Call the function itself, as a test does."""
        return self.fn(payload, tx)

    @functools.cached_property
    def _annotation(self) -> Any:
        annotation = hints(self.fn, self._names, self.where).get(self._payload, Any)
        subject = f"the message to {self.where}"
        refuse_unkept(annotation, subject)
        decoder(annotation, subject)  # raises for what no JSON can be decoded to
        return annotation

    def _prepare(self) -> None:
        """Raise ``DefinitionError`` for an annotation that cannot be used."""
        _ = self._annotation

    def _read(self, body: bytes) -> T:
        """Return a message's body as the payload that the function takes. Raises ``PayloadError``,
        ``DefinitionError``.
        """
        subject = f"the message to {self.where}"
        payload: T = decode(shallow(body, subject), self._annotation, subject)
        return payload


def check_answer(inbox: Inbox[Any], answer: object) -> Answered:
    """Return the answer of an inbox's function. Raises ``DefinitionError`` if it is none."""
    if answer is None or isinstance(answer, Plan | SignalByKey):
        return answer
    raise DefinitionError(
        f"{inbox.where} answered {type(answer).__name__}: it returns a plan, `return place_order.plan(order)`, a signal, "
        "`return approval.of(travel, key=..., value=...)`, or None for neither"
    )


def pause(retry: Retry, tries: int) -> float:
    """Return the wait in seconds after the ``tries``-th delivery of a message, without jitter.

    >>> pause(TRIES, 1), pause(TRIES, 2), pause(TRIES, 8)
    (1.0, 4.0, 3600.0)
    """
    pauses = retry.pauses()
    return pauses[min(tries, len(pauses)) - 1] if pauses else 0.0


def is_final(fault: BaseException) -> bool:
    """Whether a message that failed so would fail so every time: a refusal, or an error of the message or of
    the code, alone or in a group of such errors.

    >>> is_final(PayloadError("no JSON")), is_final(ValueError())
    (True, False)
    >>> is_final(SignalRefused("it has ended")), is_final(SignalRefused("1,000 are unused", is_full=True))
    (True, False)
    >>> is_final(SignalRefused("another process has the codec", takes_encoded=True))
    False
    """
    answer = verdict_in(fault, 0.0)
    if answer is not None:
        return isinstance(answer.verdict, Permanent)
    return all(
        isinstance(one, ConfigError | DefinitionError | KeyConflict | PayloadError)
        or (isinstance(one, SignalRefused) and not (one.is_full or one.takes_encoded))
        for one, _ in leaves(fault)
    )
