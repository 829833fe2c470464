"""Private files: how makegood creates them, and who else may read or write them.

A store's file holds payloads and errors, and any user who may open it can also stop everybody else by a lock.
Settings and secrets decide which server gets a password. makegood never changes rights that somebody gave to
a file on purpose; it reports them.
"""

import contextlib
import grp
import logging
import os
import pwd
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from makegood.errors import ConfigError

log = logging.getLogger("makegood.private")

MODE: Final = 0o600
"""The rights of a file that makegood creates."""


def make(path: Path) -> None:
    """Create an empty file that only this user may read and write; an existing file keeps its rights.

    SQLite gives a log and its index the rights of the file itself. Raises ``OSError`` if the file cannot be
    created.
    """
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path.resolve(), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE))


def name_of(user: int) -> str:
    """Return the name of a user."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:  # such as in a container
        return f"user {user}"


def _own_group(status: os.stat_result) -> bool:
    """Whether a file's group is its owner's alone; many systems give each user one."""
    try:
        owner, group = pwd.getpwuid(status.st_uid), grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    return (owner.pw_gid, owner.pw_name) == (group.gr_gid, group.gr_name) and {*group.gr_mem} <= {
        owner.pw_name
    }


def others(status: os.stat_result, rights: int = stat.S_IROTH | stat.S_IWOTH) -> str:
    """Return who besides the owner has ``rights`` (given as those of all others) to a file; "" for nobody."""
    if status.st_mode & rights:
        return "every user"
    if status.st_mode & (rights << 3) and not _own_group(status):
        try:
            return f"group {grp.getgrgid(status.st_gid).gr_name}"
        except KeyError:
            return f"group {status.st_gid}"
    return ""


def check_trusted(path: Path) -> None:
    """Refuse a file that decides what this process does and that another user may have written.

    Raises ``ConfigError``, ``OSError``.
    """
    status, path_text = path.stat(), shlex.quote(str(path))
    me = os.geteuid()
    if status.st_uid not in (0, me):
        raise ConfigError(
            f"{path} belongs to {name_of(status.st_uid)}, who could name any server in it: if you trust its text, take it over "
            f"(`sudo chown {me} {path_text}`), otherwise run makegood in another folder"
        )
    if who := others(status, stat.S_IWOTH):
        raise ConfigError(
            f"{path} may be written by {who}, who could name any server in it: `chmod go-w {path_text}`, and read it before you continue"
        )


def secret_in(text: str, name: str) -> str:
    """Return a secret: the text itself, or for ``@FILE`` the content of FILE. ``name``: what it is, for
    messages.

    Raises ``ConfigError`` for a file that is unreadable or empty, or that others may write. A file that every
    user may read is accepted, with a warning: containers mount secrets so.
    """
    if not text.startswith("@"):
        return text
    file = Path(text[1:])
    try:
        status, secret = file.stat(), file.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as wrong:
        why = wrong if isinstance(wrong, OSError) else "it is not UTF-8"  # the other error shows bytes of it
        raise ConfigError(f"{name}: its file cannot be read: {why}") from None
    if not secret:
        raise ConfigError(f"{name}: its file {file} is empty")
    path_text = shlex.quote(str(file))
    if who := others(status, stat.S_IWOTH):
        raise ConfigError(f"{name}: its file {file} may be written by {who}: `chmod 600 {path_text}`")
    if status.st_mode & stat.S_IROTH:
        log.warning("%s: every user of this machine may read %s: `chmod 600 %s`", name, file, path_text)
    return secret


def exposures(path: Path) -> Iterator[tuple[str, str]]:
    """Yield what others may do with a store's file and its folder, each with the remedy."""
    real = path.resolve()
    files = [file for file in (real, *(Path(f"{real}{end}") for end in ("-wal", "-shm"))) if file.exists()]
    open_to = {file: others(file.stat()) for file in files}
    if any(open_to.values()):
        open_files = [file for file, who in open_to.items() if who]
        who = next(filter(None, open_to.values()))
        yield (
            f"{who} may open {', '.join(file.name for file in open_files)}: read what is in the store, and stop all writing by a lock",
            f"`chmod go= {shlex.join(map(str, open_files))}`, unless you share it with that group on purpose",
        )
    folder = real.parent.stat()
    who = others(folder, stat.S_IWOTH)
    if who and not folder.st_mode & stat.S_ISVTX:
        yield (
            f"{who} may write its folder {real.parent}, and so replace the file",
            f"`chmod go-w {shlex.quote(str(real.parent))}`, unless you share it with that group on purpose",
        )
    elif folder.st_uid not in (0, real.stat().st_uid, os.geteuid()):
        yield (
            f"its folder {real.parent} belongs to {name_of(folder.st_uid)}, who may replace the file",
            "move the file into a folder of its owner",
        )
