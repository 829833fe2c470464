"""Eager submission: what is written with a task, whose slots are set aside for it, and what becomes of them."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import cast

import pytest

from makegood.actor.slot_pool import NoAgents, SlotPool
from makegood.base.clock import SystemClock
from makegood.errors import PayloadError, StoreUnavailableError
from makegood.model.messages import TaskMessage
from makegood.model.plan import StepPlan, Template
from makegood.model.shape import Shape
from makegood.scheduler.claims import Claims
from makegood.scheduler.eager_submission import EagerSubmissions
from makegood.scheduler.task_table import TaskTable
from makegood.scheduler.wakeups import Wakeups
from makegood.store.protocol import Tasks
from makegood.store.records import Submission, Submitted
from tests.unit.saga_case import action
from tests.unit.slot_pools import Pool

MINE = 7
BANK = "shop/bank"


class Store:
    """Writes what it is given once it may, and answers as it is told."""

    def __init__(self) -> None:
        self.written: list[list[Submission]] = []
        self.go = asyncio.Event()
        self.go.set()
        self.answer: Callable[[Submission], Submitted] = lambda draft: Submitted(draft.id, is_new=True)

    def clock(self) -> float:
        """Return the store's time."""
        return 1_800_000_000.0

    calendar = clock

    async def submit(self, drafts: Sequence[Submission]) -> list[Submitted]:
        """Write submissions."""
        self.written.append([*drafts])
        await self.go.wait()
        return [self.answer(draft) for draft in drafts]

    def subscribe(self, _topic: str, _ring: Callable[[], None]) -> Callable[[], None]:
        """Ring for nothing."""
        return lambda: None


class Shop:
    """A Scheduler's memory, and its door for those who submit beside it."""

    def __init__(self, agents: SlotPool, *, hold: int = 10) -> None:
        clock = SystemClock()
        self.store = Store()
        self.wakeups = Wakeups(self.store, clock, random.Random(1), None)
        self.wakeups.pending = False
        self.tasks = TaskTable(clock, 2**20, self.wakeups)
        self.tasks.node = MINE
        self.claims = Claims(self.tasks, hold=hold, most=5)
        self.eager = EagerSubmissions(cast("Tasks", self.store), agents, self.claims)
        self.eager.open()

    async def submit(self, *plans: StepPlan, number: int = 1) -> Submission:
        """Submit a task of these steps; returns what was written."""
        await self.eager.submit(draft(*plans, number=number))
        return next(d for drafts in self.store.written for d in drafts if d.id == number)

    def nothing_left(self) -> bool:
        """Return whether nothing is under way, nor counted."""
        return len(self.eager) == 0 and self.tasks.weights.total == 0 and not self.tasks.in_memory


def draft(*plans: StepPlan, number: int = 1) -> Submission:
    """Return a submission of these steps."""
    return Submission(number, "shop", "order", Shape(plans), (b"1",), Template(("null",)), b"print")


def address(plan: StepPlan) -> str:
    """Return where a step's requests go."""
    return f"shop/{plan.agent}"


async def test_first_steps_go_with_the_task_and_into_the_slots_set_aside() -> None:
    plans = (action(0), action(1), action(2, 0, 1))
    pool = Pool({address(plans[0]): 3})
    shop = Shop(pool)
    submission = await shop.submit(*plans)
    assert submission.holder == MINE
    assert submission.first is not None
    assert [r.idx for r in submission.first.handovers] == [0, 1]
    assert [s.state for s in shop.tasks.in_memory[1].steps] == ["running", "running", "waiting"]
    assert [r.idx for r in pool.handed] == [0, 1]
    assert pool.free == {address(plans[0]): 1}
    assert (len(shop.eager), shop.tasks.messages) == (0, {})


