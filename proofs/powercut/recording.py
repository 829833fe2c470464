"""A simulated world whose store is recorded, and a world that continues where the power went.

``RecordedWorld`` is the simulator's world of one seed: the real engine and the real SQLite store, orders of
every shape, processes that are killed, an operator who cancels. ``tape`` holds the store's writes, and
between them marks of the progress: how many transactions had begun and been answered, how many events were
noted, what the services' books held.

``ResumedWorld`` takes one image of the disk, the books of that moment, and the calls that were on the wire,
half of which still arrive. All processes restart on a machine that was rebooted.
"""

import copy
import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from makegood.store.sqlite.connection import connect
from makegood.store.sqlite.store_threads import Operation
from makegood.testing.checker import Report
from makegood.testing.history import History
from makegood.testing.simulator.clocks import SimulatedClock
from makegood.testing.simulator.files import Files, WatchedConnection
from makegood.testing.simulator.quiescence import Eye
from makegood.testing.simulator.recorder import Recorder
from makegood.testing.simulator.services import KeyState
from makegood.testing.simulator.stores import InlineLine, StoreWorld
from makegood.testing.simulator.swarm import LAYOUTS
from makegood.testing.simulator.world import Outcome
from makegood.testing.simulator.world_files import Grounds
from proofs.powercut.disk import CutPoint, Image, Tape
from proofs.powercut.examining import ExaminedImage, digest, write_files, wrong
from proofs.powercut.listening import listening
from proofs.powercut.operations import MERGE, StoreRows
from proofs.powercut.wait_checks import wait_findings
from proofs.storms.recorder import StormRecorder
from proofs.storms.services import StormService
from proofs.storms.shop import ONCE, SERVICES_OF_STORM, orders, storm_app
from proofs.storms.swarm import StormSwarm
from proofs.storms.world import Orders, StormWorld

_OFF = 60.0
_LATE = 20.0
_STORM = 12.0


@dataclass(slots=True)
class Books:
    """What one service knew at one moment."""

    books: dict[str, KeyState]
    highest: dict[str, Any]
    undone_by: set[str]
    made: int


@dataclass(slots=True)
class Moment:
    """The services at one moment: what each knew, and the calls on the wire."""

    services: dict[str, Books]
    wire: list[Any]


@dataclass(slots=True)
class Marks:
    """The program's progress, as marks on the tape."""

    tape: Tape
    states: list[str] = field(default_factory=list)
    """The digest of the store after each transaction."""
    operations: list[frozenset[str]] = field(default_factory=list)
    """What each transaction did, beside ``states``."""
    moments: list[Moment] = field(default_factory=list)
    """The states of the services."""
    began: int = 0
    """How many transactions began."""


class RecordedService(StormService):
    """A service that records each change."""

    __slots__ = ()

    def _send(self, request: Any, delay: float) -> None:
        super()._send(request, delay)
        world = self._recorded()
        world.wire.append(request)
        world.remember()

    def carry_out(self, request: Any) -> Any:
        """Carry out a call that arrived."""
        world = self._recorded()
        world.wire.remove(request)
        answer = super().carry_out(request)
        world.remember()
        return answer

    def _take_back(self, key: str, task: int = 0) -> None:
        """An operator takes an effect back by hand."""
        super()._take_back(key, task)
        self._recorded().remember()

    def _recorded(self) -> "RecordedWorld":
        assert isinstance(self.world, RecordedWorld)
        return self.world


class RecordedLine(InlineLine):
    """A store's line that marks when a transaction begins, returns, and is answered."""

    def __init__(self, *args: Any, world: StoreWorld, **kwargs: Any) -> None:
        super().__init__(*args, world=world, **kwargs)
        assert isinstance(world, RecordedWorld)
        self._recorded = world

    def _write(self, operations: list[Operation]) -> set[str]:
        marks = self._recorded.marks
        marks.began += 1
        marks.tape.mark("begun", marks.began)
        try:
            topics = super()._write(operations)
            marks.tape.mark("done", marks.began)
        finally:
            self._recorded.enter_state()
        return topics

    def _hand_back(self, operations: list[Operation], topics: set[str]) -> None:
        if self.writes and any(operation.error is None for operation in operations):
            self._recorded.marks.tape.mark("done", self._recorded.marks.began)
        super()._hand_back(operations, topics)


