"""``makegood demo``: runs the order example, from the wheel or from a checkout."""

import sys
from importlib import import_module
from importlib.resources import files
from pathlib import Path

import click

from makegood.cli.command import Command, Whole
from makegood.cli.context import Cli, common, pass_cli
from makegood.errors import ConfigError
from makegood.store import open_store


@click.command(cls=Command)
@click.option("--orders", type=Whole(1), metavar="N", help="How many orders.")
@click.option("--kills", type=Whole(0), metavar="N", help="How many processes to kill.")
@click.option("--schedulers", type=Whole(1), metavar="N", help="How many scheduler processes.")
@click.option("--agents", type=Whole(1), metavar="N", help="How many agent processes.")
@click.option("--supervisors", type=Whole(1), metavar="N", help="How many supervisor processes.")
@click.option(
    "--seed",
    type=int,
    metavar="N",
    help="Decides what is ordered, what fails and what is killed. [default: random]",
)
@click.option("--postgres", is_flag=True, help="On a private PostgreSQL, started for the demo.")
@click.option("--keep", is_flag=True, help="Keep the folder with the store, the books and the logs.")
@common
@pass_cli
def demo(cli: Cli, /, *, postgres: bool, keep: bool, **numbers: int | None) -> None:
    """Run the order example: schedulers, agents and supervisors as processes of their own, some of them
    killed on the way; then an audit of the services' own books. Exits with 1 when they do not balance.
    """
    if postgres and "store" in cli.flags:
        raise click.UsageError("--store URL or --postgres, not both")
    arguments: list[str] = []
    given = cli.settings.store if "store" in cli.flags else None
    if given is not None:
        open_store(given)  # refused here, before a part of it is shown
    for name, value in (*numbers.items(), ("store", given)):
        if value is not None:
            arguments += [f"--{name}", str(value)]
    for name, wanted in (("postgres", postgres), ("keep", keep), ("json", cli.json)):
        arguments += [f"--{name}"] * wanted
    folder = str(examples())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    code = import_module("orders.demo").main(arguments)
    click.get_current_context().exit(code if isinstance(code, int) else 0)


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
