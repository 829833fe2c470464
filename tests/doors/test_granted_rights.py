"""The rights of each role, read from the server's catalogue, are those that the page about security lists, and no others."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from makegood.store.grants import ROLES, script
from tests.doors.guarded_shop import Guarded, guarded_shop

__all__ = ["guarded_shop"]

asyncpg = pytest.importorskip("asyncpg", reason="postgres: asyncpg is not installed")

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "security.md"
KINDS = [kind for kind in ROLES if kind not in ("owner", "elector")]
VERBS = ("select", "insert", "update", "delete")
NAMED_ROLE = {"agent": "agent_kiosk_stock"}
FEW_RIGHTS = ("inbox", "agent", "submitter", "operator", "console", "reader")
"""The kinds whose credentials must not be able to lock a table."""

COLUMNS = """
select c.relname, a.attname, a.attidentity <> '', v.verb, has_column_privilege($1, c.oid, a.attnum, v.verb)
from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    cross join unnest(array['select', 'insert', 'update']) v (verb)
where c.relnamespace = 'makegood'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f')
"""
DELETES = """
select c.relname from pg_class c
where c.relnamespace = 'makegood'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f') and has_table_privilege($1, c.oid, 'delete')
"""
FUNCTIONS = """
select p.proname from pg_proc p where p.pronamespace = 'makegood'::regnamespace and has_function_privilege($1, p.oid, 'execute')
"""
SEQUENCES = """
select c.relname, v.verb from pg_class c cross join unnest(array['usage', 'select', 'update']) v (verb)
where c.relnamespace = 'makegood'::regnamespace and c.relkind = 'S' and has_sequence_privilege($1, c.oid, v.verb)
"""
POLICIES = """
select c.relname::text, p.polcmd::text, coalesce(pg_get_expr(p.polqual, p.polrelid), 'true'), coalesce(pg_get_expr(p.polwithcheck, p.polrelid), 'true')
from pg_policy p join pg_class c on c.oid = p.polrelid
where c.relnamespace = 'makegood'::regnamespace and p.polpermissive and p.polroles = array[(select oid from pg_roles where rolname = $1)]
"""


def role_of(shop: Guarded, kind: str) -> str:
    return shop.prefix + NAMED_ROLE.get(kind, kind)


def columns_of(shop: Guarded) -> dict[str, list[str]]:
    """Return the columns of each table, in order."""
    columns: dict[str, list[str]] = {}
    for table, column in shop.sql(
        "select c.relname, a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped "
        "where c.relnamespace = 'makegood'::regnamespace and c.relkind = 'r' order by 1, a.attnum"
    ):
        columns.setdefault(table, []).append(column)
    return columns


def rights_of(shop: Guarded, kind: str) -> dict[str, dict[str, set[str]]]:
    """Return what a role may do, by table and verb: the columns, for ``delete`` all or none."""
    role = role_of(shop, kind)
    rights: dict[str, dict[str, set[str]]] = {}
    for table, column, _, verb, may in shop.sql(COLUMNS, None, role):
        if may:
            rights.setdefault(table, {}).setdefault(verb, set()).add(column)
    columns = columns_of(shop)
    for (table,) in shop.sql(DELETES, None, role):
        rights.setdefault(table, {})["delete"] = set(columns[table])
    return rights


def separated_tables(shop: Guarded, kind: str) -> set[str]:
    """Return the tables in which a role meets some rows only, for some verb that it may use."""
    rights, tables = rights_of(shop, kind), set()
    letters = {"r": "select", "a": "insert", "w": "update", "d": "delete"}
    for table, command, sees, writes in shop.sql(POLICIES, None, role_of(shop, kind)):
        verbs = VERBS if command == "*" else (letters[command],)
        if any(verb in rights.get(table, {}) for verb in verbs) and (sees, writes) != ("true", "true"):
            tables.add(table)
    return tables


# -- the page --------------------------------------------------------------------------------------------


def cell(columns: list[str], some: set[str]) -> str:
    """Return how the page writes some of a table's columns."""
    if not some:
        return ""
    rest = [column for column in columns if column not in some]
    if not rest:
        return "all"
    names = ", ".join(f"`{column}`" for column in columns if column in some)
    return (
        names if len(some) <= len(rest) + 1 else "all except " + ", ".join(f"`{column}`" for column in rest)
    )


