"""What a fleet on one PostgreSQL would carry: the stations of ``queueing`` put together as makegood uses them, with measured costs.

A task goes through *stages*, each a write (or a look) of one process. What waits for a stage in a process shares the next batch:
CPU of that process, a round trip, CPU of a backend, the commit. A commit that notifies holds one lock of the whole server until it
is flushed (PostgreSQL sees to it that notifications go out in the order of the commits), so such commits are not flushed together;
others are. Each notification then wakes every process.

    cost of a batch of n = fixed + n * each          (seconds of CPU, of the client and of the server, by kind of process)

``fitted`` finds both from runs of *one* process with different numbers of tasks in flight; everything else is a prediction.
Not in the model: locks inside PostgreSQL other than that one, caches, checkpoints, autovacuum (its CPU is in the costs).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.crew import STEPS
from benchmarks.meters import percentile
from benchmarks.queueing import Cores, Lock, Log, Simulator, Tally, Thread

_ABREAST = 64
"""From so many on a Scheduler has two commits under way."""
_MOST, _CLAIM = 1000, 500
_LOOK = 0.005
"""So long a client waits before it looks for what has ended, so that what ends together is found together."""
_MOMENT, _FEWEST, _LONGEST = 0.02, 400, 10.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of CPU: of each batch, and of each thing in it."""

    fixed: float
    each: float

    def of(self, count: int) -> float:
        """Return what a batch of so many costs."""
        return self.fixed + self.each * count


@dataclass(frozen=True, slots=True)
class Stage:
    """A write of one kind of process. ``notifies``: its commit does. ``rests``: nothing is written. ``trips``: round trips.
    ``acts``: an action of the user's stands before it. ``open``: whichever process of the kind comes first does it, and has the task from then on.
    """

    kind: str
    lane: str
    notifies: bool = False
    rests: bool = False
    trips: int = 1
    acts: bool = False
    open: bool = False


