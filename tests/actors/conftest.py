"""Actors on real stores: the fixtures of the conformance suite, and nodes that do nothing unasked."""

from makegood.options import Options
from tests.conformance.conftest import (
    counted,
    counting,
    counts,
    databases,
    other,
    pytest_pyfunc_call,
    runner,
    store,
    world,
)

__all__ = [
    "QUIET",
    "counted",
    "counting",
    "counts",
    "databases",
    "other",
    "pytest_pyfunc_call",
    "runner",
    "store",
    "world",
]

QUIET = Options(heartbeat="1h", life="3h", poll=None, drain="1s", tell=None, leaderless=None)
"""No heartbeat and no poll within a test: what moves was woken."""
