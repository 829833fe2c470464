"""A private broker of each kind, started once for the run of the tests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.brokers.rig import Rig
from tests.brokers.rigs import RIGS, UNFIT, open_rig


@pytest.fixture(scope="session")
def rigs() -> Iterator[Callable[[str], Rig]]:
    """Returns the run's rig of a name, started when it is first asked for."""
    running: dict[str, Rig] = {}
    with ExitStack() as stack:

        def rig(name: str) -> Rig:
            if name not in running:
                running[name] = open_rig(name)
                stack.callback(running[name].close)
            return running[name]

        yield rig


@pytest.fixture(params=RIGS)
def rig(request: pytest.FixtureRequest, rigs: Callable[[str], Rig]) -> Rig:
    """A broker of each kind. Skips the cases that it cannot show."""
    case = request.node.originalname
    if reason := UNFIT.get(request.param, {}).get(case):
        pytest.skip(f"{request.param}: {reason}")
    return rigs(request.param)
