"""``makegood check APP``: checks APP's declarations, and whether the waiting steps in the store can run on
it.

Nothing is replayed, so a deployment strands a running task only when an action loses its name or takes other
arguments. The command finds the steps whose action, undo or probe the code no longer has, or whose stored
arguments it could not read. It does not examine tasks that ended well.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import click

from makegood.base import ids
from makegood.base.counts import quantity
from makegood.base.durations import short_duration
from makegood.cli import exits
from makegood.cli.client import looking
from makegood.cli.command import Whole
from makegood.cli.context import Cli, command
from makegood.cli.import_app import load_app
from makegood.cli.stored_arguments import RESULT, Fault, Find, Stored
from makegood.client.client import Client
from makegood.declare.action import Action
from makegood.declare.sealed_values import is_sealed
from makegood.errors import DefinitionError
from makegood.model.plan import StepPlan, Template
from makegood.model.states import TaskState
from makegood.moments.clock_effects import AHEAD as AHEAD_OF_CLOCKS
from makegood.moments.clock_effects import clock_effects
from makegood.moments.cron import Cron
from makegood.store.views import Filter, StepView, TaskDetail
from makegood.workflow.app import App
from makegood.workflow.used_actions import used_actions

OPEN: tuple[TaskState, ...] = ("pending", "sleeping", "queued", "processing", "undoing", "error")
PAGE = 500
AHEAD = ("waiting", "ready", "running", "in_doubt")
STANDING = ("done", "undoing", "undo_failed")


Needs = Literal["action", "undo", "probe"]


class Need(NamedTuple):
    """What a step may still need from the code."""

    agent: str
    action: str
    needs: Needs
    args: Template | None = None
    """Its arguments, as far as the plan knows them."""


@dataclass(slots=True)
class Stranded:
    """Steps that the code cannot run."""

    agent: str
    action: str
    needs: Needs
    """One of action, undo, probe."""
    parameter: str = ""
    """The stored argument that does not fit; "" when the code has no such action, undo or probe."""
    why: str = ""
    """Why the argument does not fit."""
    is_absent: bool = False
    """Nothing is stored for it."""
    steps: int = 0
    """How many steps."""
    tasks: list[str] = field(default_factory=list)
    """Some of their tasks, at most five."""

    def sentence(self) -> str:
        """Say what is stranded and what to do."""
        what = f"{self.agent}.{self.action}"
        if self.needs != "action":
            what = f"the {self.needs} of {what}"
        steps, sample = quantity(self.steps, "step"), f"(such as in {', '.join(self.tasks)})"
        if self.why:
            return (
                f"{what} cannot be given what is stored for {steps} {sample}: {self.why}; take what is stored as well "
                f"({self._as_well()}), or keep this one and declare the new one under another name"
            )
        remedy = f'declare it again, or pass formerly=("{self.action}",) to the action that took its place'
        if self.needs != "action":
            remedy = "declare it again"
        return f"{what} is missing: {steps} {'needs' if self.steps == 1 else 'need'} it {sample}; {remedy}"

    def _as_well(self) -> str:
        if self.needs == "undo" and self.parameter == RESULT:
            return "as one kind of the result"
        return f"{self.parameter} with a default" if self.is_absent else "a union of both types"


@command()
@click.argument("app", metavar="APP")
@click.option("--limit", type=Whole(1), default=10_000, show_default=True, help="Check at most N open tasks.")
def check(cli: Cli, /, *, app: str, limit: int) -> int:
    """List what APP declares and check it, and (when a store is named by --store, MAKEGOOD_STORE or a file)
    that the steps of its open tasks can run on it. Exit 1 when something is found; a warning is not.
    """
    application = load_app(app)
    problems, warnings = list(problems_of(application)), list(warnings_of(application))
    open_tasks, has_store = OpenTasks(), "store" in cli.settings.origins
    if has_store:
        open_tasks = asyncio.run(_look(cli, application, limit))
    warnings += [
        f"schedule {name} is in the store, no longer declared, and still fires: `makegood schedule delete {name}` removes it"
        for name in open_tasks.undeclared
    ]
    has_more = has_store and open_tasks.tasks == limit
    gaps = open_tasks.stranded
    actions = [action for agent in application.agents.values() for action in agent.actions.values()]
    problems += [
        f"task {task} is unreadable, so its steps were not checked: {what}"
        for task, what in open_tasks.unreadable
    ]
    if cli.json:
        cli.out.document(
            {
                "app": application.name,
                "agents": {name: sorted(agent.actions) for name, agent in application.agents.items()},
                "actions": [_action(action) for action in actions],
                "workflows": sorted(application.workflows),
                "inboxes": sorted(application.inboxes),
                "schedules": sorted(application.schedules),
                "problems": problems,
                "warnings": warnings,
                "store": cli.store if has_store else None,
                "tasks": open_tasks.tasks if has_store else None,
                "more": has_more,
                "stranded": gaps,
            }
        )
    else:
        nothing = f"app {application.name} declares nothing"
        cli.out.table(("what", "name", "declared"), declaration_rows(application), empty=nothing)
        kinds = [(application.agents, "agent"), (actions, "action"), (application.workflows, "workflow")]
        if application.schedules:
            kinds.append((application.schedules, "schedule"))
        if application.inboxes:
            kinds.insert(2, (application.inboxes, "inbox"))
        summary = ", ".join(quantity(len(things), noun) for things, noun in kinds)
        look = "no store was named, so waiting steps were not checked"
        if has_store:
            more = ", the newest ones, and perhaps there are more: raise --limit" if has_more else ""
            look = quantity(open_tasks.tasks, "open task") + more
        cli.out.text(f"{application.name}: {summary}; {look}")
        for sentence in (*problems, *(gap.sentence() for gap in gaps)):
            cli.out.text(sentence)
        for warning in warnings:
            cli.out.text(f"warning: {warning}")
    return exits.FAILED if problems or gaps else exits.DONE


def declaration_rows(app: App) -> Iterator[tuple[str, str, str]]:
    """Yield what an app declares, as rows: what it is, its name, and what is said of it."""
    for agent in app.agents.values():
        rate = f", {agent.rate:g}/s" if agent.rate is not None else ""
        yield "agent", agent.name, f"{agent.concurrency} at once{rate}{', breaker' if agent.breaker else ''}"
        for action in agent.actions.values():
            probe = f"; probe {action._probe_fn.__name__}" if action._probe_fn is not None else ""
            summary = f"{short_duration(action.terms.within)}; {_way_back(action)}{probe}"
            yield "action", f"{agent.name}.{action.name}", summary
    for workflow in app.workflows.values():
        limit = "no limit" if workflow.within is None else short_duration(workflow.within)
        yield "workflow", workflow.name, f"{limit}; on failure {workflow.on_failure}"
    for schedule in app.schedules.values():
        times = schedule.spec.times
        text = (
            f"{times.cron} {times.timezone}"
            if times.cron is not None
            else f"every {short_duration(times.every or 0)}"
        )
        yield (
            "schedule",
            schedule.spec.name,
            f"{schedule.workflow.name}; {text}; overlap {schedule.spec.overlap}",
        )
    for inbox in app.inboxes.values():
        yield "inbox", inbox.queue, f"{inbox.__name__}, {inbox.concurrency} at once"


def _way_back(action: Action[Any, Any]) -> str:
    """Say how an action is undone."""
    if action._undo_fn is not None:
        return f"undo {action._undo_fn.__name__}"
    if action.terms.no_return:
        return "no return"
    return "nothing to undo" if action.terms.nothing else "no undo declared"


def _action(action: Action[Any, Any]) -> dict[str, Any]:
    """Return an action for ``--json``; ``undo`` and ``probe`` are names of functions."""
    return {
        "agent": action.agent.name,
        "action": action.name,
        "undo": None if action._undo_fn is None else action._undo_fn.__name__,
        "probe": None if action._probe_fn is None else action._probe_fn.__name__,
        "nothing_to_undo": action.terms.nothing,
        "no_return": action.terms.no_return,
    }


def problems_of(app: App) -> Iterator[str]:
    """Yield the problems of the declarations.

    Most mistakes raise an error where they are made, at import.
    """
    for agent in app.agents.values():
        if not agent.actions:
            yield f"agent {agent.name!r} declares no action: give it one, or drop it"
        for action in agent.actions.values():
            if not action._is_made_good:
                yield (
                    f"{agent.name}.{action.name} does not declare how it is undone: add @{action.name}.undo, undo=mg.NOTHING "
                    f"or no_return=True; makegood refuses a workflow that uses it"
                )
            try:
                action._setups()
            except DefinitionError as wrong:
                yield str(wrong)
    whole = [declaration._prepare for declaration in app.workflows.values()]
    for prepare in (*whole, *(declaration._prepare for declaration in app.inboxes.values())):
        try:
            prepare()
        except DefinitionError as wrong:
            yield str(wrong)
    for schedule in app.schedules.values():
        try:
            schedule.draft  # noqa: B018 - its workflow is planned
        except (DefinitionError, NameError) as wrong:
            yield f"schedule {schedule.spec.name}: {wrong}"
    if not app.workflows:
        yield f"app {app.name!r} declares no workflow: nothing can be submitted"


def warnings_of(app: App) -> Iterator[str]:
    """Yield what is allowed and may surprise: attempts and workflows that may take longer than a service
    keeps a key, and times of schedules that clocks skip or show twice.
    """
    now = datetime.now(UTC)
    for schedule in app.schedules.values():
        calendar = schedule.spec.times.calendar()
        if isinstance(calendar, Cron):
            for effect in clock_effects(calendar, now, now + AHEAD_OF_CLOCKS):
                yield f"schedule {schedule.spec.name}: {effect}"
    for agent in app.agents.values():
        for action in agent.actions.values():
            within, keeps = action._policy.within, action._policy.keeps
            if 0 < keeps < within:
                yield (
                    f"{agent.name}.{action.name} has {short_duration(within)} to complete an attempt, and its service keeps a key for {short_duration(keeps)}: "
                    f"an attempt that is not answered is hardly ever sent again; pass a complete_within well below keeps"
                )
    for workflow in app.workflows.values():
        for action in used_actions(workflow):
            keeps = action._policy.keeps
            if not keeps or (workflow.within is not None and workflow.within <= keeps):
                continue
            limit = (
                "no complete_within"
                if workflow.within is None
                else f"{short_duration(workflow.within)} to complete"
            )
            yield (
                f"workflow {workflow.name} has {limit}, and the service of {action.agent.name}.{action.name} keeps a key for "
                f"{short_duration(keeps)}: past that makegood does not send the request again, and a step in doubt waits for its probe, its undo "
                f'or an operator; pass complete_within="{short_duration(keeps)}" or less to the workflow'
            )


@dataclass(slots=True)
class OpenTasks:
    """The result of a scan of open tasks."""

    tasks: int = 0
    """How many were read."""
    stranded: list[Stranded] = field(default_factory=list)
    """What they need that the app does not have."""
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    """Which of them cannot be read, and why."""
    undeclared: list[str] = field(default_factory=list)
    """Schedules that the app declared once, and that still fire."""


async def _look(cli: Cli, app: App, limit: int) -> OpenTasks:
    """Look at the open tasks of an app."""
    find = app._registry.find  # noqa: SLF001 - what the app itself looks up
    by_place: dict[tuple[str, ...], Stranded] = {}
    open_tasks = OpenTasks()
    async with looking(cli) as client:
        open_tasks.undeclared = [
            handle.name
            for handle in await client.schedules(app.name)
            if handle.view.is_declared and handle.name not in app.schedules
        ]
        async for task, detail in _open_tasks(client, app.name, limit):
            open_tasks.tasks += 1
            if detail.unreadable:
                open_tasks.unreadable.append((task, "; ".join(detail.unreadable)))
                continue
            arguments = Stored(detail, find)
            for step in detail.steps:
                for need, fault in _faults(step, arguments, find):
                    place = (*need[:3], fault.parameter)
                    entry = by_place.setdefault(place, Stranded(*need[:3], *fault))
                    entry.steps += 1
                    if task not in entry.tasks and len(entry.tasks) < 5:
                        entry.tasks.append(task)
    # Where the action itself is missing, its undo and probe need no line of their own.
    absent = {
        (agent, action) for agent, action, needs, parameter in by_place if needs == "action" and not parameter
    }
    open_tasks.stranded = [
        by_place[place] for place in sorted(by_place) if place[2] == "action" or place[:2] not in absent
    ]
    return open_tasks


def _faults(step: StepView, arguments: Stored, find: Find) -> Iterator[tuple[Need, Fault]]:
    """Yield what a step may still need and the code does not have.

    Arguments that fit the action fit its undo and probe, which take no more.
    """
    for need in needs_of(step):
        action = find(need.agent, need.action)
        if action is None or not _has(action, need.needs):
            yield need, Fault("", "")
        elif is_sealed(need.args):
            continue  # its values are encoded
        elif need.needs == "action":
            yield from ((need, fault) for fault in arguments.faults(action, "do", need.args))
        elif need.needs == "undo" and step.state in STANDING:
            yield from ((need, fault) for fault in arguments.faults(action, "undo", need.args))
            yield from ((need, fault) for fault in arguments.result_faults(action, step.result))


def _has(action: Action[Any, Any], needs: Needs) -> bool:
    return needs == "action" or (action._undo_fn if needs == "undo" else action._probe_fn) is not None


async def _open_tasks(client: Client, app: str, limit: int) -> AsyncIterator[tuple[str, TaskDetail]]:
    """Yield (id, detail) of open tasks, newest first."""
    before: int | None = None
    while limit > 0:
        page = await client.find(Filter(states=OPEN, app=app, limit=min(PAGE, limit), before=before))
        for view in page:
            detail = await client.store.tasks.detail(view.id)
            if detail is not None:
                yield ids.show(view.id), detail
        if len(page) < min(PAGE, limit):
            return
        limit -= len(page)
        before = page[-1].id


def needs_of(step: StepView) -> Iterator[Need]:
    """Yield what a step may still need from the code. A waiting ``each`` needs what its body needs."""
    plan = step.plan
    if step.kind == "each" and plan is not None and step.state in ("waiting", "ready"):
        yield from _of_body(plan)
    if step.kind != "action":
        return
    args = None if plan is None else plan.args
    if step.state in AHEAD:
        yield Need(step.agent, step.action, "action", args)
        if plan is not None and plan.policy is not None and plan.policy.probe:
            yield Need(step.agent, step.action, "probe", args)
    if step.state in (*AHEAD, *STANDING) and step.undoable:
        yield Need(step.agent, step.action, "undo", args)


def _of_body(plan: StepPlan) -> Iterator[Need]:
    for inner in plan.body:
        if inner.kind == "action":
            yield Need(inner.agent, inner.action, "action", inner.args)
            if inner.policy is not None and inner.policy.probe:
                yield Need(inner.agent, inner.action, "probe", inner.args)
            if inner.policy is not None and inner.policy.undoable:
                yield Need(inner.agent, inner.action, "undo", inner.args)
        yield from _of_body(inner)
