"""``makegood run | scheduler | agent | supervisor | inbox``: processes that run the actors.

They run until SIGTERM or Ctrl-C, then drain. Logs go to stderr. With ``--json`` one object on stdout reports
that the process has started, another that it has stopped.
"""

import asyncio
import dataclasses
import logging
import os
import sys

import click

from makegood.base.counts import quantity
from makegood.base.durations import short_duration
from makegood.base.postgres_target import with_tls
from makegood.base.private_files import secret_in
from makegood.brokers import KINDS
from makegood.brokers.address import is_address
from makegood.cli import event_loop
from makegood.cli.client import looking
from makegood.cli.commands.store import set_up, with_store
from makegood.cli.console_settings import console_options, link_to_print
from makegood.cli.context import Cli, command, flag, setting, with_options
from makegood.cli.import_app import load_app
from makegood.cli.logs_and_telemetry import set_up_logs, telemetry_of
from makegood.cli.render.output import mask
from makegood.cli.settings import LEVELS
from makegood.console.options import ConsoleOptions
from makegood.messaging.outbox import ddl as outbox_ddl
from makegood.node.node import Node
from makegood.supervisor.supervisor import LEASE, Pass
from makegood.workflow.app import App

log = logging.getLogger("makegood.cli")

slots_option = setting("slots", metavar="N", text="Concurrent calls per agent; overrides concurrency=.")
every_option = setting("supervise_every", metavar="DURATION", text="The Supervisor's interval. [default: 5s]")
drain_option = setting(
    "drain",
    metavar="DURATION",
    text="On shutdown, wait this long for running calls [default: 30s]. A second SIGTERM or Ctrl-C exits at once.",
)
process_options = with_options(
    setting(
        "name",
        metavar="NAME",
        text="Call this process NAME-PID in lists. [default: the host's name and the pid]",
    ),
    setting(
        "listen",
        metavar="HOST:PORT",
        text="Serve /livez, /readyz, /startupz and /metrics at this address; port 0 picks a free port.",
    ),
    setting("traces", metavar="on|off", text="Send a span for each attempt, by OTLP. [default: off]"),
    setting("log_level", metavar="LEVEL", text=f"One of {', '.join(LEVELS)}. [default: info]"),
    setting("log_format", metavar="FORMAT", text="text (the default), or json: an object a line."),
)
console_option = setting(
    "console",
    metavar="HOST:PORT",
    text="Serve the console at this address, such as 127.0.0.1:8640; port 0 picks a free port.",
)


@command()
@click.argument("app", metavar="APP")
@slots_option
@every_option
@drain_option
@process_options
@console_option
def run(cli: Cli, /, *, app: str) -> None:
    """Run all roles of APP in one process, such as `makegood run orders:shop`. Creates the tables in an
    empty store.
    """
    application = load_app(app)
    # A store that is only old is left to `makegood store migrate`.
    for name in with_store(cli, lambda store: set_up(cli, store, empty=True)):
        cli.note(f"applied {name} to {cli.store}")
    roles = ("scheduler", "agent", "supervisor", *(("inbox",) if application.inboxes else ()))
    page = None if cli.settings.console is None else console_options(cli.settings)
    _serve(cli, application, roles, None, console=page)


@command()
@drain_option
@process_options
def scheduler(cli: Cli) -> None:
    """Run a Scheduler: it claims tasks, puts their steps in order and records every change. It never imports
    your code.
    """
    _serve(cli, None, ("scheduler",), None)


@command()
@click.argument("app", metavar="APP")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@slots_option
@drain_option
@process_options
def agent(cli: Cli, /, *, app: str, names: tuple[str, ...]) -> None:
    """Run the named agents of APP, such as `makegood agent orders:shop payments stock`."""
    application = load_app(app)
    if unknown := [name for name in names if name not in application.agents]:
        raise click.UsageError(
            f"app {application.name!r} declares no agent {unknown[0]!r}; it has {', '.join(application.agents) or 'none'}"
        )
    _serve(cli, application, ("agent",), names)


@command()
@click.argument("app", metavar="[APP]", required=False)
@click.option(
    "--from",
    "outbox",
    metavar="URL",
    envvar="MAKEGOOD_OUTBOX",
    help="Copy orders from the table makegood_outbox of another database, or from a place at a broker such as amqp:main/orders, "
    "into queues of the store; else MAKEGOOD_OUTBOX.",
)
@flag("--ddl", text="With --from: print the statement that creates that table, and exit.")
@drain_option
@process_options
def inbox(cli: Cli, /, *, app: str | None, outbox: str | None, ddl: bool) -> None:
    """Run the inboxes of APP, such as `makegood inbox orders:shop`: messages of their queues become tasks.

    With --from it also copies orders from another database or a broker, each key once, however many of these
    processes run. Without APP it only copies them; they become tasks where an APP runs. What a broker
    delivers goes into the queue amqp-main-orders, or the one of --from "amqp:main/orders?queue=orders".
    """
    if ddl:
        if outbox is None:
            raise click.UsageError("--ddl needs --from: whether sqlite:///… or postgresql://…")
        if is_address(outbox, KINDS):
            raise click.UsageError("--ddl is for the outbox in a database: a broker has no table")
        for line in outbox_ddl(outbox).split("\n"):
            cli.out.text(line)
        return
    application = None if app is None else load_app(app)
    if application is None and outbox is None:
        raise click.UsageError("say what to run: APP, whose inboxes take messages, or --from URL, or both")
    if application is not None and not application.inboxes:
        raise click.UsageError(
            f'app {application.name!r} declares no inbox: @app.inbox("orders") above a function'
        )
    _serve(cli, application, () if application is None else ("inbox",), None, outbox)


