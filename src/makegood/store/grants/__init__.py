"""Least privilege in PostgreSQL: SQL that makes a role for each kind of process, with only
the rights that it needs.

The script can be applied at any time, and should be applied after each migration. In one transaction it
revokes the rights that a role has in the schema and grants those that this version needs.

The files beside this module are its parts: one for each kind of role, and others for what several need.
``:name`` in a file stands for a value, such as the role's name, or for the text of ``name.sql``.

A right on a whole table to change or to delete is also the right to lock it. So roles of few rights may
change only the columns that they need, and call functions for what they delete. No role may choose a number
that the database draws (an identity column): it could use up those that others are about to get.

Row level security separates the roles in tables that several of them share. An agent's role sees only its
own requests, and may add replies to those only. A submitter's adds to the tasks of its own transaction
only, tasks that nobody has worked on and that wait behind those that wait; the messages that it sends may
not look like notices, whose ids begin with the store's. Only the operator's role may add operator commands,
and only under its own login; the Supervisor's adds those of an act on many tasks that an operator requested
(``bulk_command.sql``, ``bulk_signal.sql``). Alerts of roles of few rights have one of a few texts, which
offer no command of the writer's choice. The owner of the tables is not subject to row level security, so an
installation with one role pays nothing.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Final, get_args

from makegood.election.stores.postgres_sql import TABLES
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
_HOLE = re.compile(r"(?<!:):(\w+)")


def _sql_list(kinds: Iterable[str]) -> str:
    return ", ".join(f"'{kind}'" for kind in sorted(kinds))


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


def resolve_roles(prefix: str, roles: Sequence[str], agents: Sequence[str]) -> list[tuple[str, str, str]]:
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
    definitions = resolve_roles(prefix, roles, agents)
    last = migrations("postgres")[-1]
    values = {
        "acts": _sql_list(ACTS),
        "outcomes": _sql_list((*get_args(Outcome), "late")),
        "election_tables": TABLES.strip(),
        "version": str(last.version),
        "migration": last.name,
        "roles": ", ".join(f'"{name}"' for name, _, _ in definitions),
    }
    apart = ("owner", "elector")  # roles that need no tables of the store
    parts = [
        ("head", "", ""),
        *(("login", name, "") for name, _, _ in definitions),
        ("locked_tables", "", ""),
    ]
    parts += [(kind, name, "") for kind in apart for name, its_kind, _ in definitions if its_kind == kind]
    ordinary = [(kind, name, address) for name, kind, address in definitions if kind not in apart]
    if ordinary:
        parts += [("tables_present", "", ""), ("row_security", "", ""), *ordinary]
    parts.append(("tail", "", ""))
    texts: list[str] = []
    for part, role, address in parts:
        app, _, agent = address.partition("/")
        holes = {**values, "role": role, "address": address, "app": app, "agent": agent}
        texts.append(_fill(part, holes))
    return "\n\n".join(texts) + "\n"


def _fill(name: str, values: Mapping[str, str]) -> str:
    """Return the text of a file with its holes filled."""
    text = files(__name__).joinpath(f"{name}.sql").read_text(encoding="utf-8").removesuffix("\n")
    return _HOLE.sub(lambda hole: values[hole[1]] if hole[1] in values else _fill(hole[1], values), text)
