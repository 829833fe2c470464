"""Connections that change the text of statements on their way to the server, so that a test stands between two of its moments."""

from collections.abc import Callable
from typing import Any

import asyncpg

_Connection: Any = asyncpg.Connection

TICKING = """
create sequence public.tick;
create function public.ticking() returns timestamptz language sql as $$ select clock_timestamp() + nextval('public.tick') * interval '1 s' $$;
"""
"""A clock that is a second later each time that somebody looks."""


def ticking(sql: str) -> str:
    """Let a statement look at that clock."""
    return sql.replace("pg_catalog.clock_timestamp()", "public.ticking()").replace(
        "clock_timestamp()", "public.ticking()"
    )


def driver(rewrite: Callable[[str], str]) -> Callable[..., Any]:
    """Return what connects with the texts of all statements rewritten."""

    class Rewriting(_Connection):  # type: ignore[misc]  # asyncpg has its type parameter for type checkers only
        async def execute(self, query: str, *args: Any, **options: Any) -> str:
            status: str = await super().execute(rewrite(query), *args, **options)
            return status

        async def fetch(self, query: str, *args: Any, **options: Any) -> Any:
            return await super().fetch(rewrite(query), *args, **options)

        async def fetchrow(self, query: str, *args: Any, **options: Any) -> Any:
            return await super().fetchrow(rewrite(query), *args, **options)

        async def fetchval(self, query: str, *args: Any, **options: Any) -> Any:
            return await super().fetchval(rewrite(query), *args, **options)

    async def connect(*args: Any, **options: Any) -> Any:
        return await asyncpg.connect(*args, connection_class=Rewriting, **options)

    return connect
