"""``makegood run | scheduler | agent | supervisor``: processes that run the actors until SIGTERM or Ctrl-C, then drain.

Logs go to stderr. With ``--json`` one object on stdout says that the process has started, another that it has stopped.
"""

import asyncio
import dataclasses
import logging
import sys

import click

from makegood.cli.context import Cli, common, pass_cli, setting
from makegood.cli.loading import load_app
from makegood.cli.output import masked
from makegood.cli.settings import LEVELS
from makegood.cli.store import set_up
from makegood.node import Node
from makegood.store import open_store
from makegood.workflow import App

slots_option = setting("slots", metavar="N", text="Slots of each agent, instead of its concurrency.")
every_option = setting("every", metavar="DURATION", text="The Supervisor's interval (default 5s).")
drain_option = setting(
    "drain", metavar="DURATION", text="How long an orderly end may wait for what runs (default 30s)."
)
level_option = setting("log_level", metavar="LEVEL", text=f"One of {', '.join(LEVELS)} (default info).")


@click.command()
@click.argument("app", metavar="APP")
@slots_option
@every_option
@drain_option
@level_option
@common
@pass_cli
def run(cli: Cli, /, *, app: str) -> None:
    """Run every role of APP in one process, such as `makegood run orders:shop`. An empty store is set up first."""
    loaded = load_app(app)
    asyncio.run(_set_up_when_empty(cli))
    _serve(cli, loaded, ("scheduler", "agent", "supervisor"), None)


@click.command()
@drain_option
@level_option
@common
@pass_cli
def scheduler(cli: Cli) -> None:
    """Run a Scheduler: it claims tasks, puts their steps in order and records every change. It never imports your code."""
    _serve(cli, None, ("scheduler",), None)


@click.command()
@click.argument("app", metavar="APP")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@slots_option
@drain_option
@level_option
@common
@pass_cli
def agent(cli: Cli, /, *, app: str, names: tuple[str, ...]) -> None:
    """Run the named agents of APP, such as `makegood agent orders:shop payments stock`."""
    loaded = load_app(app)
    if unknown := [name for name in names if name not in loaded.agents]:
        raise click.UsageError(
            f"app {loaded.name!r} declares no agent {unknown[0]!r}; it has {', '.join(loaded.agents) or 'none'}"
        )
    _serve(cli, loaded, ("agent",), names)


@click.command()
@click.option(
    "--once",
    is_flag=True,
    help="One pass, for cron: take the lease, watch one interval, judge, give it back.",
)
@every_option
@level_option
@common
@pass_cli
def supervisor(cli: Cli, /, *, once: bool) -> None:
    """Run a Supervisor: it finds what is overdue or left behind and asks for the remedy. Many may run, one leads."""
    if not once:
        _serve(cli, None, ("supervisor",), None)
        return
    _log(cli)
    node = Node(None, cli.settings.store, roles=("supervisor",), options=cli.settings.options)
    found = asyncio.run(node.supervise_once())
    if cli.json:
        cli.out.document(
            {"led": found is not None, **(dataclasses.asdict(found) if found is not None else {})}
        )
    elif found is None:
        cli.out.text("another supervisor leads: nothing to do")
    else:
        cli.out.text(
            f"judged {found.judged} attempts, freed {found.released} tasks of dead and {found.deaf} of deaf schedulers, "
            f"{found.expired} tasks past their complete-by, {found.starved} requests that no agent takes"
        )


async def _set_up_when_empty(cli: Cli) -> None:
    """Set up an empty store. One that is only old is left to `makegood store migrate`."""
    store = open_store(cli.settings.store)
    try:
        for name in await set_up(cli, store, empty=True):
            cli.note(f"applied {name} to {masked(cli.settings.store)}")
    finally:
        await store.close()


def _log(cli: Cli) -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=cli.settings.log_level.upper(),
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
    )


def _serve(cli: Cli, app: App | None, roles: tuple[str, ...], agents: tuple[str, ...] | None) -> None:
    """Run a node until it is told to stop."""
    _log(cli)
    node = Node(app, cli.settings.store, roles=roles, agents=agents, options=cli.settings.options)
    names = list(agents or (app.agents if app is not None else ()))
    what = {
        "name": node.name, "roles": list(roles), "store": masked(cli.settings.store),
        "app": None if app is None else app.name, "agents": names,
    }  # fmt: skip

    def say(event: str) -> None:
        if cli.json:
            cli.out.record({"event": event, "node": node.number, **what})
        elif event == "started":
            named = [f"agent ({', '.join(names)})" if role == "agent" else role for role in roles]
            cli.note(f"makegood: {', '.join(named)} on {what['store']}; Ctrl-C or SIGTERM drains and stops")

    asyncio.run(node.run(lambda: say("started")))
    say("stopped")
