"""What became of the signals to a task, and which it still waits for, in words."""

from makegood.store.views import SignalView, TaskDetail

_OPEN = frozenset({"waiting", "ready"})


def fate(signal: SignalView, state: str) -> str:
    """Return what became of a signal. ``state``: of its task.

    >>> fate(SignalView("approval", "click-1", 0.0), "processing")
    'unread'
    >>> fate(SignalView("approval", "click-1", 0.0, step="approval-2", kept=True), "processing")
    'kept until approval-2 waits for it'
    >>> fate(SignalView("approval", "click-1", 0.0, used="approval"), "undone")
    'used by approval'
    """
    if signal.used is not None:
        return f"used by {signal.used}"
    if state in ("processed", "undone"):
        return "late: no step used it before the task ended"
    if signal.kept:
        return f"kept until {signal.step or 'a step'} waits for it"
    return f"unread, for {signal.step}" if signal.step else "unread"


def receivable(detail: TaskDetail) -> list[str]:
    """Return the names of the signals that the task waits for, or will: it would take them now."""
    task = detail.task
    if task.state in ("processed", "undone", "undoing") or (task.goal == "undo" and task.state != "error"):
        return []
    waits = [step for step in detail.steps if step.kind == "wait_for"]
    over = {step.action for step in waits} - {step.action for step in waits if step.state in _OPEN}
    return [name for name in detail.signal_types if name not in over or task.state == "error"]
