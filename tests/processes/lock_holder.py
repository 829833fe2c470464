"""Holds a SQLite file's write lock: what a backup program, or a person with a shell, may do to the store.

``python -m tests.processes.lock_holder FILE`` prints "locked" and keeps the lock until it is killed.
"""

import sqlite3
import sys
import time


def main() -> None:
    """Lock, and stay."""
    connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
    connection.execute("begin exclusive")
    print("locked", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main()
