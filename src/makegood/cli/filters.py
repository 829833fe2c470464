"""Task filters: by options, or in one text such as ``state:error workflow:place_order older:1h``: the
arguments of commands that only read, ``--filter`` of acts, whose arguments are ids.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from makegood.base.did_you_mean import meant
from makegood.cli.context import given, lasting
from makegood.client.client import Client
from makegood.errors import ConfigError
from makegood.store import filters
from makegood.store.views import Filter

Command = TypeVar("Command", bound=Callable[..., Any])

NEWEST = 1000
"""Tasks among whose names the one is looked for that was meant."""
READ = 20
"""Tasks whose steps are read for that."""

_NAMES = ("state", "app", "workflow", "key", "correlation", "attribute", "older", "since")


def filter_options(command: Command) -> Command:
    """Give a command the options that choose tasks.

    The command gets them as ``chosen``, a Filter, or None when none was given. Its argument ``words``, if it
    has one, is the filter's text as well.
    """

    @functools.wraps(command)
    def choosing(*args: Any, **options: Any) -> Any:
        values = {name: options.pop(name) for name in (*_NAMES, "filter_")}
        if words := options.pop("words", ()):
            if values["filter_"]:
                raise click.UsageError("the filter is given twice: in words and as --filter")
            values["filter_"] = " ".join(words)
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
    click.option(
        "--key", metavar="KEY", help="Only tasks with this key; 'night/*' is every key that begins so."
    ),
    click.option(
        "--correlation-id", "correlation", metavar="ID", help="Only tasks with this correlation id."
    ),
    click.option(
        "--attribute",
        multiple=True,
        metavar="NAME=VALUE",
        help="Only tasks with this attribute; may be repeated.",
    ),
    lasting("--older", text="Only tasks submitted longer ago than this."),
    lasting("--since", text="Only tasks submitted within this time."),
)


def chosen(options: Mapping[str, Any]) -> Filter | None:
    """Return the filter that options make, None when none was given. Raises ``click.UsageError``."""
    values = {name: value for name, value in options.items() if value and name != "filter_"}
    for name in filters.STARRED:
        texts = values.pop(name, ())
        for text in texts if name == "attribute" else [texts] if texts else ():
            try:
                value = filters.read(name, text)
            except ConfigError as wrong:
                raise click.UsageError(f"{wrong}: --filter \"{name}:'{text}'\"") from wrong
            values[name] = values.get(name, {}) | value if name == "attribute" else value
    try:
        parts = filters.parsed(options.get("filter_") or "")
    except ConfigError as wrong:
        raise click.UsageError(f"filter: {wrong}") from wrong
    for name, value in parts.items():
        if name in values:
            raise click.UsageError(f"{name} is given twice: in the filter and as --{name}")
        values[name] = value
    return filters.made(values) if values else None


async def unknown_names(client: Client, condition: Filter) -> list[str]:
    """Return a sentence for each name in a filter (app, workflow, agent, step) that no task of the store has.

    Such a name is usually misspelt.
    """
    sentences: list[str] = []
    for what in ("app", "workflow", "agent", "step"):
        name = getattr(condition, what)
        if name is None or await client.find(Filter(**{what: name}, limit=1)):
            continue
        hint = meant(name, await _known_names(client, what))
        has = (
            "is of the"
            if what in ("app", "workflow")
            else "has a step of the"
            if what == "agent"
            else "has a"
        )
        sentences.append(f"no task in this store {has} {what} {name!r}{f'; {hint}' if hint else ''}")
    if condition.waits is not None and (hint := await _signal_meant(client, condition.waits)):
        sentences.append(f"no task waits for a signal {condition.waits!r}; {hint}")
    return sentences


async def _signal_meant(client: Client, name: str) -> str:
    """Return a hint if the name of a signal is like one that tasks wait for, or did, and is none of them.

    Nobody may wait for a signal at times, so that a name alone is no mistake.
    """
    names = {wait.name for wait in await client.store.tasks.signal_waits()}
    for view in await client.find(Filter(limit=READ)):
        detail = await client.store.tasks.detail(view.id)
        names |= set() if detail is None else detail.signal_types.keys()
    return "" if name in names else meant(name, names)


async def _known_names(client: Client, what: str) -> set[str]:
    """Return names that one of the newest tasks has."""
    if what in ("app", "workflow"):
        return {getattr(view, what) for view in await client.find(Filter(limit=NEWEST))}
    newest = await client.find(Filter(limit=READ))
    read = [await client.store.tasks.detail(view.id) for view in newest]
    field = "agent" if what == "agent" else "name"
    return {getattr(step, field) for detail in read if detail is not None for step in detail.steps}
