"""Work that does not stop when it must: it is told of loudly, or its process ends."""

import asyncio
import contextlib
import subprocess
import sys

import pytest

from makegood.base.clock import SystemClock
from makegood.election.watchdog import EXIT_CODE, Watchdog
from tests.election.virtual import Leases, election, forever, virtual, wait


@virtual
async def test_work_that_does_not_stop_in_time_is_told_of_loudly(caplog: pytest.LogCaptureFixture) -> None:
    leases = Leases()
    candidate = election(leases)
    async for term in candidate.terms():
        async with term:
            leases.away = True
            with contextlib.suppress(asyncio.CancelledError):
                await forever()
            await wait(10)
        break
    assert candidate.figures.overruns == 1
    assert [r.levelname for r in caplog.records if "after the deadline" in r.getMessage()] == ["CRITICAL"]


@virtual
async def test_work_that_goes_on_after_stop_is_told_of_once_and_its_lease_is_renewed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    leases = Leases()
    candidate = election(leases)
    async for term in candidate.terms():
        async with term:
            candidate.stop()
            with contextlib.suppress(asyncio.CancelledError):
                await forever()
            await wait(60)
            assert term.remaining() > 0
    messages = [r.getMessage() for r in caplog.records if "was asked to" in r.getMessage()]
    assert len(messages) == 1
    assert "has not stopped 15" in messages[0]


def test_overrun_exit_ends_a_process_whose_work_was_told_to_stop_and_does_not() -> None:
    """SIGTERM, which its handler takes for ``stop()``: within one ttl, though the lease could be renewed for ever."""
    with subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:  # fmt: skip
        assert child.stdout is not None
        assert child.stdout.readline() == "leads\n"
        child.terminate()
        _, errors = child.communicate(timeout=120)
    assert child.returncode == EXIT_CODE
    assert "within one ttl of being asked to" in errors


STUBBORN = """
import asyncio
from makegood.election import Election, open_leases

async def lead(term):
    print("leads", flush=True)
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

async def main():
    async with open_leases("memory:") as leases:
        await Election("lead", leases, ttl=5, overrun="exit").run(lead)

asyncio.run(main())
"""


def test_the_watchdog_ends_the_process_when_work_has_not_stopped_and_only_then(
    capfd: pytest.CaptureFixture[str],
) -> None:
    time, left = SystemClock(), list[int]()
    late = Watchdog("'lead', epoch 3,", lambda: time.monotonic() - 1, time, left.append)
    late.start()
    late._thread.join(60)
    assert left == [EXIT_CODE]
    assert "'lead', epoch 3, has not stopped" in capfd.readouterr().err
    punctual = Watchdog("'lead', epoch 4,", lambda: time.monotonic() + 60, time, left.append)
    punctual.start()
    punctual.stop()
    punctual._thread.join(60)
    assert left == [EXIT_CODE]
