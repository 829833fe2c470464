"""Ended tasks by the thousand, written by one statement: they were processed long ago, and nobody asks about them."""

from tests.conformance.worlds import World

_SERIES = {
    "postgres": "generate_series(1, {count})",
    "sqlite": "(with recursive s (value) as (select 1 union all select value + 1 from s where value < {count}) select value from s)",
}
_COLUMNS = (
    "app, workflow, key, fingerprint, state, goal, on_failure, submission, priority, ready_seq, epoch, cause, failure_count, lost,"
    " task_expired, created_at, ended_at, static"
)


async def many_ended(world: World, count: int, like: int, first: int) -> None:
    """Insert ``count`` processed tasks with ids from ``first`` on, otherwise like the task ``like``."""
    values = (
        _COLUMNS.replace(" key", " null").replace(" state", " 'processed'").replace("ended_at", "created_at")
    )
    series = _SERIES[world.dialect].format(count=count).replace("{", "{{")
    number = "n" if world.dialect == "postgres" else "value"
    async with world.raw() as raw:
        await raw.run(
            f"insert into {{task}} (id, {_COLUMNS}) select {first} - 1 + {number}, {values}"
            f" from {{task}}, {series} as n where id = {like}"
        )
