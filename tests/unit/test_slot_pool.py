"""What a Scheduler sets aside of its agents' slots for one commit is used once, or there again."""

from collections.abc import Sequence

import pytest

from makegood.actor.slot_pool import NoAgents, Reservation
from makegood.model.decision import Decision
from makegood.model.messages import Request
from makegood.model.task import TaskRecord
from tests.unit.slot_pools import Pool

BANK, DESK = "shop/bank", "shop/desk"


def request(idx: int, agent: str = "bank", *, isolate: bool = False) -> Request:
    """Return a request to an agent of the shop."""
    return Request(7, idx, "do", 1, "shop", agent, "charge", f"s{idx}", 1, 30.0, b"{}", isolate=isolate)


def placed(slots: Reservation, *requests: Request) -> list[Request]:
    """Return what gets one of the slots that are set aside, in one Decision."""
    decision = decided(requests)
    slots.place([decision])
    return [*decision.handovers]


def decided(requests: Sequence[Request], handovers: Sequence[Request] = ()) -> Decision:
    """Return a Decision that begins requests, some of them handed over in memory."""
    task = TaskRecord(7, "shop", "order")
    return Decision(task, task, requests=requests, handovers=handovers)


def fails(*, took: bool) -> None:
    """Stand in for a commit that is not answered."""
    raise ZeroDivisionError(took)


def test_what_runs_keeps_its_slot_and_the_rest_goes_back_on_every_way_out() -> None:
    pool = Pool({BANK: 2, DESK: 1})
    success, loss = request(0), request(1, "desk")
    with pool.reserve(7.0) as slots:
        assert slots.take([success])
        assert slots.take([loss])
        assert pool.free == {BANK: 1, DESK: 0}
        slots.run([decided([success], [success])])
    assert (pool.handed, pool.queued, pool.free) == ([success], [], {BANK: 1, DESK: 1})
    with pytest.raises(ZeroDivisionError), pool.reserve(7.0) as slots:
        fails(took=bool(slots.take([request(2)])))
    assert pool.free == {BANK: 1, DESK: 1}


@pytest.mark.parametrize("aside", [False, True])
@pytest.mark.parametrize(
    "other",
    [request(1), request(1, "ship"), request(1, "desk", isolate=True)],
    ids=["no slot left", "another process", "isolated"],
)
def test_what_cannot_be_handed_over_waits_in_the_store_and_takes_no_slot(
    other: Request, *, aside: bool
) -> None:
    pool, first = Pool({BANK: 1, DESK: 3}), request(0)
    with pool.reserve(7.0) as slots:
        if aside:
            slots.set_aside()
        places = placed(slots, first, other) if aside else slots.take([first, other])
        assert places == [first]
        slots.run([decided([first, other], places)])
    assert (pool.handed, pool.queued) == ([first], [f"shop/{other.agent}"])
    assert pool.free == {BANK: 0, DESK: 3}


def test_what_is_set_aside_is_nobody_elses_until_it_is_given_back() -> None:
    """A claim is decided in the store's thread, where the agents must not be asked."""
    pool = Pool({BANK: 3})
    with pool.reserve(7.0) as slots:
        assert slots.take([request(0)])
        slots.set_aside()
        assert pool.free == {BANK: 0}
        pool.free[BANK] += 1  # a call has ended meanwhile
        assert [bool(placed(slots, request(n))) for n in (1, 2, 3)] == [True, True, False]
    assert pool.free == {BANK: 4}


def test_what_is_set_aside_and_not_promised_can_be_given_back_early() -> None:
    pool = Pool({BANK: 3})
    with pool.reserve(7.0) as slots:
        slots.set_aside()
        (spare,) = placed(slots, request(0))
        slots.give_back_spare()
        assert pool.free == {BANK: 2}
        slots.run([decided([spare], [spare])])
    assert (pool.handed, pool.free) == ([spare], {BANK: 2})


def test_a_claim_that_the_store_tries_again_promises_its_slots_once() -> None:
    """What was decided before it keeps its own."""
    pool = Pool({BANK: 3})
    with pool.reserve(7.0) as slots:
        first = request(0)
        assert slots.take([first])
        slots.set_aside()
        for _ in range(3):
            slots.rollback()
            assert [bool(placed(slots, request(n))) for n in (1, 2, 3)] == [True, True, False]
        second = request(1)
        slots.run([decided([first], [first])])
        slots.run([decided([second], [second])])
    assert (pool.handed, pool.free) == ([first, second], {BANK: 1})


def test_what_is_released_before_it_is_written_is_free_at_once() -> None:
    pool = Pool({BANK: 2})
    with pool.reserve(7.0) as slots:
        (spare,) = slots.take([request(0)])
        slots.release(slots.take([request(1), request(2)]))
        assert pool.free == {BANK: 1}
        slots.run([decided([spare], [])])
    assert pool.free == {BANK: 2}


@pytest.mark.parametrize("aside", [False, True])
def test_a_process_without_agents_has_no_slot(*, aside: bool) -> None:
    pool = NoAgents()
    with pool.reserve(7.0) as slots:
        if aside:
            slots.set_aside()
        assert not (placed(slots, request(0)) if aside else slots.take([request(0)]))
        slots.run([decided([request(0)], [])])
    assert not pool.tasks()
    assert not pool.actions
