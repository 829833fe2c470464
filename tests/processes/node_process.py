"""One process of a fault test: a Node with chosen roles, whose store is seen through a glass (``fault_points``).

``python -m tests.processes.node_process ROLE,... --store URL --folder FOLDER --name NAME [--fault POINT:ACT] ...``

Prints "started" once its roles run. Exits with 3, and the error in words, when the store cannot be used.
"""

import argparse
import asyncio
import importlib
import json
import logging
import sys
from pathlib import Path

from makegood import App, MakegoodError, Node
from makegood.options import Options
from makegood.store import Store, open_store
from makegood.store.sqlite import SQLiteStore
from makegood.supervisor import supervisor
from tests.processes.fault_points import Fault, Seen

UNUSABLE = 3


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("roles", type=lambda text: tuple(text.split(",")) if text else ())
    parser.add_argument("--store", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--app", default="tests.processes.fault_app:app")
    parser.add_argument("--agents", type=lambda text: tuple(text.split(",")) if text else None, default=None)
    parser.add_argument("--options", type=json.loads, default={})
    parser.add_argument("--fault", type=Fault.parse)
    parser.add_argument("--outbox")
    return parser.parse_args()


def store_of(url: str, poll: object) -> Store:
    """Return the store of ``url``; without a poll of its own when the process has none (``poll`` is None)."""
    if url.startswith("sqlite:///") and poll is None:
        return SQLiteStore(url.removeprefix("sqlite:///"), poll=None)
    return open_store(url)


async def live(arguments: argparse.Namespace) -> None:
    """Run until told to stop."""
    module, _, name = arguments.app.partition(":")
    app: App = getattr(importlib.import_module(module), name)
    options = Options(**arguments.options)
    supervisor.UNRESPONSIVE_INTERVALS = 1200  # a Scheduler that waits for a busy machine is not unresponsive
    real = store_of(arguments.store, options.poll_every)
    observer = Seen(real, arguments.folder, arguments.name, arguments.fault)
    await real.open(migrate=True)
    try:
        node = Node(
            app,
            observer,
            roles=arguments.roles,
            agents=arguments.agents,
            name=arguments.name,
            options=options,
            outbox=arguments.outbox,
        )
        await node.run(lambda: print("started", node.number, flush=True))
    finally:
        await real.close()
        observer.shut()


def main() -> None:
    """Begin."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s"
    )
    try:
        asyncio.run(live(arguments()))
    except MakegoodError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        sys.exit(UNUSABLE)


if __name__ == "__main__":
    main()
