"""What lies around the engine in a world: that it is there, that it bears what it shall bear, and that it leaves other worlds as they were."""

import logging
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest

from makegood.testing.simulator.swarm import LAYOUTS, draw
from makegood.testing.simulator.world import Outcome
from proofs.seeds import Storms
from proofs.storms import surroundings
from proofs.storms.surroundings import ACCEPTING, RECEIVING, SENDING, Around
from proofs.storms.swarm import calm


@pytest.fixture(scope="module")
def storms() -> Iterator[Storms]:
    """Worlds over the order workflow alone, whose noise is not printed."""
    logging.disable(logging.CRITICAL)
    yield Storms("place_order")
    logging.disable(logging.NOTSET)


def heard(outcome: Outcome, by: str) -> list[tuple[int, str]]:
    """Return what arrived at a queue or a receiver: sequence and state, in order."""
    return [(e["sequence"], e["state"]) for e in outcome.history.of("notified") if e["by"] == by]


def test_in_a_calm_world_a_consumer_hears_of_each_state_once(storms: Storms) -> None:
    outcome = storms.run(3, replace(calm(), around=Around(told=1.0, consumers=1)))
    assert outcome.findings == []
    assert heard(outcome, "web") == [(1, "received"), (2, "processing"), (3, "processed")]
    assert outcome.report.checks["L3"] == 3


def test_a_dead_receiver_ends_with_an_alert_and_holds_up_only_its_own_tasks(storms: Storms) -> None:
    swarm = replace(calm(tasks=8, layout=LAYOUTS[2]), around=Around(told=1.0, hooks=1.0))
    outcome = storms.run(1, swarm)
    assert outcome.findings == []
    to = {event.task: event["reply_to"] for event in outcome.history.of("submitted")}
    dead = {task for task, url in to.items() if "dead.test" in url}
    assert dead
    assert dead < set(to)
    assert {event.task for event in outcome.history.of("alert") if event["alert"] == "dead_letter"} == dead
    assert {event.task for event in outcome.history.of("notified")} == set(to) - dead


def test_while_only_a_notice_is_missing_whoever_has_no_part_in_it_rests(storms: Storms) -> None:
    """The Scheduler's process goes on and tries the dead receiver again, the leader's too; the agents' costs the world nothing."""
    layout = (("scheduler",), ("agent",), ("supervisor",))
    outcome = storms.run(
        1, replace(calm(tasks=8, layout=layout), around=Around(told=1.0, hooks=1.0, keep=30.0))
    )
    assert outcome.findings == []
    end = max(event.at for event in outcome.history.of("ended"))
    (rest,) = (event.at for event in outcome.history.of("rest"))
    assert rest > end + 20.0
    busy = {event.node for event in outcome.history.of("store") if end + 5.0 < event.at < rest}
    assert busy == {"n1", "n3"}


def test_a_storm_brings_notices_twice_and_every_trouble_of_a_receiver(storms: Storms) -> None:
    """Otherwise the rule about what submitters are told would have nothing to look at."""
    swarm = replace(
        calm(tasks=12),
        storm=30.0,
        points={"kill": 0.004},
        around=Around(told=1.0, hooks=0.8, consumers=2, faults=dict.fromkeys(RECEIVING, 0.25)),
    )
    outcomes = [storms.run(seed, swarm) for seed in range(2)]
    assert [outcome.findings for outcome in outcomes] == [[]] * 2
    arrivals = [
        [(event.task, event["sequence"]) for event in outcome.history.of("notified")] for outcome in outcomes
    ]
    assert any(len(set(some)) < len(some) for some in arrivals)
    assert set(RECEIVING) <= {fault for outcome in outcomes for fault in outcome.faults}


def test_in_a_calm_world_an_order_that_is_sent_becomes_a_task_once(storms: Storms) -> None:
    swarm = replace(
        calm(tasks=3), around=Around(told=1.0, consumers=1, sent=1.0, inboxes=2, faults={"sent twice": 1.0})
    )
    outcome = storms.run(3, swarm)
    assert outcome.findings == []
    assert outcome.ends == {"processed": 3}
    assert sorted(event["message"] for event in outcome.history.of("made")) == [
        f"place_order-{n}" for n in range(3)
    ]
    assert sorted(heard(outcome, "web")) == sorted([(1, "received"), (2, "processing"), (3, "processed")] * 3)


def test_a_message_that_is_refused_is_a_dead_letter_with_an_alert_and_no_task(storms: Storms) -> None:
    swarm = replace(
        calm(), storm=5.0, around=Around(consumers=1, sent=1.0, inboxes=1, faults={"handler refuses": 1.0})
    )
    outcome = storms.run(3, swarm)
    assert (outcome.findings, outcome.ends) == ([], {})
    assert [event["step"] for event in outcome.history.of("alert")] == ["orders/place_order-0"]
    assert [event["state"] for event in outcome.history.of("handled")] == ["dead"]


def test_a_storm_brings_messages_twice_and_every_trouble_of_a_function(storms: Storms) -> None:
    around_it = Around(
        told=0.5, consumers=1, sent=1.0, inboxes=2, faults=dict.fromkeys((*ACCEPTING, *SENDING), 0.3)
    )
    swarm = replace(calm(tasks=10), storm=20.0, points={"kill": 0.004}, around=around_it)
    outcomes = [storms.run(seed, swarm) for seed in range(3)]
    assert [outcome.findings for outcome in outcomes] == [[]] * 3
    assert {*ACCEPTING, *SENDING} <= {fault for outcome in outcomes for fault in outcome.faults}
    states = {event["state"] for outcome in outcomes for event in outcome.history.of("handled")}
    assert states == {"done", "dead"}


