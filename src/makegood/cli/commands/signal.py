"""``makegood task signal``: an operator sends a value to a task whose workflow waits for it, or will."""

from functools import partial
from typing import Any

import click

from makegood.base import ids
from makegood.cli import exits, no_scheduler
from makegood.cli.bulk_acts import RequestedAct, on_all
from makegood.cli.client import MOST_NAMED, report_sent, run_work, task_named
from makegood.cli.codec_option import codec_option
from makegood.cli.command import Whole
from makegood.cli.commands.task import json_value
from makegood.cli.context import Cli, command, flag, lasting, who_option, why_option
from makegood.cli.import_app import load_app
from makegood.client.client import Client
from makegood.declare.signal import Signal
from makegood.errors import ConfigError, TaskNotFoundError
from makegood.payload.codec import encode
from makegood.store.filters import parse_filter
from makegood.store.views import Exact, Filter
from makegood.workflow.app import App


@command()
@click.argument("words", metavar="[ID|WORKFLOW] NAME [VALUE|@FILE|-]", nargs=-1, required=True)
@click.option(
    "--key", metavar="KEY", help="The key of the task: then its workflow is named in place of its ID."
)
@click.option("--id", "id", metavar="ID", help="The signal's id: a task takes each id of a NAME once.")
@click.option("--step", metavar="STEP", help="The only step that may use it, such as 'approval[3]'.")
@click.option("--until", metavar="STEP", help="Then wait for the result of STEP, and write that.")
@lasting("--timeout", text="With --until: wait no longer, and exit 7; the signal stays sent.")
@click.option(
    "--check",
    metavar="APP",
    help="Your code, such as trips:shop, which checks VALUE in full; else makegood checks it against the type that the task stores.",
)
@click.option(
    "--filter",
    "filter_",
    metavar="TEXT",
    help="In place of ID: all tasks that match, such as waits:approval; --id then begins each id.",
)
@click.option("--limit", type=Whole(1), help="With a filter: at most N tasks, newest first.")
@flag("--dry-run", text="With a filter: only count the tasks, and show some.")
@flag("--yes", "-y", text="With a filter: do not ask.")
@why_option("Why, for the audit.")
@who_option
@codec_option
def signal(
    cli: Cli,
    /,
    *,
    words: tuple[str, ...],
    key: str | None,
    check: str | None,
    until: str | None,
    timeout: float | None,
    who: str | None,
    filter_: str | None,
    limit: int | None,
    dry_run: bool,
    yes: bool,
    **options: Any,
) -> int:
    """Send a signal NAME to a task, or to all that match a filter. Writes its id.

    ID may be the task's key. VALUE is JSON, @FILE to read it from a file, or - from stdin.

    The first step that waits for NAME gets the value; if none waits yet, the task keeps it. Exit 4 when the
    task takes no such signal, or knows one of that --id with another value: then nothing was sent. With
    --until, exit 1 when STEP gets no result.
    """
    task, *rest = words if filter_ is None else ("", *words)
    if not 1 <= len(rest) <= 2:
        raise click.UsageError(
            f"name the signal, and one VALUE: {'ID ' if filter_ is None else ''}NAME [VALUE]"
        )
    name, content = rest[0], json_value(rest[1] if len(rest) > 1 else "null", object)
    declaration = None
    if check is not None:
        declaration = _declaration(app := load_app(check), name)
        cli.codec = cli.codec or app.codec
    if filter_ is not None:
        if key is not None or options["step"] is not None or until is not None or timeout is not None:
            raise click.UsageError(
                "--key, --step, --until and --timeout are for one task, --filter is for many"
            )
        request = RequestedAct(
            "signal", "processed", (), parse_filter(filter_), limit, dry_run, yes, options["why"], who, wait=False, timeout=0.0, signal=name
        )  # fmt: skip
        to_all = {"signal": declaration or name, "value": content, "id": options["id"]}
        return on_all(cli, request, lambda client: partial(client.signal_all, **to_all))
    if limit is not None or dry_run or yes:
        raise click.UsageError("--limit, --dry-run and --yes go with --filter")

    waits: dict[str, Any] = {} if until is None and timeout is None else {"until": until, "timeout": timeout}

    async def send(client: Client) -> tuple[str, Any]:
        number = await (_task_number(client, task) if key is None else _number(client, task, key))
        author = client.acts.new(who, "").who
        handle = client.task(number)
        if until is not None:
            await no_scheduler.warn_of(cli, client, handle)
        return handle.id, await handle.signal(declaration or name, content, who=author, **options, **waits)

    task_id, answer = run_work(cli, send)
    if until is not None:
        shape = {"task": task_id, "signal": name, "step": until, "result": answer}
        cli.out.result(shape, encode(answer).decode())
        return exits.DONE
    shape = {
        "task": answer.task,
        "signal": name,
        "id": answer.id,
        "created": answer.created,
        "conflict": answer.conflict,
    }
    return report_sent(cli, shape, f"task {answer.task} knows a signal {name} {answer.id}")


def _declaration(app: App, name: str) -> Signal[Any]:
    signals: dict[str, Signal[Any]] = app.signals
    if name not in signals:
        names = ", ".join(signals) or "none"
        raise ConfigError(f"--check: app {app.name!r} declares no signal {name!r}; it declares {names}")
    return signals[name]


async def _task_number(client: Client, text: str) -> int:
    """Return the task of an id or a key. Raises ``TaskNotFoundError``."""
    try:
        return (await task_named(client, text)).number
    except TaskNotFoundError as error:
        raise TaskNotFoundError(f"{error}; with a workflow give --key", task_id=text) from error


async def _number(client: Client, workflow: str, key: str) -> int:
    """Return the task of a workflow, "APP.NAME" or "NAME", that has a key. Raises ``TaskNotFoundError``."""
    views = await client.find(Filter(key=Exact(key), limit=MOST_NAMED + 1))
    tasks = [view for view in views if workflow in (view.workflow, f"{view.app}.{view.workflow}")]
    if len(tasks) == 1:
        return tasks[0].id
    if tasks:
        names = ", ".join(f"{ids.show(view.id)} ({view.app}.{view.workflow})" for view in tasks)
        raise TaskNotFoundError(
            f"workflows of several apps have the key {key!r}: {names}; name the task by its id"
        )
    others = "".join(f"; {view.app}.{view.workflow} has {ids.show(view.id)}" for view in views[:MOST_NAMED])
    raise TaskNotFoundError(
        f"no task of {workflow} has the key {key!r}{others}: see `makegood task list --filter key={key}`"
    )
