"""What a Scheduler sets aside of its agents' slots for one commit is used once, or there again."""

import pytest

from makegood.model.decision import Decision
from makegood.model.messages import Request
from makegood.model.task import Task
from makegood.scheduler.turn import Turn
from makegood.store.records import Batch

TASK = Task(7, "shop", "order")


def request(idx: int, agent: str = "bank", *, isolate: bool = False) -> Request:
    """Return a request to an agent of the shop."""
    return Request(7, idx, "do", 1, "shop", agent, "charge", f"s{idx}", 1, 30.0, b"{}", isolate=isolate)


def knows(address: str, _action: str) -> bool:
    """All agents but the ship run here."""
    return address != "shop/ship"


def turn(**budget: int) -> Turn:
    """Return a turn with so many slots of the shop's agents."""
    return Turn(Batch(1), {f"shop/{agent}": n for agent, n in budget.items()}, 0.0)


def test_all_that_a_decision_asks_for_is_handed_over_if_there_are_slots_for_all() -> None:
    made, decision = turn(bank=2, desk=1), Decision(TASK, TASK, requests=[request(0), request(1, "desk")])
    made.place(decision, knows)
    assert decision.handed
    assert made.placed(decision) == decision.requests
    assert (made.budget, made.batch.local) == ({"shop/bank": 1, "shop/desk": 0}, set())


@pytest.mark.parametrize(
    ("other", "budget"),
    [
        (request(1), {"shop/bank": 0}),
        (request(1, "desk"), {"shop/bank": 0}),
        (request(1, "ship"), {"shop/bank": 0, "shop/ship": 3}),
        (request(1, "desk", isolate=True), {"shop/bank": 0, "shop/desk": 3}),
    ],
    ids=["no slot left", "no slots at all", "another process", "isolated"],
)
def test_what_cannot_be_handed_over_waits_in_the_store_and_takes_no_slot(
    other: Request, budget: dict[str, int]
) -> None:
    made, decision = turn(bank=1), Decision(TASK, TASK, requests=[request(0), other])
    made.budget = {**budget, "shop/bank": 1}
    made.place(decision, knows)
    assert not decision.handed
    assert made.placed(decision) == [request(0)]
    assert (made.budget, made.batch.local) == (budget, {(7, 0, 1)})


def test_nothing_placed_is_nothing_handed_over() -> None:
    made, decision = turn(), Decision(TASK, TASK, requests=[request(0)])
    made.place(decision, knows)
    assert not decision.handed
    assert not made.placed(decision)


def test_what_was_decided_before_a_task_is_claimed_anew_gives_back_its_own_slots_only() -> None:
    """Of two Decisions on one task in one commit the older is lost; both ask for the same, and slots were left for one request."""
    made = turn(bank=1)
    stale, fresh = (Decision(TASK, TASK, requests=[request(0), request(1)]) for _ in range(2))
    made.place(stale, knows)
    for _ in range(2):
        made.forget(7)
        made.place(fresh, knows)
        made.claimed[7] = fresh
        assert made.batch.local == set()
    assert (made.placed(stale), made.placed(fresh), made.budget) == ([request(0)], (), {"shop/bank": 0})


@pytest.mark.parametrize("second", ["bank", "ship"])
def test_a_task_that_is_claimed_again_as_the_store_tries_again_takes_its_slots_once(second: str) -> None:
    """Whole or in part, whatever it was."""
    made, decision = turn(bank=3), Decision(TASK, TASK, requests=[request(0), request(1, second)])
    for _ in range(3):
        made.forget(7)
        assert made.budget == {"shop/bank": 3}
        assert made.batch.local == set()
        made.place(decision, knows)
        made.claimed[7] = decision
    assert sum(made.budget.values()) == 3 - len(made.placed(decision))
