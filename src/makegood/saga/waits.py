"""Waits: control steps that may stay ``ready`` for a while, until a moment has come.

A wait begins as every control step does, once its predecessors have passed. If its moment is still to come it
stays ``ready``, and its timer row holds when it is due on the store's clock: whoever holds the task then, the
moment stays. A ``retry`` message ends it. A wait that is done is ``kept`` in an undo, as it has no effect;
one that is ready goes back to ``waiting`` when the task goes no longer forward (``undo.clear``).

A length of time runs on the store's clock. A moment is one of the calendar, which may be corrected, and whose
zones may change their rules. So it is read again each time that its timer is due, and first ``AHEAD`` of it.
"""

from datetime import timedelta

import msgspec

from makegood.base.wall_times import AHEAD, by_present_rules, kept_moment
from makegood.errors import ConfigError, MissingValueError
from makegood.model.plan import MOST_DELAY
from makegood.model.states import Reason
from makegood.model.task import Step
from makegood.saga import rules
from makegood.saga.decision_builder import NULL, DecisionBuilder

_LENGTH = msgspec.json.Decoder(timedelta | float)
_TEXT = msgspec.json.Decoder(str)


def look(work: DecisionBuilder, step: Step) -> None:
    """End a wait that is ready if its moment has come, or let it rest until then.

    Raises ``MissingValueError`` if it names no moment.
    """
    wait = _seconds_left(work, step)
    if wait > 0:
        work.timer(step, wait)
    else:
        end(work, step, "moment_came")


def end(
    work: DecisionBuilder,
    step: Step,
    reason: Reason,
    *,
    detail: str = "",
    who: str = "",
    result: bytes = NULL,
) -> None:
    """End a wait that is ready. ``detail``, ``who``: as in ``Move``."""
    if step.waiting:
        step = work.drop_timer(step)
    work.move(step, "done", reason, detail=detail, who=who, result=result)


def sleeps(step: Step) -> bool:
    """Whether this is a sleep that has begun and is not over."""
    return step.plan.kind == "sleep" and step.state == "ready"


def failure(work: DecisionBuilder, step: Step) -> str:
    """Return the reason that a ``fail`` gives; raises ``MissingValueError``."""
    text = _value(work, step)
    try:
        return _TEXT.decode(text)
    except msgspec.MsgspecError:  # whatever it is, the task has failed
        return text.decode()


def _seconds_left(work: DecisionBuilder, step: Step) -> float:
    """Return the seconds for which a sleep rests from now; 0 or less if it is over."""
    if step.plan.kind != "sleep":
        return 0.0
    if not rules.is_until(step.plan):
        return 0.0 if step.plan.idx in work.agenda.due else length(_value(work, step))
    at, has_zone = moment(_value(work, step))
    left = at - work.at.calendar
    if work.at.calendar and left > MOST_DELAY:
        raise MissingValueError("its moment is more than ten years from now")
    return left - AHEAD if has_zone and left > AHEAD else left


def _value(work: DecisionBuilder, step: Step) -> bytes:
    if step.plan.args is None:
        raise MissingValueError("the plan does not say for how long")
    return work.fill(step.plan.args, step.plan.payload_limit)


def length(value: bytes) -> float:
    """Return the seconds that a JSON value means: a number, or a ``timedelta``.

    Raises ``MissingValueError`` for any other value, for a negative length, and for more than ten years.
    """
    try:
        duration = _LENGTH.decode(value)
    except msgspec.MsgspecError:
        raise MissingValueError(
            f"{_excerpt(value)} is not a length of time: return a timedelta, or seconds"
        ) from None
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if not 0 <= seconds <= MOST_DELAY:
        raise MissingValueError(
            f"{_excerpt(value)} is not a length that it can wait: at least 0, and at most ten years"
        )
    return seconds


def moment(value: bytes) -> tuple[float, bool]:
    """Return the moment that a JSON value means, in seconds since 1970 by the present rules of its zone, and
    whether it has one. Raises ``MissingValueError`` for a value that is not an aware datetime.
    """
    try:
        seconds, wall = kept_moment(_TEXT.decode(value))
    except msgspec.MsgspecError:
        raise MissingValueError(
            f"{_excerpt(value)} is not a moment: return a datetime with a time zone"
        ) from None
    except ConfigError as wrong:
        raise MissingValueError(str(wrong)) from None
    return by_present_rules(seconds, wall), bool(wall)


def _excerpt(value: bytes) -> str:
    text = value.decode(errors="replace")
    return text if len(text) <= 60 else f"{text[:57]}..."
