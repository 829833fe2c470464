"""A failed call's traceback, and the line of the user's own code in it, for people who look for the cause."""

import sysconfig
import traceback
from pathlib import Path
from types import TracebackType

from makegood.base.text import kept

_OURS = str(Path(__file__).parents[1])
_FOREIGN = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")} | {_OURS}
)
"""Where code lies that is not the user's own."""

_LONGEST = 200
_MOST_FRAMES = 20
_MOST_TRACEBACK = 4000  # characters


def own_frame(failed: BaseException) -> str | None:
    """Return the innermost line of the user's own code in an exception's traceback: "orders.py:42 in charge".

    Returns None if it has none.
    """
    found: str | None = None
    step: TracebackType | None = failed.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if not code.co_filename.startswith((*_FOREIGN, "<")):
            found = f"{Path(code.co_filename).name}:{step.tb_lineno} in {code.co_name}"
        step = step.tb_next
    return None if found is None else kept(found[:_LONGEST])


def traceback_of(failed: BaseException) -> str | None:
    """Return an exception's traceback as Python prints it, from the first frame that is not makegood's.

    It is cut to its last 20 frames and 4,000 characters, each line to 200. Returns None if there is no frame.
    """
    step = failed.__traceback__
    while step is not None and step.tb_frame.f_code.co_filename.startswith(_OURS):
        step = step.tb_next
    if step is None:
        return None
    made = traceback.TracebackException(type(failed), failed, step, limit=-_MOST_FRAMES, compact=True)
    text = "\n".join(line[:_LONGEST] for line in kept("".join(made.format())).splitlines())
    return text if len(text) <= _MOST_TRACEBACK else "…\n" + text[-_MOST_TRACEBACK:].partition("\n")[2]
