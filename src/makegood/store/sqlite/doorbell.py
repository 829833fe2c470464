"""The doorbell: after a commit that may concern other processes on the same file, each of them gets a datagram.

Each process binds a socket in a folder beside the database. The end of the socket's name says, by a letter each, what
kinds of topics the process listens to, so that nobody is woken for what he does not want. A ring carries no
data, only topics: who hears it looks into the database. Rings may be lost; behind them stands a slow poll. A bell whose
queue was full when it was answered rings for everything, since what did not fit in is not known.
"""

import contextlib
import errno
import hashlib
import logging
import os
import socket
import stat
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

_log = logging.getLogger(__name__)

KINDS = {
    "pending": "p",
    "inbox": "i",
    "agent": "a",
    "ended": "e",
    "answers": "w",
    "queue": "q",
    "notice": "n",
}
_MOST_PATH = 100  # sun_path holds 108 bytes on Linux, 104 elsewhere
_NAME_ROOM = 24
_QUEUE_FILE = Path("/proc/sys/net/unix/max_dgram_qlen")
_HANDLES = Path("/proc/self/fd")
_QUEUE = 8
_MOST_RING = 4096
_TRIES = 100

Heard = Callable[[set[str] | None], None]
"""Told of the topics rung for; None: of all."""


def kind_of(topic: str) -> str:
    """Return the letter of a topic's kind.

    >>> kind_of("agent:shop/payments"), kind_of("inbox")
    ('a', 'i')
    """
    return KINDS[topic.partition(":")[0]]


def folder_of(path: Path) -> Path:
    """Return the folder of the sockets of a database: beside it, or a short one where that path would be too long."""
    real = path.resolve()
    beside = real.with_name(real.name + ".bell")
    if len(os.fsencode(beside)) + 1 + _NAME_ROOM <= _MOST_PATH:
        return beside
    digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"makegood-{user_of(path)}-{digest}"


def user_of(path: Path) -> int:
    """Return whose the folder is: this user's. Root gives it to the file's owner, whom a folder of root's would bar for as long as it
    is there, also after root's process was killed.
    """
    me = os.geteuid()
    if me != 0:
        return me
    try:
        return path.stat().st_uid
    except OSError:
        return me


