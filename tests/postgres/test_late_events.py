"""Events that are committed after others with a higher number: notes and late replies are written without the task's lock."""

import asyncio

import asyncpg

import makegood as mg
from makegood import Node

shop = mg.App("shop")
desk = shop.agent("desk")
gates: dict[str, asyncio.Event] = {}


@desk.action(complete_within="1m", undo=mg.NOTHING)
async def pack() -> None:
    call = mg.current_call()
    call.note("begins")
    await gates["note"].wait()
    call.note("goes on")
    await gates["end"].wait()


@shop.workflow
def order() -> None:
    pack()


async def test_a_follower_is_told_of_an_event_that_is_committed_late(url: str) -> None:
    gates.update(note=asyncio.Event(), end=asyncio.Event())
    other = await asyncpg.connect(url)
    texts = asyncio.Queue[str]()
    async with Node(shop, url) as node, asyncio.timeout(60), asyncio.TaskGroup() as group:
        task = await node.client.submit(order)

        async def follow() -> None:
            async for event in task.events():
                for text in (event.note, *(note.text for note in event.notes)):
                    texts.put_nowait(text)

        async def shows(text: str) -> None:
            while await texts.get() != text:
                pass

        group.create_task(follow())
        await shows("begins")
        transaction = other.transaction()
        await transaction.start()
        await other.execute(
            "insert into makegood.event (task, at, node, moves, note) select task, at, node, moves, 'late' from makegood.event where task = $1 limit 1",
            task.number,
        )
        gates["note"].set()
        await shows("goes on")
        await transaction.commit()
        await shows("late")
        gates["end"].set()
    await other.close()
