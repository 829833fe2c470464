"""``makegood task submit | list | show | watch | follow | history``."""

import asyncio
import contextlib
import inspect
import sys
import typing
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec

from makegood.base import ids
from makegood.base.clock import iso
from makegood.base.counts import quantity
from makegood.base.durations import short_duration
from makegood.base.service_keys import request_of
from makegood.base.sizes import MIB
from makegood.base.terminal_text import visible_json
from makegood.base.text import first_line
from makegood.base.wall_times import read_moment
from makegood.cli import exits, next_commands, no_scheduler
from makegood.cli.bar import BatchBar
from makegood.cli.client import connect, looking, run_read, task_named
from makegood.cli.codec_option import codec_option
from makegood.cli.command import Whole
from makegood.cli.context import Cli, at_most, command, flag, lasting, naming_options
from makegood.cli.corrected_inputs import correction
from makegood.cli.filters import filter_options, unknown_names
from makegood.cli.import_app import load_workflow, naming
from makegood.cli.render.ladder import event_lines, ladder, probe_answers
from makegood.cli.render.output import date_time, recent
from makegood.cli.render.style import Line
from makegood.client import as_json
from makegood.client.client import Client
from makegood.client.encoded_tasks import Reasons, legible, legible_event
from makegood.client.handle import TaskHandle
from makegood.console.redaction import Redaction
from makegood.errors import ConfigError, PayloadError, TaskNotFoundError, WaitExpiredError
from makegood.model import notices
from makegood.model.states import AT_REST
from makegood.payload.codec import UNREADABLE, decode, shallow
from makegood.payload.envelopes import describe
from makegood.payload.unknown_fields import refuse_unknown
from makegood.store import filters
from makegood.store.views import EventView, Filter, NodeView, TaskDetail, TaskView
from makegood.story.batch_progress import batch_progress
from makegood.story.lanes import place_text, queue_text
from makegood.story.signals import fate
from makegood.story.trouble import reasons
from makegood.story.waits import is_asleep, sleep_text, start_text, wait_of
from makegood.workflow.workflow import Workflow

T = TypeVar("T")

REDRAW = 0.25
"""Seconds between two looks at a task that is drawn live."""

timeout_option = lasting(
    "--timeout", text="Wait at most this long (30, 20s, 5m), then exit with 7; the task continues."
)


# -- submit --------------------------------------------------------------------------------------------------


@command()
@click.argument("workflow")
@click.argument("inputs", nargs=-1, metavar="[INPUT|@FILE|-]...")
@flag("--named", text="Pass one INPUT, a JSON object with a member for each parameter.")
@click.option(
    "--key",
    metavar="KEY",
    help="Task key: until retention deletes the task, the same key with the same inputs returns the existing one.",
)
@click.option("--priority", type=Whole(0, 9), help="Priority, 0 to 9; 9 runs first.")
@click.option("--correlation-id", metavar="ID", help="An id of your own, stored with the task.")
@click.option(
    "--attribute",
    "attributes",
    multiple=True,
    metavar="NAME=VALUE",
    help="By which to find it; may be repeated.",
)
@click.option(
    "--lane",
    "lanes",
    multiple=True,
    metavar="NAME",
    help="Its lane, in place of those that the workflow names; may be repeated.",
)
@click.option("--reply-to", metavar="TO", help="Where to send its states: queue:NAME or https://…")
@lasting("--delay", text="Begin after this long (90s, 2h, 3d): the task sleeps until then.")
@click.option(
    "--at",
    metavar="WHEN",
    help="Begin at this moment: 2026-12-24T09:00+01:00, or 2026-12-24T09:00[Europe/Berlin].",
)
@flag("--wait", text="Wait for the end; write the result; exit with the task's outcome.")
@timeout_option
def submit(
    cli: Cli,
    /,
    *,
    workflow: str,
    inputs: tuple[str, ...],
    named: bool,
    wait: bool,
    timeout: float | None,
    at: str | None,
    attributes: tuple[str, ...],
    lanes: tuple[str, ...],
    **options: Any,
) -> int:
    """Submit a task. WORKFLOW is module:workflow, such as orders:place_order.

    One INPUT per parameter of the workflow, each a JSON value ('{"id": "o-1"}', 3, true), @FILE to read it
    from a file or - to read it from stdin; a parameter annotated str takes plain text as well. The workflow
    function runs here, once. Writes the task's id.
    """
    options["at"] = None if at is None else read_moment(at, name="--at")
    options["attributes"] = _attributes(attributes)
    options["lane"] = [*lanes] or None
    definition = load_workflow(workflow)
    values = read_inputs(definition, inputs, by_name=named)
    with naming(definition, "nothing was submitted"):
        plan = definition.plan(**values)
    return asyncio.run(_submit(cli, plan, wait=wait, timeout=timeout, options=options))


