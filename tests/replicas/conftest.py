"""Pairs of a primary and a standby, made for one test each: it ends with one of them dead."""

from collections.abc import Iterator

import pytest

from proofs.replicas import ReplicaPair, missing


@pytest.fixture
def pairs() -> None:
    """Skip, and say so, where there can be no pair."""
    if absent := missing():
        pytest.skip(f"postgres replicas: {absent}")


@pytest.fixture
def synchronous(pairs: None) -> Iterator[ReplicaPair]:
    """A pair whose commits are acknowledged when both servers have them."""
    with ReplicaPair(synchronous=True) as pair:
        yield pair


@pytest.fixture
def asynchronous(pairs: None) -> Iterator[ReplicaPair]:
    """A pair whose standby may be behind."""
    with ReplicaPair() as pair:
        yield pair
