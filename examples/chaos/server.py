"""A private PostgreSQL server in a process of its own that stops and starts it when told so over a socket.

``python -m examples.chaos.server SOCKET FOLDER`` prints nothing; each connection to SOCKET sends one word (``url``, ``stop``,
``crash``, ``start``) and reads one line: "ok" and what was asked for, or "error" and why. SIGTERM ends it, and the server.
"""

import asyncio
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from makegood.errors import MakegoodError
from proofs.private_server import PrivateServer

SETTINGS: Final = {
    "deadlock_timeout": "300ms",
    "max_connections": "150",
    "recovery_init_sync_method": "syncfs",
}
"""``syncfs``: after a crash PostgreSQL would else sync some thousand files one by one, which takes seconds that prove nothing."""


Hear = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_TOLD: Final = (signal.SIGTERM, signal.SIGINT)


class ServerError(Exception):
    """The keeper of the server did not do what it was told. The message says why."""


async def tell(socket: Path, word: str) -> str:
    """Send a word to the keeper at ``socket``; return what it says. Raises ``ServerError``, or ``OSError`` when nobody is there."""
    reader, writer = await asyncio.open_unix_connection(str(socket))
    try:
        writer.write(f"{word}\n".encode())
        status, _, rest = (await reader.readline()).decode().strip().partition(" ")
    finally:
        writer.close()
    if status != "ok":
        raise ServerError(f"PostgreSQL, told to {word}: {rest or 'no answer'}")
    return rest


async def listening(hear: Hear, socket: Path) -> asyncio.Server:
    """Listen at ``socket``, which is there only once somebody listens: between its bind and its listen it would refuse."""
    early = socket.with_suffix(".new")
    server = await asyncio.start_unix_server(hear, str(early))
    early.rename(socket)
    return server


async def _keep(server: PrivateServer, socket: Path) -> None:
    acts: dict[str, Callable[[], None]] = {
        "url": lambda: None,
        "stop": server.stop,
        "crash": lambda: server.stop("immediate"),
        "start": server.start,
    }
    turn = asyncio.Lock()

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        word = (await reader.readline()).decode().strip()
        try:
            async with turn:
                await asyncio.to_thread(acts[word])
            writer.write(f"ok {server.url if word == 'url' else ''}\n".encode())
        except (MakegoodError, KeyError) as error:
            writer.write(f"error {' '.join(str(error).split())}\n".encode())
        writer.close()

    over = asyncio.Event()
    for number in _TOLD:
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _TOLD)
    async with await listening(hear, socket):
        await over.wait()
    # The kernel and the tether both tell us when our starter is gone: the later one must not end us before our server.
    signal.pthread_sigmask(signal.SIG_BLOCK, _TOLD)
    async with turn:
        return


def main() -> None:
    """Keep a server until SIGTERM."""
    socket, folder = map(Path, sys.argv[1:])
    signal.pthread_sigmask(signal.SIG_BLOCK, _TOLD)  # heard while the server is kept: it must be ended first
    with PrivateServer(settings=SETTINGS, folder=folder) as server:
        try:
            asyncio.run(_keep(server, socket))
        finally:
            shutil.copyfile(server.data.parent / "log", folder / "postgres-server.log")


if __name__ == "__main__":
    main()
