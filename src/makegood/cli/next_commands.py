"""What can be done about a task, spelt out as commands of this command line.

Nothing is printed for a task that is running normally.
"""

import shlex
from collections.abc import Sequence
from typing import Any

from makegood.base.counts import quantity
from makegood.cli.context import Cli
from makegood.cli.render.output import mask
from makegood.client.remedies import remedies
from makegood.store.views import TaskDetail
from makegood.story.trouble import MOST, ending, trouble_of


def spelt(cli: Cli, words: Sequence[str]) -> str:
    """Return a command as it can be typed, with the store that this command was given."""
    store = cli.flags.get("store")
    store_option = (
        ("--store", store if store.startswith("@") else mask(store)) if isinstance(store, str) else ()
    )
    return shlex.join(("makegood", *words, *store_option))


def lines(cli: Cli, detail: TaskDetail) -> list[str]:
    """Return what can be done as lines under a heading, none when there is nothing to do."""
    choices = remedies(detail)
    if not choices:
        return []
    steps = list(dict.fromkeys(remedy.step for remedy in choices if remedy.step is not None))
    left = steps[MOST:]
    commands = [(spelt(cli, remedy.words), remedy.means) for remedy in choices if remedy.step not in left]
    width = max(len(command) for command, _ in commands)
    ending = [f"  ... and settle {quantity(len(left), 'more step')}, such as {left[0]}"] if left else []
    return [
        "what can be done:",
        *(f"  {command:<{width}}  # {means}" for command, means in commands),
        *ending,
    ]


def shape(cli: Cli, detail: TaskDetail) -> dict[str, Any]:
    """Return what is wrong with a task, and what can be done, for ``--json``."""
    stuck_steps = [
        {"step": step.name, "state": step.state, "error": step.error}
        for step in detail.steps
        if step.kind == "action" and trouble_of(step)
    ]
    choices = [
        {"act": remedy.act, "step": remedy.step, "settled": remedy.outcome, "command": spelt(cli, remedy.words), "means": remedy.means}
        for remedy in remedies(detail)
    ]  # fmt: skip
    return {"stuck": stuck_steps, "next": choices}


def outcome(cli: Cli, detail: TaskDetail) -> dict[str, Any]:
    """Return how a task that somebody waited for came to rest, for ``--json``."""
    return {
        "undone": [s.name for s in detail.steps if s.kind == "action" and s.state == "undone"],
        "standing": [s.name for s in detail.steps if s.stands],
        **shape(cli, detail),
    }


def show(cli: Cli, detail: TaskDetail) -> None:
    """Print on stderr the state of a task that did not end as wanted, and what can be done about it."""
    cli.note(f"makegood: {ending(detail)}")
    for line in lines(cli, detail):
        cli.note(line)
