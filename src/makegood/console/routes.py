"""The one list of routes. Each says who may use it; what is not in the list does not exist."""

from makegood.console.acts import TaskActs
from makegood.console.login import LoginPages
from makegood.console.pages import overview, task
from makegood.console.static_files import StaticFiles
from makegood.console.visits import Route, page


def routes(files: StaticFiles, login: LoginPages, acts: TaskActs) -> tuple[Route, ...]:
    """Return all routes of a console."""
    return (
        page("/", overview.context, "overview.html", here="overview"),
        page("/tasks/{id}", task.context, "task.html", here="tasks"),
        *acts.routes(),
        Route(path="/login", role="everyone", kind="login", respond=login.show),
        Route(path="/login", role="everyone", kind="login", respond=login.enter, methods=("POST",)),
        Route(path="/logout", role="viewer", kind="login", respond=login.leave, methods=("POST",)),
        Route(path="/static/{hash}/{file:path}", role="everyone", kind="file", respond=files.respond),
    )
