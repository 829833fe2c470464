"""A way to a server whose connections can be broken while the server keeps running."""

import asyncio
import threading

from makegood.testing.forwarder import Forwarder


class BreakableWay:
    """Forwards a free port of 127.0.0.1 to ``port``, from a thread of its own: suites have an event loop for each case."""

    def __init__(self, port: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._forwarder = Forwarder(port)
        asyncio.run_coroutine_threadsafe(self._forwarder.__aenter__(), self._loop).result(30)
        self.port = self._forwarder.port

    def sever(self) -> None:
        """Break every connection."""

        async def sever() -> None:
            self._forwarder.sever()

        asyncio.run_coroutine_threadsafe(sever(), self._loop).result(30)

    def close(self) -> None:
        """Break every connection, and listen no more."""
        asyncio.run_coroutine_threadsafe(self._forwarder.__aexit__(None, None, None), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()
