"""``makegood agents | leader | alerts``: what runs, who leads, what an operator must see."""

import asyncio
from collections.abc import Mapping

import click

from makegood import ids
from makegood.cli import shapes
from makegood.cli.context import Cli, common, pass_cli
from makegood.cli.output import date_time
from makegood.cli.tasks import looking
from makegood.durations import shown
from makegood.store.records import AlertView, LeaseView, NodeView
from makegood.supervisor import LEASE


@click.command()
@click.option(
    "--all", "everything", is_flag=True, help="Those too that stopped or died within the last hour."
)
@common
@pass_cli
def agents(cli: Cli, /, *, everything: bool) -> None:
    """Show the processes that run and their agents: slots, calls, failure rate, waiting requests, last heartbeat."""

    async def look() -> tuple[list[NodeView], dict[str, int]]:
        async with looking(cli) as client:
            return await client.store.nodes(), await client.store.depths()

    found, depths = asyncio.run(look())
    waiting = shapes.waiting(found, depths)
    seen = [view for view in found if everything or state_of(view) == "alive"]
    if cli.json:
        nodes = [shapes.node(view, state_of(view)) for view in seen]
        cli.out.document({"nodes": nodes, "waiting": waiting})
        return
    cli.out.table(
        ("node", "name", "roles", "pid", "state", "holds", "heartbeat"),
        [
            (
                view.id, view.info.name, " ".join(view.info.roles), view.info.pid, state_of(view),
                view.info.held if "scheduler" in view.info.roles else None,
                f"{shown(max(0.0, view.info.ttl - view.remaining))} ago",
            )
            for view in seen
        ],
        empty="no process runs on this store: start one with `makegood run APP`, or scheduler, agent, supervisor",
    )  # fmt: skip
    rows = agent_rows(seen, waiting)
    if rows:
        cli.out.text()
        heads = ("agent", "node", "used/slots", "calls", "failed", "mean", "waiting")
        cli.out.table(heads, rows, empty="")


def state_of(view: NodeView) -> str:
    """Return what a process is: alive, stopped in good order, or dead."""
    if view.stopped:
        return "stopped"
    return "dead" if view.dead or view.remaining <= 0 else "alive"


def agent_rows(views: list[NodeView], waiting: Mapping[str, int]) -> list[tuple[object, ...]]:
    """Return a row per agent and process; agents with waiting requests that no process runs have one as well."""
    rows: list[tuple[object, ...]] = []
    for view in views:
        for info in view.info.agents:
            rate = shapes.rate(info.failed, info.calls)
            rows.append(
                (
                    info.agent, view.id, f"{info.used}/{info.slots}", info.calls,
                    None if rate is None else f"{rate:.1%}", shown(info.seconds) if info.calls else None,
                    waiting.get(info.agent, 0),
                )
            )  # fmt: skip
    run = {row[0] for row in rows}
    rows += [
        (agent, "none", None, None, None, None, depth)
        for agent, depth in waiting.items()
        if depth and agent not in run
    ]
    return sorted(rows, key=lambda row: (str(row[0]), str(row[1])))


@click.command()
@common
@pass_cli
def leader(cli: Cli) -> None:
    """Show which Supervisor leads: holder, epoch, seconds left."""

    async def look() -> LeaseView | None:
        async with looking(cli) as client:
            return await client.store.read(LEASE)

    view = asyncio.run(look())
    if cli.json:
        cli.out.document(shapes.lease(view, LEASE))
    elif view is None or view.holder is None or view.remaining <= 0:
        last = f"; {view.holder} led last, in epoch {view.epoch}" if view is not None and view.holder else ""
        cli.out.text(f"nobody leads{last}: start a supervisor with `makegood supervisor` (or `makegood run`)")
    else:
        rows = [(view.holder, view.epoch, f"{view.remaining:.1f}", date_time(view.since))]
        cli.out.table(("leader", "epoch", "seconds left", "since"), rows, empty="")


@click.command()
@click.option("--task", "task_id", metavar="ID", help="Only alerts of this task.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="At most so many."
)
@common
@pass_cli
def alerts(cli: Cli, /, *, task_id: str | None, limit: int) -> None:
    """Show what an operator must see, newest first."""
    number = None if task_id is None else ids.parse(task_id)

    async def look() -> list[AlertView]:
        async with looking(cli) as client:
            return await client.store.alerts(limit, number)

    found = asyncio.run(look())
    if cli.json:
        cli.out.document([shapes.alert(view) for view in found])
        return
    rows = [(date_time(v.at), v.kind, ids.show(v.task) if v.task else None, v.step, v.text) for v in found]
    cli.out.table(("at", "kind", "task", "step", "what"), rows, empty="no alerts")
