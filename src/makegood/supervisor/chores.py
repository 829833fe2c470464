"""The chores of the leader: acts on many tasks, and the figures of each minute.

Acts are rows. The leader sends their commands in bounded batches, and continues where the leader before it
was. Figures are sums of what Schedulers publish with their heartbeats: what one has counted since the last
look belongs to the minute of that look. Where nobody leads, acts wait, and minutes have no figures.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping

from makegood.actor.actor import Actor
from makegood.actor.setbacks import Setbacks
from makegood.base.pacing import event_within
from makegood.errors import StoreUnavailableError
from makegood.store.protocol import Store
from makegood.store.views import NodeView, SchedulerTally

log = logging.getLogger("makegood.supervisor")

AT_ONCE = 100
"""Commands in one transaction."""

MOST_ACTS = 20
"""Acts that are worked off side by side."""

POLL = 5.0
"""Seconds at most between two looks for acts."""

ANSWERS_POLL = 0.5
"""The same while commands of an act are undecided."""

MINUTE = 60.0

_Process = tuple[str, str, int]


class Chores(Actor):
    """Works off acts on many tasks and keeps the figures of each minute, while ``leads`` says yes.

    ``every``: seconds between two looks without a wake-up at least; those of more than a minute have fewer
    figures.
    """

    def __init__(
        self, store: Store, *, leads: Callable[[], bool], rng: random.Random, every: float = 0.0
    ) -> None:
        self._store = store
        self._leads = leads
        self._rng = rng
        self._poll = max(every, POLL)
        self._reading: tuple[float, Mapping[_Process, SchedulerTally]] | None = None
        """When the tallies of all processes were read last, and what they were."""

    async def run(self) -> None:
        """Do what there is, until cancelled."""
        wake, setbacks = asyncio.Event(), Setbacks("chores", None, self._rng)
        ends = [self._store.subscribe(topic, wake.set) for topic in ("bulk", "answers")]
        try:
            while True:
                rest = self._poll
                wake.clear()
                try:
                    rest = await self.once() if self._leads() else self._idle()
                    await setbacks.over()
                except StoreUnavailableError as away:
                    log.warning("the store is away; acts on many tasks wait: %s", away)
                    self._idle()
                except Exception as defect:  # noqa: BLE001 - the leader's other work must go on
                    rest = await setbacks.pause_after(defect)
                await event_within(wake, rest)
        finally:
            for end in ends:
                end()

    def _idle(self) -> float:
        self._reading = None
        return self._poll

    async def once(self) -> float:
        """Do what is due; return in how many seconds there may be more."""
        rests = [await self.minute()]
        for id_ in await self._store.oversight.open_bulk_acts(MOST_ACTS):
            sends = await self._store.oversight.advance_bulk(id_, AT_ONCE)
            if sends is not None:
                rests.append(0.0 if sends == AT_ONCE else ANSWERS_POLL)
        return min(rests)

    async def minute(self) -> float:
        """Write the figures of the minute that has ended; return in how many seconds to look again."""
        now = await self._store.now()
        if self._reading is not None and now // MINUTE == self._reading[0] // MINUTE:
            return self._until_next(now)
        nodes = await self._store.nodes.views()
        tallies = {_process(view): view.info.tally for view in nodes if view.info.tally is not None}
        if self._reading is not None:
            since, before = self._reading
            fresh = {_process(view) for view in nodes if view.started >= since}
            rates = [
                _less(tally, before.get(process, SchedulerTally() if process in fresh else tally))
                for process, tally in tallies.items()
            ]
            span = min(MINUTE, now - since)
            await self._store.oversight.add_minute(int((since + now) / 2 // MINUTE), span, _sum(rates))
        self._reading = now, tallies
        return self._until_next(now)

    def _until_next(self, now: float) -> float:
        return self._poll if self._poll > MINUTE else min(self._poll, MINUTE - now % MINUTE)


def _process(view: NodeView) -> _Process:
    """Return what a process keeps when it is registered again."""
    return view.info.name, view.info.host, view.info.pid


def _less(tally: SchedulerTally, before: SchedulerTally) -> SchedulerTally:
    """Return what was done since ``before``."""
    older = [*before.latencies, *[0] * (len(tally.latencies) - len(before.latencies))]
    return SchedulerTally(
        max(0, tally.processed - before.processed),
        max(0, tally.undone - before.undone),
        max(0, tally.errors - before.errors),
        max(0, tally.steps - before.steps),
        tuple(max(0, now - was) for now, was in zip(tally.latencies, older, strict=False)),
    )


def _sum(tallies: Iterable[SchedulerTally]) -> SchedulerTally:
    total = SchedulerTally()
    for each in tallies:
        longest = max(len(total.latencies), len(each.latencies))
        one, other = ([*t.latencies, *[0] * (longest - len(t.latencies))] for t in (total, each))
        total = SchedulerTally(
            total.processed + each.processed,
            total.undone + each.undone,
            total.errors + each.errors,
            total.steps + each.steps,
            tuple(a + b for a, b in zip(one, other, strict=True)),
        )
    return total
