"""Apps for the tests of the actors: workflows of n no-op steps, and actions that end in every way."""

import asyncio
import threading
from typing import Any

import makegood as mg


def chain_app(length: int) -> tuple[mg.App, Any]:
    """Return an app with one workflow of ``length`` no-op steps in sequence, and that workflow."""
    app = mg.App("bench")
    desk = app.agent("desk", concurrency=1000)

    @desk.action(complete_within="1m", undo=mg.NOTHING)
    async def step(order: str) -> str:
        return order

    @app.workflow()
    def chain(order: str) -> str:
        for _ in range(length):
            order = step(order)
        return order

    return app, chain


class Service:
    """A remote service in memory: it notes calls, and does what a test tells it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, int]] = []
        self.fail: list[BaseException] = []
        self.hang = asyncio.Event()
        self.block = threading.Event()

    def called(self, what: str) -> None:
        """Note a call and fail if the next failure says so."""
        call = mg.current_call()
        self.calls.append((what, call.key, call.attempt))
        if self.fail:
            raise self.fail.pop(0)

    def names(self) -> list[str]:
        """Return what was called, in order."""
        return [what for what, _, _ in self.calls]
