"""Mixed versions: no plan is submitted that a Scheduler of an older version would take for unreadable.

Each process with a Scheduler publishes the kinds of steps that it knows. A plan of kinds that every version
knows is never looked at. For any other, what the living Schedulers publish is read, once a minute.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from makegood.errors import SubmissionError
from makegood.model.lane import LANE
from makegood.store import Store
from makegood.store.records import Submission, Submitted

_FRESH: Final = 60.0
"""Seconds for which it is known what the Schedulers know."""


Write = Callable[[Sequence[Submission]], Awaitable[list[Submitted]]]


def newer_kinds(draft: Submission) -> frozenset[str]:
    """Return what not every version knows of a draft: the kinds of its steps, and lanes."""
    kinds: frozenset[str] = draft.steps.newer_kinds
    return kinds | {LANE} if draft.lanes.names else kinds


def _needs(kinds: Sequence[str]) -> str:
    if LANE in kinds:
        return "has lanes"
    return f"has steps of the kind {' and '.join(kinds)}"


class SchedulerKinds:
    """The kinds of steps that all living Schedulers of a store know."""

    def __init__(self) -> None:
        self._common: frozenset[str] = frozenset()
        self._until = 0.0

    def checking(self, store: Store, write: Write) -> Write:
        """Return ``write`` with the check before it."""

        async def check_and_write(drafts: Sequence[Submission]) -> list[Submitted]:
            await self.check(store, drafts)
            return await write(drafts)

        return check_and_write

    async def check(self, store: Store, drafts: Sequence[Submission]) -> None:
        """Raise ``SubmissionError`` for a plan with a kind of step that a living Scheduler does not know."""
        newer = [(draft, kinds) for draft in drafts if (kinds := newer_kinds(draft))]
        if not newer:
            return
        kinds = frozenset[str]().union(*[kinds for _, kinds in newer])
        if kinds <= self._common and store.tasks.clock() < self._until:
            return
        schedulers = [info for info in await store.nodes.living() if "scheduler" in info.roles]
        for draft, needs in newer:
            for info in schedulers:
                if unknown := sorted(needs.difference(info.kinds)):
                    raise SubmissionError(
                        f"{draft.app}.{draft.workflow} {_needs(unknown)}, which the Scheduler of {info.place} "
                        "does not know: update the Schedulers first, then what submits. Nothing was written"
                    )
        self._common = kinds
        self._until = store.tasks.clock() + _FRESH
