"""What every test may rely on: ``async def`` tests run, skips are counted aloud, and CI skips no store in silence."""

import asyncio
import functools
import inspect
import os
import signal
import tempfile
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.rings import CHECK, NIGHTLY, PROOF, RINGS, TEST, ring_of, rings_in

# How fast an example is made or runs is no finding.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

HERE = Path(__file__).parent
OUTCOMES = ("passed", "failed", "skipped", "error")


LEFT_OUT: Counter[str] = Counter()
"""How many tests of each ring this run left out, by `-m`, `-k` or because `pytest` alone runs what `make test` does."""


def pytest_configure(config: pytest.Config) -> None:
    """Know the rings; `pytest` alone runs what `make test` does. And let Ctrl-C reach the processes that tests start: a run in the background begins with SIGINT ignored, and passes that on."""
    # What makegood keeps for a user, such as the console's token, stays out of the home of whoever runs the tests.
    state = tempfile.TemporaryDirectory(prefix="makegood-state-")
    config.add_cleanup(state.cleanup)
    os.environ["XDG_STATE_HOME"] = state.name
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for ring in RINGS:
        config.addinivalue_line(
            "markers", f"{ring}: the ring that a test belongs to by its place, see tests/rings.py"
        )
    if config.args_source is not pytest.Config.ArgsSource.ARGS and not config.option.markexpr:
        config.option.markexpr = f"{CHECK} or {TEST}"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file without a test of the outer ring that is run: most have none, and each process would import them all."""
    is_test = collection_path.match("test_*.py") and collection_path.is_relative_to(HERE)
    if is_test and config.option.markexpr in (PROOF, NIGHTLY):
        return config.option.markexpr not in rings_in(collection_path.relative_to(HERE).as_posix()) or None
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Mark each test with its ring before any is left out. And begin with the tests that have a time limit of their own: they take
    minutes, and one alone at the end would keep all waiting.
    """
    for item in items:
        item.add_marker(ring_of(item.nodeid))
    yield
    items.sort(key=lambda item: item.get_closest_marker("timeout") is None)


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Count what is left out, by ring."""
    LEFT_OUT.update(ring_of(item.nodeid) for item in items)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Under xdist the processes that run tests collect them too: they pass on what they left out, each of them the same."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = dict(LEFT_OUT)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take that over."""
    LEFT_OUT.update(getattr(node, "workeroutput", {}).get("left_out", {}) if not LEFT_OUT else {})


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user of this machine may enter. Those of ``tmp_path`` are in one that each run of pytest closes to others."""
    with tempfile.TemporaryDirectory(prefix="makegood-open-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an ``async def`` test on an event loop of its own; under ``@given`` each example has its own loop."""
    test = pyfuncitem.obj
    if inspect.iscoroutinefunction(test):
        names = pyfuncitem._fixtureinfo.argnames
        asyncio.run(test(**{name: pyfuncitem.funcargs[name] for name in names}))
        return True
    wrapper = getattr(test, "hypothesis", None)
    if wrapper is not None and inspect.iscoroutinefunction(wrapper.inner_test):
        inner = wrapper.inner_test

        @functools.wraps(inner)
        def run_example(*args: object, **kwargs: object) -> None:
            asyncio.run(inner(*args, **kwargs))

        wrapper.inner_test = run_example
    return None


def skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return why a test was skipped, without the place where it said so."""
    longrepr: Any = report.longrepr
    reason = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
    return str(reason).removeprefix("Skipped: ")


def refuse_silent_absence(report: pytest.TestReport | pytest.CollectReport) -> None:
    """In CI a test that was skipped for want of PostgreSQL has failed: the store would go untested unnoticed."""
    if os.environ.get("CI") == "true" and report.skipped and "postgres" in skip_reason(report).lower():
        reason = skip_reason(report)
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, where every store must be tested: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn such a skip of one test into a failure."""
    report = yield
    refuse_silent_absence(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn such a skip of a whole file into a failure."""
    report = yield
    refuse_silent_absence(report)
    return report


def folder_of(nodeid: str) -> str:
    """Return the folder under tests/ that a test belongs to.

    >>> folder_of("tests/house/test_tidy.py::test_x")
    'tests/house'
    """
    return str(Path(*Path(nodeid.partition("::")[0]).parts[:2]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what ran in each folder, and what was skipped and why."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    seconds: dict[str, float] = defaultdict(float)
    skips: Counter[tuple[str, str]] = Counter()
    for outcome in OUTCOMES:
        for report in terminalreporter.stats.get(outcome, []):
            folder = folder_of(report.nodeid)
            counts[folder][outcome] += 1
            seconds[folder] += getattr(report, "duration", 0.0)
            if outcome == "skipped":
                skips[folder, skip_reason(report)] += 1
    if not counts:
        return
    terminalreporter.section("what ran")
    width = max(len(folder) for folder in counts)
    terminalreporter.line(f"{'folder':<{width}}  {'passed':>7} {'failed':>7} {'skipped':>7} {'seconds':>8}")
    for folder, outcomes in sorted(counts.items()):
        failures = outcomes["failed"] + outcomes["error"]
        terminalreporter.line(
            f"{folder:<{width}}  {outcomes['passed']:>7} {failures:>7} {outcomes['skipped']:>7} {seconds[folder]:>8.1f}"
        )
    for (folder, reason), times in sorted(skips.items()):
        terminalreporter.line(f"skipped in {folder}, {times} x: {reason}")
    if not skips:
        terminalreporter.line("nothing was skipped")
    if terminalreporter.config.option.markexpr not in (
        PROOF,
        NIGHTLY,
    ):  # what these do not import, they cannot count
        for ring, number in sorted(LEFT_OUT.items()):
            terminalreporter.line(f"left out of this run: {number} tests of `make {ring}`")
