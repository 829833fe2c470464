"""Lanes: so many tasks of a key go at a time, in order of submission, and each keeps its lanes until it has ended."""

import asyncio
from typing import Any

from makegood.model.decision import Decision
from makegood.model.lane import Lanes
from makegood.model.messages import Act, TaskMessage
from makegood.model.plan import Start
from makegood.store.protocol import Store
from makegood.store.records import Submission
from makegood.store.views import Filter
from makegood.transactions import Caller
from tests.conformance.builders import Hand, Memory, begin, done, draft, hand, to_state, unchanged
from tests.conformance.worlds import Counts, World


def laned(id_: int, *names: str, at_once: int = 1, when_taken: Any = "wait", **changes: Any) -> Submission:
    """Return a submission with lanes."""
    return draft(id_, lanes=Lanes(names, at_once, when_taken), **changes)


async def submit(store: Store, *drafts: Submission) -> None:
    """Submit one after another."""
    for each in drafts:
        await store.tasks.submit([each])


async def claim(scheduler: Hand, limit: int = 100, **options: Any) -> list[int]:
    """Claim what may go, until a claim says that there is no more."""
    tasks = await scheduler.claim(limit, queued=True, **options)
    while scheduler.committed.more_queued:
        tasks += await scheduler.claim(limit, queued=True, **options)
    return tasks


async def end(scheduler: Hand, *tasks: int, state: Any = "processed") -> None:
    """Commit the ends of tasks together."""
    await scheduler.commit(*(to_state(scheduler[n], state, done(scheduler[n], 0)) for n in tasks))


async def state_of(store: Store, task: int) -> str:
    """Return the state of a task."""
    (view,) = await store.tasks.find(Filter(ids=(task,)))
    return view.state


def look(memory: Memory) -> Decision:
    """Return a Decision that uses up the messages of a task that stays as it is."""
    decision = unchanged(memory)
    decision.seqs, decision.release = [m.seq for m in memory.messages], True
    return decision


async def test_tasks_of_a_lane_go_one_at_a_time_in_order_of_submission(store: Store) -> None:
    await submit(store, laned(3, "ada"), laned(1, "ada"), laned(2, "ada"), draft(9))
    assert [await state_of(store, n) for n in (3, 1, 2, 9)] == ["queued", "queued", "queued", "pending"]
    scheduler = await hand(store)
    assert sorted(await claim(scheduler)) == [3, 9]
    for ended, following in ((3, [1]), (1, [2]), (2, [])):
        assert await claim(scheduler) == [], "it is taken"
        await end(scheduler, ended)
        assert await claim(scheduler) == following
        assert await store.lanes.lanes_of(ended) == {"ada": "out"}
    assert await store.lanes.lanes_of(2) == {"ada": "out"}


async def test_tasks_of_one_submission_go_in_its_order(store: Store) -> None:
    await store.tasks.submit([laned(n, "ada", at_once=2) for n in (5, 4, 3, 2, 1)])
    scheduler = await hand(store)
    order: list[int] = []
    while tasks := await claim(scheduler):
        order += tasks
        await end(scheduler, *tasks)
    assert order == [5, 4, 3, 2, 1]


async def test_at_most_at_once_tasks_go(store: Store) -> None:
    await store.tasks.submit([laned(n, "ada", at_once=3) for n in range(1, 8)])
    scheduler = await hand(store)
    assert await claim(scheduler) == [1, 2, 3]
    await end(scheduler, 2)
    assert await claim(scheduler) == [4]
    await end(scheduler, 1, 3, 4)
    assert await claim(scheduler) == [5, 6, 7]


async def test_each_task_sees_its_own_at_once(store: Store) -> None:
    await submit(
        store,
        laned(1, "ada", at_once=5),
        laned(2, "ada", at_once=1),
        laned(3, "ada", at_once=3),
        laned(4, "ada", at_once=3),
    )
    scheduler = await hand(store)
    assert await claim(scheduler) == [1, 3], "one goes and one waits before 3; of 4 there are three"
    await end(scheduler, 1)
    assert await claim(scheduler) == [4]
    await end(scheduler, 3, 4)
    assert await claim(scheduler) == [2]


