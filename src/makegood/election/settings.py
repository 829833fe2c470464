"""The numbers of an election, and the arithmetic that makes them sound.

Belief in a lease ends earlier than the lease, by a margin for clocks that run at different rates. With rates
within 1 ± drift of real time, a holder may believe for ``ttl * (1 - drift) / (1 + drift)`` of its own
seconds, counted from *before* it sent the request. A renewal must be sent, and must have had its time to
fail, before the work has to stop.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from makegood.base.durations import Duration, seconds
from makegood.errors import ConfigError

Health = Callable[[], bool | Awaitable[bool]]
"""Whether this process is fit to lead. Asked before each renewal; False, an exception or silence end the
term.
"""

Overrun = Literal["log", "exit"]
"""What happens if work has not stopped at the deadline: a critical log line, or the process ends with
``os._exit``.
"""

_SLICES = 20
_LONGEST_SLICE = 1.0
"""Seconds. Of a long lease a sixtieth, so that holding one for hours costs only an occasional check."""
_SHARE = 1 / 60


def belief(ttl: float, drift: float = 0.01) -> float:
    """Return for how many seconds after its request a holder may believe in a lease of ``ttl`` seconds.

    >>> round(belief(15), 2)
    14.7
    """
    return ttl * (1 - drift) / (1 + drift)


@dataclass(frozen=True, slots=True)
class Settings:
    """Checked settings, in seconds. See ``Election`` for what each means."""

    ttl: float
    renew: float
    retry: float
    timeout: float
    drift: float
    wind_down: float
    stall: float | None
    health: Health | None
    overrun: Overrun

    @property
    def belief(self) -> float:
        """How long a holder may believe, counted from before its request."""
        return belief(self.ttl, self.drift)

    @property
    def looks(self) -> float:
        """Seconds between comparisons of the clock: timers may have stopped while the machine was
        suspended.
        """
        return min(self.ttl / _SLICES, max(_LONGEST_SLICE, self.ttl * _SHARE))

    @property
    def health_timeout(self) -> float:
        """How long the health check may take."""
        return self.timeout / 2 if self.health is not None else 0.0


def settings(
    ttl: Duration = 15,
    *,
    renew: Duration | None = None,
    retry: Duration | None = None,
    timeout: Duration | None = None,
    drift: float = 0.01,
    wind_down: Duration | None = None,
    stall: Duration | None = None,
    health: Health | None = None,
    overrun: Overrun = "log",
) -> Settings:
    """Return checked settings. Raises ``ConfigError`` with the arithmetic if they are not sound."""
    lease = seconds(ttl, name="ttl", least=0.1)
    if not 0 <= drift < 0.5:
        raise ConfigError(f"drift={drift!r} is a share of clock rate, such as 0.01: at least 0, below 0.5")
    if overrun not in ("log", "exit"):
        raise ConfigError(f'overrun={overrun!r}: write "log" or "exit"')

    def seconds_or_third(value: Duration | None, name: str) -> float:
        return lease / 3 if value is None else seconds(value, name=name, least=0.001)

    config = Settings(
        ttl=lease,
        renew=seconds_or_third(renew, "renew"),
        retry=seconds_or_third(retry if retry is not None else renew, "retry"),
        timeout=seconds_or_third(timeout, "timeout"),
        drift=drift,
        wind_down=lease / _SLICES if wind_down is None else seconds(wind_down, name="wind_down"),
        stall=None if stall is None else seconds(stall, name="stall", least=0.001),
        health=health,
        overrun=overrun,
    )
    _check(config)
    return config


def _has(thing: object, *verbs: str) -> bool:
    """Whether it is an object, not a class, with these methods."""
    return not isinstance(thing, type) and all(callable(getattr(thing, verb, None)) for verb in verbs)


def check_arguments(leases: object, health: object, preference: object, me: object) -> None:
    """Raise ``ConfigError`` for arguments that make no sense: they would fail only while leading, or
    never.
    """
    if not _has(leases, "acquire", "renew", "release", "read", "past_terms"):
        raise ConfigError(
            f"leases={leases!r} is not a lease store: pass what open_leases(url) returns, or one of your own"
        )
    if health is not None and not callable(health):
        raise ConfigError(
            f"health={health!r}: pass a function that returns whether this process is fit to lead"
        )
    if preference is not None and not _has(preference, "start", "stop", "rank", "seen"):
        raise ConfigError(
            f"preference={preference!r} is not a preference: pass an object, such as Bully(TcpTransport(me, members))"
        )
    its = getattr(preference, "me", None)
    if its is not None and me is not None and its != me:
        raise ConfigError(
            f"me={me!r}, but the preference's transport is {its!r}'s: give election and transport the same name"
        )


def _check(config: Settings) -> None:
    least = config.renew + config.timeout + config.health_timeout
    usable = config.belief - config.wind_down
    if least >= usable:
        look = f" + {config.health_timeout:g} s for the check of health" if config.health is not None else ""
        raise ConfigError(
            f"invalid election settings: a renewal starts after renew={config.renew:g} s and may take timeout={config.timeout:g} s"
            f"{look}, together {least:g} s, which must fit into the {usable:.2f} s that a leader may work on a lease of "
            f"ttl={config.ttl:g} s (ttl * (1 - {config.drift:g}) / (1 + {config.drift:g}) - wind_down = {config.belief:.2f} - {config.wind_down:g}): "
            f"use a longer ttl, or a shorter renew, timeout or wind_down"
        )
    if config.stall is not None and config.stall <= config.renew:
        raise ConfigError(
            f"stall={config.stall:g} s is not longer than renew={config.renew:g} s: makegood checks the work's beat before each renewal, "
            "so a stall is noticed no sooner; use a longer stall or a shorter renew"
        )
    if config.overrun == "exit" and config.wind_down <= 0:
        raise ConfigError(
            'overrun="exit" ends the process at the deadline: say with wind_down= how many seconds before it the work is asked to stop'
        )