def lines_of(page: str, heading: str) -> Iterator[list[str]]:
    """Yield the cells of each line of the first table under a heading."""
    section = page.split(f"\n### {heading}\n", 1)[1]
    table = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert table is not None, heading
    for line in table[0].splitlines()[2:]:
        yield [each.strip() for each in line.strip().strip("|").split("|")]


def lines_by_role(page: str) -> dict[tuple[str, str], list[str]]:
    """Return the page's lines about tables: of a role and a table."""
    lines: dict[tuple[str, str], list[str]] = {}
    for roles, tables, *cells in lines_of(page, "Tables"):
        for role in roles.split(", "):
            for table in tables.split(", "):
                assert (role, table.strip("`")) not in lines, (role, table)
                lines[role, table.strip("`")] = cells
    return lines


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_lists_each_right_on_a_table_and_no_other(guarded_shop: Guarded, kind: str) -> None:
    columns, rights, some = (
        columns_of(guarded_shop),
        rights_of(guarded_shop, kind),
        separated_tables(guarded_shop, kind),
    )
    page = {table: cells for (role, table), cells in lines_by_role(PAGE.read_text()).items() if role == kind}
    rest = page.pop("all others", None)
    assert rights
    for table in sorted(columns):
        mine = rights.get(table, {})
        rights_cells = [cell(columns[table], mine.get(verb, set())) for verb in VERBS]
        *cells_of_page, rows = page.pop(table, rest or ["", "", "", "", ""])
        cells_of_page[3] = "all" if cells_of_page[3] == "yes" else cells_of_page[3]
        assert cells_of_page == rights_cells, (kind, table)
        assert bool(rows) == (table in some), (kind, table, "which rows")
    assert not page, "the page has tables that are none"


def test_the_page_lists_functions_sequences_and_settings(guarded_shop: Guarded) -> None:
    page = {role: cells for role, *cells in lines_of(PAGE.read_text(), "Functions, sequences and settings")}
    assert sorted(page) == sorted(KINDS)
    for kind in KINDS:
        role = role_of(guarded_shop, kind)
        functions = sorted(name for (name,) in guarded_shop.sql(FUNCTIONS, None, role))
        sequences = sorted({f"{name} ({verb})" for name, verb in guarded_shop.sql(SEQUENCES, None, role)})
        ((settings,),) = guarded_shop.sql("select rolconfig from pg_roles where rolname = $1", None, role)
        actual = [
            ", ".join(f"`{name}`" for name in each) for each in (functions, sequences, sorted(settings or []))
        ]
        assert page[kind] == actual, kind


# -- the catalogue ---------------------------------------------------------------------------------------


def test_no_role_may_choose_a_number_that_the_database_draws(guarded_shop: Guarded) -> None:
    identities = 0
    for kind in KINDS:
        for table, column, identity, verb, may in guarded_shop.sql(
            COLUMNS, None, role_of(guarded_shop, kind)
        ):
            identities += identity
            assert not (identity and may and verb != "select"), (kind, table, column, verb)
    assert identities >= 7 * len(KINDS)


