"""What every peer does in the measurements of waits; the loops are the same for all. See ``benchmarks.waiting``.

Only the standard library is used here: it runs in the environment of each peer. A peer records when a step begins, by the
wall clock of the machine, which the sender of a signal and the moment of a sleep are measured by, too.
"""

import asyncio
import os
import threading
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Final

from benchmarks.driving import Subject, UnableError
from benchmarks.meters import memory_of, percentile

AT_ONCE: Final = 40
"""Tasks that wait beside each other while signals come, and sleep until moments that are close."""
APART: Final = 0.025
"""Seconds between two signals, or two moments."""
SETTLED: Final = 1.0
"""Seconds after which a task that was submitted waits."""
AHEAD: Final = 12.0
"""Seconds until the first moment of sleeps: longer than makegood's ``linger``, so that its tasks sleep in the store."""


class Begun:
    """When steps began, by a name of each, in seconds since 1970."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}

    def note(self, name: str) -> None:
        """Note that a step begins; the first time counts."""
        self.times.setdefault(name, time.time())

    async def wait(self, count: int, seconds: float = 60.0) -> None:
        """Wait until so many have begun."""
        end = time.monotonic() + seconds
        while len(self.times) < count:
            if time.monotonic() > end:
                raise UnableError(f"{len(self.times)} of {count} steps had begun after {seconds:.0f} s")
            await asyncio.sleep(0.005)


class WaitingSubject(Subject):
    """A peer whose tasks wait. ``begun``: where its steps note that they begin."""

    begun: Begun

    @abstractmethod
    async def ask(self, name: str) -> Any:
        """Submit a task that waits for a signal, and then has a step of this name; returns how to address it."""

    @abstractmethod
    async def send(self, address: Any) -> None:
        """Send the signal."""

    @abstractmethod
    async def sleep(self, name: str, moment: float) -> None:
        """Submit a task that sleeps until a moment, and then has a step of this name."""

    @abstractmethod
    async def schedule(self) -> None:
        """Have a task run at each second; its step's name is the moment, in whole seconds since 1970."""


def _figures(delays: list[float]) -> dict[str, float]:
    delays.sort()
    return {
        "p50_ms": percentile(delays, 0.5) * 1000,
        "p99_ms": percentile(delays, 0.99) * 1000,
        "samples": len(delays),
    }


async def signalled(subject: WaitingSubject) -> dict[str, float]:
    """Measure the time from a signal to the beginning of the next step."""
    delays: list[float] = []
    for first in range(0, subject.cell.amount, AT_ONCE):
        names = [f"{first + n}" for n in range(min(AT_ONCE, subject.cell.amount - first))]
        addresses = [await subject.ask(name) for name in names]
        await asyncio.sleep(SETTLED)
        sent_at: dict[str, float] = {}
        sends = []
        for name, address in zip(names, addresses, strict=True):
            sent_at[name] = time.time()
            sends.append(asyncio.ensure_future(subject.send(address)))
            await asyncio.sleep(APART)
        await asyncio.gather(*sends)
        await subject.begun.wait(first + len(names))
        delays += [subject.begun.times[name] - sent_at[name] for name in names]
    return _figures(delays)


async def slept(subject: WaitingSubject) -> dict[str, float]:
    """Measure how late steps begin after the moment until which their tasks sleep."""
    start = time.time() + AHEAD
    moments = {f"{n}": start + n * APART for n in range(subject.cell.amount)}
    for name, moment in moments.items():
        await subject.sleep(name, moment)
    if time.time() > start - 1.0:
        raise UnableError("its submissions took too long")
    await subject.begun.wait(len(moments))
    return _figures([subject.begun.times[name] - moment for name, moment in moments.items()])


async def fired(subject: WaitingSubject) -> dict[str, float]:
    """Measure how late the step of a scheduled task begins after its moment."""
    await subject.schedule()
    await subject.begun.wait(subject.cell.amount + 1)  # the first comes while it starts
    delays = sorted(began - float(name) for name, began in subject.begun.times.items())
    return _figures(delays[: subject.cell.amount])


async def held(subject: WaitingSubject) -> dict[str, float]:
    """Measure what tasks that wait for a signal take in this process."""
    await subject.ask("warm")
    await asyncio.sleep(SETTLED)
    memory, threads = memory_of(os.getpid()), threading.active_count()
    for n in range(subject.cell.amount):
        await subject.ask(f"{n}")
    await asyncio.sleep(2 * SETTLED)
    return {
        "kib_each": (memory_of(os.getpid()) - memory) * 1024 / subject.cell.amount,
        "threads_each": (threading.active_count() - threads) / subject.cell.amount,
    }


LOOPS: dict[str, Callable[[WaitingSubject], Awaitable[dict[str, float]]]] = {
    "signal": signalled,
    "sleep": slept,
    "schedule": fired,
    "held": held,
}
"""By the name of the workload."""


async def measure(subject: WaitingSubject) -> dict[str, Any]:
    """Open the subject, measure its cell, close it."""
    await subject.open()
    try:
        figures = await LOOPS[subject.cell.workload](subject)
    finally:
        await subject.close()
    return {**figures, "version": subject.version()}
