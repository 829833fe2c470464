"""``makegood task cancel | undo | resubmit | settle | extend | wake``: an operator's acts.

Each act is a message in the task's inbox. A Scheduler's rules decide it, and the command shows their answer.
With several ids the command sends all acts before it waits for the end of a task. Each id has its own line,
and the command returns the highest of the exit codes 4, 5 and 6 that were met.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import click
import msgspec

from makegood.base import ids
from makegood.cli import bulk_acts, corrected_inputs, exits, next_commands, no_scheduler
from makegood.cli.bulk_acts import RequestedAct
from makegood.cli.client import connect, looking, task_named
from makegood.cli.codec_option import codec_option
from makegood.cli.command import Whole
from makegood.cli.commands.task import read, utf8
from makegood.cli.context import Cli, command, flag, lasting, who_option, why_option, with_options
from makegood.cli.filters import filter_options, unknown_names
from makegood.cli.import_app import load_app
from makegood.client import as_json
from makegood.client.client import Client
from makegood.client.handle import TaskHandle
from makegood.console.redaction import Redaction
from makegood.errors import ActRefusedError, MakegoodError, TaskNotFoundError, WaitExpiredError
from makegood.model.messages import Answer
from makegood.payload.codec import UNREADABLE, shallow
from makegood.store.views import TaskDetail
from makegood.story.undo_preview import undo_order

Act = Callable[[TaskHandle[Any]], Awaitable[Answer]]

wait_option = flag("--wait", text="Then wait until the tasks are at rest.")
timeout_option = lasting(
    "--timeout", default="30s", text="How long to wait for the answer, and with --wait for the end."
)


act_options = with_options(why_option("Why, for the task and the audit."), who_option, timeout_option)
"""Gives a command why, who and how long to wait, as its act on a task takes them."""


def on_tasks(function: Callable[..., int], *, corrects: bool = False) -> Callable[..., int]:
    """Give an act the arguments and options that all three share: which tasks, why, and what to wait for.

    ``corrects``: it has --input as well.
    """
    also, too = (" With --input: only show what changes.", ", or with --input") if corrects else ("", "")
    return with_options(
        click.argument("task_ids", metavar="[ID]...", nargs=-1),
        filter_options,
        click.option("--limit", type=Whole(1), help="With a filter: at most N tasks, newest first."),
        flag("--dry-run", text=f"With a filter: only count the tasks, and show some.{also}"),
        flag("--yes", "-y", text=f"With a filter{too}: do not ask."),
        why_option("Why, for the task and the audit."),
        who_option,
        wait_option,
        timeout_option,
    )(function)


@command()
@on_tasks
def cancel(cli: Cli, /, **options: Any) -> int:
    """Stop tasks and undo what they did: those named by ID or key, or all that match a filter."""
    return _on(cli, RequestedAct("cancel", "undone", **options), TaskHandle.cancel)


@command()
@on_tasks
@flag("--preview", text="Only list what would be undone, in order.")
def undo(cli: Cli, /, *, preview: bool, **options: Any) -> int:
    """Undo tasks in error, or processed ones; stuck undos are tried again."""
    request = RequestedAct("undo", "undone", **options)
    if preview:
        return asyncio.run(_preview(cli, request))
    return _on(cli, request, TaskHandle.undo)


@command()
@partial(on_tasks, corrects=True)
@click.option("--step", metavar="NAME", help="With --input: the step whose arguments are replaced.")
@click.option(
    "--input",
    "text",
    metavar="JSON|@FILE|-",
    help="The new values: with --step an object of arguments by name, else an array of all the workflow's inputs.",
)
@click.option(
    "--check",
    metavar="APP",
    help="With --input: your code, such as orders:shop, which checks the new values and plans again the steps that follow from them.",
)
def resubmit(cli: Cli, /, *, step: str | None, text: str | None, check: str | None, **options: Any) -> int:
    """Start tasks in error, or undone ones, again: what failed or was undone runs in a new round.

    With --input the command first shows which arguments change; at a terminal it then asks for confirmation.
    """
    request = RequestedAct("resubmit", "processed", corrects=text is not None, **options)
    if text is None:
        if step is not None:
            raise click.UsageError("--step says whose arguments --input replaces: give both")
        if check is not None:
            raise click.UsageError("--check goes with --input: it is the code that plans with it")
        return _on(cli, request, TaskHandle.resubmit)
    if len(request.task_ids) != 1:
        raise click.UsageError("--input is for one task: name it by its ID")
    inputs = _inputs(text)
    app = None if check is None else load_app(check)
    if app is None:
        also = ", and the branches that the workflow took are not decided again" if step is None else ""
        cli.note(
            f"what replaces it was not checked against the annotations of your code{also}: --check APP does that"
        )

    async def resubmit_corrected(task: TaskHandle[Any], **words: Any) -> Answer:
        workflow, new_inputs = None, inputs
        if app is not None:
            workflow, new_inputs = corrected_inputs.check(app, await task.status(), step, inputs)
        resubmit = partial(task.resubmit, step=step, inputs=new_inputs, workflow=workflow, **words)
        try:
            answer = await resubmit(dry_run=True)
        except ActRefusedError:
            if request.dry_run:
                raise
            return await resubmit()  # the rules say so themselves, and the audit keeps it
        if request.dry_run:
            return answer
        if not cli.json:
            for line in corrected_inputs.lines(answer.change):
                cli.note(line)
        if not request.yes and sys.stdin.isatty() and not cli.confirm(f"resubmit task {task.id}?"):
            cli.note("nothing was done")
            raise click.exceptions.Exit(exits.DONE)
        return await resubmit()

    return _on(cli, request, resubmit_corrected)


def _inputs(text: str) -> Any:
    try:
        value = msgspec.json.decode(shallow(read(text).encode(), "--input", around=1))
    except UNREADABLE as wrong:
        raise click.UsageError(f"--input is not JSON: {wrong}") from wrong
    if not isinstance(value, dict | list):
        raise click.UsageError(
            "--input: an object of a step's arguments by name, or an array of the workflow's inputs"
        )
    return value


@command()
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True)
@lasting("--by", required=True, text="How much later the deadline is; a week from now at most.")
@act_options
def extend(cli: Cli, /, *, task_ids: tuple[str, ...], by: float, **terms: Any) -> int:
    """Move the deadlines of tasks that go forward. Their steps keep theirs. Each ID may be a task's key."""
    return asyncio.run(_each(cli, task_ids, partial(TaskHandle.extend, more=by, **terms)))


