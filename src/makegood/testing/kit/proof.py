"""A user's test, played again and again in worlds where everything crashes.

``everywhere`` plays it once in a calm world and lists every fault point; then once for each point and each
fault that can strike there. ``storms`` plays it once per seed, in a storm that the seed draws. A failure
first says how to replay it.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from makegood.base.clock import Clock, SystemClock
from makegood.base.counts import quantity
from makegood.options import Options
from makegood.testing.kit.causes import timeline_text, what_is_wrong
from makegood.testing.kit.limits import failure_message, never_called, often, too_long
from makegood.testing.kit.progress import Progress
from makegood.testing.kit.stage import ATTEMPTS, Script, Stage
from makegood.testing.kit.storms import slowly, stormy
from makegood.testing.simulator.blocking_calls import calls_watched
from makegood.testing.simulator.faults import FaultPoint
from makegood.testing.simulator.swarm import Swarm
from makegood.testing.simulator.world import Outcome
from makegood.testing.simulator.world_files import Grounds
from makegood.workflow.app import App
from makegood.workflow.workflow import Workflow

APART: Final = (("scheduler",), ("agent",), ("supervisor",))
"""Each role is a process of its own: every message travels, and each process can be killed alone."""

KINDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "kill": ("kill",),
        "stop": ("stop",),
        "ambiguous": ("ambiguous committed", "ambiguous not committed"),
        "duplicate": ("duplicate", "service called twice"),
        "late": ("delay", "service does it and times out", "service late", "service too late"),
        "lost": ("drop",),
        "outage": ("store down",),
        "fails": ("service fails", "service hangs"),
        "refuses": ("service refuses",),
    }
)
"""The faults, by the words of ``kinds=``."""
USUAL: Final = ("kill", "stop", "ambiguous", "duplicate", "late")
_CALLS: Final = ("do at", "undo at", "probe at")
_CALM: Final = "a calm world, in which nothing ever fails"
_CHANCE: Final = (
    "Chance (uuid4, random), the time of day, or state that outlives a run does that: make your fake inside the test, and use "
    "random.Random(world.seed)"
)
_LIVELIEST, _LAZIEST = 1.0, 60.0


class UnprovedError(AssertionError):
    """A test did not hold in one of its worlds. The message says how to replay it, what was wrong, and what
    happened.
    """


class Strike(NamedTuple):
    """One fault that strikes at one point."""

    point: FaultPoint
    what: str

    def __str__(self) -> str:
        return f"{self.what!r} strikes the {self.point.process} at {self.point.name!r}"


@dataclass(slots=True)
class Played:
    """A world after the test."""

    stage: Stage
    outcome: Outcome
    """How the world ended."""
    wrong: list[str]
    """What is wrong with it; empty if nothing is."""
    took: float = 0.0
    """Seconds of wall time."""


@dataclass(slots=True)
class Proof:
    """The worlds of one test."""

    script: Script
    """The test."""
    name: str = "YOUR_TEST"
    """The test as pytest names it, for the command that replays it."""
    options: str = ""
    grounds: Grounds = field(default_factory=Grounds)
    apps: dict[Workflow[..., Any], App] = field(default_factory=dict)
    world_count: int = 0
    attempts: int = ATTEMPTS
    """The limit of attempts of one step in one world, after which the world is given up."""
    progress: Progress = field(default_factory=Progress)
    """Reports progress to the people who wait."""
    calls: dict[str, bool] = field(default_factory=dict)
    fails: bool = False
    """Whether an action may keep failing in a calm world."""
    coverage: dict[str, int] = field(default_factory=dict)
    """For each undo and probe, such as "the undo of shop/payments/charge": the furthest that it came in any
    world (see ``Eye.coverage``).
    """
    ends: str = ""
    """How the tasks of the calm world ended."""
    clock: Clock = field(default_factory=SystemClock)

    def play(
        self, seed: int, swarm: Swarm, plan: Callable[[Stage, FaultPoint], str | None] | None = None
    ) -> Played:
        """Play the test in one world."""
        stage = Stage(seed, self.script, swarm=swarm, grounds=self.grounds)
        stage.apps = self.apps
        stage.attempts = self.attempts
        stage.faults.plan = None if plan is None else partial(plan, stage)
        began = self.clock.monotonic()
        with _quiet(), calls_watched(stage.loop):
            outcome = stage.run()
        took = self.clock.monotonic() - began
        self.world_count += 1
        self._count(stage)
        error = stage.error
        if error is not None and not isinstance(error, Exception) and type(error).__name__ != "Failed":
            raise error  # pytest.skip is raised; pytest.fail is a verdict like any other.
        bad = error or outcome.findings or stage.pile_up
        return Played(stage, outcome, what_is_wrong(stage, outcome) if bad else [], took)

    def _count(self, stage: Stage) -> None:
        """Note what this world covered: the services it called, the undos and probes that answered."""
        for fake in stage.services.values():
            self.calls[fake.name] = self.calls.get(fake.name, not fake.needed) or bool(fake.heard)
        for (agent, action, doing), level in stage.coverage.items():
            declaration = stage.app.agents[agent].actions.get(action)
            if (
                declaration is not None
                and (declaration._undo_fn if doing == "undo" else declaration._probe_fn) is not None
            ):
                name = f"the {doing} of {declaration.address}"
                self.coverage[name] = max(self.coverage.get(name, 0), level)

    def calm(
        self, seed: int, plan: Callable[[Stage, FaultPoint], str | None] | None = None
    ) -> tuple[Played, Swarm]:
        """Play it in a calm world and return it with the options that suit its length: a long world is
        checked less often.
        """
        first = self._play_calm(seed, _swarm(_LAZIEST), _never)
        duration = first.stage.duration
        swarm = _swarm(min(_LAZIEST, max(_LIVELIEST, duration / 100.0)))
        calm_world = self._play_calm(seed, swarm, plan or _never)
        if calm_world.stage.began is None:
            raise UnprovedError(f"{self.name} submitted no task: `task = await world.submit(workflow, ...)`")
        self.ends = calm_world.stage.ends
        task = calm_world.stage.failure
        if task is not None and not self.fails and not calm_world.outcome.faults:  # The test itself may kill.
            calm_world.wrong.append(failure_message(task))
            raise self.failure(calm_world, str(seed), _CALM)
        return calm_world, swarm

    def _play_calm(self, seed: int, swarm: Swarm, plan: Callable[[Stage, FaultPoint], str | None]) -> Played:
        """Play it in a calm world, in which nothing may go wrong."""
        world = self.play(seed, swarm, plan)
        if world.wrong:
            raise self.failure(world, str(seed), _CALM)
        return world

    def say(self, text: str) -> None:
        """Print a message to the terminal."""
        if self.progress.say is not None:
            self.progress.say(text)

    def failure(self, world: Played, again: str, place: str) -> UnprovedError:
        """Return the error for a world in which something was wrong."""
        wrong = "\n".join(f"- {text}" for text in world.wrong)
        return UnprovedError(
            f"see it again with: pytest '{self.name}' --makegood-seed={again}{self.options}\n\n"
            f"seed {world.stage.seed}, {place}; {quantity(self.world_count, 'world')} {'was' if self.world_count == 1 else 'were'} played.\n\n"
            f"What is wrong:\n{wrong}\n\nWhat happened (virtual seconds; !! a fault, >> a double effect):\n{timeline_text(world.stage)}"
        )

    def all_were_called(self) -> None:
        """Raise ``UnprovedError`` for a service that no world called: nothing was proved about it."""
        idle = [name for name, was_called in self.calls.items() if not was_called]
        if idle:
            agents = {name for app in self.apps.values() for name in app.agents}
            raise UnprovedError(never_called(self.name, idle, set(self.calls) - set(idle), agents, self.ends))

    # -- every point -------------------------------------------------------------------------------

    def everywhere(self, seed: int, kinds: Sequence[str], at_most: int | None) -> int:
        """Play it once per fault point and fault that can strike there; returns the number of worlds. Raises
        ``UnprovedError``.
        """
        points: list[FaultPoint] = []
        calm_world, swarm = self.calm(seed, _Listing(points))
        faults = [fault for kind in kinds for fault in KINDS[kind]]
        strikes = [Strike(point, fault) for point in points for fault in faults if fault in point.able]
        if not strikes:
            raise UnprovedError(
                f"{self.name} reaches no fault point at which one of {', '.join(kinds)} could strike"
            )
        if at_most is None and (reason := too_long(self.name, len(strikes), calm_world.stage)):
            raise UnprovedError(reason)
        order = sorted(
            _spread(len(strikes), at_most), key=lambda n: not strikes[n].point.name.startswith(_CALLS)
        )
        note = often(calm_world.stage, calm_world.took) + (
            "; at_most=... plays fewer" if at_most is None else ""
        )
        for position, n in enumerate(order):  # Points around the calls come first: most findings are there.
            self.progress.tell(position, len(order), note)
            strike = strikes[n]
            self._strike(seed, swarm, strike, f"fault {n + 1} of {len(strikes)}: {strike}")
        return self.world_count

    def again(self, seed: int, number: int, fault: str) -> None:
        """Play the one world in which ``fault`` strikes at point ``number``."""
        points: list[FaultPoint] = []
        _, swarm = self.calm(seed, _Listing(points, every=True))
        able = sorted({kind for point in points for kind in point.able})
        if fault not in able:
            raise UnprovedError(
                f"--makegood-seed: nothing called {fault!r} can strike in {self.name}: one of {', '.join(able)}"
            )
        fault_point = next((point for point in points if point.number == number), None)
        if fault_point is None or fault not in fault_point.able:
            raise UnprovedError(
                f"{self.name} has no fault point {number} where {fault!r} can strike: the test or its workflow has changed since; "
                f"run it without --makegood-seed"
            )
        strike = Strike(fault_point, fault)
        self._strike(seed, swarm, strike, str(strike))

    def _strike(self, seed: int, swarm: Swarm, strike: Strike, place: str) -> None:
        point, strays = strike.point, []

        def plan(_stage: Stage, fault_point: FaultPoint) -> str | None:
            if fault_point.number != point.number:
                return None
            if (fault_point.name, fault_point.process) != (point.name, point.process):
                strays.append(fault_point)
                return None
            return strike.what

        world = self.play(seed, swarm, plan)
        if strays or not world.outcome.faults:
            now = f"it is {strays[0].name!r}" if strays else "it is not reached"
            raise UnprovedError(
                f"{self.name} does not run the same way twice: fault point {point.number} was {point.name!r} in {point.process}, now "
                f"{now}. {_CHANCE}"
            )
        if world.wrong:
            again = f"{seed}/{point.number}/{strike.what.replace(' ', '-')}"
            raise self.failure(world, again, place + self._once_more(seed, swarm, plan))

    def _once_more(
        self, seed: int, swarm: Swarm, plan: Callable[[Stage, FaultPoint], str | None] | None = None
    ) -> str:
        """Replay a failed world. If it holds now, returns a note: chance that no seed decides played a
        part.
        """
        if self.play(seed, swarm, plan).wrong:
            return ""
        return f". THE REPLAY PASSED: the test or its workflow does not run the same way twice. {_CHANCE}"

    # -- storms ------------------------------------------------------------------------------------

    def storms(self, seeds: Iterable[int], faults: Sequence[str]) -> int:
        """Play it in one storm per seed; returns the number of worlds. Raises ``UnprovedError``."""
        series = list(seeds)
        calm_world, _ = self.calm(series[0] if series else 0)
        duration = calm_world.stage.duration
        note = often(calm_world.stage, calm_world.took)
        for position, seed in enumerate(series):
            self.progress.tell(position, len(series), note)
            storm = stormy(seed, faults, duration, leaps=calm_world.stage.leapt > 0)
            world = self.play(seed, storm)
            if world.wrong:
                blows = ", ".join(f"{fault} {n}" for fault, n in sorted(world.outcome.faults.items()))
                place = f"a storm ({blows or 'no fault'}){self._once_more(seed, storm)}"
                raise self.failure(world, str(seed), place)
        return self.world_count


class _Listing:
    """Lists the points at which a fault could change something: not those reached before with no change
    since.
    """

    def __init__(self, points: list[FaultPoint], *, every: bool = False) -> None:
        self._points = points
        self._every = every
        self._visits: set[tuple[str, str, int]] = set()
        self._position = self._event_count = 0

    def __call__(self, stage: Stage, point: FaultPoint) -> None:
        if not stage.is_exposed:
            return
        events = stage.history.events
        self._event_count += sum(1 for n in range(self._position, len(events)) if events[n].task)
        self._position = len(events)
        visit = (point.name, point.process, self._event_count)
        if self._every or visit not in self._visits:
            self._visits.add(visit)
            self._points.append(point)


def _never(_stage: Stage, _point: FaultPoint) -> None:
    return None


def _swarm(pace: float) -> Swarm:
    return Swarm(layout=APART, tasks=0, storm=0.0, client_apart=True, engine=slowly(Options(), pace))


def _spread(count: int, at_most: int | None) -> Iterator[int]:
    """Yield numbers below ``count``, evenly spread if there are too many.

    >>> list(_spread(10, 4))
    [0, 2, 5, 7]
    """
    if at_most is None or at_most >= count:
        yield from range(count)
    else:
        yield from (n * count // at_most for n in range(at_most))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the engine's log of thousands of worlds off the terminal."""
    log = logging.getLogger("makegood")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)
