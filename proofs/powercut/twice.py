"""The power goes a second time: while the store recovers an image of the first cut, and writes to it.

Half-written data of the first cut then lies behind the end of the log, and new transactions overwrite it.
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
    """What happened after the first cut."""

    database: str
    tape: Tape = field(default_factory=Tape)
    states: list[str] = field(default_factory=list)
    """The digest of the store after each submission."""
    before: Mapping[int, str] = field(default_factory=dict)
    """The tasks that must be there, with their states."""
    told: list[int] = field(default_factory=list)
    """The submitted tasks that were acknowledged."""

    def unmade(self, point: CutPoint) -> bool:
        """Whether the store may not exist yet: it always does."""
        del point
        return False

    def findings(self, point: CutPoint, image: ExaminedImage) -> list[str]:
        """Return what is wrong with an image of this point."""
        durable = point.marks.get("done", 0)
        acknowledgements = {
            f"number {n}": task for n, task in enumerate((*self.before, *self.told[:durable]))
        }
        return wrong(
            image,
            self.states,
            durable=durable,
            latest=point.marks.get("begun", 0),
            acknowledgements=acknowledgements,
        )


async def resumed(
    lone: Workflow[[str], Any], image: ExaminedImage, files: Image, folder: Path, database: str
) -> Second:
    """Open an ``image`` that was sound, in a folder that holds its files, and submit ``lone`` tasks;
    returns what happened.
    """
    second, path = Second(database, before=image.tasks), folder / database
    second.tape.base = dict(files)
    second.states.append(image.state)
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
