"""``makegood console``: pages for operators, served by a process of its own."""

import asyncio
import getpass
import sys

import click

from makegood.base.text import refuse_unstorable
from makegood.cli import event_loop
from makegood.cli.codec_option import codec_option
from makegood.cli.console_settings import console_options, link_to_print
from makegood.cli.context import Cli, command, flag, setting
from makegood.cli.logs_and_telemetry import set_up_logs
from makegood.cli.settings import LEVELS
from makegood.console import import_part
from makegood.console.options import DEFAULT
from makegood.console.users import ROLES, hash_password, role_of
from makegood.errors import ConfigError
from makegood.node.signals import Signals


@command()
@setting("console", "--listen", metavar="HOST:PORT", text=f"Listen at this address. [default: {DEFAULT}]")
@setting("console_base", metavar="PATH", text="The path under which a proxy serves the console.")
@setting(
    "console_role", metavar="ROLE", text="The role of users who have none otherwise: viewer, operator, admin."
)
@flag("--insecure", text="Let other machines in without a login; every page shows a warning.")
@click.option(
    "--hash-password", "name", metavar="NAME", help="Print the line of console_users for NAME, and end."
)
@click.option(
    "--role", default="viewer", show_default=True, metavar="ROLE", help="With --hash-password: their role."
)
@codec_option
@setting("log_level", metavar="LEVEL", text=f"One of {', '.join(LEVELS)}. [default: info]")
@setting("log_format", metavar="FORMAT", text="text (the default), or json: an object a line.")
def console(cli: Cli, /, *, insecure: bool, name: str | None, role: str) -> None:
    """Serve pages for operators: tasks, alerts, agents, the cluster, and acts on them."""
    if name is not None:
        cli.out.text(_line(name, role))
        return
    if insecure:
        cli.flags["console_insecure"] = "on"
    set_up_logs(cli)
    server = import_part("makegood.console.server").ConsoleServer(
        cli.settings.store, console_options(cli.settings, cli.codec)
    )
    store = cli.store

    async def serve() -> None:
        stop = asyncio.Event()
        await server.begin()
        with Signals(stop.set):
            if cli.json:
                link = link_to_print(server.link, server.address, sys.stdout)
                cli.out.record({"event": "started", "console": server.address, "link": link, "store": store})
            else:
                link = link_to_print(server.link, server.address, sys.stderr, cli.settings.log_format)
                cli.note(f"makegood: console of {store} on {link}; Ctrl-C or SIGTERM stops it")
            try:
                await stop.wait()
            finally:
                await server.end()

    event_loop.run(serve())
    if cli.json:
        cli.out.record({"event": "stopped", "console": server.address, "store": store})


def _line(name: str, role: str) -> str:
    """Return the line of the settings file for a user, whose password is asked for."""
    refuse_unstorable(ConfigError, name=name)
    if role not in ROLES or not name.strip() or '"' in name or "\\" in name or not name.isprintable():
        raise click.UsageError(
            f"--hash-password NAME --role ROLE: a printable name, and one of {', '.join(ROLES)}"
        )
    if sys.stdin.isatty():
        password = getpass.getpass(f"password of {name}: ")
        if password != getpass.getpass("again: "):
            raise click.UsageError("the two passwords differ")
    else:
        password = sys.stdin.readline().rstrip("\n")
    return f'"{name}" = "{role_of(role, "role")} {hash_password(password)}"'
