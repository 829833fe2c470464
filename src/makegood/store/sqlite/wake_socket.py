"""The wake socket: wakes other processes on the same file after a commit that may concern them, with a
datagram.

Each process binds a socket in a folder beside the database. The end of the socket's name has one letter for
each kind of topic that the process listens to, so that no process is woken for other topics. A datagram
carries no data, only topics: the process that receives it reads the database. Datagrams may be lost; a slow
poll covers that. If a socket's queue was full when it was read, it wakes for every topic, because the
datagrams that did not fit are unknown.
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
    "sleeping": "s",
    "queued": "l",
    "inbox": "i",
    "agent": "a",
    "cancel": "c",
    "ended": "e",
    "answers": "w",
    "steps": "t",
    "queue": "q",
    "notice": "n",
    "bulk": "b",
    "schedule": "m",
    "nodes": "o",
}
_EVERY = "*"
"""Instead of a letter, of a topic without one, as a newer release may have: it wakes every process."""
_MOST_PATH = 100  # sun_path holds 108 bytes on Linux, 104 elsewhere
_NAME_ROOM = 24
_QUEUE_FILE = Path("/proc/sys/net/unix/max_dgram_qlen")
_HANDLES = Path("/proc/self/fd")
_QUEUE = 8
_MOST_BYTES = 4096
_TRIES = 100

Heard = Callable[[set[str] | None], None]
"""Called with the topics that were named; None: all topics."""


def kind_of(topic: str) -> str:
    """Return the letter of a topic's kind.

    >>> kind_of("agent:shop/payments"), kind_of("inbox")
    ('a', 'i')
    """
    return KINDS[topic.partition(":")[0]]


def folder_of(path: Path) -> Path:
    """Return the folder for the sockets of a database: beside it, or in the temporary folder if that path is
    too long.
    """
    real = path.resolve()
    beside = real.with_name(real.name + ".bell")
    if len(os.fsencode(beside)) + 1 + _NAME_ROOM <= _MOST_PATH:
        return beside
    digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"makegood-{user_of(path)}-{digest}"


def user_of(path: Path) -> int:
    """Return the user who owns the folder: this user, or for root the file's owner.

    A folder owned by root would lock out the file's owner for as long as it exists, even after root's process
    was killed.
    """
    me = os.geteuid()
    if me != 0:
        return me
    try:
        return path.stat().st_uid
    except OSError:
        return me


@dataclass(slots=True, eq=False)
class WakeSocket:
    """The socket of one store object."""

    path: Path
    """The database file."""
    on_wake: Heard
    """Called with the topics named; None: all topics."""
    _folder: Path = field(init=False)
    _listening: socket.socket | None = None
    _sending: socket.socket | None = None
    _stem: str = ""
    _letters: str = ""
    _full: int = _QUEUE

    def __post_init__(self) -> None:
        """Determine the folder of the sockets."""
        self._folder = folder_of(self.path)

    @property
    def listener(self) -> socket.socket | None:
        """Our socket; None if it is not open."""
        return self._listening

    def open(self) -> socket.socket | None:
        """Bind our socket and return it, to be watched.

        Returns None if that fails: then only the poll is left.
        """
        with contextlib.suppress(OSError, ValueError):  # not Linux: a queue of 8 is assumed
            self._full = int(_QUEUE_FILE.read_text(encoding="ascii"))
        try:
            self._bind()
        except OSError as failure:
            _log.warning(
                "%s: no wake socket (%s); other processes are seen by polling only", self._folder, failure
            )
            self.close()
        return self._listening

    def _bind(self) -> None:
        self._sending = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sending.setblocking(False)
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._listening.setblocking(False)
        for number in range(_TRIES):
            stem = f"{os.getpid()}-{number}"
            try:
                self._folder.mkdir(mode=0o700, exist_ok=True)
                user = user_of(self.path)
                if user != os.geteuid():
                    _give(self._folder, user)
                self._examine(user)
                if any(entry.name.partition(".")[0] == stem for entry in self._folder.iterdir()):
                    continue
                self._listening.bind(str(self._folder / f"{stem}."))
                self._stem, self._letters = stem, ""  # not before: close() removes the socket of that name
                if user != os.geteuid():
                    _let_owner_send(self._folder / f"{stem}.")
                return
            except FileNotFoundError:  # another process has just removed the folder, which was empty
                continue
            except OSError as failure:
                if failure.errno != errno.EADDRINUSE:
                    raise
        raise OSError(errno.EADDRINUSE, "no free name for a socket", str(self._folder))

    def _examine(self, user: int) -> None:
        """Refuse a folder that other users may write to: they could intercept datagrams, or forge some."""
        status = self._folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != user or status.st_mode & 0o077:
            raise PermissionError(
                errno.EPERM, "not a folder of this user alone (mode 0700)", str(self._folder)
            )

    def listen_to(self, topic: str) -> None:
        """Add this kind of topic to our socket's name, so that other processes wake us for it."""
        letter = kind_of(topic)
        if self._listening is None or letter in self._letters:
            return
        letters = "".join(sorted(self._letters + letter))
        try:
            (self._folder / f"{self._stem}.{self._letters}").rename(self._folder / f"{self._stem}.{letters}")
            self._letters = letters
        except OSError as failure:
            _log.warning(
                "%s: the wake socket is gone (%s); others are seen by polling only", self._folder, failure
            )

    def answer(self) -> None:
        """Read all datagrams that have arrived; called when our socket is readable."""
        topics: set[str] = set()
        count = 0
        while self._listening is not None:
            try:
                data = self._listening.recv(_MOST_BYTES)
            except BlockingIOError:
                break
            except OSError as failure:
                _log.warning("%s: the wake socket failed (%s)", self._folder, failure)
                break
            count += 1
            topics.update(data.decode("utf-8", "replace").split("\n"))
        if count:
            self.on_wake(None if count >= self._full else topics)

    def wake(self, topics: set[str]) -> None:
        """Wake every other process that listens to one of these kinds of topics.

        Called by the writing thread.
        """
        if self._sending is None:
            return
        letters = {KINDS.get(topic.partition(":")[0], _EVERY) for topic in topics}
        data = "\n".join(sorted(topics)).encode()
        if len(data) > _MOST_BYTES:
            data = data[: data.rindex(b"\n", 0, _MOST_BYTES)]
        missing_stems = self._send(letters, data)
        if missing_stems:  # a socket was renamed while we sent: try again, once
            self._send(letters, data, only=missing_stems)

    def _send(self, letters: set[str], data: bytes, only: set[str] | None = None) -> set[str]:
        missing_stems: set[str] = set()
        try:
            names = [entry.name for entry in self._folder.iterdir()]
        except OSError:  # the folder was removed: nobody listens
            return missing_stems
        for name in names:
            stem, _, subscriptions = name.partition(".")
            if (
                stem == self._stem
                or (_EVERY not in letters and letters.isdisjoint(subscriptions))
                or (only is not None and stem not in only)
            ):
                continue
            address = str(self._folder / name)
            try:
                if self._sending is not None:
                    self._sending.sendto(data, address)
            except FileNotFoundError:
                missing_stems.add(stem)
            except ConnectionRefusedError:  # its process is dead
                with contextlib.suppress(OSError):
                    Path(address).unlink()
            except BlockingIOError:  # its queue is full: it will wake up for every topic
                continue
            except OSError as failure:
                _log.debug("%s: could not send (%s)", address, failure)
        return missing_stems

    def close(self) -> None:
        """Remove our socket, and the folder if ours was the last socket in it."""
        for endpoint in (self._listening, self._sending):
            if endpoint is not None:
                endpoint.close()
        if self._listening is not None and self._stem:
            with contextlib.suppress(OSError):
                (self._folder / f"{self._stem}.{self._letters}").unlink()
            with contextlib.suppress(OSError):
                self._folder.rmdir()
        self._listening = self._sending = None


def _give(folder: Path, user: int) -> None:
    """Give a folder that root owns, and that contains only sockets, to a user.

    Users other than root may write in the parent folder. So the folder is changed by its handle, never by its
    name, which could by then belong to another file.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        names = os.listdir(handle)  # noqa: PTH208 - of the folder that was opened, whatever bears its name now
        inside = (os.stat(name, dir_fd=handle, follow_symlinks=False) for name in names)
        if os.fstat(handle).st_uid == 0 and all(stat.S_ISSOCK(status.st_mode) for status in inside):
            os.fchown(handle, user, -1)
    finally:
        os.close(handle)


def _let_owner_send(address: Path) -> None:
    """Let the folder's owner send to a socket that root owns; no other user may enter the folder."""
    if not _HANDLES.is_dir():  # not Linux: the owner's datagrams do not reach root, who polls
        return
    handle = os.open(address, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if stat.S_ISSOCK(status.st_mode) and status.st_uid == 0:
            (_HANDLES / str(handle)).chmod(0o666)
    finally:
        os.close(handle)