def _attributes(texts: Sequence[str]) -> dict[str, str] | None:
    """Return the attributes that were given. Raises ``click.UsageError``."""
    attributes: dict[str, str] = {}
    for text in texts:
        name, mark, value = text.partition("=")
        if not (name and mark):
            raise click.UsageError(f"--attribute {text!r}: write NAME=VALUE, such as customer=ada")
        if name in attributes:
            raise click.UsageError(f"--attribute: {name} is given twice")
        attributes[name] = value
    return attributes or None


async def _submit(
    cli: Cli, plan: Any, *, wait: bool, timeout: float | None, options: Mapping[str, Any]
) -> int:
    async with connect(cli) as client:
        with naming_options("delay", "at", "lane"):
            task = await client.submit(plan, **options)
        shape = {
            "id": task.id,
            "created": task.created,
            "app": plan.app,
            "workflow": plan.workflow,
            "key": options["key"],
        }
        if not task.created:
            cli.note(await _existing(client, task))
        if not wait:
            cli.out.result(shape, task.id)
            return exits.DONE
        if task.created and not cli.json:
            cli.note(f"task {task.id} submitted")
        return await _outcome(cli, client, task, timeout, shape)


async def _existing(client: Client, task: TaskHandle[Any]) -> str:
    """Return a sentence on the task that has the key of a submission already: its state, and what runs it."""
    sentence = f"task {task.id} has this key already, with the same inputs"
    for view in await client.find(Filter(ids=(task.number,), limit=1)):
        sentence += f"; it is {'in error' if view.state == 'error' else view.state}"
        if view.state == "undone":
            sentence += f" and does not run again by itself: `makegood task resubmit {task.id}` runs it"
        elif view.state == "error":
            sentence += f": `makegood task show {task.id}` shows what you can do"
    return sentence


async def _outcome(
    cli: Cli, client: Client, task: TaskHandle[Any], limit: float | None, shape: Mapping[str, Any]
) -> int:
    """Wait for a task's end, write how it ended, return the exit code."""
    try:
        await no_scheduler.warn_of(cli, client, task)
        view = await task.wait(limit)
    except WaitExpiredError:
        if cli.json:
            cli.out.document({**shape, **as_json.task((await task.status()).task)})
        sentence = f"task {task.id} did not end within {limit:g} s"
        cli.note(f"makegood: {await no_scheduler.late(client, task, sentence)}")
        return exits.TIMED_OUT
    detail = await task.status()
    if cli.json:
        cli.out.document({**shape, **as_json.task(detail.task), **next_commands.outcome(cli, detail)})
    elif view.state == "processed":
        cli.out.value(detail.task.result or b"null")
    else:
        next_commands.show(cli, detail)
    return exits.outcome(view.state)


def read_inputs(workflow: Workflow[..., Any], texts: Sequence[str], *, by_name: bool) -> dict[str, Any]:
    """Return the workflow's arguments by name, each decoded to its annotated type.

    Raises ``click.UsageError`` for too many or too few, and for a text that is not JSON or does not fit its
    type.
    """
    signature = inspect.signature(workflow.fn)
    hints = typing.get_type_hints(workflow.fn, include_extras=True)
    parameters = signature.parameters
    if by_name:
        if len(texts) != 1:
            raise click.UsageError(
                f"--named takes one INPUT, a JSON object by parameter name, not {len(texts)}"
            )
        members = _members(read(texts[0]))
        if unknown := [name for name in members if name not in parameters]:
            raise click.UsageError(f"{unknown[0]!r} is not a parameter of {workflow.name}{signature}")
        raw_values = {name: bytes(value) for name, value in members.items()}
        for name, value in raw_values.items():
            shallow(value, f"the input {name}")
    else:
        if len(texts) > len(parameters):
            raise click.UsageError(
                f"{workflow.name}{signature} takes {quantity(len(parameters), 'input')}, not {len(texts)}"
            )
        pairs = zip(parameters, texts, strict=False)
        raw_values = {name: _json(read(text), name, plain=hints.get(name) is str) for name, text in pairs}
    if missing := [
        n
        for n, p in parameters.items()
        if n not in raw_values and p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]:
        raise click.UsageError(f"{workflow.name}{signature} needs {', '.join(missing)} as well")
    return {name: _convert(value, hints.get(name, Any), name) for name, value in raw_values.items()}


