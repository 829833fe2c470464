"""A store that goes back in time once, as one does that was restored from a backup, under the simulated processes.

When each order's only step has been asked for, the file is copied; a while later every process is killed, the copy is put back,
the generation rises, and the processes start again. Calls of services that were on the wire still arrive, and the services'
books stay as they are. What the store had acknowledged in between it does not know any more: the history forgets it as well,
but for what happened at the services. So nothing is said of what is lost, which nobody promises; only of what is there in the end.

What follows on the new generation is what ``makegood store restored`` does.
"""

import asyncio
import random
import sqlite3
from contextlib import closing, suppress
from typing import Any

from makegood.errors import StoreUnavailableError
from makegood.model.messages import Act
from makegood.store.generation import begin_after_restore
from makegood.store.rows import Interner
from makegood.store.sqlite.transaction import WriteTransaction
from makegood.store.views import Filter
from makegood.testing.simulator.recorder import Recorder
from proofs.storms.world import StormWorld
from tests.simulation.mutants_worlds import sluggish

_KEPT = frozenset({"effect", "fault"})
"""What happened all the same."""


def goes_back(world: StormWorld) -> None:
    """Let a world's store go back once; many undos arrive late, and the operator does nothing but cancel."""
    sluggish(world)
    live, rng = world._live, random.Random(f"{world.seed} back")

    async def lived(eye: Any) -> None:
        going = world.loop.create_task(_go_back(world, rng))
        try:
            await live(eye)
        finally:
            going.cancel()
        await asyncio.gather(going, return_exceptions=True)
        if not going.cancelled() and (error := going.exception()) is not None:
            raise error

    async def cancels(client: Any, *_: Any) -> None:
        with suppress(StoreUnavailableError):
            tasks = await client.find(Filter(states=("pending", "processing"), limit=10))
            if tasks:
                await world.operator._do(client.task(rng.choice(tasks).id), "cancel")

    world._live = lived  # type: ignore[method-assign]  # of this one world
    world.operator._one = cancels  # type: ignore[method-assign, assignment]  # of this one world
    world.customers._rng = _AtOnce(world.customers._rng)


class _AtOnce(random.Random):
    """Lets customers come at once."""

    def __init__(self, true: random.Random) -> None:
        super().__init__(true.random())

    def uniform(self, a: float, b: float) -> float:
        """Draw from the beginning of a span."""
        return super().uniform(a, min(b, 0.5))


async def _go_back(world: StormWorld, rng: random.Random) -> None:
    while not _all_asked(world):  # noqa: ASYNC110 - virtual time
        await asyncio.sleep(0.05)
    await asyncio.sleep(rng.uniform(0.0, 0.5))
    backup, length = sqlite3.connect(":memory:"), len(world.history.events)
    with closing(backup), closing(sqlite3.connect(world.path)) as file:
        file.backup(backup)
        await asyncio.sleep(rng.uniform(4.0, 12.0))
        storming, world.storming = world.storming, False  # nobody restarts by himself now
        for member in world.members.values():
            world.kill(member.name)
        await asyncio.sleep(0)
        for member in world.members.values():
            member.bury()
        backup.backup(file)
        with file:
            WriteTransaction(file, world.loop.time(), Interner()).do(begin_after_restore, Act("restored"))
        world.history.events[length:] = [
            event for event in world.history.events[length:] if event.kind in _KEPT
        ]
        _forget(world.recorder, file)
    world.history.note("restored")
    world.storming = storming
    for member in world.members.values():
        member.start()


def _all_asked(world: StormWorld) -> bool:
    """Whether every order was told its task, and its step was asked for."""
    if len(world.customers.acks) < world.swarm.tasks:
        return False
    with closing(sqlite3.connect(f"{world.path.absolute().as_uri()}?mode=ro", uri=True)) as file:
        return not file.execute("select count(*) from makegood_step where attempt = 0").fetchone()[0]


def _forget(recorder: Recorder, file: sqlite3.Connection) -> None:
    """Let the recorder know what the store now says, and no more."""
    recorder.memory_replies.clear()
    recorder.came.clear()
    recorder.steps.clear()
    for task, idx, name, attempt, round_ in file.execute(
        "select task, idx, name, attempt, round from makegood_step"
    ):
        recorder.steps[task, idx] = (name, attempt, round_)
