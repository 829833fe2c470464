"""What a circuit is told of a call, which calls are excused, and what the store hears of them."""

import random
from typing import Any, cast

import pytest
from msgspec.structs import replace

import makegood as mg
from makegood.agent.circuit_watch import CircuitWatch
from makegood.agent.intake import Intake
from makegood.agent.slots import Slots
from makegood.channels.protocol import Channel
from makegood.errors import StoreUnavailableError
from makegood.model.attempt import Attempt, Phase, Runner
from makegood.model.breaker import UNCOUNTED, Breaker, Circuit
from makegood.model.messages import MessageKind, Request, TaskMessage
from makegood.model.task import Doing
from tests.clocks import HandClock


class Heard:
    """A channel that hears excuses, unless it is ``away``."""

    def __init__(self) -> None:
        self.away = False
        self.excused: list[tuple[int, int, int]] = []

    async def excuse(self, _node: int, requests: list[tuple[int, int, int]]) -> None:
        """Note them."""
        if self.away:
            raise StoreUnavailableError("away")
        self.excused += requests


@mg.App("shop").agent("bank").action(complete_within="1m", undo=mg.NOTHING)
def charge() -> None:
    """The action of each call."""


class World:
    """An agent whose circuit opens at the first failure."""

    def __init__(self) -> None:
        self.clock, self.channel, self.changes = HandClock(), Heard(), list[str]()
        self.informed = list[str]()
        self.slots = Slots("shop/bank", {"charge": charge}, 2, Circuit(Breaker(failures=1, reset=10), 2))
        self.intake = Intake(beside_scheduler=False)
        self.watch = CircuitWatch(
            cast("Channel", self.channel), self.intake,
            node=lambda: 1, on_change=lambda: self.changes.append(self.state), inform=self.inform, clock=self.clock, rng=random.Random(1),
        )  # fmt: skip

    async def inform(self, address: str) -> None:
        """Note that what other processes know is read."""
        self.informed.append(address)

    @property
    def state(self) -> str:
        """What the circuit is."""
        assert self.slots.circuit is not None
        return self.slots.circuit.state

    def attempt(self, task: int, phase: Phase = "running", node: int = 1) -> Attempt:
        """Return a call that has begun, with its deadline in a minute."""
        assert self.slots.circuit is not None
        request = Request(task, 0, "do", 1, "shop", "bank", "charge", "charge", 1, 60.0, b"{}")
        now = self.clock.monotonic()
        ticket = self.slots.circuit.began(now)
        return Attempt(request, node, now + 60.0, now, cast("Runner", None), phase=phase, ticket=ticket)


@pytest.mark.parametrize(
    ("kind", "phase", "fields", "state"),
    [
        ("done", "running", {}, "closed"),
        ("refused", "running", {}, "closed"),
        ("gave_up", "running", {}, "open"),
        ("gave_up", "running", {"final": True}, "closed"),  # it was done, and its result is lost
        ("gave_up", "waiting", {}, "closed"),  # it was never called
    ],
)
def test_an_answer_tells_of_the_service_if_it_was_asked(
    kind: MessageKind, phase: Phase, fields: dict[str, Any], state: str
) -> None:
    world = World()
    one = world.attempt(1, phase)
    assert world.watch.judge(world.slots, one, TaskMessage(kind, **fields), [])
    assert (world.state, one.ticket) == (state, None)
    assert world.watch.judge(world.slots, one, TaskMessage("gave_up"), []), "each is told once"
    assert world.state == state


@pytest.mark.parametrize(("phase", "state"), [("running", "open"), ("waiting", "closed")])
def test_silence_is_a_failure_of_what_was_called(phase: Phase, state: str) -> None:
    world = World()
    one = world.attempt(1, phase)
    world.clock.seconds += 60.0
    world.watch.judge(world.slots, one, None, [])
    assert world.state == state


async def test_what_others_know_is_read_only_before_a_step_that_has_failed() -> None:
    """A step that polls with ``Later`` has not."""
    world = World()
    one = world.attempt(1)
    await world.watch.inform(world.slots, one.request)
    assert world.informed == []
    await world.watch.inform(world.slots, replace(one.request, failures=1))
    world.watch.judge(world.slots, one, TaskMessage("gave_up"), [])
    await world.watch.inform(world.slots, one.request)
    assert world.informed == ["shop/bank", "shop/bank"]


async def test_what_runs_when_its_circuit_opens_is_excused_and_the_store_hears_of_it_until_it_did() -> None:
    world = World()
    failure, other, former = world.attempt(1), world.attempt(2), world.attempt(3, node=7)
    world.watch.judge(world.slots, failure, TaskMessage("gave_up"), [other, former])
    assert world.changes == ["open", "open"]
    assert (other.ticket, world.watch.excuses) == (UNCOUNTED, [(1, 2, 0, 1), (7, 3, 0, 1)])
    assert world.intake.wake.is_set()
    assert world.watch.shut(world.slots)
    assert not world.watch.judge(world.slots, other, TaskMessage("gave_up"), [])
    world.channel.away = True
    with pytest.raises(StoreUnavailableError):
        await world.watch.excuse()
    world.channel.away = False
    await world.watch.excuse()
    assert (world.channel.excused, world.watch.excuses) == ([(2, 0, 1)], []), "not of another number's"


def test_what_the_end_of_the_process_cuts_off_is_excused_unless_its_failure_would_count() -> None:
    """A step's first attempt counts; a repeated one only if the service has answered another call since."""
    world = World()
    first, retry, since_answered = world.attempt(1), world.attempt(2), world.attempt(3)
    retry.since = since_answered.since = 5.0
    unsent = [(1, 4, TaskMessage("gave_up", 0, attempt=2, excused=True)), (1, 5, TaskMessage("gave_up"))]
    world.watch.cut_off({"shop/bank": world.slots}, [first, retry], unsent)
    assert world.watch.excuses == [(1, 4, 0, 2), (1, 2, 0, 1)]
    assert (first.ticket is None, retry.ticket) == (False, UNCOUNTED)
    world.watch.excuses.clear()
    world.watch.judge(world.slots, first, TaskMessage("done"), [])
    world.watch.cut_off({"shop/bank": world.slots}, [since_answered], [])
    assert not world.watch.excuses


@pytest.mark.parametrize("doing", ["undo", "do"])
def test_a_step_has_not_failed_before_its_first_failure(doing: Doing) -> None:
    """::

        1010 s  the service answers another step, or the action of an undo
        1020 s  the first attempt of the undo, or of an action after ``Later``, fails, and so do all others: an outage

    The declared wait lies before a repeated attempt. Before these there was none, or no failure: the answer at 1010 s is
    not one since the step first failed, and does not put the blame on it.
    """
    world = World()
    circuit = world.slots.circuit
    assert circuit is not None
    world.clock.seconds = 1010.0
    world.watch.judge(world.slots, world.attempt(2), TaskMessage("done"), [])
    world.clock.seconds = 1020.0
    one = world.attempt(1)
    one.request = replace(one.request, doing=doing, attempt=2)
    one.since = 1000.0
    assert world.watch.judge(world.slots, one, TaskMessage("gave_up"), []), "the first failure counts"
    for failures in (1, 1):
        circuit.evidence.learn(None, None, [])
        world.clock.seconds += 40.0
        again = world.attempt(1)
        again.request = replace(one.request, failures=failures, attempt=3)
        again.since = world.clock.seconds - 1.0
        assert not world.watch.judge(world.slots, again, TaskMessage("gave_up"), [])
