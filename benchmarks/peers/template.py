"""One real task, run by makegood itself and read back: what the floor writes again and again, byte for byte as long."""

import asyncio
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import asyncpg

import makegood as mg
from benchmarks.peers.makegood import app_of


@dataclass(frozen=True, slots=True)
class Template:
    """The rows of one ended task: its own, its steps, its history in order, and the node that ran it."""

    task: Mapping[str, Any]
    steps: tuple[Mapping[str, Any], ...]
    moves: tuple[bytes, ...]
    node: int


_PARTS = ("{0}task", "{0}step order by idx", "{0}event order by seq")


async def template(store: str, steps: int) -> Template:
    """Make the store's tables, run one task of ``steps`` steps in it, and return its rows."""
    app, chain, _, _ = app_of(steps)
    async with mg.Node(app, store, roles=("scheduler", "agent")) as node:
        await (await node.client.submit(chain, "an order of thirty-two characters")).result()
    parts = await (_postgres(store) if store.startswith("postgres") else asyncio.to_thread(_sqlite, store))
    (task,), rows, events = parts
    return Template(task, tuple(rows), tuple(bytes(e["moves"]) for e in events), events[0]["node"])


def _sqlite(store: str) -> list[list[dict[str, Any]]]:
    connection = sqlite3.connect(store.removeprefix("sqlite:///"))
    connection.row_factory = sqlite3.Row
    rows = [
        [dict(row) for row in connection.execute("select * from " + part.format("makegood_"))]
        for part in _PARTS
    ]
    connection.close()
    return rows


async def _postgres(store: str) -> list[list[dict[str, Any]]]:
    connection = await asyncpg.connect(store)
    rows = [
        [dict(row) for row in await connection.fetch("select * from " + part.format("makegood."))]
        for part in _PARTS
    ]
    await connection.close()
    return rows
