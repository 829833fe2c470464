"""The ladder of the order that is followed, drawn as the console draws it."""

import re
from collections.abc import Collection
from dataclasses import dataclass

from markupsafe import Markup, escape
from msgspec.structs import replace

from makegood import Client
from makegood.base.ids import show
from makegood.console import looks
from makegood.console.pages.task import TaskChoice, TaskPage, TaskSources, task_page
from makegood.console.render import Renderer, Shell
from makegood.errors import StoreUnavailableError
from makegood.store.views import NodeView, TaskExcerpt

from .processes import Place
from .visitor import Visitor, waiting_step


@dataclass(frozen=True, slots=True)
class Drawn:
    """A ladder: its page data, None if there is no task yet, its drawing, where the console has the task, and the seconds left
    for somebody's answer, None if it waits for none.
    """

    page: TaskPage | None = None
    html: Markup | None = None
    path: str = ""
    answer_within: float | None = None


def at_console(console: str, path: str) -> str:
    """Return the address of a page of the console, whose own address ends with its token."""
    root, _, token = console.partition("/?")
    return f"{root}{path}?{token}"


class Ladder:
    """Draws ladders. ``visitor``: finds the task of an order; ``places``: the wall; ``console``: its address with its token, "" for none."""

    def __init__(
        self,
        client: Client,
        visitor: Visitor,
        places: Collection[Place],
        console: str,
    ) -> None:
        self._places = places
        self._names: dict[int, str] = {}
        self._client = client
        self._visitor = visitor
        self._console = console

    async def path(self, order: str) -> str:
        """Return the console's path of an order's task, "" if there is none."""
        detail = await self._visitor.task(order)
        return f"/tasks/{show(detail.task.id)}" if detail else ""

    async def draw(self, renderer: Renderer, order: str) -> Drawn:
        """Return the ladder of an order."""
        detail = await self._visitor.task(order) if order else None
        if detail is None:
            return Drawn()
        store = self._client.store
        try:
            nodes = [self._called(view) for view in await store.nodes.views()]
            sources = TaskSources(
                part=TaskExcerpt(detail, len(detail.steps)),
                events=await store.tasks.history(detail.task.id),
                nodes=nodes,
                now=await store.now(),
            )
        except StoreUnavailableError:
            return Drawn()
        page = task_page(sources, TaskChoice())
        html = renderer.page(
            Shell(), "order_ladder.html",
            {"page": page, "left_look": looks.left_look, "right_look": looks.right, "rung_line": looks.line},
        )  # fmt: skip
        step = waiting_step(detail)
        return Drawn(
            page,
            self._linked(html, page.path),
            page.path,
            None if step is None else max(0.0, step.due or 0.0),
        )

    def _called(self, view: NodeView) -> NodeView:
        """Call a process by its place on the wall."""
        self._names |= {place.pid: place.name for place in self._places}
        name = self._names.get(view.info.pid, view.info.name)
        return replace(view, info=replace(view.info, name=name))

    def _linked(self, html: str, path: str) -> Markup:
        """Have a rung lead to its attempts, which are on the console's page."""
        there = f'href="{escape(at_console(self._console, path))}#' if self._console else 'href="#live-'
        return Markup(re.sub(r'href="#(?=[aug]-)', there, html))  # noqa: S704 - drawn by a template, and escaped there
