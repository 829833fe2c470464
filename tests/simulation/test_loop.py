"""The deterministic loop: time is virtual, the seed decides between processes, and a dead one says nothing more."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from contextvars import Context
from typing import Any

import pytest

from makegood.testing.simulator.loop import DeadlockError, SimulatedProcess, WorldLoop, current_process


@pytest.fixture
def world() -> Iterator[WorldLoop]:
    """A loop, thrown away in the end with all that is left in it."""
    new_loop = WorldLoop(random.Random(1))
    yield new_loop
    new_loop.dispose()


def start(on: WorldLoop, process: SimulatedProcess, work: Coroutine[Any, Any, Any]) -> None:
    """Let a process do something."""
    on.create_task(work, context=process.context)


def test_two_hours_take_no_time(world: WorldLoop) -> None:
    async def wait() -> float:
        await asyncio.sleep(7200)
        return world.time()

    assert world.run_until_complete(wait()) == 7200.0


def test_timeouts_and_task_groups_work_as_ever(world: WorldLoop) -> None:
    ticks: list[tuple[str, float]] = []

    async def slow(name: str, seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
        finally:
            ticks.append((name, world.time()))

    async def main() -> None:
        async with asyncio.timeout(2), asyncio.TaskGroup() as group:
            group.create_task(slow("a", 1))
            group.create_task(slow("b", 3))

    with pytest.raises(TimeoutError):
        world.run_until_complete(main())
    assert ticks == [("a", 1.0), ("b", 2.0)]


def test_when_nothing_can_happen_any_more_that_is_said(world: WorldLoop) -> None:
    with pytest.raises(DeadlockError, match="nothing is ready"):
        world.run_until_complete(world.create_future())


def test_a_process_that_goes_round_without_waiting_is_named_and_holds_nobody_up_for_ever(
    world: WorldLoop,
) -> None:
    """Time stands still for it: on a true loop it would burn a processor, here nothing else would ever happen."""

    async def spins() -> None:
        while True:  # noqa: ASYNC110 - that is what it must not do
            await asyncio.sleep(0)

    start(world, SimulatedProcess("n1"), spins())
    with pytest.raises(DeadlockError, match=r"200,000 steps, and no time has passed; .*sleep\(0\)"):
        world.run_until_complete(world.create_future())


def test_what_breaks_in_the_worlds_own_callbacks_is_not_lost(world: WorldLoop) -> None:
    """A simulated service that raises is a fault of the simulator, not silence on the wire; a process's own errors are its affair."""

    def breaks() -> None:
        raise LookupError("the books are gone")

    world.call_later(1.0, breaks, context=Context())
    world.call_later(1.0, breaks, context=SimulatedProcess("n1").context)
    world.run_until_complete(asyncio.sleep(2.0))
    assert len(world.defects) == 1
    assert "the books are gone" in world.defects[0]


@pytest.mark.parametrize("how", ["sleeps", "awaits", "works in a thread"])
def test_of_a_killed_process_not_even_a_finally_runs(world: WorldLoop, how: str) -> None:
    """As with SIGKILL; a cancelled task would clean up."""
    steps: list[str] = []
    victim = SimulatedProcess("victim")
    hangs = world.create_future()

    async def work() -> None:
        try:
            if how == "sleeps":
                await asyncio.sleep(1)
            elif how == "awaits":
                await hangs
            else:
                await asyncio.to_thread(steps.append, "thread")
        except BaseException:
            steps.append("except")
            raise
        finally:
            steps.append("finally")

    async def main() -> None:
        start(world, victim, work())
        await asyncio.sleep(0)
        victim.dead = True
        hangs.set_result(None)
        await asyncio.sleep(5)

    world.run_until_complete(main())
    assert steps == []


def test_a_stopped_process_goes_on_later_as_if_nothing_had_been(world: WorldLoop) -> None:
    times: list[float] = []
    pausing = SimulatedProcess("paused")

    async def tick() -> None:
        for _ in range(4):
            await asyncio.sleep(1)
            times.append(world.time())

    async def main() -> None:
        start(world, pausing, tick())
        await asyncio.sleep(1.5)
        pausing.is_stopped = True
        await asyncio.sleep(10)
        assert times == [1.0]
        world.resume(pausing)
        await asyncio.sleep(5)

    world.run_until_complete(main())
    assert times == [1.0, 11.5, 12.5, 13.5]


def test_what_a_dead_process_sent_still_arrives(world: WorldLoop) -> None:
    """A message under way belongs to the world."""
    arrivals: list[str] = []
    sender = SimulatedProcess("sender")

    async def send() -> None:
        world.call_later(1, arrivals.append, "message", context=Context())
        world.call_later(1, arrivals.append, "own timer")

    async def main() -> None:
        start(world, sender, send())
        await asyncio.sleep(0.5)
        sender.dead = True
        await asyncio.sleep(5)

    world.run_until_complete(main())
    assert arrivals == ["message"]


def interleaving(seed: int) -> str:
    """Return in which order three processes of five steps each ran under a seed."""
    world = WorldLoop(random.Random(seed))
    steps: list[str] = []
    processes = [SimulatedProcess(name) for name in "abc"]

    async def work() -> None:
        for n in range(5):
            process = current_process()
            steps.append(f"{process.name}{n}" if process else "?")
            await asyncio.sleep(0)

    async def main() -> None:
        for process in processes:
            world.create_task(work(), context=process.context)
        await asyncio.sleep(1)

    world.run_until_complete(main())
    world.dispose()
    return " ".join(steps)


def test_the_seed_decides_between_processes_and_nothing_else_does() -> None:
    orders = {interleaving(seed) for seed in range(20)}
    assert len(orders) > 10
    assert interleaving(3) == interleaving(3)


def test_within_a_process_callbacks_keep_their_order() -> None:
    """As asyncio promises; only processes race."""
    for seed in range(20):
        words = interleaving(seed).split()
        for name in "abc":
            assert [word for word in words if word[0] == name] == [f"{name}{n}" for n in range(5)]


def test_a_signal_reaches_the_process_that_listens_to_it(world: WorldLoop) -> None:
    receivers: list[SimulatedProcess | None] = []
    listener = SimulatedProcess("listener")

    async def listen() -> None:
        handler: Callable[[], None] = lambda: receivers.append(current_process())  # noqa: E731 - as a program would
        asyncio.get_running_loop().add_signal_handler(15, handler)

    async def main() -> None:
        start(world, listener, listen())
        await asyncio.sleep(0.1)
        assert world.signal(listener, 15)
        assert not world.signal(listener, 2)
        await asyncio.sleep(0.1)

    world.run_until_complete(main())
    assert receivers == [listener]


def test_throwing_a_world_away_runs_nothing_and_warns_of_nothing(recwarn: pytest.WarningsRecorder) -> None:
    world, process = WorldLoop(random.Random(1)), SimulatedProcess("p")
    steps: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            asyncio.get_running_loop().call_soon(steps.append, "late")

    async def main() -> None:
        start(world, process, work())
        await asyncio.sleep(1)

    world.run_until_complete(main())
    world.dispose()
    assert steps == []
    assert not recwarn.list
