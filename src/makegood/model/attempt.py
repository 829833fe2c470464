"""An attempt in this process: one call of an action, from its begin to its answer."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from makegood.model.messages import Request


class Running(msgspec.Struct, eq=False):
    """An attempt under way. ``deadline`` is on the local clock, and is never moved beyond ``last``; ``node`` is the process's
    number when it was taken.

    ``halts``: it can be stopped at its deadline, and is to be. ``patience``: seconds that it may run beyond its deadline before that is
    logged, 0 until the deadline; ``overdue``: it was. ``again``: tries after the first. ``reached``: the function was
    called. ``ticket``: with what its agent's circuit knows it again, None once it has been told (or there is none); ``since``: a moment
    after the step's last failure, None for its first attempt.
    """

    request: Request
    node: int
    deadline: float
    last: float
    began: float
    extended: "Callable[[Running, float], Coroutine[Any, Any, bool]]"
    unclear: bool = False
    halts: bool = False
    patience: float = 0.0
    overdue: bool = False
    again: int = 0
    reached: bool = False
    ticket: int | None = None
    since: float | None = None
    work: "asyncio.Task[None] | None" = None

    async def extend(self, more: float) -> bool:
        """Ask the store for so many seconds from now on; see ``call.Bounds``."""
        return await self.extended(self, more)