async def test_several_lanes_are_taken_all_or_none(store: Store) -> None:
    await submit(store, laned(1, "ada"), laned(2, "ada", "lea"), laned(3, "lea"), laned(4, "bob"))
    scheduler = await hand(store)
    assert await claim(scheduler) == [1, 4], "3 is behind 2, which takes no lane before it has both"
    assert await store.lanes.lanes_of(2) == {"ada": "waiting", "lea": "waiting"}
    await end(scheduler, 1)
    assert await claim(scheduler) == [2]
    await end(scheduler, 2)
    assert await claim(scheduler) == [3]


async def test_lanes_belong_to_their_app(store: Store) -> None:
    await submit(store, laned(1, "ada"), laned(2, "ada", app="bank"), laned(3, "ada", workflow="refund"))
    scheduler = await hand(store)
    assert await claim(scheduler) == [1, 2]


async def test_lanes_take_turns(store: Store, world: World) -> None:
    """What a lane lets go next comes behind what other lanes have let go, however many wait in it."""
    await submit(store, *(laned(n, "ada") for n in range(1, 5)), *(laned(n, "lea") for n in range(11, 13)))
    scheduler = await hand(store)
    assert await claim(scheduler) == [1, 11]
    order: list[int] = []
    tasks = [1, 11]
    while tasks:
        for task in tasks:
            await end(scheduler, task)
            await world.elapse(0.001)
        tasks = await scheduler.claim(1, queued=True)
        order += tasks
    assert order == [2, 12, 3, 4]


async def test_an_error_and_a_wait_keep_the_lane(store: Store) -> None:
    await submit(store, laned(1, "ada"), laned(2, "ada"))
    scheduler = await hand(store)
    await claim(scheduler)
    await end(scheduler, 1, state="error")
    assert await claim(scheduler) == []
    assert await store.lanes.lanes_of(1) == {"ada": "held"}
    (lane,) = await store.lanes.lanes()
    assert (lane.app, lane.name, lane.held, lane.waiting) == ("shop", "ada", 1, 1)
    assert [(place.task, place.state) for place in (*lane.holders, *lane.waiters)] == [
        (1, "error"),
        (2, "queued"),
    ]


async def test_an_operator_frees_the_lanes_of_a_task_in_error(store: Store) -> None:
    await submit(store, laned(1, "ada", "lea"), laned(2, "ada"), laned(3, "lea"))
    scheduler = await hand(store)
    await claim(scheduler)
    await end(scheduler, 1, state="error")
    await store.tasks.post(1, TaskMessage("release_lane", act=Act("a", "ann", "it takes days")))

    def free(memory: Memory) -> Decision:
        decision = look(memory)
        decision.frees_lanes = True
        return decision

    assert await scheduler.claim(5, free, at_rest=[1]) == [1]
    assert await store.lanes.lanes_of(1) == {"ada": "out", "lea": "out"}
    assert await claim(scheduler) == [2, 3]
    assert await scheduler.claim(5, lambda m: to_state(m, "queued", look_at(m)), at_rest=[1]) == []


def look_at(memory: Memory) -> Any:
    """Return what ``look`` returns, to be changed further."""
    return look(memory)


async def _requeued(store: Store, scheduler: Hand, task: int, goal: Any = "forward") -> None:
    """Let a task at rest be queued again, as an operator's command does."""
    await store.tasks.post(task, TaskMessage("resubmit", act=Act(f"again-{task}-{goal}")))
    assert await scheduler.claim(
        1, lambda m: to_state(m, "queued", look_at(m), goal=goal), at_rest=[task]
    ) == [task]


async def test_one_in_error_that_is_resubmitted_goes_at_once_with_what_it_kept(store: Store) -> None:
    await submit(store, laned(1, "ada"), laned(2, "ada"))
    scheduler = await hand(store)
    await claim(scheduler)
    await end(scheduler, 1, state="error")
    await _requeued(store, scheduler, 1)
    assert await store.lanes.lanes_of(1) == {"ada": "held"}
    assert await claim(scheduler) == [1]


