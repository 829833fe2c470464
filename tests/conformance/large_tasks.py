"""Tasks with many steps and large values, made by rows."""

from makegood.base.sizes import KIB
from makegood.store.protocol import Store
from tests.conformance.builders import draft, steps
from tests.conformance.worlds import World

LARGE = 1024 * KIB
"""Bytes of a large result."""
_MOVES = b'[["s%d","waiting","running","dispatched"],["s%d","running","done","reply"]]'


async def long_task(
    store: Store, world: World, count: int, *, task: int = 1, results: int = 0, events: int = 0
) -> None:
    """Insert a task of so many steps: most are done, s7 and s1007, s2007 ... failed, s500 is in doubt, the last two wait.

    ``results``: so many steps have a result of 1 MiB; ``events``: so many entries of its history, and one of 10,000 moves.
    """
    await store.tasks.submit([draft(task, key=f"long-{task}", steps=steps(count))])
    async with world.raw() as raw:
        await raw.run("update {step} set state = 'done' where task = ? and idx < ?", task, count - 2)
        await raw.run(
            "update {step} set state = 'failed', error = 'the card was refused' where task = ? and idx % 1000 = 7",
            task,
        )
        await raw.run("update {step} set state = 'in_doubt' where task = ? and idx = 500", task)
        large = b'"' + b"x" * (LARGE - 2) + b'"'
        await raw.run("update {step} set result = ? where task = ? and idx < ?", large, task, results)
        for n in range(events):
            moves = _MOVES % (n, n)
            await raw.run(
                "insert into {event} (task, at, node, moves, note, attempts) values (?, ?, 1, ?, '', ?)",
                task,
                1000.0 + n,
                moves,
                b"",
            )
        if events:
            moves = b"[" + b",".join(_MOVES[1:-1] % (n, n) for n in range(10_000)) + b"]"
            await raw.run(
                "insert into {event} (task, at, node, moves, note, attempts) values (?, ?, 1, ?, '', ?)",
                task,
                9000.0,
                moves,
                b"",
            )
