"""Least privilege in PostgreSQL: SQL that makes a role for each kind of process, with only
the rights that it needs.

The script can be applied at any time, and should be applied after each migration. In one transaction it
revokes the rights that a role has in the schema and grants those that this version needs.

A right on a whole table to change or to delete is also the right to lock it. So roles of few rights may
change only the columns that they need, and call functions for what they delete. No role may choose a number
that the database draws (an identity column): it could use up those that others are about to get.

Row level security separates the roles in tables that several of them share. An agent's role sees only its
own requests, and may add replies to those only. A submitter's adds to the tasks of its own transaction
only. Only the operator's role may add operator commands, and only under its own login. The owner of the
tables is not subject to row level security, so an installation with one role pays nothing.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, get_args

from makegood.election.stores.postgres_sql import SCHEMA, TABLES
from makegood.errors import ConfigError
from makegood.model.messages import ACTS, Outcome
from makegood.store.migrations import migrations

ROLES: Final = (
    "owner", "scheduler", "supervisor", "inbox", "agent", "submitter", "operator", "console", "reader", "elector",
)  # fmt: skip
"""The kinds of roles. The owner migrates; there is one ``agent`` role for each agent. An elector takes part
in elections of your own processes, whose tables need no store: it is made only if it is asked for.
"""

NOT_ALLOWED: Final = "does not allow this for this role"
"""In each error about a right that is missing. (The server's own words are translated.)"""

_LONGEST = 56
"""The longest role name in bytes: PostgreSQL allows 63, and the names of policies are a word longer."""
_PREFIX = re.compile(r"[a-z_][a-z0-9_]*")
_ADDRESS = re.compile(r"[^\s/'\"\\]+/[^\s/'\"\\]+")

_ALL = "all tables"
_TASK = (
    "id, app, workflow, key, fingerprint, state, goal, on_failure, submission, priority, ready_seq, locked_by, epoch, within, complete_by, "
    "undo_within, cause, failure_count, lost, task_expired, correlation_id, trace, created_at, static, told, notified"
)
_STEP = (
    "task, idx, kind, name, agent, action, state, attempt, round, failure_count, asked, deaths, flags, spec"
)
_MESSAGE = "queue, id, body, kind, correlation_id, reply_to, task, sequence, headers, sent_at, visible_at, expires_at, remember"
_REQUEST = "task, idx, attempt, kind, agent, action, priority, isolate, starved, sent_at, taken_at, taken_by, within, complete_by, answered, body"
_AUDIT = "act, task, kind, who, why, verdict, reason, state, at, change, db_user"
_EVENT, _REFUSAL = (
    "task, at, node, moves, note, attempts",
    "at, kind, who, node, task, step, attempt, epoch, against, what",
)
_ALERT, _RAISED_AGAIN = (
    "kind, task, step, text, standing, ended_at, ended_why, at",
    "text, task, standing, ended_at, ended_why",
)
_BULK_ACT = "id, kind, wanted, who, why, db_user, counted, most, rate, state, at, cursor, free_at, sent, applied, noop, refused, stopped_by, more"
_DECIDED = (
    "state, goal, cause, submission, ready_seq, locked_by, epoch, complete_by, undo_by, failure_count, lost, task_expired, told, notified, "
    "ended_at, static, result"
)
_PROGRESS = (
    "state, attempt, round, failure_count, asked, deaths, flags, spec, result, late, error, first_sent"
)
_FIGURES = "seen, submitted, processed, undone, errors, steps, latencies"

_WRITES = (("insert (id, number, at), update (number, outcome, at)", "writer"),)
_BASE = (("select", "generation, schema_version, node, lease, writer"), *_WRITES)
_BEATS = (
    (
        "insert (name, roles, host, pid, started_at, alive_until, dead, info), update (alive_until, info, stopped_at)",
        "node",
    ),
)
_NOTICES = (
    ("insert (task, sequence, body)", "notice"),
    ("insert (task, host, url, sent, last, due_at)", "listener"),
)
_SUBMITS = (
    ("select", "task, step, listener, notice"),
    (f"insert ({_TASK})", "task"),
    (f"insert ({_STEP})", "step"),
    *_NOTICES,
)
_QUEUES = (
    (
        f"select, insert ({_MESSAGE}), update (taken_by, visible_at, tries, state, ended_at, expires_at, error)",
        "message",
    ),
)
_COMMANDS = (
    ("insert (task, kind, at, body, db_user)", "inbox"),
    (f"insert ({_AUDIT})", "audit"),
    (f"insert ({_ALERT}), update (task, text)", "alert"),
    (f"insert ({_BULK_ACT})", "bulk_act"),
    ("insert (name, epoch), update (epoch)", "step_down"),
)
_GRANTS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "scheduler": (
        ("select", _ALL),
        *_WRITES,
        *_BEATS,
        (f"update ({_DECIDED})", "task"),
        (f"insert ({_STEP}, result, late, error), update ({_PROGRESS})", "step"),
        (f"insert ({_REQUEST}), update (sent_at, within, complete_by), delete", "request"),
        ("delete", "inbox, notice"),
        *_NOTICES,
        ("update (sent, last, tries, due_at, taken_by, dead, error), delete", "listener"),
        (f"insert ({_ALERT}), update ({_RAISED_AGAIN}, logged, told, tell_at, tries)", "alert"),
        (f"insert ({_AUDIT})", "audit"),
        (f"insert ({_EVENT})", "event"),
        (f"insert ({_MESSAGE})", "message"),
        (f"insert ({_REFUSAL})", "refusal"),
    ),
    "supervisor": (
        ("select", _ALL),
        *_WRITES,
        *_BEATS,
        ("update (dead)", "node"),
        (
            "update (state, locked_by, ready_seq, failure_count, lost, task_expired, undo_by), delete",
            "task",
        ),
        ("update (state, attempt, failure_count), delete", "step"),
        ("update (starved), delete", "request"),
        ("insert (task, kind, at, body, db_user)", "inbox"),
        (f"insert ({_ALERT}), update ({_RAISED_AGAIN}, logged, told, tell_at, tries), delete", "alert"),
        (f"insert ({_AUDIT}), delete", "audit"),
        (f"insert ({_EVENT}), delete", "event"),
        ("update (visible_at), delete", "message"),
        (f"insert ({_REFUSAL}), delete", "refusal"),
        ("insert (at, epoch, kind, tasks, task), delete", "supervisor_decision"),
        (f"insert (minute, {_FIGURES}), update ({_FIGURES}), delete", "minute"),
        ("insert (bulk, task, act, at), update (outcome, at), delete", "bulk_item"),
        (
            "update (state, cursor, free_at, sent, applied, noop, refused, ended_at), delete",
            "bulk_act",
        ),
        (
            "insert (name, holder, nonce, epoch, ttl, expires_at, taken_at), update (holder, nonce, epoch, ttl, expires_at, taken_at)",
            "lease",
        ),
        (
            "insert (name, epoch, holder, began_at, released), update (ended_at, released), delete",
            "lease_term",
        ),
        ("update (generation, system_id, timeline)", "generation"),
    ),
    "inbox": (
        *_BASE,
        *_BEATS,
        *_SUBMITS,
        *_QUEUES,
        (f"select, insert ({_ALERT}), update ({_RAISED_AGAIN})", "alert"),
    ),
    "agent": (
        *_BASE,
        *_BEATS,
        (
            "select, update (taken_by, taken_at, taken_writer, taken_number, complete_by, answered, excused)",
            "request",
        ),
        ("select, insert (agent, next), update (next)", "rate"),
        ("select (id, app, state)", "task"),
        ("select (task, idx, agent, failure_count, deaths)", "step"),
        ("select (task, kind, body), insert (task, kind, at, body)", "inbox"),
        ("insert (task, at, node, moves, note, attempts)", "event"),
        (f"insert ({_REFUSAL})", "refusal"),
        (f"select (kind, task, step, text, standing), insert ({_ALERT}), update ({_RAISED_AGAIN})", "alert"),
    ),
    "submitter": (*_BASE, *_SUBMITS, *_QUEUES, ("select", "request, inbox, audit, event")),
    "operator": (
        ("select", _ALL),
        *_WRITES,
        *_COMMANDS,
        ("update (state, body, tries, visible_at, ended_at)", "message"),
        ("update (tries, due_at, dead)", "listener"),
    ),
    "console": (("select", _ALL), *_WRITES, *_COMMANDS),
    "reader": (("select", _ALL),),
}
_SEES_ALL = frozenset(role for role, grants in _GRANTS.items() if ("select", _ALL) in grants)