def route(shape: str, steps: int = STEPS) -> list[Stage]:
    """Return the stages of a task of so many steps in sequence."""
    engine = "scheduler" if shape == "apart" else "engine"
    submit = Stage("engine" if shape == "inside" else "submitter", "submit", notifies=shape != "inside")
    stages = [submit]
    if shape != "inside":
        stages.append(Stage(engine, "decide", notifies=shape == "apart", trips=4, open=True))
    for n in range(steps):
        if shape == "apart":
            stages += [
                Stage("agents", "take", open=True),
                Stage("agents", "answer", notifies=True, acts=True),
            ]
        last = n == steps - 1
        stages.append(
            Stage(engine, "decide", notifies=last or shape == "apart", trips=2 if shape == "apart" else 1,
                  acts=shape != "apart")
        )  # fmt: skip
    if shape != "inside":
        stages.append(Stage("submitter", "hear", rests=True))
    return stages


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured costs of a shape, by kind of process; ``wake``: of a notification, for each process that listens."""

    shape: str
    client: Mapping[str, Cost]
    server: Mapping[str, Cost]
    wal_bytes: float
    """By step."""
    wake: float = 0.0


def fitted(shape: str, runs: Sequence[Mapping[str, Any]], wake: float = 0.0) -> Costs:
    """Find the costs of a shape from runs of one process with different flights (at least two), by least squares.

    Batches per thing are told by commits: at one task in flight each write has a commit of its own, and some looks that find
    nothing have one as well.
    """
    stages = route(shape)
    mine = {stage.kind: sum(s.kind == stage.kind for s in stages) for stage in stages}
    most = max(sum(not stage.rests for stage in stages), *(run["commits_per_task"] for run in runs))
    shares = [run["commits_per_task"] / most for run in runs]
    client, server = {}, {}
    for kind, count in mine.items():
        client[kind] = _line(shares, [run["client_us"][kind] * STEPS / count / 1e6 for run in runs])
        seconds = []
        for run in runs:
            # What background processes of the server use is laid upon those for whom they work.
            total_us = sum(run["server_us_by"].values())
            part = run["server_us_by"][kind] / total_us if total_us else 1 / len(mine)
            seconds.append(run["server_us"] * part * STEPS / count / 1e6)
        server[kind] = _line(shares, seconds)
    return Costs(shape, client, server, runs[-1]["wal_bytes_per_step"], wake)


def _line(shares: Sequence[float], seconds: Sequence[float]) -> Cost:
    """Return fixed and each of ``seconds = fixed * batches per thing + each``, neither below zero; relative errors count alike."""
    weights = [1 / max(value, 1e-9) ** 2 for value in seconds]
    total = sum(weights)
    mean_x = sum(w * x for w, x in zip(weights, shares, strict=True)) / total
    mean_y = sum(w * y for w, y in zip(weights, seconds, strict=True)) / total
    over = sum(w * (x - mean_x) ** 2 for w, x in zip(weights, shares, strict=True))
    both = sum(w * (x - mean_x) * (y - mean_y) for w, x, y in zip(weights, shares, seconds, strict=True))
    constant = max(0.0, both / over) if over > 0 else 0.0
    return Cost(constant, max(0.0, mean_y - constant * mean_x))


@dataclass(frozen=True, slots=True)
class Machines:
    """Where a fleet runs. ``cores`` of the server's machine; ``beside``: the processes of makegood run there, too, else on machines
    with a core for each. ``trip``: seconds of a round trip. ``flush``: seconds of a flush, on average. ``bandwidth``: of the disk, bytes/s.
    ``action``: seconds that a step takes at its service.
    """

    cores: int
    beside: bool = False
    trip: float = 0.0
    flush: float = 0.001
    bandwidth: float = math.inf
    action: float = 0.0


@dataclass(slots=True)
class _Task:
    """A task on its way: at which stage, and which process of each kind has it."""

    homes: dict[str, int]
    entered: float
    at: int = 0


@dataclass(slots=True)
class _Batcher:
    """What waits in one process for one kind of write. ``common``: what any process of its kind may take."""

    network: "Network"
    thread: Thread
    number: int
    lane: str
    common: list[_Task]
    waiting: list[_Task] = field(default_factory=list)
    under_way: int = 0
    _called: bool = False

    def begin(self) -> None:
        """Gather a batch as soon as the process comes to it: what comes until then is part of it."""
        if not self._called and self._may():
            self._called = True
            if self.lane == "hear":
                self.network.simulator.after(_LOOK, lambda: self.thread.run(0.0, self._gather))
            else:
                self.thread.run(0.0, self._gather)

    def _may(self) -> bool:
        if not self.under_way:
            return bool(self.waiting or self.common)
        return self.lane == "decide" and self.under_way < 2 and len(self.waiting) >= _ABREAST

    def _gather(self) -> None:
        self._called = False
        if not self._may():
            return
        count = min(_MOST, len(self.waiting))
        if self.lane == "decide" and not self.under_way and not self.common and count >= 2 * _ABREAST:
            count = (count + 1) // 2
        batch, self.waiting = self.waiting[:count], self.waiting[count:]
        if not self.under_way and self.common:
            claim = self.common[:_CLAIM]
            del self.common[:_CLAIM]
            for task in claim:
                task.homes[self.network.stages[task.at].kind] = self.number
            batch += claim
        self.under_way += 1
        self.network.write(self, batch)
        self.begin()

    def ended(self) -> None:
        """A batch is through: the next one."""
        self.under_way -= 1
        self.begin()


class Network:
    """A closed network: so many processes of each kind, so many tasks in flight, each submitted again when it has ended."""

    def __init__(
        self,
        costs: Costs,
        machines: Machines,
        processes: int,
        flight: int,
        *,
        submitters: int = 1,
        seed: int = 1,
    ) -> None:
        self.simulator = simulator = Simulator(seed)
        self.flight = flight
        self.costs, self.machines, self.stages = costs, machines, route(costs.shape)
        self.server = Cores(simulator, machines.cores)
        self.log = Log(simulator, self._flush, machines.bandwidth)
        self.lock = Lock(simulator)
        self.tasks = Tally(simulator)
        self.commits = 0
        counts = {kind: submitters if kind == "submitter" else processes for kind in costs.client}
        self.listening = sum(counts.values())
        clients = self.server if machines.beside else Cores(simulator, self.listening)
        self.threads = {kind: [Thread(clients) for _ in range(count)] for kind, count in counts.items()}
        self.batchers: dict[tuple[str, str], list[_Batcher]] = {}
        for kind, lane in sorted({(stage.kind, stage.lane) for stage in self.stages}):
            common: list[_Task] = []
            self.batchers[kind, lane] = [
                _Batcher(self, thread, n, lane, common) for n, thread in enumerate(self.threads[kind])
            ]
        for n in range(flight):
            self._submit({kind: n % count for kind, count in counts.items()})

    def _flush(self) -> float:
        # Half of it always, half by chance: the longest of a hundred takes three times the mean.
        return self.machines.flush / 2 + self.simulator.exponential(self.machines.flush / 2)

    def _submit(self, homes: dict[str, int]) -> None:
        self._go(_Task(homes, self.tasks.enter()))

    def _go(self, task: _Task) -> None:
        if task.at == len(self.stages):
            self.tasks.leave(task.entered)
            self._submit(task.homes)
            return
        stage = self.stages[task.at]
        if stage.acts and self.machines.action > 0:
            self.simulator.after(self.machines.action, lambda: self._put(task, stage))
        else:
            self._put(task, stage)

    def _put(self, task: _Task, stage: Stage) -> None:
        batchers = self.batchers[stage.kind, stage.lane]
        if not stage.open:
            home = batchers[task.homes[stage.kind]]
            home.waiting.append(task)
            home.begin()
            return
        batchers[0].common.append(task)
        for batcher in self.simulator.chance.sample(batchers, len(batchers)):
            batcher.begin()

    def write(self, batcher: _Batcher, batch: list[_Task]) -> None:
        """Carry a batch through: CPU, the way there, CPU of a backend, commit, the way back, CPU."""
        kind = self.stages[batch[0].at].kind
        client, server = self.costs.client[kind].of(len(batch)), self.costs.server[kind].of(len(batch))
        stages = [self.stages[task.at] for task in batch]
        trips = max(stage.trips for stage in stages)
        notifies = any(stage.notifies for stage in stages)
        rests = all(stage.rests for stage in stages)
        size = self.costs.wal_bytes * STEPS / sum(not stage.rests for stage in self.stages) * len(batch)
        machines, simulator = self.machines, self.simulator

        def sent() -> None:
            simulator.after(machines.trip * (trips - 0.5), lambda: self.server.use(server, done))

        def done() -> None:
            if rests:
                back()
            elif notifies:
                self.lock.take(lambda: self.log.flush(size, told))
            else:
                self.log.flush(size, back)

        def told() -> None:
            self.lock.give()
            for _ in range(self.listening):
                self.server.use(self.costs.wake, _nothing)
            back()

        def back() -> None:
            self.commits += not rests
            simulator.after(machines.trip / 2, lambda: batcher.thread.run(client / 2, ended))

        def ended() -> None:
            for task in batch:
                task.at += 1
                self._go(task)
            batcher.ended()

        batcher.thread.run(client / 2, sent)

    def run(self, rounds: float = 4.0, warm: float = 1.5) -> dict[str, float]:
        """Let time pass until each task in flight has ended so many times, and ``warm`` times before; returns rates, times, and how busy
        each kind of station was.
        """
        self._pass(warm)
        self.tasks.clear()
        simulator, start = self.simulator, self.simulator.now
        before = self.server.busy, self.log.busy, self.lock.held, self.commits
        threads = [thread.busy for some in self.threads.values() for thread in some]
        self._pass(rounds)
        seconds = simulator.now - start
        stays = sorted(self.tasks.stays)
        later = [thread.busy for some in self.threads.values() for thread in some]
        return {
            "tasks_per_second": self.tasks.rate,
            "p50_ms": percentile(stays, 0.5) * 1000,
            "p99_ms": percentile(stays, 0.99) * 1000,
            "mean_ms": self.tasks.mean_stay * 1000,
            "commits_per_second": (self.commits - before[3]) / seconds,
            "server_cpu": (self.server.busy - before[0]) / seconds / self.machines.cores,
            "disk": (self.log.busy - before[1]) / seconds,
            "notify_lock": (self.lock.held - before[2]) / seconds,
            "busiest_process": max(b - a for a, b in zip(threads, later, strict=True)) / seconds,
        }

    def _pass(self, rounds: float) -> None:
        """Let time pass until so many tasks have ended; at least some hundreds, where that takes no more than ten seconds."""
        start, target = self.simulator.now, rounds * self.flight
        before = len(self.tasks.stays)
        while (count := len(self.tasks.stays) - before) < target or (
            count < _FEWEST and self.simulator.now - start < _LONGEST
        ):
            self.simulator.run(self.simulator.now + _MOMENT)


def _nothing() -> None:
    pass


def limit(costs: Costs, machines: Machines, count: int) -> dict[str, float]:
    """Return tasks/s that each resource alone would bear when batches are large: the smallest of them is the bound."""
    stages = route(costs.shape)
    client = max(
        sum(s.kind == kind for s in stages)
        * cost.each
        / (1 if kind == "submitter" and machines.beside else count)
        for kind, cost in costs.client.items()
    )
    clients = sum(costs.client[stage.kind].each for stage in stages)
    server = sum(costs.server[stage.kind].each for stage in stages)
    cores = (server + clients if machines.beside else server) / machines.cores
    disk = costs.wal_bytes * STEPS / machines.bandwidth
    needs = {"one process": client, "processors": cores, "disk": disk}
    return {name: 1 / seconds if seconds else math.inf for name, seconds in needs.items()}
