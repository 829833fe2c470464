"""A store while it is created, with the real threads and on real time: the file, its schema, its first tasks
to their end.

The simulated worlds begin with an existing store, and have one thread. Here
``SQLiteStore.open(migrate=True)`` creates the file in an empty folder, a Node runs all roles, and clients
submit all at once. Wherever the power goes, the folder must hold no store, or one that can be opened, created
or completed. Everything that was acknowledged must be in it: the store, the task, its end.
"""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from makegood.declare.outcomes import NOTHING
from makegood.node.node import Node
from makegood.store.sqlite import SQLiteStore
from makegood.workflow.app import App
from makegood.workflow.workflow import Workflow
from proofs.powercut.disk import CutPoint, Tape
from proofs.powercut.examining import ExaminedImage
from proofs.powercut.listening import listening
from proofs.powercut.operations import BIRTH_OF_A_STORE

NAME: Final = "store.db"
_TASKS = 6


@dataclass(slots=True)
class Birth:
    """What happened."""

    tape: Tape = field(default_factory=Tape)
    told: list[int] = field(default_factory=list)
    """Acknowledged tasks, in order."""
    ended: list[int] = field(default_factory=list)
    """Tasks whose end was acknowledged, in order."""

    @property
    def database(self) -> str:
        """The name of the store's file."""
        return NAME

    def unmade(self, point: CutPoint) -> bool:
        """Whether no store was acknowledged yet: ``open`` may have to create it."""
        return "open" not in point.marks

    def operations(self, point: CutPoint) -> frozenset[str]:
        """Return what is under way: the birth."""
        del point
        return BIRTH_OF_A_STORE

    def findings(self, point: CutPoint, image: ExaminedImage) -> list[str]:
        """Return what is wrong with an image of this point."""
        if image.broken:
            return [f"unusable: {image.broken}"]
        tasks = image.tasks
        acknowledgements = self.told[: point.marks.get("told", 0)]
        ends = self.ended[: point.marks.get("ended", 0)]
        return [
            *(
                f"lost: the acknowledged task {task} is not there"
                for task in acknowledgements
                if task not in tasks
            ),
            *(
                f"lost: task {task} had ended, and is {tasks.get(task)}"
                for task in ends
                if tasks.get(task) != "processed"
            ),
        ]


def _shop() -> tuple[App, Workflow[[str], str]]:
    app = App("shop")
    stock = app.agent("stock")

    @stock.action(complete_within="30s", undo=NOTHING)
    async def reserve(order: str) -> str:
        return f"hold of {order}"

    @app.workflow(complete_within="1m")
    def place_order(order: str) -> str:
        return reserve(reserve(order))

    return app, place_order


async def _live(folder: Path, birth: Birth) -> None:
    app, place_order = _shop()
    store = SQLiteStore(folder / NAME, poll=None)
    await store.open(migrate=True)
    birth.tape.mark("open", 1)

    async def customer(number: int, node: Node) -> None:
        task = await node.client.submit(place_order, f"o{number}", key=f"o{number}")
        birth.told.append(task.number)
        birth.tape.mark("told", len(birth.told))
        await task.result(timeout=60)
        birth.ended.append(task.number)
        birth.tape.mark("ended", len(birth.ended))

    async with Node(app, store) as node:
        await asyncio.gather(*(customer(number, node) for number in range(_TASKS)))
    await store.close()


def born(folder: Path) -> Birth:
    """Create a store in an empty folder and return what happened. Raises ``ListeningError`` if its writes
    cannot be recorded.
    """
    birth = Birth()
    with listening(folder, birth.tape):
        asyncio.run(_live(folder, birth))
    return birth
