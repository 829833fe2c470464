"""Names the owner of a callback of the loop, in words, so that users find it in their code."""

import asyncio
from pathlib import Path
from typing import Any

from makegood.declare.call import known_call


def whose(handle: Any) -> str:
    """Return what a callback is part of: the step that runs there, the coroutine and its current line."""
    task = getattr(handle._callback, "__self__", None)  # noqa: SLF001 - a handle of asyncio's has no other way
    place = _place(task.get_coro()) if isinstance(task, asyncio.Task) else ""
    call = handle._context.run(known_call)  # noqa: SLF001 - as above
    if call is not None:
        place = f"step {call.step} of task {call.task_id} (attempt {call.attempt}){place and ', in '}{place}"
    return place or repr(handle._callback)  # noqa: SLF001 - as above


def _place(coroutine: Any) -> str:
    """Return the innermost coroutine that is not asyncio's, and its line; "" if there is none."""
    place = ""
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        if not frame.f_globals.get("__name__", "").startswith("asyncio."):
            place = f"{coroutine.__qualname__} ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})"
        coroutine = coroutine.cr_await
    return place
