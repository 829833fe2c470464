"""Holds a SQLite file as a backup program does, or a person with a shell, until it is killed.

``python -m examples.chaos.locker write FILE`` takes the write lock; ``read`` stays in the middle of a reading, so that no
checkpoint gets past it. It prints "held" once it is so.
"""

import sqlite3
import sys
import time


def main() -> None:
    """Lock, and stay."""
    how, file = sys.argv[1:]
    connection = sqlite3.connect(file, isolation_level=None, timeout=60)
    if how == "write":
        connection.execute("begin immediate")
    else:
        connection.execute("begin")
        connection.execute("select count(*) from makegood_task").fetchone()
    print("held", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main()
