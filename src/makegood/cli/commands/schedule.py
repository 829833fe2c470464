"""``makegood schedule``: the schedules of a store, and when a cron text fires."""

from datetime import UTC, datetime
from itertools import islice
from typing import Any

import click

from makegood.base import ids, zones
from makegood.base.clock import iso
from makegood.base.counts import quantity
from makegood.base.did_you_mean import did_you_mean
from makegood.base.durations import short_duration
from makegood.cli.client import run_read, run_work
from makegood.cli.command import Whole
from makegood.cli.context import Cli, by_operator, command, flag, lasting, naming_options
from makegood.cli.import_app import load_app
from makegood.client import as_json
from makegood.client.client import Client
from makegood.client.handle import TaskHandle
from makegood.client.schedules import ScheduleHandle, preview_backfill
from makegood.moments.clock_effects import AHEAD, clock_effects
from makegood.moments.cron import Cron
from makegood.moments.moment import ScheduleMoment, in_utc
from makegood.store.schedule_records import ScheduleView
from makegood.supervisor.supervisor import LEASE

_LATEST = datetime(9990, 1, 1, tzinfo=UTC)
_EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)


class When(click.ParamType[datetime]):
    """A point in time in ISO 8601: a date, or a date and a time, with or without an offset from UTC."""

    name = "when"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Return the datetime; anything else is a usage error."""
        try:
            return datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(
                f"{str(value)!r} is not a point in time: write 2026-03-28, 2026-03-28T09:00 or 2026-03-28T09:00Z",
                param,
                ctx,
            )


@command("next")
@click.argument("cron", metavar="CRON", nargs=-1, required=True)
@click.option(
    "--timezone", metavar="ZONE", default="UTC", show_default=True, help="The IANA name of the time zone."
)
@click.option(
    "--from",
    "start",
    type=When(),
    metavar="WHEN",
    help="Show moments after this one; without an offset it is a time in ZONE. [default: now]",
)
@click.option("--count", type=Whole(1, 1000), default=5, show_default=True, help="Show N moments.")
def next_(cli: Cli, /, *, cron: tuple[str, ...], timezone: str, start: datetime | None, count: int) -> None:
    """Show when a schedule with the cron text CRON fires, in UTC and in the time zone. It marks moments
    that fall into a gap or a fold of the clocks, and warns of those within two years. It needs no store.

    CRON has five fields (minute, hour, day of month, month, day of week), or six with the seconds first.
    """
    if len(cron) > 1:
        raise click.UsageError(
            f"quote the CRON, such as '0 9 * * MON-FRI': it is one argument, and the shell passed {len(cron)}"
        )
    schedule = Cron(cron[0], timezone)
    begin = _instant(start, timezone).astimezone(UTC)
    moments = [*islice(schedule.after(begin), count)]
    cli.out.listing(
        map(as_json.moment, moments),
        ("moment", "local", "mark"),
        map(_row, moments),
        empty=f"no moment after {in_utc(begin)}",
    )
    for effect in clock_effects(schedule, begin, begin + AHEAD):
        cli.note(f"makegood: warning: {effect}")
    if not cli.json:
        cli.note(f"zone rules: {zones.current()}")


def _instant(start: datetime | None, timezone: str, option: str = "--from") -> datetime:
    """Return a moment on the clock by which the reader wrote it."""
    if start is None:
        return datetime.now(UTC)
    instant = start if start.tzinfo else start.replace(tzinfo=zones.zone(timezone))
    try:
        at = instant.astimezone(UTC)
    except OverflowError:
        at = _LATEST
    if not _EARLIEST <= at < _LATEST:
        raise click.UsageError(f"{option}: write a year from 1900 to 9989")
    return instant


def _row(moment: ScheduleMoment) -> tuple[str, str, str]:
    marks = {
        None: "",
        "gap": f"gap: {moment.wall:%Y-%m-%d %H:%M} does not exist",
        "fold": f"fold: the {'second' if moment.is_second else 'first'} of two",
    }
    return in_utc(moment.at), f"{moment.local:%a %Y-%m-%d %H:%M:%S %z}", marks[moment.mark]


# -- the schedules of a store --------------------------------------------------------------------------------

_of_app = click.option(
    "--app", metavar="NAME", help="The schedule of this app, if several apps have one of that name."
)


@command("list")
@click.option("--app", metavar="NAME", help="Only schedules of this app.")
def list_(cli: Cli, /, *, app: str | None) -> None:
    """List the schedules in the store: when they fire next, in UTC, the state of their last task, and how
    many moments have no task.
    """

    async def read(client: Client) -> tuple[list[ScheduleView], bool]:
        lease = await client.store.leases.read(LEASE)
        schedules = await client.schedules()
        return [each.view for each in schedules], lease is not None and lease.held

    stored, is_led = run_read(cli, read)
    views = [view for view in stored if app in (None, view.app)]
    rows = (
        (
            f"{view.app}/{view.name}", view.workflow, view.times, _utc(view.next_firing), _state(view),
            view.last_state, view.firings, _skip_counts(view),
        )
        for view in views
    )  # fmt: skip
    heads = ("schedule", "workflow", "times", "next", "state", "last task", "fired", "skipped")
    empty = "no schedules" if app is None else f"no schedules of app {app!r}"
    cli.out.listing(map(as_json.schedule, views), heads, rows, empty=empty)
    if app is not None and not views and (hint := did_you_mean(app, {view.app for view in stored})):
        cli.note(f"makegood: {hint}")
    if views and not is_led:
        cli.note(
            "makegood: warning: nobody leads, so nobody fires schedules: start `makegood supervisor`, or `makegood run`"
        )


def _utc(seconds: float | None) -> str:
    """Return an instant in UTC, to the second; "-" for None."""
    return "-" if seconds is None else f"{iso(seconds)[:19]}Z"


def _state(view: ScheduleView) -> str:
    if view.trouble:
        return "failing"
    if view.paused_at is not None:
        return f"paused until {_utc(view.paused_until)}" if view.paused_until is not None else "paused"
    if view.is_buffered:
        return "a moment waits"
    return "" if view.next_moment is not None else "over"


def _skip_counts(view: ScheduleView) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in sorted(view.skips.items()))


@command()
@click.argument("name")
@_of_app
@click.option("--count", type=Whole(1, 1000), default=5, show_default=True, help="Show N moments.")
def show(cli: Cli, /, *, name: str, app: str | None, count: int) -> None:
    """Show a schedule: its times and policies, its last task, what it skipped, and its next moments by the
    zone rules of this machine.
    """
    view = run_read(cli, lambda client: client.find_schedule(name, app=app)).view
    moments = view.upcoming(count)
    if cli.json:
        cli.out.document({**as_json.schedule(view), "upcoming": [*map(as_json.moment, moments)]})
        return
    last = "none" if view.last_task is None else f"{ids.show(view.last_task)} {view.last_state or 'is gone'}"
    lines = [
        ("schedule", f"{view.app}/{view.name} of {view.workflow}, {'declared' if view.is_declared else 'made by a client'}"),
        ("times", view.times + (f", delayed by up to {short_duration(view.jitter)}" if view.jitter else "")),
        ("policy", f"overlap {view.overlap}, catch up {short_duration(view.catch_up)}, {'the latest' if view.coalesce else 'all'} of late moments"),
        ("state", _state(view) or "runs"),
        ("last", last + (f", of {view.last_moment}" if view.last_moment else "")),
        ("fired", str(view.firings)),
        ("skipped", _skip_counts(view) or "none"),
    ]  # fmt: skip
    if view.paused_at is not None:
        lines.append(("paused by", f"{view.paused_by}{f': {view.paused_why}' if view.paused_why else ''}"))
    if view.trouble:
        lines.append(("trouble", view.trouble))
    for head, text in lines:
        cli.out.text(f"{head:<10}{text}")
    cli.out.text()
    cli.out.table(("moment", "local", "mark"), [*map(_row, moments)], empty="no further moment")
    cli.note(f"zone rules: {zones.current()}")


@command()
@click.argument("app", metavar="APP")
def apply(cli: Cli, /, *, app: str) -> None:
    """Write the schedules that APP declares to the store, as each process of APP does when it starts.
    Schedules that it no longer declares continue to fire: `schedule delete` removes them.
    """
    application = load_app(app)
    drafts = [schedule.draft for schedule in application.schedules.values()]

    async def work(client: Client) -> tuple[list[str], list[ScheduleHandle]]:
        rows = [await draft.seal() for draft in drafts]
        return await client.store.schedules.apply(rows), await client.schedules(application.name)

    outcomes, handles = run_work(cli, work)
    shapes = [
        {"app": draft.spec.app, "name": draft.spec.name, "outcome": outcome}
        for draft, outcome in zip(drafts, outcomes, strict=True)
    ]
    rows = [(f"{shape['app']}/{shape['name']}", shape["outcome"]) for shape in shapes]
    cli.out.listing(shapes, ("schedule", "outcome"), rows, empty=f"{app} declares no schedule")
    for handle in handles:
        if handle.view.is_declared and handle.name not in application.schedules:
            cli.note(
                f"makegood: warning: schedule {handle.name} is no longer declared and still fires: `makegood schedule delete {handle.name}` "
                f"removes it"
            )


@command()
@click.argument("name")
@_of_app
@lasting("--for", "length", text="Resume by itself after this; by default it stays paused.")
@by_operator
def pause(
    cli: Cli, /, *, name: str, app: str | None, length: float | None, why: str, who: str | None
) -> None:
    """Let a schedule fire no more. The moments of the pause are skipped for good: `schedule backfill` submits
    them.
    """

    async def work(client: Client) -> ScheduleView:
        return await (await client.find_schedule(name, app=app)).pause(length, why=why, who=who)

    with naming_options("for"):
        view = run_work(cli, work)
    cli.out.result(as_json.schedule(view), f"schedule {view.app}/{view.name} is {_state(view)}")


@command()
@click.argument("name")
@_of_app
@by_operator
def resume(cli: Cli, /, *, name: str, app: str | None, why: str, who: str | None) -> None:
    """Let a schedule fire again, from its next moment on."""

    async def work(client: Client) -> tuple[bool, ScheduleView]:
        handle = await client.find_schedule(name, app=app)
        return await handle.resume(why=why, who=who), await handle.status()

    resumes, view = run_work(cli, work)
    outcome = f"fires next at {_utc(view.next_firing)}" if resumes else "was not paused"
    if resumes and view.next_firing is not None and view.next_firing < datetime.now(UTC).timestamp():
        outcome = "is resumed: the leading Supervisor counts the moments of its pause, then it fires"
    cli.out.result(as_json.schedule(view), f"schedule {view.app}/{view.name} {outcome}")


@command()
@click.argument("name")
@_of_app
@by_operator
def trigger(cli: Cli, /, *, name: str, app: str | None, why: str, who: str | None) -> None:
    """Submit a task of a schedule now, whatever its times, its overlap or a pause say. The next moments
    treat it as the schedule's last task.
    """

    async def work(client: Client) -> TaskHandle[Any]:
        return await (await client.find_schedule(name, app=app)).trigger(why=why, who=who)

    task = run_work(cli, work)
    cli.out.result({"id": task.id}, task.id)


@command()
@click.argument("name")
@_of_app
@click.option("--since", type=When(), metavar="WHEN", required=True, help="From this moment on.")
@click.option("--until", type=When(), metavar="WHEN", required=True, help="Up to this moment, included.")
@click.option("--limit", type=Whole(1), default=1000, show_default=True, help="Refuse more moments.")
@flag("--dry-run", text="Only show the moments, and which of them have a task.")
@by_operator
def backfill(
    cli: Cli,
    /,
    *,
    name: str,
    app: str | None,
    since: datetime,
    until: datetime,
    limit: int,
    dry_run: bool,
    why: str,
    who: str | None,
) -> None:
    """Submit a task for each moment of a range that has none. Repeat it as you like: each moment has one
    task.

    A WHEN without an offset is a time in the schedule's time zone.
    """

    async def bounds(client: Client) -> tuple[ScheduleHandle, datetime, datetime]:
        handle = await client.find_schedule(name, app=app)
        zone = handle.view.timezone
        return handle, _instant(since, zone, "--since"), _instant(until, zone, "--until")

    async def look(client: Client) -> list[tuple[ScheduleMoment, int | None]]:
        handle, begin, end = await bounds(client)
        return await preview_backfill(handle, begin, end, limit)

    async def work(client: Client) -> list[TaskHandle[Any]]:
        handle, begin, end = await bounds(client)
        return await handle.backfill(begin, end, limit=limit, why=why, who=who)

    if dry_run:
        with naming_options("since", "until", "limit"):
            pairs = run_read(cli, look)
        names = [None if task is None else ids.show(task) for _, task in pairs]
        cli.out.listing(
            (as_json.moment(each) | {"task": task} for (each, _), task in zip(pairs, names, strict=True)),
            ("moment", "local", "mark", "task"),
            ((*_row(each), task or "would be new") for (each, _), task in zip(pairs, names, strict=True)),
            empty="no moment in this range",
        )
        cli.note(f"{names.count(None)} of {quantity(len(names), 'moment')} would get a task")
        return
    with naming_options("since", "until", "limit"):
        tasks = run_work(cli, work)
    new = sum(task.created for task in tasks)
    documents = ({"id": task.id, "created": task.created} for task in tasks)
    rows = ((task.id, "new" if task.created else "was there") for task in tasks)
    cli.out.listing(documents, ("task", "outcome"), rows, empty="no moment in this range")
    cli.note(f"{new} new of {len(tasks)}")


@command()
@click.argument("name")
@_of_app
@by_operator
def delete(cli: Cli, /, *, name: str, app: str | None, why: str, who: str | None) -> None:
    """Remove a schedule; its tasks stay. If an app declares it, the next process of the app writes it
    again.
    """

    async def work(client: Client) -> ScheduleHandle:
        handle = await client.find_schedule(name, app=app)
        await handle.delete(why=why, who=who)
        return handle

    handle = run_work(cli, work)
    cli.out.result(
        {"app": handle.app, "name": handle.name, "deleted": True},
        f"schedule {handle.app}/{handle.name} is deleted",
    )
    if handle.view.is_declared:
        cli.note(
            f"makegood: warning: app {handle.app} declares it: the next process that starts with the app writes it again, unless its code "
            f"no longer does"
        )
