"""The audit as files: CSV and JSON Lines."""

import asyncio
from collections.abc import Callable, Sequence

from starlette.responses import Response

from makegood.console.pages import audit
from makegood.console.visits import Respond, Route, Visit
from makegood.store.views import AuditView


def routes() -> tuple[Route, ...]:
    """Return the routes of the files."""
    return (
        _file("/audit.csv", audit.as_csv, "text/csv; charset=utf-8"),
        _file("/audit.jsonl", audit.as_json_lines, "application/jsonl; charset=utf-8"),
    )


def _file(path: str, render: Callable[[Sequence[AuditView]], str], kind: str) -> Route:
    return Route(path=path, role="viewer", kind="page", respond=_respond(path, render, kind), here="audit")


def _respond(path: str, render: Callable[[Sequence[AuditView]], str], kind: str) -> Respond:
    async def respond(visit: Visit) -> Response:
        views = await audit.read(visit.reads, visit.query, audit.EXPORTED)
        name = f'attachment; filename="makegood-{path.removeprefix("/")}"'
        text = await asyncio.to_thread(render, views)
        return Response(text, headers={"content-disposition": name}, media_type=kind)

    return respond
