"""The books of the remote services: what they did, for whom, under which key, and never twice.

One SQLite file, in which every effect is one row of ``entry``, written once and never changed. Whatever makes the
services safe to call again is written in the very transaction of the effect, so that a kill at any moment leaves
either both or neither:

- *answer*: what was answered under a key, refusals too. The same key again gets the same answer, and no effect.
- *fence*: the highest token seen in a scope. A lower one is a message from the past and changes nothing. Tokens are
  (generation, attempt), compared in that order.
- *tombstone*: keys that were undone, whether anything had been done under them or not. A request that arrives after
  its own undo finds the tombstone and is told so.

Nothing here knows who calls, or why: key, scope and token arrive with the request.
"""

import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS entry (
  id        INTEGER PRIMARY KEY,
  service   TEXT NOT NULL,
  operation TEXT NOT NULL,     -- as it was asked for: charge, refund
  effect    TEXT NOT NULL,     -- what it changes: a refund changes the effect "charge"
  change    INTEGER NOT NULL CHECK (change IN (1, -1)),
  key       TEXT NOT NULL,     -- the key of the effect: a refund stands under the key of its charge
  asked_by  TEXT NOT NULL,     -- the key of the request: the refund's own
  scope     TEXT NOT NULL,
  token     TEXT NOT NULL,
  order_id  TEXT NOT NULL,
  sku       TEXT NOT NULL,
  cents     INTEGER NOT NULL,
  at        REAL NOT NULL,     -- seconds since 1970
  approved_by TEXT NOT NULL DEFAULT ''  -- whose approval the papers of a shipment name
) STRICT;
CREATE INDEX IF NOT EXISTS entry_key ON entry (service, key);
CREATE TRIGGER IF NOT EXISTS entry_never_changes BEFORE UPDATE ON entry
  BEGIN SELECT RAISE(ABORT, 'entries are never changed'); END;
CREATE TRIGGER IF NOT EXISTS entry_never_goes BEFORE DELETE ON entry
  BEGIN SELECT RAISE(ABORT, 'entries are never deleted'); END;
