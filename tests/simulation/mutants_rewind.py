"""Mutants of what helps when the store goes back in time: the generation in the token, and the services' tombstones."""

from dataclasses import replace
from typing import Any

import pytest

from makegood.declare.call import Call, Token
from proofs.storms.services import StormService
from tests.simulation.mutants_making import mutant
from tests.simulation.mutants_worlds import FAULTS_OF_ALL_KINDS
from tests.simulation.restored_store import goes_back

BACK = replace(
    FAULTS_OF_ALL_KINDS,
    tasks=16,
    points={},
    messages={},
    services={"service late": 0.3, "service does it and times out": 0.3},
    rates={"operator": 4.0},
    storm=30.0,
)
"""Cancels and late calls, and in their midst the store goes back."""


def _no_generation(m: pytest.MonkeyPatch) -> None:
    m.setattr(Call, "token", property(lambda call: Token(1, call._request.attempt)))


def _no_tombstone(m: pytest.MonkeyPatch) -> None:
    true = StormService._do

    def forgetful(service: StormService, request: Any, entry: Any) -> Any:
        entry.is_undone = False
        return true(service, request, entry)

    m.setattr(StormService, "_do", forgetful)


@mutant(BACK, "lone", twist=goes_back)
def generation(m: pytest.MonkeyPatch) -> None:
    """The token does not carry the generation of a store that went back in time."""
    _no_generation(m)


@mutant(BACK, "lone", twist=goes_back)
def tombstone(m: pytest.MonkeyPatch) -> None:
    """No service remembers what was undone, and the store goes back in time."""
    _no_tombstone(m)


@mutant(BACK, "lone", twist=goes_back)
def generation_and_tombstone(m: pytest.MonkeyPatch) -> None:
    """Neither, and the store goes back in time."""
    _no_generation(m)
    _no_tombstone(m)
