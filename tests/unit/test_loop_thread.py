"""A loop in a thread: it runs coroutines for blocking code, and refuses to stop a running loop."""

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

from makegood.base.loop_thread import Loop
from makegood.errors import ConfigError, MakegoodError


async def where() -> str:
    return threading.current_thread().name


def test_it_runs_in_a_thread_of_its_own_and_can_begin_again() -> None:
    starts: list[int] = []
    loop = Loop(lambda: starts.append(1))
    assert loop.run(where, "it") == "makegood"
    assert loop.run(where, "it") == "makegood"
    loop.stop()
    assert loop.run(where, "it") == "makegood"
    loop.stop()
    assert starts == [1, 1]


async def test_inside_a_running_loop_it_names_what_to_use() -> None:
    with pytest.raises(MakegoodError, match="use Client and await it"):
        Loop().run(lambda: asyncio.sleep(0), "Client")


@pytest.mark.parametrize(
    ("module", "question", "library"),
    [
        ("gevent.monkey", "is_module_patched", "threading"),
        ("gevent.monkey", "is_module_patched", "socket"),
        ("eventlet.patcher", "is_monkey_patched", "thread"),
    ],
)
def test_it_refuses_a_process_that_was_patched_and_names_by_whom(
    monkeypatch: pytest.MonkeyPatch, module: str, question: str, library: str
) -> None:
    """However little of it was patched; no thread is started. Imported alone neither of them changes anything."""
    fake = ModuleType(module)
    setattr(fake, question, lambda name: name == library)
    monkeypatch.setitem(sys.modules, module, fake)
    loop = Loop(lambda: pytest.fail("it was begun"))
    with pytest.raises(ConfigError, match=f"^{module.partition('.')[0]} has patched .*gthread"):
        loop.run(where, "it")
    setattr(fake, question, lambda _: False)
    assert Loop().run(where, "it") == "makegood"


PATCHED = """
{patch}
import makegood as mg
from makegood.election import Election
from makegood.election.stores.memory import MemoryLeases

client = mg.SyncClient("sqlite:///never.db", migrate=True)


def elect():
    with Election.sync("x", MemoryLeases()) as election:
        election.history()


for call in (client.open, client.find, client.find, mg.SyncNode(mg.App("a"), "sqlite:///never.db").__enter__, elect):
    try:
        call()
    except mg.ConfigError as refused:
        print(str(refused).partition(" ")[0])
client.close()
"""


@pytest.mark.parametrize(
    ("library", "patch"),
    [
        ("gevent", "from gevent import monkey; monkey.patch_all()"),
        ("gevent", "from gevent import monkey; monkey.patch_all(thread=False)"),
        ("eventlet", "import eventlet; eventlet.monkey_patch()"),
    ],
)
def test_the_libraries_themselves_are_recognised(tmp_path: Path, library: str, patch: str) -> None:
    """In a process of its own, since what they patch stays patched. Each call says it, not the first one alone."""
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PATCHED.format(patch=patch)],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert process.stdout.split() == [library] * 5, process.stderr
    assert list(tmp_path.iterdir()) == []
