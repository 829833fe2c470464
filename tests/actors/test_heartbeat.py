"""A process is known by its row: it renews that, and gets another number once it was declared dead."""

import asyncio
import random

from makegood.node.heartbeat import Heartbeat
from makegood.options import Options
from makegood.store.protocol import Store
from makegood.store.views import NodeInfo
from tests.clocks import HandClock
from tests.conformance.worlds import eventually


def heartbeat(store: Store, numbers: list[int], clock: HandClock) -> Heartbeat:
    info = NodeInfo("n", ("scheduler",), "host", 1, 5.0, ())
    options = Options(heartbeat="10ms", dead_after="5s")
    return Heartbeat(store, lambda: info, numbers.append, options=options, clock=clock, rng=random.Random(1))


async def test_a_process_that_was_declared_dead_is_registered_anew(store: Store) -> None:
    numbers = list[int]()
    beat = heartbeat(store, numbers, HandClock())
    assert beat.number == 0
    await beat.register()
    assert numbers == [beat.number]
    assert await beat.publish()
    running = asyncio.create_task(beat.run())
    await store.nodes.unregister(numbers[0])
    await eventually(lambda: len(numbers) == 2, "another number")
    running.cancel()
    assert numbers[1] == beat.number != numbers[0]


async def test_a_heartbeat_reaches_the_store_until_it_has_run_out(store: Store) -> None:
    clock = HandClock()
    beat = heartbeat(store, [], clock)
    assert not beat.reaches()
    await beat.register()
    clock.forward(5.0)
    assert beat.reaches()
    clock.forward(0.1)
    assert not beat.reaches()