async def test_one_that_ended_waits_again_behind_those_that_wait(store: Store) -> None:
    await submit(store, laned(1, "ada"), laned(2, "ada"), laned(3, "ada"))
    scheduler = await hand(store)
    assert await claim(scheduler) == [1]
    await end(scheduler, 1)
    assert await claim(scheduler) == [2]
    await _requeued(store, scheduler, 1, "undo")
    assert await claim(scheduler) == []
    await end(scheduler, 2)
    assert await claim(scheduler) == [3]
    await end(scheduler, 3, state="undone")
    assert await claim(scheduler, make=lambda m: to_state(m, "undoing", release=False)) == [1]
    assert await store.lanes.lanes_of(1) == {"ada": "held"}


async def test_a_queued_task_that_is_cancelled_lets_the_next_go(store: Store) -> None:
    """The one behind it waits for both before it."""
    await submit(store, laned(1, "ada"), laned(2, "ada", "lea"), laned(3, "lea"))
    scheduler = await hand(store)
    assert await claim(scheduler) == [1]
    await store.tasks.post(2, TaskMessage("cancel", act=Act("a")))
    assert (await store.tasks.inbox(scheduler.node, 10)).at_rest == [2]
    assert await scheduler.claim(5, lambda m: to_state(m, "undone", look_at(m)), at_rest=[2]) == [2]
    assert scheduler.seen[0].sleeps
    assert await claim(scheduler) == [3]


async def test_a_message_to_a_task_whose_lane_is_taken_does_not_begin_it(store: Store) -> None:
    await submit(store, laned(1, "ada"), laned(2, "ada"))
    scheduler = await hand(store)
    assert await claim(scheduler) == [1]
    await store.tasks.post(2, TaskMessage("extend", act=Act("a")))
    assert await scheduler.claim(5, look, at_rest=[2]) == [2]
    assert scheduler.seen[0].sleeps
    assert await state_of(store, 2) == "queued"
    await end(scheduler, 1)
    assert await claim(scheduler) == [2]


async def test_a_delayed_task_waits_in_its_lanes_from_its_start_on(store: Store, world: World) -> None:
    await submit(store, laned(1, "ada", start=Start(60.0)), laned(2, "ada"), laned(3, "ada"))
    assert await store.lanes.lanes_of(1) == {"ada": "out"}
    scheduler = await hand(store)
    assert await claim(scheduler) == [2]
    await world.elapse(61)
    assert await scheduler.claim(5, lambda m: to_state(m, "queued"), sleepers=True) == [1]
    assert await store.lanes.lanes_of(1) == {"ada": "waiting"}
    await end(scheduler, 2)
    assert await claim(scheduler) == [3]
    await end(scheduler, 3)
    assert await claim(scheduler) == [1]


async def test_a_start_that_has_passed_delays_nothing_but_the_first_look(store: Store) -> None:
    await submit(store, laned(1, "ada", start=Start(0.0)))
    assert await state_of(store, 1) == "sleeping"
    scheduler = await hand(store)
    assert await scheduler.claim(5, lambda m: to_state(m, "queued"), sleepers=True) == [1]
    assert await claim(scheduler) == [1]


async def test_one_that_does_not_wait_is_handed_to_the_rules_as_such(store: Store) -> None:
    await submit(store, laned(1, "ada"), laned(2, "ada", when_taken="refuse"), laned(3, "ada"))
    scheduler = await hand(store)

    def decide(memory: Memory) -> Decision:
        return begin(memory) if memory.id == 1 else to_state(memory, "undone")

    assert sorted(await scheduler.claim(5, decide, queued=True)) == [1, 2]
    assert {load.task.id: load.lane_taken for load in scheduler.seen} == {1: False, 2: True}
    await end(scheduler, 1)
    assert await claim(scheduler) == [3]


