"""What a process publishes of an agent's calls: the share that was answered, of the latest twenty or of as many as there were."""

from typing import cast

import pytest

from makegood.agent.slots import Slots
from makegood.model.attempt import Attempt
from makegood.model.messages import MessageKind, TaskMessage


class Ended:
    """A call, as far as its end is counted."""

    began = 0.0
    retries = 0
    phase = "running"
    cancelled = False


def seen(*answers: MessageKind | None) -> Slots:
    """Return an agent's slots after calls with these answers; None: silence."""
    slots = Slots("shop/bank", {}, size=5)
    for kind in answers:
        slots.count_end(cast("Attempt", Ended()), None if kind is None else TaskMessage(kind), 1.0)
    return slots


@pytest.mark.parametrize(
    ("answers", "share"),
    [
        (["gave_up", "gave_up", "gave_up"], 0.0),
        ([None], 0.0),
        (["gave_up", "done", "done", "done"], 0.75),
        (["done", "done", "done", "gave_up"], 0.75),
        (["done", "permanent", "refused", "later"], 1.0),
    ],
)
def test_the_share_of_few_calls_is_that_of_all_of_them(
    answers: list[MessageKind | None], share: float
) -> None:
    """It began at 100 %: an agent whose calls had all failed looked as if most had been answered."""
    assert seen(*answers).info(0.0).success == pytest.approx(share)


def test_before_the_first_call_nothing_is_said() -> None:
    assert seen().info(0.0).success is None


def test_of_many_calls_the_latest_count() -> None:
    """About twenty: what was long ago is forgotten, in both directions."""
    good: list[MessageKind] = ["done"]
    bad: list[MessageKind] = ["gave_up"]
    assert seen(*good * 500, *bad * 20).success == pytest.approx(0.95**20)
    assert seen(*bad * 500, *good * 100).success > 0.99


def test_after_two_requests_in_a_row_that_cannot_be_decoded_nothing_is_taken_for_a_while() -> None:
    """And no slot is lent to a Scheduler of the process until one can be decoded."""
    slots = Slots("shop/bank", {}, size=5, free=5)
    assert slots.lends
    slots.note_decoding(10.0, works=False)
    assert not slots.lends
    assert slots.offer(10.0) is not None, "a single request may be at fault itself"
    slots.note_decoding(11.0, works=False)
    assert slots.offer(13.9) is None
    assert slots.waits(11.0) == 3.0, "then it looks again"
    assert slots.offer(14.0) is not None
    assert not slots.lends
    slots.note_decoding(14.0, works=True)
    assert slots.lends
    slots.note_decoding(15.0, works=False)
    assert slots.offer(15.0) is not None
