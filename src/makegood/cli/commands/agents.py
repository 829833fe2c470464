"""``makegood agents``: the running processes and their agents."""

from collections.abc import Mapping

from makegood.base.durations import short_duration
from makegood.cli.client import run_read
from makegood.cli.context import Cli, command, flag
from makegood.client import as_json
from makegood.client.client import Client
from makegood.store.views import NodeView


@command()
@flag("--all", "everything", text="Include processes that stopped or died in the last hour.")
def agents(cli: Cli, /, *, everything: bool) -> None:
    """Show the processes that run and their agents: slots, calls, recent success, circuit, rate, waiting
    requests, last heartbeat.
    """

    async def look(client: Client) -> tuple[list[NodeView], dict[str, int]]:
        return await client.store.nodes.views(), await client.store.nodes.depths()

    views, depths = run_read(cli, look)
    waiting = as_json.waiting(views, depths)
    selection = [view for view in views if everything or view.state == "alive"]
    if cli.json:
        nodes = [as_json.node(view) for view in selection]
        cli.out.document({"nodes": nodes, "waiting": waiting})
        return
    cli.out.table(
        ("node", "name", "roles", "pid", "state", "holds", "heartbeat"),
        [
            (
                view.id, view.info.name, " ".join(view.info.roles), view.info.pid, view.state,
                view.info.held if "scheduler" in view.info.roles else None,
                f"{short_duration(view.silent)} ago",
            )
            for view in selection
        ],
        empty="no process runs on this store: start one with `makegood run APP`, or scheduler, agent, supervisor",
    )  # fmt: skip
    rows = agent_rows(selection, waiting)
    if rows:
        cli.out.text()
        heads = ("agent", "node", "used/slots", "calls", "success", "mean", "circuit", "rate", "waiting")
        cli.out.table(heads, rows, empty="")


def agent_rows(views: list[NodeView], waiting: Mapping[str, int]) -> list[tuple[object, ...]]:
    """Return a row per agent and process, and one for each agent with waiting requests that no process
    runs.
    """
    rows: list[tuple[object, ...]] = [
        (
            info.agent, view.id, f"{info.used}/{info.slots}", info.calls,
            None if info.success is None else f"{info.success:.0%}", short_duration(info.seconds) if info.calls else None,
            as_json.circuit(info), None if info.rate is None else f"{info.rate:g}/s", waiting.get(info.agent, 0),
        )
        for view in views
        for info in view.info.agents
    ]  # fmt: skip
    run = {row[0] for row in rows}
    rows += [
        (agent, "none", *[None] * 6, depth) for agent, depth in waiting.items() if depth and agent not in run
    ]
    return sorted(rows, key=lambda row: (str(row[0]), str(row[1])))
