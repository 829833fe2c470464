"""A small simulator of queues: events in order of their time, and the four kinds of station that a store's users meet.

- ``Cores``: a number of processors that take turns by slices; ``Thread``: one after another on such cores.
- ``Log``: a disk that makes all that waits durable by one flush (group commit).
- ``Lock``: held by one at a time, in order of arrival.
- ``Tally``: how many there are and how long they stay, for Little's law.

Nothing here knows of makegood; ``forecast`` puts the stations together. Time is in seconds, chance comes from one seed, and a run is
the same each time. The tests compare it with what theory says of M/M/1 and M/D/1.
"""

import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

Then = Callable[[], None]


class Simulator:
    """Virtual time: what is to happen, in order. ``chance`` is the one source of it."""

    def __init__(self, seed: int = 1) -> None:
        self.now = 0.0
        self.chance = random.Random(seed)
        self._events: list[tuple[float, int, Then]] = []
        self._order = itertools.count()

    def after(self, delay: float, then: Then) -> None:
        """Do ``then`` in ``delay`` seconds; what is due at the same moment goes in the order in which it was asked for."""
        heapq.heappush(self._events, (self.now + delay, next(self._order), then))

    def run(self, until: float) -> None:
        """Let time pass."""
        while self._events and self._events[0][0] <= until:
            self.now, _, then = heapq.heappop(self._events)
            then()
        self.now = until

    def exponential(self, mean: float) -> float:
        """Draw a length of time, exponentially distributed."""
        return self.chance.expovariate(1.0 / mean) if mean > 0 else 0.0


@dataclass(slots=True)
class Cores:
    """Processors: what asks first is served first, for a slice, and goes to the end of the line while something is left.

    ``busy``: seconds that they have worked.
    """

    simulator: Simulator
    count: float
    slice: float = 0.002
    busy: float = 0.0
    _free: float = field(init=False)
    _line: deque[tuple[float, Then]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        """All are free."""
        self._free = self.count

    def use(self, seconds: float, then: Then) -> None:
        """Work for so long, then do ``then``."""
        self._line.append((seconds, then))
        self._serve()

    def _serve(self) -> None:
        while self._free >= 1 and self._line:
            self._free -= 1
            seconds, then = self._line.popleft()
            now = min(seconds, self.slice)
            self.busy += now

            def ended(left: float = seconds - now, then: Then = then) -> None:
                self._free += 1
                if left > 0:
                    self._line.append((left, then))
                    self._serve()
                else:
                    self._serve()
                    then()

            self.simulator.after(now, ended)


@dataclass(slots=True)
class Thread:
    """What does one thing after another, each on one of the cores. ``busy``: seconds in which it worked or waited for a core."""

    cores: Cores
    busy: float = 0.0
    _line: deque[tuple[float, Then]] = field(default_factory=deque)
    _working: bool = False

    def run(self, seconds: float, then: Then) -> None:
        """Work for so long when all that was asked before is done."""
        self._line.append((seconds, then))
        if not self._working:
            self._next()

    def _next(self) -> None:
        self._working = bool(self._line)
        if not self._line:
            return
        seconds, then = self._line.popleft()
        start = self.cores.simulator.now

        def ended() -> None:
            self.busy += self.cores.simulator.now - start
            then()
            self._next()

        self.cores.use(seconds, ended)


@dataclass(slots=True)
class Log:
    """A disk: one flush at a time, and the next one for all that came meanwhile. ``bandwidth``: bytes a second. ``draw``: length of a flush."""

    simulator: Simulator
    draw: Callable[[], float]
    bandwidth: float = math.inf
    flushes: int = 0
    busy: float = 0.0
    _line: list[tuple[float, Then]] = field(default_factory=list)
    _working: bool = False

    def flush(self, size: float, then: Then) -> None:
        """Do ``then`` when so many bytes are durable."""
        self._line.append((size, then))
        if not self._working:
            self._next()

    def _next(self) -> None:
        self._working = bool(self._line)
        if not self._line:
            return
        together, self._line = self._line, []
        takes = self.draw() + sum(size for size, _ in together) / self.bandwidth
        self.flushes += 1
        self.busy += takes

        def ended() -> None:
            for _, then in together:
                then()
            self._next()

        self.simulator.after(takes, ended)


@dataclass(slots=True)
class Lock:
    """Held by one at a time. ``held``: seconds that it was."""

    simulator: Simulator
    held: float = 0.0
    _taken: float | None = None
    _line: deque[Then] = field(default_factory=deque)

    def take(self, then: Then) -> None:
        """Do ``then`` once it is ours."""
        if self._taken is None:
            self._taken = self.simulator.now
            then()
        else:
            self._line.append(then)

    def give(self) -> None:
        """Give it back; the next in line has it."""
        assert self._taken is not None
        self.held += self.simulator.now - self._taken
        self._taken = None
        if self._line:
            self.take(self._line.popleft())


@dataclass(slots=True)
class Tally:
    """Who is inside: how many on average, how long each stays. ``clear()`` begins anew and keeps who is inside."""

    simulator: Simulator
    inside: int = 0
    stays: list[float] = field(default_factory=list)
    _area: float = 0.0
    _since: float = 0.0
    _begun: float = 0.0

    def enter(self) -> float:
        """Somebody comes in; returns the moment, which ``leave`` wants."""
        self._move(1)
        return self.simulator.now

    def leave(self, arrival: float) -> None:
        """Somebody goes who had come in then."""
        self._move(-1)
        self.stays.append(self.simulator.now - arrival)

    def _move(self, by: int) -> None:
        self._area += self.inside * (self.simulator.now - self._since)
        self._since = self.simulator.now
        self.inside += by

    def clear(self) -> None:
        """Forget what was so far."""
        self._move(0)
        self._area, self._begun, self.stays = 0.0, self.simulator.now, []

    @property
    def mean_inside(self) -> float:
        """Mean number inside since ``clear``."""
        self._move(0)
        return self._area / max(self.simulator.now - self._begun, 1e-12)

    @property
    def rate(self) -> float:
        """How many left, per second."""
        return len(self.stays) / max(self.simulator.now - self._begun, 1e-12)

    @property
    def mean_stay(self) -> float:
        """How long one stayed, on average."""
        return sum(self.stays) / max(1, len(self.stays))


def arrivals(simulator: Simulator, rate: float, come: Then) -> None:
    """Let something come again and again, at exponential intervals: an open queue."""

    def next_one() -> None:
        come()
        simulator.after(simulator.exponential(1 / rate), next_one)

    simulator.after(simulator.exponential(1 / rate), next_one)
