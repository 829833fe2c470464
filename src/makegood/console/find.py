"""The search in the head of each page: to the task with this id or key, or to a list of tasks."""

from urllib.parse import urlencode

from starlette.responses import RedirectResponse, Response

from makegood.base import ids
from makegood.console.pages.tasks import search
from makegood.console.visits import Route, Visit
from makegood.errors import ConfigError
from makegood.store.filters import wanted
from makegood.store.views import Filter


def route() -> Route:
    """Return the route of the search."""
    return Route(path="/find", role="viewer", kind="page", respond=respond, here="tasks")


async def respond(visit: Visit) -> Response:
    """Lead to the one task that is meant, else to the list of those that match ``q``, right or wrong."""
    text = visit.query.get("q", "").strip()
    path = f"/tasks?{urlencode({'q': text})}" if text else "/tasks"
    try:
        asked = wanted(text)
    except ConfigError:
        asked = Filter()
    if asked.word is not None and asked == Filter(word=asked.word):
        found = (await search(visit.reads, Filter(word=asked.word, limit=2))).tasks
        if len(found) == 1:
            path = f"/tasks/{ids.show(found[0].id)}"
    return RedirectResponse(visit.origin.base + path, 303)
