"""The power goes a second time: while the store reads an image of the first cut back, and writes on in it.

What the first cut left half written lies behind the end of the log then, and new transactions are written over it.
"""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from makegood.client.client import Client
from makegood.store.sqlite import SQLiteStore
from makegood.workflow.workflow import Workflow
from proofs.powercut.disk import CutPoint, Image, Tape
from proofs.powercut.examining import ExaminedImage, digest, wrong
from proofs.powercut.listening import listening

_TASKS = 2


@dataclass(slots=True)
class Second:
    """What happened after the first cut: the tape, the digest of the store after each submission, the tasks that must be there."""

    database: str
    tape: Tape = field(default_factory=Tape)
    states: list[str] = field(default_factory=list)
    before: Mapping[int, str] = field(default_factory=dict)
    told: list[int] = field(default_factory=list)

    def unmade(self, point: CutPoint) -> bool:
        """Whether the store may not be there yet: it always is."""
        del point
        return False

    def findings(self, point: CutPoint, found: ExaminedImage) -> list[str]:
        """Return what is wrong with an image of this point."""
        done = point.marks.get("done", 0)
        told = {f"number {n}": task for n, task in enumerate((*self.before, *self.told[:done]))}
        return wrong(found, self.states, done=done, begun=point.marks.get("begun", 0), told=told)


async def resumed(
    lone: Workflow[[str], Any], found: ExaminedImage, files: Image, folder: Path, database: str
) -> Second:
    """Open an image that was ``found`` well, in a folder that holds its files, and submit ``lone`` tasks into it; returns what happened."""
    second, path = Second(database, before=found.tasks), folder / database
    second.tape.base = dict(files)
    second.states.append(found.state)
    with listening(folder, second.tape):
        store = SQLiteStore(path, poll=None)
        await store.open()
        client = Client(store)
        await client.open()
        for number in range(1, _TASKS + 1):
            second.tape.mark("begun", number)
            task = await client.submit(lone, "again", key=f"again-{number}")
            second.told.append(task.number)
            second.tape.mark("done", number)
            second.states.append(_state(path))
        await client.close()
        await store.close()
    return second


def _state(path: Path) -> str:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return digest(connection)
