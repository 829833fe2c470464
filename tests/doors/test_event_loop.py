"""Which event loop a role's process runs on."""

import asyncio
import subprocess
import sys

import pytest

from makegood.cli import event_loop


async def name_of_loop() -> str:
    """Say which loop this runs on."""
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]


def test_uvloop_is_taken_where_it_is_installed() -> None:
    """The tests' environment has it, on every platform that there is one for."""
    pytest.importorskip("uvloop")
    assert event_loop.run(name_of_loop()) == "uvloop"


def test_a_busy_loop_lets_other_threads_have_the_interpreter_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's writing thread wants it several times a commit. An interval that is shorter already stays."""
    intervals: list[float] = []
    monkeypatch.setattr(sys, "setswitchinterval", intervals.append)
    for before, after in ((0.005, 0.0002), (0.0001, 0.0001)):
        monkeypatch.setattr(sys, "getswitchinterval", lambda before=before: before)
        event_loop.run(name_of_loop())
        assert intervals.pop() == after


def test_without_uvloop_it_is_asyncios_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else changes."""
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert event_loop.run(name_of_loop()) == "asyncio"


def test_what_fails_inside_has_nothing_to_do_with_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A traceback in the log that began with "No module named 'uvloop'" sent people looking there."""

    async def fails() -> None:
        raise KeyError("o-1")

    monkeypatch.setitem(sys.modules, "uvloop", None)
    with pytest.raises(KeyError) as error:
        event_loop.run(fails())
    assert error.value.__context__ is None


FAILS = """
import asyncio
from makegood.cli import event_loop
from makegood.errors import ConfigError, StoreUnavailableError

event_loop.GRACE = 0.2
kept = []  # a task that waits for nothing known elsewhere is a cycle: the collector would end it

async def deaf():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

async def fails():
    kept.append(asyncio.create_task(deaf()))
    await asyncio.sleep(0)
    {end}

event_loop.run(fails())
"""


@pytest.mark.parametrize(
    ("end", "code", "hint"),
    [
        ("raise StoreUnavailableError('shop.db is gone')", 8, "shop.db is gone"),
        ("raise ConfigError('roles=x')", 2, "roles=x"),
        ("raise KeyError('o-1')", 1, "KeyError: 'o-1'"),
        ("return None", 0, ""),
    ],
)
def test_what_ended_the_node_is_told_although_something_does_not_end(end: str, code: int, hint: str) -> None:
    """The process ended with 1 for whatever it was, and without a word of it: nobody was left to raise it to."""
    process = subprocess.run(
        [sys.executable, "-c", FAILS.format(end=end)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == code, process.stderr
    assert hint in process.stderr
    assert "this process ends now" in process.stderr