@command()
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--step", metavar="NAME", help="End this one sleep, by its name in `task show`.")
@act_options
def wake(cli: Cli, /, *, task_ids: tuple[str, ...], step: str | None, **terms: Any) -> int:
    """Let tasks that sleep continue now: begin before their start, or end their sleeps. Each ID may be a
    task's key.
    """
    return asyncio.run(_each(cli, task_ids, partial(TaskHandle.wake, step=step, **terms)))


@command("release")
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True)
@act_options
def release_lane(cli: Cli, /, *, task_ids: tuple[str, ...], **terms: Any) -> int:
    """Take the lanes of tasks in error away, so that the tasks that wait for them continue. Each ID may be a
    task's key.

    The tasks stay in error, with their effects. One that is resubmitted or undone waits for its lanes again.
    """
    return asyncio.run(_each(cli, task_ids, partial(TaskHandle.release_lane, **terms)))


@command()
@click.argument("task_id", metavar="ID")
@click.option("--step", required=True, metavar="NAME", help="The step, by its name in `task show`.")
@click.option("--done", metavar="VALUE", help="It happened; VALUE is its result, as JSON.")
@flag("--not-done", "--failed", text="It certainly did not happen, and nothing of it can still arrive.")
@flag("--undone", text="Somebody has undone its effect by hand.")
@why_option("How you know, for the task and the audit.", required=True)
@who_option
@lasting("--timeout", default="30s", text="For the answer.")
@codec_option
def settle(
    cli: Cli,
    /,
    *,
    task_id: str,
    step: str,
    done: str | None,
    not_done: bool,
    undone: bool,
    **terms: Any,
) -> int:
    """State how a step of a task in error really ended: one of --done, --not-done, --undone. ID may be the
    task's key.

    The task stays in error: `makegood task resubmit` continues it, `makegood task undo` undoes it.
    """
    if (done is not None) + not_done + undone != 1:
        raise click.UsageError("say how it ended: one of --done VALUE, --not-done, --undone")
    outcome = "done" if done is not None else "failed" if not_done else "undone"
    value: Any = None
    if done is not None:
        try:
            value = msgspec.json.decode(shallow(utf8(done).encode(), "--done"))
        except UNREADABLE as wrong:
            raise click.UsageError(
                f"--done {done!r} is not JSON ({wrong}): a text needs quotes of its own, such as --done '\"{done}\"'; "
                "write null when there is no result"
            ) from wrong
    act = partial(TaskHandle.settle, step=step, outcome=outcome, value=value, **terms)
    return asyncio.run(_each(cli, (task_id,), act))


def _on(cli: Cli, request: RequestedAct, act: Callable[..., Awaitable[Answer]]) -> int:
    """Do an act on the tasks that were asked for; returns the exit code."""
    if request.chosen is not None:
        return bulk_acts.on_all(cli, request)
    bound_act = partial(act, why=request.why, who=request.who, timeout=request.timeout)
    wait = request.timeout if request.wait and not request.dry_run else None
    return asyncio.run(
        _each(cli, request.task_ids, bound_act, wait=wait, end_state=request.end, dry=request.dry_run)
    )


