"""What an action declares about failures: ``Retry`` inside one attempt, ``Recover`` over attempts, and the verdict.

``Retry`` belongs to the Agent: tries within one attempt, bounded by its complete-by, always under the same key.
``Recover`` belongs to the Scheduler's rules: what follows when an attempt ended without a definite answer
(Scheduler-Agent-Supervisor pattern: failure count, threshold, longer waits past it, then a compensating
transaction or an operator).
"""

from dataclasses import dataclass, field
from typing import Literal

import msgspec

from makegood.base.durations import Duration, seconds
from makegood.errors import ConfigError

Then = Literal["undo", "hold"]
"""The verdict past the threshold: undo the task, or hold it for an operator."""

Choice = Literal["retry", "extended", "undo", "hold"]
"""What ``verdict`` says: try after ``wait``, try once more after ``extended``, undo the task, hold it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often an agent tries within one attempt.

    ``tries`` counts the first one; ``wait`` is the first pause, each further one ``factor`` times longer, at most
    ``longest``; every pause is jittered by a random factor between 0.5 and 1.5.

    >>> Retry(tries=4, wait="200ms", factor=2).pauses()
    (0.2, 0.4, 0.8)
    """

    tries: int = 3
    wait: Duration = "200ms"
    factor: float = 2.0
    longest: Duration = "30s"
    never: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse what cannot be meant; raises ``ConfigError``."""
        if not isinstance(self.tries, int) or self.tries < 1:
            raise ConfigError(
                f"Retry(tries={self.tries!r}): at least 1, the first try counts; for one try only use mg.NEVER or tries=1"
            )
        if not self.factor >= 1:
            raise ConfigError(f"Retry(factor={self.factor!r}): at least 1, or waits would shrink")
        seconds(self.wait, name="Retry(wait)")
        seconds(self.longest, name="Retry(longest)")

    def pauses(self) -> tuple[float, ...]:
        """Return the pauses between the tries, in seconds, without jitter."""
        first, most = seconds(self.wait), seconds(self.longest)
        return tuple(min(first * self.factor**n, most) for n in range(self.tries - 1))


NEVER = Retry(tries=1, never=True)
"""For services without keys: one try; in doubt it is neither repeated nor undone unless a probe can tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recover:
    """What follows when an attempt ended without a definite answer.

    Failures up to ``threshold`` wait ``wait``, one more try waits ``extended``, then the verdict ``then``.
    """

    threshold: int = 3
    wait: Duration = "5s"
    extended: Duration = "5m"
    then: Then = "undo"

    def __post_init__(self) -> None:
        """Refuse what cannot be meant; raises ``ConfigError``."""
        if not isinstance(self.threshold, int) or self.threshold < 0:
            raise ConfigError(f"Recover(threshold={self.threshold!r}): a whole number from 0")
        if self.then not in ("undo", "hold"):
            raise ConfigError(f'Recover(then={self.then!r}): "undo" or "hold"')
        seconds(self.wait, name="Recover(wait)")
        seconds(self.extended, name="Recover(extended)")


class Policy(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that the rules need to know of an action; stored with each step, so no rule ever asks the code.

    Lengths of time are seconds. ``within`` is the complete-by of one attempt of the action or its probe,
    ``undo_within`` of one attempt of its undo. ``undoable`` is False for ``undo=mg.NOTHING``.
    """

    within: float
    threshold: int = 3
    wait: float = 5.0
    extended: float = 300.0
    then: Then = "undo"
    undoable: bool = True
    undo_within: float = 0.0
    undo_threshold: int = 3
    undo_wait: float = 5.0
    undo_extended: float = 300.0
    no_return: bool = False
    settle: bool = False
    never: bool = False
    probe: bool = False
    fences: bool = False


def verdict(failures: int, threshold: int, then: Then) -> Choice:
    """Return what follows the ``failures``-th failure in a row: the one place that says retry, wait, undo or hold.

    >>> [verdict(n, 2, "undo") for n in (1, 2, 3, 4)]
    ['retry', 'retry', 'extended', 'undo']
    """
    if failures <= threshold:
        return "retry"
    if failures == threshold + 1:
        return "extended"
    return then
