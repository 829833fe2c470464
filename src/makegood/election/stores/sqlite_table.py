"""A lease in SQLite, for the election's own tables and for those of the state store.

makegood never deletes the row of a name, so that no epoch repeats. The rows of its terms are for people; if
somebody deletes the row of the name, its next epoch is above those of its terms.

Every verb works within the caller's transaction. One that writes needs the write lock before its ``Moment``
is read.
"""

import re
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from makegood.base.stored_values import record_of
from makegood.election.protocol import Grant, LeaseView, PastTerm

KEPT = 1000
"""Terms remembered per lease."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The time of a verb."""

    now: float
    """On the clock that judges expiry."""
    wall: float
    """Seconds since 1970, for people."""
    boot: str = ""
    """The boot of the host since which ``now`` counts; "" if ``now`` does not depend on it."""


_BEFORE = """
select case when true and boot = :boot then min(:wall, cast(expires_at as real) + (:wall - :now)) else taken_at end
from LEASE where name = :name
"""
_ACQUIRE = """
insert into LEASE as l (name, holder, nonce, epoch, ttl, expires_at, taken_at, boot)
values (:name, :holder, :nonce, coalesce((select max(cast(epoch as integer)) from TERM where name = :name), 0) + 1, :ttl,
    :now + :ttl, :wall, :boot)
on conflict (name) do update set
    epoch = case when l.nonce = :nonce then cast(l.epoch as integer) else cast(l.epoch as integer) + 1 end,
    taken_at = case when l.nonce = :nonce then l.taken_at else :wall end,
    holder = :holder, nonce = :nonce, ttl = :ttl, expires_at = :now + :ttl, boot = :boot
where l.holder is null or l.nonce = :nonce or not (cast(l.expires_at as real) > :now and boot = :boot)
returning epoch
"""
_EXPIRE_TERM = "update TERM set ended_at = :expiry where name = :name and ended_at is null and epoch < :epoch"
_BEGIN_TERM = """
insert into TERM (name, epoch, holder, began_at, released) values (:name, :epoch, :holder, :wall, 0)
on conflict (name, epoch) do nothing
"""
_TRIM_TERMS = f"delete from TERM where name = :name and epoch <= :epoch - {KEPT}"  # noqa: S608
_CURRENT = """
where name = :name and nonce = :nonce and epoch = :epoch and holder is not null and expires_at > :now and boot = :boot
"""
_RENEW = f"update LEASE set expires_at = :now + ttl {_CURRENT}"  # noqa: S608
_RELEASE = (
    "update LEASE set holder = null, nonce = '' where name = :name and nonce = :nonce and holder is not null"
)
_RELEASE_TERM = "update TERM set ended_at = :wall, released = 1 where name = :name and ended_at is null"
_READ = """
select name, holder, epoch, ttl, taken_at, case when true and boot = :boot then expires_at - :now else -1.0 end
from LEASE where name = :name
"""
_PAST_TERMS = """
select epoch, holder, began_at, ended_at, released from TERM where name = ? order by epoch desc limit ?
"""
# It writes, so that it takes the write lock in any kind of transaction.
_FENCE = f"update LEASE set epoch = epoch {_CURRENT} returning 1"  # noqa: S608


class SQLiteLeaseTable:
    """The verbs of a lease over two tables: LEASE (name, holder, nonce, epoch, ttl, expires_at, taken_at)
    and TERM (name, epoch, holder, began_at, ended_at, released).

    ``names``: the names of the tables, and of columns that have other names there. ``boot``: LEASE also has
    a column of this name, for the boot of each ``Moment``.
    """

    def __init__(self, names: Mapping[str, str], *, boot: bool = False) -> None:
        def over(sql: str) -> str:
            for word, name in names.items():
                sql = sql.replace(word, name)
            return sql if boot else re.sub(r"(,| and) (boot = )?:?boot\b", "", sql)

        self._before, self._acquire, self._expire_term = over(_BEFORE), over(_ACQUIRE), over(_EXPIRE_TERM)
        self._begin_term, self._trim_terms, self._renew = over(_BEGIN_TERM), over(_TRIM_TERMS), over(_RENEW)
        self._release, self._release_term = over(_RELEASE), over(_RELEASE_TERM)
        self._read, self._past_terms = over(_READ), over(_PAST_TERMS)
        self.fence = over(_FENCE)
        """Finds a row while a grant is current. Values: name, nonce, epoch, boot, now."""

    def acquire(self, connection: sqlite3.Connection, moment: Moment, grant: Grant) -> Grant | None:
        """Take a lease that is free, expired or already this grant's (the same nonce); return the grant with
        its epoch. None if somebody else holds the lease.
        """
        values = _values(grant, moment)
        before = connection.execute(self._before, values).fetchone()
        row = connection.execute(self._acquire, values).fetchone()
        if row is None:
            return None
        values["epoch"] = row[0]
        if before is not None:
            connection.execute(self._expire_term, {**values, "expiry": before[0]})
        connection.execute(self._begin_term, values)
        connection.execute(self._trim_terms, values)
        return Grant(grant.name, grant.holder, grant.nonce, row[0], grant.ttl)

    def renew(self, connection: sqlite3.Connection, moment: Moment, grant: Grant) -> bool:
        """Extend a lease that is still held; False if the term is over."""
        return connection.execute(self._renew, _values(grant, moment)).rowcount == 1

    def release(self, connection: sqlite3.Connection, moment: Moment, grant: Grant) -> None:
        """Free a lease that is still this grant's."""
        values = _values(grant, moment)
        if connection.execute(self._release, values).rowcount == 1:
            connection.execute(self._release_term, values)

    def read(self, connection: sqlite3.Connection, moment: Moment, name: str) -> LeaseView | None:
        """Return the holder of a lease; None if nobody ever held it."""
        row = connection.execute(self._read, {"name": name, **asdict(moment)}).fetchone()
        return None if row is None else record_of(LeaseView, row)

    def past_terms(self, connection: sqlite3.Connection, name: str, limit: int) -> list[PastTerm]:
        """Return the latest terms, newest first."""
        return [
            record_of(PastTerm, row) for row in connection.execute(self._past_terms, (name, limit)).fetchall()
        ]


def _values(grant: Grant, moment: Moment) -> dict[str, str | int | float]:
    return {**asdict(grant), **asdict(moment)}
