"""Notes of running actions: they reach the history in order, while the action runs, from whichever process."""

import asyncio
import json
import threading
from typing import Any

import msgspec
import pytest

import makegood as mg
from makegood.model.messages import TaskMessage
from makegood.model.note import MOST_OCTETS, Note
from makegood.node.node import Node
from makegood.store import rows
from makegood.store.protocol import Store
from tests.actors.conftest import QUIET
from tests.actors.test_cancelled_calls import nodes
from tests.conformance.worlds import Counts


class Copying:
    """A workflow of one action that runs until ``ends`` is set; ``call`` is its call."""

    def __init__(self, **options: Any) -> None:
        self.began, self.ends = asyncio.Event(), asyncio.Event()
        self.app = app = mg.App("shop")
        self.calls: list[Any] = []

        @app.agent("disk").action(complete_within="1m", undo=mg.NOTHING, retry=mg.Retry(tries=1), **options)
        async def copy(files: int) -> str:
            call = mg.current_call()
            self.calls.append(call)
            call.note(f"0 of {files}")
            self.began.set()
            await self.ends.wait()
            call.note({"copied": files})
            return "copied"

        @app.workflow()
        def backup(files: int) -> str:
            return copy(files)

        self.backup = backup


async def notes(task: mg.TaskHandle[Any]) -> list[Note]:
    """Return the notes in the history of a task."""
    return [note async for event in task.events(follow=False) for note in event.notes]


async def first_notes(task: mg.TaskHandle[Any]) -> list[Note]:
    """Return the notes of a running task, once it has any."""
    async with asyncio.timeout(120):
        async for event in task.events():
            if event.notes:
                break
    return await notes(task)


async def story(task: mg.TaskHandle[Any]) -> list[str]:
    """Return the notes and the states of steps in the history, in order."""
    texts: list[str] = []
    async for event in task.events(follow=False):
        texts += [note.text for note in event.notes]
        texts += [move.after for move in event.moves if not move.of_task]
    return texts


@pytest.mark.parametrize("apart", [False, True])
async def test_notes_are_in_the_history_while_the_action_runs_and_before_its_end(
    store: Store, other: Store, *, apart: bool
) -> None:
    work = Copying()
    async with nodes(work.app, store, other if apart else None) as (scheduler, _):
        task = await scheduler.client.submit(work.backup, 40)
        await work.began.wait()
        first = await first_notes(task)
        assert first == [Note(0, 1, "do", "0 of 40")]
        work.ends.set()
        assert await task.result("120s") == "copied"
        assert await story(task) == ["ready", "running", "0 of 40", '{"copied":40}', "done"]
        with pytest.raises(mg.CompleteByPassed, match="has ended"):
            work.calls[0].note("too late")


@pytest.mark.parametrize("apart", [False, True])
async def test_a_thread_writes_notes_and_the_last_of_many_is_kept(
    store: Store, other: Store, *, apart: bool
) -> None:
    app = mg.App("shop")

    @app.agent("disk").action(complete_within="1m", undo=mg.NOTHING)
    def copy(files: int) -> None:
        for n in range(files):
            mg.current_call().note(f"{n + 1} of {files}")

    @app.workflow()
    def backup(files: int) -> None:
        copy(files)

    async with nodes(app, store, other if apart else None) as (scheduler, _):
        task = await scheduler.client.submit(backup, 400)
        await task.result("120s")
        lines = await notes(task)
        assert (lines[0].text, lines[-1].text) == ("1 of 400", "400 of 400")
        assert len(lines) + sum(note.skipped for note in lines) == 400
        assert len(lines) < 400
        numbers = [int(note.text.split()[0]) for note in lines]
        assert numbers == sorted(set(numbers))


async def test_a_note_that_is_too_large_or_is_no_json_is_refused_where_it_is_written(store: Store) -> None:
    app, faults = mg.App("shop"), list[str]()

    @app.agent("disk").action(complete_within="1m", undo=mg.NOTHING)
    async def copy(files: int) -> None:
        call = mg.current_call()
        for value in ("x" * MOST_OCTETS, float("nan"), threading.Lock()):
            with pytest.raises(mg.PayloadError) as wrong:
                call.note(value)
            faults.append(str(wrong.value))
        call.note("x" * (MOST_OCTETS - 2))

    @app.workflow()
    def backup(files: int) -> None:
        copy(files)

    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(backup, 1)
        await task.result("120s")
        assert len(await notes(task)) == 1
    assert len(faults) == 3
    assert all(fault.startswith("the note") for fault in faults)
    assert "2,048" in faults[0]


