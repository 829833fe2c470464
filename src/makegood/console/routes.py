"""The one list of routes. Each says who may use it; what is not in the list does not exist."""

from makegood.console import exports
from makegood.console.acts import TaskActs
from makegood.console.bulk_forms import BulkForms
from makegood.console.login import LoginPages
from makegood.console.pages import (
    agents,
    alerts,
    audit,
    backfill,
    brokers,
    bulk,
    cluster,
    errors,
    lanes,
    overview,
    schedules,
    stores,
    task,
    tasks,
)
from makegood.console.static_files import StaticFiles
from makegood.console.visits import Route, page


def routes(
    files: StaticFiles, login: LoginPages, acts: TaskActs, forms: BulkForms, *more: Route
) -> tuple[Route, ...]:
    """Return all routes of a console; ``more``: of its API and its live streams."""
    return (
        page("/", overview.context, "overview.html", here="overview"),
        page("/tasks/{id}", task.context, "task.html", here="tasks"),
        page("/tasks", tasks.context, "tasks.html", here="tasks", leads=tasks.only_one),
        page("/alerts", alerts.context, "alerts.html", here="alerts"),
        page("/errors", errors.context, "errors.html", here="errors"),
        page("/errors/{name}", errors.group, "error.html", here="errors"),
        page("/agents", agents.context, "agents.html", here="agents"),
        page("/cluster", cluster.context, "cluster.html", here="cluster"),
        page("/schedules", schedules.context, "schedules.html", here="schedules"),
        page("/schedules/backfill", backfill.context, "backfill.html", here="schedules", role="operator"),
        page("/lanes", lanes.context, "lanes.html", here="lanes"),
        page("/lanes/show", lanes.lane, "lane.html", here="lanes"),
        page("/brokers", brokers.context, "brokers.html", here="brokers"),
        page("/bulk", bulk.context, "bulk.html", here="bulk"),
        page("/bulk/new", bulk.new, "bulk_new.html", here="bulk", role="operator"),
        page("/bulk/{id}", bulk.detail, "bulk_act.html", here="bulk"),
        page("/audit", audit.context, "audit.html", here="audit"),
        page("/stores", stores.context, "stores.html", here="stores"),
        page("/stores/doctor", stores.doctor, "stores.html", here="stores", role="operator"),
        *exports.routes(),
        *acts.routes(),
        *forms.routes(),
        *more,
        Route(path="/login", role="everyone", kind="login", respond=login.show),
        Route(path="/login", role="everyone", kind="login", respond=login.enter, methods=("POST",)),
        Route(path="/logout", role="viewer", kind="login", respond=login.leave, methods=("POST",)),
        Route(path="/static/{hash}/{file:path}", role="everyone", kind="file", respond=files.respond),
    )
