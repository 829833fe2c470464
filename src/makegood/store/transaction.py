"""Verbs that are written once for every store: their statements, their transaction, and
how they become methods.

A verb is an ``async def`` over a ``Tx``. On PostgreSQL it awaits the server. On SQLite nothing in it waits,
and it runs from start to end in the store's thread.
"""

import re
from collections.abc import Callable, Coroutine, Sequence
from functools import partial, wraps
from inspect import signature
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from makegood.election.protocol import Grant
from makegood.errors import FencedOffError

T = TypeVar("T")
P = ParamSpec("P")

_NOW = "extract(epoch from clock_timestamp())::float8"
_SQLITE = (
    (r"= any \(\$(\d+)::\w+\[\]\)", r"in (select value from json_each(?\1))"),
    (r"= any \(array\(([^()]*)\)\)", r"in (\1)"),
    (r"::\w+(\[\])?", ""),
    (r"\bfor (no key )?update( of \w+)?( skip locked)?", ""),
    (r"\bmakegood\.", "makegood_"),
    (r"\bnot (\w+\.)?(answered|dead|excused|starved|task_expired)\b", r"\1\2 = 0"),
    (r"\bgreatest\(", "max("),
    (r"\bleast\(", "min("),
    (r"\boctet_length\(", "length("),
    (r"\bstrpos\(", "instr("),
    (r"\$(\d+)", r"?\1"),
)


class Sql:
    """A statement for both databases: ``postgres`` and ``sqlite``, translated unless given.

    Values are $1, $2 ... in both. ``{now}`` is the store's clock; if SQLite's text contains it
    (``needs_now``), the statement takes one more value. A list may be a value only in ``= any
    ($1::bigint[])``; a subquery in ``= any (array(select ...))`` is read first, and has no parentheses.
    ``writes``: it changes rows.
    """

    __slots__ = ("needs_now", "postgres", "sqlite", "writes")

    def __init__(self, text: str, sqlite: str | None = None) -> None:
        self.postgres = text.replace("{now}", _NOW)
        sqlite_text = text if sqlite is None else sqlite
        for pattern, instead in _SQLITE:
            sqlite_text = re.sub(pattern, instead, sqlite_text)
        last = max((int(n) for n in re.findall(r"\?(\d+)", sqlite_text)), default=0)
        self.needs_now = "{now}" in sqlite_text
        self.sqlite = sqlite_text.replace("{now}", f"?{last + 1}")
        self.writes = re.search(r"\b(insert|update|delete)\b", sqlite_text) is not None


def for_each(text: str, postgres: str | None = None, /, **columns: str) -> Sql:
    """Return a statement for ``many`` and ``each``: what to do for a row ``x`` with columns of these types.
    ``postgres``: the text for PostgreSQL, if it is another one.

    ``{rows}`` in the text becomes PostgreSQL's "from" or "using" clause with all rows at once. SQLite
    executes the statement once per row.
    """
    arrays = ", ".join(f"${n}::{kind}[]" for n, kind in enumerate(columns.values(), 1))
    single = text.replace("{rows}", "")
    for n, name in enumerate(columns, 1):
        single = re.sub(rf"\bx\.{name}\b", f"${n}", single)
    clause = "using" if text.lstrip().startswith("delete") else "from"
    rows = f"{clause} unnest({arrays}) as x ({', '.join(columns)})"
    return Sql((postgres or text).replace("{rows}", rows), single)


EVENT = for_each(
    "insert into makegood.event (task, at, node, moves, note) select x.task, {now}, null, x.moves, '' {rows}",
    task="bigint", moves="bytea",
)  # fmt: skip
"""What ``record`` executes."""


class ReadTx(Protocol):
    """A snapshot, or the reading half of a transaction."""

    async def rows(self, sql: Sql, *values: Any) -> Sequence[Any]:
        """Execute one statement; return all its rows."""

    async def each(self, sql: Sql, records: Sequence[Sequence[Any]], *more: Any) -> Sequence[Any]:
        """Execute a statement of ``for_each`` for these rows, if any; return the rows that it
        returns. ``more``: values that follow those of a row.
        """