class RecordedHistory(History):
    """A history that marks how many events there are."""

    __slots__ = ("tape",)
    tape: Tape

    def note(self, kind: str, node: str = "", task: int = 0, **fields: Any) -> None:
        """Add an event, and mark it."""
        super().note(kind, node, task, **fields)
        self.tape.mark("events", len(self.events))


class RecordedRecorder(StormRecorder):
    """Applies a recording's own settings to each writing connection."""

    __slots__ = ("settings",)
    settings: Sequence[str]

    def watch(self, connection: sqlite3.Connection) -> None:
        """Make a connection log its changes."""
        for setting in self.settings:
            connection.execute(setting)
        super().watch(connection)


class ApartFiles(Files):
    """Connections for each process, as in production: the power cut hits what they write into the files."""

    def open(self, uri: str) -> sqlite3.Connection:
        """Open a new connection."""
        return connect(uri, factory=WatchedConnection)


class RecordedWorld(StormWorld):
    """The world of a seed, on tape.

    ``log_pages``: the number of pages in the write-ahead log from which on it is merged, so that this happens
    often; ``settings``: pragmas for the writing connections, for mutants.
    """

    line = RecordedLine

    def __init__(
        self,
        seed: int,
        *,
        template: bytes,
        settings: Sequence[str] = (),
        swarm: StormSwarm | None = None,
        draw_orders: Orders = orders,
    ) -> None:
        rng = random.Random(f"{seed} recording")
        usual = eventful(rng)
        super().__init__(
            seed, app=storm_app(), orders=draw_orders, services=SERVICES_OF_STORM, once=ONCE, swarm=swarm or usual, grounds=Grounds(template)
        )  # fmt: skip
        self.log_pages = rng.choice((4, 16, 64, 4000))
        self.tape = Tape()
        self.marks = Marks(self.tape)
        self.wire: list[Any] = []
        self.services = {
            name: RecordedService(self, name, kind=kind) for name, kind in SERVICES_OF_STORM.items()
        }
        self.history = RecordedHistory(lambda: self.loop.now)
        self.history.tape = self.tape
        self.recorder = RecordedRecorder(self.history, self.store_id)
        self.files = ApartFiles()
        self.recorder.settings = settings
        self._look: sqlite3.Connection | None = None
        self.rows = StoreRows()

    def record(self) -> Outcome:
        """Live, and return how it ended. Raises ``ListeningError`` if SQLite cannot be listened to."""
        with listening(self.path.parent, self.tape):
            return self.run()

    def _prepare(self) -> None:
        super()._prepare()
        self.tape.base = {self.path.name: self.path.read_bytes()}
        self.tape.entries.clear()
        self._look = sqlite3.connect(self.path, isolation_level=None)
        self.remember()
        self.enter_state()

    def close(self) -> None:
        """Throw the world away; the tape stays."""
        if self._look is not None:
            self._look.close()
        super().close()

    def enter_state(self) -> None:
        """Enter what the store holds after a transaction, and what that did."""
        assert self._look is not None
        self.marks.states.append(digest(self._look))
        before, self.rows = self.rows, StoreRows.read(self._look)
        self.marks.operations.append(self.rows.since(before))

    def remember(self) -> None:
        """Mark that something changed at the services."""
        services = {
            name: Books(copy.deepcopy(each.books), dict(each.highest), set(each.undone_by), each.effect_count)
            for name, each in self.services.items()
        }
        self.tape.mark("moment", len(self.marks.moments))
        self.marks.moments.append(Moment(services, list(self.wire)))

    def operations(self, point: CutPoint) -> frozenset[str]:
        """Return what the transaction does that is under way at a point; ``MERGE`` if none is."""
        begun, ended = point.marks.get("begun", 0), point.marks.get("done", 0)
        return self.marks.operations[begun] if begun > ended else MERGE

    def acknowledged(self, point: CutPoint) -> dict[str, int]:
        """Return the tasks that were acknowledged at a point, by key."""
        events = self.history.events[: point.marks.get("events", 0)]
        return {event["key"]: event.task for event in events if event.kind == "submitted"}

    # -- what an image of this world must be -------------------------------------------------------

    @property
    def database(self) -> str:
        """The name of the store's file."""
        return self.path.name

    def unmade(self, point: CutPoint) -> bool:
        """Whether the store may not exist yet: it always does."""
        del point
        return False

    def findings(self, point: CutPoint, image: ExaminedImage) -> list[str]:
        """Return what is wrong with an image of this point."""
        return wrong(
            image, self.marks.states, durable=point.marks.get("done", 0), latest=point.marks.get("begun", 0), acknowledgements=self.acknowledged(point)
        )  # fmt: skip


