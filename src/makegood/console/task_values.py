"""Single values of a task as files: those that are too large for its page."""

import re
from typing import Final

from starlette.responses import Response

from makegood.console.acts import task_of
from makegood.console.covering import MOST, Covering
from makegood.console.visits import Denied, Route, Visit

_NAME: Final = re.compile(r"(result|inputs)|(step|error)-(\d{1,9})")


class TaskValues:
    """The route of the files."""

    def __init__(self, covering: Covering) -> None:
        self._covering = covering

    def route(self) -> Route:
        """Return the route."""
        return Route(path="/tasks/{id}/values/{name}", role="viewer", kind="page", respond=self.respond)

    async def respond(self, visit: Visit) -> Response:
        """Answer with a value, its secrets covered. Raises ``Denied`` if there is none or it is too large."""
        task, name = await task_of(visit), visit.params["name"]
        parts = _NAME.fullmatch(name)
        if parts is None:
            raise Denied(404, "Not found", "A task has no such value.")
        part = parts[1] or parts[2]
        value = await visit.client.store.tasks.value(task.id, part, int(parts[3] or 0), MOST)
        if value is None:
            raise Denied(404, "Not found", "The task has no such value (any more).")
        size, content = value
        if content is None:
            text = (
                f"{size:,} bytes are more than a console covers: `makegood task show ID --json` prints them."
            )
            raise Denied(413, "Too large", text)
        kind = "text/plain; charset=utf-8" if part == "error" else "application/json"
        body = content if part == "error" else await self._covering.mask(content)
        file = f"{visit.params['id']}-{name}.{'txt' if part == 'error' else 'json'}"
        return Response(
            body, headers={"content-disposition": f'attachment; filename="{file}"'}, media_type=kind
        )
