"""What a transaction of the store did, seen from outside: the rows before it against the rows after it."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

MERGE: Final = frozenset({"merge of the log"})
"""No transaction is under way."""
BIRTH_OF_A_STORE: Final = frozenset({"birth of a store"})
OTHER: Final = "heartbeats and the rest"
ENDS: Final = frozenset({"processed", "undone", "error"})
WAITS: Final = (
    "delayed submission", "letting go", "waking", "signal", "signal of a caller", "signal used", "signal kept", "firing",
)  # fmt: skip
"""What only tasks that wait have done to them."""
OPERATIONS: Final = (  # in the order of the reports

    "submission", "claim", "step", "end", *WAITS, "request", "reply", "lease", OTHER, *MERGE, *BIRTH_OF_A_STORE,
)  # fmt: skip
CALLER: Final = "caller"
"""The id of a signal that a caller sends in a transaction of its own."""


@dataclass(frozen=True, slots=True)
class StoreRows:
    """The rows by which operations are told apart."""

    tasks: Mapping[int, tuple[str, int | None]] = field(default_factory=dict)
    """State, and whose lock."""
    steps: Mapping[tuple[int, int], tuple[str, int, int]] = field(default_factory=dict)
    signals: Mapping[tuple[int, str], tuple[int | None, bool]] = field(default_factory=dict)
    """The step that used it, and whether the task keeps it."""
    firings: int = 0
    requests: frozenset[tuple[int, int]] = frozenset()
    replies: frozenset[int] = frozenset()
    leases: tuple[object, ...] = ()

    @classmethod
    def read(cls, connection: sqlite3.Connection) -> "StoreRows":
        """Read them."""
        query = connection.execute
        connection.execute("begin")
        rows = cls(
            {row[0]: row[1:] for row in query("select id, state, locked_by from makegood_task")},
            {row[:2]: row[2:] for row in query("select task, idx, state, attempt, round from makegood_step")},
            {
                row[:2]: row[2:]
                for row in query("select task, id, used, body is not null from makegood_signal")
            },
            query("select count(*) from makegood_attribute where name = 'makegood.schedule'").fetchone()[0],
            frozenset(query("select task, idx from makegood_request where kind <> 'timer'")),
            frozenset(row[0] for row in query("select seq from makegood_inbox where kind <> 'signal'")),
            tuple(query("select * from makegood_lease")),
        )
        connection.execute("commit")
        return rows

    def since(self, before: "StoreRows") -> frozenset[str]:
        """Return what was done between two moments."""
        operations = {*self._with_tasks(before), *self._with_signals(before)}
        if self.firings > before.firings:
            operations.add("firing")
        if any(before.steps.get(step, state) != state for step, state in self.steps.items()):
            operations.add("step")
        if self.requests - before.requests:
            operations.add("request")
        if self.replies - before.replies:
            operations.add("reply")
        if self.leases != before.leases:
            operations.add("lease")
        return frozenset(operations or {OTHER})

    def _with_tasks(self, before: "StoreRows") -> set[str]:
        operations = set()
        for task, (state, lock) in self.tasks.items():
            earlier = before.tasks.get(task)
            if earlier is None:
                operations.add("delayed submission" if state == "sleeping" else "submission")
            elif earlier[0] == "sleeping" and lock is not None:
                operations.add("waking")
            elif state == "sleeping" and earlier[1] is not None:
                operations.add("letting go")
            elif earlier[0] == "pending" and lock is not None:
                operations.add("claim")
            if state in ENDS and (earlier is None or earlier[0] != state):
                operations.add("end")
        return operations

    def _with_signals(self, before: "StoreRows") -> set[str]:
        operations = set()
        for key, (used, is_kept) in self.signals.items():
            earlier = before.signals.get(key)
            if earlier is None:
                operations.add("signal of a caller" if key[1] == CALLER else "signal")
            if used is not None and (earlier is None or earlier[0] is None):
                operations.add("signal used")
            if is_kept and not (earlier is not None and earlier[1]):
                operations.add("signal kept")
        return operations