@pytest.mark.parametrize("apart", [False, True])
async def test_the_last_note_of_an_attempt_that_fails_is_kept_before_its_failure(
    store: Store, other: Store, *, apart: bool
) -> None:
    app = mg.App("shop")

    @app.agent("disk").action(complete_within="1m", undo=mg.NOTHING)
    async def copy(files: int) -> None:
        mg.current_call().note("begun")
        mg.current_call().note("the disk is nearly full")
        raise mg.Permanent("the disk is full")

    @app.workflow()
    def backup(files: int) -> None:
        copy(files)

    async with nodes(app, store, other if apart else None) as (scheduler, _):
        task = await scheduler.client.submit(backup, 1)
        assert (await task.wait("120s")).state == "undone"
        assert (await story(task))[2:5] == ["begun", "the disk is nearly full", "failed"]


async def test_a_note_near_its_scheduler_costs_one_commit_and_none_costs_nothing(
    counting: tuple[Store, Counts],
) -> None:
    store, counts = counting
    app = mg.App("shop")
    ends = asyncio.Event()

    @app.agent("disk").action(complete_within="1m", undo=mg.NOTHING)
    async def copy(files: int) -> None:
        if files:
            mg.current_call().note("begun")
        await ends.wait()

    @app.workflow()
    def backup(files: int) -> None:
        copy(files)

    commits = []
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        for files in (0, 1, 0, 1):
            ends.clear()
            task = await node.client.submit(backup, files)
            before = await counts.commits()
            if files:
                await first_notes(task)
            ends.set()
            await task.result("120s")
            commits.append(await counts.commits() - before)
    assert commits[3] == commits[2] + 1


class OlderMessage(msgspec.Struct):
    """A message as a version reads it that knows no notes."""

    kind: str
    idx: int = -1
    doing: str = "do"
    attempt: int = 0
    value: bytes | None = None
    error: str | None = None


def test_an_older_scheduler_reads_a_note_as_a_late_reply_that_brings_nothing() -> None:
    note = Note(0, 1, "do", "12 of 40", 3)
    body = rows.message(TaskMessage("late", 0, "do", 1, note=note))
    assert rows.read_message(body, 1).note == note
    assert msgspec.json.decode(body, type=OlderMessage) == OlderMessage("late", 0, "do", 1)


# -- for the submitter -------------------------------------------------------------------------------------------------


async def notices(client: mg.Client) -> list[dict[str, Any]]:
    """Return the notices in the queue of the submitter, once the last one is there."""
    events: list[dict[str, Any]] = []
    async with asyncio.timeout(120):
        while not events or events[-1]["type"] != "dev.makegood.task.processed.v1":
            queue = client.queue("web")
            for message in await queue.receive(100):
                events.append(json.loads(message.body))
                assert await queue.acknowledge(message)
    return events


@pytest.mark.parametrize("apart", [False, True])
async def test_a_submitter_who_wants_them_gets_notes_between_the_states_under_one_count(
    store: Store, other: Store, *, apart: bool
) -> None:
    work = Copying()
    async with nodes(work.app, store, other if apart else None) as (scheduler, _):
        task = await scheduler.client.submit(work.backup, 40, reply_to="queue:web", notes=True)
        await first_notes(task)
        work.ends.set()
        events = await notices(scheduler.client)
        assert [event["type"].split(".")[3] for event in events] == [
            "received", "processing", "note", "note", "processed",
        ]  # fmt: skip
        assert [event["data"]["sequence"] for event in events] == [1, 2, 3, 4, 5]
        data = [event["data"] for event in events if "note" in event["data"]]
        assert [each["state"] for each in data] == ["processing", "processing"]
        assert [each["note"]["value"] for each in data] == ["0 of 40", {"copied": 40}]
        assert data[0]["note"] | {"value": None} == {
            "step": "copy", "attempt": 1, "doing": "do", "value": None, "skipped": 0,
        }  # fmt: skip


async def test_a_submitter_who_does_not_ask_gets_states_alone(store: Store) -> None:
    work = Copying()
    work.ends.set()
    async with Node(work.app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(work.backup, 40, reply_to="queue:web")
        events = await notices(node.client)
        assert [event["data"]["state"] for event in events] == ["received", "processing", "processed"]
        assert len(await notes(task)) == 2
        with pytest.raises(mg.ConfigError, match="reply_to="):
            await node.client.submit(work.backup, 40, notes=True)
        plan = work.backup.plan(1).with_(reply_to="queue:web", notes=True)
        (many,) = await node.client.submit_many([plan.with_(notes=False)])
        await many.result("120s")
        assert "note" not in [event["type"].split(".")[3] for event in await notices(node.client)]
