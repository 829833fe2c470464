"""A private PostgreSQL server for tests and measurements: stopped, killed, restarted, copied, and asked.

    with PrivateServer() as server:
        server.run("create table t (n int)")
        server.kill()
        server.start()

Only the standard library is used, also for the connection to the server.
"""

import os
import signal
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Literal, Self

from examples.orders.temporary_postgres import TemporaryPostgres
from makegood.errors import StoreUnavailableError

Mode = Literal["smart", "fast", "immediate"]


class PrivateServer(TemporaryPostgres):
    """A PostgreSQL server in a temporary folder, and what tests do with it."""

    _source: "PrivateServer | None" = None
    """The server that this one is a copy of."""

    def stop(self, mode: Mode = "fast") -> None:
        """Stop the server: ``smart`` waits for connections, ``fast`` ends them, ``immediate`` is like a
        crash.
        """
        self._end({"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}[mode])

    def kill(self) -> None:
        """Kill the server's first process: the others notice and end by themselves."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop all processes of the server where they are, as on a machine without power: its port takes
        connections, and nothing answers.
        """
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen server continue."""
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, how: signal.Signals) -> None:
        if self._postmaster is None:
            return
        pid = self._postmaster.pid
        children = Path(f"/proc/{pid}/task/{pid}/children")
        with suppress(OSError):
            os.kill(pid, how)  # the first: it starts no more of the others
            for child in children.read_text(encoding="ascii").split():
                with suppress(ProcessLookupError):
                    os.kill(int(child), how)

    def _end(self, how: signal.Signals) -> None:
        self.thaw()  # a stopped process takes no other signal
        super()._end(how)

    def restart(self, mode: Mode = "fast") -> None:
        """Stop and start, on the same port."""
        self.stop(mode)
        self.start()

    def copy(self) -> "PrivateServer":
        """Return a second server on a copy of this one's current data: a replica that receives nothing more.

        It can be read, and `select pg_promote()` makes it a primary, on its own timeline. Throw it away with
        ``discard``.
        """
        copy = PrivateServer(database=self._database, settings=self._settings, folder=self._wanted)
        copy._password = self._password
        copy._source = self
        copy.start()
        return copy

    def _fill(self, password: Path) -> None:
        source = self._source
        if source is None:
            super()._fill(password)
            return
        self._user.run(
            self._bin / "pg_basebackup", "-D", self.data, "-d", source.url_of(""), "-c", "fast", "-X", "stream", "--no-sync"
        )  # fmt: skip
        (self.data / "standby.signal").touch()
        os.chown(self.data / "standby.signal", self._user.uid, self._user.gid)

    def create_database(self, name: str, template: str = "template1") -> str:
        """Create a database, as a copy of another one that has no connections; returns its URL."""
        self.run(f'create database "{name}" template "{template}"', database="postgres")
        return self.url_of(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, even if it has connections."""
        self.run(f'drop database if exists "{name}" with (force)', database="postgres")

    def run(self, sql: str, database: str | None = None) -> list[tuple[str | None, ...]]:
        """Execute statements; returns all rows as texts. Raises ``StoreUnavailableError`` with the server's
        message.
        """
        with _Conversation(self.port, database or self._database, self._password) as conversation:
            return conversation.execute(sql)


class _Conversation:
    """The part of PostgreSQL's protocol that a test server needs: a clear-text password, and simple
    statements.
    """

    def __init__(self, port: int, database: str, password: str) -> None:
        self._server = socket.create_connection(("127.0.0.1", port), timeout=60)
        names = ("user", "postgres", "database", database, "")
        start = struct.pack("!I", 196608) + "\0".join(names).encode() + b"\0"
        self._server.sendall(struct.pack("!I", len(start) + 4) + start)
        self._password = password
        try:
            self._answers()
        except BaseException:
            self._server.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._send(b"X", b"")
        self._server.close()

    def execute(self, sql: str) -> list[tuple[str | None, ...]]:
        """Send statements and return all rows."""
        self._send(b"Q", sql.encode() + b"\0")
        return self._answers()

    def _send(self, kind: bytes, body: bytes) -> None:
        self._server.sendall(kind + struct.pack("!I", len(body) + 4) + body)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            some = self._server.recv(size - len(data))
            if not some:
                raise StoreUnavailableError("the private PostgreSQL server closed the connection")
            data += some
        return data

    def _answers(self) -> list[tuple[str | None, ...]]:
        """Read until the server is ready for more."""
        rows: list[tuple[str | None, ...]] = []
        failure = ""
        while True:
            kind, size = struct.unpack("!cI", self._exactly(5))
            body = self._exactly(size - 4)
            if kind == b"R" and struct.unpack("!I", body[:4])[0] == 3:
                self._send(b"p", self._password.encode() + b"\0")
            elif kind == b"D":
                rows.append(_texts(body))
            elif kind == b"E":
                fields = {part[:1]: part[1:].decode(errors="replace") for part in body.split(b"\0") if part}
                failure = fields.get(b"M", "an error without a message")
                if fields.get(b"S") == "FATAL":
                    raise StoreUnavailableError(f"the private PostgreSQL server: {failure}")
            elif kind == b"Z":
                if failure:
                    raise StoreUnavailableError(f"the private PostgreSQL server: {failure}")
                return rows


def _texts(body: bytes) -> tuple[str | None, ...]:
    """Return the columns of a row on the wire: a count, then a length (-1: null) and the text of each."""
    (count,) = struct.unpack("!H", body[:2])
    place, texts = 2, []
    for _ in range(count):
        (length,) = struct.unpack("!i", body[place : place + 4])
        place += 4
        texts.append(None if length < 0 else body[place : place + length].decode())
        place += max(0, length)
    return tuple(texts)
