"""Payloads that the engine cannot read: a task runs, fails, is undone and repaired, and no row has a value in plain."""

import asyncio
import logging
from typing import Any

import pytest

import makegood as mg
from makegood.client.client import Client
from makegood.node.node import Node
from makegood.store.protocol import Store
from tests.actors.conftest import QUIET
from tests.actors.encoded_shop import CANARY, KEYS, EncodedShop, Line, Order, dump, envelopes, refuse_canary
from tests.conformance.worlds import World


@pytest.fixture(autouse=True)
def logs(caplog: pytest.LogCaptureFixture) -> Any:
    """No log line at any level has the canary."""
    caplog.set_level(logging.DEBUG)
    yield caplog
    refuse_canary(caplog.text, "a log")


def encrypted(**keys: bytes) -> mg.codecs.Encrypted:
    return mg.codecs.Encrypted(keys or KEYS)


async def test_a_task_of_every_kind_of_step_runs_and_leaves_nothing_in_plain(store: Store, world: World) -> None:
    shop = EncodedShop(encrypted())
    async with Node(shop.app, store, options=QUIET) as node, Client(store) as client:
        task = await node.client.submit(shop.place, Order("o-1"), key="o-1", reply_to="queue:notices")
        await node.client.signal(task, shop.approval, Line("approved"))
        await node.client.signal(task, shop.verdict, "yes")
        result = await task.result(timeout="30s")
        assert result["sent"] == f"sent {CANARY}" and result["note"] == CANARY
        assert result["first"]["line"] == {"sku": "x", "note": f"{CANARY} {CANARY}"}
        calls = dict(shop.calls)
        assert calls["send"][0] == [CANARY, f"hold {CANARY}"] and calls["send"][2] == Line("approved")
        assert [pick["line"]["sku"] for pick in calls["send"][1]] == ["x", "y"]
        with pytest.raises(mg.CodecError, match="no codec"):
            await client.task(task.id).result()
        text = await dump(world)
        refuse_canary(text, "a row")
        assert len(envelopes(text)) > 10