async def _each(
    cli: Cli,
    task_ids: Sequence[str],
    act: Act,
    *,
    wait: float | None = None,
    end_state: str = "",
    dry: bool = False,
) -> int:
    """Do an act on each task, and then report on one after the other; returns the exit code.

    ``wait``: then wait this long for the end; ``end_state`` is success. ``dry``: the act changes nothing.
    """
    shapes: list[dict[str, Any]] = []
    async with connect(cli) as client:
        if not dry:
            await no_scheduler.warn(cli, client, no_scheduler.UNDECIDED)
        # All are sent first: the end of one task may wait for another one, as in a lane.
        answers = await asyncio.gather(*(_send(client, task_id, act) for task_id in task_ids))
        for task_id, each in zip(task_ids, answers, strict=True):
            detail: TaskDetail | None = None
            try:
                if isinstance(each, MakegoodError):
                    raise each
                code, shape, detail = await _one(cli, client, *each, wait=wait, end_state=end_state)
                if dry:
                    shape, detail = {**shape, "dry_run": True}, None
            except MakegoodError as error:
                code = exits.code_of(error)
                if len(task_ids) == 1 and not cli.json:
                    raise
                if cli.json:
                    cli.note(f"makegood: {error}")
                verdict = "refused" if code == exits.REFUSED else "failed"
                shape = {"task": task_id, "verdict": verdict, "outcome": str(error)}
            shapes.append({**shape, "code": code})
            if not cli.json:
                for line in corrected_inputs.lines(shape.get("change")) if dry else ():
                    cli.out.text(line)
                cli.out.text(bulk_acts.line(shape))
            if not cli.json and detail is not None:
                next_commands.show(cli, detail)
    cli.out.result([_mask_change(one) for one in shapes])
    return exits.of_many(one["code"] for one in shapes)


def _mask_change(shape: dict[str, Any]) -> dict[str, Any]:
    """Return an outcome whose change has its secrets covered."""
    change = Redaction().change(bytes(shape.get("change", b"null")))
    return shape if change == b"null" else {**shape, "change": msgspec.Raw(change or b"null")}


async def _send(client: Client, task_id: str, act: Act) -> tuple[TaskHandle[Any], Answer] | MakegoodError:
    """Do an act on one task. Returns the answer, or the error."""
    try:
        task = await task_named(client, task_id)
        await task.status()  # raises when there is no such task
        return task, await act(task)
    except MakegoodError as error:
        return error


async def _one(
    cli: Cli, client: Client, task: TaskHandle[Any], answer: Answer, *, wait: float | None, end_state: str
) -> tuple[int, dict[str, Any], TaskDetail | None]:
    """Wait for the end of a task on which an act was done, if asked to.

    Returns the exit code, the outcome, and the task if there is more to report: it did not come to the wanted
    end, or waits for an operator.
    """
    shape: dict[str, Any] = {
        "task": task.id, "act": answer.kind, "verdict": answer.verdict, "outcome": answer.outcome, "state": answer.state,
    }  # fmt: skip
    if answer.change is not None:
        shape["change"] = msgspec.Raw(answer.change)
    if wait is None:
        return exits.DONE, shape, await task.status() if answer.state == "error" else None
    try:
        state = (await task.wait(wait)).state
        code = exits.DONE if state == end_state else exits.outcome(state)
    except WaitExpiredError:
        sentence = f"task {task.id} did not end within {wait:g} s"
        cli.note(f"makegood: {await no_scheduler.late(client, task, sentence)}")
        code = exits.TIMED_OUT
    detail = await task.status()
    shape |= {**as_json.pick(detail.task, "state cause"), **next_commands.outcome(cli, detail)}
    return code, shape, None if code == exits.DONE else detail


async def _preview(cli: Cli, request: RequestedAct) -> int:
    """Show what an undo of each task would deal with, in order; returns the exit code."""
    documents = []
    async with looking(cli) as client:
        task_ids = list(request.task_ids)
        if request.chosen is not None:
            views = await client.find(replace(request.chosen, limit=request.limit or 20))
            if not views and (unknown := await unknown_names(client, request.chosen)):
                raise TaskNotFoundError("; ".join(unknown))
            task_ids = [ids.show(view.id) for view in views]
        for task_id in task_ids:
            task = await task_named(client, task_id)
            detail = await task.status()
            steps = list(enumerate(undo_order(detail), 1))
            if cli.json:
                entries = [
                    {
                        "position": n,
                        "turn": preview.turn,
                        "undo": preview.happens,
                        **as_json.step(preview.step),
                    }
                    for n, preview in steps
                ]
                documents.append({"task": task.id, "state": detail.task.state, "steps": entries})
                continue
            if len(task_ids) > 1:
                cli.out.text(f"{task.id}  {detail.task.state}")
            if (
                detail.task.state in ("pending", "sleeping", "queued", "processing")
                and detail.task.goal == "forward"
            ):
                cli.note(
                    f"task {task.id} is {detail.task.state}: `makegood task cancel` does this, undo is for tasks at rest"
                )
            rows = [
                (preview.turn, preview.step.name, preview.step.agent, preview.step.state, preview.happens)
                for _, preview in steps
            ]
            heads = ("turn", "step", "agent", "state", "what an undo does")
            cli.out.table(heads, rows, empty=f"task {task.id}: nothing to undo")
    cli.out.result(documents)
    return exits.DONE
