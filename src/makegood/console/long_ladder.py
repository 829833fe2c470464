"""The ladder of a task with too many steps for one page: an overview of blocks, or one page of rungs.

In the overview, what needs attention has rungs of its own, behind the block that counts it. Each block is a
link to the page that begins with it, so every step can be reached. Rungs are in the order of the task's rows,
one below the other: the steps between two of them are not read, and neither is their order.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from makegood.console.ladder import LadderCell, LadderRow, LadderStep
from makegood.store.views import StepBlock, TaskExcerpt
from makegood.story.steps import ORDER


def fold(part: TaskExcerpt) -> list[StepBlock]:
    """Return the blocks of the overview: neighbours of one state, none of whose steps has a rung, are one."""
    read = {step.idx for step in part.detail.steps}
    blocks: list[StepBlock] = []
    mergeable = False
    for block in part.blocks:
        plain = len(block.states) == 1 and not any(block.first <= idx <= block.last for idx in read)
        last = blocks[-1] if blocks else None
        if last is not None and plain and mergeable and last.states.keys() == block.states.keys():
            blocks[-1] = StepBlock(last.first, block.last, Counter(last.states) + Counter(block.states))
        else:
            blocks.append(block)
        mergeable = plain
    return blocks


def long_ladder(
    part: TaskExcerpt, rungs: Sequence[LadderStep], names: Mapping[int, str], *, back: bool
) -> list[LadderRow]:
    """Return the rows: of the page that was asked for, or of the overview.

    ``names``: of the first and the last step of each block.
    """
    rows = [
        (int(step.anchor), LadderRow(kind="steps", cells=[LadderCell(step=step, up="" if back else "ahead")]))
        for step in rungs
    ]
    if part.page is not None:
        indices = frozenset(part.page)
        return [row for idx, row in rows if idx in indices]
    ladder_rows: list[LadderRow] = []
    for block in fold(part):
        mine = [row for idx, row in rows if block.first <= idx <= block.last]
        count = sum(block.states.values())
        if count > len(mine):
            ladder_rows.append(
                LadderRow(
                    kind="block", names=(names.get(block.first, ""), names.get(block.last, "")), count=count, said=states_text(block.states),
                    first=block.first, up="" if back else "ahead",
                )
            )  # fmt: skip
        ladder_rows += mine
    return ladder_rows


def states_text(states: Mapping[str, int]) -> str:
    """Say how many steps are in which state.

    >>> states_text({"done": 97, "failed": 2, "in_doubt": 1})
    '1 in doubt, 2 failed, 97 done'
    """
    return ", ".join(f"{count:,} {state.replace('_', ' ')}" for state, count in state_counts(states))


def state_counts(states: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the states with their counts, those that need somebody first."""
    return sorted(
        states.items(), key=lambda item: (ORDER.index(item[0]) if item[0] in ORDER else len(ORDER), item[0])
    )
