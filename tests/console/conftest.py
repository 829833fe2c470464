"""The console over real stores: the fixtures of the conformance suite."""

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
