"""Least privilege in PostgreSQL: SQL that makes a role for each kind of process, with only
the rights that it needs.

The script can be applied at any time, and should be applied after each migration. In one transaction it
revokes the rights that a role has in the schema and grants those that this version needs.

Row level security separates the roles in tables that several of them share. An agent's role sees only its
own requests, and may add replies to those only. Only the operator's role may add operator commands, and only
under its own login. The owner of the tables is not subject to row level security, so an installation with
one role pays nothing.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, get_args

from makegood.errors import ConfigError
from makegood.model.messages import ACTS, Outcome
from makegood.store.migrations import needed

ROLES: Final = (
    "owner", "scheduler", "supervisor", "inbox", "agent", "submitter", "operator", "console", "reader",
)  # fmt: skip
"""The kinds of roles. The owner migrates; there is one ``agent`` role for each agent."""

NOT_ALLOWED: Final = "does not allow this for this role"
"""In each error about a right that is missing. (The server's own words are translated.)"""

_LONGEST = 56
"""The longest role name in bytes: PostgreSQL allows 63, and the names of policies are a word longer."""
_PREFIX = re.compile(r"[a-z_][a-z0-9_]*")
_ADDRESS = re.compile(r"[^\s/'\"\\]+/[^\s/'\"\\]+")

_ALL = "all tables"
_BASE = (("select", "generation, schema_version, node, lease"), ("select, insert, update, delete", "writer"))
_BEATS = (("insert, update (alive_until, info, stopped_at)", "node"),)
# a dead letter raises an alert
_QUEUES = (("select, insert, update, delete", "message"), ("select, insert, update (text)", "alert"))
_SUBMITS = (("select, insert", "task, step, listener, notice"),)
_BULK = (
    ("insert, update (state, stopped_by)", "bulk_act"),
    ("delete", "bulk_act, bulk_item"),
    ("update (step_down)", "lease"),
)
_GRANTS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "scheduler": (
        ("select", _ALL),
        *_BASE,
        *_BEATS,
        ("update", "task"),
        ("insert, update, delete", "step, request, inbox, notice, listener"),
        ("insert, update", "alert"),
        ("insert", "audit, event, message, refusal"),
    ),
    "supervisor": (
        ("select", _ALL),
        *_BASE,
        ("insert, update, delete", "node, alert, lease, lease_term, inbox, event, audit"),
        ("update, delete", "task, step, request, message"),
        ("delete", "notice, listener"),
        ("update", "generation"),
        ("insert, delete", "refusal, supervisor_decision"),
        ("insert, update, delete", "minute, bulk_item"),
        ("update (state, cursor, free_at, sent, applied, noop, refused, ended_at)", "bulk_act"),
    ),
    "inbox": (*_BASE, *_BEATS, *_SUBMITS, *_QUEUES),
    "agent": (
        *_BASE,
        *_BEATS,
        ("select, update (taken_by, taken_writer, taken_number, complete_by, answered, excused)", "request"),
        ("select, insert, update", "rate"),
        ("select (id, app, state)", "task"),
        ("select (task, idx, agent)", "step"),
        ("select (task, kind, body), insert (task, kind, at, body)", "inbox"),
        ("insert", "event, refusal"),
    ),
    "submitter": (*_BASE, *_SUBMITS, *_QUEUES, ("select", "request, inbox, audit, event")),
    "operator": (
        ("select", _ALL),
        *_BASE,
        ("insert", "inbox, audit"),
        ("insert, update", "alert"),
        ("insert, update, delete", "message"),
        ("update, delete", "listener, notice"),
        *_BULK,
    ),
    "console": (("select", _ALL), *_BASE, ("insert", "inbox, audit"), ("insert, update", "alert"), *_BULK),
    "reader": (("select", _ALL),),
}
_SEES_ALL = frozenset(role for role, grants in _GRANTS.items() if ("select", _ALL) in grants)

_GUARDED: Final = ("request", "inbox", "event", "audit", "node", "rate", "bulk_act")
"""The tables in which row level security separates the roles."""


