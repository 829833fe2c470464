"""What became of a step, read while its task goes on."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from makegood.client.step_waiters import is_over
from makegood.store.step_outcomes import AwaitedStep, step_outcomes
from makegood.store.transaction import ReadTx, Sql

STEP = AwaitedStep(task=7, idx=1, signal="word", id="click", waits=frozenset({0}))


class MovingStore:
    """A store whose task uses a signal and ends after so many statements: ``wait`` 0 and step 1 are all its steps."""

    def __init__(self, statements: int) -> None:
        self.statements = statements

    async def rows(self, statement: Sql, *_: Any) -> Sequence[tuple[Any, ...]]:
        """Return the rows of a statement, before or after the end."""
        self.statements -= 1
        is_after, text = self.statements < 0, statement.postgres
        if "from makegood.signal s" in text:
            return [(7, "word", "click", 0 if is_after else None, 0)]
        if is_after:
            return [(7, idx, "processed", "forward", "done", 1, b'"hello"', None) for idx in range(2)]
        states = ("ready", "waiting")
        return [(7, n, "processing", "forward", state, 1, None, None) for n, state in enumerate(states)]


@pytest.mark.parametrize("statements", range(3))
async def test_a_task_that_ends_between_two_reads_has_used_the_signal(statements: int) -> None:
    outcomes = await step_outcomes(cast("ReadTx", MovingStore(statements)), [STEP])
    outcome = outcomes[STEP]
    assert not is_over(STEP, outcome) or (outcome.wait, outcome.state) == (0, "done")
    assert is_over(STEP, outcome) or statements
