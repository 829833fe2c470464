"""Operators, functions and types in the schema ``public`` that look like the server's own and raise when anybody uses them.

A role without any right on makegood's tables lays them: it may create in ``public``, as everybody may on PostgreSQL 14. They copy
the server's operators and functions, whose twins come first on a path that names ``public`` first, and add operators between types
for which the server has none, which win on every path.
"""

import re
from pathlib import Path

import asyncpg

import makegood

FIRST = "public, pg_catalog"
"""A path on which even an exact twin comes before the server's own."""
USUAL = '"$user", public'
"""The server's default: only what fits better than the server's own is met."""

_SOURCES = Path(makegood.__file__).parent
_TYPES = (
    "text",
    "float8",
    "jsonb",
    "json",
    "bytea",
    "regclass",
    "timestamptz",
    "name",
    "int8",
    "int4",
    "bool",
    "oid",
)
_LAY = """
do $lay$
declare
    o record; l text; r text; n integer := 0;
    types text[] := '{text,integer,bigint,smallint,numeric,double precision,boolean,bytea,jsonb,json,name,oid,timestamptz,text[],bigint[]}';
    names text[] := '{=,<>,<,>,<=,>=,+,-,*,/,%,||,->,->>,@>,&,|,<<,>>,~~,^}';
begin
    for o in select oprname, oprleft::regtype::text as l, oprright::regtype::text as r, oprresult::regtype::text as res
        from pg_operator where oprname = any (names) and oprnamespace = 'pg_catalog'::regnamespace and oprleft <> 0
    loop
        n := n + 1;
        begin
            execute format('create function public.sprung_%s(%s, %s) returns %s language plpgsql as $f$begin raise exception ''trap: operator %s (%s, %s)''; end$f$',
                n, o.l, o.r, o.res, replace(o.oprname, '%', '%%'), o.l, o.r);
            execute format('create operator public.%s (leftarg = %s, rightarg = %s, function = public.sprung_%s)', o.oprname, o.l, o.r, n);
        exception when others then null;
        end;
    end loop;
    foreach l in array types loop
        foreach r in array types loop
            for o in select unnest(names) as oprname loop
                n := n + 1;
                begin
                    execute format('create function public.sprung_%s(%s, %s) returns %s language plpgsql as $f$begin raise exception ''trap: operator %s (%s, %s)''; end$f$',
                        n, l, r, case when o.oprname in ('=', '<>', '<', '>', '<=', '>=', '@>', '~~') then 'boolean' else l end,
                        replace(o.oprname, '%', '%%'), l, r);
                    execute format('create operator public.%s (leftarg = %s, rightarg = %s, function = public.sprung_%s)', o.oprname, l, r, n);
                exception when others then null;
                end;
            end loop;
        end loop;
    end loop;
    for o in select p.proname, pg_get_function_identity_arguments(p.oid) as args, pg_get_function_result(p.oid) as res, p.prokind
        from pg_proc p where pronamespace = 'pg_catalog'::regnamespace and prokind in ('f', 'a') and proname = any ($names$@names$names$::text[])
    loop
        begin
            if o.prokind = 'f' then
                execute format('create function public.%I(%s) returns %s language plpgsql as $f$begin raise exception ''trap: function %s''; end$f$',
                    o.proname, o.args, o.res, o.proname);
            elsif o.args = '' then
                execute format('create function public.agg_%s(bigint) returns bigint language plpgsql as $f$begin raise exception ''trap: aggregate''; end$f$', o.proname);
                execute format('create aggregate public.%I(*) (sfunc = public.agg_%s, stype = bigint)', o.proname, o.proname);
            else
                execute format('create function public.agg_%s(%s, %s) returns %s language plpgsql as $f$begin raise exception ''trap: aggregate %s''; end$f$', o.proname, o.res, o.args, o.res, o.proname);
                execute format('create aggregate public.%I(%s) (sfunc = public.agg_%s, stype = %s)', o.proname, o.args, o.proname, o.res);
            end if;
        exception when others then null;
        end;
    end loop;
end
$lay$
"""


def called() -> list[str]:
    """Return the names of everything that looks like a function in the texts that the package sends to PostgreSQL."""
    names: set[str] = set()
    for file in (
        *_SOURCES.glob("store/postgres/*.py"),
        *_SOURCES.glob("election/stores/*.py"),
        _SOURCES / "messaging/outbox/postgres.py",
    ):
        names.update(re.findall(r"\b([a-z][a-z0-9_]*)\(", file.read_text(encoding="utf-8")))
    return sorted(names - {"format"})


async def lay(url: str, path: str) -> None:
    """Lay the traps in the database at ``url`` as a role that may do nothing else, and make ``path`` everybody's search path."""
    name = url.rpartition("/")[2]
    owner = await asyncpg.connect(url)
    try:
        if not await owner.fetchval("select 1 from pg_roles where rolname = 'mallory'"):
            await owner.execute("create role mallory")
        await owner.execute("grant create, usage on schema public to public")
        await owner.execute("set role mallory; set search_path = pg_catalog")
        await owner.execute(_LAY.replace("@names", "{" + ",".join(called()) + "}"))
        for kind in _TYPES:
            await owner.execute(
                f"create function public.sprung_{kind}() returns bool language plpgsql as $f$begin raise exception 'trap: type {kind}'; end$f$;"
                f"create domain public.{kind} as pg_catalog.{kind} check (public.sprung_{kind}())"
            )
        count = await owner.fetchval(
            "select count(*) from pg_operator where oprnamespace = 'public'::regnamespace"
        )
        assert count > 3000, count
        await owner.execute("reset role")
        await owner.execute(f'alter database "{name}" set search_path = {path}')
    finally:
        await owner.close()
