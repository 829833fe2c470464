"""Runs a module as ``python -m`` does, in a process that dies with the one that started it, however that one went.

``python -m tests.processes.die_with_parent [--plain-user] makegood scheduler --store URL``

``--plain-user``: give up first what makes root write to files that are read-only.
"""

import ctypes
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_CAPBSET_DROP = 24
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER = 1, 2, 3


def control(option: int, value: int) -> None:
    """Call ``prctl``."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl {option}")


def main() -> None:
    """Tie this process to its parent, then become the module."""
    control(PR_SET_PDEATHSIG, signal.SIGKILL)
    del sys.argv[0]
    if sys.argv[0] != "--plain-user":
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        return
    if os.geteuid() == 0:  # root's powers are given anew with each program, as far as they are not barred
        for power in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER):
            control(PR_CAPBSET_DROP, power)
    os.execv(sys.executable, [sys.executable, "-m", "tests.processes.die_with_parent", *sys.argv[1:]])  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
