"""The command line: ``makegood``, or ``python -m makegood``.

Data goes to stdout, everything else to stderr. A person at a terminal gets tables and colour, a pipe gets
plain aligned text, and ``--json`` gives one document (one object per line where a command streams). An error
is one sentence that says what is wrong and what to do; ``exits`` holds the exit codes.

Each command's module is loaded when that command is called, so that ``makegood --help`` stays quick: see
``app``.
"""

from makegood.cli.app import main

__all__ = ["main"]