def eventful(rng: random.Random) -> StormSwarm:
    """Draw a world with much to do for the store: orders, cancels and undos, processes that are killed or end
    in good order.
    """
    return StormSwarm(
        layout=rng.choice(LAYOUTS), tasks=rng.randint(4, 6), storm=_STORM, pace=0.2,
        points={"kill": 0.002}, rates={"operator": 0.5, "kill": 0.1, "orderly stop": 0.1},
        services={"service fails": 0.05, "service refuses": 0.05, "service does it and times out": 0.05},
    )  # fmt: skip


class Rebooted(SimulatedClock):
    """The clock of a rebooted machine."""

    def boot_id(self) -> str:
        """Another boot than the one before."""
        return "after the power cut"


class ResumedWorld(StormWorld):
    """Continues from an image: ``run()`` lets the engine work until everything has settled."""

    def __init__(self, recording: RecordedWorld, point: CutPoint, files: Image, rng: random.Random) -> None:
        swarm = replace(
            recording.swarm, layout=rng.choice(LAYOUTS), tasks=0, storm=0.0, points={}, rates={}, services={}
        )
        super().__init__(
            rng.getrandbits(32), app=recording.app, orders=lambda *_: (), services=SERVICES_OF_STORM, once=ONCE, swarm=swarm
        )  # fmt: skip
        self._files = {
            name.replace(recording.path.name, self.path.name): data for name, data in files.items()
        }
        self._chance = rng
        self._moment = recording.marks.moments[point.marks["moment"]]
        events = recording.history.events[: point.marks.get("events", 0)]
        self._cut_at = events[-1].at if events else 0.0
        self.store_id = self.recorder.store_id = recording.store_id
        self.true_clock = Rebooted(lambda: self.loop.now, epoch=self.true_clock.wall() + self._cut_at + _OFF)
        self.customers.acks = recording.acknowledged(point)

    def _judge(self, eye: Eye) -> Report:
        """The history begins in the middle, so the checker would lack events. The books are checked."""
        del eye
        return Report()

    def _misdone(self) -> list[str]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as file:
            return [*super()._misdone(), *wait_findings(file)]

    def _prepare(self) -> None:
        write_files(self._files, self.path.parent)
        with closing(sqlite3.connect(self.path)) as file:
            _recall(self.recorder, file)
        for name, service in self._moment.services.items():
            here = self.services[name]
            here.books, here.highest = copy.deepcopy(service.books), dict(service.highest)
            here.undone_by, here.effect_count = set(service.undone_by), service.made
        for request in self._moment.wire:
            if self._chance.random() < 0.5:
                here = self.services[request.service.name]
                here._send(replace(request, service=here, answered=None), self._chance.uniform(0.0, _LATE))  # noqa: SLF001
        for n, roles in enumerate(self.swarm.layout, 1):
            self._add(f"n{n}", roles)
        self._add("operator", ())


def _recall(recorder: Recorder, file: sqlite3.Connection) -> None:
    """Give a recorder the existing steps."""
    rows = file.execute("select task, idx, name, attempt, round from makegood_step").fetchall()
    for task, idx, name, attempt, round_ in rows:
        recorder.steps[task, idx] = (name, attempt, round_)
        recorder.indices.setdefault(task, {})[name] = idx
