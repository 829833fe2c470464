"""Signals: values from outside for which steps wait (``wait_for``).

A signal that comes ends the first ready step that waits for its name; if there is none, the task keeps it. A
step that begins to wait takes the oldest kept one at once. So it is the same whether the signal or the wait
comes first: every signal is kept for a moment, and whoever waits looks there. One signal ends one wait.

In one Decision, signals are folded before timers. So no wait times out over a signal that the task had when
its time was over.
"""

from collections.abc import Sequence

from makegood.model.messages import TaskMessage
from makegood.model.shape import HeldTask, KeptSignal
from makegood.model.task import Step
from makegood.saga import rules
from makegood.saga.decision_builder import NULL, DecisionBuilder


def before_timers(messages: Sequence[TaskMessage]) -> Sequence[TaskMessage]:
    """Return messages with the timers last if there is a signal among them."""
    if not any(m.kind == "signal" for m in messages):
        return messages
    return [*(m for m in messages if m.kind != "retry"), *(m for m in messages if m.kind == "retry")]


def keep(work: DecisionBuilder, message: TaskMessage) -> None:
    """Keep a signal, and have the steps looked at that may wait for it."""
    ref = message.signal
    if ref is None:
        return
    signal = KeptSignal(ref.name, ref.id, ref.step, message.value or NULL)
    work.signals = [*work.signals, signal]
    work.out.kept_signals.append(signal)
    work.agenda.waits += [  # whatever the task's state: its claim may follow
        step.plan.idx for step in work.steps() if step.state == "ready" and rules.may_use(step, signal)
    ]


def is_awaited(held_task: HeldTask, name: str, step_name: str) -> bool:
    """Return whether a step waits for a signal now. ``step_name``: the only step that may use it, "": any."""
    signal = KeptSignal(name, "", step_name, NULL)
    return any(rules.listens(step) and rules.may_use(step, signal) for step in held_task.steps)


def timeout(step: Step) -> float | None:
    """Return the seconds for which a step waits for a signal; None: for as long as it takes."""
    return None if step.plan.args is None else float(step.plan.args.parts[0])


def take(work: DecisionBuilder, step: Step) -> KeptSignal | None:
    """Return the signal that ends a wait, which nobody else gets then; None: there is none yet."""
    signal = next((each for each in work.signals if rules.may_use(step, each)), None)
    if signal is None:
        return None
    work.signals = [each for each in work.signals if each is not signal]
    work.out.kept_signals = [each for each in work.out.kept_signals if each is not signal]
    work.out.used_signals.append((signal.name, signal.id, step.plan.idx))
    return signal
