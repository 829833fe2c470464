"""``makegood demo``: runs the order example, from the wheel or from a checkout."""

import sys
from importlib import import_module
from importlib.resources import files
from pathlib import Path

import click

from makegood.cli.context import Cli, common, pass_cli
from makegood.errors import ConfigError


@click.command()
@click.option("--orders", type=click.IntRange(1, 100_000), metavar="N", help="How many orders.")
@click.option("--postgres", is_flag=True, help="On a private PostgreSQL, started for the demo.")
@click.option("--schedulers", type=click.IntRange(1, 16), metavar="N", help="How many scheduler processes.")
@click.option("--seed", type=int, metavar="N", help="Chance, for repeating a run.")
@common
@pass_cli
def demo(
    cli: Cli, /, *, orders: int | None, postgres: bool, schedulers: int | None, seed: int | None
) -> None:
    """Run the order example: schedulers, agents and supervisors as processes of their own, some of them killed on the way;
    then an audit of the services' own books. Exits with 1 when they do not balance.
    """
    if postgres and "store" in cli.flags:
        raise click.UsageError("--store URL or --postgres, not both")
    arguments: list[str] = []
    for name, value in (
        ("orders", orders),
        ("schedulers", schedulers),
        ("seed", seed),
        ("store", cli.flags.get("store")),
    ):
        if value is not None:
            arguments += [f"--{name}", str(value)]
    arguments += ["--postgres"] * postgres + ["--json"] * cli.json
    folder = str(examples())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    code = import_module("orders.demo").main(arguments)
    click.get_current_context().exit(code if isinstance(code, int) else 0)


def examples() -> Path:
    """Return the folder that holds the package ``orders``: inside the installed package, or beside ``src`` in a checkout.

    Raises ``ConfigError`` when there is neither.
    """
    package = Path(str(files("makegood")))
    for folder in (package / "examples", package.parent.parent / "examples"):
        if (folder / "orders" / "__init__.py").is_file():
            return folder
    raise ConfigError(
        "this installation carries no example: install makegood from its wheel, or run from a checkout"
    )
