"""``makegood lane``: the lanes of a store, who holds each and who waits."""

import click

from makegood.base import ids
from makegood.base.counts import up_to
from makegood.base.did_you_mean import did_you_mean
from makegood.base.durations import short_duration
from makegood.cli.client import run_read
from makegood.cli.context import Cli, at_most, command
from makegood.client import as_json
from makegood.client.client import Client
from makegood.errors import TaskNotFoundError
from makegood.store.lane_views import COUNTED, LaneView
from makegood.story.lanes import holder_text

SIMILAR = 1000
"""Lanes that are compared with a name that no task holds or waits for, at most."""

_of_app = click.option("--app", metavar="NAME", help="Only lanes of this app.")


class AppAndName(click.ParamType[tuple[str, str]]):
    """A lane as APP/NAME."""

    name = "app/name"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Return the app and the name; anything else is a usage error."""
        app, mark, name = str(value).partition("/")
        if not mark:
            self.fail(f"{str(value)!r} is not a lane: write APP/NAME", param, ctx)
        return app, name


@command("list")
@_of_app
@at_most()
@click.option("--after", type=AppAndName(), metavar="APP/NAME", help="Only lanes behind this one.")
def list_(cli: Cli, /, *, app: str | None, limit: int, after: tuple[str, str] | None) -> None:
    """List the lanes that tasks hold or wait for: who holds each, how many wait, and for how long the first
    of them.
    """

    async def read(client: Client) -> tuple[list[LaneView], float]:
        return await client.lanes(app, limit=limit, after=after), await client.store.now()

    views, now = run_read(cli, read)
    rows = (
        (
            f"{view.app}/{view.name}", holder_text(view), up_to(view.waiting, COUNTED),
            ids.show(view.waiters[0].task) if view.waiters else None,
            short_duration(max(0.0, now - view.waiters[0].since)) if view.waiters else None,
        )
        for view in views
    )  # fmt: skip
    heads = ("lane", "held by", "waiting", "first", "since")
    cli.out.listing(map(as_json.lane, views), heads, rows, empty="no task holds a lane, or waits for one")
    if len(views) == limit:
        cli.note(f"makegood: there may be more: --after {views[-1].app}/{views[-1].name}")


@command()
@click.argument("name")
@_of_app
def show(cli: Cli, /, *, name: str, app: str | None) -> None:
    """Show a lane: who holds it, and who waits for it, in the order in which they will go. If several apps
    have a lane of that name, show each.
    """

    async def read(client: Client) -> tuple[list[LaneView], str, float]:
        views = await client.lanes(app, name)
        hint = (
            ""
            if views
            else did_you_mean(name, {view.name for view in await client.lanes(app, limit=SIMILAR)})
        )
        return views, hint, await client.store.now()

    views, hint, now = run_read(cli, read)
    if not views:
        raise TaskNotFoundError(
            f"no task holds lane {name!r} or waits for it: {hint or f'`makegood task list lane:{name}` lists those that did'}"
        )
    rows = (
        (
            f"{view.app}/{view.name}", place, ids.show(member.task), member.workflow, member.key, member.state,
            member.at_once, short_duration(max(0.0, now - member.since)),
        )
        for view in views
        for place, member in (
            *(("holds it", member) for member in view.holders),
            *((str(n), member) for n, member in enumerate(view.waiters, 1)),
        )
    )  # fmt: skip
    heads = ("lane", "place", "task", "workflow", "key", "state", "at once", "since")
    cli.out.listing(map(as_json.lane, views), heads, rows, empty="no task")
    for view in views:
        if (more := view.waiting - len(view.waiters)) > 0:
            count = f"more than {COUNTED - len(view.waiters):,}" if view.waiting > COUNTED else f"{more:,}"
            cli.note(f"makegood: {count} more wait for {view.app}/{view.name}")
        for member in view.holders:
            if member.state == "error" and view.waiters and not cli.json:
                cli.note(
                    f"makegood: {ids.show(member.task)} is in error, and the others wait for it: `makegood task show {ids.show(member.task)}` lists what "
                    f"you can do; `makegood lane release {ids.show(member.task)}` lets them continue before that"
                )
