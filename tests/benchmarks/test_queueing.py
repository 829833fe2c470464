"""The simulator of queues says what theory says, and the model of makegood that is made of it bends the right way."""

import math
from collections.abc import Callable

import pytest

from benchmarks.forecast import Cost, Costs, Machines, Network, fitted, limit, route
from benchmarks.queueing import Cores, Lock, Log, Simulator, Tally, Thread, arrivals

LONG = 20_000.0
COSTS = Costs("inside", {"engine": Cost(0.0004, 0.00006)}, {"engine": Cost(0.0005, 0.00004)}, 2000.0)


def open_queue(draw: Callable[[Simulator], float], rate: float, cores: int = 1) -> Tally:
    """Return who was inside of a queue with Poisson arrivals, served for as long as ``draw`` says."""
    simulator = Simulator(7)
    station, tally = Cores(simulator, cores, slice=math.inf), Tally(simulator)

    def come() -> None:
        ticket = tally.enter()
        station.use(draw(simulator), lambda: tally.leave(ticket))

    arrivals(simulator, rate, come)
    simulator.run(LONG / 20)
    tally.clear()
    simulator.run(LONG)
    return tally


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_m_m_1(load: float) -> None:
    """Exponential service of mean 1 at one server: load / (1 - load) are inside, each for 1 / (1 - load)."""
    tally = open_queue(lambda simulator: simulator.exponential(1.0), load)
    assert tally.mean_inside == pytest.approx(load / (1 - load), rel=0.08)
    assert tally.mean_stay == pytest.approx(1 / (1 - load), rel=0.08)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_m_d_1(load: float) -> None:
    """Service of exactly 1: one waits half as long as with exponential service (Pollaczek and Khinchine)."""
    tally = open_queue(lambda _: 1.0, load)
    assert tally.mean_stay - 1 == pytest.approx(load / (2 * (1 - load)), rel=0.08)


def test_m_m_2() -> None:
    """Two servers at 80 %: Erlang's C formula says how long one stays: 1 / (1 - load²)."""
    tally = open_queue(lambda simulator: simulator.exponential(1.0), 1.6, cores=2)
    assert tally.mean_stay == pytest.approx(1 / (1 - 0.8**2), rel=0.08)


@pytest.mark.parametrize("slice_", [0.05, math.inf])
def test_littles_law_holds_whatever_the_order_of_service(slice_: float) -> None:
    """Mean number inside = rate * mean stay, with slices and without."""
    simulator = Simulator(3)
    station, tally = Cores(simulator, 2, slice=slice_), Tally(simulator)

    def come() -> None:
        ticket = tally.enter()
        station.use(simulator.exponential(1.0), lambda: tally.leave(ticket))

    arrivals(simulator, 1.5, come)
    simulator.run(2000.0)
    tally.clear()
    simulator.run(12_000.0)
    assert tally.mean_inside == pytest.approx(tally.rate * tally.mean_stay, rel=0.01)
    assert station.busy / 12_000.0 == pytest.approx(1.5, rel=0.05)


def test_a_thread_is_one_core_however_many_there_are() -> None:
    simulator = Simulator()
    thread, ends = Thread(Cores(simulator, 8)), list[float]()
    for _ in range(3):
        thread.run(1.0, lambda: ends.append(simulator.now))
    simulator.run(10.0)
    assert ends == pytest.approx([1.0, 2.0, 3.0])
    assert thread.busy == pytest.approx(3.0)


def test_a_flush_is_for_all_that_came_while_the_last_one_ran() -> None:
    """Ten commits that wait for one flush share the next: two flushes, and bytes take their time."""
    simulator, ends = Simulator(), list[float]()
    log = Log(simulator, lambda: 1.0, bandwidth=10.0)
    for _ in range(11):
        log.flush(1.0, lambda: ends.append(simulator.now))
    simulator.run(10.0)
    assert log.flushes == 2
    assert ends == pytest.approx([1.1] + [1.1 + 1.0 + 1.0] * 10)


def test_a_lock_is_held_by_one_in_order_of_arrival() -> None:
    simulator, order = Simulator(), list[tuple[int, float]]()
    lock = Lock(simulator)

    def user(number: int) -> None:
        def taken() -> None:
            order.append((number, simulator.now))
            simulator.after(1.0, lock.give)

        lock.take(taken)

    for number in range(3):
        user(number)
    simulator.run(10.0)
    assert order == [(0, 0.0), (1, 1.0), (2, 2.0)]
    assert lock.held == pytest.approx(3.0)


