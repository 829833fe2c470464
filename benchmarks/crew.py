"""One process of a fleet under measurement: an engine, a Scheduler, agents, or a submitter with a closed loop of its own.

    python -m benchmarks.crew '{"kind": "engine", "store": "postgresql://…", "flight": 250}'

It says ``ready`` once it runs and then obeys lines on its standard input: ``go`` starts the callers, ``begin`` forgets what they
have measured, ``end`` answers with one JSON object, ``stop`` drains and ends. A process without callers obeys ``stop`` alone.
"""

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Literal

import makegood as mg
from benchmarks import driving
from benchmarks.peers.makegood import app_of

Kind = Literal["engine", "scheduler", "agents", "submitter"]
STEPS = 3
_ORDER = "an order of thirty-two characters"


@dataclass(frozen=True, slots=True)
class Member:
    """What a process of the fleet is. ``flight``: callers of its own. ``leads``: it runs a Supervisor as well."""

    kind: Kind
    store: str
    flight: int = 0
    leads: bool = False

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of its Node; none for a submitter."""
        roles = {
            "engine": ("scheduler", "agent"),
            "scheduler": ("scheduler",),
            "agents": ("agent",),
            "submitter": (),
        }[self.kind]
        return (*roles, "supervisor") if self.leads and roles else roles


@dataclass(slots=True)
class Callers:
    """A closed loop: each of ``flight`` callers does ``once`` again and again; what ends is timed."""

    once: Callable[[], Awaitable[object]]
    flight: int
    latencies: list[float] = field(default_factory=list)
    begun: float = 0.0
    _running: list["asyncio.Task[None]"] = field(default_factory=list)

    def go(self) -> None:
        """Start the callers."""
        self._running = [asyncio.create_task(self._round()) for _ in range(self.flight)]

    def begin(self) -> None:
        """Forget what was measured so far: the window begins."""
        self.latencies, self.begun = [], time.perf_counter()

    def end(self) -> dict[str, object]:
        """Return what ended in the window: its length, and how long each task took, in milliseconds."""
        took, latencies = time.perf_counter() - self.begun, self.latencies
        for caller in self._running:
            if caller.done() and not caller.cancelled():
                caller.result()  # what a caller died of ends the measurement
        return {"seconds": took, "latencies_ms": [round(value * 1000, 2) for value in latencies]}

    async def stop(self) -> None:
        """Let the callers go."""
        for caller in self._running:
            caller.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _round(self) -> None:
        while True:
            start = time.perf_counter()
            await self.once()
            self.latencies.append(time.perf_counter() - start)


async def _obey(callers: Callers | None) -> None:
    """Do what the lines on standard input say until ``stop`` or their end."""
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    print("ready", flush=True)
    while (line := (await lines.readline()).decode().strip()) not in ("", "stop"):
        if callers is None:
            continue
        if line == "go":
            callers.go()
        elif line == "begin":
            callers.begin()
        elif line == "end":
            print(json.dumps(callers.end()), flush=True)
    if callers is not None:
        await callers.stop()


async def serve(member: Member) -> None:
    """Run a member of the fleet until it is told to stop."""
    app, chain, *_ = app_of(STEPS)
    async with contextlib.AsyncExitStack() as stack:
        if member.roles:
            options = mg.Options(drain="2s", migrate=False)
            node = await stack.enter_async_context(
                mg.Node(app, member.store, roles=member.roles, options=options)
            )
            client = node.client
        else:
            client = await stack.enter_async_context(mg.Client(member.store))

        async def once() -> object:
            return await (await client.submit(chain, _ORDER)).result()

        await _obey(Callers(once, member.flight) if member.flight else None)


def text_of(member: Member) -> str:
    """Return a member as the argument that this module reads."""
    return json.dumps(asdict(member))


if __name__ == "__main__":
    driving.run(serve(Member(**json.loads(sys.argv[1]))))
    sys.stdout.flush()
    os._exit(0)
