"""Warns when no Scheduler, or no agent of a step, runs: then nothing that the user waits for can happen."""

from typing import Any

from makegood.base.clock import iso
from makegood.cli.context import Cli
from makegood.cli.render.output import date_time
from makegood.client.client import Client
from makegood.client.handle import TaskHandle
from makegood.model.states import AT_REST
from makegood.store.views import Asked, TaskDetail

_START = "`makegood run APP` (or `makegood scheduler`) starts one, `makegood agents` shows what runs"

MOST_NAMED = 5
"""Agents that are named, at most."""

_UNDER_WAY = frozenset({"waiting", "ready", "running", "in_doubt", "undoing"})
"""States of a step of which an agent is, or will be, asked something."""

UNDECIDED = "the command is not decided"
"""What does not happen to an act where no Scheduler runs."""


async def is_unattended(client: Client) -> bool:
    """Whether no process is running that advances tasks and decides on acts."""
    return not any(
        "scheduler" in view.info.roles and view.state == "alive" for view in await client.store.nodes.views()
    )


async def warn(cli: Cli, client: Client, what: str) -> None:
    """Warn on stderr, before a wait begins, that ``what`` will not happen as things are."""
    if await is_unattended(client):
        cli.note(f"makegood: no scheduler runs on this store, {what} until one does: {_START}")


async def warn_of(cli: Cli, client: Client, task: TaskHandle[Any]) -> None:
    """Warn of a wait for a task's end, unless it is at rest."""
    detail = await task.status()
    if detail.task.state in AT_REST:
        return
    if await is_unattended(client):
        await warn(cli, client, "nothing continues")
    elif missing := await _no_agent(client, detail):
        cli.note(f"makegood: {missing}")


async def _no_agent(client: Client, detail: TaskDetail) -> str:
    """Say which agents of a task no process runs, and what starts them; "" if there is none."""
    running = {
        info.agent
        for view in await client.store.nodes.views()
        if view.state == "alive"
        for info in view.info.agents
    }
    steps: dict[str, str] = {}
    for step in detail.steps:
        if (
            step.kind == "action"
            and step.state in _UNDER_WAY
            and f"{detail.task.app}/{step.agent}" not in running
        ):
            steps.setdefault(step.agent, step.name)
    if not steps:
        return ""
    app = detail.task.app
    what = ", ".join(f"{app}/{agent} ({step})" for agent, step in list(steps.items())[:MOST_NAMED])
    return f"no process runs {what}; `makegood agent MODULE:{app} {' '.join(steps)}`, or `makegood run APP`, starts one"


def request_line(detail: TaskDetail, request: Asked) -> str:
    """Say of an act that is not decided who asked for it, when and why."""
    why = f": {request.act.why}" if request.act.why else ""
    what = " ".join(word for word in (request.kind, _step(detail, request)) if word)
    return f"{date_time(request.at)}  {what}  by {request.act.who}{why}  (not decided: no scheduler has taken it)"


def request_shape(detail: TaskDetail, request: Asked) -> dict[str, object]:
    """Return such an act for ``--json``."""
    return {
        "act": request.act.id, "kind": request.kind, "step": _step(detail, request), "who": request.act.who, "why": request.act.why,
        "at": iso(request.at),
    }  # fmt: skip


def _step(detail: TaskDetail, request: Asked) -> str | None:
    return next((step.name for step in detail.steps if step.idx == request.idx), None)


async def late(client: Client, task: TaskHandle[Any], sentence: str, again: str = "ask again later") -> str:
    """Return the message of a wait that ended before the task did: a sentence, and what follows.

    It says that the task continues only if a Scheduler and the agents of its steps are running.
    """
    if await is_unattended(client):
        return f"{sentence}: no scheduler runs on this store; {_START}"
    missing = await _no_agent(client, await task.status())
    return f"{sentence}: {missing}" if missing else f"{sentence}; the task continues, {again}"
