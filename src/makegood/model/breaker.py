"""The circuit breaker of an agent: pure rules that are given each event and its time, and read no clock.

*Closed*: calls begin as they come. After ``failures`` failures in a row the circuit is *open*: nothing
begins. After ``reset`` it is *half-open*: one trial call begins. Once that is answered, the
circuit is *released* step by step: each answer lets one more call be in flight, until all slots are in use
again and the circuit is closed; a failure halves them. If the trial call fails, the circuit is open again.

A failure is a call that nobody answered: its tries ran out, or its deadline passed. "No" is an answer
(``Permanent``, ``Refused``). ``Later`` is neither an answer nor a failure. Every failure counts for the
circuit, in the term in which its call began.

For its *step* a failure counts only if it says something about the step, and not just about the service.
These do not count: the trial call's failure; failures of calls in flight when the circuit opened; and
failures of a repeated attempt, unless the service has answered another call since the step last failed. A
service that answers nobody adds at most one failure to a step, however many processes there are and however
often they restart, unless a process stops in a call and says nothing of it. A step that fails while others
are answered reaches its verdict. So does one that is left alone after that: if it is to blame (see
``blame``), all its failures count, those of trial calls too.
"""

from dataclasses import dataclass
from typing import Literal

from makegood.base.arguments import judge_calls
from makegood.base.durations import Duration, seconds, short_duration
from makegood.errors import ConfigError
from makegood.model.blame import CallingStep, Evidence

State = Literal["closed", "open", "half-open", "release"]
"""The state of a circuit. ``release``: between the trial call's answer and closed."""

SHUT: frozenset[State] = frozenset({"open", "half-open"})
"""States in which the service counts as silent and operators are alerted. After its first answer it is only
spared.
"""

Outcome = Literal["answered", "failed", "later", "neither"]
"""What a call says about the service. ``neither``: the call never reached it, or the process is ending."""

UNCOUNTED = -1
"""The ticket of a call that began although the circuit allowed none: it was already on its way."""


@judge_calls(ConfigError)
@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """When an agent stops calling a service that does not answer: ``shop.agent("payments",
    breaker=mg.Breaker())``.

    Each process has a circuit of its own. Raises ``ConfigError`` for a value that makes no sense.

    >>> Breaker(failures=3, reset="10s")
    Breaker(failures=3, reset='10s')
    """

    failures: int = 5
    """Failures in a row that open the circuit."""
    reset: Duration = "30s"
    """Time until an open circuit lets one call through. Each process adds up to half of it, so that not all
    of them call at the same moment.
    """

    def __post_init__(self) -> None:
        """Raise ``ConfigError`` for a value that makes no sense."""
        if not isinstance(self.failures, int) or isinstance(self.failures, bool) or self.failures < 1:
            raise ConfigError(
                f"Breaker(failures={self.failures!r}): a whole number from 1, failures in a row"
            )
        seconds(self.reset, name="Breaker(reset)", least=0.001)