async def test_one_that_wants_its_lane_asks_those_before_it_to_cancel_once(store: Store) -> None:
    await submit(store, laned(1, "ada"), laned(2, "ada"), laned(3, "ada", when_taken="cancel"))
    scheduler = await hand(store)
    assert await claim(scheduler) == [1]
    inbox = await store.tasks.inbox(scheduler.node, 10)
    assert [(message.kind, message.act and message.act.who) for message in inbox.messages[1]] == [
        ("cancel", "lane")
    ]
    assert inbox.at_rest == [2]
    await scheduler.claim(5, lambda m: to_state(m, "undone", look_at(m)), at_rest=[2])
    await end(scheduler, 1, state="undone")
    assert await claim(scheduler) == [3]
    assert (await store.tasks.inbox(scheduler.node, 10)).at_rest == [1], "what it asked before"


async def test_an_obstacle_names_who_has_the_lane_or_is_next(store: Store) -> None:
    assert await store.lanes.obstacle("shop", ("ada",), 1) is None
    await submit(store, laned(1, "ada", "lea"), laned(2, "lea"))
    assert await store.lanes.obstacle("shop", ("ada",), 1) == (1, "ada")
    assert await store.lanes.obstacle("shop", ("bob", "lea"), 2) == (1, "lea")
    scheduler = await hand(store)
    await claim(scheduler)
    assert await store.lanes.obstacle("shop", ("lea",), 2) == (1, "lea")
    assert await store.lanes.obstacle("shop", ("lea",), 3) is None
    assert await store.lanes.obstacle("bank", ("lea",), 1) is None


async def test_a_task_that_cannot_be_read_gives_its_place_up(store: Store, world: World) -> None:
    await submit(store, laned(1, "ada"), laned(2, "ada"))
    async with world.raw() as raw:
        await raw.run("update {task} set static = ? where id = ?", b"{", 1)
    scheduler = await hand(store)
    await claim(scheduler)
    assert await state_of(store, 1) == "error"
    assert await claim(scheduler) == [2] or scheduler[2].task.state == "processing"


async def test_two_schedulers_share_lanes_and_none_has_two_tasks(store: Store, other: Store) -> None:
    await store.tasks.submit([laned(n, f"a-{n % 7}", f"b-{n % 5}") for n in range(1, 71)])
    hands = [await hand(store), await hand(other)]
    going: dict[int, set[str]] = {}
    order: list[int] = []
    for turn in range(400):
        scheduler = hands[turn % 2]
        claims = await asyncio.gather(
            scheduler.claim(5, queued=True), hands[1 - turn % 2].claim(5, queued=True)
        )
        for task in (*claims[0], *claims[1]):
            names = {f"a-{task % 7}", f"b-{task % 5}"}
            assert not any(names & others for others in going.values()), f"{task} beside {going}"
            going[task] = names
            order.append(task)
        ends = [(each, [n for n in each.tasks if n in going]) for each in hands]
        await asyncio.gather(*(end(each, *tasks) for each, tasks in ends if tasks))
        for _, tasks in ends:
            for task in tasks:
                del going[task]
        if len(order) == 70:
            break
    assert sorted(order) == list(range(1, 71))


async def test_submitted_in_a_transaction_they_wait_in_their_lanes(store: Store) -> None:
    async def work(caller: Caller) -> None:
        await store.tasks.join(
            caller, [laned(1, "ada"), laned(2, "ada", start=Start(60.0)), draft(3), laned(4, "ada", "lea")]
        )

    await store.transact(work, waits=False)
    assert [await state_of(store, n) for n in (1, 2, 3, 4)] == ["queued", "sleeping", "pending", "queued"]
    assert await store.lanes.lanes_of(2) == {"ada": "out"}
    scheduler = await hand(store)
    assert sorted(await claim(scheduler)) == [1, 3]
    await end(scheduler, 1)
    assert await claim(scheduler) == [4]


