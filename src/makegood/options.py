"""The settings of a process that runs roles: one record, read by the API, the command line and tests alike."""

from dataclasses import dataclass

from makegood.durations import Duration, seconds
from makegood.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a Node runs. Lengths of time are durations: seconds, "200ms", "20s", "5m", ``timedelta``.

    - ``slots``: slots of each agent, instead of its declared ``concurrency``.
    - ``every``: the Supervisor's interval; ``lease``: its lease's length; ``grace``: how long after complete-by silence is
      judged; ``starve``: how long a request may wait for an agent before an alert.
    - ``heartbeat``: pause between heartbeats; ``life``: without one for so long a process counts as dead.
    - ``poll``: pause between looks at the store behind the wake-ups, None = never look without one.
    - ``drain``: how long an orderly end may wait for what runs.
    - ``hold``: tasks in memory at most; ``claim``: tasks claimed in one commit at most.
    - ``migrate``: bring an empty or old store up to date when opening it.

    Raises ``ConfigError`` for what cannot be meant.

    >>> Options(every="1s").number("every")
    1.0
    """

    slots: int | None = None
    every: Duration = 5.0
    lease: Duration = 15.0
    grace: Duration = 2.0
    starve: Duration = 30.0
    heartbeat: Duration = 1.0
    life: Duration = 5.0
    poll: Duration | None = 1.0
    drain: Duration = 30.0
    hold: int = 10_000
    claim: int = 500
    migrate: bool = True

    def __post_init__(self) -> None:
        """Check every setting and how they go together."""
        least = {"every": 0.01, "lease": 0.1, "heartbeat": 0.01, "life": 0.02, "poll": 0.001}
        for name in ("every", "lease", "grace", "starve", "heartbeat", "life", "drain", "poll"):
            if getattr(self, name) is not None:
                seconds(getattr(self, name), name=name, least=least.get(name, 0.0))
        for name in ("slots", "hold", "claim"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ConfigError(f"{name}={value!r}: a whole number of at least 1")
        if self.number("life") < 2 * self.number("heartbeat"):
            raise ConfigError(
                f"life={self.life!r} must be at least twice heartbeat={self.heartbeat!r}, or one late heartbeat is a death"
            )

    def number(self, name: str) -> float:
        """Return a length of time in seconds."""
        return seconds(getattr(self, name), name=name)

    @property
    def poll_seconds(self) -> float | None:
        """``poll`` in seconds, or None."""
        return None if self.poll is None else seconds(self.poll, name="poll")
