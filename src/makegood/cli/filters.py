"""Task filters on the command line: as options, or in one text such as ``state:error workflow:place_order``.

The text is the arguments of a command that only reads. An operator command takes ids as its arguments, and
the text as ``--filter``.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from makegood.base.did_you_mean import did_you_mean
from makegood.cli.context import lasting, with_options
from makegood.client.client import Client
from makegood.errors import ConfigError
from makegood.store import filters
from makegood.store.views import Filter

Command = TypeVar("Command", bound=Callable[..., Any])

MOST_TASKS = 1000
"""The newest tasks, whose names are compared with a misspelt one."""
MOST_DETAILS = 20
"""The newest tasks whose steps are read to compare their names."""

_NAMES = ("state", "app", "workflow", "key", "correlation", "attribute", "older", "since")


def filter_options(command: Command) -> Command:
    """Give a command the options that choose tasks.

    The command gets them as ``chosen``, a Filter, or None when none was given. Its argument ``words``, if it
    has one, is the filter's text as well.
    """

    @functools.wraps(command)
    def with_filter(*args: Any, **options: Any) -> Any:
        values = {name: options.pop(name) for name in (*_NAMES, "filter_")}
        if words := options.pop("words", ()):
            if values["filter_"]:
                raise click.UsageError("the filter is given twice: in words and as --filter")
            values["filter_"] = " ".join(words)
        return command(*args, chosen=filter_of(values), **options)

    return _options(with_filter)  # type: ignore[return-value]  # the same, with fewer parameters of its own


_options = with_options(
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


def filter_of(options: Mapping[str, Any]) -> Filter | None:
    """Return the filter of these options, None if none was given. Raises ``click.UsageError``."""
    values = {name: value for name, value in options.items() if value and name != "filter_"}
    for name in filters.STARRED:
        texts = values.pop(name, ())
        for text in texts if name == "attribute" else [texts] if texts else ():
            try:
                value = filters.read(name, text)
            except ConfigError as error:
                raise click.UsageError(f"{error}: --filter \"{name}:'{text}'\"") from error
            values[name] = values.get(name, {}) | value if name == "attribute" else value
    try:
        parts = filters.parse_terms(options.get("filter_") or "")
    except ConfigError as error:
        raise click.UsageError(f"filter: {error}") from error
    for name, value in parts.items():
        if name in values:
            raise click.UsageError(f"{name} is given twice: in the filter and as --{name}")
        values[name] = value
    return filters.build_filter(values) if values else None


_RELATIONS: Mapping[str, str] = {
    "app": "is of the", "workflow": "is of the", "agent": "has a step of the", "step": "has a",
}  # fmt: skip
"""How a task is related to a name in a filter, in words."""


async def unknown_names(client: Client, condition: Filter) -> list[str]:
    """Return a sentence for each name in a filter (app, workflow, agent, step) that no task of the store has.

    Such a name is usually misspelt.
    """
    sentences: list[str] = []
    for field, relation in _RELATIONS.items():
        name = getattr(condition, field)
        if name is None or await client.find(Filter(**{field: name}, limit=1)):
            continue
        hint = did_you_mean(name, await _recent_names(client, field))
        sentences.append(f"no task in this store {relation} {field} {name!r}{f'; {hint}' if hint else ''}")
    if condition.waits is not None and (hint := await _signal_meant(client, condition.waits)):
        sentences.append(f"no task waits for a signal {condition.waits!r}; {hint}")
    return sentences


async def _signal_meant(client: Client, name: str) -> str:
    """Return a hint if a signal's name is only similar to one that tasks wait for, or have waited for.

    At times no task waits for a signal, so a name that no task waits for is not always a mistake.
    """
    names = {wait.name for wait in await client.store.tasks.signal_waits()}
    for view in await client.find(Filter(limit=MOST_DETAILS)):
        detail = await client.store.tasks.detail(view.id)
        names |= set() if detail is None else detail.signal_types.keys()
    return "" if name in names else did_you_mean(name, names)


async def _recent_names(client: Client, field: str) -> set[str]:
    """Return the names that the newest tasks have in this field of a filter."""
    if field in ("app", "workflow"):
        return {getattr(view, field) for view in await client.find(Filter(limit=MOST_TASKS))}
    newest = await client.find(Filter(limit=MOST_DETAILS))
    details = [await client.store.tasks.detail(view.id) for view in newest]
    attribute = "agent" if field == "agent" else "name"
    return {getattr(step, attribute) for detail in details if detail is not None for step in detail.steps}
