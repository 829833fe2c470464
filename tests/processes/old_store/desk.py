"""The shop whose store an earlier version wrote. Both versions import it, so it uses the names that both know.

``CASE`` in the environment: "written" while the fixture is made, when cards, calls and processes fail as the
orders' names say.
"""

import os

import makegood as mg

WRITTEN = os.environ.get("CASE") == "written"
shop = mg.App("desk")
stock = shop.agent("stock")
bank = shop.agent("bank")


@stock.action(complete_within="20s")
def reserve(order: str) -> str:
    """Reserve; the store of things answers "later" to some."""
    if WRITTEN and order.startswith("waiting"):
        raise mg.Later("3s")
    return f"hold of {order}"


@reserve.undo
def release(order: str, *, result: str | None) -> None:
    """Release; some never can be."""
    if WRITTEN and order.startswith("stuck"):
        raise mg.Permanent("the shelf is gone")


@bank.action(
    complete_within="20s", settle=True, recover=mg.Recover(threshold=0, wait="50ms", extended="50ms")
)  # type: ignore[call-overload,untyped-decorator]
def charge(order: str, hold: str) -> str:
    """Charge; some cards are refused, some calls are never answered, and one kills its process."""
    if WRITTEN and order.startswith("killed"):
        os._exit(9)
    if WRITTEN and order.startswith(("undone", "held", "stuck")):
        raise mg.Permanent("card refused")
    if WRITTEN and order.startswith("doubtful"):
        raise ConnectionError("the bank was silent")
    return f"paid {order}"


@charge.undo  # type: ignore[untyped-decorator]
def refund(order: str, *, result: str | None) -> None:
    """Pay back."""


@shop.workflow(complete_within="90d")
def sell(order: str) -> str:
    """Reserve, charge; a failure is undone."""
    return charge(order, reserve(order))  # type: ignore[no-any-return]


@shop.workflow(complete_within="90d", on_failure="hold")
def sell_or_ask(order: str) -> str:
    """Reserve, charge; a failure waits for an operator."""
    return charge(order, reserve(order))  # type: ignore[no-any-return]


@shop.inbox("orders")
def accept(order: str, tx: mg.Transaction) -> mg.Plan[str]:
    """An order that comes as a message becomes a task."""
    return sell.plan(order).with_(key=order)
