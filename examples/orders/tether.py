"""Runs a module as ``python -m`` does, and ends with the process that started it, however that one went.

``python -m orders.tether makegood scheduler --store URL``

The starter holds the other end of our stdin: when it is gone, killed or not, stdin ends, and so do we, at once and
without a word. A process that is stopped (SIGSTOP) reads nothing, so on Linux the kernel is asked as well: to kill us
when the thread that started us ends. A starter must therefore start processes from its main thread.
"""

import ctypes
import os
import runpy
import signal
import sys
import threading
from typing import Final

PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    """Run the module named by the first argument, with the others as its own."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # after that, so that a starter which ended in between is noticed as well
    threading.Thread(target=_end_with_stdin, name="tether", daemon=True).start()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _end_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)  # as if killed: nobody is left for whom anything should be put in order


if __name__ == "__main__":
    main()
