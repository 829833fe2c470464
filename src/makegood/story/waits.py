"""What healthy tasks wait for: a moment, a signal, or a service, which asked to come back later."""

from collections.abc import Mapping

from makegood.base.clock import DAY, date_text, iso
from makegood.base.durations import short_duration
from makegood.base.text import first_line
from makegood.errors import MissingValueError
from makegood.model.plan import UNTIL
from makegood.saga import waits
from makegood.store.views import SignalWait, StepBrief, StepView, TaskDetail, TaskView

LATER = "asked to come back later"
"""A wait of which the service gave no reason."""
SLEEPS = "sleeps"
"""What a task does whose workflow waits."""


def listens(step: StepView | StepBrief) -> bool:
    """Whether a step waits for a signal now."""
    return step.kind == "wait_for" and step.state == "ready"


def signal_text(step: StepView | StepBrief, now: float | None = None) -> str:
    """Return which signal a step waits for, and how long still; ``now``: to say until when as well.

    A step in a list is said to wait for what it is named after.
    """
    text = f"waits for {step.action if isinstance(step, StepView) else step.name}, a signal"
    if step.due is None:
        return text
    until = "" if now is None else f", until {iso(now + step.due)[:19]}Z"
    return f"{text}{until}, {short_duration(max(0.0, step.due))} left"


def waits_of(detail: TaskDetail) -> list[dict[str, str | None]]:
    """Return the waits of a task: the step, what it waits for ("signal" or "moment"), the signal's name, and
    until when.
    """
    return [
        {
            "step": step.name,
            "for": "signal" if listens(step) else "moment",
            "name": step.action if listens(step) else None,
            "until": None if step.due is None else iso(detail.now + step.due),
        }
        for step in detail.steps
        if listens(step) or is_asleep(step)
    ]


def wait_of(step: StepView | StepBrief) -> str:
    """Return what a step waits for: a signal, a moment, or what its service said when it asked to come back
    later.

    "" for a step that waits for none of them.
    """
    if listens(step):
        return signal_text(step)
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
    return f"until {iso(end)[:19]}Z, {f'{short_duration(left)} left' if left >= 1 else 'now'}"


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
    return f"starts at {iso(starts)[:19]}Z, {f'{short_duration(left)} left' if left >= 1 else 'now'}"


def signal_wait_text(wait: SignalWait, now: float) -> str:
    """Return how many tasks wait for a signal, and since when, in UTC; with the date if that is a day ago.

    >>> signal_wait_text(SignalWait("approval", 300, 75_840.0), now=90_000.0)
    '300 wait for approval since 21:04'
    >>> signal_wait_text(SignalWait("approval", 1, 75_840.0), now=180_000.0)
    '1 waits for approval since 1970-01-01 21:04'
    """
    since = date_text(wait.since, "%H:%M" if now - wait.since < DAY else "%Y-%m-%d %H:%M")
    return f"{wait.tasks:,} {'waits' if wait.tasks == 1 else 'wait'} for {wait.name} since {since}"


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