def _listed(kinds: Iterable[str]) -> str:
    return ", ".join(f"'{kind}'" for kind in sorted(kinds))


_JSON = r"replace(convert_from(body, 'UTF8'), '\u0000', '\u0001')::json"
"""A message's text. This type refuses a NUL character in a result, so another character replaces it."""
_HONEST = f"({_JSON} ->> 'kind') = kind"
_IS_ACT = f"kind in ({_listed(ACTS)})"
_IS_REPLY = f"kind in ({_listed((*get_args(Outcome), 'late'))})"
_OWN_STEP = """exists (select 1 from makegood.step s join makegood.task t on t.id = s.task
    where s.task = inbox.task and t.app = @app and s.agent = @agent@more)"""
_OWN_LOGIN = "db_user = session_user"
_OF_BULK = f"""{_IS_ACT} and {_HONEST} and exists (select 1 from makegood.bulk_item i join makegood.bulk_act b on b.id = i.bulk
    where i.task = inbox.task and i.act = {_JSON} -> 'act' ->> 'id' and b.kind = inbox.kind and b.db_user = inbox.db_user
        and b.who = {_JSON} -> 'act' ->> 'who')"""  # noqa: S608 - our own text
"""A command of an act on many tasks that an operator requested."""


Policy = tuple[str, str, str]
"""A command, the rows that it sees, and the rows that it may write."""


def policies(kind: str, address: str = "") -> dict[str, list[Policy]]:
    """Return a role's policies on the tables that several roles share, by table."""
    read: Policy = ("select", "true", "")
    made: dict[str, list[Policy]] = {table: [("all", "true", "true")] for table in _GUARDED}
    if kind in ("scheduler", "supervisor"):
        not_acts = f"not ({_IS_ACT}) and {_HONEST}"
        insert = f"({not_acts}) or ({_OF_BULK})" if kind == "supervisor" else not_acts
        made["inbox"] = [read, ("update", "true", "true"), ("delete", "true", ""), ("insert", "", insert)]
    elif kind in ("operator", "console"):
        made["bulk_act"] = [
            read,
            ("insert", "", _OWN_LOGIN),
            ("update", "true", "true"),
            ("delete", "ended_at is not null", ""),
        ]
        made["inbox"] = [read, ("insert", "", f"{_IS_ACT} and {_HONEST} and {_OWN_LOGIN}")]
        made["audit"] = [read, ("insert", "", _OWN_LOGIN)]
    elif kind == "inbox":
        made["node"] = _own_node("' inbox '", "' relay '", "' inbox relay '", "' relay inbox '")
    elif kind == "agent":
        app, _, agent = address.partition("/")
        own = f"agent = {literal(address)}"
        step = _OWN_STEP.replace("@app", literal(app)).replace("@agent", literal(agent))
        this_step = step.replace("@more", f" and s.idx = ({_JSON} ->> 'idx')::integer")
        one_of_the_task = step.replace("@more", "")
        of_an_event = one_of_the_task.replace("inbox.", "event.")
        made = {
            "request": [("all", own, own)],
            "rate": [("all", own, own)],
            "inbox": [
                ("select", f"{_IS_REPLY} and {one_of_the_task}", ""),
                ("insert", "", f"{_IS_REPLY} and {_HONEST} and {this_step}"),
            ],
            "event": [("insert", "", of_an_event)],
            "node": _own_node("' agent '"),
        }
    return made


def _own_node(*roles: str) -> list[Policy]:
    """Return the policies of a process that keeps only the rows of its own kind alive."""
    own = f"roles in ({', '.join(roles)})"
    return [("select", "true", ""), ("insert", "", own), ("update", own, own)]