def run(machines: Machines, processes: int, flight: int, costs: Costs = COSTS) -> dict[str, float]:
    """Return what the model says of a fleet."""
    return Network(costs, machines, processes, flight).run()


def test_the_same_seed_says_the_same() -> None:
    machines = Machines(4, flush=0.001)
    assert run(machines, 2, 50) == run(machines, 2, 50)


def test_a_closed_loop_keeps_littles_law() -> None:
    """Tasks in flight = tasks a second * time of a task."""
    figures = Network(COSTS, Machines(2, beside=True, flush=0.001), 2, 100).run(rounds=60)
    assert figures["tasks_per_second"] * figures["mean_ms"] / 1000 == pytest.approx(100, rel=0.05)


def test_one_task_takes_the_sum_of_its_stages() -> None:
    """Nothing waits: four writes of CPU, round trip and flush each."""
    figures = run(Machines(8, trip=0.001, flush=0.002), 1, 1)
    alone = sum((COSTS.client["engine"].of(1), COSTS.server["engine"].of(1), 0.001, 0.002))
    assert figures["mean_ms"] == pytest.approx(4 * alone * 1000, rel=0.05)


def test_more_is_never_worse_where_it_should_not_be() -> None:
    """More cores, more tasks in flight, a faster disk, a shorter way: more tasks a second, or as many."""
    base = Machines(2, trip=0.001, flush=0.002)
    least = run(base, 4, 200)["tasks_per_second"]
    for better in (
        Machines(8, trip=0.001, flush=0.002),
        Machines(2, flush=0.002),
        Machines(2, trip=0.001, flush=0.0002),
    ):
        assert run(better, 4, 200)["tasks_per_second"] >= least * 0.98
    assert run(base, 4, 800)["tasks_per_second"] >= least * 0.98
    rates = [run(Machines(16, flush=0.0005), n, 250 * n)["tasks_per_second"] for n in (1, 2, 4)]
    assert rates == sorted(rates)


def test_no_prediction_is_above_what_each_resource_bears_alone() -> None:
    machines = Machines(2, flush=0.0002, bandwidth=20e6)
    for processes in (1, 4):
        bounds = limit(COSTS, machines, processes)
        assert run(machines, processes, 1000)["tasks_per_second"] <= min(bounds.values()) * 1.02
    assert limit(COSTS, machines, 4)["one process"] == pytest.approx(
        4 * limit(COSTS, machines, 1)["one process"]
    )


def test_commits_that_notify_are_not_flushed_together() -> None:
    """With submitters apart at least two writes of a task notify, and no more than one such commit is flushed at a time."""
    costs = {kind: Cost(0.0001, 0.00001) for kind in ("submitter", "engine")}
    together = Costs("together", costs, costs, 2000.0)
    figures = Network(together, Machines(64, flush=0.005), 16, 64, submitters=16).run()
    assert figures["notify_lock"] > 0.9
    assert sum(stage.notifies for stage in route("together")) == 2


def test_what_comes_while_a_process_is_at_work_shares_its_next_batch() -> None:
    """In lockstep as measured: of one process with 27 tasks in flight, a commit carries about as many."""
    figures = run(Machines(2, beside=True, flush=0.002), 1, 27)
    assert figures["commits_per_second"] / figures["tasks_per_second"] < 4 / 27 * 1.5


def test_what_any_process_may_take_goes_to_few_in_large_batches() -> None:
    """Claims are not dealt out one by one: eight processes do not make batches an eighth as large."""
    costs = {kind: Cost(0.0005, 0.00003) for kind in ("submitter", "engine")}
    together = Costs("together", costs, costs, 2000.0)
    one, eight = (Network(together, Machines(16, flush=0.001), n, 100).run(rounds=20) for n in (1, 8))
    per_task = [figures["commits_per_second"] / figures["tasks_per_second"] for figures in (one, eight)]
    assert per_task[1] < 4 * per_task[0]


def test_costs_are_found_again() -> None:
    """What was made of known costs is fitted to them."""
    runs = [
        {
            "commits_per_task": 4 * share, "client_us": {"engine": (400 * share + 60) * 4 / 3}, "wal_bytes_per_step": 2000.0,
            "server_us_by": {"engine": 1.0}, "server_us": (500 * share + 40) * 4 / 3,
        }
        for share in (1.0, 0.1, 0.01)
    ]  # fmt: skip
    fit = fitted("inside", runs)
    assert fit.client["engine"].fixed == pytest.approx(400e-6)
    assert fit.client["engine"].each == pytest.approx(60e-6)
    assert fit.server["engine"].of(10) == pytest.approx(5.4e-3 / 6)
