"""Inboxes as they are declared: what is refused, how a body is read, how long a failed message waits."""

from dataclasses import dataclass
from typing import Any

import pytest

import makegood as mg
from makegood.declare.inbox import pause


@dataclass
class Order:
    """What is ordered."""

    id: str
    cents: int


def test_an_inbox_is_declared_right_or_refused() -> None:
    app = mg.App("shop")

    @app.inbox("orders")
    def accept(order: Order, tx: mg.Transaction) -> None:
        """Take an order."""

    assert accept.__doc__ == "Take an order."
    assert app.inboxes == {"orders": accept}
    with pytest.raises(mg.DuplicateNameError, match="has an inbox for the queue 'orders' already"):
        app.inbox("orders")
    with pytest.raises(mg.DefinitionError, match="takes the message's payload and the transaction"):

        @app.inbox("others")  # type: ignore[arg-type]
        def alone(order: Order) -> None: ...

    with pytest.raises(mg.DefinitionError, match="queue name '-1' is not allowed"):
        app.inbox("-1")(accept.fn)
    with pytest.raises(mg.DefinitionError, match="a whole number from 1"):
        app.inbox("none", concurrency=0)(accept.fn)


def test_the_function_is_called_as_it_is() -> None:
    """So that it can be tested without a queue."""
    app = mg.App("shop")

    @app.workflow
    def place_order(order: Order) -> str:
        return order.id

    @app.inbox("orders")
    def accept(order: Order, tx: mg.Transaction) -> mg.Plan[str]:
        return place_order.plan(order)

    transaction: Any = None
    assert accept(Order("a", 1), transaction).workflow == "place_order"


def test_a_body_is_read_as_the_annotation_says() -> None:
    app = mg.App("shop")

    @dataclass
    class Local:
        id: str

    @app.inbox("orders")
    def accept(order: Local, tx: mg.Transaction) -> None: ...

    assert accept._read(b'{"id":"o-1"}') == Local("o-1")
    with pytest.raises(mg.PayloadError, match="the message to shop's inbox orders does not fit Local"):
        accept._read(b"{}")

    @app.inbox("any")
    def whatever(order: Any, tx: mg.Transaction) -> None: ...

    assert whatever._read(b'{"id":1}') == {"id": 1}


def test_waits_grow_until_the_message_is_given_up() -> None:
    app = mg.App("shop")

    @app.inbox("orders", retry=mg.Retry(tries=4, wait="1s", factor=10, longest="30s"))
    def accept(order: Order, tx: mg.Transaction) -> None: ...

    assert [pause(accept.retry, tries) for tries in (1, 2, 3, 4)] == [1.0, 10.0, 30.0, 30.0]


def test_a_transaction_outside_of_an_inbox_has_no_message() -> None:
    with pytest.raises(mg.TransactionError, match=r"tx\.message is there in an inbox"):
        _ = mg.Transaction(None).message  # type: ignore[arg-type]
