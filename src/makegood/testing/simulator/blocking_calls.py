"""Refuses what asks for a network or another program behind the loop's back: blocking libraries, and threads
of the user's own.

Python's audit events show the calls of every library that uses ``socket`` or ``subprocess``. (A driver
written in C that opens its own connections, such as libpq, is not seen.) A function of a simulated process is
recognised by the running loop, and a thread by the mark that it got from what started it. A coroutine that
waits for a thread would wait in virtual time, which does not pass for threads: so none is started there.
"""

import asyncio
import functools
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from makegood.base.contexts import running_loop
from makegood.testing.simulator.loop import WorldLoop

_NETWORK: Final = frozenset({
    "socket.bind", "socket.connect", "socket.getaddrinfo", "socket.gethostbyaddr", "socket.gethostbyname",
    "socket.getnameinfo", "socket.sendmsg", "socket.sendto",
})  # fmt: skip
_PROGRAMS: Final = frozenset({
    "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen",
})  # fmt: skip
_REFUSED: Final = {**dict.fromkeys(_NETWORK, "network"), **dict.fromkeys(_PROGRAMS, "subprocesses")}
_MARK: Final = "makegood_world"
_INLINE: Final = "`await asyncio.to_thread(...)` runs a function here; or write the action as a def"


@contextmanager
def calls_watched(world: WorldLoop) -> Iterator[None]:
    """Refuse such calls while a world plays here."""
    _listen()
    for thread in threading.enumerate():  # those of pools that an earlier world has filled
        if hasattr(thread, _MARK):
            setattr(thread, _MARK, world)
    start = threading.Thread.start

    def start_watched(self: threading.Thread) -> None:
        if (starting := _world()) is not None:
            if running_loop() is starting and asyncio.current_task(starting) is not None:
                starting.refuse("Thread.start", "threads for a coroutine to wait for", _INLINE)
            setattr(self, _MARK, starting)
        start(self)

    threading.Thread.start = start_watched  # type: ignore[method-assign]  # audit events of threads came with 3.12
    try:
        yield
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]


@functools.cache
def _listen() -> None:
    """Add the hook; Python cannot remove one, so it does nothing outside of a world."""
    sys.addaudithook(_audit)


def _audit(event: str, _args: tuple[Any, ...]) -> None:
    if event in _REFUSED and (world := _world()) is not None:
        world.refuse(event, _REFUSED[event], inside=True)


def _world() -> WorldLoop | None:
    """Return the world whose simulated process makes the call; None outside."""
    loop = running_loop()
    if isinstance(loop, WorldLoop):
        return loop if loop.in_process() else None
    world = getattr(threading.current_thread(), _MARK, None)
    return world if isinstance(world, WorldLoop) else None
