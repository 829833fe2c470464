"""The kinds of faults, and the plan of a run: which fault falls when, drawn from the seed. Nothing here acts."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Kind(StrEnum):
    """What can happen. The values are what people read."""

    KILL_SCHEDULER = "scheduler killed"
    KILL_AGENT = "agent killed"
    KILL_SUPERVISOR = "supervisor killed"
    KILL_SERVICES = "services killed"
    KILL_CUSTOMER = "customer killed"
    STOP_SCHEDULER = "scheduler stopped"
    STOP_AGENT = "agent stopped"
    STOP_SUPERVISOR = "supervisor stopped"
    SLOW = "service slow"
    FAIL = "service fails"
    HANG = "service hangs"
    ABORT = "service hangs up"
    BUSY = "service busy"
    REFUSE = "service refuses"
    LIE = "service does it, silent"
    DO_FAILS = "a do fails for long"
    UNDO_FAILS = "undos fail for long"
    SERVICES_REFUSED = "services unreachable"
    SERVICES_RESET = "services' connections cut"
    SERVICES_HOLE = "services in a black hole"
    STORE_STOPPED = "server stopped"
    STORE_CRASHED = "server crashed"
    SESSIONS_ENDED = "sessions terminated"
    STORE_REFUSED = "server unreachable"
    STORE_RESET = "server's connections cut"
    STORE_HOLE = "server in a black hole"
    ANSWERS_LOST = "server's answers lost"
    FILE_LOCKED = "file locked"
    READER = "file read for long"
    READ_ONLY = "folder read-only"
    CANCEL = "operator cancels"
    UNDO = "operator undoes"
    RESUBMIT = "operator resubmits"
    SETTLE = "operator settles"
    KILL_INBOX = "inbox killed"
    STOP_INBOX = "inbox stopped"
    KILL_BROKER = "broker killed"
    STOP_BROKER = "broker stopped"


EVERYWHERE: Final = (
    Kind.KILL_SCHEDULER, Kind.KILL_AGENT, Kind.KILL_SUPERVISOR, Kind.KILL_SERVICES, Kind.KILL_CUSTOMER, Kind.STOP_SCHEDULER,
    Kind.STOP_AGENT, Kind.STOP_SUPERVISOR, Kind.SLOW, Kind.FAIL, Kind.HANG, Kind.ABORT, Kind.BUSY, Kind.REFUSE, Kind.LIE, Kind.DO_FAILS,
    Kind.UNDO_FAILS, Kind.SERVICES_REFUSED, Kind.SERVICES_RESET, Kind.SERVICES_HOLE, Kind.CANCEL, Kind.UNDO, Kind.RESUBMIT,
    Kind.SETTLE,
)  # fmt: skip
"""What happens whatever the store."""
POSTGRES: Final = (
    Kind.STORE_STOPPED, Kind.STORE_CRASHED, Kind.SESSIONS_ENDED, Kind.STORE_REFUSED, Kind.STORE_RESET, Kind.STORE_HOLE,
    Kind.ANSWERS_LOST,
)  # fmt: skip
BROKER: Final = (Kind.KILL_INBOX, Kind.STOP_INBOX, Kind.KILL_BROKER, Kind.STOP_BROKER)
"""What happens besides in a run with a broker."""
SQLITE: Final = (Kind.FILE_LOCKED, Kind.READER, Kind.READ_ONLY)
ACTS: Final = (Kind.CANCEL, Kind.UNDO, Kind.RESUBMIT, Kind.SETTLE)
SERVICE_WORDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        "slow": Kind.SLOW,
        "fail": Kind.FAIL,
        "hang": Kind.HANG,
        "abort": Kind.ABORT,
        "busy": Kind.BUSY,
        "refuse": Kind.REFUSE,
        "lie": Kind.LIE,
    }
)
"""What the services' dials are called, and which fault a request has met with it."""

LIFE: Final = 1.5
"""Seconds without a heartbeat after which a process of the run counts as dead."""
LONGEST_COMPLETE_BY: Final = 4.0
"""Seconds that the longest attempt of the shop's actions has: who is stopped is stopped for longer."""

