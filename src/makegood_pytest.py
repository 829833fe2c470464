"""makegood's plugin for pytest: three options for tests under ``@crash_everywhere`` and ``@simulate``, and nothing else.

It stands beside the package, so that a run of pytest which uses none of it does not even import makegood. The decorators
are in ``makegood.testing``; they work without this plugin too (``-p no:makegood``), with their own settings.
"""

import pytest

_OPTIONS = ("makegood_seed", "makegood_seeds", "makegood_faults")


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
    from makegood.testing.crashing import settings_of  # noqa: PLC0415 - as above

    try:
        settings_of(config)
    except ConfigError as refused:
        raise pytest.UsageError(str(refused)) from None
