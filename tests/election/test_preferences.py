"""Lowest name, bully, ring: how many messages they take, whom they choose, and what they do when members and messages are lost."""

import random

import pytest

from makegood.election.preference.bully import BullyRules
from makegood.election.preference.lowest import LowestRules
from makegood.election.preference.ring import RingRules
from makegood.election.preference.rules import Rules, timing
from makegood.election.preference.transport import natural
from makegood.errors import ConfigError
from tests.election.virtual_network import ALGORITHMS, QUIET, TIMING, Exchange

MEMBERS = ["1", "2", "3", "4", "5"]
BOUND = 4 * TIMING.patience + 2 * len(MEMBERS) * TIMING.timeout
"""Seconds within which all who can reach each other must agree once nothing happens any more."""

every = pytest.mark.parametrize("make", ALGORITHMS.values(), ids=ALGORITHMS)


def first_and_next(make: type[Rules]) -> tuple[str, str, str]:
    """Return whom an algorithm prefers, who comes next, and who comes last."""
    return ("1", "2", "5") if make is LowestRules else ("5", "4", "1")


def settled(make: type[Rules], seed: int = 0) -> Exchange:
    """Return five members who agree."""
    exchange = Exchange(make, MEMBERS, seed=seed)
    exchange.join(*MEMBERS)
    assert exchange.agree(first_and_next(make)[0], BOUND)
    return exchange


# -- message counts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 5, 10, 20])
def test_bully_takes_n_minus_1_messages_at_best_and_of_order_n_squared_at_worst(n: int) -> None:
    """Best: the highest holds the election. Worst: the highest has died, and the lowest notices first."""
    names = [str(i) for i in range(1, n + 1)]
    best = Exchange(BullyRules, names, QUIET)
    best.join(*names, begins=False)
    best.elect(names[-1])
    assert best.agree(names[-1], 1)
    assert best.sent == {"coordinator": n - 1}

    worst = Exchange(BullyRules, names, QUIET)
    worst.join(*names[:-1], begins=False)
    worst.elect(names[0])
    assert worst.agree(names[-2], 2 * QUIET.timeout)
    assert worst.sent["election"] == n * (n - 1) // 2
    assert worst.sent["answer"] == (n - 1) * (n - 2) // 2
    assert worst.sent["coordinator"] == n - 1
    assert set(worst.sent) <= {"election", "answer", "coordinator"}


def ring_of(names: list[str]) -> Exchange:
    """Return a ring in which all have begun at once and agree."""
    ring = Exchange(RingRules, names, QUIET)
    ring.join(*names, begins=False)
    ring.elect(*names)
    assert ring.agree(str(len(names)), QUIET.timeout / 2)
    ring.run(QUIET.timeout / 2)
    return ring