def read(text: str) -> str:
    """Return a text, what @FILE holds, or with - what comes on stdin."""
    if text == "-":
        try:
            return utf8(sys.stdin.read(), "stdin").removeprefix("\ufeff")
        except UnicodeDecodeError as wrong:
            raise click.UsageError(f"stdin: {wrong}") from wrong
    if text.startswith("@"):
        try:
            return Path(text[1:]).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as wrong:
            raise click.UsageError(f"{text}: {wrong}") from wrong
    return utf8(text)


def utf8(text: str, name: str = "") -> str:
    """Return a text that was given as a value, or is in ``name``, if it was UTF-8.

    Python passes on the bytes of any other text.
    """
    try:
        text.encode()
    except UnicodeEncodeError as wrong:
        raise click.UsageError(f"{name or ascii(text)} is not UTF-8, as JSON must be") from wrong
    return text


def json_value(text: str, kind: type[T]) -> T:
    """Return a value that was given as JSON, @FILE or -. Raises ``click.UsageError``."""
    try:
        return msgspec.json.decode(shallow(read(text).encode(), "the VALUE"), type=kind)
    except UNREADABLE as wrong:
        raise click.UsageError(
            f"the VALUE is not JSON: {wrong}; a text needs its quotes: '\"text\"'"
        ) from wrong


def _json(text: str, name: str, *, plain: bool) -> bytes:
    """Return an input as JSON; ``plain``: its parameter is a text, which needs no quotes."""
    if plain and not text.lstrip().startswith('"'):
        return msgspec.json.encode(text)
    value = text.encode()
    shallow(value, f"the input {name}")
    try:
        msgspec.json.decode(value, type=msgspec.Raw)
    except UNREADABLE as wrong:
        raise click.UsageError(f"the input {name} is not JSON: {wrong}") from wrong
    return value


def _members(text: str) -> dict[str, msgspec.Raw]:
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except UNREADABLE as wrong:
        raise click.UsageError(f"--named: the INPUT is not a JSON object: {wrong}") from wrong


def _convert(value: bytes, hint: Any, name: str) -> Any:
    try:
        refuse_unknown(msgspec.json.decode(value), hint, f"the input {name}")
        return decode(value, hint, f"the input {name}")
    except PayloadError as wrong:
        raise click.UsageError(str(wrong)) from wrong


# -- list, show, history -------------------------------------------------------------------------------------


HEADS: Final = ("id", "workflow", "state", "steps", "created", "took", "key", "unanswered", "cause")
"""The columns of ``makegood task list``."""


@command("list")
@click.argument("words", nargs=-1, metavar="[FILTER]...")
@filter_options
@at_most(default=50)
@click.option("--before", metavar="ID", help="Only tasks older than this one: the next page.")
def list_(cli: Cli, /, *, chosen: Filter | None, before: str | None, limit: int) -> None:
    """List tasks, newest first: all, or those that match every word of FILTER (state:error since:1d)."""
    condition = replace(chosen or Filter(), before=None if before is None else ids.parse(before), limit=limit)

    is_narrow = chosen is not None or before is not None
    empty = "no task matches" if is_narrow else "no tasks yet: `makegood task submit` makes one"

    async def look(client: Client) -> None:
        tasks = await client.find(replace(condition, results=cli.json))
        unknown = [] if tasks else await unknown_names(client, condition)
        rows = [] if cli.json else await _rows(cli, client, tasks)
        cli.out.listing(
            map(as_json.task, map(Redaction().view, tasks)), HEADS, rows, empty=empty, folds=False
        )
        if unknown:
            raise TaskNotFoundError("; ".join(unknown))

    run_read(cli, look)


