"""Finds the line of the user's own code at which a call failed, for people who look for the cause."""

import sysconfig
from pathlib import Path
from types import TracebackType

from makegood.base.text import kept

_FOREIGN = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {str(Path(__file__).parents[1])}
)
"""Where code lies that is not the user's own."""

_LONGEST = 200


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
