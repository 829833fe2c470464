"""What can be done about a task, spelt out as commands of this command line.

Nothing is printed for a task that is running normally.
"""

import shlex
from collections.abc import Sequence
from typing import Any

from makegood.base.counts import counted
from makegood.cli.context import Cli
from makegood.cli.render.output import masked
from makegood.client.remedies import MOST, ending, remedies, trouble_of
from makegood.store.views import TaskDetail


def spelt(cli: Cli, words: Sequence[str]) -> str:
    """Return a command as it can be typed, with the store that this command was given."""
    store = cli.flags.get("store")
    more = ("--store", store if store.startswith("@") else masked(store)) if isinstance(store, str) else ()
    return shlex.join(("makegood", *words, *more))


def lines(cli: Cli, found: TaskDetail) -> list[str]:
    """Return what can be done as lines under a heading, none when there is nothing to do."""
    made = remedies(found)
    if not made:
        return []
    steps = list(dict.fromkeys(remedy.step for remedy in made if remedy.step is not None))
    left = steps[MOST:]
    typed = [(spelt(cli, remedy.words), remedy.means) for remedy in made if remedy.step not in left]
    width = max(len(command) for command, _ in typed)
    more = [f"  ... and settle {counted(len(left), 'more step')}, such as {left[0]}"] if left else []
    return ["what can be done:", *(f"  {command:<{width}}  # {means}" for command, means in typed), *more]


def shape(cli: Cli, found: TaskDetail) -> dict[str, Any]:
    """Return what is wrong with a task, and what can be done, for ``--json``."""
    stuck = [
        {"step": step.name, "state": step.state, "error": step.error}
        for step in found.steps
        if step.kind == "action" and trouble_of(step)
    ]
    made = [
        {"act": remedy.act, "step": remedy.step, "settled": remedy.settled, "command": spelt(cli, remedy.words), "means": remedy.means}
        for remedy in remedies(found)
    ]  # fmt: skip
    return {"stuck": stuck, "next": made}


def outcome(cli: Cli, found: TaskDetail) -> dict[str, Any]:
    """Return how a task that somebody waited for came to rest, for ``--json``."""
    return {
        "undone": [s.name for s in found.steps if s.kind == "action" and s.state == "undone"],
        "standing": [s.name for s in found.steps if s.stands],
        **shape(cli, found),
    }


def tell(cli: Cli, found: TaskDetail) -> None:
    """Print on stderr the state of a task that did not end as wanted, and what can be done about it."""
    cli.note(f"makegood: {ending(found)}")
    for line in lines(cli, found):
        cli.note(line)
