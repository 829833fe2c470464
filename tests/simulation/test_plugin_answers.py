"""Answers to signals and setups in a user's test: right wherever a process is killed."""

import asyncio
from collections.abc import AsyncIterator

import pytest

import makegood as mg
from makegood.errors import ConfigError
from makegood.testing import World, crash_everywhere

app = mg.App("chats")
desk = app.agent("desk")
word = app.signal("word", str)


class Books:
    """What a setup would open."""

    def __init__(self, name: str) -> None:
        self.name = name


@app.setup
async def books() -> AsyncIterator[Books]:
    raise OSError("no world has a network")
    yield Books("real")


@desk.action(complete_within="5s", undo=mg.NOTHING)
async def reply(text: str, *, books: Books = mg.SETUP) -> str:
    return f"{books.name}: {text}"


@app.workflow()
def chat(first: str) -> tuple[str, str]:
    one = reply(mg.wait_for(word))
    return one, reply(mg.wait_for(word))


def test_each_signal_gets_its_own_answer_wherever_a_process_is_killed() -> None:
    ends: list[str] = []

    @crash_everywhere(at_most=12)
    async def test_chat(world: World) -> None:
        world.setup(books=Books("fake"))
        task = await world.submit(chat, "a")
        answer = await world.signal(task, word, "hello", id="m-1", until="reply")
        second = asyncio.ensure_future(world.signal(task, word, "bye", id="m-2", until="reply-2"))
        assert await world.signal(task, word, "hello", id="m-1", until="reply") == answer, "it waits again"
        await world.run_to_rest()
        task.assert_processed()
        ends.append(f"{answer}, {await second}")
        with pytest.raises(ConfigError, match="the processes of this world have started"):
            world.setup(books=Books("late"))

    test_chat()
    assert len(ends) > 5
    assert set(ends) == {"fake: hello, fake: bye"}
