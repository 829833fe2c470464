"""Which process this is, so that another one of its host can tell for sure that it is gone.

A process id alone proves nothing: ids are used again, and each container has its own. So an identity also
names the boot of the machine and the namespace of the id, within which ids compare, and the moment at which
the process began. Where one of them is unknown (on systems other than Linux, or where /proc is another
namespace's), there is no identity, and nothing is concluded.
"""

import os
from pathlib import Path

import msgspec

_PROC = Path("/proc")
_STATE, _STARTED = 0, 19
"""Places in /proc/PID/stat behind the name, which may contain anything."""


class ProcessIdentity(msgspec.Struct, frozen=True, array_like=True):
    """A process of a host."""

    scope: str
    """The boot of the machine and the namespace of process ids: ids of one scope compare."""
    pid: int
    started: int
    """When it began, in ticks since the boot."""


def own() -> ProcessIdentity | None:
    """Return the identity of this process, None if it cannot be known."""
    pid = os.getpid()
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        namespace = (_PROC / "self/ns/pid").readlink().name
        is_own = (_PROC / "self").readlink().name == str(pid)
        fields = _fields(pid)
    except OSError:
        return None
    return ProcessIdentity(f"{boot} {namespace}", pid, int(fields[_STARTED])) if is_own else None


def is_gone(other: ProcessIdentity, here: ProcessIdentity) -> bool:
    """Return whether a process has certainly ended, as far as the process ``here`` can tell."""
    if other == here or other.scope != here.scope:
        return False
    try:
        os.kill(other.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # it is another user's
        pass
    try:
        fields = _fields(other.pid)
        threads = len(list((_PROC / str(other.pid) / "task").iterdir()))
    except OSError:  # it has ended just now, or is hidden
        return False
    has_ended = fields[_STATE] == "Z" and threads == 1  # its parent has not noticed yet
    return has_ended or int(fields[_STARTED]) != other.started


def _fields(pid: int) -> list[str]:
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