def test_no_role_has_a_right_that_is_of_no_use_to_it(guarded_shop: Guarded) -> None:
    """Nor may it pass one on; nor is it a member of another role, or more than a login; nor is anything public."""
    ((server,),) = guarded_shop.sql("select current_setting('server_version_num')::int / 10000")
    more = ["truncate", "references", "trigger", *(["maintain"] if server >= 17 else [])]
    for kind in KINDS:
        role = role_of(guarded_shop, kind)
        for verb in [*more, *(f"{verb} with grant option" for verb in VERBS)]:
            may = guarded_shop.sql(
                "select relname from pg_class where relnamespace = 'makegood'::regnamespace and relkind in ('r', 'v') "
                "and has_table_privilege($1, oid, $2)",
                None, role, verb,
            )  # fmt: skip
            assert not may, (kind, verb)
        assert guarded_shop.sql(
            "select rolsuper or rolcreaterole or rolcreatedb or rolbypassrls or rolreplication, rolcanlogin from pg_roles where rolname = $1",
            None, role,
        ) == [(False, True)]  # fmt: skip
        assert not guarded_shop.sql(
            "select 1 from pg_auth_members where member = (select oid from pg_roles where rolname = $1)",
            None,
            role,
        )
        rights = guarded_shop.sql(
            "select has_schema_privilege($1, 'makegood', 'usage'), has_schema_privilege($1, 'makegood', 'create')",
            None,
            role,
        )
        assert rights == [(True, False)]
    public = """
        select c.relname::text from pg_class c cross join lateral aclexplode(c.relacl) a where c.relnamespace = 'makegood'::regnamespace and a.grantee = 0
        union all select p.proname::text from pg_proc p
            cross join lateral aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a where p.pronamespace = 'makegood'::regnamespace and a.grantee = 0
        union all select n.nspname::text from pg_namespace n cross join lateral aclexplode(n.nspacl) a where n.nspname = 'makegood' and a.grantee = 0
        union all select a.attname::text from pg_attribute a join pg_class c on c.oid = a.attrelid
            where c.relnamespace = 'makegood'::regnamespace and a.attacl is not null and exists (select 1 from aclexplode(a.attacl) x where x.grantee = 0)
    """
    assert guarded_shop.sql(public.strip()) == []


def test_functions_with_the_owners_rights_have_a_path_of_their_own(guarded_shop: Guarded) -> None:
    functions = guarded_shop.sql(
        "select proname, proconfig, pg_get_userbyid(proowner)::text from pg_proc where pronamespace = 'makegood'::regnamespace and prosecdef"
    )
    assert len(functions) >= 8
    for name, config, owner in functions:
        assert config == ["search_path=pg_catalog, pg_temp"], name
        assert owner == f"{guarded_shop.prefix}owner", name


def test_the_tables_with_row_level_security_are_those_with_policies(guarded_shop: Guarded) -> None:
    """Each role that may do something there has a policy for it: otherwise it would meet nothing, without an error."""
    tables = {
        table
        for (table,) in guarded_shop.sql(
            "select relname from pg_class where relnamespace = 'makegood'::regnamespace and relrowsecurity"
        )
    }
    letters = {"*": set(VERBS), "r": {"select"}, "a": {"insert"}, "w": {"update"}, "d": {"delete"}}
    for kind in KINDS:
        text = script("m_", (kind,), ("kiosk/stock",) if kind == "agent" else ())
        policies = set(re.findall(r"^create policy .*? on makegood\.(\w+) for ", text, re.MULTILINE))
        verbs: dict[str, set[str]] = {}
        for table, command, *_ in guarded_shop.sql(POLICIES, None, role_of(guarded_shop, kind)):
            verbs.setdefault(table, set()).update(letters[command])
        assert set(verbs) == policies, kind
        for table, rights in rights_of(guarded_shop, kind).items():
            if table in tables:
                assert rights.keys() <= verbs.get(table, set()), (kind, table)


MODES = (
    "row share", "row exclusive", "share update exclusive", "share", "share row exclusive", "exclusive", "access exclusive",
)  # fmt: skip


@pytest.mark.parametrize("kind", FEW_RIGHTS)
def test_a_role_of_few_rights_locks_no_table(guarded_shop: Guarded, kind: str) -> None:
    """Except as whoever reads does: it could hold up all others for as long as it likes."""

    async def tries() -> list[Any]:
        connection = await asyncpg.connect(guarded_shop.as_(NAMED_ROLE.get(kind, kind)))
        locks = []
        for table in columns_of_now:
            for mode in MODES:
                try:
                    async with connection.transaction():
                        await connection.execute(f"lock table makegood.{table} in {mode} mode nowait")
                except asyncpg.InsufficientPrivilegeError:
                    continue
                locks.append((table, mode))
        await connection.close()
        return locks

    import asyncio  # noqa: PLC0415

    columns_of_now = columns_of(guarded_shop)
    modes = {mode for _, mode in asyncio.run(tries())}
    assert modes <= {"row share"}, kind
