"""The statements of a lease in PostgreSQL, for the election's own tables and for those of the state store.

makegood never deletes the row of a name, so that no epoch repeats. The rows of its terms are for people; if
somebody deletes the row of the name, its next epoch is above those of its terms. They use
``clock_timestamp()`` and not ``now()``: time is read after the locks were acquired.

They also run on a caller's connection (``guard``), or behind a proxy that gives each statement another
session, so each operator, function and type names its schema: an object of the same name elsewhere on the
search path is never used. The last 1000 terms of a lease are remembered.
"""

import re

SCHEMA = "makegood_election"
_LOCK = 6_081_967
"""The number of an advisory lock: two processes that create the tables at the same time would collide."""

TABLES = f"""
select pg_catalog.pg_advisory_xact_lock({_LOCK});
create schema if not exists {SCHEMA};
create table if not exists {SCHEMA}.lease (
    name text primary key,
    holder text,
    nonce text not null,
    epoch bigint not null,
    ttl double precision not null,
    expires_at double precision not null,
    taken_at double precision not null
) with (fillfactor = 50);
create table if not exists {SCHEMA}.term (
    name text not null,
    epoch bigint not null,
    holder text not null,
    began_at double precision not null,
    ended_at double precision,
    released boolean not null,
    primary key (name, epoch)
);
"""
"""The tables of elections that are not the store's own."""


_WORDS = (
    ("NOW", "(extract(epoch from pg_catalog.clock_timestamp())::pg_catalog.float8)"),
    ("EQ", "operator(pg_catalog.=)"),
    ("LT", "operator(pg_catalog.<)"),
    ("LE", "operator(pg_catalog.<=)"),
    ("GT", "operator(pg_catalog.>)"),
    ("ADD", "operator(pg_catalog.+)"),
    ("SUB", "operator(pg_catalog.-)"),
)
ACQUIRE = """
with before as (select expires_at from LEASE where name EQ $1),
taken as (
    insert into LEASE as l (name, holder, nonce, epoch, ttl, expires_at, taken_at)
    values (
        $1, $2, $3, coalesce((select pg_catalog.max(epoch) from TERM where name EQ $1), 0) ADD 1, $4, NOW ADD $4, NOW
    )
    on conflict (name) do update set
        epoch = case when l.nonce EQ $3 then l.epoch else l.epoch ADD 1 end,
        taken_at = case when l.nonce EQ $3 then l.taken_at else NOW end,
        holder = $2, nonce = $3, ttl = $4, expires_at = NOW ADD $4
    where l.holder is null or l.expires_at LE NOW or l.nonce EQ $3
    returning epoch, taken_at
),
closed as (
    update TERM set ended_at = least((select expires_at from before), (select taken_at from taken))
    where name EQ $1 and ended_at is null and epoch LT (select epoch from taken)
),
trimmed as (delete from TERM where name EQ $1 and epoch LE ((select epoch from taken) SUB 1000)),
begun as (
    insert into TERM (name, epoch, holder, began_at, released)
    select $1::pg_catalog.text, epoch, $2::pg_catalog.text, taken_at, false from taken
    on conflict (name, epoch) do nothing
)
select epoch from taken
"""
"""Parameters: name, holder, nonce, ttl."""
RENEW = """
update LEASE set expires_at = NOW ADD ttl
where name EQ $1 and nonce EQ $2 and epoch EQ $3 and holder is not null and expires_at GT NOW
returning 1
"""
"""Parameters: name, nonce, epoch."""
RELEASE = """
with freed as (
    update LEASE set holder = null, nonce = '' where name EQ $1 and nonce EQ $2 and holder is not null returning epoch
)
update TERM set ended_at = NOW, released = true where name EQ $1 and epoch EQ (select epoch from freed)
"""
"""Parameters: name, nonce."""
READ = """
select name, holder, epoch, ttl, taken_at, expires_at SUB NOW from LEASE where name EQ $1
"""
"""Parameter: name."""
PAST = """
select epoch, holder, began_at, ended_at, released from TERM where name EQ $1 order by epoch desc limit $2
"""
"""Parameters: name, limit."""
FENCE = """
select 1 from LEASE
where name EQ $1 and nonce EQ $2 and epoch EQ $3 and holder is not null and expires_at GT NOW for share
"""
"""Parameters: name, nonce, epoch."""


def over(sql: str, lease_table: str, term_table: str) -> str:
    """Return one of these statements over two tables."""
    for word, meaning in _WORDS:
        sql = re.sub(rf"\b{word}\b", meaning, sql)
    return sql.replace("LEASE", lease_table).replace("TERM", term_table)
