"""``makegood store restored``: declares that the store was restored from a backup; a new generation begins.

The store lacks what was acknowledged after the backup, and services may have been called for steps that it
does not know. Each token that they are sent from now on carries the new generation, so it is newer than any
token that they were sent before.
"""

import asyncio

import click
from msgspec import structs

from makegood.base.counts import quantity
from makegood.cli.client import connect
from makegood.cli.context import Cli, by_operator, command, flag
from makegood.errors import ActRefusedError
from makegood.store.records import NewGeneration
from makegood.store.views import NodeView


@command()
@flag("--yes", "-y", text="Do not ask.")
@by_operator
def restored(cli: Cli, /, *, yes: bool, why: str, who: str | None) -> None:
    """Record that the store was restored from a backup: its generation rises, and what was under way is in
    doubt.

    All makegood processes must be stopped. Run it once after each restore, before they are started again.
    """
    outcome = asyncio.run(_begin_generation(cli, who, why, prompt=not yes))
    cli.out.result(
        {"store": cli.store, **structs.asdict(outcome)},
        f"generation {outcome.generation} began: {quantity(outcome.freed, 'task')} freed, "
        f"{quantity(outcome.doubtful, 'request')} in doubt; now start the processes",
    )


async def _begin_generation(cli: Cli, who: str | None, why: str, *, prompt: bool) -> NewGeneration:
    async with connect(cli) as client:
        refuse_while_alive(await client.store.nodes.views())
        if prompt:
            cli.note(
                f"{cli.store} is at generation {client.store.identity.generation}. Continue only if you have just restored it from a "
                "backup: running tasks are restarted, and requests that no agent had claimed count as in doubt"
            )
            if not cli.confirm("was it restored from a backup?"):
                raise click.Abort
        refuse_while_alive(await client.store.nodes.views())
        return await client.store.admin.begin_generation(client.acts.new(who, why))


def refuse_while_alive(views: list[NodeView]) -> None:
    """Raise ``ActRefusedError`` while processes run: they remember more than the store knows."""
    alive = [view for view in views if view.state == "alive"]
    if alive:
        first = alive[0]
        last = max(view.remaining for view in alive)
        raise ActRefusedError(
            f"{quantity(len(alive), 'process')} {'runs' if len(alive) == 1 else 'run'} on this store, by its own record (node {first.id}: {first.info.name}, pid {first.info.pid} "
            f"on {first.info.host}): they remember what the restored store does not know. Stop them all; the backup itself may "
            f"show some as alive for {last:.0f} s more, see `makegood agents`"
        )
