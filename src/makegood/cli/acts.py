"""``makegood task cancel | undo | resubmit | settle``: an operator's acts.

Each act is a message in the task's inbox; a Scheduler's rules decide it and the command shows their answer. With several
ids each has its own line, and the highest of the exit codes 4, 5 and 6 that were met is returned.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import click
import msgspec

from makegood.cli import exits, shapes
from makegood.cli.context import Cli, Seconds, common, pass_cli
from makegood.cli.preview import listed
from makegood.cli.tasks import connect, looking
from makegood.client import Client
from makegood.errors import MakegoodError
from makegood.handle import TaskHandle
from makegood.messages import Answer

Act = Callable[[TaskHandle[Any]], Awaitable[Answer]]

ids_argument = click.argument("task_ids", metavar="ID...", nargs=-1, required=True)
reason_option = click.option("--reason", default="", metavar="TEXT", help="Why; kept with the task.")
who_option = click.option("--who", metavar="NAME", help="Who asks; default user@host.")
wait_option = click.option("--wait", is_flag=True, help="Then wait until the tasks are at rest.")
timeout_option = click.option(
    "--timeout",
    type=Seconds(),
    default="30s",
    show_default=True,
    metavar="DURATION",
    help="For the answer, and for the end with --wait.",
)


@click.command()
@ids_argument
@reason_option
@who_option
@wait_option
@timeout_option
@common
@pass_cli
def cancel(
    cli: Cli, *, task_ids: tuple[str, ...], wait: bool, timeout: float, reason: str, who: str | None
) -> None:
    """Stop tasks and undo what they did."""

    def act(task: TaskHandle[Any]) -> Awaitable[Answer]:
        return task.cancel(why=reason, who=who, timeout=timeout)

    _carry_out(cli, task_ids, act, wait=timeout if wait else None, wanted="undone")


@click.command()
@ids_argument
@click.option("--preview", is_flag=True, help="Only list what would be undone, in order.")
@reason_option
@who_option
@wait_option
@timeout_option
@common
@pass_cli
def undo(
    cli: Cli,
    /,
    *,
    task_ids: tuple[str, ...],
    preview: bool,
    wait: bool,
    timeout: float,
    reason: str,
    who: str | None,
) -> None:
    """Undo tasks in error, or processed ones; stuck undos are tried again."""
    if preview:
        asyncio.run(_preview(cli, task_ids))
        return

    def act(task: TaskHandle[Any]) -> Awaitable[Answer]:
        return task.undo(why=reason, who=who, timeout=timeout)

    _carry_out(cli, task_ids, act, wait=timeout if wait else None, wanted="undone")


@click.command()
@ids_argument
@reason_option
@who_option
@wait_option
@timeout_option
@common
@pass_cli
def resubmit(
    cli: Cli, *, task_ids: tuple[str, ...], wait: bool, timeout: float, reason: str, who: str | None
) -> None:
    """Start tasks in error, or undone ones, again: what failed or was undone runs in a new round."""

    def act(task: TaskHandle[Any]) -> Awaitable[Answer]:
        return task.resubmit(why=reason, who=who, timeout=timeout)

    _carry_out(cli, task_ids, act, wait=timeout if wait else None, wanted="processed")


@click.command()
@click.argument("task_id", metavar="ID")
@click.option("--step", required=True, metavar="NAME", help="The step, by its name in `task show`.")
@click.option("--done", metavar="VALUE", help="It happened; VALUE is its result, as JSON.")
@click.option(
    "--not-done", is_flag=True, help="It certainly did not happen, and nothing of it can still arrive."
)
@click.option("--undone", is_flag=True, help="Its effect was taken back by hand.")
@click.option("--reason", required=True, metavar="TEXT", help="How you know; kept with the task.")
@who_option
@click.option(
    "--timeout", type=Seconds(), default="30s", show_default=True, metavar="DURATION", help="For the answer."
)
@common
@pass_cli
def settle(
    cli: Cli,
    /,
    *,
    task_id: str,
    step: str,
    done: str | None,
    not_done: bool,
    undone: bool,
    reason: str,
    who: str | None,
    timeout: float,
) -> None:
    """State how a step of a task in error really ended: one of --done, --not-done, --undone."""
    if (done is not None) + not_done + undone != 1:
        raise click.UsageError("say how it ended: one of --done VALUE, --not-done, --undone")
    outcome = "done" if done is not None else "failed" if not_done else "undone"
    value: Any = None
    if done is not None:
        try:
            value = msgspec.json.decode(done)
        except msgspec.DecodeError as wrong:
            raise click.UsageError(
                f"--done {done!r} is not JSON ({wrong}): a text needs quotes of its own, such as --done '\"{done}\"'; "
                "write null when there is no result"
            ) from wrong

    def act(task: TaskHandle[Any]) -> Awaitable[Answer]:
        return task.settle(step, outcome=outcome, value=value, why=reason, who=who, timeout=timeout)

    _carry_out(cli, (task_id,), act, wait=None, wanted="")


def _carry_out(cli: Cli, task_ids: Sequence[str], act: Act, *, wait: float | None, wanted: str) -> None:
    """Do an act on each task, one after the other; ``wait``: then wait so long for the end, ``wanted`` counts as success."""
    code = asyncio.run(_each(cli, task_ids, act, wait, wanted))
    click.get_current_context().exit(code)


async def _each(cli: Cli, task_ids: Sequence[str], act: Act, wait: float | None, wanted: str) -> int:
    codes: list[int] = []
    shown: list[dict[str, Any]] = []
    async with connect(cli) as client:
        for task_id in task_ids:
            try:
                code, shape = await _one(client, task_id, act, wait, wanted)
            except MakegoodError as error:
                code = exits.code_of(error)
                if len(task_ids) == 1 and not cli.json:
                    raise
                if cli.json:
                    cli.note(f"makegood: {error}")
                shape = {
                    "task": task_id,
                    "verdict": "refused" if code == exits.REFUSED else "failed",
                    "reason": str(error),
                }
            codes.append(code)
            shown.append({**shape, "code": code})
            if not cli.json:
                cli.out.text(_sentence(shape))
    if cli.json:
        cli.out.document(shown)
    return exits.of_many(codes)


async def _one(
    client: Client, task_id: str, act: Act, wait: float | None, wanted: str
) -> tuple[int, dict[str, Any]]:
    task = client.task(task_id)
    await task.status()  # raises when there is no such task
    answer = await act(task)
    shape = {
        "task": task.id, "act": answer.kind, "verdict": answer.verdict, "reason": answer.reason, "state": answer.state,
    }  # fmt: skip
    if wait is None:
        return exits.DONE, shape
    view = await task.wait(wait)
    code = exits.DONE if view.state == wanted else exits.outcome(view.state)
    return code, {**shape, "state": view.state, "cause": view.cause}


def _sentence(shape: dict[str, Any]) -> str:
    state = f" (now {shape['state']})" if shape.get("state") else ""
    verdict = {"noop": "nothing to do"}.get(shape["verdict"], shape["verdict"])
    return f"{shape['task']}  {shape.get('act', '')}{' ' if shape.get('act') else ''}{verdict}: {shape['reason']}{state}"


async def _preview(cli: Cli, task_ids: Sequence[str]) -> None:
    """Show what an undo of each task would deal with, in order."""
    documents = []
    async with looking(cli) as client:
        for task_id in task_ids:
            task = client.task(task_id)
            found = await task.status()
            steps = listed(found)
            if cli.json:
                documents.append(
                    {
                        "task": task.id,
                        "state": found.task.state,
                        "steps": [
                            {"position": n, "undo": text, **shapes.step(view)} for n, view, text in steps
                        ],
                    }
                )
                continue
            if len(task_ids) > 1:
                cli.out.text(f"{task.id}  {found.task.state}")
            rows = [(n, view.name, view.agent, view.state, text) for n, view, text in steps]
            cli.out.table(
                ("", "step", "agent", "state", "what an undo does"),
                rows,
                empty=f"task {task.id}: nothing to undo",
            )
    if cli.json:
        cli.out.document(documents)
