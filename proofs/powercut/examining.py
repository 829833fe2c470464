"""The checks of an image: does the store open it, is it sound, does it hold everything that was acknowledged,
and nothing else?
"""

import hashlib
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from makegood.errors import MakegoodError
from makegood.store.sqlite import SQLiteStore
from makegood.store.views import Filter
from proofs.powercut.disk import Image


@dataclass(frozen=True, slots=True)
class ExaminedImage:
    """The result of reading an image."""

    broken: str = ""
    """Why it cannot be used; "" if it can."""
    state: str = ""
    """The digest of what it holds."""
    tasks: Mapping[int, str] = field(default_factory=dict)
    """The state of each task that the store finds in it."""


async def opened(files: Image, folder: Path, name: str, *, migrate: bool = False) -> ExaminedImage:
    """Put an image into an empty folder, let the store open it, and read it; the folder is emptied again."""
    path = folder / name
    write_files(files, folder)
    store = SQLiteStore(path, poll=None)
    try:
        await store.open(migrate=migrate)
        tasks = {task.id: task.state for task in await store.tasks.find(Filter(limit=1000))}
        await store.close()
        return _sound(path, tasks)
    except (MakegoodError, sqlite3.Error) as failure:
        await store.close()
        return ExaminedImage(broken=f"{type(failure).__name__}: {failure}")
    finally:
        empty(folder)


def empty(folder: Path) -> None:
    """Remove the files of a folder."""
    for file in folder.iterdir():
        file.unlink()


def _sound(path: Path, tasks: Mapping[int, str]) -> ExaminedImage:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        texts = [text for (text,) in connection.execute("pragma integrity_check").fetchall()]
        if texts != ["ok"]:
            return ExaminedImage(broken=f"integrity_check: {'; '.join(texts[:3])}")
        return ExaminedImage(state=digest(connection), tasks=tasks)


def wrong(
    image: ExaminedImage,
    states: Sequence[str],
    *,
    durable: int,
    latest: int,
    acknowledgements: Mapping[str, int],
) -> list[str]:
    """Return what is wrong with an image.

    ``states``: the digest of the store before the first transaction and after each; ``durable`` of them were
    acknowledged, ``latest`` had begun; ``acknowledgements``: acknowledged tasks, by key.
    """
    if image.broken:
        return [f"unusable: {image.broken}"]
    losses = [
        f"lost: the acknowledged submission {key} (task {task}) is not there"
        for key, task in acknowledgements.items()
        if task not in image.tasks
    ]
    numbers = [number for number, state in enumerate(states) if state == image.state]
    if any(durable <= number <= latest for number in numbers):
        return losses
    if not numbers:
        return [*losses, "mixed: the store holds what it never held, such as parts of a transaction"]
    if numbers[-1] < durable:
        return [
            *losses,
            f"lost: {durable} transactions were acknowledged, and the store is as it was after {numbers[-1]}",
        ]
    return [*losses, f"ahead: {latest} transactions had begun, and the store is as it was after {numbers[0]}"]


_TABLES = """
select name from sqlite_master where type = 'table' and name like 'makegood\\_%' escape '\\'
    and name not in ('makegood_clock', 'makegood_writer') order by name
"""
"""All tables except the two that are written when a machine boots, and do not concern tasks."""


def digest(connection: sqlite3.Connection) -> str:
    """Return a digest of every row that the store has promised to keep."""
    hasher = hashlib.sha256()
    connection.execute("begin")
    for (table,) in connection.execute(_TABLES).fetchall():
        hasher.update(table.encode())
        rows = connection.execute(f"select * from {table}").fetchall()  # noqa: S608 - our own tables
        hasher.update(repr(sorted(rows, key=repr)).encode())
    connection.execute("commit")
    return hasher.hexdigest()


def write_files(files: Mapping[str, bytes], folder: Path) -> None:
    """Put an image's files into a folder."""
    for name, data in files.items():
        (folder / name).write_bytes(data)