def literal(text: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def named(text: str) -> str:
    """Return an SQL identifier, quoted."""
    return '"' + text.replace('"', '""') + '"'


def role_of(prefix: str, kind: str, address: str = "") -> str:
    """Return the name of a role. Raises ``ConfigError`` for a name that PostgreSQL would truncate.

    >>> role_of("makegood_", "agent", "shop/card-payments")
    'makegood_agent_shop_card_payments'
    """
    name = f"{prefix}{kind}"
    if address:
        name += "_" + re.sub(r"[^a-z0-9]+", "_", address.lower()).strip("_")
    if len(name.encode()) > _LONGEST:
        raise ConfigError(f"the role {name} is longer than {_LONGEST} bytes: choose a shorter --prefix")
    return name


def wanted(prefix: str, roles: Sequence[str], agents: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return (name, kind, agent) of each requested role; without ``roles``, of all.
    Raises ``ConfigError``.
    """
    if not _PREFIX.fullmatch(prefix):
        raise ConfigError(
            f"--prefix {prefix!r}: small letters, digits and _, beginning with a letter, such as makegood_"
        )
    for address in agents:
        if not _ADDRESS.fullmatch(address):
            raise ConfigError(f"--agent {address!r}: write APP/AGENT, such as shop/payments")
    if roles and "agent" in roles and not agents:
        raise ConfigError("--role agent: say which agents, each with --agent APP/AGENT")
    found: list[tuple[str, str, str]] = []
    for kind in ROLES:
        if kind == "agent":
            found += [(role_of(prefix, kind, address), kind, address) for address in dict.fromkeys(agents)]
        elif not roles or kind in roles:
            found.append((role_of(prefix, kind), kind, ""))
    names = [name for name, _, _ in found]
    for name, _, address in found:
        if names.count(name) > 1:
            raise ConfigError(
                f"--agent {address}: another agent's role is called {name} as well: print its grants apart, with another --prefix"
            )
    return found


def script(prefix: str, roles: Sequence[str] = (), agents: Sequence[str] = ()) -> str:
    """Return the SQL that makes the roles and grants them their rights. Raises ``ConfigError``."""
    found = wanted(prefix, roles, agents)
    parts = [_HEAD, *(_filled(_MADE, name) for name, _, _ in found), _LOCKED]
    parts += [_filled(_OWNING, name) for name, kind, _ in found if kind == "owner"]
    ordinary = [role for role in found if role[1] != "owner"]
    if ordinary:
        parts += [
            _CHECKED.replace("@version", str(needed("postgres"))),
            _ENABLED.replace("@tables", " ".join(_GUARDED)),
        ]
        parts += [_granted(*role) for role in ordinary]
    return "\n\n".join(parts) + _TAIL.replace("@names", ", ".join(named(name) for name, _, _ in found))


_HEAD = """\
-- Roles for makegood. Apply it as a superuser, or as a role that may create roles and is a member of the schema's owner; apply it again
-- after each migration. It locks the tables for a moment. It does not touch other roles: those that have rights in the schema besides the
-- owner meet no row of the tables with row level security until they are members of one of these.
begin;
set local search_path = pg_catalog, pg_temp;
set local standard_conforming_strings = on;
set local lock_timeout = '30s';"""
_CHECKED = """\
do $do$ begin
    if to_regclass('makegood.schema_version') is null then
        raise exception 'there are no tables of makegood here yet'
            using hint = 'apply `makegood store grants --role owner`, run `makegood store migrate` as that role, then apply this';
    elsif (select max(version) from makegood.schema_version) <> @version then
        raise exception 'these grants are for schema version @version' using hint = 'run `makegood store migrate`, or print the grants with the makegood that is installed';
    end if;
end $do$;"""
_TAIL = """

commit;

-- The roles have no passwords yet: \\password ROLE in psql, or a certificate, or a login of each person's own that is a member:
--   create role anna login in role ROLE;
-- Anybody who may connect can listen to the channel makegood and ring there (no data, but names of queues and agents); so let nobody else
-- connect, once the application's own roles have been granted it:
--   revoke connect on database ... from public;  grant connect on database ... to @names;
-- On PostgreSQL 14 and databases upgraded from it:
--   revoke create on schema public from public;
"""


_MADE = """\
do $do$ begin
    if not exists (select 1 from pg_roles where rolname = @name) then
        create role @role login;
    end if;
    execute format('grant connect on database %I to @role', current_database());
end $do$;"""
_LOCKED = """\
-- All tables at once or none: one after another would be a deadlock with the processes that work on them
do $do$ declare tables text; begin
    select string_agg(c.oid::regclass::text, ', ' order by c.oid) into tables from pg_class c
        where c.relnamespace = to_regnamespace('makegood') and c.relkind in ('r', 'p');
    for attempt in 1 .. 3000 loop
        exit when tables is null;
        begin
            execute format('lock table %s in access exclusive mode nowait', tables);
            exit;
        exception when lock_not_available then
            if attempt = 3000 then
                raise exception 'the tables of makegood were in use for too long' using hint = 'apply this again when less is going on';
            end if;
            perform pg_sleep(random() / 100);
        end;
    end loop;
end $do$;"""
_OWNING = """\
-- @role migrates
do $do$ declare found record; begin
    execute format('grant create on database %I to @role', current_database());
    if to_regnamespace('makegood') is not null then
        alter schema makegood owner to @role;
        for found in select c.oid::regclass as table from pg_class c
            where c.relnamespace = 'makegood'::regnamespace and c.relkind in ('r', 'p')
        loop
            execute format('alter table %s owner to @role', found.table);
        end loop;
        if to_regclass('makegood.ready') is not null then
            alter sequence makegood.ready owner to @role;
        end if;
    end if;
end $do$;"""
_ENABLED = """\
do $do$ declare guarded text; begin
    foreach guarded in array string_to_array('@tables', ' ') loop
        if not (select relrowsecurity from pg_class where oid = ('makegood.' || guarded)::regclass) then
            execute format('alter table makegood.%I enable row level security', guarded);
        end if;
    end loop;
end $do$;"""
_READS_LATER_ONES = """\
do $do$ begin
    execute format('alter default privileges for role %I in schema makegood grant select on tables to @role',
        (select pg_get_userbyid(nspowner) from pg_namespace where nspname = 'makegood'));
end $do$;"""
_CLEARED = """\
do $do$ declare found record; begin
    for found in select p.polname, c.relname from pg_policy p join pg_class c on c.oid = p.polrelid
        where c.relnamespace = 'makegood'::regnamespace and starts_with(p.polname::text, @name || ' ')
    loop
        execute format('drop policy %I on makegood.%I', found.polname, found.relname);
    end loop;
end $do$;"""


def _filled(template: str, name: str) -> str:
    return template.replace("@role", named(name)).replace("@name", literal(name))


def _granted(name: str, kind: str, address: str) -> str:
    """Return the SQL for the rights of one role: revoke what it had in the schema, grant what it needs."""
    role = named(name)
    lines = [
        f"-- {name}: {address or kind}",
        f"revoke all on all tables in schema makegood from {role};",
        f"revoke all on all sequences in schema makegood from {role};",
        f"grant usage on schema makegood to {role};",
    ]
    for rights, tables in _GRANTS[kind]:
        where = "all tables in schema makegood"
        if tables != _ALL:
            where = ", ".join(f"makegood.{table}" for table in tables.split(", "))
        lines.append(f"grant {rights} on {where} to {role};")
    if kind == "supervisor":  # after a promotion, numbers are skipped
        lines.append(f"grant select, update on all sequences in schema makegood to {role};")
    if kind in _SEES_ALL:
        lines.append(_filled(_READS_LATER_ONES, name))
    lines.append(_filled(_CLEARED, name))
    for table, wanted_ones in policies(kind, address).items():
        for command, using, check in wanted_ones:
            text = f"create policy {named(f'{name} {command}')} on makegood.{table} for {command} to {role}"
            text += f" using ({using})" if using else ""
            text += f" with check ({check})" if check else ""
            lines.append(f"{text};")
    return "\n".join(lines)