_MAIL = ("is_new", "settle_messages", "drop_expired", "raise_dead_letter")
_FUNCTIONS: Final[dict[str, tuple[str, ...]]] = {
    "scheduler": ("close_writers",),
    "supervisor": ("close_writers",),
    "inbox": ("close_writers", *_MAIL),
    "agent": ("close_writers",),
    "submitter": ("close_writers", *_MAIL),
    "operator": (
        "close_writers", "acknowledge_alerts", "stop_bulk_act", "end_dead_letters", "drop_messages", "drop_listeners", "drop_notices",
    ),
    "console": ("close_writers", "acknowledge_alerts", "stop_bulk_act"),
    "reader": (),
}  # fmt: skip
"""What roles may call: each does one thing, so that they need no rights on whole tables."""

_SEQUENCES = (
    "ready", "alert_id_seq", "event_seq_seq", "inbox_seq_seq", "message_seq_seq", "node_id_seq",
)  # fmt: skip
"""Numbers that the Supervisor skips after a promotion."""

_PATIENCE: Final[dict[str, dict[str, str]]] = {
    "submitter": {"idle_in_transaction_session_timeout": "10min"},
    "inbox": {"idle_in_transaction_session_timeout": "10min"},
    "reader": {
        "idle_in_transaction_session_timeout": "1min",
        "lock_timeout": "10s",
        "statement_timeout": "10min",
    },
}
_USUAL_PATIENCE = {"idle_in_transaction_session_timeout": "1min", "lock_timeout": "10s"}
"""Settings of a role's own sessions, such as psql's. makegood's sessions have shorter ones."""

