"""What is kept in memory or written together is bounded in bytes wherever it is bounded in number."""

from makegood.agent import reply_sender
from makegood.base.sizes import KIB, MIB
from makegood.client.waiters import Rested
from makegood.model.messages import TaskMessage
from makegood.model.plan import StepPlan, Template
from makegood.model.shape import spec
from makegood.store.postgres import slices as postgres
from makegood.store.queue_records import Depths
from makegood.store.rows import Interner
from makegood.store.views import StepView, TaskView
from tests.conformance.builders import draft


def replies(*sizes: int, node: int = 1) -> list[tuple[int, int, TaskMessage]]:
    """Return replies with values of these sizes."""
    return [(node, n, TaskMessage("done", value=b"x" * size)) for n, size in enumerate(sizes)]


def test_replies_are_sent_together_up_to_4_mib_and_one_at_least() -> None:
    assert len(reply_sender._batch(replies(*[10] * 2000))) == 1000
    assert [task for _, task, _ in reply_sender._batch(replies(3 * MIB, MIB, 10))] == [0, 1]
    assert [task for _, task, _ in reply_sender._batch(replies(9 * MIB, 10))] == [0]
    batch = [*replies(10), *replies(10, node=2), *replies(10)]
    assert [node for node, _, _ in reply_sender._batch(batch)] == [1, 1]


def test_large_submissions_and_replies_weigh_as_many_small_ones() -> None:
    assert postgres._weight([draft(1), draft(2)]) == 2
    assert postgres._weight([draft(1, inputs=(b"x" * MIB,))]) == 65
    assert (
        postgres._weight_of_replies([(1, TaskMessage("done", value=b"x" * MIB)), (2, TaskMessage("expired"))])
        == 66
    )


def test_equal_steps_are_decoded_once_and_large_ones_are_not_kept_for_ever() -> None:
    plans = Interner()
    specs = [spec(StepPlan(n, args=Template(("x" * MIB,)))) for n in range(20)]
    first = plans.plan(specs[0])
    assert plans.plan(specs[0]) is first
    assert plans.new_step(specs[0]) is plans.new_step(specs[0])
    for each in specs:
        assert plans.new_step(each).plan == plans.plan(each)
    assert len(plans._plans) == len(plans._first_steps) == 7
    assert sum(map(len, plans._plans)) == plans._bytes < 8 * MIB
    huge = spec(StepPlan(0, args=Template(("x" * 9 * MIB,))))
    assert plans.new_step(huge).plan == plans.plan(huge)
    assert (len(plans._plans), len(plans._first_steps), plans._bytes) == (0, 0, 0)


def test_the_bytes_of_a_long_queue_are_added_up_once_a_second_or_near_its_limit() -> None:
    depths = Depths()
    assert depths.wants("q", 10, 1000, 0.0), "nothing is known"
    depths.record("q", 1000, 100, 0.0)
    assert depths.wants("q", 10, 1000, 0.1), "it is short"
    depths.record("q", 5000, 100, 1.0)
    assert not depths.wants("q", 400, 1000, 1.1)
    assert not depths.wants("q", 400, 1000, 1.2)
    assert depths.wants("q", 400, 1000, 1.3), "what was sent since may have filled it"
    depths.record("q", 5000, 100, 2.0)
    assert depths.wants("q", 1, 1000, 3.1), "others may have sent"
    assert depths.wants("q", 1, 1000, 1.9), "the clock went back"
    for n in range(2000):
        depths.record(f"queue {n}", 5000, 1, 5.0)
    assert len(depths._depths) == 1000


def test_the_end_of_a_task_is_remembered_for_its_submitter_only_while_it_is_small() -> None:
    view = TaskView(
        1,
        "shop",
        "sell",
        None,
        "processed",
        "forward",
        1,
        0,
        "",
        0,
        None,
        1,
        None,
        0.0,
        1.0,
        None,
        result=b"x" * KIB,
    )
    step = StepView(0, "action", "s", "a", "b", "done", 1, 1, 0, False, True, b"y" * 2 * KIB)
    assert Rested(view, [step]).octets == 3 * KIB
    assert Rested(view).octets == KIB
