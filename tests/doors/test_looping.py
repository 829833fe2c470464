"""Which event loop a role's process runs on."""

import asyncio
import sys

import pytest

from makegood.cli import looping


async def name_of_loop() -> str:
    """Say which loop this runs on."""
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]


def test_uvloop_is_taken_where_it_is_installed() -> None:
    """The tests' environment has it, on every platform that there is one for."""
    pytest.importorskip("uvloop")
    assert looping.run(name_of_loop()) == "uvloop"


def test_without_uvloop_it_is_asyncios_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else changes."""
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert looping.run(name_of_loop()) == "asyncio"