@dataclass(slots=True, eq=False)
class Bell:
    """The bell of one store object. ``heard`` is called with the topics rung for, None for all."""

    path: Path
    heard: Heard
    _folder: Path = field(init=False)
    _listening: socket.socket | None = None
    _sending: socket.socket | None = None
    _stem: str = ""
    _letters: str = ""
    _full: int = _QUEUE

    def __post_init__(self) -> None:
        """Find the place of the sockets."""
        self._folder = folder_of(self.path)

    @property
    def watched(self) -> socket.socket | None:
        """Our socket, None when there is no bell."""
        return self._listening

    def open(self) -> socket.socket | None:
        """Bind our socket and return it, to be watched; None where that is not possible: the poll has to do."""
        with contextlib.suppress(OSError, ValueError):  # not Linux: a queue of 8 is assumed
            self._full = int(_QUEUE_FILE.read_text(encoding="ascii"))
        try:
            self._bind()
        except OSError as failure:
            _log.warning(
                "%s: no doorbell (%s); other processes are seen by polling only", self._folder, failure
            )
            self.close()
        return self._listening

    def _bind(self) -> None:
        self._sending = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sending.setblocking(False)
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._listening.setblocking(False)
        for number in range(_TRIES):
            self._stem, self._letters = f"{os.getpid()}-{number}", ""
            try:
                self._folder.mkdir(mode=0o700, exist_ok=True)
                user = user_of(self.path)
                if user != os.geteuid():
                    _give(self._folder, user)
                self._examine(user)
                if any(found.name.partition(".")[0] == self._stem for found in self._folder.iterdir()):
                    continue
                self._listening.bind(str(self._folder / f"{self._stem}."))
                if user != os.geteuid():
                    _let_ring(self._folder / f"{self._stem}.")
                return
            except FileNotFoundError:  # somebody has just removed the folder, which was empty
                continue
            except OSError as failure:
                if failure.errno != errno.EADDRINUSE:
                    raise
        raise OSError(errno.EADDRINUSE, "no free name for a socket", str(self._folder))

    def _examine(self, user: int) -> None:
        """Refuse a folder that others may write to: they could take our rings, or send any."""
        found = self._folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != user or found.st_mode & 0o077:
            raise PermissionError(
                errno.EPERM, "not a folder of this user alone (mode 0700)", str(self._folder)
            )

    def listen_to(self, topic: str) -> None:
        """Let others know, by our socket's name, that this kind of topic concerns us."""
        letter = kind_of(topic)
        if self._listening is None or letter in self._letters:
            return
        letters = "".join(sorted(self._letters + letter))
        try:
            (self._folder / f"{self._stem}.{self._letters}").rename(self._folder / f"{self._stem}.{letters}")
            self._letters = letters
        except OSError as failure:
            _log.warning(
                "%s: the doorbell is gone (%s); others are seen by polling only", self._folder, failure
            )

    def answer(self) -> None:
        """Take all rings that have come; called when our socket is readable."""
        topics: set[str] = set()
        count = 0
        while self._listening is not None:
            try:
                data = self._listening.recv(_MOST_RING)
            except BlockingIOError:
                break
            except OSError as failure:
                _log.warning("%s: the doorbell failed (%s)", self._folder, failure)
                break
            count += 1
            topics.update(data.decode("utf-8", "replace").split("\n"))
        if count:
            self.heard(None if count >= self._full else topics)

    def ring(self, topics: set[str]) -> None:
        """Ring at every other process that listens to one of these kinds. Called by the writing thread."""
        if self._sending is None:
            return
        letters = {kind_of(topic) for topic in topics}
        data = "\n".join(sorted(topics)).encode()
        if len(data) > _MOST_RING:
            data = data[: data.rindex(b"\n", 0, _MOST_RING)]
        missed = self._ring(letters, data)
        if missed:  # a socket has changed its name while we rang: look again, once
            self._ring(letters, data, only=missed)

    def _ring(self, letters: set[str], data: bytes, only: set[str] | None = None) -> set[str]:
        missed: set[str] = set()
        try:
            names = [found.name for found in self._folder.iterdir()]
        except OSError:  # the folder was removed: nobody listens
            return missed
        for name in names:
            stem, _, wanted = name.partition(".")
            if stem == self._stem or letters.isdisjoint(wanted) or (only is not None and stem not in only):
                continue
            address = str(self._folder / name)
            try:
                if self._sending is not None:
                    self._sending.sendto(data, address)
            except FileNotFoundError:
                missed.add(stem)
            except ConnectionRefusedError:  # its process is dead
                with contextlib.suppress(OSError):
                    Path(address).unlink()
            except BlockingIOError:  # its queue is full: it will wake up for everything
                continue
            except OSError as failure:
                _log.debug("%s: could not ring (%s)", address, failure)
        return missed

    def close(self) -> None:
        """Take our socket away, and the folder when it was the last one."""
        for held in (self._listening, self._sending):
            if held is not None:
                held.close()
        if self._listening is not None and self._stem:
            with contextlib.suppress(OSError):
                (self._folder / f"{self._stem}.{self._letters}").unlink()
            with contextlib.suppress(OSError):
                self._folder.rmdir()
        self._listening = self._sending = None


def _give(folder: Path, user: int) -> None:
    """Give a folder of root's with nothing but sockets in it to a user. What lies there was not made by root alone, who may write in the
    folder above: so nothing is changed by its name, which could be another file's by then.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        names = os.listdir(handle)  # noqa: PTH208 - of the folder that was opened, whatever has its name now
        inside = (os.stat(name, dir_fd=handle, follow_symlinks=False) for name in names)
        if os.fstat(handle).st_uid == 0 and all(stat.S_ISSOCK(found.st_mode) for found in inside):
            os.fchown(handle, user, -1)
    finally:
        os.close(handle)


def _let_ring(address: Path) -> None:
    """Let the folder's owner send to a socket of root's; nobody else may enter the folder."""
    if not _HANDLES.is_dir():  # not Linux: the owner's rings do not reach root, who polls
        return
    handle = os.open(address, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(handle)
        if stat.S_ISSOCK(found.st_mode) and found.st_uid == 0:
            (_HANDLES / str(handle)).chmod(0o666)
    finally:
        os.close(handle)
