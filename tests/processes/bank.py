"""Transfers between accounts at a bank without locks: one step reads a balance, a later one writes the new balance.

Two transfers that meet at an account lose money, so each has both accounts as its lanes. The books are in the folder
that FLOOR_FOLDER names; every entry says which task made it.
"""

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import makegood as mg

CLOSED: Final = "closed"
"""An account that takes no money."""
RECOVER: Final = mg.Recover(threshold=4, wait="50ms", extended="200ms")
_TABLES: Final = """
create table account (name text primary key, cents integer not null);
create table answer (key text primary key, undone integer not null default 0);
create table entry (n integer primary key, task text not null, account text not null, kind text not null, cents integer not null);
"""


@dataclass
class Transfer:
    """An order to the bank. ``number``: the customer's."""

    number: int
    source: str
    target: str
    cents: int


class Bank:
    """The books. ``path``: their file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, balances: Mapping[str, int]) -> None:
        """Make the books."""
        with closing(sqlite3.connect(self.path)) as db:
            db.executescript(_TABLES)
            db.executemany("insert into account values (?, ?)", balances.items())
            db.commit()

    def read(self, account: str) -> int:
        """Return a balance."""
        with self._transaction() as db:
            cents = _balance(db, account)
            _enter(db, account, "read", cents)
        return cents

    def write(self, account: str, cents: int) -> None:
        """Write a balance, once under the key of the running call."""
        key = mg.current_call().key
        with self._transaction() as db:
            row = db.execute("select undone from answer where key = ?", (key,)).fetchone()
            if row is None:
                db.execute("insert into answer (key) values (?)", (key,))
                db.execute("update account set cents = ? where name = ?", (cents, account))
                _enter(db, account, "write", cents)
        if row is not None and row[0]:
            raise mg.Refused("it was undone before")

    def take_back(self, account: str, change: int) -> None:
        """Undo what the running call names: change the balance if it was written, and never let it be written."""
        key = mg.current_call().undoes
        with self._transaction() as db:
            row = db.execute("select undone from answer where key = ?", (key,)).fetchone()
            if row is None:
                db.execute("insert into answer values (?, 1)", (key,))
            elif not row[0]:
                db.execute("update answer set undone = 1 where key = ?", (key,))
                cents = _balance(db, account) + change
                db.execute("update account set cents = ? where name = ?", (cents, account))
                _enter(db, account, "undo", cents)

    def balances(self) -> dict[str, int]:
        """Return all balances."""
        with closing(sqlite3.connect(self.path, timeout=30)) as db:
            return dict(db.execute("select name, cents from account"))

    def entries(self) -> Sequence[tuple[str, str, str, int]]:
        """Return task, account, kind and balance of each entry, in order."""
        with closing(sqlite3.connect(self.path, timeout=30)) as db:
            return db.execute("select task, account, kind, cents from entry order by n").fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as db:
            db.execute("begin immediate")
            yield db
            db.execute("commit")


def _balance(db: sqlite3.Connection, account: str) -> int:
    ((cents,),) = db.execute("select cents from account where name = ?", (account,))
    return int(cents)


def _enter(db: sqlite3.Connection, account: str, kind: str, cents: int) -> None:
    db.execute(
        "insert into entry (task, account, kind, cents) values (?, ?, ?, ?)",
        (mg.current_call().task_id, account, kind, cents),
    )


def bank() -> Bank:
    """Return the bank of the running test."""
    return Bank(Path(os.environ["FLOOR_FOLDER"]) / "bank.db")


app = mg.App("bank")
desk = app.agent("desk", concurrency=4)


@desk.action(complete_within="2s", recover=RECOVER, undo=mg.NOTHING)
def read(account: str) -> int:
    return bank().read(account)


@desk.action(complete_within="2s", recover=RECOVER)
def withdraw(transfer: Transfer, balance: int) -> None:
    if balance < transfer.cents:
        raise mg.Permanent("not enough money")
    time.sleep(0.01)
    bank().write(transfer.source, balance - transfer.cents)


@withdraw.undo
def put_back(transfer: Transfer, *, result: None) -> None:
    bank().take_back(transfer.source, transfer.cents)


@desk.action(complete_within="2s", recover=RECOVER)
def deposit(transfer: Transfer, balance: int) -> None:
    if transfer.target == CLOSED:
        raise mg.Permanent("the account is closed")
    bank().write(transfer.target, balance + transfer.cents)


@deposit.undo
def take_out(transfer: Transfer, *, result: None) -> None:
    bank().take_back(transfer.target, -transfer.cents)


@app.workflow(complete_within="2m", lane=lambda transfer: [transfer.source, transfer.target])
def move(transfer: Transfer) -> None:
    """Withdraw, then deposit: neither account may change between the read and the write."""
    withdraw(transfer, read(transfer.source))
    deposit(transfer, read(transfer.target))
