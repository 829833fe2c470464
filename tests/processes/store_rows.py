"""Reads and changes makegood's tables past the engine: what a test asserts about rows must not rest on the code under test."""

import contextlib
import importlib
import sqlite3
from typing import Any


async def rows(url: str, table: str) -> list[dict[str, Any]]:
    """Return all rows of one of makegood's tables."""
    if url.startswith("sqlite:///"):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(f"select * from makegood_{table}")]
    asyncpg = importlib.import_module("asyncpg")
    connection = await asyncpg.connect(url, timeout=60)
    try:
        return [dict(row) for row in await connection.fetch(f"select * from makegood.{table}")]
    finally:
        await connection.close()


async def change(url: str, table: str, values: str, which: str) -> None:
    """Change rows of one of makegood's tables, such as moments that a test does not wait for; ``{node}`` is the table of that name."""
    if url.startswith("sqlite:///"):
        statement = f"update makegood_{table} set {values} where {which}".format(node="makegood_node")
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60)) as connection:
            connection.execute(statement)
            connection.commit()
        return
    statement = f"update makegood.{table} set {values} where {which}".format(node="makegood.node")
    connection = await importlib.import_module("asyncpg").connect(url, timeout=60)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
