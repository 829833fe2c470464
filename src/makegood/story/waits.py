"""What healthy tasks wait for: a moment, or a service, which asked to come back later."""

from collections.abc import Mapping

from makegood.base.clock import iso
from makegood.base.durations import shown
from makegood.base.text import first_line
from makegood.errors import MissingValueError
from makegood.model.plan import UNTIL
from makegood.saga import waits
from makegood.store.views import StepBrief, StepView, TaskView

LATER = "asked to come back later"
"""A wait of which the service gave no reason."""
SLEEPS = "sleeps"
"""What a task does whose workflow waits."""


def wait_of(step: StepView | StepBrief) -> str:
    """Return what a step waits for: a moment, or what its service said when it asked to come back later.

    "" for a step that waits for neither.
    """
    if is_asleep(step):
        return SLEEPS
    if step.state != "ready" or not (step.waiting if isinstance(step, StepView) else step.doing == "timer"):
        return ""
    return first_line(step.error) or LATER


def is_asleep(step: StepView | StepBrief) -> bool:
    """Return whether a step is a sleep that has begun and is not over."""
    return step.kind == "sleep" and step.state == "ready"


def sleep_text(step: StepView, now: float) -> str:
    """Return until when a step sleeps, and how long that is from ``now``; "" for any other."""
    if not is_asleep(step) or step.due is None:
        return ""
    end = _moment(step) or now + step.due
    left = end - now
    return f"until {iso(end)[:19]}Z, {f'{shown(left)} left' if left >= 1 else 'now'}"


def _moment(step: StepView) -> float | None:
    """Return the moment that a step waits for by its plan; None if that is a length, or known only from a
    value.
    """
    plan = step.plan
    if plan is None or plan.action != UNTIL or plan.args is None or plan.args.refs:
        return None
    try:
        return waits.moment(plan.args.parts[0].encode())[0]
    except MissingValueError:  # its step fails for it
        return None


def start_text(task: TaskView, now: float) -> str:
    """Return when a task that sleeps begins, and how long that is from ``now``; "" for any other."""
    if (starts := task.starts) is None:
        return ""
    left = starts - now
    return f"starts at {iso(starts)[:19]}Z, {f'{shown(left)} left' if left >= 1 else 'now'}"


def waits_text(waits: Mapping[str, int]) -> str:
    """Return how many wait and for what: the most frequent reason, and how many have another.

    >>> waits_text({"nobody has answered yet": 300}), waits_text({"busy": 2, "closed": 1})
    ('300 wait: nobody has answered yet', '2 wait: busy; 1 for another reason')
    """
    if not waits:
        return ""
    reason, count = next(iter(waits.items()))
    others = sum(waits.values()) - count
    text = f"{count:,} {'waits' if count == 1 else 'wait'}: {reason}"
    return (
        f"{text}; {others:,} for {'another reason' if others == 1 else 'other reasons'}" if others else text
    )
