"""DBOS under measurement while its workflows wait. ``variant``: ``async`` for its asyncio interface, else threads."""

import asyncio
import time
from datetime import datetime
from importlib import metadata
from typing import Any

from dbos import DBOS

from benchmarks import driving, waits
from benchmarks.peers.dbos import launch

_BEGUN = waits.Begun()
_PATIENCE = 600.0


@DBOS.step()
def named_step(name: str) -> str:
    """Note that it begins."""
    _BEGUN.note(name)
    return name


@DBOS.step()
async def named_step_async(name: str) -> str:
    """Note that it begins."""
    _BEGUN.note(name)
    return name


@DBOS.workflow()
def asked(name: str) -> str:
    """Wait for an answer, then take a step."""
    DBOS.recv("answer", timeout_seconds=_PATIENCE)
    return str(named_step(name))


@DBOS.workflow()
async def asked_async(name: str) -> str:
    """Wait for an answer, then take a step."""
    await DBOS.recv_async("answer", timeout_seconds=_PATIENCE)
    return str(await named_step_async(name))


@DBOS.workflow()
def sleeps(name: str, moment: float) -> str:
    """Sleep until a moment, then take a step."""
    DBOS.sleep(moment - time.time())
    return str(named_step(name))


@DBOS.workflow()
async def sleeps_async(name: str, moment: float) -> str:
    """Sleep until a moment, then take a step."""
    await DBOS.sleep_async(moment - time.time())
    return str(await named_step_async(name))


@DBOS.workflow()
def ticks(moment: datetime, _context: Any) -> None:
    """Take a step."""
    named_step(f"{moment.timestamp():.0f}")


@DBOS.workflow()
async def ticks_async(moment: datetime, _context: Any) -> None:
    """Take a step."""
    await named_step_async(f"{moment.timestamp():.0f}")


class DbosWaits(waits.WaitingSubject):
    """DBOS in this process."""

    begun = _BEGUN

    @property
    def _is_async(self) -> bool:
        return self.cell.variant == "async"

    def version(self) -> str:
        """Return the version of the package."""
        return metadata.version("dbos")

    async def open(self) -> None:
        """Launch it."""
        launch(self.cell)

    async def close(self) -> None:
        """Leave it to the end of the process, for DBOS waits for its threads."""

    async def _start(self, threaded: Any, asynchronous: Any, *inputs: Any) -> str:
        if self._is_async:
            handle: Any = await DBOS.start_workflow_async(asynchronous, *inputs)
        else:
            handle = await asyncio.to_thread(DBOS.start_workflow, threaded, *inputs)
        return str(handle.workflow_id)

    async def ask(self, name: str) -> str:
        """Start a workflow that waits for an answer."""
        return await self._start(asked, asked_async, name)

    async def send(self, address: str) -> None:
        """Send the answer."""
        if self._is_async:
            await DBOS.send_async(address, "yes", "answer")
        else:
            await asyncio.to_thread(DBOS.send, address, "yes", "answer")

    async def sleep(self, name: str, moment: float) -> None:
        """Start a workflow that sleeps until a moment."""
        await self._start(sleeps, sleeps_async, name, moment)

    async def schedule(self) -> None:
        """Have a workflow run at each second."""
        workflow = ticks_async if self._is_async else ticks
        await asyncio.to_thread(
            lambda: DBOS.create_schedule(schedule_name="ticks", workflow_fn=workflow, schedule="* * * * * *")
        )


if __name__ == "__main__":
    driving.main(DbosWaits, measured=waits.measure)
