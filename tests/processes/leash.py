"""Runs a module as ``python -m`` does, in a process that dies with the one that started it, however that one went.

``python -m tests.processes.leash [--plain-user] makegood scheduler --store URL``

``--plain-user``: give up root's rights first, for which no file is read-only.
"""

import ctypes
import importlib
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1
NOBODY = 65534
MODULES = (
    "asyncio",
    "rich.console",
    "sqlite3",
    "makegood.cli",
    "makegood.cli.roles",
    "makegood.store.sqlite",
    "tests.processes.child",
    "tests.processes.floor",
)


def main() -> None:
    """Tie this process to its parent, then become the module."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    del sys.argv[0]
    if sys.argv[0] != "--plain-user":
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        return
    del sys.argv[0]
    for module in MODULES:  # afterwards root's folders cannot be read
        importlib.import_module(module)
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # forgotten with the user
    importlib.import_module(sys.argv[0]).main()


if __name__ == "__main__":
    main()
