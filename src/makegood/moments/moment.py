"""A moment of a schedule: when it is, which task it is, and by how much chance delays it."""

from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Literal

Mark = Literal["gap", "fold"]
"""What a change of clocks did to a moment: its wall time does not exist, or exists twice."""


@dataclass(frozen=True, slots=True)
class ScheduleMoment:
    """One moment of a schedule."""

    local: datetime
    """The moment as clocks in the zone show it, with their offset from UTC then."""
    wall: datetime
    """The time that the cron text means, without an offset: in a gap no clock shows it."""
    timezone: str
    by_wall: bool
    """Whether the wall time makes it this moment, and not another one: the hour is named."""
    mark: Mark | None = None
    is_second: bool = False
    """Whether the wall time was there before, in the first of two equal hours."""

    @property
    def at(self) -> datetime:
        """The moment in UTC."""
        return self.local.astimezone(UTC)

    def is_after(self, instant: datetime) -> bool:
        """Whether it is after another instant: in UTC, because Python compares two datetimes of one zone by
        their wall times, and so takes 02:30 of the first hour for later than 02:10 of the second.
        """
        return self.at > instant.astimezone(UTC)

    def key(self, name: str) -> str:
        """Return the task key of this moment of the schedule ``name``.

        Where the hour is named, the key is the wall time and the zone: processes with different zone rules
        disagree about the instant, and still mean the same task.
        """
        if not self.by_wall:
            return f"{name}@{in_utc(self.at)}"
        wall = self.wall.isoformat(timespec="seconds" if self.wall.second else "minutes")
        return f"{name}@{wall}{'-second' if self.is_second else ''}[{self.timezone}]"


def in_utc(at: datetime) -> str:
    """Return an instant as ISO 8601 in UTC, with fractions only if it has some.

    >>> in_utc(datetime.fromisoformat("2026-03-29T03:00:00+02:00"))
    '2026-03-29T01:00:00Z'
    """
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def delay(key: str, jitter: float, room: float) -> float:
    """Return the seconds by which the moment with that task key is delayed, the same in every process.

    The delay is at least 0 and below ``jitter``, and below ``room``, the seconds until the next moment.

    >>> 0 <= delay("report@2026-03-29T01:00:00Z", 60, 3600) < 60
    True
    """
    return int.from_bytes(sha256(key.encode()).digest()[:4]) / 2**32 * min(jitter, room)