LENGTHS: Final[Mapping[Kind, tuple[float, float]]] = MappingProxyType(
    {
        Kind.KILL_SERVICES: (0.3, 1.5),
        Kind.STOP_SCHEDULER: (LONGEST_COMPLETE_BY + 0.3, LONGEST_COMPLETE_BY + 2.0),
        Kind.STOP_AGENT: (LONGEST_COMPLETE_BY + 0.3, LONGEST_COMPLETE_BY + 2.0),
        Kind.STOP_SUPERVISOR: (LONGEST_COMPLETE_BY + 0.3, LONGEST_COMPLETE_BY + 2.0),
        Kind.STOP_INBOX: (LONGEST_COMPLETE_BY + 0.3, LONGEST_COMPLETE_BY + 2.0),
        Kind.STOP_BROKER: (1.0, 5.0),
        Kind.DO_FAILS: (7.0, 9.0),
        Kind.UNDO_FAILS: (9.0, 11.0),
        Kind.STORE_HOLE: (0.5, 3.0),
        Kind.STORE_STOPPED: (0.2, 1.5),
        Kind.STORE_CRASHED: (0.2, 1.5),
        Kind.FILE_LOCKED: (0.3, 2.5),
        Kind.READER: (1.0, 5.0),
        Kind.READ_ONLY: (1.5, 3.0),
    }
)
"""How long a fault lasts, in seconds; for what is not listed ``USUAL``. After a kill: until the next process starts."""
USUAL: Final = (0.3, 2.0)
WEIGHTS: Final[Mapping[Kind, float]] = MappingProxyType(
    {
        Kind.KILL_AGENT: 2.0,
        Kind.KILL_SCHEDULER: 1.5,
        Kind.STORE_STOPPED: 0.4,
        Kind.STORE_CRASHED: 0.4,
        Kind.STORE_REFUSED: 0.6,
        Kind.STORE_HOLE: 0.6,
        Kind.READ_ONLY: 0.5,
        Kind.KILL_SERVICES: 0.7,
        Kind.KILL_BROKER: 0.4,
        Kind.STOP_BROKER: 0.4,
        Kind.DO_FAILS: 0.2,
        Kind.UNDO_FAILS: 0.3,
        Kind.CANCEL: 2.0,
        Kind.RESUBMIT: 1.5,
        Kind.SETTLE: 1.5,
    }
)
"""How often a kind is drawn beside the others; 1 for what is not listed."""
EVERY: Final = 0.4
"""Seconds from one fault to the next, on average."""
BREATH: Final = 2.0
"""Seconds between two faults of the store: without a store nothing happens that the other faults could meet."""
LONG_LOCKS_FROM: Final = 120.0
"""A run of at least so many seconds also has locks that outlast the patience of those who wait for them."""
LONG_LOCK: Final = (8.0, 14.0)


@dataclass(frozen=True, slots=True)
class Blow:
    """A fault to come: ``at`` seconds after the start, for ``away`` seconds; ``dice`` decides who is hit. A ``must`` comes
    again until it has met somebody; another one is left out when the store or the way to it suffers already.
    """

    at: float
    kind: Kind
    away: float
    dice: int
    must: bool = False


def kinds_of(store: str, broker: str = "") -> tuple[Kind, ...]:
    """Return the kinds that a run has on this store, "sqlite" or "postgres", with a broker or with none."""
    return (*EVERYWHERE, *(POSTGRES if store == "postgres" else SQLITE), *(BROKER if broker else ()))


def plan(kinds: Sequence[Kind], seconds: float, rng: random.Random, every: float = EVERY) -> list[Blow]:
    """Draw the faults of a run, in order of time: each kind once in the first two thirds (what takes long or prepares the
    ground for an operator first, operators' acts last), and whatever chance brings all along.
    """
    first = sorted(kinds, key=lambda kind: (_turn(kind), rng.random()))
    step = seconds * 0.65 / len(first)
    moments = [(step * (n + rng.random()), kind, True) for n, kind in enumerate(first)]
    more = max(0, round(seconds / every) - len(first))
    weights = [WEIGHTS.get(kind, 1.0) for kind in kinds]
    choice = rng.choices(kinds, weights, k=more)
    moments += [(seconds * (n + rng.random()) / more, kind, False) for n, kind in enumerate(choice)]
    return [
        Blow(at, kind, _length(kind, seconds, rng), rng.getrandbits(32), must)
        for at, kind, must in sorted(moments, key=lambda moment: moment[0])
    ]


def _turn(kind: Kind) -> int:
    if kind in (Kind.DO_FAILS, Kind.UNDO_FAILS, Kind.CANCEL):
        return 0
    return 2 if kind in ACTS else 1


def _length(kind: Kind, seconds: float, rng: random.Random) -> float:
    if kind is Kind.FILE_LOCKED and seconds >= LONG_LOCKS_FROM and rng.random() < 0.15:
        return rng.uniform(*LONG_LOCK)
    return rng.uniform(*LENGTHS.get(kind, USUAL))