_GUARDED: Final = (
    "request", "inbox", "event", "audit", "node", "rate", "bulk_act", "task", "step", "notice", "listener", "message", "alert", "refusal",
    "writer",
)  # fmt: skip
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

_CLOCK = "extract(epoch from clock_timestamp())::float8"
_UNBEGUN = f"""state = 'pending' and locked_by is null and epoch = 0 and complete_by is null and failure_count = 0
    and abs(created_at - {_CLOCK}) < 60 and abs(ready_seq / 1e6::float8 - {_CLOCK}) < 60"""
"""A task as it is submitted: nobody has worked on it, and it waits behind those that wait."""
_OF_NEW_TASK = "makegood.is_new(task)"
_NO_NOTICE = "task is null and not starts_with(id, (select g.store_id from makegood.generation g) || '-')"
"""A message of an application. A notice names a task, and its id begins with the store's."""
_PLAIN_TEXT = "strpos(text, '`') = 0"
"""An alert whose text offers no command."""
_OF_ROLE = f"kind = 'role_failing' and task is null and standing is not distinct from 'role_failing 0 ' || step and {_PLAIN_TEXT}"
_NO_LEADER = r"""kind = 'no_leader' and task is null and step = '' and standing is not distinct from 'no_leader 0 ' and text ~
    '^no supervisor has led for [0-9.e+]+ s: what is overdue is not found, and nobody frees the tasks of dead processes; start `makegood supervisor`$'"""
_OPEN_CIRCUIT = r"""(text ~ '^its service does not answer: its circuit is open, requests wait \(see `makegood agents`\)(; only these steps fail:(,? [^ ,`]{1,200} of task [0-9a-z]{13}){2,3})?$' or text ~
    '^only step [^`]* of task ([0-9a-z]{13}) fails, and opened its circuit: [^`]*\. See `makegood task show \1`; if the step is broken and not the service, `makegood task cancel \1` ends it$')"""
"""The texts that an agent's process writes about its circuit."""


Policy = tuple[str, str, str]
"""A command, the rows that it sees, and the rows that it may write."""


