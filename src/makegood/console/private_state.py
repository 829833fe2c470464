"""What a console keeps on its machine, in files of its user alone: its token, and which logins were ended.

The folder is the one that systemd gives a service (``StateDirectory=``), or else the user's own:
``$XDG_STATE_HOME/makegood``, usually ``~/.local/state/makegood``. So all consoles of a user share it, and it
outlives each of them.
"""

import logging
import os
import re
import secrets
import shlex
import stat
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from makegood.base.private_files import MODE, name_of, others
from makegood.errors import ConfigError

log = logging.getLogger("makegood.console")

TOKEN: Final = "console-token"  # noqa: S105 - a file's name
LOGOUTS: Final = "console-logouts"
MOST_KEPT: Final = 10_000
"""Ended logins that are remembered."""
_FORM: Final = re.compile(r"[A-Za-z0-9._~+/=-]{16,200}")


class ConsoleToken(NamedTuple):
    """What opens a console without users. ``file``: where it is kept; None if it was given, or ends with the
    process.
    """

    text: str
    file: Path | None


def folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder. Raises ``OSError`` if this user has none."""
    if directory := environ.get("STATE_DIRECTORY", "").partition(":")[0]:
        return Path(directory)
    state = Path(environ.get("XDG_STATE_HOME", ""))  # one that is not absolute counts as none
    try:
        home = state if state.is_absolute() else Path.home() / ".local/state"
    except RuntimeError as homeless:
        raise OSError(str(homeless)) from None
    return home / "makegood"


def logouts(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the file of ended logins; None if this user has no folder for it."""
    try:
        return folder(environ) / LOGOUTS
    except OSError:
        return None


def token_of(token: str | None = None, environ: Mapping[str, str] = os.environ) -> ConsoleToken:
    """Return the token that was given, or that the user's file holds; the first console draws it.

    Where no file can be kept it lasts as long as the process. Raises ``ConfigError`` for a token that can be
    guessed, and for a file that others may read.
    """
    if token is not None:
        if not _FORM.fullmatch(token):
            raise ConfigError(
                "console_token: 16 to 200 letters, digits or any of . _ ~ + / = -, such as `openssl rand -hex 32` prints"
            )
        return ConsoleToken(token, None)
    new_token = secrets.token_urlsafe(32)
    try:
        file = folder(environ) / TOKEN
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return ConsoleToken(_read(file) or _keep_token(file, new_token), file)
    except OSError as unkept:
        log.warning(
            "the console's token cannot be kept (%s), so another one is drawn at the next start: set console_token, or give the "
            "process a folder of its own (HOME, or StateDirectory= of systemd)", unkept,
        )  # fmt: skip
        return ConsoleToken(new_token, None)


def _read(file: Path) -> str:
    """Return the token in a file, "" if there is none."""
    try:
        with file.open(encoding="ascii", errors="replace") as stream:
            status, text = os.fstat(stream.fileno()), stream.read(1000).strip()
    except FileNotFoundError:
        return ""
    path = shlex.quote(str(file))
    if status.st_uid not in (0, os.geteuid()):
        raise ConfigError(
            f"the console's token in {file} is known to {name_of(status.st_uid)}, whose file it is: remove it (`rm {path}`), and the "
            "console draws another one"
        )
    if readers := others(status, stat.S_IROTH | stat.S_IWOTH):
        raise ConfigError(
            f"the console's token in {file} is known to {readers}: remove the file (`rm {path}`), and the console draws another one"
        )
    if not _FORM.fullmatch(text):
        raise ConfigError(
            f"{file} does not hold a token of the console: remove it (`rm {path}`), and the console draws one"
        )
    return text


def _keep_token(file: Path, token: str) -> str:
    """Keep a token, and return it, or the one that another process kept first."""
    new = file.with_name(f"{file.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with os.fdopen(
            os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE), "w"
        ) as stream:
            stream.write(f"{token}\n")
        os.link(new, file)  # whole at once, and never in place of another
    except FileExistsError:
        return _read(file) or token
    finally:
        new.unlink(missing_ok=True)
    return token


class EndedLogins:
    """Logins that were ended, until they would have expired. ``file``: where they outlive the process and
    count for the other consoles of this user; None: nowhere.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._seen: tuple[int, int] | None = None
        self._ended: OrderedDict[str, float] = OrderedDict()

    def end(self, nonce: str, expires: float, now: float) -> None:
        """Let a login be valid no longer."""
        self._read()
        self._ended[nonce] = expires
        while len(self._ended) > MOST_KEPT or next(iter(self._ended.values())) <= now:
            self._ended.popitem(last=False)
        if self._file is not None:
            try:
                self._write()
            except OSError as unkept:
                log.warning(
                    "a logout may not outlive this process: %s cannot be written: %s", self._file, unkept
                )

    def __contains__(self, nonce: str) -> bool:
        self._read()
        return nonce in self._ended

    def _read(self) -> None:
        """Take over what other consoles have written."""
        if self._file is None:
            return
        with suppress(OSError, ValueError):
            status = self._file.stat()
            if status.st_uid in (0, os.geteuid()) and self._seen != (status.st_mtime_ns, status.st_ino):
                for line in self._file.read_text(encoding="ascii").splitlines():
                    nonce, _, expires = line.partition(" ")
                    self._ended.setdefault(nonce, float(expires))
                self._seen = status.st_mtime_ns, status.st_ino

    def _write(self) -> None:
        assert self._file is not None
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        with os.fdopen(
            os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, MODE), "w"
        ) as stream:
            stream.writelines(f"{nonce} {expires}\n" for nonce, expires in self._ended.items())
        new.replace(self._file)
