"""What became of single steps that callers wait for: one read for all of them."""

from collections.abc import Iterable, Sequence

import msgspec

from makegood.base.stored_values import record_of, text
from makegood.model.states import AT_REST, Goal, StepState, TaskState
from makegood.store.transaction import ReadTx, Sql

_SIGNALS = Sql("""
select s.task, s.name, s.id, s.used,
    (select count(*) from makegood.signal l where l.task = s.task and l.used = s.used and (l.used_at, l.seq) > (s.used_at, s.seq))
from makegood.signal s where s.task = any ($1::bigint[]) and s.id = any ($2::text[])
""")
_STEPS = Sql("""
select s.task, s.idx, t.state, t.goal, s.state, s.round, s.result, s.error
from makegood.step s join makegood.task t on t.id = s.task where s.task = any ($1::bigint[]) and s.idx = any ($2::integer[])
""")


class AwaitedStep(msgspec.Struct, frozen=True):
    """A step for which somebody waits who has sent a signal."""

    task: int
    idx: int
    signal: str
    """The signal's name."""
    id: str
    """The signal's id."""
    waits: frozenset[int] = frozenset()
    """The steps that wait for such a signal and come before this one: only if one of them uses it is the
    step's result an answer to it.
    """


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

    The store may change between two reads. A task at rest uses no signal any more, but may have used one
    after the signals were read: then all is read again.
    """
    outcomes = await _read(tx, steps)
    if any(each.wait is None and each.task_state in AT_REST for each in outcomes.values()):
        outcomes = await _read(tx, steps)
    return outcomes


async def _read(tx: ReadTx, steps: Sequence[AwaitedStep]) -> dict[AwaitedStep, StepOutcome]:
    """Read the signals before the steps: whoever finds a signal used finds what that led to as well."""
    tasks = _distinct(step.task for step in steps)
    waits: dict[tuple[int, str, str], tuple[int | None, bool]] = {
        (task, name, id_): (wait, later > 0)
        for task, name, id_, wait, later in await tx.rows(
            _SIGNALS, tasks, _distinct(step.id for step in steps)
        )
    }
    idxs = _distinct([*(step.idx for step in steps), *(wait for wait, _ in waits.values())])
    rows = {(task, idx): values for task, idx, *values in await tx.rows(_STEPS, tasks, idxs)}
    outcomes: dict[AwaitedStep, StepOutcome] = {}
    for step in steps:
        if (step.task, step.idx) not in rows:
            continue
        task_state, goal, *values = rows[step.task, step.idx]
        wait, is_stale = waits.get((step.task, step.signal, step.id), (None, False))
        if wait is not None and (row := rows.get((step.task, wait))) is not None:
            is_stale = is_stale or text(row[2]) in ("waiting", "ready")
        outcomes[step] = record_of(StepOutcome, (task_state, goal, wait, is_stale, *values))
    return outcomes


def _distinct(values: Iterable[object]) -> list[object]:
    return [value for value in dict.fromkeys(values) if value is not None]
