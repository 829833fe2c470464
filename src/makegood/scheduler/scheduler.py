"""The Scheduler: puts the steps of tasks in order and records their state. No other actor advances a task.

(In the sense of the Scheduler-Agent-Supervisor pattern; it starts nothing at fixed times.) It never runs user
code and never imports any: the rules in ``saga`` decide over data alone.

One loop: take what has arrived (replies in memory, messages in the store, due timers, pending tasks), let the
rules decide it all, commit once, then dispatch. So "step n done" and "step n + 1 running" are one commit,
claim and first dispatch are one commit, and n sequential steps cost n + 1 commits, however many tasks share
each. No timer delays a lone task. A task has at most one uncommitted Decision; several messages for it are
folded.

A Decision may be *lost*: the task's lock has moved (a Supervisor held this process for dead), or a request
that its reply was about has been judged. Then nothing of it is written, and the task is read again: what was
committed first wins.

The parts, and what each changes::

    Wakeups ──wakes──► Scheduler: the loop
                         │ reads      StoreReader ─► TaskTable: what is held
                         │ asks       Turns, Claims: what to do next, and whether now
                         └ runs       Commits ─► store, TaskTable, slots

    Client ── submits ─► EagerSubmissions ─► store, TaskTable, slots
           └─ signals ─► EagerSignals, WakingSignal ─► TaskTable, Claims, Commits
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from itertools import chain

from makegood.actor.actor import Actor
from makegood.actor.setbacks import Setbacks
from makegood.actor.slot_pool import NoAgents, SlotPool, resend
from makegood.base.clock import Clock
from makegood.base.counts import quantity
from makegood.base.sizes import MIB
from makegood.errors import StoreUnavailableError
from makegood.model.messages import FreshMessage, TaskMessage
from makegood.model.shape import HeldTask
from makegood.scheduler.claims import Claims
from makegood.scheduler.commits import Commits
from makegood.scheduler.eager_signals import EagerSignals
from makegood.scheduler.eager_submission import EagerSubmissions
from makegood.scheduler.quiet_tasks import QuietTasks
from makegood.scheduler.store_reader import StoreReader
from makegood.scheduler.task_table import TaskTable
from makegood.scheduler.turns import Listeners, Turns
from makegood.scheduler.wakeups import Wakeups
from makegood.store.protocol import Store
from makegood.store.records import Submission, Submitted
from makegood.store.signals import OutgoingSignal, Signalled
from makegood.store.views import SchedulerTally
from makegood.telemetry.hooks import Watch

log = logging.getLogger("makegood.scheduler")

_IN_VAIN = 8
"""After this many failed turns in a row the process ends, so that others get the tasks that it holds."""

_LAST_COMMITS = 5.0  # seconds that a drain may last beyond its limit, to release the tasks that are left


class Scheduler(Actor):
    """Claims tasks, decides, commits, dispatches.

    ``agents``: those of the same process, if any, for handing over in memory. ``hold``: the most tasks in
    memory. ``memory``: bytes of tasks in memory above which nothing more is claimed; one task, and the
    replies to what is held, may exceed it. ``claim``: the most tasks claimed in one commit. ``linger``: a
    task that only waits, and for longer than these seconds, is let go. ``poll``: seconds between reads of the
    store when no wake-up arrives, None: never. ``on_end``: called for each task that came to rest here.
    ``watch``: notified of each commit.
    """

    def __init__(
        self,
        store: Store,
        agents: SlotPool | None,
        *,
        clock: Clock,
        rng: random.Random,
        hold: int = 10_000,
        memory: int = 256 * MIB,
        claim: int = 500,
        linger: float = 10.0,
        poll: float | None = 1.0,
        on_end: Callable[[HeldTask], None] = lambda _task: None,
        watch: Watch | None = None,
    ) -> None:
        self.wakeups = Wakeups(store, clock, rng, poll)
        self.tasks = tasks = TaskTable(clock, memory, self.wakeups, store.tasks.clock)
        claims = Claims(tasks, hold=hold, most=claim, linger=linger)
        self.turns = turns = Turns(tasks, claims, Listeners(on_end, watch), store.parallel_from)
        self._agents = agents = agents or NoAgents()
        self._reader = StoreReader(store.tasks, agents, turns)
        self._quiet = QuietTasks(claims, agents, hold)
        self.signals = signals = EagerSignals(claims)
        self._commits = Commits(store.tasks, store.oversight, agents, turns, signals)
        self._eager = EagerSubmissions(store.tasks, agents, claims)
        self._store = store
        self._clock = clock
        self._setbacks = Setbacks("scheduler", store.alerts, rng, most=_IN_VAIN)

    # -- what others of the same process use -----------------------------------------------------------------

    def submit(self, draft: Submission) -> Awaitable[Submitted]:
        """Submit a task for this Scheduler to hold from the beginning: see ``EagerSubmissions``."""
        return self._eager.submit(draft)

    async def signal(self, signal: OutgoingSignal) -> Signalled | None:
        """Send a signal with the Decision that uses it; None: the store has to send it. See
        ``EagerSignals``.
        """
        return await self.signals.send(signal, self._commits.writing.values())

    def count(self) -> int:
        """Return the number of tasks in memory."""
        return len(self.tasks.in_memory)

    def weight(self) -> int:
        """Return the bytes that the tasks in memory count, as ``weights`` says."""
        return self.tasks.weights.total

    def holds(self, task: int) -> bool:
        """Return whether this Scheduler holds a task, and so reports its end."""
        return task in self.tasks.in_memory

    def tally(self) -> SchedulerTally:
        """Return what it has done since the process started."""
        return self._commits.tallies.total()

    def idle(self) -> bool:
        """Return whether no task is held, and no commit or submission under way can bring one."""
        return not self.tasks.in_memory and not self._commits.writing and len(self._eager) == 0

    def rename(self, node: int) -> None:
        """Restart as ``node``: this process was declared dead, so the tasks it held belong to others now."""
        tasks = self.tasks
        if tasks.node:
            log.warning(
                "declared dead as node %d: releasing %d tasks, continuing as node %d", tasks.node, len(tasks.in_memory), node,
            )  # fmt: skip
        resend(self._agents, tasks.node, tasks.messages)
        tasks.rename(node)
        self.wakeups.look_again()
        self.wakeups.wake()

    # -- life ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Advance tasks until cancelled; call ``drain`` first for an orderly end."""
        self.wakeups.open()
        end_receiving = self._store.receive(self._take)
        self._eager.open()
        self.signals.open()
        try:
            while True:
                try:
                    if not await self._turn():
                        due = (self.tasks.timers.first, self.turns.claims.next_start, self._quiet.next_look)
                        await self.wakeups.rest(min([at for at in due if at is not None], default=None))
                    self.wakeups.pauses.reset()
                    if self._setbacks.count and self.turns.doubts.fine:
                        await self._setbacks.over()
                except StoreUnavailableError as away:
                    self.signals.leave(self.turns.under_way.values(), waiting=True)
                    log.warning(
                        "the store is away, with %s in memory: %s", quantity(self.count(), "task"), away
                    )
                    await asyncio.sleep(self.wakeups.pauses.draw())
                    self.wakeups.look_again()
                except Exception as defect:  # noqa: BLE001 - of one row, or of all: see ``Doubts``
                    self.signals.leave(self.turns.under_way.values(), waiting=True)
                    self.turns.listeners.defect(defect)
                    await asyncio.sleep(await self._setbacks.pause_after(defect))
                    self.wakeups.look_again()
        finally:
            self.turns.claims.open = False
            end_receiving()
            self.wakeups.close()
            await self.turns.stop()
            self.signals.close()
            await self._eager.close()

    async def drain(self, limit: float) -> None:
        """Claim nothing more and release tasks.

        Tasks without a running attempt in this process, and without a commit that may begin one, are released
        at once; the others when their attempt has been answered, or after ``limit`` seconds.
        """
        self.turns.claims.open = False
        end = self._clock.monotonic() + limit
        tasks = self.tasks
        while not self.idle() and (now := self._clock.monotonic()) < end + _LAST_COMMITS:
            busy = self._agents.tasks() if now < end else frozenset()
            tasks_in_writing = set().union(*self._commits.writing.values())
            for task in tasks.in_memory:
                if task not in busy and task not in tasks_in_writing and not tasks.messages.get(task):
                    tasks.hear(task, TaskMessage("dead"))
            await asyncio.sleep(0.02)

    def _take(self, fresh: FreshMessage) -> bool:
        """Take a message that need not be read, as it came from this process; False: it must be read.

        Between its commit and this call, its task may have been claimed, and its inbox read. A message that
        was read then waits in memory, is being decided, or was used.
        """
        task, tasks, claims, writing = fresh.task, self.tasks, self.turns.claims, self._commits.writing
        if fresh.node is None:
            if writing or task in tasks.in_memory or claims.is_stocked or not claims.open:
                return False
            claims.call([task])
            self.wakeups.wake()
            return True
        if task in tasks.messages or task in tasks.reload or fresh.message.seq <= self.turns.last_used:
            return False
        if any(task in inbox for inbox in writing.values()):
            return False
        return tasks.deliver(task, fresh.message, fresh.node)

    async def _turn(self) -> bool:
        """Run one turn: read, take, decide, commit, dispatch. Returns whether there was anything to do."""
        wakeups, tasks, turns = self.wakeups, self.tasks, self.turns
        wakeups.event.clear()
        if turns.doubts.unfit:
            await self._reader.put_to_error()
        if wakeups.polls:
            tasks.review()
        turns.reap()
        now = self._clock.monotonic()
        turns.claims.fire(now)
        self._quiet.look(now, chain(self._commits.writing.values(), turns.under_way.values()))
        if wakeups.inbox and turns.state != "full":
            await self._reader.read_inbox()
        if not turns.may_begin():
            await wakeups.event.wait()
            return True
        if wakeups.pending and turns.claims.open:
            await self._agents.catch_up()
        tasks.fire()
        if tasks.reload:
            await self._reader.read_again()
        if self.signals.drafts:
            self.signals.leave(turns.under_way.values())
        following = turns.next()
        if following is None:
            if self.signals.waking.draft is not None:
                self.signals.waking.leave()
            return False
        working = self._commits.carry_out(following.messages, following.claim)
        if following.is_parallel:
            turns.begin(working, following.messages)
        else:
            await working
        return True