@pytest.mark.parametrize(
    "answer",
    [
        Submitted(5, is_new=False),
        Submitted(5, is_new=False, conflict=True),
        Submitted(1, is_new=False, key_collision=True),
        PayloadError("no Unicode"),
        StoreUnavailableError("away"),
    ],
    ids=["there already", "another's key", "another's id", "refused", "away"],
)
async def test_a_task_that_was_not_created_leaves_nothing_behind(answer: Submitted | Exception) -> None:
    pool = Pool({address(action(0)): 1})
    shop = Shop(pool)

    def answered(_draft: Submission) -> Submitted:
        if isinstance(answer, Exception):
            raise answer
        return answer

    shop.store.answer = answered
    if isinstance(answer, Exception):
        with pytest.raises(type(answer)):
            await shop.submit(action(0))
    else:
        assert await shop.eager.submit(draft(action(0))) == answer
    assert pool.free == {address(action(0)): 1}
    assert pool.handed == []
    assert shop.nothing_left()


async def test_a_caller_that_is_cancelled_leaves_its_task_to_the_scheduler() -> None:
    """Before it is written, and while it is."""
    for waits in (0, 2):
        pool = Pool({address(action(0)): 1})
        shop = Shop(pool)
        shop.store.go.clear()
        call = asyncio.create_task(shop.submit(action(0)))
        await asyncio.sleep(0)
        for _ in range(waits):
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        shop.store.go.set()
        await shop.eager.close()
        assert [*shop.tasks.in_memory] == [1]
        assert [r.task for r in pool.handed] == [1]


async def test_of_those_that_are_written_together_only_the_one_that_is_refused_fails() -> None:
    shop = Shop(NoAgents())

    def answered(one: Submission) -> Submitted:
        if one.id == 2:
            raise PayloadError("no Unicode")
        return Submitted(one.id, is_new=True)

    shop.store.answer = answered
    calls = [shop.eager.submit(draft(action(0), number=n)) for n in (1, 2, 3)]
    first, refusal, last = await asyncio.gather(*calls, return_exceptions=True)
    assert (first, last) == (Submitted(1, is_new=True), Submitted(3, is_new=True))
    assert isinstance(refusal, PayloadError)
    assert [*shop.tasks.in_memory] == [1, 3]
    assert [len(drafts) for drafts in shop.store.written] == [3, 1, 1, 1]


async def test_without_a_slot_for_every_first_step_none_is_sent() -> None:
    """They wait their turn: behind what waits already, in order of priority."""
    pool = Pool({address(action(0)): 1})
    shop = Shop(pool)
    submission = await shop.submit(action(0), action(1))
    assert (submission.holder, submission.first) == (MINE, None)
    assert pool.free == {address(action(0)): 1}
    assert shop.tasks.messages == {1: [TaskMessage("claim")]}
    assert shop.wakeups.event.is_set()


@pytest.mark.parametrize("pool", [Pool(), NoAgents()], ids=["other agents", "none"])
async def test_agents_elsewhere_find_the_first_requests_in_the_store(pool: SlotPool) -> None:
    submission = await Shop(pool).submit(action(0))
    assert submission.first is not None
    assert not submission.first.handovers
    if isinstance(pool, Pool):
        assert (pool.handed, pool.queued) == ([], [address(action(0))])


async def test_what_was_written_under_a_number_that_is_declared_dead_is_not_held() -> None:
    """It is freed with all that the old node held."""
    pool = Pool({address(action(0)): 1})
    shop = Shop(pool)
    shop.store.go.clear()
    call = asyncio.create_task(shop.submit(action(0)))
    await asyncio.sleep(0)
    shop.tasks.rename(MINE + 1)
    shop.store.go.set()
    assert (await call).holder == MINE
    assert (pool.free, pool.handed) == ({address(action(0)): 1}, [])
    assert shop.nothing_left()


@pytest.mark.parametrize("why", ["full", "stops", "others wait"])
async def test_where_it_cannot_be_held_anybody_may_claim_it(why: str) -> None:
    shop = Shop(NoAgents(), hold=0 if why == "full" else 10)
    shop.claims.open = why != "stops"
    shop.wakeups.pending = why == "others wait"
    submission = await shop.submit(action(0))
    assert (submission.holder, submission.first) == (None, None)
    assert shop.nothing_left()
