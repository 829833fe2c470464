"""Forks of a process whose threads are inside a library in C.

A child has one thread. A lock that another thread holds when the process forks stays locked in the child
forever. SQLite takes one for each piece of memory, so that a child whose parent was inside SQLite waits for
it at its first ``sqlite3.connect`` (seen with 3.40.1). Python makes its own locks new in a child; a library
does not. So a fork waits until makegood's threads have left SQLite, and they stay outside while it happens.
"""

import os
import threading
import weakref
from typing import Final

PATIENCE: Final = 5.0
"""Seconds that a fork waits for a thread, at most: its statement may wait for a lock for longer."""


class _Forks:
    """The locks that a fork takes, and gives back in both processes."""

    def __init__(self) -> None:
        self.locks: weakref.WeakSet[threading.Lock] = weakref.WeakSet()
        self._own: tuple[threading.Lock, ...] = ()

    def begin(self) -> None:
        """Take the locks, before the fork."""
        self._own = tuple(lock for lock in list(self.locks) if lock.acquire(timeout=PATIENCE))

    def end(self) -> None:
        """Give the locks back, in the parent and in the child."""
        for lock in self._own:
            lock.release()
        self._own = ()


_FORKS: Final = _Forks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_FORKS.begin, after_in_parent=_FORKS.end, after_in_child=_FORKS.end)


def fork_lock() -> threading.Lock:
    """Return a lock for a thread to hold while it is inside such a library; a fork takes it first."""
    lock = threading.Lock()
    _FORKS.locks.add(lock)
    return lock