@pytest.mark.parametrize("n", [2, 3, 5, 10, 20])
def test_the_ring_takes_n_n_plus_1_halves_at_worst_and_2_n_minus_1_at_best_and_n_to_announce(n: int) -> None:
    rising = [str(i) for i in range(1, n + 1)]
    for names, candidates in ((rising[::-1], n * (n + 1) // 2), (rising, 2 * n - 1)):
        ring = ring_of(names)
        assert ring.sent == {"candidate": candidates, "elected": n, "ack": candidates + n}


def test_the_ring_takes_n_log_n_messages_on_average() -> None:
    """Over random orders: n times the n-th harmonic number, as Chang and Roberts show."""
    n, orders, rng = 12, 100, random.Random(1979)
    counts = []
    for _ in range(orders):
        names = [str(i) for i in range(1, n + 1)]
        rng.shuffle(names)
        counts.append(ring_of(names).sent["candidate"])
    expectation = n * sum(1 / i for i in range(1, n + 1))
    assert sum(counts) / orders == pytest.approx(expectation, rel=0.05)
    assert max(counts) <= n * (n + 1) // 2


@pytest.mark.parametrize("n", [2, 5, 10])
def test_the_lowest_takes_n_n_minus_1_messages_at_each_interval(n: int) -> None:
    names = [str(i) for i in range(1, n + 1)]
    exchange = Exchange(LowestRules, names)
    exchange.join(*names)
    assert exchange.agree("1", 1)
    exchange.run(0.5)
    exchange.sent.clear()
    exchange.run(10 * TIMING.interval)
    assert exchange.sent == {"alive": 10 * n * (n - 1)}


@pytest.mark.parametrize("make", [BullyRules, RingRules])
def test_a_quiet_group_costs_a_sign_of_life_for_each_follower_and_interval(make: type[Rules]) -> None:
    exchange = settled(make)
    exchange.run(1)
    exchange.sent.clear()
    exchange.run(10 * TIMING.interval)
    assert exchange.sent == {"alive": 40}


# -- failures ------------------------------------------------------------------------------------------------------------


@every
def test_when_the_leader_dies_the_next_one_is_chosen_and_a_better_one_that_comes_back_takes_over(
    make: type[Rules],
) -> None:
    first, second, _ = first_and_next(make)
    exchange = settled(make)
    exchange.kill(first)
    assert exchange.agree(second, TIMING.patience + TIMING.interval + 5 * TIMING.timeout)
    exchange.join(first)
    assert exchange.agree(first, TIMING.patience + TIMING.interval + TIMING.timeout)


@every
def test_the_last_one_alone_leads(make: type[Rules]) -> None:
    *others, last = sorted(MEMBERS, key=lambda name: name == first_and_next(make)[2])
    exchange = settled(make)
    for name in others:
        exchange.kill(name)
    assert exchange.agree(last, BOUND)


@every
def test_a_member_may_die_at_any_point_of_an_election(make: type[Rules]) -> None:
    """The leader has died. Each other member, in turn, dies after each single step of the election that follows."""
    first, _, _ = first_and_next(make)
    points = 0
    for victim in [name for name in MEMBERS if name != first]:
        left = [name for name in MEMBERS if name not in (first, victim)]
        heir = min(left) if make is LowestRules else max(left)
        for point in range(1, 1000):
            exchange = settled(make)
            exchange.kill(first)
            exchange.run(TIMING.patience - 0.1)
            start = exchange.step

            def reached(exchange: Exchange = exchange, limit: int = start + point) -> bool:
                return exchange.step >= limit

            exchange.run(TIMING.patience, reached)
            over = first not in exchange.leaders() and len(exchange.leaders()) == 1
            exchange.kill(victim)
            assert exchange.agree(heir, BOUND), f"{victim} dies at step {point}: {exchange.leaders()}"
            points += 1
            if over and None not in exchange.leaders():
                break
        else:
            pytest.fail("the election never ended")
    assert points > 10


@every
@pytest.mark.parametrize("seeds", [range(40)], ids=str)
def test_messages_may_be_lost_late_repeated_and_out_of_order_and_members_come_and_go(
    make: type[Rules], seeds: range
) -> None:
    """Whatever was believed meanwhile: once it ends, all agree on the right one, and then nothing changes any more."""
    first, _, _ = first_and_next(make)
    splits = 0
    for seed in seeds:
        exchange = Exchange(make, MEMBERS, seed=seed)
        exchange.join(*MEMBERS)
        exchange.loss, exchange.repeat, exchange.slowest = 0.25, 0.25, 2.0
        for _ in range(8):
            name = exchange.rng.choice(MEMBERS)
            exchange.kill(name)
            exchange.run(exchange.rng.uniform(0, 4))
            splits += len(exchange.believers()) > 1
            exchange.join(name)
        exchange.heal()
        assert exchange.agree(first, BOUND), f"seed {seed}: {exchange.leaders()}"
        exchange.run(2 + 2 * TIMING.interval)  # what was under way has arrived, and was put right
        assert not exchange.run(10, lambda: exchange.leaders() != {first}), f"seed {seed}"  # noqa: B023 - run now
    assert splits, "the weather was too fair to prove anything"


@every
def test_in_a_partition_each_side_has_its_leader_and_one_is_left_when_it_heals(make: type[Rules]) -> None:
    """Two leaders at once: that is what these algorithms do, and why the lease decides."""
    first, _, _ = first_and_next(make)
    exchange = settled(make)
    exchange.part(["1", "2"], ["3", "4", "5"])
    exchange.run(BOUND)
    assert exchange.believers() == (["1", "3"] if make is LowestRules else ["2", "5"])
    exchange.heal()
    assert exchange.agree(first, TIMING.patience + TIMING.interval + 2 * TIMING.timeout)
    assert exchange.believers() == [first]


@every
def test_a_message_of_one_who_has_long_been_replaced_changes_nothing_for_long(make: type[Rules]) -> None:
    """A sign of life of the dead leader arrives late: it is believed for ``patience`` at most."""
    first, second, _ = first_and_next(make)
    exchange = settled(make)
    exchange.quickest, exchange.slowest = 20.0, 20.0
    exchange.run(TIMING.interval)
    exchange.quickest, exchange.slowest = 0.01, 0.01
    exchange.kill(first)
    exchange.run(15)
    assert exchange.leaders() == {second}
    exchange.run(6)
    assert exchange.agree(second, 2 * TIMING.patience)


# -- rank, names, settings -----------------------------------------------------------------------------------------------


@every
def test_the_preferred_goes_first_and_the_others_in_the_order_of_succession(make: type[Rules]) -> None:
    exchange = settled(make)
    ranks = {name: rules.rank() for name, rules in exchange.alive.items()}
    order = sorted(MEMBERS, reverse=make is not LowestRules)
    assert ranks == {name: place for place, name in enumerate(order)}


@pytest.mark.parametrize("make", [BullyRules, RingRules])
def test_who_knows_no_leader_holds_nobody_back(make: type[Rules]) -> None:
    exchange = Exchange(make, MEMBERS)
    exchange.join("1", begins=False)
    assert exchange.alive["1"].rank() == 0


def test_numbers_in_names_count_by_their_value() -> None:
    assert sorted(["w-10", "w-9", "w", "w-9a", "7", "w-09"], key=natural) == [
        "7",
        "w",
        "w-09",
        "w-9",
        "w-9a",
        "w-10",
    ]


def test_settings_that_cannot_work_are_refused() -> None:
    assert timing("1s", None, None) == timing(1, 3, 1)
    with pytest.raises(ConfigError, match=r"patience=1 s is not longer than interval=1 s"):
        timing(1, 1, None)
