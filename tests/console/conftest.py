"""The console over real stores: the fixtures of the conformance suite."""

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
