"""makegood's plugin for pytest: three options for tests under ``@crash_everywhere`` and ``@simulate``, and at the end of a run a
word about undos that none of them has seen.

It stands beside the package, so that a run of pytest which uses none of it does not even import makegood. The decorators
are in ``makegood.testing``; they work without this plugin too (``-p no:makegood``), with their own settings.
"""

from importlib import import_module
from typing import Any

import pytest

UNDOS = pytest.StashKey[dict[str, bool]]()
"""Whether the undo of an action, by its address, ran in any world of any test: of those that were done in one."""
_UNDOS = "makegood_undos"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("makegood", "makegood: tests under @crash_everywhere and @simulate")
    group.addoption(
        "--makegood-seed",
        metavar="SEED",
        help="play this seed alone (7), or the one world that a failure names (0/118/kill)",
    )
    group.addoption(
        "--makegood-seeds",
        type=int,
        metavar="N",
        help="how many storms each @simulate plays, whatever it says",
    )
    group.addoption(
        "--makegood-faults",
        metavar="NAMES",
        help="only these faults, such as kill,stop,ambiguous,duplicate,late; or all",
    )


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send what a process of pytest-xdist has seen to the one that tells."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_UNDOS] = session.config.stash.get(UNDOS, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take in what a process of pytest-xdist has seen."""
    known = node.config.stash.setdefault(UNDOS, {})
    for action, ran in getattr(node, "workeroutput", {}).get(_UNDOS, {}).items():
        known[action] = known.get(action, False) or ran


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Tell of undos that ran in no world."""
    idle = sorted(action for action, ran in config.stash.get(UNDOS, {}).items() if not ran)
    if idle and not any(
        config.getoption(name) for name in ("makegood_seed", "makegood_seeds", "makegood_faults")
    ):
        terminalreporter.section("makegood: not proved")
        for line in import_module("makegood.testing.users_limits").never_undone(idle):
            terminalreporter.write_line(line)