def test_what_has_ended_and_was_told_is_removed_and_nothing_else(storms: Storms) -> None:
    """The janitor's rule has something to look at: tasks that go, and one that an alert keeps."""
    swarm = replace(
        calm(tasks=8, layout=LAYOUTS[2]), around=Around(told=1.0, hooks=0.7, consumers=1, keep=20.0)
    )
    outcome = storms.run(1, swarm)
    assert outcome.findings == []
    removals = {event.task for event in outcome.history.of("removed")}
    alerts = {event.task for event in outcome.history.of("alert")} - {0}  # those of a receiver have no task
    assert removals
    assert alerts
    assert removals | alerts == {event.task for event in outcome.history.of("submitted")}
    assert all(event["now"] - event["ended"] > 20.0 for event in outcome.history.of("removed"))


@pytest.mark.usefixtures("storms")
def test_a_circuit_opens_half_opens_and_closes_in_a_storm() -> None:
    """Its rule has something to look at: canaries, and failures that do not count."""
    lone = Storms("lone")
    swarm = replace(
        calm(tasks=24, layout=LAYOUTS[3]),
        storm=20.0,
        services={"service fails": 0.7},
        pace=1.5,
        around=Around(guarded=True),
    )
    outcomes = [lone.run(seed, swarm) for seed in range(2)]
    assert [outcome.findings for outcome in outcomes] == [[]] * 2
    assert sum(outcome.report.checks["I17"] for outcome in outcomes) > 0
    states = {event["state"] for outcome in outcomes for event in outcome.history.of("circuit")}
    assert states == {"closed", "open", "half-open", "release"}


@pytest.mark.parametrize("seed", [13, 21, 25, 30, 56, 161, 427])
@pytest.mark.usefixtures("storms")
def test_agents_of_two_processes_do_not_count_what_their_service_is_to_blame_for(seed: int) -> None:
    """A probe that the other process made was taken for an answer to others, and so were counted failures of a step with a
    probe (13, 25, 56). The checker took an attempt's last try for its first failure (21, 161), and a reply that had to wait for
    the one that was being sent for a call under way (30). An undo counted as failed from before it was asked for, so
    an answer to its own action spoke against it (427).
    """
    swarm = replace(
        calm(tasks=4, layout=LAYOUTS[3]),
        storm=20.0, services={"service fails": 0.8}, around=Around(guarded=True),
    )  # fmt: skip
    assert Storms().run(seed, swarm).findings == []


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("only", ["poisoned", "poisoned_with_probe"])
@pytest.mark.usefixtures("storms")
def test_a_step_that_its_service_always_fails_comes_to_its_verdict(
    only: str, layout: tuple[tuple[str, ...], ...]
) -> None:
    """While the service answers others, or its probe alone, and when nobody else calls any more."""
    swarm = replace(calm(tasks=16, layout=layout), storm=10.0, around=Around(guarded=True))
    outcomes = [Storms(only).run(seed, swarm) for seed in range(2)]
    assert [outcome.findings for outcome in outcomes] == [[]] * 2
    assert [outcome.ends for outcome in outcomes] == [{"processed": 15, "undone": 1}] * 2


def test_the_processes_of_an_agent_keep_its_rate_together(storms: Storms) -> None:
    """Two agents' processes, two calls a second in all: in ten seconds at most 5 % more than twenty of them begin."""
    swarm = replace(calm(tasks=40, layout=LAYOUTS[3]), storm=2.0, around=Around(guarded=True))
    outcome = storms.run(2, swarm)
    assert (outcome.findings, outcome.ends) == ([], {"processed": 40})
    began = [event.at for event in outcome.history.of("call") if event["service"] == "payments"]
    assert len({event.node for event in outcome.history.of("call") if event["service"] == "payments"}) == 2
    assert len(began) == 40
    most = max(sum(at <= other < at + 10.0 for other in began) for at in began)
    assert 15 <= most <= 21


def test_the_tries_of_all_processes_keep_the_rate_too(storms: Storms) -> None:
    """Two agents' processes whose calls mostly fail and are tried again: no two of them are closer than half a second."""
    swarm = replace(
        calm(tasks=30, layout=LAYOUTS[3]),
        storm=20.0,
        services={"service fails": 0.8},
        around=Around(guarded=True),
    )
    outcome = storms.run(5, swarm)
    assert outcome.findings == []
    calls = [event for event in outcome.history.of("call") if event["service"] == "payments"]
    tries = Counter((event.task, event["key"], event["attempt"]) for event in calls)
    assert sum(count - 1 for count in tries.values()) >= 5
    assert len({event.node for event in calls}) == 2
    gaps = [later.at - sooner.at for sooner, later in pairwise(calls)]
    assert min(gaps) > 0.45


def test_one_world_of_five_has_something_around_it_and_nothing_is_drawn_in_the_others(storms: Storms) -> None:
    draws = [surroundings.draw(seed) for seed in range(1000)]
    assert 150 < sum(surrounding is not None for surrounding in draws) < 250
    seed = draws.index(None)
    world = storms.world(seed)
    world.close()
    assert world.swarm.as_json() == draw(random.Random(f"{seed} swarm")).as_json() | {
        "around": None,
        "delayed": 0.0,
        "asking": 0.0,
        "laned": 0.0,
        "noting": 0.0,
        "timetable": None,
    }
    assert "web1" not in world.members
