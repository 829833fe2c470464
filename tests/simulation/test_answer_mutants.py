"""``signal(until=)`` with one of its rules switched off: the story of each rule notices, in a simulated world."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from msgspec.structs import replace

import makegood as mg
from makegood.base import ids, stored_values
from makegood.client import signal_answers, step_waiters
from makegood.testing import UnprovedError, World
from makegood.testing.kit.proof import Proof

app = mg.App("chats")
desk = app.agent("desk")
word = app.signal("word", str)
calls: list[str] = []


@desk.action(
    complete_within="5s", undo=mg.NOTHING, retry=mg.Retry(tries=1), recover=mg.Recover(threshold=3, wait="1s")
)
async def reply(text: str) -> str:
    calls.append(text)
    if text == "slow":
        await asyncio.sleep(3)
    if text == "lost" and calls.count(text) == 1:
        raise ConnectionError("the answer is lost")
    if text == "bad":
        raise mg.Permanent("no such word")
    return f"{text} {calls.count(text)}"


@app.workflow
def chat(order: str) -> tuple[str, str]:
    return reply(mg.wait_for(word)), reply(mg.wait_for(word))


@app.workflow
def short(order: str) -> str:
    return reply(mg.wait_for(word))


Story = Callable[[World], Coroutine[Any, Any, None]]


async def its_own_answer(world: World) -> None:
    """A step that comes before the wait that used the signal is not its answer."""
    task = await world.submit(chat, "a")
    assert await world.signal(task, word, "one", id="m-1", until="reply") == "one 1"
    with pytest.raises(mg.StepFailedError, match="another wait used this signal"):
        await world.signal(task, word, "two", id="m-2", until="reply")
    await world.run_to_rest()
    task.assert_processed()


async def its_own_round(world: World) -> None:
    """After an undo and a resubmission the old signal has no answer, whatever a new one leads to."""
    task = await world.submit(short, "a")
    with pytest.raises(mg.StepFailedError, match="no such word"):
        await world.signal(task, word, "bad", id="m-1", until="reply")
    await world.run_to_rest()
    await world.operator.resubmit(task)
    old = asyncio.ensure_future(world.signal(task, word, "bad", id="m-1", until="reply", timeout="1h"))
    assert await world.signal(task, word, "good", id="m-2", until="reply") == "good 1"
    with pytest.raises(mg.StepFailedError, match="began again: send another one"):
        await old
    await world.run_to_rest()
    task.assert_processed()


async def its_last_attempt(world: World) -> None:
    """An attempt without an answer is no end of the step."""
    task = await world.submit(short, "a")
    assert await world.signal(task, word, "lost", id="m-1", until="reply") == "lost 2"
    await world.run_to_rest()
    task.assert_processed()


async def sent_for_good(world: World) -> None:
    """A timeout ends the waiting alone: the same call waits again, and the task has one signal."""
    task = await world.submit(short, "a")
    with pytest.raises(mg.WaitExpiredError):
        await world.signal(task, word, "slow", id="m-1", until="reply", timeout="1s")
    again = await world.signal(task, word, "slow", id="m-1")
    assert not again.created, "it was sent before"
    assert await world.signal(task, word, "slow", id="m-1", until="reply", timeout="1h") == "slow 1"
    await world.run_to_rest()
    task.assert_processed()


def any_step(m: pytest.MonkeyPatch) -> None:
    """Each wait of the name comes before each step."""
    m.setattr(
        signal_answers,
        "_waits_before",
        lambda steps, _idx, signal: {
            s.idx: s.name for s in steps if s.kind == "wait_for" and s.action == signal
        },
    )


def any_round(m: pytest.MonkeyPatch) -> None:
    """A wait that began again is still the one that used the signal."""
    true = stored_values.record_of

    def fresh(kind: Any, values: Any) -> Any:
        return replace(true(kind, values), is_stale=False)

    m.setattr("makegood.store.step_outcomes.record_of", fresh)


def first_attempt(m: pytest.MonkeyPatch) -> None:
    """A step in doubt, which is tried again, has its outcome."""
    m.setattr(step_waiters, "UNDER_WAY", frozenset({"waiting", "ready", "running"}))


def timeout_withdraws(m: pytest.MonkeyPatch) -> None:
    """A caller that no longer waits takes the signal back."""
    true = signal_answers.ask

    async def ask(sender: Any, waiters: Any, question: Any, **options: Any) -> Any:
        try:
            return await true(sender, waiters, question, **options)
        except mg.WaitExpiredError as expiry:
            task = ids.parse(expiry.task_id)
            with contextlib.closing(sqlite3.connect(sender.opened_store.store.path)) as file, file:
                file.execute("delete from makegood_signal where task = ? and id = ?", (task, options["id"]))
            raise

    m.setattr("makegood.client.handle.ask", ask)


MUTANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], Story]] = [
    (any_step, its_own_answer),
    (any_round, its_own_round),
    (first_attempt, its_last_attempt),
    (timeout_withdraws, sent_for_good),
]


async def play_from_the_start(story: Story, stage: Any) -> None:
    """Play it from its beginning: a proof may play it more than once."""
    calls.clear()
    await story(World(stage))


def play(story: Story) -> None:
    """Play a story in a calm world. Raises ``UnprovedError`` if anything is wrong."""
    Proof(lambda stage: play_from_the_start(story, stage), fails=True).calm(0)


@pytest.mark.parametrize("story", [story for _, story in MUTANTS], ids=lambda story: story.__name__)
def test_with_all_rules_each_story_ends_well(story: Story) -> None:
    play(story)


@pytest.mark.parametrize(("mutant", "story"), MUTANTS, ids=lambda each: each.__name__)
def test_a_mutant_is_killed(
    mutant: Callable[[pytest.MonkeyPatch], None], story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    with pytest.raises(UnprovedError, match="What is wrong"):
        play(story)