def policies(kind: str, address: str = "") -> dict[str, list[Policy]]:
    """Return a role's policies on the tables that several roles share, by table."""
    read: Policy = ("select", "true", "")
    by_table: dict[str, list[Policy]] = {table: [("all", "true", "true")] for table in _GUARDED}
    if kind in _SEES_ALL:
        by_table["writer"] = [read, ("insert", "", _OWN_LOGIN), ("update", _OWN_LOGIN, _OWN_LOGIN)]
    else:
        by_table["writer"] = [("all", _OWN_LOGIN, _OWN_LOGIN)]
    if kind == "scheduler":
        by_table["node"] = [read, ("insert", "", "true"), ("update", _OWN_LOGIN, _OWN_LOGIN)]
        by_table["inbox"] = [read, ("delete", "true", "")]
    elif kind == "supervisor":
        of_rules = f"(not ({_IS_ACT}) and {_HONEST}) or ({_OF_BULK})"
        by_table["inbox"] = [read, ("insert", "", of_rules)]
    elif kind in ("operator", "console"):
        by_table["bulk_act"] = [read, ("insert", "", _OWN_LOGIN)]
        by_table["inbox"] = [read, ("insert", "", f"{_IS_ACT} and {_HONEST} and {_OWN_LOGIN}")]
        by_table["audit"] = [read, ("insert", "", _OWN_LOGIN)]
        test = f"kind = 'test' and task is null and standing is not distinct from 'test 0 ' || step and {_PLAIN_TEXT}"
        by_table["alert"] = [read, ("insert", "", test), ("update", "kind = 'test'", test)]
    elif kind in ("inbox", "submitter"):
        by_table |= _submitting(read)
    elif kind == "agent":
        by_table = {"writer": by_table["writer"], **_answering(address)}
    if kind == "inbox":
        by_table["node"] = _own_node("' inbox '", "' relay '", "' inbox relay '", "' relay inbox '")
        outbox = f"kind = 'dead_letter' and task is null and starts_with(step, 'outbox/') and {_PLAIN_TEXT}"
        letter = f"{outbox} and standing is not distinct from 'dead_letter 0 ' || step"
        failing = f"{_OF_ROLE} and (step = 'relay' or starts_with(step, 'inbox '))"
        # What is over has no standing cause any more.
        own = f"({outbox}) or (kind = 'role_failing' and (step = 'relay' or starts_with(step, 'inbox ')))"
        by_table["alert"] = _own_alerts(own, f"({letter}) or ({failing})")
    return by_table


def _submitting(read: Policy) -> dict[str, list[Policy]]:
    """Return the policies of roles that submit: they add only to the tasks of their own transaction."""
    additions = {table: [read, ("insert", "", _OF_NEW_TASK)] for table in ("step", "notice", "listener")}
    message = [read, ("insert", "", f"({_NO_NOTICE}) or {_OF_NEW_TASK}"), ("update", "true", "true")]
    return {"task": [read, ("insert", "", _UNBEGUN)], **additions, "message": message}


def _answering(address: str) -> dict[str, list[Policy]]:
    """Return the policies of an agent: it meets its own requests, and answers them."""
    app, _, agent = address.partition("/")
    own = f"agent = {literal(address)}"
    step = _OWN_STEP.replace("@app", literal(app)).replace("@agent", literal(agent))
    this_step = step.replace("@more", f" and s.idx = ({_JSON} ->> 'idx')::integer")
    of_the_task = step.replace("@more", "")
    reply = f"{_IS_REPLY} and {_HONEST} and {this_step}"
    late = f"kind = 'reply' and {of_the_task.replace('inbox.', 'refusal.')}"
    circuit = f"kind = 'circuit_open' and step = {literal(address)}"
    scope = f"(task is null or {of_the_task.replace('inbox.', 'alert.')})"
    opening = f"{circuit} and standing is not distinct from 'circuit_open 0 ' || step and {scope} and {_OPEN_CIRCUIT}"
    failing = "step in ('agents (answering)', 'agents (taking)', 'circuits')"
    return {
        "request": [("all", own, own)],
        "rate": [("all", own, own)],
        "task": [("select", f"app = {literal(app)}", "")],
        "step": [("select", f"agent = {literal(agent)}", "")],
        "inbox": [("select", reply, ""), ("insert", "", reply)],
        "event": [("insert", "", f"{of_the_task.replace('inbox.', 'event.')} and abs(at - {_CLOCK}) < 60")],
        "refusal": [("insert", "", f"{late} and abs(at - {_CLOCK}) < 60")],
        "node": _own_node("' agent '"),
        "alert": _own_alerts(
            f"({circuit}) or (kind = 'role_failing' and {failing})",
            f"({opening}) or ({_OF_ROLE} and {failing})",
        ),
    }


def _own_alerts(visible: str, valid: str) -> list[Policy]:
    """Return the policies of a process that raises and ends alerts of its own, and says that nobody leads."""
    now = f"abs(at - {_CLOCK}) < 60"
    readable = f"({visible}) or kind = 'no_leader'"
    writable = f"({valid}) or ({_NO_LEADER})"
    closing = f"({visible}) and standing is null"
    return [
        ("select", readable, ""),
        ("insert", "", f"({writable}) and {now}"),
        ("update", readable, f"{writable} or ({closing})"),
    ]