async def test_places_that_contradict_their_tasks_are_found(store: Store, world: World) -> None:
    await submit(store, laned(1, "ada"), laned(2, "ada"))
    scheduler = await hand(store)
    await claim(scheduler)
    await end(scheduler, 1)
    assert await store.admin.broken_rows(10) == []
    async with world.raw() as raw:
        await raw.run("update {task} set state = 'undone' where id = ?", 2)
    assert await store.admin.broken_rows(10) == [
        "task 0000000000002 is undone, and its place in the lane 'ada' is waiting: no other task gets that place"
    ]


async def test_many_lanes_are_claimed_and_left_in_few_statements(
    counting_store: Store, counts: Counts, world: World
) -> None:
    """Of the tasks that wait, those that are parked cost SQLite a statement for each lane, which is no round trip."""
    await counting_store.tasks.submit([laned(n, f"lane-{n % 100}") for n in range(1, 401)])
    scheduler = await hand(counting_store)
    most = 25
    await counts.reset()
    assert len(await scheduler.claim(500, queued=True)) == 100
    assert await counts.commits() == 1
    assert counts.statements <= most + (100 if world.dialect == "sqlite" else 0)
    await counts.reset()
    await end(scheduler, *list(scheduler.tasks))
    assert await counts.commits() == 1
    assert counts.statements <= most
    await counts.reset()
    assert len(await scheduler.claim(500, queued=True)) == 100
    assert counts.statements <= most


async def test_an_end_and_a_claim_take_as_many_statements_beside_thousands_of_tasks_that_wait(
    counting_store: Store, counts: Counts
) -> None:
    """The tasks that hold 50 lanes end, and the next ones are claimed, while 100 others wait, and while 5,000 do.

    On PostgreSQL a claim may look twice, from the floor and from the bottom, at those pending and at those in queues.
    """
    scheduler, first = await hand(counting_store), 1
    holders: list[int] = []
    costs: list[int] = []
    for count in (150, 4950):
        await counting_store.tasks.submit([laned(n, f"lane-{n % 50}") for n in range(first, first + count)])
        first += count
        holders += await scheduler.claim(10_000, queued=True)
        await counts.reset()
        await end(scheduler, *holders)
        assert await counts.commits() == 1
        costs.append(counts.statements)
        await counts.reset()
        holders = await scheduler.claim(50, queued=True)
        assert await counts.commits() == 1
        costs.append(counts.statements)
        assert len(holders) == 50
    assert costs[0] == costs[2]
    assert abs(costs[1] - costs[3]) <= 2


async def test_one_of_a_higher_priority_does_not_overtake_in_its_lane(store: Store) -> None:
    """The claim reads the queue by priority: the ones before it may not have been looked at by any claim."""
    await submit(
        store,
        laned(1, "ada", priority=0),
        laned(2, "ada", "lea", priority=3),
        laned(3, "ada", priority=9),
        laned(4, "lea", priority=9),
        laned(5, "bob", priority=9),
    )
    scheduler = await hand(store)
    order: list[int] = []
    for _ in range(20):
        tasks = await scheduler.claim(1, queued=True)
        order += tasks
        if not tasks and not scheduler.committed.more_queued:
            await end(scheduler, *(n for n in order if n in scheduler.tasks))
    assert sorted(order) == [1, 2, 3, 4, 5]
    assert order.index(1) < order.index(2) < order.index(3)
    assert order.index(2) < order.index(4)


async def test_one_that_a_scheduler_has_for_a_message_is_not_overtaken(store: Store) -> None:
    """Its Scheduler keeps it a moment longer, so that no claim finds it in the queue."""
    await submit(store, laned(1, "ada"), laned(2, "ada"))
    scheduler = await hand(store)
    await store.tasks.post(1, TaskMessage("extend", act=Act("a")))

    def keep(memory: Memory) -> Decision:
        decision = look(memory)
        decision.release = False
        return decision

    assert await scheduler.claim(5, keep, at_rest=[1]) == [1]
    assert await claim(scheduler) == []
    released = unchanged(scheduler[1])
    released.release = True
    await scheduler.commit(released)
    assert await claim(scheduler) == [1]
    await end(scheduler, 1)
    assert await claim(scheduler) == [2]
