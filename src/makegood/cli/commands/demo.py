"""``makegood demo``: runs the order example, from the wheel or from a checkout."""

import sys
from importlib import import_module
from importlib.resources import files
from pathlib import Path

import click

from makegood.cli import exits
from makegood.cli.command import Whole
from makegood.cli.context import Cli, command, flag
from makegood.errors import ConfigError
from makegood.store import open_store


@command()
@flag("--headless", text="In the terminal, without the stage.")
@flag("--stage", text="With the stage, even if no terminal asks for it.")
@click.option(
    "--port", type=Whole(0, 65_535), metavar="N", help="The stage's port. [default: any that is free]"
)
@flag("--no-browser", text="Do not open a browser.")
@click.option("--seconds", type=Whole(1), metavar="N", help="End after so many seconds.")
@flag("--chaos", text="Kill a random process every few seconds.")
@click.option("--orders", type=Whole(1), metavar="N", help="How many orders, without the stage.")
@click.option("--kills", type=Whole(0), metavar="N", help="How many processes to kill, without the stage.")
@click.option("--schedulers", type=Whole(1), metavar="N", help="How many scheduler processes.")
@click.option(
    "--agents", type=Whole(1), metavar="N", help="How many agent processes. [default: two for each service]"
)
@click.option("--supervisors", type=Whole(1), metavar="N", help="How many supervisor processes.")
@click.option(
    "--seed",
    type=int,
    metavar="N",
    help="Decides what is ordered, what fails and what is killed. [default: random]",
)
@flag("--postgres", text="On a private PostgreSQL, started for the demo.")
@click.option(
    "--broker",
    type=click.Choice(["rabbitmq", "nats", "kafka", "redis"]),
    help="Orders come through a private broker, and notices go back through it.",
)
@flag("--keep", text="Keep the folder with the store, the books and the logs.")
def demo(cli: Cli, /, *, postgres: bool, keep: bool, **options: int | str | None) -> int:
    """Run the order system: a shop, the submission process, schedulers, agents, supervisors, the services
    and the console, each a process of its own. In a terminal you kill them by button on a page, the stage;
    it needs `makegood[console]`. Without the stage, some are killed by a plan. At the end the services' own
    books are audited: exits with 1 when they do not balance.
    """
    if postgres and "store" in cli.flags:
        raise click.UsageError("--store URL or --postgres, not both")
    arguments: list[str] = []
    store = cli.settings.store if "store" in cli.flags else None
    if store is not None:
        open_store(store)  # refused here, before a part of it is shown
    flags = {"postgres": postgres, "keep": keep, "json": cli.json}
    for name, value in (*options.items(), ("store", store)):
        if isinstance(value, bool):
            flags[name] = value
        elif value is not None:
            arguments += [f"--{name}", str(value)]
    for name, switch in flags.items():
        arguments += [f"--{name.replace('_', '-')}"] * switch
    folder = str(examples())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    code = import_module("orders.demo").main(arguments)
    return code if isinstance(code, int) else exits.DONE


def examples() -> Path:
    """Return the folder that holds the package ``orders``.

    It is inside the installed package, or beside ``src`` in a checkout. Raises ``ConfigError`` when there is
    neither.
    """
    package = Path(str(files("makegood")))
    for folder in (package / "examples", package.parent.parent / "examples"):
        if (folder / "orders" / "__init__.py").is_file():
            return folder
    raise ConfigError(
        "this installation carries no example: install makegood from its wheel, or run from a checkout"
    )
