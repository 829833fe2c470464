"""What became of single steps that callers wait for: one read for all of them."""

from collections.abc import Iterable, Sequence

import msgspec

from makegood.base.stored_values import record_of, text
from makegood.model.states import Goal, StepState, TaskState
from makegood.store.transaction import ReadTx, Sql

_TASKS = Sql("select id, state, goal from makegood.task where id = any ($1::bigint[])")
_SIGNALS = Sql("""
select s.task, s.name, s.id, s.used,
    (select count(*) from makegood.signal l where l.task = s.task and l.used = s.used and (l.used_at, l.seq) > (s.used_at, s.seq))
from makegood.signal s where s.task = any ($1::bigint[]) and s.id = any ($2::text[])
""")
_STEPS = Sql(
    "select task, idx, state, round, result, error from makegood.step where task = any ($1::bigint[]) and idx = any ($2::integer[])"
)


class AwaitedStep(msgspec.Struct, frozen=True):
    """A step for which somebody waits who has sent a signal."""

    task: int
    idx: int
    signal: str
    """The signal's name."""
    id: str
    """The signal's id."""


class StepOutcome(msgspec.Struct, frozen=True):
    """A step and its task as they are now."""

    task_state: TaskState
    goal: Goal
    wait: int | None
    """The step that used the signal; None: none has."""
    is_stale: bool
    """That step waits for another signal since, or has used one: the task was undone and resubmitted."""
    state: StepState
    round: int
    result: bytes | None
    """JSON."""
    error: str | None


async def step_outcomes(tx: ReadTx, steps: Sequence[AwaitedStep]) -> dict[AwaitedStep, StepOutcome]:
    """Return what became of these steps; those that the store does not have are missing.

    It reads a signal before the step: whoever finds a signal used finds what that led to as well.
    """
    tasks = _distinct(step.task for step in steps)
    waits: dict[tuple[int, str, str], tuple[int | None, bool]] = {
        (task, name, id_): (wait, later > 0)
        for task, name, id_, wait, later in await tx.rows(
            _SIGNALS, tasks, _distinct(step.id for step in steps)
        )
    }
    states: dict[int, tuple[object, object]] = {
        task: (state, goal) for task, state, goal in await tx.rows(_TASKS, tasks)
    }
    idxs = _distinct([*(step.idx for step in steps), *(wait for wait, _ in waits.values())])
    rows = {(task, idx): values for task, idx, *values in await tx.rows(_STEPS, tasks, idxs)}
    outcomes: dict[AwaitedStep, StepOutcome] = {}
    for step in steps:
        if step.task not in states or (step.task, step.idx) not in rows:
            continue
        wait, is_stale = waits.get((step.task, step.signal, step.id), (None, False))
        if wait is not None and (row := rows.get((step.task, wait))) is not None:
            is_stale = is_stale or text(row[0]) in ("waiting", "ready")
        values = (*states[step.task], wait, is_stale, *rows[step.task, step.idx])
        outcomes[step] = record_of(StepOutcome, values)
    return outcomes


def _distinct(values: Iterable[object]) -> list[object]:
    return [value for value in dict.fromkeys(values) if value is not None]
