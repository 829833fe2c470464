"""makegood's plugin for pytest: three options for tests under ``@crash_everywhere`` and ``@simulate``, and at
the end of a run a word about undos that none of them has seen.

It stands beside the package, so that a run of pytest which uses none of it does not even import makegood. The
decorators are in ``makegood.testing``; they work without this plugin too (``-p no:makegood``), with their own
settings.
"""

from collections.abc import Mapping
from typing import Any

import pytest

_OPTIONS = ("makegood_seed", "makegood_seeds", "makegood_faults")
UNDOS = pytest.StashKey[dict[str, bool]]()
"""Whether the undo of an action, by its address, ran in any world of any test: of those that were done in
one.
"""
_UNDOS = "makegood_undos"


def remember(config: Any, seen: Mapping[str, bool]) -> None:
    """Add what undos ran, by the address of their action, in some worlds or in a process to what is known of
    all worlds.
    """
    known = config.stash.setdefault(UNDOS, {})
    for action, ran in seen.items():
        known[action] = known.get(action, False) or ran


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


def pytest_configure(config: pytest.Config) -> None:
    """Refuse what cannot be meant once, before any test."""
    if all(config.getoption(name) is None for name in _OPTIONS):
        return
    from makegood import ConfigError  # noqa: PLC0415 - whoever uses none of the options does not import it
    from makegood.testing.kit.crashing import settings_of  # noqa: PLC0415 - as above

    try:
        settings_of(config)
    except ConfigError as refused:
        raise pytest.UsageError(str(refused)) from None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send what a process of pytest-xdist has seen to the one that tells."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_UNDOS] = session.config.stash.get(UNDOS, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take in what a process of pytest-xdist has seen."""
    remember(node.config, getattr(node, "workeroutput", {}).get(_UNDOS, {}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Tell of undos that ran in no world."""
    idle = sorted(action for action, ran in config.stash.get(UNDOS, {}).items() if not ran)
    if idle and all(config.getoption(name) is None for name in _OPTIONS):
        terminalreporter.section("makegood: not proved")
        from makegood.testing.kit.limits import never_undone  # noqa: PLC0415 - as above

        for line in never_undone(idle):
            terminalreporter.write_line(line)
