"""The settings of a process that runs roles: one record, read by the API, the command line and tests
alike.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Final, get_args

from makegood.base.arguments import judge_calls
from makegood.base.durations import IN_PYTHON, Duration, seconds
from makegood.base.host_lists import entry
from makegood.base.sizes import Size, size
from makegood.base.webhook_signature import address, key_of
from makegood.brokers.address import pattern_of
from makegood.brokers.kinds import KINDS, Target, target_for, targets_of
from makegood.errors import ConfigError
from makegood.model.notices import Cause

DEFAULT_URL = "sqlite:///makegood.db"
"""The store of a process that names none: a file in its current folder."""

_CAUSES: Final = get_args(Cause)


# What a field holds: ``least`` (in seconds) of a length of time, ``kind`` of a number or list.
_COUNT: Final = MappingProxyType({"kind": "count"})
_SIZE: Final = MappingProxyType({"kind": "size"})
_LIST: Final = MappingProxyType({"kind": "list"})

# Commas between two entries: a queue's name may have one, a host's has none.
_COMMAS: Final = MappingProxyType(
    {"webhook_hosts": re.compile(r",\s*"), "reply_to_brokers": re.compile(r",(?:\s+|$|(?=[a-z-]+:))")}
)


def _entries(name: str, text: object) -> list[str]:
    """Return the entries of a list. Raises ``ConfigError`` unless it is a text with spaces between them."""
    if text is None:
        return []
    if not isinstance(text, str):
        raise ConfigError(
            f"{name}: write one text, with spaces between the entries, not {type(text).__name__}"
        )
    if _COMMAS[name].search(text):
        # A URL does not belong there, and may hold a password.
        example = "" if "//" in text or "@" in text else f": {_COMMAS[name].sub(' ', text).strip()!r}"
        raise ConfigError(f"{name}: separate addresses by spaces, not commas{example}")
    return text.split()


@judge_calls(ConfigError)
@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a Node runs.

    Lengths of time are durations: seconds, "200ms", "20s", "5m", ``timedelta``. Sizes are whole bytes, or
    "256MiB", "64MB". Raises ``ConfigError`` for a value that makes no sense.

    >>> Options(supervise_every="1s").number("supervise_every")
    1.0
    """

    slots: int | None = field(default=None, metadata=_COUNT)
    """Slots of each agent, instead of its declared ``concurrency``."""
    supervise_every: Duration = field(default=5.0, metadata={"least": 0.01})
    """The Supervisor's interval."""
    lease: Duration = field(default=15.0, metadata={"least": 0.1})
    """The length of the Supervisor's lease."""
    late_after: Duration = field(default=2.0, metadata={"least": 0.0})
    """How long after its deadline an attempt is judged silent."""
    starved_after: Duration = field(default=30.0, metadata={"least": 0.0})
    """How long a request may wait for an agent, or a task where no Scheduler runs, before an alert."""
    outage_after: Duration = field(default="5m", metadata={"least": 0.0})
    """How long an agent's circuit may be open before an alert names the tasks that wait for its service."""
    alerts_every: Duration | None = field(default=2.0, metadata={"least": 0.01})
    """Pause between polls for alerts to log and send; None: this process reports none."""
    alert_webhook: str | None = field(default=None, repr=False)  # its path may be a secret
    """Address that alerts are sent to. Its path may be a secret."""
    alert_secret: str | None = field(default=None, repr=False)
    """Signs alerts sent to ``alert_webhook``; may be several, separated by spaces, during a change of
    secrets.
    """
    leaderless_after: Duration | None = field(default=30.0, metadata={"least": 0.1})
    """How long there may be no leader before an alert; None: this process does not watch."""
    webhook_hosts: str | None = field(default=None, metadata=_LIST)
    """Hosts that submitters may name in ``reply_to="https://…"``, separated by spaces.

    Names (``hooks.example.com``, ``*.example.com``, ``localhost``), and networks (``10.1.0.0/16``) for hosts
    that are not public; each with ``:PORT`` if only that port is allowed.
    """
    webhook_secret: str | None = field(default=None, repr=False)
    """Signs for all hosts without a secret of their own; may be several, separated by spaces, during a
    change.
    """
    webhook_secrets: Mapping[str, str] | None = field(default=None, repr=False, hash=False)
    """The secret of each host, ``{"a.example.com": "whsec_…"}``, with hosts written as in ``webhook_hosts``.
    Each may be several, separated by spaces, during a change.
    """
    webhook_cause: Cause = "name"
    """How much of a task's failure receivers get: its "text", the "name" of its kind, or "none"."""
    webhook_timeout: Duration = field(default=10.0, metadata={"least": 0.01})
    """Time for one post."""
    webhook_tries: int = field(default=12, metadata=_COUNT)
    """Posts before a notice is given up."""
    brokers: Mapping[str, str] | None = field(default=None, repr=False, hash=False)
    """The brokers that orders come from and notices go to: their URLs, by the names that addresses such as
    "amqp:main/orders" contain. A URL may hold a password.
    """
    reply_to_brokers: str | None = field(default=None, metadata=_LIST)
    """Addresses at brokers that submitters may name in ``reply_to``, separated by spaces; a ``*`` at the end
    stands for any further text: "amqp:main/notices kafka:main/shop.*".
    """
    queue_limit: int = field(default=100_000, metadata=_COUNT)
    """Messages that may wait in a queue before ``send`` is refused and its oldest notices are dropped."""
    queue_bytes: Size = field(default="1GiB", metadata=_SIZE)
    """The same limit for the bytes of their values."""
    heartbeat: Duration = field(default=1.0, metadata={"least": 0.01})
    """Pause between heartbeats."""
    dead_after: Duration = field(default=5.0, metadata={"least": 0.02})
    """A process without a heartbeat for this long counts as dead."""
    poll_every: Duration | None = field(default=1.0, metadata={"least": 0.001})
    """Pause between polls of the store, in addition to wake-ups; None: never poll without one."""
    drain: Duration = field(default=30.0, metadata={"least": 0.0})
    """How long an orderly shutdown may wait for what is running."""
    max_tasks: int = field(default=10_000, metadata=_COUNT)
    """Tasks in memory at most."""
    max_task_memory: Size = field(default="256MiB", metadata=_SIZE)
    """Bytes of the tasks in memory (inputs, results, steps) above which nothing more is claimed."""
    claim_batch: int = field(default=500, metadata=_COUNT)
    """Tasks claimed in one commit at most."""
    linger: Duration = field(default=10.0, metadata={"least": 0.0})
    """A task that only waits, for longer than this, is not kept in memory: it sleeps in the store."""
    retention: Duration | None = field(default="30d", metadata={"least": 0.0})
    """How long a processed or undone task is kept; None: forever."""
    cleanup_every: Duration = field(default="10m", metadata={"least": 0.01})
    """Pause between the rounds of the janitor, which removes older tasks."""
    migrate: bool = True
    """Bring an empty or old store up to date when opening it."""

    def __post_init__(self) -> None:
        """Check every setting and how they go together."""
        for one in fields(self):
            value = getattr(self, one.name)
            never = type(None) in get_args(one.type)
            if "least" in one.metadata and not (never and value is None):
                written = f"{IN_PYTHON}; None means never" if never else IN_PYTHON
                seconds(value, name=one.name, least=one.metadata["least"], written=written)
            elif one.metadata.get("kind") == "size":
                size(value, name=one.name)
            elif one.metadata.get("kind") == "count" and not (
                value is None or (isinstance(value, int) and value >= 1)
            ):
                raise ConfigError(f"{one.name}={value!r}: a whole number of at least 1")
        if self.number("dead_after") < 2 * self.number("heartbeat"):
            raise ConfigError(
                f"dead_after={self.dead_after!r} must be at least twice heartbeat={self.heartbeat!r}, "
                "or one late heartbeat is a death"
            )

        if self.alert_webhook is not None:
            address(self.alert_webhook, "alert_webhook")
        for secret in self.secrets:
            key_of(secret, "alert_secret")
        for secret in (self.webhook_secret or "").split():
            key_of(secret, "webhook_secret")
        for host, secrets in self._receivers.items():
            entry(host, "webhook_secrets")
            for secret in secrets or [""]:
                key_of(secret, f"webhook_secrets of {host!r}")
        for target in self._broker_targets.values():
            if not target.url.strip():
                raise ConfigError(f"brokers: the URL of {target.name!r} is empty")
        _entries("webhook_hosts", self.webhook_hosts)
        for pattern in _entries("reply_to_brokers", self.reply_to_brokers):
            target_for(pattern_of(pattern, KINDS), self._broker_targets, "reply_to_brokers")
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
    def _receivers(self) -> dict[str, tuple[str, ...]]:
        """The secrets of each receiver that has its own, by its entry."""
        return {host: tuple(secrets.split()) for host, secrets in (self.webhook_secrets or {}).items()}

    @property
    def _broker_targets(self) -> dict[str, Target]:
        """The brokers by name. Raises ``ConfigError`` for a URL that names none."""
        return targets_of(self.brokers or {})

    @property
    def _poll_seconds(self) -> float | None:
        """``poll_every`` in seconds, or None."""
        return None if self.poll_every is None else seconds(self.poll_every, name="poll_every")
