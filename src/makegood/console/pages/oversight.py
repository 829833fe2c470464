"""What the store keeps for people to look back on: errors, refusals, minutes, bulk acts."""

from collections.abc import Sequence
from typing import Final

from makegood.console.reads import Reads
from makegood.store.oversight_records import (
    BulkRefusal,
    BulkView,
    ErrorGroups,
    MinuteFigures,
    Refusal,
    SupervisorDecision,
)

GROUPS: Final = 1000
"""Groups of errors that are read, at most."""
ACTS: Final = 50
"""Bulk acts on a page, at most."""
REFUSED: Final = 100
"""Refusals of one bulk act on a page, at most."""


async def groups(reads: Reads) -> ErrorGroups:
    """Return the groups of errors, the latest first."""
    return await reads.share("groups", lambda: reads.store.oversight.error_groups(GROUPS))


async def decisions(reads: Reads, limit: int = 20) -> Sequence[SupervisorDecision]:
    """Return what the leading Supervisor did, newest first."""
    return await reads.share(("decisions", limit), lambda: reads.store.oversight.decisions(limit))


async def refusals(reads: Reads, limit: int = 20) -> Sequence[Refusal]:
    """Return the writes that fencing refused, newest first."""
    return await reads.share(("refusals", limit), lambda: reads.store.oversight.refusals(limit))


async def minutes(reads: Reads, since: float = 3600.0) -> Sequence[MinuteFigures]:
    """Return the figures of the last minutes, oldest first."""
    return await reads.share(("minutes", since), lambda: reads.store.oversight.minutes(since))


async def bulk_acts(reads: Reads) -> Sequence[BulkView]:
    """Return the acts on many tasks, newest first."""
    return await reads.share("bulk", lambda: reads.store.oversight.bulk_acts(ACTS))


async def bulk_act(reads: Reads, name: str) -> BulkView | None:
    """Return one act on many tasks, None if there is none."""
    return await reads.share(("bulk", name), lambda: reads.store.oversight.bulk_act(name))


async def bulk_ends(reads: Reads, name: str) -> dict[str, int]:
    """Return how many tasks that accepted an act on many are in each state."""
    return await reads.share(("bulk ends", name), lambda: reads.store.oversight.bulk_ends(name))


async def bulk_refusals(reads: Reads, name: str) -> Sequence[BulkRefusal]:
    """Return what was refused of an act on many tasks."""
    return await reads.share(("refused", name), lambda: reads.store.oversight.bulk_refusals(name, REFUSED))