async def _rows(cli: Cli, client: Client, tasks: Sequence[TaskView]) -> list[tuple[object, ...]]:
    now, texts = await client.store.now(), dict[int, str]()
    for view in tasks:  # of a task that goes, or went, backward the cause includes the problem of its undo
        if view.state in ("error", "undoing") and (detail := await client.store.tasks.detail(view.id)):
            texts[view.id] = reasons(detail)
    may_wait = [view.id for view in tasks if view.state in ("processing", "sleeping")]
    briefs = await client.store.tasks.briefs(may_wait)
    for task, steps in briefs.items():
        texts[task] = "; ".join(dict.fromkeys(filter(None, map(wait_of, steps))))
    in_line = [view.id for view in tasks if view.state == "queued"]
    places = await client.store.lanes.places(in_line) if in_line else {}
    texts |= {task: queue_text(of_task) for task, of_task in places.items()}
    progress = await client.store.tasks.progress([view.id for view in tasks])
    return [
        (
            ids.show(view.id), f"{view.app}.{view.workflow}", view.state, _steps(view, progress.get(view.id)),
            recent(view.created, now) if cli.out.fancy else date_time(view.created),
            short_duration((now if view.ended is None else view.ended) - view.created),
            view.key, view.failure_count or None,
            first_line(describe(texts.get(view.id) or view.cause) or start_text(view, now)),
        )
        for view in tasks
    ]  # fmt: skip


def _steps(view: TaskView, counts: tuple[int, int, int] | None) -> str:
    """Return how far a task is: how many of its actions are done, or are undone."""
    done_count, undone_count, total = counts or (0, 0, 0)
    if view.state in ("undoing", "undone"):
        return f"{undone_count} undone"
    return f"{done_count}/{total}" if total else ""


SHOWN: Final = 60
"""Lines of a ladder above which quiet steps in a row are one line."""
MOST_LINES: Final = 200
"""Lines of a ladder, and of keys, at most."""
MOST_VALUE: Final = 2000
"""Characters of inputs, of a result and of a text of the history."""
MOST_MOVES: Final = 1000
"""Lines of a history."""


@command()
@click.argument("task_id", metavar="ID")
@flag("--all", text="Every step and whole values, however many and large.")
@flag("--uncovered", text="Show secret values, such as passwords, as they are.")
@codec_option
def show(cli: Cli, /, *, task_id: str, all: bool, uncovered: bool) -> None:  # noqa: A002 - the option's name
    """Show a task, by its id or key, with inputs, steps and alerts. Values with secret names are covered.

    Of a long task, quiet steps in a row are one line; --all and --json show each step.
    """
    redaction = Redaction()

    async def look(client: Client) -> None:
        task = await task_named(client, task_id)
        detail = await client.store.tasks.detail(task.number, with_asked=True)
        detail = detail or await task.status()  # which raises: there is none
        detail = await legible(cli.codec, detail)
        alerts = await client.store.alerts.views(task=task.number)
        corrections = [act for act in reversed(await client.audit(task.number)) if act.change is not None]
        if not uncovered:
            detail = redaction.task(detail)
        if cli.json:
            extras = {
                "asked": [no_scheduler.request_shape(detail, request) for request in detail.asked],
                "corrected": [
                    as_json.audit(
                        act
                        if uncovered
                        else msgspec.structs.replace(act, change=redaction.change(act.change))
                    )
                    for act in corrections
                ],
                "probes": [
                    {"step": name, "answer": answer, "at": iso(at)}
                    for name, (at, answer) in (await _probe_answers(client, detail)).items()
                ],
                "alerts": [*map(as_json.alert, alerts)],
            }
            cli.out.document({**as_json.detail(detail), **extras, **next_commands.shape(cli, detail)})
            return
        views = await client.store.nodes.views()
        nodes, now = {view.id: view.info.name for view in views}, await client.store.now()
        probed = await _probe_answers(client, detail)
        lines = ladder(detail, now=now, nodes=nodes, unicode=cli.out.unicode, height=None if all else SHOWN)
        most = sys.maxsize if all else MOST_LINES
        cli.out.drawing(lines[:most])
        if len(lines) > most:
            cli.out.text(f"and {len(lines) - most:,} more lines: --all shows every step")
        for what in detail.unreadable[:most]:
            cli.out.text(f"{'unreadable':<14}{what}")
        for name, value in _facts(detail, now):
            whole = all or len(value) <= MOST_VALUE
            text = value if whole else f"{value[:MOST_VALUE]}… ({len(value):,} characters: --all shows them)"
            cli.out.text(f"{name:<14}{text}")
        for line in _key_lines(detail, task_id, most):
            cli.out.text(f"{'key':<14}{line}")
        for signal in detail.signals[:most]:
            author = f", sent by {signal.who}" if signal.who else ""
            text = f"{date_time(signal.at)}  {signal.name} ({signal.id}), {fate(signal, detail.task.state)}{author}"
            cli.out.text(f"{'signal':<14}{text}")
        for name, (at, answer) in probed.items():
            cli.out.text(f"{'probe':<14}{name}: {answer} ({date_time(at)})")
        for line in _silent(detail, views):
            cli.out.text(f"{'silent':<14}{line}")
        for act in corrections:
            cli.out.text(f"{'corrected':<14}{date_time(act.at)}  {correction(act.change, whole=uncovered)}")
        for request in detail.asked:
            cli.out.text(f"{'asked':<14}{no_scheduler.request_line(detail, request)}")
        for alert in alerts:
            over = "" if alert.open else f"({'ended' if alert.ended is not None else 'acknowledged'})"
            words = (date_time(alert.at), alert.kind, alert.step, over, alert.text)
            cli.out.text(f"{'alert':<14}{'  '.join(word for word in words if word)}")
        for line in next_commands.lines(cli, detail):
            cli.out.text(line)

    run_read(cli, look)


