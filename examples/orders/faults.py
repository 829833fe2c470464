"""Faults to order: how often a service is slow, fails, hangs, refuses, or does it and does not say so.

A dial is a JSON object, from the place to what happens there and how often (0 to 1 of the requests)::

    {"payments": {"fail": 0.1, "lie": 0.1}, "payments/refund": {"fail": 1}, "*": {"slow": 0.05, "slow_seconds": 2}}

The most exact place counts alone: an operation before its service, a service before ``*``. At most one fault meets a
request, so the shares at one place add up to 1 at most. Which request meets which fault follows from the seed, the
operation, the order and how often it was asked for: threads that run in another order change nothing.

``pace_seconds`` is no fault: each request that is done takes so long, as real services do.
"""

import json
import random
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from .books import OPERATIONS, SERVICES

KINDS: Final[Mapping[str, str]] = {
    "fail": "answers 500, and did nothing",
    "busy": "answers 429 and asks for a little patience, and did nothing",
    "refuse": "refuses for business reasons, and remembers it under the key",
    "abort": "hangs up, and did nothing",
    "hang": "never answers, and did nothing",
    "slow": "waits slow_seconds, then does it: perhaps when nobody listens any more",
    "lie": "does it, and then hangs up or never answers",
}
ROUGH: Final[Mapping[str, Mapping[str, float]]] = {
    "stock": {"fail": 0.03, "refuse": 0.02, "lie": 0.03, "slow": 0.03, "slow_seconds": 0.5},
    "payments": {"fail": 0.03, "refuse": 0.05, "lie": 0.05, "hang": 0.01, "slow": 0.03, "slow_seconds": 3.5},
    "carrier": {"fail": 0.03, "refuse": 0.02, "lie": 0.03, "abort": 0.03, "busy": 0.03},
}
"""A bad day at every service, and a survivable one; ``--faults rough``."""

SECONDS: Final = frozenset({"slow_seconds", "pace_seconds"})
"""What a dial holds besides shares."""
_DEFAULT_SLOW: Final = 1.0
_REMEMBERED_VISITS: Final = 100_000
"""Counters kept; beyond that they start anew, which makes draws repeat but never wrong."""


class FaultsError(ValueError):
    """The dial is set to something that does not exist. The message names it and what there is."""


def parse(text: str) -> dict[str, dict[str, float]]:
    """Read a dial from the command line: JSON, or the word ``rough``. Raises ``FaultsError``."""
    if text == "rough":
        return {place: dict(dial) for place, dial in ROUGH.items()}
    try:
        return checked(json.loads(text or "{}"))
    except json.JSONDecodeError as error:
        raise FaultsError(f"--faults takes 'rough' or a JSON object, not {text!r}: {error}") from error


def checked(dials: Any) -> dict[str, dict[str, float]]:
    """Return a copy of the dials with every number a float. Raises ``FaultsError``."""
    places = {"*", *SERVICES, *OPERATIONS, *(f"{service}/find" for service in SERVICES)}
    if not isinstance(dials, dict):
        raise FaultsError(f"faults are a JSON object of places, not {dials!r}")
    good: dict[str, dict[str, float]] = {}
    for place, dial in dials.items():
        if place not in places:
            raise FaultsError(f"no place is called {place!r}; there are {', '.join(sorted(places))}")
        if not isinstance(dial, dict):
            raise FaultsError(f"at {place}: a JSON object of faults is wanted, not {dial!r}")
        for kind, share in dial.items():
            if kind not in {*KINDS, *SECONDS}:
                raise FaultsError(f"at {place}: no fault is called {kind!r}; there are {', '.join(KINDS)}")
            if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < float("inf"):
                raise FaultsError(f"at {place}: {kind} is a number from 0 up, not {share!r}")
        total = sum(share for kind, share in dial.items() if kind not in SECONDS)
        if total > 1 + 1e-9:
            raise FaultsError(
                f"at {place}: the shares add up to {total:g}; at most one fault meets a request, so 1"
            )
        good[place] = {kind: float(share) for kind, share in dial.items()}
    return good


class Faults:
    """The dials of one process, safe to turn while requests come in."""

    def __init__(self, seed: int = 0, dials: Mapping[str, Mapping[str, float]] | None = None) -> None:
        self._seed = seed
        self._lock = threading.Lock()
        self._dials = checked(dict(dials or {}))
        self._visits: Counter[tuple[str, str]] = Counter()
        self._met: Counter[str] = Counter()
        self._asked: Counter[str] = Counter()

    def turn(self, dials: Any) -> None:
        """Replace all dials; ``{}`` ends every fault. Raises ``FaultsError`` and leaves them as they were."""
        good = checked(dials)
        with self._lock:
            self._dials = good

    def dials(self) -> dict[str, dict[str, float]]:
        """The dials as they stand."""
        with self._lock:
            return {place: dict(dial) for place, dial in self._dials.items()}

    def met(self) -> dict[str, int]:
        """How many requests have met which fault since the start, by "place fault"."""
        with self._lock:
            return dict(sorted(self._met.items()))

    def asked(self) -> dict[str, int]:
        """How many requests each service got since the start."""
        with self._lock:
            return dict(self._asked)

    def draw(self, place: str, order_id: str) -> str:
        """Which fault the next request at this place ("service/operation") meets; empty for none."""
        with self._lock:
            self._asked[place.partition("/")[0]] += 1
            if len(self._visits) >= _REMEMBERED_VISITS:
                self._visits.clear()
            self._visits[place, order_id] += 1
            visit = self._visits[place, order_id]
            dial = self._dial(place)
            number = self.chance(place, order_id, visit)
            for kind in KINDS:
                if kind == "refuse" and not _may_refuse(place):
                    continue
                share = dial.get(kind, 0.0)
                if number < share:
                    self._met[f"{place} {kind}"] += 1
                    return kind
                number -= share
            return ""

    def chance(self, *what: object) -> float:
        """A number from 0 up to 1 that depends on the seed and ``what`` alone."""
        return random.Random("/".join(map(str, (self._seed, *what)))).random()

    def slow_seconds(self, place: str) -> float:
        """How long a slow request at this place waits, in seconds."""
        with self._lock:
            return self._dial(place).get("slow_seconds", _DEFAULT_SLOW)

    def pace_seconds(self, place: str) -> float:
        """How long a request at this place takes that meets no fault, in seconds."""
        with self._lock:
            return self._dial(place).get("pace_seconds", 0.0)

    def _dial(self, place: str) -> dict[str, float]:
        service = place.partition("/")[0]
        for name in (place, service, "*"):
            if name in self._dials:
                return self._dials[name]
        return {}


def _may_refuse(place: str) -> bool:
    """Undoing, finding and mailing are never refused for business reasons."""
    return place in OPERATIONS and bool(OPERATIONS[place].refusal)
