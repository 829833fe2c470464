"""makegood's plugin for pytest: three options for tests under ``@crash_everywhere`` and ``@simulate``, and at
the end of a run a word about undos and probes that answered in none of them.

It stands beside the package, so that a run of pytest which uses none of it does not even import makegood. The
decorators are in ``makegood.testing``; they work without this plugin too (``-p no:makegood``), with their own
settings.
"""

from collections.abc import Mapping
from typing import Any

import pytest

_OPTIONS = ("makegood_seed", "makegood_seeds", "makegood_faults")
COVERAGE = pytest.StashKey[dict[str, int]]()
"""How far each undo and probe came in any world of any test: 0 did not run, 1 ran, 2 answered."""
_COVERAGE = "makegood_coverage"


def remember(config: Any, coverage: Mapping[str, int]) -> None:
    """Add how far undos and probes came in some worlds or in a process to what is known of all worlds."""
    known = config.stash.setdefault(COVERAGE, {})
    for name, level in coverage.items():
        known[name] = max(known.get(name, 0), level)


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
        output[_COVERAGE] = session.config.stash.get(COVERAGE, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take in what a process of pytest-xdist has seen."""
    remember(node.config, getattr(node, "workeroutput", {}).get(_COVERAGE, {}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Name the undos and probes that answered in no world."""
    coverage = config.stash.get(COVERAGE, {})
    if any(level < 2 for level in coverage.values()) and all(
        config.getoption(name) is None for name in _OPTIONS
    ):
        terminalreporter.section("makegood: not proved")
        from makegood.testing.kit.limits import not_proved  # noqa: PLC0415 - as above

        for line in not_proved(coverage):
            terminalreporter.write_line(line)