CREATE TABLE IF NOT EXISTS answer (
  service TEXT NOT NULL, key TEXT NOT NULL, operation TEXT NOT NULL, order_id TEXT NOT NULL,
  status INTEGER NOT NULL, body TEXT NOT NULL, at REAL NOT NULL,
  PRIMARY KEY (service, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fence (
  service TEXT NOT NULL, scope TEXT NOT NULL, generation INTEGER NOT NULL, attempt INTEGER NOT NULL,
  PRIMARY KEY (service, scope)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tombstone (
  service TEXT NOT NULL, key TEXT NOT NULL, undone_by TEXT NOT NULL, had_stood INTEGER NOT NULL, at REAL NOT NULL,
  PRIMARY KEY (service, key)
) STRICT, WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that a service does (``undoes`` is empty) or takes back (``undoes`` names what)."""

    service: str
    name: str
    undoes: str = ""
    refusal: str = ""
    """What a refusal for business reasons says; empty where the service never refuses."""
    refusal_status: int = 0

    @property
    def effect(self) -> str:
        """The name that the effect has in the books: the doing operation's."""
        return self.undoes or self.name


OPERATIONS: Final[Mapping[str, Operation]] = {
    f"{op.service}/{op.name}": op
    for op in (
        Operation("stock", "reserve", refusal="out of stock", refusal_status=409),
        Operation("stock", "release", undoes="reserve"),
        Operation("stock", "pack", refusal="damaged in the warehouse", refusal_status=409),
        Operation("stock", "unpack", undoes="pack"),
        Operation("payments", "charge", refusal="card refused", refusal_status=402),
        Operation("payments", "refund", undoes="charge"),
        Operation("payments", "settle"),
        Operation("payments", "reverse", undoes="settle"),
        Operation("carrier", "book", refusal="no van goes there", refusal_status=422),
        Operation("carrier", "cancel", undoes="book"),
        Operation("carrier", "ship", refusal="the parcel is too heavy", refusal_status=422),
        Operation("carrier", "recall", undoes="ship"),
        Operation("carrier", "email"),
    )
}
SERVICES: Final = ("stock", "payments", "carrier")


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: who asks under which key, and about what. ``token`` is None where the caller sends none."""

    key: str
    scope: str = ""
    token: tuple[int, int] | None = None
    undoes: str = ""
    """In an undo or a probe: the key that it is about."""
    order_id: str = ""
    sku: str = ""
    cents: int = 0
    approved_by: str = ""

    @property
    def token_text(self) -> str:
        """The token as it is written in the books, empty without one."""
        return f"{self.token[0]}.{self.token[1]}" if self.token else ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the service says: an HTTP status and a JSON object, whose ``code`` says it in a word or two."""

    status: int
    body: Mapping[str, Any]


SUPERSEDED: Final = Answer(409, {"code": "superseded", "message": "a newer token was seen in this scope"})
GONE: Final = Answer(
    410, {"code": "undone", "message": "this key was undone: nothing is in place, and nothing will be"}
)


class Books:
    """The books of all three services in one file; every method is one durable transaction and may be called from
    any thread. Raises ``sqlite3.Error`` when the file cannot be written.

    ``forgets``: parts of keys, and for how many seconds the services remember such a key: a later request under it is a
    new one.
    """

    def __init__(self, path: Path, forgets: Mapping[str, float] | None = None) -> None:
        self._forgets = dict(forgets or {})
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10.0)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.executescript(SCHEMA)

    def close(self) -> None:
        """Close the file, after the transaction that is under way."""
        with self._lock:
            self._db.close()

    def do(self, operation: Operation, ask: Ask, *, refuse: bool = False) -> Answer:
        """Do it once, or say again what was said. ``refuse`` makes this first answer a refusal."""
        with self._transaction() as db:
            if not _fence(db, operation.service, ask):
                return SUPERSEDED
            if _tombstone(db, operation.service, ask.key) is not None:
                return GONE
            old_key = self._has_forgotten(db, operation, ask)
            earlier_answer = None if old_key else _remembered(db, operation, ask)
            if earlier_answer is not None:
                return earlier_answer
            if refuse and operation.refusal:
                answer = Answer(operation.refusal_status, {"code": "refused", "message": operation.refusal})
            else:
                facts = replace(ask, cents=_due(db)) if operation.name == "settle" else ask
                entry = _enter(db, operation, facts, key=ask.key)
                body: dict[str, Any] = {"code": "done", "id": f"{operation.name}-{entry}"}
                answer = Answer(200, body if facts is ask else {**body, "cents": facts.cents})
            return _remember(db, operation, ask, answer)

    def undo(self, operation: Operation, ask: Ask) -> Answer:
        """Take back what was done under ``ask.undoes``; where nothing was done, make sure that nothing will be."""
        with self._transaction() as db:
            if not _fence(db, operation.service, ask):
                return SUPERSEDED
            old_key = self._has_forgotten(db, operation, ask)
            answer = None if old_key else _remembered(db, operation, ask)
            if answer is not None:
                return answer
            stands = _tombstone(db, operation.service, ask.undoes)
            if stands is None or old_key:
                effect = _done(db, operation.service, ask.undoes)
                if effect is not None and effect["effect"] != operation.effect:
                    problem = f"key {ask.undoes} was used for {effect['effect']}, which {operation.name} cannot undo"
                    return Answer(422, {"code": "mismatch", "message": problem})
                stands = effect is not None
                if effect is not None:
                    facts = Ask(
                        ask.key,
                        ask.scope,
                        ask.token,
                        ask.undoes,
                        effect["order_id"],
                        effect["sku"],
                        effect["cents"],
                    )
                    _enter(db, operation, facts, key=ask.undoes)
                db.execute(
                    "INSERT OR IGNORE INTO tombstone (service, key, undone_by, had_stood, at) VALUES (?, ?, ?, ?, ?)",
                    (operation.service, ask.undoes, ask.key, stands, time.time()),
                )
            return _remember(db, operation, ask, Answer(200, {"code": "undone", "had_stood": stands}))

    def find(self, service: str, ask: Ask, *, fences: bool = False) -> Answer:
        """Say whether anything stands under ``ask.undoes``. With ``fences`` older tokens are refused from now on."""
        with self._transaction() as db:
            if fences and not _fence(db, service, ask):
                return SUPERSEDED
            if _tombstone(db, service, ask.undoes) is not None:
                return Answer(200, {"code": "found", "happened": False, "undone": True})
            effect = _done(db, service, ask.undoes)
            if effect is None:
                return Answer(200, {"code": "found", "happened": False, "undone": False})
            return Answer(
                200, {"code": "found", "happened": True, "id": f"{effect['operation']}-{effect['id']}"}
            )

    def totals(self) -> dict[str, dict[str, int]]:
        """Per effect: how often it was done, how often taken back. For a live display."""
        with self._lock:
            rows = self._db.execute(
                "SELECT effect, sum(change = 1), sum(change = -1) FROM entry GROUP BY effect ORDER BY effect"
            ).fetchall()
        return {effect: {"done": forward, "undone": backward} for effect, forward, backward in rows}

    def _has_forgotten(self, db: sqlite3.Connection, operation: Operation, ask: Ask) -> bool:
        """Whether the service has answered under this key so long ago that it knows nothing of it any more."""
        keeps = next((seconds for part, seconds in self._forgets.items() if part in ask.key), None)
        if keeps is None:
            return False
        row = db.execute(
            "SELECT at FROM answer WHERE service = ? AND key = ?", (operation.service, ask.key)
        ).fetchone()
        return row is not None and time.time() >= float(row[0]) + keeps

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")


def _fence(db: sqlite3.Connection, service: str, ask: Ask) -> bool:
    """Raise the scope's highest token to this one; False when a higher one was seen. No token: nothing to compare."""
    if ask.token is None:
        return True
    row = db.execute(
        "SELECT generation, attempt FROM fence WHERE service = ? AND scope = ?", (service, ask.scope)
    ).fetchone()
    if row is not None and ask.token < (row[0], row[1]):
        return False
    db.execute(
        "INSERT INTO fence (service, scope, generation, attempt) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (service, scope) DO UPDATE SET generation = excluded.generation, attempt = excluded.attempt",
        (service, ask.scope, *ask.token),
    )
    return True


def _tombstone(db: sqlite3.Connection, service: str, key: str) -> bool | None:
    """None when the key was never undone, else whether anything had stood under it."""
    row = db.execute(
        "SELECT had_stood FROM tombstone WHERE service = ? AND key = ?", (service, key)
    ).fetchone()
    return None if row is None else bool(row[0])


def _remembered(db: sqlite3.Connection, operation: Operation, ask: Ask) -> Answer | None:
    """What was answered under this key; a key that comes back with another request is told so, whatever it asks."""
    row = db.execute(
        "SELECT operation, order_id, status, body FROM answer WHERE service = ? AND key = ?",
        (operation.service, ask.key),
    ).fetchone()
    if row is None:
        return None
    if (row[0], row[1]) != (operation.name, ask.order_id):
        problem = f"key {ask.key} was used before to {row[0]} for order {row[1]}"
        return Answer(422, {"code": "mismatch", "message": problem})
    return Answer(row[2], {**json.loads(row[3]), "again": True})


def _remember(db: sqlite3.Connection, operation: Operation, ask: Ask, answer: Answer) -> Answer:
    db.execute(
        "INSERT OR REPLACE INTO answer (service, key, operation, order_id, status, body, at) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            operation.service,
            ask.key,
            operation.name,
            ask.order_id,
            answer.status,
            json.dumps(dict(answer.body)),
            time.time(),
        ),
    )
    return answer


def _done(db: sqlite3.Connection, service: str, key: str) -> dict[str, Any] | None:
    """The entry that was made under this key, if any."""
    row = db.execute(
        "SELECT id, operation, effect, order_id, sku, cents FROM entry WHERE service = ? AND key = ? AND change = 1",
        (service, key),
    ).fetchone()
    names = ("id", "operation", "effect", "order_id", "sku", "cents")
    return None if row is None else dict(zip(names, row, strict=True))


def _due(db: sqlite3.Connection) -> int:
    """The cents that the bank took, less refunds and what it has paid out."""
    row = db.execute(
        "SELECT COALESCE(SUM(change * cents * CASE effect WHEN 'charge' THEN 1 ELSE -1 END), 0) FROM entry"
        " WHERE effect IN ('charge', 'settle')"
    ).fetchone()
    return int(row[0])


def _enter(db: sqlite3.Connection, operation: Operation, ask: Ask, *, key: str) -> int:
    """Write the effect into the books; return the entry's number."""
    cursor = db.execute(
        "INSERT INTO entry (service, operation, effect, change, key, asked_by, scope, token, order_id, sku, cents, at, approved_by)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(operation.service, operation.name, operation.effect, -1 if operation.undoes else 1),
            *(key, ask.key, ask.scope, ask.token_text, ask.order_id, ask.sku, ask.cents, time.time()),
            ask.approved_by,
        ),
    )
    assert cursor.lastrowid is not None, "an INSERT has a row id"
    return cursor.lastrowid