class Tx(ReadTx, Protocol):
    """An open transaction that writes."""

    topics: set[str]
    """Topics to wake after the commit."""
    again: bool
    """Whether an earlier try gave way, perhaps to a lock that is held for long."""

    async def run(self, sql: Sql, *values: Any) -> int:
        """Execute one statement; return the number of rows that it changed."""

    async def many(self, sql: Sql, records: Sequence[Sequence[Any]], *more: Any) -> int:
        """Execute a statement of ``for_each`` for these rows, if any; ``more``: values that
        follow those of a row.
        """

    async def record(self, events: Sequence[tuple[int, bytes]]) -> None:
        """Add events (task, moves); if the database refuses that of one task, those of the others."""


Work = Callable[[Tx], Coroutine[Any, Any, T]]
ReadWork = Callable[[ReadTx], Coroutine[Any, Any, T]]


class SharedDatabase(Protocol):
    """A store's database, as shared verbs need it."""

    async def run_write(self, work: Work[T], term: Grant | None = None) -> T:
        """Run ``work`` in a transaction that writes; with ``term``, under that lease."""

    async def run_ahead(self, work: Work[T]) -> T:
        """Run one statement that is safe to repeat, ahead of the writes that wait."""

    async def run_read(self, work: ReadWork[T]) -> T:
        """Run read-only ``work`` on one snapshot."""


def is_over(term: Grant) -> FencedOffError:
    """Return the error for a write under a term that is over."""
    return FencedOffError(
        f"the term {term.epoch} of {term.holder} over {term.name!r} is over: nothing was written",
        epoch=term.epoch,
    )


class Verbs:
    """Verbs over one database."""

    def __init__(self, database: SharedDatabase) -> None:
        self._db = database


Verb = Callable[Concatenate[Tx, P], Coroutine[Any, Any, T]]
ReadVerb = Callable[Concatenate[ReadTx, P], Coroutine[Any, Any, T]]
Method = Callable[Concatenate[Verbs, P], Coroutine[Any, Any, T]]


def binder(verb: Callable[Concatenate[Any, P], T]) -> Callable[P, Callable[[Any], T]]:
    """Return a function that binds all arguments of a verb except the first, by name.

    So an observer of transactions sees which verb it is, and its arguments.
    """
    names = tuple(signature(verb).parameters)[1:]

    def bind(*args: P.args, **kwargs: P.kwargs) -> Callable[[Any], T]:
        arguments: dict[str, Any] = {**dict(zip(names, args, strict=False)), **kwargs}
        return partial(cast("Callable[..., T]", verb), **arguments)

    return bind


def writing(
    verb: Verb[P, T], *, looks: ReadVerb[P, object] | None = None, otherwise: T | None = None
) -> Method[P, T]:
    """Make a method of a verb that writes.

    ``looks``: is there anything to do? If not, nothing is written and the method returns ``otherwise``.
    """
    bind = binder(verb)

    @wraps(verb)
    async def method(self: Verbs, /, *args: P.args, **kwargs: P.kwargs) -> T:
        database = self._db
        if looks is not None and not await database.run_read(lambda tx: looks(tx, *args, **kwargs)):
            return otherwise  # type: ignore[return-value]  # given where ``looks`` is
        return await database.run_write(bind(*args, **kwargs))

    return method


def asking(verb: Verb[P, T]) -> Method[P, T]:
    """Make a method of a verb that makes one small write, safe to repeat, which must not wait for others."""
    bind = binder(verb)

    @wraps(verb)
    async def method(self: Verbs, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._db.run_ahead(bind(*args, **kwargs))

    return method


def reading(verb: ReadVerb[P, T]) -> Method[P, T]:
    """Make a method of a verb that only reads."""

    @wraps(verb)
    async def method(self: Verbs, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._db.run_read(lambda tx: verb(tx, *args, **kwargs))

    return method
