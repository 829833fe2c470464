"""A process is known by its row: it renews that, and gets another number once it was declared dead."""

import asyncio
import random
from pathlib import Path

from makegood.node.heartbeat import Heartbeat
from makegood.options import Options
from makegood.store.protocol import Store
from makegood.store.views import NodeInfo
from tests.clocks import HandClock
from tests.conformance.worlds import eventually
from tests.unit.zone_folders import enact, system_rules


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


async def test_it_publishes_the_zone_rules_and_follows_an_upgrade(store: Store, tmp_path: Path) -> None:
    """Without a restart: it looks for them again and again, though not at each heartbeat."""
    clock = HandClock()
    beat = heartbeat(store, [], clock)

    async def version() -> str | None:
        rules = (await store.nodes.views())[0].info.zone_rules
        return None if rules is None else rules.version

    with system_rules(enact(tmp_path, "2998a")):
        await beat.register()
        assert await version() == "2998a"
        enact(tmp_path, "2998b")
        assert await beat.publish()
        assert await version() == "2998a"
        clock.forward(10)
        assert await beat.publish()
        assert await version() == "2998b"


async def test_a_heartbeat_reaches_the_store_until_it_has_run_out(store: Store) -> None:
    clock = HandClock()
    beat = heartbeat(store, [], clock)
    assert not beat.reaches()
    await beat.register()
    clock.forward(5.0)
    assert beat.reaches()
    clock.forward(0.1)
    assert not beat.reaches()