async def _probe_answers(client: Client, detail: TaskDetail) -> dict[str, tuple[float, str]]:
    """Return what the probes answered last, as far as the newest part of the history says."""
    if not any(
        step.plan is not None and step.plan.policy is not None and step.plan.policy.probe
        for step in detail.steps
    ):
        return {}
    recent = await client.store.tasks.recent(detail.task.id)
    return probe_answers(recent.events, {step.idx: step.name for step in detail.steps})


def _key_lines(detail: TaskDetail, text: str, most: int) -> list[str]:
    """Return the keys of steps as lines, at most so many; first the one that ``text`` is."""
    lines = _keys(detail)
    if (first := _keyed_step(detail, text)) is not None:
        lines = [first, *(line for line in lines if line != first)]
    more = len(lines) - most
    return [*lines[:most], f"and {more:,} more: --all shows them"] if more > 0 else lines


def _facts(detail: TaskDetail, now: float) -> list[tuple[str, str]]:
    task = detail.task
    facts: list[tuple[str, object]] = [
        ("inputs", ", ".join(visible_json(describe(value.decode())) for value in detail.inputs)),
        ("result", visible_json(describe(task.result.decode())) if task.result is not None else ""),
        ("cause", describe(task.cause)),
        ("key", task.key),
        ("correlation", task.correlation_id),
        ("attributes", ", ".join(f"{name}={value}" for name, value in detail.attributes.items())),
        ("reply to", notices.safe_address(detail.reply_to) if detail.reply_to is not None else ""),
        ("priority", task.priority or ""),
        ("unanswered", task.failure_count or ""),
        ("created", date_time(task.created)),
        ("sleeps", start_text(task, now) or _sleep(detail, now)),
        ("lane", "; ".join(map(place_text, detail.lanes))),
        ("ended", date_time(task.ended) if task.ended is not None else ""),
        ("complete by", date_time(task.complete_by) if task.complete_by is not None else ""),
        ("held by node", task.locked_by),
    ]
    return [(name, str(value)) for name, value in facts if value not in (None, "")]


def _sleep(detail: TaskDetail, now: float) -> str:
    """Return until when a task sleeps whose steps all wait for a moment: the first of them."""
    if detail.count("running", "undoing", "in_doubt"):
        return ""
    sleeps = [step for step in detail.steps if is_asleep(step)]
    return sleep_text(min(sleeps, key=lambda step: step.due or 0.0), now) if sleeps else ""


def _keys(detail: TaskDetail) -> list[str]:
    """Return the keys under which steps were sent, as we write them and as their services got them; a step
    whose service gets them as we write them is left out.
    """
    lines = []
    for step in detail.steps:
        keys = detail.keys(step) if step.attempt else None
        if keys is None or keys.key == keys.service_key:
            continue
        lines.append(f"{keys.service_key}  {keys.key}")
        if step.state in ("undoing", "undone", "undo_failed"):
            lines.append(f"{keys.undo_service_key}  {keys.undo_key}")
    return lines


