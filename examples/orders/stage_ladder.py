"""The ladder of the order that is followed, drawn as the console draws it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from markupsafe import Markup

from makegood.base.ids import show
from makegood.console.render import Renderer
from makegood.store.views import TaskDetail


@dataclass(frozen=True, slots=True)
class Drawn:
    """A ladder, None if there is no task yet, and where the console has the task."""

    html: Markup | None = None
    path: str = ""


class Ladder:
    """Draws ladders. ``task``: finds the task of an order."""

    def __init__(self, task: Callable[[str], Awaitable[TaskDetail | None]]) -> None:
        self._task = task

    async def path(self, order: str) -> str:
        """Return the console's path of an order's task, "" if there is none."""
        found = await self._task(order)
        return f"/tasks/{show(found.task.id)}" if found else ""

    async def draw(self, renderer: Renderer, order: str) -> Drawn:  # noqa: ARG002 - the console draws no ladder yet
        """Return the ladder of an order."""
        found = await self._task(order) if order else None
        if found is None:
            return Drawn()
        return Drawn(path=f"/tasks/{show(found.task.id)}")