@command()
@flag(
    "--once",
    text="One pass, for cron: acquire the lease, wait one interval, judge what is overdue, release the lease.",
)
@every_option
@process_options
def supervisor(cli: Cli, /, *, once: bool) -> None:
    """Run a Supervisor: it finds what is overdue or left behind and asks for the remedy. Many may run, one
    leads.
    """
    if not once:
        _serve(cli, None, ("supervisor",), None)
        return
    set_up_logs(cli)
    outcome = asyncio.run(_supervise_once(cli))
    if outcome is None:
        cli.out.result({"led": False}, "another supervisor leads: nothing to do")
    else:
        cli.out.result(
            {"led": True, **dataclasses.asdict(outcome)},
            f"judged {quantity(outcome.judged, 'attempt')}, freed {quantity(outcome.released, 'task')} of dead and "
            f"{outcome.deaf} of unresponsive Schedulers, {quantity(outcome.expired, 'task')} past the deadline, "
            f"{quantity(outcome.starved, 'request')} that no agent takes",
        )


async def _supervise_once(cli: Cli) -> Pass | None:
    """Make one pass, None when another Supervisor leads.

    The command waits while the other one may give up its lease, and announces that wait first.
    """
    wait = cli.settings.options.number("lease") * 1.5
    async with looking(cli) as client:
        view = await client.store.leases.read(LEASE)
    if view is not None and view.held:
        cli.note(f"makegood: {view.holder} leads; waiting up to {short_duration(wait)} for its lease")
    settings = cli.settings
    node = Node(None, settings.store, roles=("supervisor",), name=_name(cli), options=settings.options)
    return await node.supervise_once(wait)


def _name(cli: Cli) -> str | None:
    """Return the name that a process was given; the pid keeps two of that name apart, and their leases."""
    return None if cli.settings.name is None else f"{cli.settings.name}-{os.getpid()}"


def _serve(
    cli: Cli,
    app: App | None,
    roles: tuple[str, ...],
    agents: tuple[str, ...] | None,
    outbox: str | None = None,
    *,
    console: ConsoleOptions | None = None,
) -> None:
    """Run a node until it is asked to stop."""
    set_up_logs(cli)
    telemetry = telemetry_of(cli)
    node = Node(
        app,
        cli.settings.store,
        roles=roles,
        agents=agents,
        name=_name(cli),
        options=cli.settings.options,
        telemetry=telemetry,
        outbox=_outbox(cli, outbox),
        console=console,
    )
    names = list(agents or (app.agents if app is not None else ()))
    what = {
        "name": node.name, "roles": list(node.roles), "store": cli.store,
        "app": None if app is None else app.name, "agents": names,
    }  # fmt: skip

    def say(event: str) -> None:
        address = "" if telemetry is None else telemetry.address
        if cli.json:
            listens = {"listen": address} if address else {}
            if node.console:
                link = link_to_print(node.console_link, node.console, sys.stdout)
                listens |= {"console": node.console, "link": link}
            cli.out.record({"event": event, "node": node.number, **what, **listens})
        elif event == "started":
            queues = ", ".join(app.inboxes) if app is not None else ""
            inside = {"agent": f"agent ({', '.join(names)})", "inbox": f"inbox ({queues})"}
            inside["relay"] = (
                f"relay from {outbox if outbox and is_address(outbox, KINDS) else mask(outbox or '')}"
            )
            role_names = [inside.get(role, role) for role in node.roles]
            page = f"; probes and metrics on {address}" if address else ""
            if node.console:
                link = link_to_print(node.console_link, node.console, sys.stderr, cli.settings.log_format)
                page += f"; console on {link}"
            text = f"{', '.join(role_names)} on {what['store']}{page}; Ctrl-C or SIGTERM drains and stops"
            if cli.settings.log_format == "json":
                log.info("%s", text)  # who reads objects, a line each, reads nothing else
            else:
                cli.note(f"makegood: {text}")

    event_loop.run(node.run(lambda: say("started")))
    say("stopped")


def _outbox(cli: Cli, outbox: str | None) -> str | None:
    """Return what orders are copied from: with ``require_tls`` a database over TLS alone."""
    if outbox is None or is_address(outbox, KINDS) or not cli.settings.require_tls:
        return outbox
    return with_tls(secret_in(outbox, "--from"))
