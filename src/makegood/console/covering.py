"""Covers the secrets of large payloads in a process of their own.

To cover a payload is to decode it. A megabyte of small values becomes hundreds of thousands of objects, and
while these are made or examined for garbage, no other thread of the interpreter runs.
"""

import asyncio
import os
import subprocess
import sys
from typing import Final

from makegood.base.sizes import KIB, MIB
from makegood.console.drawing import DrawingThread
from makegood.console.redaction import Redaction

IN_THREAD: Final = 64 * KIB
"""Bytes of a payload up to which the thread that draws covers it."""
MOST: Final = 8 * MIB
"""Bytes above which a payload is not covered at all."""
_WITHIN: Final = 30.0
_COMMAND: Final = "from makegood.console.covering import main; main()"


class Covering:
    """Covers payloads, a large one at a time."""

    def __init__(self, redaction: Redaction, thread: DrawingThread) -> None:
        self._redaction = redaction
        self._thread = thread
        self._alone = asyncio.Lock()

    async def mask(self, payload: bytes) -> bytes:
        """Return a payload as JSON with its secrets covered. An application's own hook runs in this process,
        whatever the size.
        """
        if len(payload) <= IN_THREAD or self._redaction.has_hook:
            return await self._thread.run(lambda: self._redaction.raw(payload)) or b"null"
        async with self._alone:
            return await _elsewhere(payload)


async def _elsewhere(payload: bytes) -> bytes:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    try:
        async with asyncio.timeout(_WITHIN):
            text, _ = await process.communicate(payload)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return text if process.returncode == 0 else f'"{len(payload):,} bytes that cannot be shown"'.encode()


def main() -> None:
    """Cover what comes on stdin."""
    sys.stdout.buffer.write(Redaction().raw(sys.stdin.buffer.read()) or b"null")