def _keyed_step(detail: TaskDetail, text: str) -> str | None:
    """Return the key by which a task was asked for, and what it stands for: a step, a round and a direction.

    Any form is understood, also one that the action asked for itself, and rounds of which no line is shown.
    None for an id, and for a readable key.
    """
    request = request_of(detail.store_id, text)
    step = None if request is None else next((step for step in detail.steps if step.idx == request.idx), None)
    if request is None or step is None:
        return None
    key, service_key = detail.keys_of(step, request.round, undo=request.undo)
    word = text.strip()
    if word.lower() in (service_key, service_key.strip('"')):
        word = service_key
    return f"{word}  {key}"


def _silent(detail: TaskDetail, views: Sequence[NodeView]) -> list[str]:
    """Return which processes have the task or a step of it in hand, and are dead or miss heartbeats."""
    holdings: dict[int, list[str]] = {}
    if detail.task.locked_by is not None:
        holdings[detail.task.locked_by] = ["the task"]
    for step in detail.steps:
        if step.taken_by is not None:
            holdings.setdefault(step.taken_by, []).append(f"a call of {step.name}")
    return [
        f"{view.info.name} has {' and '.join(holdings[view.id][:3])} in hand, and no heartbeat for "
        f"{short_duration(view.silent)}: {'a Supervisor hands it over' if view.state == 'dead' else 'it may be dead'}"
        for view in views
        if view.id in holdings and not view.is_stopped and view.silent > view.info.ttl / 2
    ]


@command()
@click.argument("words", nargs=-1, required=True, metavar="FILTER...")
@click.option("--expect", type=Whole(1), metavar="N", help="Also wait until at least N tasks match.")
@lasting("--timeout", text="Wait at most this long (30, 20s, 5m), then exit with 7; the tasks continue.")
def follow(cli: Cli, /, *, words: tuple[str, ...], expect: int | None, timeout: float | None) -> int:
    """Follow all tasks that match FILTER until they have ended, such as correlation:2026-11-28 or
    'key:2026-11-28/*'.

    Exits with the worst outcome: 6 if a task is in error, else 5 if one is undone, else 0. Ctrl-C ends only
    the following.
    """
    try:
        condition = filters.parse_filter(" ".join(words))
    except ConfigError as wrong:
        raise click.UsageError(str(wrong)) from wrong
    return asyncio.run(_follow(cli, condition, expect, timeout))


async def _follow(cli: Cli, condition: Filter, expect: int | None, limit: float | None) -> int:
    progress = batch_progress({})
    async with looking(cli) as client:
        if unknown := [] if expect else await unknown_names(client, condition):
            raise TaskNotFoundError("; ".join(unknown))
        is_first = True
        try:
            with naming_options("expect"), BatchBar(cli) as bar:
                async for progress in client.follow(condition, expect=expect, timeout=limit):
                    if is_first and not progress.is_over:
                        await no_scheduler.warn(cli, client, "nothing continues")
                    is_first = False
                    bar.show(progress)
        except WaitExpiredError:
            cli.out.result(as_json.batch(progress))
            raise
    cli.out.result(as_json.batch(progress), f"{quantity(progress.tasks, 'task')}: {progress.text}")
    codes = {exits.IN_ERROR: progress.stuck, exits.UNDONE: progress.elsewhere}
    return exits.of_many(code for code, count in codes.items() if count)


@command()
@click.argument("task_id", metavar="ID")
@flag("--follow", text="Continue until the task is at rest.")
@flag("--all", text="Every line and whole texts, however many and large.")
@codec_option
def history(cli: Cli, /, *, task_id: str, follow: bool, all: bool) -> None:  # noqa: A002 - the option's name
    """Show each transition with its time, and the replies that came too late: the newest 1,000 lines, unless
    --all or --json.
    """

    async def show(client: Client) -> None:
        task = await task_named(client, task_id)
        if follow:
            await no_scheduler.warn_of(cli, client, task)
            await _stream(cli, task, whole=all)
            return
        if cli.json:
            cli.out.document(
                [as_json.event(Redaction().event(event)) async for event in task.events(follow=False)]
            )
            return
        detail = await client.store.tasks.detail(task.number) or await task.status()  # which raises
        reasons = None if cli.codec is None else Reasons(cli.codec, detail)
        steps = {step.idx: step.name for step in detail.steps}
        lines: deque[Line] = deque(maxlen=None if all else MOST_MOVES)
        count = 0
        async for stored_event in _events(client, task.number):
            event = await legible_event(cli.codec, task.number, steps, stored_event, reasons)
            event = Redaction().event(event)
            for line in event_lines(event, steps=steps, unicode=cli.out.unicode):
                lines.append(line if all else _shorten(line))
                count += 1
        if count > len(lines):
            cli.out.text(f"{count - len(lines):,} older lines are left out: --all shows them")
        cli.out.drawing([*lines, *_queue(await task.status())])

    run_read(cli, show)


