"""Actors on real stores: the fixtures of the conformance suite, and nodes that do nothing unasked."""

from makegood.options import Options
from tests.conformance.conftest import (
    counting,
    counting_store,
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
    "counting",
    "counting_store",
    "counts",
    "databases",
    "other",
    "pytest_pyfunc_call",
    "runner",
    "store",
    "world",
]

QUIET = Options(
    heartbeat="1h", dead_after="3h", poll_every=None, drain="1s", alerts_every=None, leaderless_after=None
)
"""No heartbeat and no poll within a test: what moves was woken."""
