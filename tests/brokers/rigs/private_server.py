"""A private server that is one program, for rigs."""

import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from examples.orders.private_servers import ServerProcess
from tests.brokers.rigs.breakable_way import BreakableWay

S = TypeVar("S", bound=ServerProcess)


class PrivateProgram(ServerProcess):
    """``words``: returns its command for a folder and a port."""

    def __init__(self, title: str, words: Callable[[Path, int], Sequence[str]]) -> None:
        super().__init__(Path(tempfile.mkdtemp(prefix=f"makegood-{title}-")))
        self.title = title
        self._command = words

    def _words(self) -> Sequence[str]:
        return self._command(self.folder, self.port)

    def restart(self) -> None:
        """Stop it in good order, and start it again."""
        self.end()
        self.start()


class ServerRig(Generic[S]):
    """A rig with a server of its own."""

    server: S

    def start(self) -> None:
        """Start it, or start it again."""
        self.server.start()

    def kill(self) -> None:
        """Kill it."""
        self.server.kill()

    def stop(self) -> None:
        """Stop it with SIGSTOP."""
        self.server.pause()

    def resume(self) -> None:
        """Let it continue."""
        self.server.resume()

    def close(self) -> None:
        """Kill it, and remove its folder."""
        self.server.close()


class RigBehindAWay(ServerRig[PrivateProgram]):
    """A rig whose users reach its server on a way that can be broken."""

    def __init__(self, server: PrivateProgram) -> None:
        self.server = server
        self.way = BreakableWay(server.port)

    async def disconnect(self, place: str) -> None:
        """Break all connections but the rig's own."""
        self.way.sever()

    def close(self) -> None:
        """Kill it, remove its folder, and close the way."""
        super().close()
        self.way.close()


def pause(seconds: float) -> None:
    """Leave the core to the server, which says to nobody that it has come further."""
    threading.Event().wait(seconds)
