"""What healthy tasks wait for: a service, or a person behind it, asked to come back later."""

from collections.abc import Mapping

from makegood.base.text import first_line
from makegood.store.views import StepBrief, StepView

LATER = "asked to come back later"
"""A wait of which the service gave no reason."""


def wait_of(step: StepView | StepBrief) -> str:
    """Return what a step waits for, as its service said it; "" unless it was asked to come back later."""
    if step.state != "ready" or not (step.waiting if isinstance(step, StepView) else step.doing == "timer"):
        return ""
    return first_line(step.error) or LATER


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
