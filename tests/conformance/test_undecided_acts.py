"""Acts that were asked for and are not decided are seen by who asks for them."""

import pytest

from makegood.model.messages import Act, TaskMessage
from makegood.store import Store
from tests.conformance.builders import running
from tests.conformance.worlds import World


async def test_acts_that_are_not_decided_are_told_in_order_with_who_when_and_why(
    store: Store, world: World
) -> None:
    """Only on demand, only those of operators, only of this task."""
    await running(store, 1, 2)
    await store.tasks.post(1, TaskMessage("cancel", act=Act("a", "ann", "wrong price")))
    await world.elapse(10)
    await store.tasks.post(1, TaskMessage("settle", idx=1, settled="failed", act=Act("b", "bob")))
    await store.tasks.post(2, TaskMessage("undo", act=Act("c", "cid")))
    detail = await store.tasks.detail(1, with_asked=True)
    assert detail is not None
    assert [(one.kind, one.idx, one.act.who, one.act.why) for one in detail.asked] == [
        ("cancel", -1, "ann", "wrong price"),
        ("settle", 1, "bob", ""),
    ]
    assert detail.asked[1].at - detail.asked[0].at == pytest.approx(10, abs=5)
    plain = await store.tasks.detail(1)
    assert plain is not None
    assert plain.asked == ()
