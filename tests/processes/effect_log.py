"""The remote service that the fault tests call, with books of its own: what it did, under which key and token.

One SQLite file, written durably, shared by all agents' processes; makegood never reads it, and the auditor reads nothing
else. The service honours key and token as a good service would, and each answer is written in the transaction of its
effect, so that a kill at any moment leaves either both or neither:

- the same key again gets the same answer, and no second effect;
- a token lower than one seen before in the same scope is a message from the past: refused;
- a do that arrives after its own undo finds the tombstone of its key: refused.
"""

import fcntl
import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

Token = tuple[int, int]

SCHEMA = """
pragma journal_mode = wal;
create table if not exists entry (
  id integer primary key, scope text not null, key text not null, change integer not null check (change in (1, -1)),
  generation integer not null, attempt integer not null, ref text not null, step text not null, at real not null
);
create table if not exists answer (key text primary key, value text not null);
create table if not exists tombstone (key text primary key, had_stood integer not null);
create table if not exists fence (scope text primary key, generation integer not null, attempt integer not null);
create table if not exists call (
  id integer primary key, scope text not null, doing text not null, generation integer not null, attempt integer not null,
  verdict text not null, pid integer not null, at real not null
);
create table if not exists arrival (scope text not null, doing text not null, count integer not null, primary key (scope, doing));
"""


class StaleTokenError(Exception):
    """The service has seen a higher token in this scope: this call is a message from the past and did nothing."""


class TombstoneError(Exception):
    """The key was undone before: nothing stands for it, now or later."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Who asks: scope and token of the step, the key of the effect, and for people the order's id and the step's name."""

    scope: str
    key: str
    token: Token
    ref: str
    step: str


class Books:
    """The service. ``path``: its file. Every method opens the file anew: no state outlives a call."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One at a time and in order: SQLite's own waiting for its lock is unfair, a call might wait for seconds."""
        connecting = sqlite3.connect(self.path, timeout=30, isolation_level=None)
        with self.path.with_suffix(".lock").open("a") as turn, closing(connecting) as connection:
            fcntl.flock(turn, fcntl.LOCK_EX)
            connection.execute("pragma synchronous = full")
            connection.execute("begin immediate")
            yield connection
            connection.execute("commit")

    def create(self) -> None:
        """Make empty books."""
        with closing(sqlite3.connect(self.path)) as connection:
            connection.executescript(SCHEMA)

    def arrive(self, scope: str, doing: str) -> int:
        """Count the beginnings of an action; return which one this is, from 1. Counted before anything can go wrong."""
        with self._transaction() as tx:
            return int(
                tx.execute(
                    "insert into arrival values (?, ?, 1) on conflict do update set count = count + 1 returning count",
                    (scope, doing),
                ).fetchone()[0]
            )

    def do(self, ask: Ask, value: str, pid: int) -> str:
        """Bring the effect about, once per key; return the answer that the key has."""
        verdict = "done"
        with self._transaction() as tx:
            row = tx.execute("select value from answer where key = ?", (ask.key,)).fetchone()
            if tx.execute("select 1 from tombstone where key = ?", (ask.key,)).fetchone():
                verdict = "tombstone"
            elif _stale(tx, ask):
                verdict = "stale"
            elif row:
                verdict, value = "repeated", row[0]
            else:
                _enter(tx, ask, ask.key, 1)
                tx.execute("insert into answer values (?, ?)", (ask.key, value))
            _note(tx, ask, "do", verdict, pid)
        _refuse(verdict, ask)
        return value

    def undo(self, ask: Ask, undoes: str, pid: int) -> bool:
        """Take the effect of the key ``undoes`` back, if it stands, and bar it for ever; return whether it stood."""
        verdict = "undone"
        with self._transaction() as tx:
            stands = tx.execute("select sum(change) from entry where key = ?", (undoes,)).fetchone()[0] == 1
            if _stale(tx, ask):
                verdict = "stale"
            elif not stands:
                verdict = "nothing stood"
            else:
                _enter(tx, ask, undoes, -1)
            if verdict != "stale":
                tx.execute("insert or ignore into tombstone values (?, ?)", (undoes, stands))
            _note(tx, ask, "undo", verdict, pid)
        _refuse(verdict, ask)
        return verdict == "undone"

    def asked(self, ask: Ask, about: str, pid: int) -> str | None:
        """Return the answer given under the key ``about`` if its effect stands, else None."""
        with self._transaction() as tx:
            stands = tx.execute("select sum(change) from entry where key = ?", (about,)).fetchone()[0] == 1
            _note(tx, ask, "probe", "stands" if stands else "nothing", pid)
            row = tx.execute("select value from answer where key = ?", (about,)).fetchone()
        return row[0] if stands and row else None

    # -- for tests -----------------------------------------------------------------------------------------------------

    def rows(self, table: str) -> list[dict[str, object]]:
        """Return all rows of a table, oldest first."""
        with closing(sqlite3.connect(self.path, timeout=30)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(f"select * from {table}")]

    def arrivals(self, step: str, doing: str = "do") -> int:
        """Return how often an action of that step began, over all orders."""
        return sum(
            int(str(row["count"]))
            for row in self.rows("arrival")
            if row["doing"] == doing and str(row["scope"]).endswith(f"/{step}")
        )

    def calls(self, step: str, doing: str = "do") -> list[str]:
        """Return what the service answered to that step's calls, in order."""
        return [
            str(row["verdict"])
            for row in self.rows("call")
            if row["doing"] == doing and str(row["scope"]).endswith(f"/{step}")
        ]


