"""The moments of a schedule, found by a walk from second to second, as cron itself looks at the clock.

It shares nothing with the engine except the hash that draws a jitter. A fixed time is due at each second that
the clocks pass for the first time; real time whenever they show a time that fits.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from makegood.moments.moment import delay
from proofs.storms.zone_laws import ZoneLaw

_RANGES = ((0, 59), (0, 59), (0, 23))
_SECOND = timedelta(seconds=1)
_AHEAD = 150
"""Seconds after which a text of a storm has another moment for certain."""


class WalkedMoment(NamedTuple):
    """A moment: its instant, when it fires, and the key of its task."""

    at: float
    begin: float
    key: str


class Blow(NamedTuple):
    """What a change of the clocks does: when, how many times have no moment of their own, and why."""

    at: float
    skips: int
    reason: str


@dataclass(frozen=True, slots=True)
class Walk:
    """Walks through a schedule by the law of one host. ``times``: as the row has them."""

    name: str
    times: Mapping[str, Any]
    law: ZoneLaw

    @property
    def is_by_wall(self) -> bool:
        """Whether the hour is named, so that the wall time is the moment."""
        return "cron" in self.times and not self._fields[2].startswith("*")

    @property
    def _fields(self) -> list[str]:
        return str(self.times["cron"]).split()

    def moments(self, progress: Mapping[str, Any], until: float) -> list[WalkedMoment]:
        """Return the moments up to ``until`` that are left by a schedule's progress, as the row has it: those
        after an instant, and those before it whose wall time is after that of all that were dealt with.
        """
        jitter, moments, since = float(self.times.get("jitter", 0.0)), list[WalkedMoment](), progress["since"]
        dealt = self._dealt(progress)
        instants = [*self._leapt(since, dealt), *self._instants(since, until + _AHEAD, dealt)]
        for n, (at, key) in enumerate(instants):
            if at > until:
                break
            room = instants[n + 1][0] - at if n + 1 < len(instants) else jitter
            moments.append(WalkedMoment(at, at + (delay(key, jitter, room) if jitter else 0.0), key))
        return moments

    def blow(self, progress: Mapping[str, Any], until: float) -> Blow | None:
        """Return what the change of the clocks does to times that a schedule's progress leaves, up to an
        instant; None if there is none. A gap before that progress has such times, if other hosts had none.
        """
        law, dealt = self.law, self._dealt(progress)
        is_late = law.change <= progress["since"] and (dealt is None or law.after < law.before)
        if "cron" not in self.times or law.change > until or is_late:
            return None
        before, after = law.local(law.change - 1) + _SECOND, law.local(law.change)
        low, high = sorted((before, after))
        walls = self._fitting(low, high)
        if law.after > law.before:
            count = sum(dealt is None or wall > dealt for wall in walls)
            return Blow(law.change, max(0, count - 1) if self._is_fixed else count, "gap")
        return Blow(law.change, len(walls) if self._is_fixed else 0, "fold")

    def _dealt(self, progress: Mapping[str, Any]) -> datetime | None:
        """Return the latest wall time of the moments that were dealt with, if it makes them."""
        wall = progress.get("wall") if self.is_by_wall else None
        return None if wall is None else datetime.fromisoformat(wall)

    @property
    def _is_fixed(self) -> bool:
        return not any(field.startswith("*") for field in self._fields[:3])

    def _instants(self, since: float, until: float, dealt: datetime | None) -> Iterator[tuple[float, str]]:
        until = min(until, self.times.get("end", math.inf))
        if "every" in self.times:
            length = self.times["every"]
            n = math.floor(since / length) + 1
            while n * length <= until:
                yield n * length, f"{self.name}@{_text(datetime.fromtimestamp(n * length, UTC))}Z"
                n += 1
            return
        for at in range(math.floor(since) + 1, math.floor(until) + 1):
            key, _ = self._key_at(at, dealt)
            if key:
                yield at, key

    def _leapt(self, since: float, latest: datetime | None) -> Iterator[tuple[float, str]]:
        """Yield the moments up to ``since`` that the rules of another host had not reached."""
        if latest is None:
            return
        begin = math.floor(latest.replace(tzinfo=UTC).timestamp()) - max(self.law.before, self.law.after)
        for at in range(begin, math.floor(since) + 1):
            key, shown = self._key_at(at, latest)
            if key and shown > latest and "-second[" not in key:
                yield at, key

    def _key_at(self, at: int, dealt: datetime | None) -> tuple[str, datetime]:
        """Return the key of the moment at a second, "" if there is none, and the wall time that it means: of
        those that clocks skip, the first one that was not dealt with.
        """
        law, shown = self.law, self.law.local(at)
        is_repeated = law.after < law.before and at >= law.change and shown < _end(law)
        if not self._is_fixed:
            fits, wall = self._fits(shown), shown
        elif is_repeated:
            return "", shown
        else:
            walls = self._fitting(law.local(at - 1) + _SECOND, shown + _SECOND)
            if law.after < law.before and shown == _end(law):
                walls = self._fitting(shown, shown + _SECOND)
            walls = [wall for wall in walls if wall == shown or dealt is None or wall > dealt]
            fits, wall = bool(walls), walls[0] if walls else shown
        if not fits:
            return "", wall
        if not self.is_by_wall:
            return f"{self.name}@{_text(datetime.fromtimestamp(at, UTC))}Z", wall
        seconds = "seconds" if wall.second else "minutes"
        key = f"{self.name}@{wall.isoformat(timespec=seconds)}{'-second' if is_repeated else ''}[{self.times['timezone']}]"
        return key, wall

    def _fitting(self, low: datetime, high: datetime) -> list[datetime]:
        """Return the wall times of the text from ``low`` to before ``high``."""
        count = int((high - low).total_seconds())
        return [wall for n in range(count) if self._fits(wall := low + timedelta(seconds=n))]

    def _fits(self, wall: datetime) -> bool:
        values = (wall.second, wall.minute, wall.hour)
        return all(
            value in _values(field, *range_)
            for field, value, range_ in zip(self._fields, values, _RANGES, strict=False)
        )


def _end(law: ZoneLaw) -> datetime:
    """Return the wall time that ends a repeated stretch."""
    return law.local(law.change - 1) + _SECOND


def _text(at: datetime) -> str:
    return at.replace(tzinfo=None).isoformat()


def _values(field: str, least: int, most: int) -> set[int]:
    values: set[int] = set()
    for term in field.split(","):
        span, _, step = term.partition("/")
        first, _, last = (f"{least}-{most}" if span == "*" else span).partition("-")
        values.update(range(int(first), int(last or first) + 1, int(step or 1)))
    return values
