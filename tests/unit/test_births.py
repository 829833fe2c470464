"""A Scheduler's births: what is written with a task, whose slots are lent for it, and what becomes of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from makegood.base.clock import SystemClock
from makegood.model.messages import Request
from makegood.model.plan import StepPlan, Template
from makegood.scheduler.eager_submission import Births
from makegood.store.records import Draft
from tests.unit.saga_case import action


@dataclass
class Slots:
    """Agents of the same process: free slots by address. Those without a number run elsewhere."""

    free: dict[str, int] = field(default_factory=dict)
    handed: list[Request] = field(default_factory=list)
    queued: list[str] = field(default_factory=list)

    def knows(self, address: str, action: str) -> bool:
        """Return whether it runs here."""
        return address in self.free

    def lend(self, address: str) -> bool:
        """Set a slot aside."""
        if self.free[address] == 0:
            return False
        self.free[address] -= 1
        return True

    def restore(self, unused: Mapping[str, int]) -> None:
        """Take slots back."""
        for address, n in unused.items():
            self.free[address] += n

    def hand(self, request: Request, began: float) -> None:
        """Begin a request."""
        self.handed.append(request)

    def backlogged(self, address: str) -> None:
        """Note that the store has one."""
        self.queued.append(address)


def draft(*plans: StepPlan) -> Draft:
    """Return a submission of these steps."""
    return Draft(1, "shop", "order", plans, (b"1",), Template(("null",)), b"print")


def address(plan: StepPlan) -> str:
    """Return where a step's requests go."""
    return f"shop/{plan.agent}"


def test_first_steps_go_with_the_task_and_into_the_slots_lent() -> None:
    plans = (action(0), action(1), action(2, 0, 1))
    slots = Slots({address(plans[0]): 2})
    births = Births(slots, SystemClock())
    expected = births.expect(draft(*plans), 7)
    assert expected.holder == 7
    assert expected.handed
    assert expected.first is not None
    assert [r.idx for r in expected.first.requests] == [0, 1]
    assert slots.free == {address(plans[0]): 0}
    held = births.born(expected, created=True)
    assert held is not None
    assert [s.state for s in held.steps] == ["running", "running", "waiting"]
    births.dispatch(expected)
    assert [r.idx for r in slots.handed] == [0, 1]
    assert len(births) == 0


def test_a_task_that_was_not_written_gives_its_slots_back() -> None:
    slots = Slots({address(action(0)): 1})
    births = Births(slots, SystemClock())
    expected = births.expect(draft(action(0)), 7)
    assert births.born(expected, created=False) is None
    assert slots.free == {address(action(0)): 1}
    assert (slots.handed, len(births)) == ([], 0)


def test_without_a_slot_for_every_first_step_none_is_sent() -> None:
    """They wait their turn: behind what waits already, in order of priority."""
    slots = Slots({address(action(0)): 1})
    births = Births(slots, SystemClock())
    expected = births.expect(draft(action(0), action(1)), 7)
    assert (expected.holder, expected.first, expected.handed) == (7, None, False)
    assert slots.free == {address(action(0)): 1}


def test_agents_elsewhere_find_the_first_requests_in_the_store() -> None:
    slots = Slots()
    births = Births(slots, SystemClock())
    expected = births.expect(draft(action(0)), 7)
    assert expected.first is not None
    assert not expected.handed
    assert births.born(expected, created=True) is not None
    births.dispatch(expected)
    assert (slots.handed, slots.queued) == ([], [address(action(0))])


def test_a_process_without_agents_sends_too() -> None:
    births = Births(None, SystemClock())
    expected = births.expect(draft(action(0)), 7)
    assert expected.first is not None
    births.born(expected, created=True)
    births.dispatch(expected)
    assert len(births) == 0
