"""The overview of a long task: blocks, the rungs between them, and the page of steps."""

from collections.abc import Mapping, Sequence

from makegood.console.ladder import LadderStep
from makegood.console.long_ladder import fold, long_ladder, states_text
from makegood.store.views import StepBlock, StepView, TaskDetail, TaskExcerpt
from tests.console.recorded_tasks import recorded


def part(
    blocks: Sequence[tuple[int, int, Mapping[str, int]]],
    read: Sequence[int],
    page: Sequence[int] | None = None,
) -> TaskExcerpt:
    """Return an excerpt with these blocks, of which these steps were read."""
    steps = [
        StepView(idx, "action", f"s{idx}", "stock", "act", "done", 1, 1, 0, doubt=False, undoable=True)
        for idx in read
    ]
    detail = TaskDetail(recorded("few").detail.task, steps, tally={"done": 1})
    return TaskExcerpt(
        detail, blocks[-1][1] + 1, [StepBlock(first, last, states) for first, last, states in blocks], page
    )


def rungs(read: Sequence[int]) -> list[LadderStep]:
    """Return the rungs of these steps."""
    return [LadderStep(idx=n, name=f"s{idx}", anchor=str(idx)) for n, idx in enumerate(read)]


def drawn(excerpt: TaskExcerpt, *, back: bool = False) -> list[str]:
    """Return the rows in short."""
    rows = long_ladder(
        excerpt,
        rungs([step.idx for step in excerpt.detail.steps]),
        {0: "s0", 99: "s99", 399: "s399"},
        back=back,
    )
    return [
        row.steps[0].name if row.kind == "steps" else f"{row.first}: {row.count} {row.said}" for row in rows
    ]


def test_neighbours_of_one_state_are_one_block() -> None:
    """Unless a step between them has a rung: that one stands behind the block that counts it."""
    blocks = [(n, n + 99, {"done": 100}) for n in range(0, 400, 100)]
    assert drawn(part(blocks, [])) == ["0: 400 400 done"]
    assert drawn(part(blocks, [150])) == ["0: 100 100 done", "100: 100 100 done", "s150", "200: 200 200 done"]


def test_blocks_of_different_states_stay_apart() -> None:
    blocks = [
        (0, 99, {"done": 100}),
        (100, 199, {"done": 60, "waiting": 40}),
        (200, 299, {"waiting": 100}),
        (300, 399, {"waiting": 100}),
    ]
    assert drawn(part(blocks, [])) == [
        "0: 100 100 done",
        "100: 100 40 waiting, 60 done",
        "200: 200 200 waiting",
    ]


def test_a_block_all_of_whose_steps_have_rungs_needs_no_line() -> None:
    assert drawn(part([(0, 1, {"failed": 2}), (100, 199, {"done": 100})], [0, 1])) == [
        "s0",
        "s1",
        "100: 100 100 done",
    ]


def test_a_page_holds_its_steps_alone() -> None:
    """And no blocks; steps that were read for the verdict are left out."""
    assert drawn(part([(0, 99, {"done": 100})], [3, 50, 51, 99], page=[50, 51])) == ["s50", "s51"]


def test_the_undo_side_is_dotted_until_the_task_turns() -> None:
    excerpt = part([(0, 99, {"done": 100})], [3])
    for back, up in ((False, "ahead"), (True, "")):
        rows = long_ladder(excerpt, rungs([3]), {}, back=back)
        assert {row.up if row.kind == "block" else row.cells[0].up for row in rows} == {up}


def test_a_few_hundred_lines_at_most() -> None:
    """However the states alternate."""
    blocks = [(n, n + 99, {"done": 50, "failed": 50}) for n in range(0, 10_000, 100)]
    assert len(fold(part(blocks, range(0, 10_000, 200)))) == 100
    assert len(drawn(part(blocks, range(0, 10_000, 200)))) == 150


def test_what_needs_somebody_is_said_first() -> None:
    assert (
        states_text({"done": 2_000, "strange": 1, "undo_failed": 3}) == "3 undo failed, 2,000 done, 1 strange"
    )
