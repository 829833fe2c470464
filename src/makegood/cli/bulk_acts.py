"""An act on all tasks that match: counted and shown, confirmed, then done in batches, a line for each
task.
"""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import click

from makegood.base import ids
from makegood.base.counts import quantity
from makegood.cli import exits, next_commands, no_scheduler
from makegood.cli.client import connect, looking
from makegood.cli.context import Cli
from makegood.cli.filters import unknown_names
from makegood.cli.render.output import date_time
from makegood.client import as_json
from makegood.client.client import Client
from makegood.client.operators import Acted
from makegood.errors import TaskNotFoundError, WaitExpiredError
from makegood.store.oversight_records import BulkKind
from makegood.store.views import Filter, TaskView
from makegood.story.batch_progress import bulk_progress
from makegood.story.trouble import reasons

SAMPLE = 5
LOOKED = 500
"""Tasks whose states are read at once."""
PAUSE = 10.0
"""Seconds between two lines of progress when stderr is not a terminal."""

_OTHERWISE = {"noop": "with nothing to do", "refused": "refused", "waiting": "not decided yet"}
"""What became of a command that no task accepted, in words."""
_CODES = {"applied": exits.DONE, "noop": exits.DONE, "refused": exits.REFUSED, "waiting": exits.TIMED_OUT}


@dataclass(frozen=True, slots=True)
class RequestedAct:
    """What an act was asked to do, and to which tasks: those named, or all that match a filter."""

    kind: BulkKind
    end: str
    """The state that counts as success with ``wait``."""
    task_ids: tuple[str, ...]
    chosen: Filter | None
    limit: int | None
    dry_run: bool
    yes: bool
    why: str
    who: str | None
    wait: bool
    """Whether to wait for the end of each task."""
    timeout: float
    """Seconds to wait for answers, and for the end of each task."""
    corrects: bool = False
    """The act is a resubmission with other inputs."""
    signal: str = ""
    """The name of the signal that it sends."""

    def __post_init__(self) -> None:
        """Raise ``UsageError`` for options that contradict each other."""
        if self.task_ids and self.chosen is not None:
            raise click.UsageError("name tasks by ID, or choose them with a filter, not both")
        if not self.task_ids and self.chosen is None:
            raise click.UsageError('name tasks by ID, or choose them: --filter "state=error older=1h"')
        if self.task_ids and ((self.dry_run and not self.corrects) or self.limit is not None):
            also = ", --dry-run also with --input" if self.kind == "resubmit" else ""
            raise click.UsageError(f"--dry-run and --limit go with a filter{also}")

    @property
    def required_filter(self) -> Filter:
        """The filter, of an act on all tasks that match one."""
        assert self.chosen is not None
        return self.chosen


async def preview(cli: Cli, bulk: RequestedAct) -> tuple[int, list[TaskView]]:
    """Return how many tasks match, and the first of them.

    Raises ``TaskNotFoundError`` when no task at all has a name in the filter.
    """
    async with looking(cli) as client:
        total = await client.count(bulk.required_filter)
        if not total and (unknown := await unknown_names(client, bulk.required_filter)):
            raise TaskNotFoundError("; ".join(unknown))
        count = total if bulk.limit is None else min(total, bulk.limit)
        return count, await client.find(
            replace(bulk.required_filter, limit=min(SAMPLE, count))
        ) if count else []


def show(cli: Cli, bulk: RequestedAct, count: int, sample: Sequence[TaskView]) -> None:
    """Show the count and a sample: as the result of a dry run, else on stderr, before the confirmation."""
    if bulk.dry_run and cli.json:
        cli.out.document(
            {"act": bulk.kind, "count": count, "sample": [as_json.task(view) for view in sample]}
        )
        return
    write = cli.out.text if bulk.dry_run else cli.note
    title = f"signal {bulk.signal}" if bulk.signal else bulk.kind
    write(f"{title}: {quantity(count, 'task')}{':' if sample else ''}")
    for view in sample:
        key = f"  key {view.key}" if view.key else ""
        write(
            f"  {ids.show(view.id)}  {view.app}.{view.workflow}  {view.state}  {date_time(view.created)}{key}"
        )
    if count > len(sample):
        write(f"  ... and {count - len(sample)} more")


Send = Callable[..., Awaitable[list[Acted]]]
"""What sends an act to all tasks that match, as ``Client.cancel_all`` does."""


