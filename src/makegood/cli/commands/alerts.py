"""``makegood alerts`` and ``makegood audit``: what an operator must see, and what operators did."""

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, get_args

import click
from msgspec.structs import replace

from makegood.base import durations, ids
from makegood.base.clock import SystemClock
from makegood.base.counts import quantity
from makegood.cli import corrected_inputs, exits
from makegood.cli.client import connect, run_read
from makegood.cli.context import Cli, at_most, command, flag, lasting, why_option
from makegood.cli.render.output import date_time
from makegood.client import as_json
from makegood.client.client import Client
from makegood.console.redaction import Redaction
from makegood.errors import MakegoodError
from makegood.messaging.alert_webhook import Webhook
from makegood.messaging.alerts import AlertSender
from makegood.model.messages import Alert, AlertKind
from makegood.store.views import AlertView, AuditView

View = TypeVar("View", AlertView, AuditView)

_LOOK = 0.2
_NOT_SET = "not set"


class _AlertId(click.ParamType[int]):
    """The number of an alert."""

    name = "ID"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number; a word such as ``list``, which other commands take, is an error."""
        try:
            return int(value)
        except ValueError:
            self.fail(
                f"{value!r} is not the number of an alert: `makegood alerts` alone lists them", param, ctx
            )


@command()
@click.option("--task", "task_id", metavar="ID", help="Only alerts of this task.")
@click.option(
    "--kind", metavar="KIND", type=click.Choice(get_args(AlertKind)), help="Only alerts of this kind."
)
@flag("--all", "everything", text="Include closed alerts.")
@click.option(
    "--ack", metavar="ID", type=int, multiple=True, help="Acknowledge this alert, and the IDs that follow."
)
@flag("--ack-all", "ack_all", text="Acknowledge all open alerts of --kind, of --task, or of both.")
@why_option("With --ack or --ack-all: why, for the audit.")
@click.option(
    "--who", metavar="NAME", help="With --ack, --ack-all or --test: the operator's name. [default: user@host]"
)
@flag("--test", "test", text="Send a test alert to the log and the webhook, and report which received it.")
@lasting("--timeout", default="15s", text="With --test: wait at most this long.")
@at_most()
@click.argument("others", metavar="[ID]...", nargs=-1, type=_AlertId())
def alerts(
    cli: Cli,
    /,
    *,
    others: tuple[int, ...],
    task_id: str | None,
    kind: str | None,
    everything: bool,
    ack: tuple[int, ...],
    ack_all: bool,
    why: str,
    who: str | None,
    test: bool,
    timeout: float,
    limit: int,
) -> int:
    """Show what needs an operator: open alerts first, then acknowledged ones, each newest first.

    An alert closes by itself when its cause has gone; --all shows closed alerts as well.
    """
    if bool(ack) + ack_all + test > 1:
        raise click.UsageError("--ack, --ack-all or --test: one of them")
    if why and not (ack or ack_all):
        raise click.UsageError("--reason goes with --ack or --ack-all")
    if who and not (ack or ack_all or test):
        raise click.UsageError("--who goes with --ack, --ack-all or --test")
    if ack_all and kind is None and task_id is None:
        raise click.UsageError("--ack-all: say of which alerts, with --kind or --task")
    if others and not ack:
        raise click.UsageError(
            f"alert {others[0]}: pass --ack to acknowledge it, or --task ID to list the alerts of a task"
        )
    if ack:
        return asyncio.run(_acknowledge(cli, (*ack, *others), who, why))
    if ack_all:
        return asyncio.run(_acknowledge_all(cli, kind, task_id, who, why))
    if test:
        return asyncio.run(_test(cli, who, timeout))
    views = _look(
        cli, task_id, lambda client: client.alerts(task_id, ended=everything, limit=limit, kind=kind)
    )
    rows = (
        (  # the mark of a test alert only serves to find it again
            v.id, date_time(v.at), v.kind, ids.show(v.task) if v.task else None, "" if v.kind == "test" else v.step, state_of(v), v.text
        )
        for v in views
    )  # fmt: skip
    heads = ("id", "at", "kind", "task", "step", "state", "what")
    cli.out.listing(map(as_json.alert, views), heads, rows, empty="no alerts")
    if not cli.json and any(view.task and view.ended is None for view in views):
        cli.note(
            "`makegood task show ID` lists what you can do about a task; `makegood alerts --ack ID` shows others that you work on it"
        )
    return exits.DONE


def _look(cli: Cli, task_id: str | None, read: Callable[[Client], Awaitable[list[View]]]) -> list[View]:
    """Return what a query finds about all tasks, or about one.

    Finding nothing is an error when there is no such task.
    """

    async def look(client: Client) -> list[View]:
        views = await read(client)
        if task_id is not None and not views:
            await client.task(task_id).status()  # raises when there is no such task
        return views

    return run_read(cli, look)


def state_of(view: AlertView) -> str:
    """Return what has become of an alert, in a few words."""
    if view.ended is not None:
        return f"ended: {view.ended_why}"
    return "open" if view.acked is None else f"acknowledged by {view.acked_by}"


async def _acknowledge(cli: Cli, numbers: tuple[int, ...], who: str | None, why: str) -> int:
    shapes: list[dict[str, Any]] = []
    async with connect(cli) as client:
        for alert in numbers:
            try:
                view = await client.acknowledge(alert, who=who, why=why)
                shapes.append({**as_json.alert(view), "code": exits.DONE})
                if not cli.json:
                    cli.out.text(f"alert {alert} {view.kind} acknowledged by {view.acked_by}")
            except MakegoodError as error:
                if len(numbers) == 1 and not cli.json:
                    raise
                shapes.append({"id": alert, "outcome": str(error), "code": exits.code_of(error)})
                cli.note(f"makegood: {error}")
    cli.out.result(shapes)
    return exits.of_many(shape["code"] for shape in shapes)


async def _acknowledge_all(cli: Cli, kind: str | None, task_id: str | None, who: str | None, why: str) -> int:
    async with connect(cli) as client:
        views = await client.acknowledge_all(kind=kind, task=task_id, who=who, why=why)
    by = f" by {views[0].acked_by}" if views else ""
    cli.out.result(list(map(as_json.alert, views)), f"{quantity(len(views), 'alert')} acknowledged{by}")
    return exits.DONE


async def _test(cli: Cli, asks: str | None, limit: float) -> int:
    """Raise a test alert and see which ways it takes.

    If no process runs that reports alerts, this one does.
    """
    async with connect(cli) as client:
        mark = uuid.uuid4().hex[:8]
        who = client.acts.new(asks, "").who
        await client.store.alerts.alert(
            [Alert("test", step=mark, text=f"a test alert ({mark}) by {who}: nothing is wrong")]
        )
        senders = [
            view
            for view in await client.store.nodes.views()
            if view.state == "alive" and {"scheduler", "supervisor"} & set(view.info.roles)
        ]
        if not senders:
            await _send(cli, client)
        view = await _after_test(
            client, mark, limit, webhook=bool(senders) or cli.settings.options.alert_webhook is not None
        )
    sender = "one process that runs" if len(senders) == 1 else f"one of {len(senders)} processes"
    by = f"by {sender}" if senders else "by this command: no process that reports alerts is running"
    hook = _webhook_outcome(
        view, limit, alone=not senders, has_address=cli.settings.options.alert_webhook is not None
    )
    cli.out.result(
        {**as_json.alert(view), "logged": view.logged > 0, "told": view.told > 0, "tries": view.tries},
        f"row      alert {view.id}: see `makegood alerts`",
        f"log      {f'written {by}' if view.logged else 'not written: no process answers'}",
        f"webhook  {hook}",
    )
    return exits.DONE if view.logged and (view.told or hook == _NOT_SET) else exits.FAILED


def _webhook_outcome(view: AlertView, limit: float, *, alone: bool, has_address: bool) -> str:
    """Return the outcome of the webhook, as far as the store knows.

    ``alone``: no process reports alerts, so this command did. ``has_address``: it knew the address.
    """
    if view.told:
        return "sent, and accepted"
    if alone and not has_address:
        return _NOT_SET
    where = "the lines above" if alone else "the log of the schedulers and supervisors"
    if view.tries:
        return f"sent, and not accepted: see {where}"
    return (
        f"not accepted within {durations.short_duration(limit)}: either alert_webhook is not set where a scheduler or supervisor runs, or the receiver has not "
        f"answered yet: see {where}"
    )


async def _send(cli: Cli, client: Client) -> None:
    options = cli.settings.options
    clock, rng = SystemClock(), random.Random()
    webhook = None
    if options.alert_webhook is not None:
        webhook = Webhook(options.alert_webhook, options.secrets, clock=clock)
    sender = AlertSender(client.store, webhook, pause=_LOOK, rng=rng)
    while await sender.once():
        pass


async def _after_test(client: Client, mark: str, limit: float, *, webhook: bool) -> AlertView:
    """Return the test alert once it was reported, or refused, in all possible ways, or as it is at the
    timeout.
    """
    now = asyncio.get_running_loop().time
    end = now() + limit
    while True:
        (view,) = [v for v in await client.store.alerts.views(1000) if v.kind == "test" and v.step == mark]
        if (view.logged and (view.told or view.tries or not webhook)) or now() > end:
            return view
        await asyncio.sleep(_LOOK)


@command()
@click.option("--task", "task_id", metavar="ID", help="Only operator commands on this task.")
@at_most()
def audit(cli: Cli, /, *, task_id: str | None, limit: int) -> None:
    """Show what operators did, newest first: who, when, why, and what became of it; on PostgreSQL also under
    which login.
    """
    views = _look(cli, task_id, lambda client: client.audit(task_id, limit=limit))
    logins = any(v.db_user is not None for v in views)
    rows = (
        (
            date_time(v.at), v.who, *((v.db_user,) if logins else ()), v.kind, ids.show(v.task) if v.task else None, v.verdict,
            v.why, "; ".join(part for part in (v.outcome, corrected_inputs.correction(v.change)) if part),
        )
        for v in views
    )  # fmt: skip
    user = ("database user",) if logins else ()
    heads = ("at", "who", *user, "act", "task", "verdict", "why", "what came of it")
    entries = (replace(v, change=Redaction().change(v.change)) for v in views)
    cli.out.listing(map(as_json.audit, entries), heads, rows, empty="no operator commands")
