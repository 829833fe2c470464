"""The settings of a process that runs roles: one record, read by the API, the command line and tests alike."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Final, get_args

from makegood.base.durations import Duration, seconds
from makegood.base.host_lists import entry
from makegood.base.sizes import Size, size
from makegood.base.webhook_signature import address, key_of
from makegood.errors import ConfigError
from makegood.model.notices import Cause

DEFAULT_URL = "sqlite:///makegood.db"
"""The store of a process that names none: a file in its current folder."""

_CAUSES: Final = get_args(Cause)


# What a field holds: ``least`` (in seconds) of a length of time, ``kind`` of a number.
_COUNT: Final = MappingProxyType({"kind": "count"})
_SIZE: Final = MappingProxyType({"kind": "size"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a Node runs. Lengths of time are durations: seconds, "200ms", "20s", "5m", ``timedelta``; sizes
    are whole bytes, or "256MiB", "64MB".

    - ``slots``: slots of each agent, instead of its declared ``concurrency``.
    - ``every``: the Supervisor's interval; ``lease``: its lease's length; ``grace``: how long after complete-by silence is
      judged; ``starve``: how long a request may wait for an agent, or a task where no Scheduler runs, before an alert.
    - ``outage_after``: how long an agent's circuit may be open before an alert names the tasks that wait for its service.
    - ``heartbeat``: pause between heartbeats; ``life``: without one for so long a process counts as dead.
    - ``tell``: pause between looks for alerts to be logged and sent, None = this process tells of none. ``alert_webhook``: the
      address to which they are sent, signed with ``alert_secret`` (several, parted by spaces, while they are changed).
      ``leaderless``: how long nobody may lead before an alert, None = this process does not watch.
    - ``webhook_hosts``: hosts that submitters may name in ``reply_to="https://…"``, separated by spaces: hooks.example.com,
      *.example.com, localhost, and networks (10.1.0.0/16) for those that are not public; each with :PORT if only that port is meant.
      ``webhook_secrets``: which secret signs what is sent to which of them, ``{"a.example.com": "whsec_…"}``, with hosts written as in
      ``webhook_hosts``; ``webhook_secret``: signs for all others. Each may be several, separated by spaces, while they are changed.
      ``webhook_cause``: of why a task failed, whether receivers get its "text", the "name" of its kind, or "none".
      ``webhook_timeout``: for one post; ``webhook_tries``: how many before a notice is given up.
    - ``queue_limit``: messages that may wait in a queue before ``send`` is refused, and its oldest notices are dropped;
      ``queue_bytes``: the same for the bytes of their values.
    - ``poll``: pause between looks at the store behind the wake-ups, None = never look without one.
    - ``drain``: how long an orderly end may wait for what runs.
    - ``hold``: tasks in memory at most; ``claim``: tasks claimed in one commit at most. ``max_task_memory``: bytes of the tasks in
      memory (inputs, results, steps) from which on nothing more is claimed.
    - ``keep``: how long a task that was processed or undone is kept, None = for ever; ``sweep``: pause between the rounds of the
      janitor, which removes older ones.
    - ``migrate``: bring an empty or old store up to date when opening it.

    Raises ``ConfigError`` for what cannot be meant.

    >>> Options(every="1s").number("every")
    1.0
    """

    slots: int | None = field(default=None, metadata=_COUNT)
    every: Duration = field(default=5.0, metadata={"least": 0.01})
    lease: Duration = field(default=15.0, metadata={"least": 0.1})
    grace: Duration = field(default=2.0, metadata={"least": 0.0})
    starve: Duration = field(default=30.0, metadata={"least": 0.0})
    outage_after: Duration = field(default="5m", metadata={"least": 0.0})
    heartbeat: Duration = field(default=1.0, metadata={"least": 0.01})
    life: Duration = field(default=5.0, metadata={"least": 0.02})
    tell: Duration | None = field(default=2.0, metadata={"least": 0.01})
    alert_webhook: str | None = field(default=None, repr=False)  # its path may be a secret
    alert_secret: str | None = field(default=None, repr=False)
    leaderless: Duration | None = field(default=30.0, metadata={"least": 0.1})
    webhook_hosts: str | None = None
    webhook_secret: str | None = field(default=None, repr=False)
    webhook_secrets: Mapping[str, str] | None = field(default=None, repr=False, hash=False)
    webhook_cause: Cause = "name"
    webhook_timeout: Duration = field(default=10.0, metadata={"least": 0.01})
    webhook_tries: int = field(default=12, metadata=_COUNT)
    queue_limit: int = field(default=100_000, metadata=_COUNT)
    queue_bytes: Size = field(default="1GiB", metadata=_SIZE)
    poll: Duration | None = field(default=1.0, metadata={"least": 0.001})
    drain: Duration = field(default=30.0, metadata={"least": 0.0})
    hold: int = field(default=10_000, metadata=_COUNT)
    max_task_memory: Size = field(default="256MiB", metadata=_SIZE)
    claim: int = field(default=500, metadata=_COUNT)
    keep: Duration | None = field(default="30d", metadata={"least": 0.0})
    sweep: Duration = field(default="10m", metadata={"least": 0.01})
    migrate: bool = True

    def __post_init__(self) -> None:
        """Check every setting and how they go together."""
        for one in fields(self):
            value = getattr(self, one.name)
            if "least" in one.metadata and value is not None:
                seconds(value, name=one.name, least=one.metadata["least"])
            elif one.metadata.get("kind") == "size":
                size(value, name=one.name)
            elif one.metadata.get("kind") == "count" and not (
                value is None or (isinstance(value, int) and value >= 1)
            ):
                raise ConfigError(f"{one.name}={value!r}: a whole number of at least 1")
        if self.number("life") < 2 * self.number("heartbeat"):
            raise ConfigError(
                f"life={self.life!r} must be at least twice heartbeat={self.heartbeat!r}, or one late heartbeat is a death"
            )

        if self.alert_webhook is not None:
            address(self.alert_webhook, "alert_webhook")
        for secret in self.secrets:
            key_of(secret, "alert_secret")
        for secret in (self.webhook_secret or "").split():
            key_of(secret, "webhook_secret")
        for host, secrets in self.receivers.items():
            entry(host, "webhook_secrets")
            for secret in secrets or [""]:
                key_of(secret, f"webhook_secrets of {host!r}")
        if self.webhook_cause not in _CAUSES:
            raise ConfigError(f"webhook_cause={self.webhook_cause!r}: one of {', '.join(_CAUSES)}")

    def number(self, name: str) -> float:
        """Return a length of time in seconds."""
        return seconds(getattr(self, name), name=name)

    def size(self, name: str) -> int:
        """Return a size in bytes."""
        return size(getattr(self, name), name=name)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets that webhooks about alerts are signed with."""
        return tuple((self.alert_secret or "").split())

    @property
    def receivers(self) -> dict[str, tuple[str, ...]]:
        """The secrets of each receiver that has its own, by its entry."""
        return {host: tuple(secrets.split()) for host, secrets in (self.webhook_secrets or {}).items()}

    @property
    def poll_seconds(self) -> float | None:
        """``poll`` in seconds, or None."""
        return None if self.poll is None else seconds(self.poll, name="poll")
