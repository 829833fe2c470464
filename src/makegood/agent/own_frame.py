"""A failed call's traceback, and the line of the user's own code in it, for people who look for the cause."""

import sysconfig
import traceback
from itertools import islice
from pathlib import Path
from types import TracebackType

from makegood.base.secret_names import without_secrets
from makegood.base.text import storable_text
from makegood.base.wrapped_errors import leaves
from makegood.errors import Verdict

_OURS = str(Path(__file__).parents[1])
_FOREIGN = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")} | {_OURS}
)
"""Where code lies that is not the user's own."""

_LONGEST = 200
_MOST_FRAMES = 20
_MOST_MEMBERS = 1000
"""Errors of a group that are searched."""
_MOST_TRACEBACK = 4000  # characters


def own_frame(error: BaseException) -> str | None:
    """Return the innermost line of the user's own code in an exception's traceback: "orders.py:42 in charge".

    Of a group it is that of the first verdict in it, or else of its first error. Returns None if there is
    none.
    """
    members = [one for one, _ in islice(leaves(error), _MOST_MEMBERS)]
    members.sort(key=lambda one: not isinstance(one, Verdict))
    frames = (_frame(one) for one in (*members, error))
    return next((frame for frame in frames if frame is not None), None)


def _frame(error: BaseException) -> str | None:
    line: str | None = None
    step: TracebackType | None = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if not code.co_filename.startswith((*_FOREIGN, "<")):
            line = f"{Path(code.co_filename).name}:{step.tb_lineno} in {code.co_name}"
        step = step.tb_next
    return None if line is None else storable_text(line[:_LONGEST])


def traceback_of(error: BaseException) -> str | None:
    """Return an exception's traceback as Python prints it, from the first frame that is not makegood's.

    It is cut to its last 20 frames and 4,000 characters, each line to 200. Returns None if there is no frame.
    """
    step = error.__traceback__
    while step is not None and step.tb_frame.f_code.co_filename.startswith(_OURS):
        step = step.tb_next
    if step is None:
        return None
    excerpt = traceback.TracebackException(type(error), error, step, limit=-_MOST_FRAMES, compact=True)
    whole = without_secrets(storable_text("".join(excerpt.format())))
    text = "\n".join(line[:_LONGEST] for line in whole.splitlines())
    return text if len(text) <= _MOST_TRACEBACK else "…\n" + text[-_MOST_TRACEBACK:].partition("\n")[2]