async def carry_out(
    cli: Cli, bulk: RequestedAct, count: int, send: Callable[[Client], Send] | None = None
) -> int:
    """Carry out the act, with a line for each task; returns the exit code. ``send``: with what, unless the
    kind says it.
    """
    shapes: list[dict[str, Any]] = []
    progress = _Progress(cli, count)
    async with connect(cli) as client:
        if count:
            await no_scheduler.warn(cli, client, no_scheduler.UNDECIDED)

        def show(outcome: Acted) -> None:
            progress.more()
            shapes.append({**_shape(bulk.kind, outcome), "code": _CODES[outcome.verdict]})
            if not cli.json and not bulk.wait:
                cli.out.text(line(shapes[-1]))

        act = {"cancel": client.cancel_all, "undo": client.undo_all, "resubmit": client.resubmit_all}
        do: Send = send(client) if send is not None else partial(act[bulk.kind], timeout=bulk.timeout)
        outcomes = await do(bulk.required_filter, why=bulk.why, who=bulk.who, limit=bulk.limit, progress=show)
        if bulk.wait:
            for n, outcome in enumerate(outcomes):
                fields, why = await _wait_for_end(cli, client, bulk, outcome)
                shapes[n] |= fields
                if not cli.json:
                    cli.out.text(f"{line(shapes[n])}{why}")
            if any(shape["code"] == exits.IN_ERROR for shape in shapes):
                cli.note("makegood: some tasks are in error: `makegood task show ID` shows what you can do")
        states = await _states(client, outcomes)
    cli.out.result(shapes)
    progress.end(bulk.kind, outcomes, states)
    return exits.of_many(shape["code"] for shape in shapes)


def on_all(cli: Cli, request: RequestedAct, send: Callable[[Client], Send] | None = None) -> int:
    """Do an act on all tasks that match: count, show, ask, do. ``send``: see ``carry_out``."""
    count, sample = asyncio.run(preview(cli, request))
    if request.dry_run or not request.yes:
        show(cli, request, count, sample)
    if request.dry_run:
        return exits.DONE
    verb = f"send {request.signal} to" if request.signal else request.kind
    if count and not request.yes and not cli.confirm(f"{verb} {quantity(count, 'task')}?"):
        cli.note("nothing was done")
        cli.out.result([])
        return exits.DONE
    return asyncio.run(carry_out(cli, request, count, send))


async def _states(client: Client, outcomes: Sequence[Acted]) -> Counter[str]:
    """Return how many of the tasks that accepted the command are in each state now."""
    states: Counter[str] = Counter()
    task_ids = [ids.parse(outcome.task) for outcome in outcomes if outcome.verdict == "applied"]
    for start in range(0, len(task_ids), LOOKED):
        some = tuple(task_ids[start : start + LOOKED])
        views = await client.find(Filter(ids=some, limit=len(some)))
        states.update(view.state for view in views)
    return states


async def _wait_for_end(
    cli: Cli, client: Client, bulk: RequestedAct, outcome: Acted
) -> tuple[dict[str, Any], str]:
    """Wait for the end of one task.

    Returns what that adds to the outcome, and why it is not the hoped-for end.
    """
    if outcome.verdict not in ("applied", "noop"):
        return {}, ""
    task = client.task(outcome.task)
    try:
        state = (await task.wait(bulk.timeout)).state
    except WaitExpiredError:
        return {"code": exits.TIMED_OUT}, ""
    code = exits.DONE if state == bulk.end else exits.outcome(state)
    detail = await task.status()
    why = reasons(detail) if code else ""
    fields = {
        "state": state,
        **as_json.pick(detail.task, "cause"),
        **next_commands.outcome(cli, detail),
        "code": code,
    }
    return fields, f": {why}" if why else ""


def _shape(kind: str, outcome: Acted) -> dict[str, Any]:
    return {
        "task": outcome.task, "act": kind, "verdict": outcome.verdict, "outcome": outcome.outcome, "state": outcome.state,
    }  # fmt: skip


def line(shape: Mapping[str, Any]) -> str:
    """Return a line on the outcome of an act and the task's state now; in a dry run, on what would happen."""
    if shape.get("act") == "signal" and shape["verdict"] == "applied":
        return f"{shape['task']}  {shape['outcome']}"  # its state was read before
    effect = "would be applied" if "dry_run" in shape else "applied"
    verdict = {"noop": "nothing to do", "applied": effect}.get(shape["verdict"], shape["verdict"])
    phrase = " ".join(word for word in (shape.get("act", ""), verdict) if word)
    now = f" (now {shape['state']})" if shape.get("state") and "dry_run" not in shape else ""
    return f"{shape['task']}  {phrase}: {shape['outcome']}{now}"


class _Progress:
    """Prints progress on stderr: at a terminal with every batch, else now and then."""

    def __init__(self, cli: Cli, count: int) -> None:
        self._cli = cli
        self._count = count
        self._answers = 0
        self._last_note = time.monotonic()

    def more(self) -> None:
        """One more is done."""
        self._answers += 1
        pause = 0.5 if sys.stderr.isatty() else PAUSE
        if time.monotonic() - self._last_note > pause:
            self._last_note = time.monotonic()
            self._cli.note(f"{self._answers} of {self._count}")

    def end(self, kind: BulkKind, outcomes: Sequence[Acted], states: Mapping[str, int]) -> None:
        """Sum up. ``states``: how many of the tasks that accepted the command are in each state."""
        counts = Counter(outcome.verdict for outcome in outcomes)
        texts = [f"{counts[verdict]} {word}" for verdict, word in _OTHERWISE.items() if counts[verdict]]
        if counts["applied"]:
            texts.insert(0, bulk_progress(kind, states).text)
        self._cli.note(f"{quantity(len(outcomes), 'task')}: {'; '.join(texts) or 'nothing to do'}")
