"""Is inside a transaction on a SQLite file when it is stopped, and ends it once it goes on: what a store's thread may do.

``python -m tests.processes.stopped_writer FILE [itself]`` prints "inside", "ended" after SIGCONT, and "on" once it is past the point at which
it stops; with ``itself`` it stops itself, as a fault's point does.
"""

import signal
import sqlite3
import sys
import threading
import time
from pathlib import Path

from tests.processes.fault_points import stop_now


def transaction(file: str, inside: threading.Event, resume: threading.Event) -> None:
    """Hold the lock from before the stop until after it."""
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("begin immediate")
    print("inside", flush=True)
    inside.set()
    resume.wait()
    connection.execute("commit")
    print("ended", flush=True)
    connection.close()


def main() -> None:
    """Begin a transaction in a thread of its own, stop or be stopped."""
    inside, resume = threading.Event(), threading.Event()
    signal.signal(signal.SIGCONT, lambda *_: resume.set())
    writer = threading.Thread(target=transaction, args=(sys.argv[1], inside, resume))
    writer.start()
    inside.wait()
    if sys.argv[2:]:
        stop_now(Path.cwd())
    else:
        while not resume.is_set():
            time.sleep(0.005)
    writer.join()
    print("on", flush=True)


if __name__ == "__main__":
    main()
