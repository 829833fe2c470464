"""Runs a module as ``python -m`` does, and ends with the process that started it, however that one went.

``python -m orders.tether makegood scheduler --store URL``

The starter holds the other end of our stdin: when it is gone, killed or not, stdin ends, and so do we: at once and
without a word, or with SIGTERM when ``--gently`` comes first. A process that is stopped (SIGSTOP) reads nothing, so on
Linux the kernel is asked as well: to end us when the thread that started us ends. A starter must therefore start
processes from its main thread.
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
    arguments = sys.argv[1:]
    ending = signal.SIGKILL
    if arguments[:1] == ["--gently"]:
        ending = signal.SIGTERM
        arguments = arguments[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ending)
    # after that, so that a starter which ended in between is noticed as well
    threading.Thread(target=_end_with_stdin, args=(ending,), name="tether", daemon=True).start()
    sys.argv = arguments
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


def _end_with_stdin(ending: signal.Signals) -> None:
    signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGTERM}
    )  # it is for the main thread, which may wait for it
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), ending)


if __name__ == "__main__":
    main()
