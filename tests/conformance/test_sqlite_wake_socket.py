"""SQLite only: the wake socket between processes, and the poll behind it."""

import asyncio
import os
import re
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import makegood
from makegood.store.sqlite import SQLiteStore
from makegood.store.sqlite.wake_socket import KINDS, WakeSocket, folder_of, kind_of
from tests.conformance.builders import draft
from tests.conformance.worlds import SQLiteWorld, eventually


class Heard:
    """Collects what a wake_socket was rung for."""

    def __init__(self) -> None:
        self.topics: list[set[str] | None] = []

    def __call__(self, topics: set[str] | None) -> None:
        self.topics.append(topics)


def hung(path: Path, *topics: str) -> tuple[WakeSocket, Heard]:
    """Return an open wake_socket that listens to topics."""
    heard_topics = Heard()
    wake_socket = WakeSocket(path, heard_topics)
    wake_socket.open()
    for topic in topics:
        wake_socket.listen_to(topic)
    return wake_socket, heard_topics


def test_a_ring_is_heard_by_those_who_listen_to_its_kind(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    one, heard_one = hung(path, "inbox", "pending")
    two, heard_two = hung(path, "agent:shop/payments")
    ringing, heard_self = hung(path, "inbox")
    ringing.wake({"inbox"})
    ringing.wake({"agent:shop/stock", "ended"})
    for wake_socket in (one, two, ringing):
        wake_socket.answer()
    assert heard_one.topics == [{"inbox"}]
    assert heard_two.topics == [{"agent:shop/stock", "ended"}]
    assert heard_self.topics == []
    for wake_socket in (one, two, ringing):
        wake_socket.close()


def test_a_bell_that_finds_no_name_takes_nobody_elses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s.db"
    wake_sockets = [hung(path)[0] for _ in range(100)]
    hung(path)[0].close()
    assert "no free name" in caplog.text
    assert len(list(folder_of(path).iterdir())) == 100
    for wake_socket in wake_sockets:
        wake_socket.close()


def test_a_full_bell_rings_for_everything(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    listening, topics = hung(path, "inbox", "pending")
    ringing, _ = hung(path)
    for _ in range(2000):
        ringing.wake({"inbox"})
    ringing.wake({"pending"})
    listening.answer()
    assert topics.topics == [None]
    listening.close()
    ringing.close()


def test_the_socket_of_a_dead_process_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    dead, _ = hung(path, "inbox")
    assert dead.listener is not None
    dead.listener.close()  # as the kernel does for a killed process: the name stays
    ringing, _ = hung(path)
    assert len(list(folder_of(path).iterdir())) == 2
    ringing.wake({"inbox"})
    assert len(list(folder_of(path).iterdir())) == 1
    ringing.close()
    dead.close()


def test_a_socket_that_changes_its_name_meanwhile_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db"
    listening, topics = hung(path, "inbox")
    ringing, _ = hung(path)
    before = list(folder_of(path).iterdir())
    listening.listen_to("pending")
    listings = iter([before, list(folder_of(path).iterdir())])
    monkeypatch.setattr(Path, "iterdir", lambda _: next(listings))
    ringing.wake({"inbox"})
    monkeypatch.undo()
    listening.answer()
    assert topics.topics == [{"inbox"}]
    listening.close()
    ringing.close()


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path is short wherever the tests' own folders lie: a socket's name has little room."""
    with tempfile.TemporaryDirectory(prefix="mg") as folder:
        yield Path(folder)


def test_the_folder_is_for_this_user_only_and_goes_with_the_last(short: Path) -> None:
    path = short / "s.db"
    one, _ = hung(path)
    two, _ = hung(path)
    folder = folder_of(path)
    assert folder == short / "s.db.bell"
    assert folder.stat().st_mode & 0o777 == 0o700
    one.close()
    assert folder.exists()
    two.close()
    assert not folder.exists()


def test_a_long_path_has_its_folder_elsewhere_the_same_for_all(tmp_path: Path) -> None:
    path = tmp_path / ("d" * 90) / "s.db"
    path.parent.mkdir()
    folder = folder_of(path)
    assert folder == folder_of(path.parent / "." / "s.db")
    assert folder != folder_of(path.parent / "t.db")
    assert len(os.fsencode(folder)) < 80
    one, topics = hung(path, "inbox")
    two, _ = hung(path)
    two.wake({"inbox"})
    one.answer()
    assert topics.topics == [{"inbox"}]
    one.close()
    two.close()


def test_a_folder_that_others_may_write_to_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s.db"
    folder_of(path).mkdir()
    folder_of(path).chmod(0o777)
    wake_socket, _ = hung(path, "inbox")
    assert wake_socket.listener is None
    assert "polling only" in caplog.text
    wake_socket.wake({"inbox"})
    wake_socket.close()


def test_only_known_topics_have_a_kind() -> None:
    assert kind_of("agent:shop/payments") == "a"
    with pytest.raises(KeyError):
        kind_of("unknown")


def test_a_topic_without_a_letter_wakes_every_process(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    one, heard_one = hung(path, "inbox")
    waking, _ = hung(path)
    waking.wake({"ended", "of a newer release"})
    one.answer()
    assert heard_one.topics == [{"ended", "of a newer release"}]
    one.close()
    waking.close()


NAMED = re.compile(r'(?:topics\.(?:add|update)\(|topics \|= \{|subscribe\(|TOPIC = )f?"(\w+)')
"""A topic's kind where a module wakes it or subscribes to it."""


def test_every_topic_that_the_code_names_has_a_letter() -> None:
    """Without one, a process that subscribes to it does not open, and a commit wakes every process."""
    modules = Path(makegood.__file__).parent.rglob("*.py")
    assert {kind for path in modules for kind in NAMED.findall(path.read_text("utf-8"))} == set(KINDS)
    assert len(set(KINDS.values())) == len(KINDS)


async def test_without_a_bell_the_poll_sees_what_others_did(tmp_path: Path) -> None:
    world = SQLiteWorld(tmp_path)
    folder_of(world.path).mkdir()
    folder_of(world.path).chmod(0o755)
    listening = SQLiteStore(world.path, clock=world.clock, poll=0.01)
    await listening.open(migrate=True)
    acting = world.store()
    await acting.open()
    rang: list[int] = []
    listening.subscribe("pending", lambda: rang.append(1))
    await eventually(lambda: rang, "the first look")
    rang.clear()
    await acting.tasks.submit([draft(1)])
    await eventually(lambda: rang, "a poll that sees the commit")
    await listening.close()
    await acting.close()


async def test_another_process_rings_with_polling_off(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "s.db", poll=None)
    await store.open(migrate=True)
    rang: list[int] = []
    store.subscribe("pending", lambda: rang.append(1))
    code = """
        import asyncio, sys
        from makegood.store.sqlite import SQLiteStore
        from tests.conformance.builders import draft
        async def main():
            store = SQLiteStore(sys.argv[1])
            await store.open()
            await store.tasks.submit([draft(1)])
            await store.close()
        asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "s.db")]
    child = await asyncio.create_subprocess_exec(*command, cwd=Path(__file__).parents[2])
    await eventually(lambda: rang, "the ring of another process")
    assert await child.wait() == 0
    await store.close()
