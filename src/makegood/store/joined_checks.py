"""What every store makes of submissions, and checks before it submits in a caller's transaction."""

from collections.abc import Sequence

from makegood.base.sizes import LARGEST
from makegood.base.text import refuse_unstorable
from makegood.errors import PayloadError, SchemaMismatchError, TransactionError
from makegood.store import migrations
from makegood.store.records import Submission
from makegood.transactions import Caller

_NAMES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


def same_kind(caller: Caller, dialect: str, place: str) -> None:
    """Raise ``TransactionError`` if the connection is to another kind of database than the store's."""
    if caller.dialect != dialect:
        database = _NAMES.get(caller.dialect, "another kind of database")
        raise another(f"{caller.kind} to {database}", place)


def another(subject: str, place: str) -> TransactionError:
    """Return the error for a connection to another database than the store's."""
    return TransactionError(
        f"connection= is {subject}, and the store is {place}: nothing can be committed in two databases together. Keep the store in the "
        "same database as your tables, or submit without connection=, under a key, after your commit"
    )


def current(dialect: migrations.Dialect, version: int | None, place: str) -> None:
    """Raise ``SchemaMismatchError`` for an old schema; a newer one has everything that this version needs."""
    least = migrations.latest_version(dialect)
    if (version or 0) < least:
        raise SchemaMismatchError(
            f"{place} has schema version {version}, this makegood needs {least}: run `makegood store migrate` once"
        )


def places(draft: Submission, seq: int) -> list[tuple[int, str, str, int, int, str, str]]:
    """Return the places in lanes of a new task: it waits in them, unless it is to begin later."""
    lanes = draft.lanes
    state = "waiting" if draft.start is None else "out"
    return [(draft.id, draft.app, name, seq, lanes.at_once, lanes.when_taken, state) for name in lanes.names]


def topics_of(drafts: Sequence[Submission]) -> set[str]:
    """Return the topics that new tasks wake: those of claims that look for them."""
    return {
        "sleeping" if draft.start is not None else "queued" if draft.lanes.names else "pending"
        for draft in drafts
    }


def check_drafts(drafts: Sequence[Submission]) -> None:
    """Raise ``PayloadError`` for values that a database refuses: a refusal by the server would break
    the caller's transaction.
    """
    for draft in drafts:
        refuse_unstorable(
            PayloadError, "; nothing was written",
            key=draft.key, correlation_id=draft.correlation_id, trace=draft.trace,
            attributes="".join(name + value for name, value in draft.attributes),
        )  # fmt: skip
        if not 0 <= draft.id <= LARGEST:
            raise PayloadError(f"the task id {draft.id} is none of 63 bits; nothing was written")
