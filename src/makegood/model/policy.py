"""What an action declares about failures: ``Retry`` inside one attempt, ``Recover`` over attempts, and the
verdict.

``Retry`` belongs to the Agent: tries within one attempt, bounded by its deadline, always under the same key.
``Recover`` belongs to the Scheduler's rules: what follows when an attempt ended without a definite answer
(Scheduler-Agent-Supervisor pattern: failure count, threshold, a longer wait past it, then a compensating
transaction or an operator).
"""

from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import msgspec

from makegood.base.arguments import judge_calls
from makegood.base.durations import Duration, seconds
from makegood.errors import ConfigError

Then = Literal["undo", "hold"]
"""The verdict past the threshold: undo the task, or hold it for an operator."""

Resume = Literal["dead", "deadline"]
"""When an attempt follows one whose process died: as soon as the process is known to be dead, or past the
deadline of the first.
"""

Choice = Literal["retry", "extended", "undo", "hold"]
"""An answer of ``verdict``: retry after ``wait``, retry once more after ``extended``, undo the task, hold
it.
"""


@judge_calls(ConfigError)
@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often an agent tries within one attempt.

    Every pause is multiplied by a random factor between 0.5 and 1.5.

    >>> Retry(tries=4, wait="200ms", factor=2).pauses()
    (0.2, 0.4, 0.8)
    """

    tries: int = 3
    """The first one included."""
    wait: Duration = "200ms"
    """The first pause."""
    factor: float = 2.0
    """Each further pause is this many times longer."""
    longest: Duration = "30s"
    """The longest pause, before jitter."""
    never: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        """Raise ``ConfigError`` for a value that makes no sense."""
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
"""For services without keys: one try. In doubt it is neither repeated nor undone, unless a probe finds the
outcome.
"""


@judge_calls(ConfigError)
@dataclass(frozen=True, slots=True, kw_only=True)
class Recover:
    """The policy after an attempt that ended without a definite answer."""

    threshold: int = 3
    """Failures up to this number are retried after ``wait``."""
    wait: Duration = "5s"
    extended: Duration = "5m"
    """The wait before one more try past the threshold."""
    then: Then = "undo"
    """The verdict once that try fails too."""
    resume: Resume | None = None
    """When the next attempt begins after the process that ran one has died: "dead", as soon as that is known,
    which needs a service that honours keys; "deadline", past the deadline of the first. None: "dead" if the
    action declares ``key=`` or ``remembers=True``, else "deadline". An undo always waits for the deadline.
    """

    def __post_init__(self) -> None:
        """Raise ``ConfigError`` for a value that makes no sense."""
        if not isinstance(self.threshold, int) or self.threshold < 0:
            raise ConfigError(f"Recover(threshold={self.threshold!r}): a whole number from 0")
        if self.then not in ("undo", "hold"):
            raise ConfigError(f'Recover(then={self.then!r}): "undo" or "hold"')
        if self.resume not in (None, *get_args(Resume)):
            raise ConfigError(f'Recover(resume={self.resume!r}): "dead" or "deadline"')
        seconds(self.wait, name="Recover(wait)")
        seconds(self.extended, name="Recover(extended)")


def span(recover: Recover, within: float) -> float:
    """Return the seconds from the first request to the end of the last attempt, if each takes all of
    ``within``.

    >>> span(Recover(threshold=3, wait="5s", extended="5m"), 30)
    465.0
    """
    waits = recover.threshold * seconds(recover.wait) + seconds(recover.extended)
    return waits + (recover.threshold + 2) * within


def shorten(recover: Recover, within: float, keeps: float) -> Recover:
    """Return a policy whose last attempt ends before a service forgets the key: its longer wait is shorter,
    then its attempts are fewer.

    >>> shorten(Recover(), 20, 300).threshold, shorten(Recover(), 20, 300).extended
    (3, 185.0)
    """
    for threshold in range(recover.threshold, -1, -1):
        fewer = replace(recover, threshold=threshold)
        room = seconds(recover.extended) + keeps - span(fewer, within)
        if room >= seconds(recover.wait) or threshold == 0:
            return replace(fewer, extended=max(0.0, min(room, seconds(recover.extended))))
    return recover


class Policy(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything the rules need to know of an action. It is stored with each step, so no rule asks the code.

    Lengths of time are seconds.
    """

    within: float
    """Deadline of one attempt of the action or its probe."""
    threshold: int = 3
    wait: float = 5.0
    extended: float = 300.0
    then: Then = "undo"
    undoable: bool = True
    """False for ``undo=mg.NOTHING``."""
    undo_within: float = 0.0
    """Deadline of one attempt of its undo."""
    undo_threshold: int = 3
    undo_wait: float = 5.0
    undo_extended: float = 300.0
    no_return: bool = False
    remembers: bool = False
    """The service remembers its answer for each key."""
    never: bool = False
    probe: bool = False
    fences: bool = False
    key_form: str = ""
    """The form of its keys, as a service takes them: "" as they are, "uuid", "uuid4", "quoted", or
    "length=28".
    """
    key_limit: int = 0
    """The most characters that its service takes for a key; 0: unknown."""
    keeps: float = 0.0
    """How long its service remembers a key, from the first request on; 0: unknown."""
    resumes: bool = False
    """Once the process that ran an attempt is known to be dead, the next one begins under the same key."""


def verdict(failures: int, threshold: int, then: Then) -> Choice:
    """Return what follows the ``failures``-th failure in a row: the one place that decides retry, wait, undo
    or hold.

    >>> [verdict(n, 2, "undo") for n in (1, 2, 3, 4)]
    ['retry', 'retry', 'extended', 'undo']
    """
    if failures <= threshold:
        return "retry"
    if failures == threshold + 1:
        return "extended"
    return then
