"""Leases on any place that can compare and set one record: NATS, ZooKeeper, Kubernetes.

Such a place does not judge time, so each observer does, on its own clock and never by another's time stamps.
A record is free if it has not changed for its holder's ttl, and a little more for clocks that differ, since
*this* observer first saw it so. Each renewal changes the record. The price: a new observer waits a full ttl.

The holder's own clock judges its renewals: an overdue one is not even sent.
"""

import json
from abc import abstractmethod
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias

from makegood.base.clock import Clock
from makegood.base.durations import Duration
from makegood.election.protocol import Grant, LeaseView, PastTerm
from makegood.election.stores.calls import GrantDeadlines, RemoteLeases

KEPT = 32
"""Terms remembered in the record itself."""

_DRIFT = 0.01
_PATIENCE = (1 + _DRIFT) / (1 - _DRIFT)
_TRIES = 4

_MISSING = "missing"
"""The version of a record that this process saw, and that is not there any more."""

Version: TypeAlias = Any
"""Identifies one state of a record: a revision, an etag. Only compared."""


@dataclass(frozen=True, slots=True)
class Record:
    """The record under a name."""

    holder: str | None
    nonce: str
    """"" if the lease is free."""
    epoch: int
    ttl: float
    beat: int
    """Rises with each renewal, so that observers see a change."""
    since: float
    """By the holder's wall clock, for people."""
    past: list[PastTerm] = field(default_factory=list)
    """The latest terms, newest first."""

    @classmethod
    def take(
        cls,
        before: "Record | None",
        grant: Grant,
        wall: float,
        *,
        end_offset: float = 0.0,
        limit: int = KEPT,
        least: int = 1,
    ) -> "Record":
        """Return the record once ``grant`` has it: ``before`` if that is its own already (the same
        nonce), else a new term. The lease of the last one ran out ``end_offset`` seconds from ``wall``;
        ``limit`` terms are remembered. ``least``: the lowest epoch that a new term may have.
        """
        if before is not None and before.nonce == grant.nonce:
            return replace(before, holder=grant.holder, ttl=grant.ttl, beat=before.beat + 1)
        epoch = max(least, 1 if before is None else before.epoch + 1)
        term = PastTerm(epoch, grant.holder, wall, None, released=False)
        past = [] if before is None else end_latest(before.past, wall + end_offset, by_release=False)
        beat = 0 if before is None else before.beat + 1
        return cls(grant.holder, grant.nonce, epoch, grant.ttl, beat, wall, [term, *past[: limit - 1]])

    def free(self, wall: float) -> "Record":
        """Return the record without a holder."""
        return replace(self, holder=None, nonce="", past=end_latest(self.past, wall, by_release=True))

    def encode(self) -> bytes:
        """Return it as JSON."""
        past = [
            [t.epoch, t.holder, round(t.began, 3), t.ended and round(t.ended, 3), t.released]
            for t in self.past
        ]
        return json.dumps({**asdict(self), "past": past}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> "Record":
        """Read it. Raises ``ValueError`` for anything else."""
        try:
            fields = json.loads(data)
            fields["past"] = [PastTerm(*row) for row in fields["past"]]
            return cls(**fields)
        except (TypeError, KeyError, UnicodeDecodeError) as fault:
            raise ValueError(f"not a lease: {fault}") from fault


class ObservedLeases(RemoteLeases):
    """A lease store on a place with ``get`` and ``put``. ``clock`` judges expiry."""

    def __init__(self, place: str, *, clock: Clock, timeout: Duration = 5) -> None:
        super().__init__(place, timeout=timeout)
        self._clock = clock
        self._deadlines = GrantDeadlines(clock)
        self._mine: dict[str, tuple[Record, Version]] = {}
        self._sightings: dict[str, tuple[Version, float]] = {}
        self._highest: dict[str, int] = {}

    @abstractmethod
    async def get(self, name: str) -> tuple[Record, Version] | None:
        """Return the record under a name and its version; None: there is none."""

    @abstractmethod
    async def put(self, name: str, record: Record, expect: Version | None) -> Version | None:
        """Write the record, on the disk, if its version is ``expect`` (None: if there is none).

        Return the new version; None: it was changed meanwhile.
        """

    async def floor(self, name: str) -> int | None:  # noqa: ARG002 - for the stores that can
        """Return a number that no epoch of ``name`` ever exceeded, although its record is missing; None: the
        place keeps nothing that says.
        """
        return None

    async def take(self, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
        """Write our name into a record that is free, or ours."""
        for _ in range(_TRIES):
            sent_at = self._clock.monotonic()
            entry = await self.get(name)
            floor = 0 if entry else await self.floor(name)
            draft = self._draft(name, entry, Grant(name, holder, nonce, 0, ttl), floor)
            if draft is None:
                return None
            grant = Grant(name, holder, nonce, draft.epoch, ttl)
            if await self._write(draft, grant, entry and entry[1], sent_at):
                return grant
        return None  # Others were quicker each time.

    async def extend(self, grant: Grant) -> bool:
        """Change the record, so that every observer starts to count again."""
        for _ in range(_TRIES):
            if not self._deadlines.holds(grant.nonce) or grant.nonce not in self._mine:
                return False
            sent_at = self._clock.monotonic()
            record, version = self._mine[grant.nonce]
            if await self._write(replace(record, beat=record.beat + 1), grant, version, sent_at):
                return True
            entry = await self.get(grant.name)  # A renewal of ours without an answer may have changed it.
            if entry is None or (entry[0].nonce, entry[0].epoch) != (grant.nonce, grant.epoch):
                self._forget(grant.nonce)
                return False
            self._mine[grant.nonce] = entry
        raise self.unavailable("the record keeps changing")

    async def free(self, grant: Grant) -> None:
        """Clear the holder of a record that is ours."""
        self._forget(grant.nonce)
        for _ in range(_TRIES):
            entry = await self.get(grant.name)
            if entry is None or entry[0].nonce != grant.nonce:
                return
            record, version = entry
            if await self.put(grant.name, record.free(self._clock.wall()), version) is not None:
                return
        raise self.unavailable("the record keeps changing")

    async def look(self, name: str) -> LeaseView | None:
        """Read the record, and count from when this state was first seen."""
        entry = await self.get(name)
        if entry is None:
            return None
        record, version = entry
        left = self._seconds_left(name, record, version)
        return LeaseView(name, record.holder, record.epoch, record.ttl, record.since, min(left, record.ttl))

    async def remember(self, name: str, limit: int) -> list[PastTerm]:
        """Read the terms in the record."""
        entry = await self.get(name)
        return [] if entry is None else entry[0].past[:limit]

    def _draft(
        self, name: str, entry: tuple[Record, Version] | None, grant: Grant, floor: int | None
    ) -> Record | None:
        """Return the record as the taker would have it; None if somebody else holds it, or may still believe
        so: whoever held a record that was deleted.
        """
        wall = self._clock.wall()
        least = max(floor or 0, self._highest.get(name, 0)) + 1
        if entry is None and floor is None and name in self._sightings:
            raise self.wrong(
                f"the record of {name!r} was deleted, and its epoch with it: give the election another name, or put the record back"
            )
        if entry is None:
            fresh = Record.take(None, grant, wall, least=least)
            return (
                None if name in self._sightings and self._seconds_left(name, fresh, _MISSING) > 0 else fresh
            )
        record, version = entry
        left = self._seconds_left(name, record, version)
        self._highest[name] = max(self._highest.get(name, 0), record.epoch)
        if record.nonce != grant.nonce and record.holder is not None and left > 0:
            return None
        return Record.take(record, grant, wall, end_offset=min(left, 0.0), least=least)

    async def _write(self, record: Record, grant: Grant, expect: Version | None, sent_at: float) -> bool:
        version = await self.put(grant.name, record, expect)
        if version is None:
            return False
        self._mine = {nonce: entry for nonce, entry in self._mine.items() if self._deadlines.holds(nonce)}
        self._mine[grant.nonce] = record, version
        self._highest[grant.name] = record.epoch
        self._sightings[grant.name] = version, self._clock.monotonic()
        self._deadlines.note_grant(grant.nonce, grant.ttl, sent_at)
        return True

    def _seconds_left(self, name: str, record: Record, version: Version) -> float:
        """Return how long to wait until the record is free, if it does not change again."""
        now = self._clock.monotonic()
        sighting = self._sightings.get(name)
        if sighting is None or sighting[0] != version:
            sighting = self._sightings[name] = version, now
        return sighting[1] + record.ttl * _PATIENCE - now

    def _forget(self, nonce: str) -> None:
        self._deadlines.over(nonce)
        self._mine.pop(nonce, None)


def end_latest(past: list[PastTerm], ended_at: float, *, by_release: bool) -> list[PastTerm]:
    """Return the terms, newest first, with the latest ended, if it was not."""
    if not past or past[0].ended is not None:
        return past
    return [replace(past[0], ended=ended_at, released=by_release), *past[1:]]
