"""The Supervisor: finds what is overdue or left behind, counts the failure, and asks for the remedy.

(In the sense of the Scheduler-Agent-Supervisor pattern: it does not restart processes; systemd or Kubernetes
does.) It knows nothing of the business and decides nothing about a task: it *judges* silence and leaves
``expired`` in the task's inbox; the Scheduler's rules choose between retry, wait, undo and hold.

Many instances may run; the one that holds the lease acts. Every write that judges, frees or expires carries
the epoch of its term beside the compare-and-set on the row itself. Both are needed: the term keeps two
leaders from judging one silence twice, the compare-and-set keeps a judgement from an attempt that an operator
or a reply has overtaken in between.

After a new term began, or the store was away, nothing is judged for a full interval: agents and Schedulers
that were cut off as well must have had the time to come back. That the store was away shows in an error, or
in a gap between the writes of this process (``actor.store_contact``). Only the dead do not come back: what
those had whose rows are marked (``deaths``) is judged and freed at once.
"""

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from makegood.actor.actor import Actor
from makegood.actor.setbacks import Setbacks
from makegood.actor.store_contact import StoreContact
from makegood.base.clock import Clock
from makegood.base.counts import quantity
from makegood.base.pacing import event_within
from makegood.election import Election, Term
from makegood.errors import FencedOffError, StoreUnavailableError
from makegood.options import Options
from makegood.store.oversight_records import Refusal, SupervisorDecision, SupervisorDecisionKind
from makegood.store.protocol import Store
from makegood.store.records import Judged
from makegood.store.step_down import LEADER

log = logging.getLogger("makegood.supervisor")

LEASE = LEADER
"""The lease that the leading Supervisor of a store holds."""

UNRESPONSIVE_INTERVALS = 2
"""A Scheduler that leaves ``expired`` unanswered for this many intervals loses the task's lock."""


@dataclass(slots=True)
class Pass:
    """What one pass did: counts, by kind."""

    judged: int = 0
    """Attempts whose silence was judged."""
    released: int = 0
    """Tasks of dead Schedulers that were freed."""
    deaf: int = 0
    """Tasks of unresponsive Schedulers that were freed."""
    expired: int = 0
    """Tasks past their deadline."""
    starved: int = 0
    """Requests found that no agent took in time."""
    full: bool = False
    """More may be left than one pass does."""
    tasks: list[int] = field(default_factory=list)
    """The freed tasks of dead Schedulers."""

    @property
    def done(self) -> int:
        """How much it did in all."""
        return self.judged + self.released + self.deaf + self.expired + self.starved


