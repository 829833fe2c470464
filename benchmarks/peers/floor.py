"""The bare floor: the rows that makegood writes for a task, by its own statements, without an engine around them.

Nothing is decided, encoded, awaited or handed to an agent; tasks go in lockstep, each batch one commit, n + 1 commits for n steps.
What is left is the database and the driver: the distance from here to makegood is what the engine itself costs.
"""

import asyncio
import itertools
import sqlite3
import time
from importlib import metadata
from typing import Any

import asyncpg

from benchmarks import driving
from benchmarks.peers.template import Template, template
from makegood.store.postgres import commit_statement as pg
from makegood.store.postgres import connection as link
from makegood.store.postgres import submit as pg_submit
from makegood.store.sqlite import bulk_change
from makegood.store.sqlite import decision_rows as lite
from makegood.store.sqlite import submit as lite_submit

_AGENT, _ACTION = "bench/desk", "step"
_PRAGMAS = ("synchronous = full", "cache_size = -32768", "wal_autocheckpoint = 4000", "temp_store = memory")


class Floor(driving.Subject):
    """The same rows by the same statements. ``lump``: tasks in lockstep."""

    durable = "the same rows in the same number of commits as makegood, with the same fences; fsync"

    def __init__(self, cell: driving.Cell) -> None:
        super().__init__(cell)
        self._postgres = cell.store.startswith("postgres")
        # Two batches abreast, as makegood has them there: one is written while the other is prepared.
        self.lump = max(1, cell.flight // 2) if self._postgres else cell.flight
        self._ids = itertools.count(time.time_ns() // 1_000 << 12)
        self._writers: asyncio.Queue[SQLiteLane | PostgresWriter] = asyncio.Queue()

    def version(self) -> str:
        """Return the version whose statements these are."""
        return metadata.version("makegood")

    async def open(self) -> None:
        """Make the tables by running one real task, and open the writers."""
        cell = self.cell
        model = await template(cell.store, cell.steps)
        if self._postgres:
            for number in range(2):
                self._writers.put_nowait(await PostgresWriter.open(cell.store, model, number + 1))
        else:
            self._writers.put_nowait(SQLiteLane(cell.store, model))

    async def close(self) -> None:
        """Close the writers."""
        while not self._writers.empty():
            await self._writers.get_nowait().close()

    async def task(self, steps: int) -> None:
        """Write ``lump`` tasks from their submission to their end."""
        writer = await self._writers.get()
        try:
            await writer.wave([next(self._ids) for _ in range(self.lump)])
        finally:
            self._writers.put_nowait(writer)
        await asyncio.sleep(0)


def _numbers(values: list[int]) -> str:
    return pg.numbers(list(values))


def _bytes(value: bytes, count: int) -> tuple[bytes, str]:
    data, spans = pg.join_values([value] * count)
    return data, pg.numbers(spans)


class SQLiteLane:
    """The one writer of a SQLite file."""

    def __init__(self, store: str, model: Template) -> None:
        self._connection = sqlite3.connect(
            store.removeprefix("sqlite:///"), isolation_level=None, cached_statements=256
        )
        for pragma in _PRAGMAS:
            self._connection.execute(f"pragma {pragma}")
        bulk_change.install(self._connection, lite.CHANGES)
        self._model = model

    async def close(self) -> None:
        """Close it."""
        self._connection.close()

    async def wave(self, ids: list[int]) -> None:
        """Write these tasks from their submission to their end."""
        self._submit(ids)
        for idx in range(len(self._model.steps)):
            self._commit(ids, idx)

    def _submit(self, ids: list[int]) -> None:
        model, now = self._model, time.time()
        task, run = model.task, self._connection
        common = (
            task["app"], task["workflow"], len(task["fingerprint"]), "processing", task["on_failure"], 0, 1, now,
            task.get("within"), task.get("undo_within"), model.node, task.get("complete_by"),
        )  # fmt: skip
        run.execute("begin immediate")
        ready = run.execute(lite.READY, (len(ids), round(now * 1e6))).fetchall()[0][0]
        same = task["fingerprint"] + task["static"]
        first, values = ready - len(ids) + 1, [b"%09d%b" % (n, same) for n in range(len(ids))]
        for tasks, data in bulk_change.spans(ids, values):
            run.execute(lite_submit.alike_statement(()), (tasks, data, first, *common))
        there = bulk_change.tasks(ids)
        steps: list[bulk_change.Change] = [
            (
                "step", there, bulk_change.UNUSED, s["idx"], s["kind"], s["name"], s["agent"], s["action"],
                "waiting" if n else "running", 0 if n else 1, s["spec"],
            )
            for n, s in enumerate(model.steps)
        ]  # fmt: skip
        bulk_change.write(run, [*steps, *self._dispatched(there, 0, now)])
        run.execute("commit")

    def _dispatched(self, there: str, idx: int, now: float) -> list[bulk_change.Change]:
        node = self._model.node
        return [
            ("handed", there, now, idx, 1, _AGENT, _ACTION, 0, now, node, 300.0),
            ("moved", there, bulk_change.UNUSED, now, node, self._model.moves[idx]),
        ]

    def _commit(self, ids: list[int], idx: int) -> None:
        model, now, run = self._model, time.time(), self._connection
        last, there = idx + 1 == len(model.steps), bulk_change.tasks(ids)
        changes: list[bulk_change.Change] = [
            ("held", there, bulk_change.UNUSED, model.node, 1, len(ids)),
            ("consumed", there, bulk_change.UNUSED, idx, 1, len(ids)),
        ]
        if last:
            changes.append(("rested", there))
            for tasks, data in bulk_change.spans(ids, [model.task["result"]] * len(ids)):
                changes.append(("processed", tasks, data, now))
            changes.append(("moved", there, bulk_change.UNUSED, now, model.node, model.moves[idx + 1]))
        else:
            changes.append(("sent", there, bulk_change.UNUSED, idx + 1, 1))
            changes += self._dispatched(there, idx + 1, now)
        for tasks, data in bulk_change.spans(ids, [model.steps[idx]["result"]] * len(ids)):
            changes.append(("done", tasks, data, idx, 1))
        run.execute("begin immediate")
        bulk_change.write(run, changes)
        run.execute("commit")


class PostgresWriter:
    """One writing connection to PostgreSQL, with its row in ``writer``."""

    def __init__(self, connection: Any, model: Template, writer: int) -> None:
        self._connection, self._model, self._writer, self._number = connection, model, writer, 0

    @classmethod
    async def open(cls, store: str, model: Template, writer: int) -> "PostgresWriter":
        """Connect."""
        connection = await asyncpg.connect(store, statement_cache_size=200)
        await connection.fetchrow(link._SESSION, "floor")  # noqa: SLF001 - the same settings of the planner
        await connection.execute("insert into makegood.writer (id, number, at) values ($1, 0, 0)", writer)
        return cls(connection, model, writer)

    async def close(self) -> None:
        """Close it."""
        await self._connection.close()

    async def wave(self, ids: list[int]) -> None:
        """Write these tasks from their submission to their end."""
        await self._submit(ids)
        for idx in range(len(self._model.steps)):
            await self._commit(ids, idx)

    def _numbers(self) -> tuple[int, int, int]:
        self._number += 1
        return self._writer, self._number - 1, self._number

    async def _submit(self, ids: list[int]) -> None:
        model, task, steps = self._model, self._model.task, self._model.steps
        ones, count = _numbers([1] * len(ids)), len(ids)
        data, spans = pg.join_values([task["fingerprint"]] * count + [task["static"]] * count)
        row = await self._connection.fetchrow(
            pg_submit.statement((False, False, False), by_shape=True, begins=True, notifies=False), *self._numbers(), [], count,
            [task["app"]], [task["workflow"]], [task["on_failure"]], [0], [task["within"]], [task["undo_within"]],
            _numbers(ids), ones, data, pg.numbers(spans[:count]), pg.numbers(spans[count:]), [], [], [],
            _numbers([1] * len(steps)), _numbers([s["idx"] for s in steps]),
            *([s[name] for s in steps] for name in ("kind", "name", "agent", "action", "spec")),
            [model.node], [model.moves[0]], _numbers(ids), _numbers([pg.place(0, 1)] * count), ones, [None] * count,
            ["do"], [_AGENT], [_ACTION], [0], [False], [300.0], [model.node], [time.time()],
        )  # fmt: skip
        assert row["marked"], row

    async def _commit(self, ids: list[int], idx: int) -> None:
        model, count = self._model, len(ids)
        last = idx + 1 == len(model.steps)
        tasks, ones = _numbers(ids), _numbers([1] * count)
        selection = {"done", "event", "processed", "rested"} if last else {"done", "event", "handed"}
        rows: dict[str, tuple[Any, ...]] = {
            "done": (tasks, _numbers([pg.place(idx, 1)] * count), *_bytes(model.steps[idx]["result"], count)),
            "event": (tasks, ones),
            "handed": (tasks, _numbers([pg.place(idx + 1, 1)] * count), ones),
            "processed": (tasks, *_bytes(model.task["result"], count)),
            "rested": (tasks,),
        }
        names = tuple(name for name in pg.PARTS if name in selection)
        kinds = () if last else (["do"], [_AGENT], [_ACTION], [0], [False], [300.0], [time.time()])
        row = await self._connection.fetchrow(
            pg.statement(names, looks=False), *self._numbers(), [], model.node, True, count, count,
            tasks, ones, tasks, _numbers([pg.place(idx, 1)] * count), *kinds, [model.moves[idx + 1]],
            *itertools.chain.from_iterable(rows[name] for name in names),
        )  # fmt: skip
        assert row["ok"], row


if __name__ == "__main__":
    driving.main(Floor)
