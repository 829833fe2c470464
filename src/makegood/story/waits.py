"""What healthy tasks wait for: a service, or a person behind it, asked to come back later."""

from collections.abc import Mapping

from makegood.base.clock import iso
from makegood.base.durations import shown
from makegood.base.text import first_line
from makegood.store.views import StepBrief, StepView, TaskView

LATER = "asked to come back later"
"""A wait of which the service gave no reason."""


def wait_of(step: StepView | StepBrief) -> str:
    """Return what a step waits for, as its service said it; "" unless it was asked to come back later."""
    if step.state != "ready" or not (step.waiting if isinstance(step, StepView) else step.doing == "timer"):
        return ""
    return first_line(step.error) or LATER


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
