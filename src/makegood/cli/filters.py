"""Task filters: by options, or in one text such as ``--filter "state=error workflow=place_order
older=1h"``.
"""

import difflib
import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from makegood.cli.context import given, lasting
from makegood.client.client import Client
from makegood.errors import ConfigError
from makegood.store import filters
from makegood.store.views import Filter

Command = TypeVar("Command", bound=Callable[..., Any])

NEWEST = 1000
"""Tasks among whose names the one is looked for that was meant."""

_NAMES = ("state", "app", "workflow", "key", "older", "since")


def filter_options(command: Command) -> Command:
    """Give a command the options that choose tasks.

    The command gets them as ``chosen``, a Filter, or None when none was given.
    """

    @functools.wraps(command)
    def choosing(*args: Any, **options: Any) -> Any:
        values = {name: options.pop(name) for name in (*_NAMES, "filter_")}
        return command(*args, chosen=chosen(values), **options)

    return _options(choosing)  # type: ignore[return-value]  # the same, with fewer parameters of its own


_options = given(
    click.option(
        "--filter",
        "filter_",
        metavar="TEXT",
        help=f'All filters in one text: "state=error,undone workflow=W older=1h"; any of {", ".join(filters.NAMES)}, or a key.',
    ),
    click.option(
        "--state",
        type=click.Choice(filters.STATES),
        multiple=True,
        help="Only tasks in this state; may be repeated.",
    ),
    click.option("--app", metavar="APP", help="Only tasks of this app."),
    click.option("--workflow", metavar="WORKFLOW", help="Only tasks of this workflow."),
    click.option("--key", metavar="KEY", help="Only tasks with this key."),
    lasting("--older", text="Only tasks submitted longer ago than this."),
    lasting("--since", text="Only tasks submitted within this time."),
)


def chosen(options: Mapping[str, Any]) -> Filter | None:
    """Return the filter that options make, None when none was given. Raises ``click.UsageError``."""
    values = {name: value for name, value in options.items() if value and name != "filter_"}
    try:
        found = filters.parsed(options.get("filter_") or "")
    except ConfigError as wrong:
        raise click.UsageError(f"--filter: {wrong}") from wrong
    for name, value in found.items():
        if name in values:
            raise click.UsageError(f"{name} is given twice: in --filter and as --{name}")
        values[name] = value
    return filters.made(values) if values else None


async def unknown_names(client: Client, wanted: Filter) -> list[str]:
    """Return a sentence for each name in a filter, app or workflow, that no task of the store has.

    Such a name is usually misspelt.
    """
    said: list[str] = []
    for what in ("app", "workflow"):
        name = getattr(wanted, what)
        if name is None or await client.find(Filter(**{what: name}, limit=1)):
            continue
        known = {getattr(view, what) for view in await client.find(Filter(limit=NEWEST))}
        near = difflib.get_close_matches(name, known, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        said.append(f"no task in this store is of the {what} {name!r}{meant}")
    return said
