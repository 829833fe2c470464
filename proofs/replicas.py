"""A primary and a standby of PostgreSQL's own streaming replication, on this machine, for tests to kill and
promote.

::

    with ReplicaPair(synchronous=True) as pair:
        store = open_store(pair.url)     # both servers; it finds the writable one
        ...
        pair.primary.kill()
        pair.promote()                   # still waits for a standby by name, as a real one would
        pair.release()                   # synchronous_standby_names cleared: now it is writable

It needs ``pg_basebackup`` beside the programs that ``PrivateServer`` needs; it comes with Debian's package
postgresql.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from examples.orders.temporary_postgres import Passing, programs
from makegood.errors import ConfigError, StoreUnavailableError
from proofs.private_server import PrivateServer

STANDBY = "makegood_standby"
"""The name that the standby gives its primary."""

_SETTINGS = {
    "wal_keep_size": "64MB",
    "wal_receiver_status_interval": "1s",
    "wal_retrieve_retry_interval": "100ms",
}
_PATIENCE = 120.0


def missing() -> str:
    """Return why this machine cannot run a pair; "" if it can."""
    try:
        folder = programs()
    except ConfigError as absent:
        return str(absent)
    if (folder / "pg_basebackup").is_file():
        return ""
    return f"there is no pg_basebackup in {folder}: install PostgreSQL's server package (Debian: apt-get install postgresql)"


class ReplicaPair(Passing):
    """A primary with a streaming standby. ``synchronous``: a commit is acknowledged once the standby has it
    as well.

    ``settings``: more lines for both servers' postgresql.conf. The ``with`` block starts them and throws them
    away. Raises ``ConfigError`` if a program is missing.
    """

    def __init__(
        self,
        *,
        synchronous: bool = False,
        database: str = "makegood",
        settings: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        if absent := missing():
            raise ConfigError(absent)
        self._synchronous = synchronous
        self._database = database
        self.primary = PrivateServer(
            database=database, settings={**_SETTINGS, **(settings or {})}, folder=folder
        )
        self._standby: PrivateServer | None = None

    @property
    def standby(self) -> PrivateServer:
        """The second server: a standby until ``promote``, then the primary."""
        if self._standby is None:
            raise StoreUnavailableError("the pair was not started yet")
        return self._standby

    @property
    def url(self) -> str:
        """A URL that names both servers and asks for the writable one."""
        head, _, tail = self.primary.url.rpartition("@")
        place, _, database = tail.partition("/")
        return f"{head}@{place},127.0.0.1:{self.standby.port}/{database}?target_session_attrs=read-write"

    # Life

    def start(self) -> None:
        """Start the primary, copy it, let the copy follow it."""
        self.primary.start()
        if self._synchronous:  # Set before the copy, so that the copy names a standby as well.
            self.primary.run(f"alter system set synchronous_standby_names = '{STANDBY}'")
        self._standby = self.primary.copy()
        self.attach()
        if self._synchronous:
            self.primary.run("select pg_reload_conf()")
            state = "select sync_state from pg_stat_replication"
            _until(lambda: self.primary.run(state) == [("sync",)], "the standby to be synchronous")

    def discard(self) -> None:
        """Stop both at once and delete their folders."""
        for server in (self._standby, self.primary):
            if server is not None:
                server.discard()

    # What may happen to them

    def attach(self) -> None:
        """Let the standby follow the primary, and wait until it does."""
        head = self.primary.url.partition("//")[2].partition("@")[0]
        user, _, password = head.partition(":")
        conninfo = f"host=127.0.0.1 port={self.primary.port} user={user} password={password} application_name={STANDBY}"
        self.standby.run(f"alter system set primary_conninfo = '{conninfo}'")
        self.standby.run("select pg_reload_conf()")
        streaming = "select state from pg_stat_replication"
        _until(lambda: self.primary.run(streaming) == [("streaming",)], "the standby to follow")

    def detach(self) -> None:
        """Cut the standby off: from now on it falls behind."""
        self.standby.run("alter system set primary_conninfo = ''")
        self.standby.run("select pg_reload_conf()")
        _until(lambda: not self.primary.run("select 1 from pg_stat_replication"), "the standby to be cut off")

    def caught_up(self) -> None:
        """Wait until the standby has replayed everything that the primary has written so far."""
        ((lsn,),) = self.primary.run("select pg_current_wal_lsn()")
        behind = f"select pg_last_wal_replay_lsn() >= '{lsn}'"
        _until(lambda: self.standby.run(behind) == [("t",)], "the standby to catch up")

    def promote(self) -> None:
        """Make the standby a primary, on its own timeline. Its commits still wait for the same standby
        names.
        """
        self.standby.run("select pg_promote(true, 60)")
        _until(lambda: self.standby.run("select pg_is_in_recovery()") == [("f",)], "the promotion")

    def release(self) -> None:
        """Clear synchronous_standby_names on the promoted server, whose commits wait for a missing
        standby.
        """
        self.standby.run("alter system reset synchronous_standby_names")
        self.standby.run("select pg_reload_conf()")


def _until(holds: Callable[[], bool], what: str) -> None:
    """Wait until ``holds()``. Raises ``StoreUnavailableError``."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        with suppress(StoreUnavailableError):
            if holds():
                return
        time.sleep(0.02)
    raise StoreUnavailableError(f"waited {_PATIENCE:g} s in vain for {what}")