class Circuit:
    """One agent's circuit in one process.

    ``size`` is the agent's number of slots. Points in time are seconds on any clock that only rises.

    >>> circuit = Circuit(Breaker(failures=1, reset=10), size=4)
    >>> circuit.record_end(circuit.began(0.0), "failed", 0.0), circuit.room(9.0, 4), circuit.room(10.0, 4)
    (True, 0, 1)
    """

    def __init__(self, rule: Breaker, size: int) -> None:
        self.state: State = "closed"
        self.since = 0.0
        """When it entered its state."""
        self.opened_at = 0.0
        """When it last opened."""
        self.evidence = Evidence()
        """Who was answered, and who failed since."""
        self._failures = rule.failures
        self._reset = seconds(rule.reset)
        self._size = size
        self._term = 0
        self._row = 0
        self._until = 0.0
        self._most = size
        self._flying = 0

    @property
    def is_closed(self) -> bool:
        """Whether calls begin as they come."""
        return self.state == "closed"

    @property
    def most(self) -> int:
        """The calls that may be in flight at once."""
        return {"closed": self._size, "open": 0, "half-open": 1}.get(self.state, self._most)

    def remaining(self, now: float) -> float:
        """Return the seconds until a trial call may begin; 0 if it may begin now, or if the circuit is not
        open.
        """
        return max(0.0, self._until - now) if self.state == "open" else 0.0

    def room(self, now: float, free: int) -> int:
        """Return how many of ``free`` slots may be filled now. An open circuit whose time has come becomes
        half-open.
        """
        if self.state == "open" and now >= self._until:
            self._become("half-open", now)
        return free if self.state == "closed" else max(0, min(free, self.most - self._flying))

    def began(self, now: float) -> int:
        """Record that a call begins, and return its ticket for ``ended``."""
        if self.room(now, 1) < 1 and self.state in ("open", "half-open"):
            return UNCOUNTED
        self._flying += 1
        return self._term

    def record_end(
        self,
        ticket: int,
        outcome: Outcome,
        now: float,
        jitter: float = 0.0,
        *,
        since: float | None = None,
        caller: CallingStep | None = None,
        first_failure: float | None = None,
    ) -> bool:
        """Record how a call ended, and return whether a failure counts for its step.

        ``jitter``, from 0 to 1: how much of half of ``reset`` to wait longer. ``since``: a moment after the
        step's last failure, None for its first attempt. ``caller``: the step. ``first_failure``: a moment
        at which it had failed already; None: it had not.
        """
        counts = self.counts(ticket, since, caller)
        if outcome == "failed" and caller is not None:
            self.evidence.record_failure(caller, now, now if first_failure is None else first_failure)
        if ticket != self._term:
            return False
        self._flying -= 1
        if outcome == "answered":
            self.evidence.record_answer(caller, now)
            self._on_answer(now)
        elif outcome == "failed":
            self._on_failure(now, jitter)
        elif outcome == "later" and self.state == "half-open":
            self._open(now, jitter)
        return counts

    def counts(self, ticket: int, since: float | None, caller: CallingStep | None = None) -> bool:
        """Return whether the failure of a call that ended now would count for its step; the rest as for
        ``ended``.
        """
        if ticket != self._term:
            return False
        if caller is not None and self.evidence.blames(caller):
            return True
        if self.state == "half-open":
            return False
        return since is None or self.evidence.last_answer > since

    def record_answer_elsewhere(self, now: float) -> bool:
        """Record that the service has answered another process since this circuit opened.

        This releases a half-open circuit without a trial call under way; returns whether it did.
        """
        if self.state != "half-open" or self._flying:
            return False
        self._most = 1
        self._release_one(now)
        return True

    def _on_answer(self, now: float) -> None:
        self._row = 0
        if self.state == "half-open":
            self._most = 1
        if self.state in ("half-open", "release"):
            self._release_one(now)

    def _release_one(self, now: float) -> None:
        """Let one more call be in flight."""
        self._most += 1
        if self.state == "half-open":
            self._become("release", now)
        if self._most >= self._size:
            self._become("closed", now)

    def _on_failure(self, now: float, jitter: float) -> None:
        self._row += 1
        relapse = self.state == "release" and self._most <= 1
        if self.state == "half-open" or relapse or self._row >= self._failures:
            self._open(now, jitter)
        elif self.state == "release":
            self._most //= 2

    def _open(self, now: float, jitter: float) -> None:
        self._become("open", now)
        self.opened_at = now
        self._until = now + self._reset * (1 + jitter / 2)
        self._term += 1
        self._row = self._flying = 0

    def _become(self, state: State, now: float) -> None:
        self.state, self.since = state, now

    def describe(self, now: float) -> str:
        """Return the state in a few words.

        >>> Circuit(Breaker(), 4).describe(0.0)
        'closed'
        """
        if self.state == "open":
            return f"open, {short_duration(self.remaining(now))}"
        return f"release {self._most}/{self._size}" if self.state == "release" else self.state
