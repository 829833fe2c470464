"""An attempt in this process: one call of an action, from its start to its answer."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from makegood.model.messages import Request


class Running(msgspec.Struct, eq=False):
    """An attempt under way."""

    request: Request
    node: int
    """The process's number when it took the request."""
    deadline: float
    """On the local clock; never moved beyond ``last``."""
    last: float
    began: float
    extended: "Callable[[Running, float], Coroutine[Any, Any, bool]]"
    unclear: bool = False
    halts: bool = False
    """It can be stopped at its deadline, and will be."""
    patience: float = 0.0
    """Seconds that it may run past its deadline before that is logged; 0 until the deadline."""
    overdue: bool = False
    """It ran past its deadline for longer than ``patience``, and that was logged."""
    again: int = 0
    """Tries after the first."""
    reached: bool = False
    """The function was called."""
    ticket: int | None = None
    """The circuit breaker's handle for this call; None without a breaker, or once the outcome is reported."""
    since: float | None = None
    """A moment after the step's last failure; None for its first attempt."""
    work: "asyncio.Task[None] | None" = None

    async def extend(self, more: float) -> bool:
        """Ask the store to move the deadline to ``more`` seconds from now; see ``call.Bounds``."""
        return await self.extended(self, more)
