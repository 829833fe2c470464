"""The server's settings that makegood's own connections have, whatever a role, a database or the server says.

A role or a database may carry any setting, such as ``alter role shop set array_nulls = off``, and each of its
connections begins with it. Some change how values are read or written, some end a connection or a
transaction that is only waiting. Settings that only a superuser may change are left alone: ``makegood
doctor`` reports those that hurt.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

import asyncpg

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

TIMEOUTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "lock_timeout": "2s", "statement_timeout": "0", "idle_in_transaction_session_timeout": "10s", "idle_session_timeout": "0",
        "transaction_timeout": "0",
    }
)  # fmt: skip
"""makegood bounds its statements itself. A transaction under way may hold locks that others wait for."""

CONDUCT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "default_transaction_isolation": "read committed", "default_transaction_deferrable": "off", "client_min_messages": "warning",
        "exit_on_error": "off", "row_security": "on",
    }
)  # fmt: skip

VALUES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "array_nulls": "on", "backslash_quote": "safe_encoding", "bytea_output": "hex", "DateStyle": "ISO, MDY", "extra_float_digits": "1",
        "gin_fuzzy_search_limit": "0", "IntervalStyle": "postgres", "lc_monetary": "C", "lc_numeric": "C", "lc_time": "C",
        "quote_all_identifiers": "off", "standard_conforming_strings": "on", "TimeZone": "UTC", "transform_null_equals": "off",
        "xmlbinary": "base64", "xmloption": "content",
    }
)  # fmt: skip
"""How values are read and written."""

# A statement is planned once, perhaps while the tables are empty, and the plan must suit full tables. So
# these settings force nested loops that find every row by an index. (See the rules on query plans in
# ``commit_statement``.)
PLANNER: Final[Mapping[str, str]] = MappingProxyType(
    {
        "plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_bitmapscan": "off", "enable_hashjoin": "off",
        "enable_mergejoin": "off", "enable_indexscan": "on", "enable_indexonlyscan": "on", "enable_nestloop": "on", "enable_sort": "on",
        "enable_material": "on", "enable_tidscan": "on", "enable_hashagg": "on", "enable_incremental_sort": "on", "enable_memoize": "on",
        "from_collapse_limit": "8", "join_collapse_limit": "8", "geqo": "on", "geqo_threshold": "12", "jit": "off",
    }
)  # fmt: skip

_APPLIED: Final = """
select count(set_config(x.name, x.value, false)) from unnest($1::text[], $2::text[]) as x (name, value)
where current_setting(x.name, true) is not null
"""
"""Sets those of the settings that this version of the server knows; takes their names and their values."""

OWN_PATH: Final = """
select pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false), pg_catalog.set_config('statement_timeout', '0', false),
    case when pg_catalog.current_setting('transaction_timeout', true) is not null
        then pg_catalog.set_config('transaction_timeout', '0', false) end
"""
"""The first statement on each of makegood's own connections.

From then on a name without a schema means the server's own object: an operator or a function that another
role created in ``public`` is never used. And no statement is ended for taking long.
"""


async def set_up(connection: Connection, settings: Mapping[str, str]) -> None:
    """Give a new connection ``OWN_PATH`` and these settings, if this version of the server knows them."""
    await connection.execute(OWN_PATH)
    await connection.execute(_APPLIED, list(settings), list(settings.values()))
