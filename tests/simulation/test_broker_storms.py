"""Storms in which orders come from a broker that does its worst: each is one task, or one dead letter; and relays that are wrong do not pass."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as changed

from makegood.errors import DeliveryError
from makegood.messaging.notifier import NoticePoster
from makegood.messaging.receivers import Receivers
from makegood.messaging.source_messages import SourceMessages
from makegood.messaging.source_relay import SourceRelay
from makegood.store.notice_records import Due, Sending
from makegood.store.queue_records import Outgoing
from makegood.testing.simulator.world import Outcome
from proofs.seeds import Storms
from proofs.storms.order_broker import BROKERING, around
from proofs.storms.swarm import StormSwarm, drawn

SEEDS = range(16)


def swarm_of(seed: int) -> StormSwarm:
    """Return a storm of a few orders, with a broker and little else around it."""
    swarm = drawn(seed)
    points = {**swarm.points, "kill": 0.01, "stop": 0.002}
    return replace(
        swarm, around=around(seed), tasks=8, timetable=None, delayed=0.0, asking=0.0, laned=0.0, points=points
    )


def run(seed: int) -> Outcome:
    """Return how the storm of a seed ended."""
    return Storms().run(seed, swarm_of(seed))


def test_each_order_from_a_broker_is_one_task_or_one_dead_letter() -> None:
    """And in these storms each fault of a broker has struck."""
    faults: set[str] = set()
    for seed in SEEDS:
        outcome = run(seed)
        assert not outcome.findings, (seed, outcome.findings)
        faults |= set(outcome.faults)
    assert faults >= set(BROKERING)


Patch = Callable[[pytest.MonkeyPatch], None]


def acknowledged_first(m: pytest.MonkeyPatch) -> None:
    """Messages are acknowledged before they are committed."""
    prepare = SourceRelay._prepare

    async def hasty(self: SourceRelay) -> None:
        assert self._source is not None
        await self._source.acknowledge(list(self._batch.deliveries))
        await prepare(self)

    m.setattr(SourceRelay, "_prepare", hasty)


def id_forgotten(m: pytest.MonkeyPatch) -> None:
    """The queue does not remember ids of messages that the inbox has acknowledged."""
    message = SourceMessages.message

    async def forgotten(self: SourceMessages, delivery: Any) -> Outgoing:
        return changed(await message(self, delivery), remember=None)

    m.setattr(SourceMessages, "message", forgotten)


def id_drawn(m: pytest.MonkeyPatch) -> None:
    """Each delivery gets an id of its own."""
    m.setattr(SourceMessages, "_id", lambda self, *_: f"{self._rng.random()}")


def full_queue_drops(m: pytest.MonkeyPatch) -> None:
    """What has no room is acknowledged all the same."""
    commit = SourceRelay._commit

    async def careless(self: SourceRelay, source: Any) -> None:
        await commit(self, source)
        if self._batch.pairs:
            await source.acknowledge([delivery for delivery, _ in self._batch.pairs])
            self._batch.pairs = []

    m.setattr(SourceRelay, "_commit", careless)


def return_unnoticed(m: pytest.MonkeyPatch) -> None:
    """When a broker is back that notices go to, each notice waits for its own next try."""
    m.setattr(Receivers, "_ask", lambda *_: None)


def one_at_a_time(m: pytest.MonkeyPatch) -> None:
    """The notice that gets through shows nobody that the broker is back."""

    async def alone(*_: object) -> list[Due]:
        return []

    m.setattr(Receivers, "take_early", alone)


def out_of_order(m: pytest.MonkeyPatch) -> None:
    """A notice that did not get through counts as sent."""
    original = NoticePoster._note_failure

    def careless(self: NoticePoster, notice: Due, fault: DeliveryError) -> Sending:
        return changed(original(self, notice, fault), outcome="sent")

    m.setattr(NoticePoster, "_note_failure", careless)


PATCHES = [acknowledged_first, id_forgotten, id_drawn, full_queue_drops, return_unnoticed, one_at_a_time, out_of_order]  # fmt: skip


@pytest.mark.parametrize("patch", PATCHES)
def test_a_wrong_relay_or_notifier_does_not_pass(monkeypatch: pytest.MonkeyPatch, patch: Patch) -> None:
    patch(monkeypatch)
    assert any(run(seed).findings for seed in SEEDS), patch.__doc__