def _own_node(*roles: str) -> list[Policy]:
    """Return the policies of a process that keeps only its own row alive."""
    own = f"roles in ({', '.join(roles)})"
    return [("select", "true", ""), ("insert", "", own), ("update", _OWN_LOGIN, f"{own} and {_OWN_LOGIN}")]


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
    definitions: list[tuple[str, str, str]] = []
    for kind in ROLES:
        if kind == "agent":
            definitions += [
                (role_of(prefix, kind, address), kind, address) for address in dict.fromkeys(agents)
            ]
        elif kind in roles or not (roles or kind == "elector"):
            definitions.append((role_of(prefix, kind), kind, ""))
    names = [name for name, _, _ in definitions]
    for name, _, address in definitions:
        if names.count(name) > 1:
            raise ConfigError(
                f"--agent {address}: another agent's role is called {name} as well: print its grants apart, with another --prefix"
            )
    return definitions


def script(prefix: str, roles: Sequence[str] = (), agents: Sequence[str] = ()) -> str:
    """Return the SQL that makes the roles and grants them their rights. Raises ``ConfigError``."""
    definitions = wanted(prefix, roles, agents)
    parts = [_HEAD, *(_filled(_MADE, name) for name, _, _ in definitions), _LOCKED]
    parts += [_filled(_OWNING, name) for name, kind, _ in definitions if kind == "owner"]
    parts += [_filled(_ELECTING, name) for name, kind, _ in definitions if kind == "elector"]
    ordinary = [role for role in definitions if role[1] not in ("owner", "elector")]
    if ordinary:
        last = migrations("postgres")[-1]
        parts += [
            _CHECKED.replace("@version", str(last.version)).replace("@name", last.name),
            _ENABLED.replace("@tables", " ".join(_GUARDED)),
        ]
        parts += [_granted(*role) for role in ordinary]
    return "\n\n".join(parts) + _TAIL.replace("@names", ", ".join(named(name) for name, _, _ in definitions))


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
    elsif (select name from makegood.schema_version order by version desc limit 1) is distinct from '@name' then
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
        for found in select p.oid::regprocedure as function from pg_proc p where p.pronamespace = 'makegood'::regnamespace loop
            execute format('alter function %s owner to @role', found.function);
        end loop;
    end if;
end $do$;"""
_ELECTING = f"""\
-- @role takes part in elections
{TABLES.strip()}
revoke all on all tables in schema {SCHEMA} from @role;
grant usage on schema {SCHEMA} to @role;
grant select, insert, update (holder, nonce, epoch, ttl, expires_at, taken_at) on {SCHEMA}.lease to @role;
grant select, insert, update (ended_at, released), delete on {SCHEMA}.term to @role;
alter role @role set idle_in_transaction_session_timeout = '1min';"""  # noqa: S608 - our own text
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
        *(
            f"revoke all on all {objects} in schema makegood from {role};"
            for objects in ("tables", "sequences", "functions")
        ),
        f"grant usage on schema makegood to {role};",
    ]
    for rights, tables in _GRANTS[kind]:
        target = "all tables in schema makegood"
        if tables != _ALL:
            target = ", ".join(f"makegood.{table}" for table in tables.split(", "))
        lines.append(f"grant {rights} on {target} to {role};")
    lines += [f"grant execute on function makegood.{function} to {role};" for function in _FUNCTIONS[kind]]
    if kind == "supervisor":
        lines += [f"grant update on sequence makegood.{sequence} to {role};" for sequence in _SEQUENCES]
    if kind in _SEES_ALL:
        lines.append(_filled(_READS_LATER_ONES, name))
    patience = _PATIENCE.get(kind, _USUAL_PATIENCE)
    lines += [f"alter role {role} set {setting} = {literal(limit)};" for setting, limit in patience.items()]
    lines.append(_filled(_CLEARED, name))
    for table, wanted_ones in policies(kind, address).items():
        for command, using, check in wanted_ones:
            text = f"create policy {named(f'{name} {command}')} on makegood.{table} for {command} to {role}"
            text += f" using ({using})" if using else ""
            text += f" with check ({check})" if check else ""
            lines.append(f"{text};")
    return "\n".join(lines)
