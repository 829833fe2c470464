"""What the store keeps for people to look back on: errors, refusals, minutes, bulk acts."""

from collections.abc import Sequence
from typing import Any, Final

from makegood.console.reads import Reads

GROUPS: Final = 50
"""Groups of errors on a page, at most."""
ACTS: Final = 50
"""Bulk acts on a page, at most."""
REFUSED: Final = 100
"""Refusals of one bulk act on a page, at most."""


def _slice(reads: Reads) -> Any:
    return getattr(reads.store, "oversight", None)


async def groups(reads: Reads) -> Any:
    """Return the groups of errors, the latest first; None if the store keeps none."""
    kept = _slice(reads)
    return None if kept is None else await reads.shared("groups", lambda: kept.error_groups(GROUPS))


async def refusals(reads: Reads, limit: int = 20) -> Sequence[Any]:
    """Return the writes that fencing refused, newest first."""
    kept = _slice(reads)
    return [] if kept is None else await reads.shared(("refusals", limit), lambda: kept.refusals(limit))


async def minutes(reads: Reads, since: float = 3600.0) -> Sequence[Any]:
    """Return the figures of the last minutes, oldest first."""
    kept = _slice(reads)
    return [] if kept is None else await reads.shared(("minutes", since), lambda: kept.minutes(since))


async def bulk_acts(reads: Reads) -> Sequence[Any]:
    """Return the acts on many tasks, newest first."""
    kept = _slice(reads)
    return [] if kept is None else await reads.shared("bulk", lambda: kept.bulk_acts(ACTS))


async def bulk_act(reads: Reads, name: str) -> Any:
    """Return one act on many tasks, None if there is none."""
    kept = _slice(reads)
    return None if kept is None else await reads.shared(("bulk", name), lambda: kept.bulk_act(name))


async def bulk_refusals(reads: Reads, name: str) -> Sequence[Any]:
    """Return what was refused of an act on many tasks."""
    kept = _slice(reads)
    return (
        []
        if kept is None
        else await reads.shared(("refused", name), lambda: kept.bulk_refusals(name, REFUSED))
    )