def _stale(tx: sqlite3.Connection, ask: Ask) -> bool:
    """Look at the scope's fence, and raise it."""
    row = tx.execute("select generation, attempt from fence where scope = ?", (ask.scope,)).fetchone()
    if row is not None and ask.token < tuple(row):
        return True
    tx.execute("insert or replace into fence values (?, ?, ?)", (ask.scope, *ask.token))
    return False


def _enter(tx: sqlite3.Connection, ask: Ask, key: str, change: int) -> None:
    tx.execute(
        "insert into entry (scope, key, change, generation, attempt, ref, step, at) values (?, ?, ?, ?, ?, ?, ?, ?)",
        (ask.scope, key, change, *ask.token, ask.ref, ask.step, time.time()),
    )


def _note(tx: sqlite3.Connection, ask: Ask, doing: str, verdict: str, pid: int) -> None:
    tx.execute(
        "insert into call (scope, doing, generation, attempt, verdict, pid, at) values (?, ?, ?, ?, ?, ?, ?)",
        (ask.scope, doing, *ask.token, verdict, pid, time.time()),
    )


def _refuse(verdict: str, ask: Ask) -> None:
    if verdict == "stale":
        raise StaleTokenError(f"token {ask.token} of {ask.scope} is from the past")
    if verdict == "tombstone":
        raise TombstoneError(f"{ask.key} was undone before")


def audit(books: Books, effects: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return what is wrong with the books, in plain words; nothing when each effect stands as often as expected.

    ``expected``: order's id -> step -> how many of its effects stand (0 or 1). Whatever the state store says is not
    looked at. Effects of orders and steps that are not expected are wrong, and so is a key that was done twice, undone
    twice, or undone before it was done.
    """
    wrong: list[str] = []
    standing: dict[tuple[str, str], int] = {}
    by_key: dict[str, list[int]] = {}
    for row in books.rows("entry"):
        place = (str(row["ref"]), str(row["step"]))
        change = int(str(row["change"]))
        standing[place] = standing.get(place, 0) + change
        by_key.setdefault(str(row["key"]), []).append(change)
    for key, changes in by_key.items():
        if changes not in ([1], [1, -1]):
            wrong.append(
                f"the effect under {key} went {changes}: done once, and undone at most once, is right"
            )
    for ref, steps in effects.items():
        for step, right in steps.items():
            count = standing.pop((ref, step), 0)
            if count != right:
                wrong.append(f"{step} of order {ref} stands {count} times, {right} is right")
    wrong += [
        f"{step} of order {ref} was not expected, it stands {n} times"
        for (ref, step), n in standing.items()
        if n
    ]
    return wrong


def show(books: Books) -> str:
    """Return the books as text, for the report of a failed test."""
    try:
        lines = [
            f"  {table}: {json.dumps(row)}"
            for table in ("call", "arrival")
            for row in books.rows(table)[-40:]
        ]
    except sqlite3.OperationalError as missing:  # the test called no service
        return f"  ({missing})"
    return "\n".join(lines) or "  (empty)"