def _queue(detail: TaskDetail) -> list[Line]:
    """Return a line that says what a queued task waits for; none for another task."""
    return [[(f"queued: it {queue_text(detail.lanes)}", "dim")]] if detail.task.state == "queued" else []


async def _events(client: Client, task: int) -> AsyncIterator[EventView]:
    """Yield the history of a task in order, read in parts."""
    after, more = 0, True
    while more:
        part = await client.store.tasks.events_after(task, after, MOST_MOVES, MIB)
        for event in part.events:
            after = event.seq
            yield event
        more = part.more


def _shorten(line: Line) -> Line:
    return [
        (text if len(text) <= MOST_VALUE else f"{text[:MOST_VALUE]}… ({len(text):,} characters)", style)
        for text, style in line
    ]


# -- watch ---------------------------------------------------------------------------------------------------


@command()
@click.argument("task_id", metavar="ID")
@timeout_option
def watch(cli: Cli, /, *, task_id: str, timeout: float | None) -> int:
    """Follow a task until it is at rest; exit with its outcome: 0 processed, 5 undone, 6 in error.

    At a terminal it is drawn as a ladder of its steps; in a pipe each move is a line, with --json an object.
    Ctrl-C ends only the watching.
    """
    return asyncio.run(_watch(cli, task_id, timeout))


async def _watch(cli: Cli, task_id: str, limit: float | None) -> int:
    async with looking(cli) as client:
        task = await task_named(client, task_id)
        await no_scheduler.warn_of(cli, client, task)
        try:
            async with asyncio.timeout(limit):
                if cli.out.fancy:
                    await _draw(cli, client, task)
                else:
                    await _stream(cli, task)
        except TimeoutError:
            sentence = f"task {task.id} did not come to rest within {limit:g} s"
            text = await no_scheduler.late(client, task, sentence, "watch it again")
            raise WaitExpiredError(text, task_id=task.id) from None
        detail = await task.status()
    if cli.json:
        cli.out.record({"event": "end", **as_json.detail(Redaction().task(detail))})
    elif detail.task.state == "processed":
        cli.out.text(f"result  {visible_json((Redaction().raw(detail.task.result) or b'null').decode())}")
    else:
        next_commands.show(cli, detail)
    return exits.outcome(detail.task.state)


async def _stream(cli: Cli, task: TaskHandle[Any], *, whole: bool = False) -> None:
    """Write each event of a task as it comes, until the task is at rest; ``whole``: however large it is."""
    detail = await task.status()
    for ((text, _),) in _queue(detail):
        cli.note(f"makegood: task {task.id} is {text}")
    steps = {step.idx: step.name for step in detail.steps}
    width = max(map(len, ("task", *steps.values())))
    async for raw_event in task.events(follow=True):
        event = Redaction().event(raw_event)
        if cli.json:
            cli.out.record(as_json.event(event))
        else:
            lines = event_lines(event, steps=steps, unicode=cli.out.unicode, width=width)
            cli.out.drawing(lines if whole else map(_shorten, lines[:MOST_MOVES]))
            if not whole and len(lines) > MOST_MOVES:
                more = f"{len(lines) - MOST_MOVES:,} more lines of this moment"
                cli.out.text(f"and {more}: `makegood task history {task.id} --all` shows them")


async def _draw(cli: Cli, client: Client, task: TaskHandle[Any]) -> None:
    """Draw the ladder over and over, until the task is at rest."""
    detail = await task.status()
    with cli.out.live() as live:
        while True:
            nodes = {view.id: view.info.name for view in await client.store.nodes.views()}
            now = await client.store.now()
            height = live.height - 3
            drawing = ladder(detail, now=now, nodes=nodes, unicode=cli.out.unicode, height=height)
            live.show([*drawing, *_queue(detail)])
            if detail.task.state in AT_REST:
                return
            with contextlib.suppress(WaitExpiredError):
                await task.wait(REDRAW)
            detail = await task.status()