class Supervisor(Actor):
    """One instance.

    ``every``: seconds between passes at most. ``ttl``: the lease's length. ``limit``: rows a statement at
    most. ``contact``: of its process with the store, None if the process has no heartbeat.
    """

    def __init__(
        self,
        store: Store,
        options: Options,
        *,
        me: str,
        clock: Clock,
        rng: random.Random,
        limit: int = 500,
        contact: StoreContact | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self._every = options.number("supervise_every")
        self._options = options
        self._limit = limit
        self._contact = contact or StoreContact(clock, 2 * self._every)  # it writes once in an interval
        self._election = Election(LEASE, store.leases, me=me, ttl=options.lease, clock=clock, rng=rng)
        self.leading: Term | None = None
        self.leads = asyncio.Event()
        """Set while there is a term."""
        self._death = asyncio.Event()

    async def run(self) -> None:
        """Contend for the lease, and supervise in each term, until cancelled.

        A lease whose row cannot be read or written stops nobody: it is tried again, with an alert.
        """
        terms, setbacks = self._election.terms(), Setbacks("supervisor", self._store.alerts, self._rng)
        while True:
            try:
                term = await anext(terms)
            except StopAsyncIteration:
                return
            except Exception as defect:  # noqa: BLE001 - the role continues
                await asyncio.sleep(await setbacks.pause_after(defect))
                terms = self._election.terms()
                continue
            async with term:
                self.leading = term
                self.leads.set()
                try:
                    if setbacks.count:
                        await setbacks.over()
                    await self.lead(term)
                except FencedOffError as over:
                    log.warning("the store refused a write: %s", over)
                    await self._report(term, over)
                finally:
                    self.leading = None
                    self.leads.clear()

    def hurry(self) -> None:
        """Processes are marked as dead: make a pass now, or try to lead, as the leader may be one of them."""
        self._death.set()
        self._election.hurry()

    async def _report(self, term: Term, over: FencedOffError) -> None:
        """Record for operators that the store refused a write of a term that was over."""
        try:
            now = await self._store.leases.read(LEASE)
            holds = None if now is None else now.epoch
            refusal = Refusal("term", str(over), term.grant.holder, epoch=term.epoch, against=holds)
            await self._store.oversight.refused([refusal])
        except StoreUnavailableError as away:
            log.info("the store is away, so a refused write is not recorded: %s", away)

    async def single(
        self, wait: float, beside: Callable[[Term], Awaitable[object]] | None = None
    ) -> Pass | None:
        """Take the lease, watch for one interval, make one pass, and release the lease: for cron.

        ``beside``: what else to do once in the term.

        Returns None when another Supervisor still leads after ``wait`` seconds, or the term ends too soon.
        """
        async with aclosing(self._election.terms()) as terms:
            try:
                async with asyncio.timeout(wait):
                    term = await anext(terms)
            except TimeoutError:
                return None
            passes: list[Pass] = []
            async with term:
                passes = await self.lead(term, passes=1)
                if beside is not None:
                    await beside(term)
        return passes[0] if passes else None

    async def lead(self, term: Term, passes: int | None = None) -> list[Pass]:
        """Supervise within a term: first a full interval of watching, then pass after pass.

        ``passes``: how many passes at most.
        """
        latest: list[Pass] = []
        has_looked, marks, watch_end = False, False, math.inf
        setbacks = Setbacks("supervisor", self._store.alerts, self._rng)
        self._contact.take_gap()  # one before the term means nothing: every term begins with an interval
        while passes is None or len(latest) < passes:
            rest = self._every
            self._death.clear()
            try:
                if await self._was_cut_off(term):
                    marks, watch_end = False, math.inf
                one = await self.once(term, marks=marks)
                while not marks and one.full and one.done:
                    one = await self.once(term, marks=False)
                if marks:
                    latest = [*latest[-99:], one]
                    rest = await self._rest(one)
                has_looked = True
                if setbacks.count:
                    await setbacks.over()
            except FencedOffError:
                raise
            except StoreUnavailableError as away:
                log.warning("the store is away; judging again a full interval after it is back: %s", away)
                has_looked, marks, watch_end = False, False, math.inf
            except Exception as defect:
                if passes is not None:
                    raise
                await asyncio.sleep(await setbacks.pause_after(defect))
            if passes is None:
                await self._step_down_if_asked(term)
            if passes is None or len(latest) < passes:
                rest *= self._rng.uniform(0.9, 1.1)
                if has_looked and not marks:  # a death does not shorten the first interval
                    watch_end = min(watch_end, self._clock.monotonic() + rest)
                    rest = max(0.0, watch_end - self._clock.monotonic())
                is_woken = await event_within(self._death, rest)
                is_over = not is_woken or self._clock.monotonic() >= watch_end
                marks = has_looked and (marks or is_over)
        return latest

    async def _step_down_if_asked(self, term: Term) -> None:
        """Step down if an operator asked for it, and rest, so that another instance leads.

        If asked, this does not return.
        """
        try:
            request = await self._store.oversight.asked_to_step_down(LEASE, term.epoch)
        except StoreUnavailableError:
            return
        if request:
            log.warning("an operator asked the leader of term %d to step down", term.epoch)
            await self._election.step_down()

    async def _rest(self, last: Pass) -> float:
        """Return in how many seconds to make another pass.

        At once if one pass could not do all: the tasks of a dead Scheduler wait for nothing else. Rows that
        are due but cannot be handled do not cause an immediate pass.
        """
        least = self._every / 20
        if last.full:
            return 0.0 if last.done else least
        grace = self._options.number("late_after")
        return max(least, await self._store.supervision.horizon(grace, self._every))

    async def _was_cut_off(self, term: Term) -> bool:
        """Write to the store; return whether there was a gap between the writes of this process since the
        last pass, so that heartbeats and replies of others may have been held up too.
        """
        if not await self._store.leases.renew(term.grant):
            raise FencedOffError(
                f"the term {term.epoch} of {term.grant.holder} is over: its lease could not be renewed",
                epoch=term.epoch,
            )
        self._contact.note()
        gap = self._contact.take_gap()
        if gap:
            log.warning("the store could not be written to for %.1f s; judging after a full interval", gap)
        return gap > 0

    async def once(self, term: Term, *, marks: bool = True) -> Pass:
        """Make one bounded pass. Raises ``FencedOffError`` when the term is over in the store.

        ``marks``: False before a full interval was watched: it deals only with processes that are marked.
        """
        store, grant, limit = self._store.supervision, term.grant, self._limit
        grace = self._options.number("late_after")
        outcome, silent_tasks = Pass(), list[int]()
        if marks:
            await self._judge(store.judge(grant, grace, limit), outcome, silent_tasks)
        outcome.tasks += await self._count_swept(store.release_dead(grant, limit, marks=marks), outcome)
        outcome.released = len(outcome.tasks)
        # After these were freed: that a task was running there may be why its Scheduler died.
        await self._judge(store.judge_dead(grant, grace, limit), outcome, silent_tasks)
        decisions: dict[SupervisorDecisionKind, Sequence[int]] = {
            "judged": silent_tasks, "freed": outcome.tasks,
        }  # fmt: skip
        if marks:
            decisions |= await self._look_further(term, outcome)
        if outcome.done:
            log.info(
                "judged %s, freed %s of dead and %d of unresponsive Schedulers, %s past the deadline, %d starved",
                quantity(outcome.judged, "attempt"), quantity(outcome.released, "task"), outcome.deaf,
                quantity(outcome.expired, "task"), outcome.starved,
            )  # fmt: skip
        await self._record(
            [SupervisorDecision(kind, len(ids), ids[0], term.epoch) for kind, ids in decisions.items() if ids]
        )
        return outcome

    async def _judge(self, act: Awaitable[Judged], outcome: Pass, tasks: list[int]) -> None:
        verdicts = await act
        outcome.judged += len(verdicts.requests)
        outcome.full = outcome.full or verdicts.full
        tasks += [task for task, *_ in verdicts.requests]

    async def _look_further(
        self, term: Term, outcome: Pass
    ) -> Mapping[SupervisorDecisionKind, Sequence[int]]:
        """Look for what has other reasons than a dead process; return the tasks of what was decided."""
        grant, limit, options = term.grant, self._limit, self._options
        unresponsive = await self._count_swept(
            self._store.supervision.release_unresponsive(grant, UNRESPONSIVE_INTERVALS * self._every, limit),
            outcome,
        )
        outcome.deaf = len(unresponsive)
        late_tasks = await self._count_swept(self._store.supervision.expire_tasks(grant, limit), outcome)
        outcome.expired = len(late_tasks)
        outcome.starved = len(
            await self._count_swept(
                self._store.supervision.alert_starved(
                    grant, options.number("starved_after"), limit, options.number("outage_after")
                ),
                outcome,
            )
        )
        return {"deaf": unresponsive, "turned": late_tasks}

    async def _record(self, decisions: Sequence[SupervisorDecision]) -> None:
        """Record for people what a pass did; the pass is done, whether they hear of it or not."""
        if decisions:
            try:
                await self._store.oversight.decided(decisions)
            except StoreUnavailableError as away:
                log.info("the store is away, so what a pass did is not recorded: %s", away)

    async def _count_swept(self, act: Awaitable[list[int]], outcome: Pass) -> list[int]:
        tasks = await act
        outcome.full = outcome.full or len(tasks) >= self._limit
        return tasks
