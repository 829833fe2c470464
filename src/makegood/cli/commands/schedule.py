"""``makegood schedule``: when a schedule fires."""

from datetime import UTC, datetime
from itertools import islice
from typing import Any

import click

from makegood.base import zones
from makegood.cli.command import Whole
from makegood.cli.context import Cli, command
from makegood.moments.clock_effects import AHEAD, clock_effects
from makegood.moments.cron import Cron
from makegood.moments.moment import ScheduleMoment, in_utc

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
@click.argument("cron")
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
def next_(cli: Cli, /, *, cron: str, timezone: str, start: datetime | None, count: int) -> None:
    """Show when a schedule with the cron text CRON fires, in UTC and in the time zone. It marks moments
    that fall into a gap or a fold of the clocks, and warns of those within two years. It needs no store.

    CRON has five fields (minute, hour, day of month, month, day of week), or six with the seconds first.
    """
    schedule = Cron(cron, timezone)
    begin = _instant(start, timezone)
    moments = [*islice(schedule.after(begin), count)]
    documents = (
        {"moment": in_utc(moment.at), "local": moment.local.isoformat(), "mark": moment.mark}
        for moment in moments
    )
    cli.out.listed(
        documents, ("moment", "local", "mark"), map(_row, moments), empty=f"no moment after {in_utc(begin)}"
    )
    for effect in clock_effects(schedule, begin, begin + AHEAD):
        cli.note(f"makegood: warning: {effect}")
    if not cli.json:
        cli.note(f"zone rules: {zones.current()}")


def _instant(start: datetime | None, timezone: str) -> datetime:
    if start is None:
        return datetime.now(UTC)
    try:
        instant = (start if start.tzinfo else start.replace(tzinfo=zones.zone(timezone))).astimezone(UTC)
    except OverflowError:
        instant = _LATEST
    if not _EARLIEST <= instant < _LATEST:
        raise click.UsageError("--from: write a year from 1900 to 9989")
    return instant


def _row(moment: ScheduleMoment) -> tuple[str, str, str]:
    marks = {
        None: "",
        "gap": f"gap: {moment.wall:%Y-%m-%d %H:%M} does not exist",
        "fold": f"fold: the {'second' if moment.is_second else 'first'} of two",
    }
    return in_utc(moment.at), f"{moment.local:%a %Y-%m-%d %H:%M:%S %z}", marks[moment.mark]
