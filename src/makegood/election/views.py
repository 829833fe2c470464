"""Who leads, and who led: for all, candidate or not."""

from collections.abc import Iterable
from dataclasses import dataclass

from makegood.election.protocol import LeaseView, PastTerm


@dataclass(frozen=True, slots=True)
class View:
    """Who leads. The view may be outdated a moment later."""

    leader: str | None
    """None: nobody."""
    epoch: int
    since: float
    """Seconds since 1970."""

    @classmethod
    def of(cls, lease: LeaseView | None) -> "View":
        """Return the view of a lease: an expired one has no leader."""
        if lease is None:
            return cls(None, 0, 0.0)
        leads = lease.holder if lease.remaining > 0 else None
        return cls(leads, lease.epoch, lease.since)


@dataclass(frozen=True, slots=True)
class TermView(PastTerm):
    """A term of the past, or the present one: ``ended`` is None for the present one, and what was not
    ``released`` ran out. Points in time are seconds since 1970.
    """

    gap: float | None
    """Seconds without a leader before it; None for the first that is remembered."""


def with_gaps(past: Iterable[PastTerm]) -> list[TermView]:
    """Return terms (newest first) with the gaps before them.

    >>> [t.gap for t in with_gaps([PastTerm(2, "b", 20.0, None, False), PastTerm(1, "a", 0.0, 15.0, False)])]
    [5.0, None]
    >>> with_gaps([])
    []
    """
    terms = list(past)
    return [
        TermView(
            term.epoch, term.holder, term.began, term.ended, term.released,
            None if last is None or last.ended is None else max(0.0, term.began - last.ended),
        )
        for term, last in zip(terms, [*terms[1:], None], strict=False)
    ]  # fmt: skip
