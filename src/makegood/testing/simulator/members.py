"""The processes of a world: their parts, how they start, and what remains when they are killed."""

import asyncio
import random
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

from makegood.client.client import Client
from makegood.errors import StoreUnavailableError
from makegood.model.blame import CallingStep
from makegood.model.breaker import Circuit, Outcome, State
from makegood.model.messages import TaskMessage
from makegood.node.node import Node
from makegood.options import Options
from makegood.store import Store
from makegood.store.sqlite import SQLiteStore
from makegood.testing.simulator.clocks import SimulatedClock
from makegood.testing.simulator.loop import SimulatedProcess
from makegood.testing.simulator.stores import VERBS, InlineLine, StoreWorld, Wire, WorldWakeSocket
from makegood.workflow.app import App

_PAUSE = 0.5


class Home(StoreWorld, Protocol):
    """The parts of a world that its processes need."""

    seed: int
    app: App
    path: Path
    true_clock: SimulatedClock
    services: Any
    setups: Mapping[str, object]
    crashes: list[str]
    wake_sockets: list[WorldWakeSocket]
    line: type[InlineLine]

    def handle_exit(self, member: "FleetMember") -> None:
        """Handle the end of a process that ended by itself."""


@dataclass(slots=True, eq=False)
class FleetMember:
    """One process of the fleet, over all its incarnations."""

    world: Home
    name: str
    roles: tuple[str, ...]
    """The roles of its Node; none: it is only a client."""
    clock: SimulatedClock
    incarnation: int = 0
    process: SimulatedProcess = field(default_factory=lambda: SimulatedProcess(""))
    node: Node | None = None
    client: Client | None = None
    """Set while it can be used."""
    connections: list[sqlite3.Connection] = field(default_factory=list)
    """Its connections to the store's file; the world closes them when it is killed."""

    @property
    def up(self) -> bool:
        """Whether its process lives, stopped or not."""
        return self.incarnation > 0 and not self.process.dead

    def start(self) -> None:
        """Start the process again: it remembers nothing."""
        self.incarnation += 1
        self.process = SimulatedProcess(self.name)
        self.node = self.client = None
        self.world.loop.create_task(self._live(), name=f"{self.name} lives", context=self.process.context)

    def bury(self) -> None:
        """Close what the operating system would close for a killed process: an open transaction is rolled
        back.
        """
        connections, self.connections = self.connections, []
        for connection in connections:
            connection.close()
        self.world.wake_sockets[:] = [
            wake_socket for wake_socket in self.world.wake_sockets if wake_socket.process is not self.process
        ]
        self.node = self.client = None

    async def _live(self) -> None:
        """Run the program: open the store and run the roles; restart if the store is away at the
        beginning.
        """
        world = self.world
        rng = random.Random(f"{world.seed} {self.name} {self.incarnation}")
        while True:
            store = self._store()
            wire = cast("Store", Wire(world, store, self.process, self._verbs_to_strike()))
            try:
                await wire.open()
                await (self._run(wire, rng) if self.roles else self._serve(wire, rng))
                return
            except StoreUnavailableError:
                await store.close()
                await asyncio.sleep(_PAUSE * rng.uniform(0.5, 1.5))

    def _store(self) -> SQLiteStore:
        world, process = self.world, self.process

        def wake_socket(*args: Any) -> WorldWakeSocket:
            world_socket = WorldWakeSocket(*args, world=world, process=process)
            world.wake_sockets.append(world_socket)
            return world_socket

        store = SQLiteStore(
            world.path,
            clock=world.true_clock,
            poll=world.swarm.engine._poll_seconds,
            open_connection=self._open,
            line=partial(world.line, world=world, process=process),
            wake_socket=wake_socket,
        )
        store.parallel_from = world.swarm.parallel_from  # As if it could write two commits at a time.
        return store

    def _open(self, uri: str) -> sqlite3.Connection:
        connection = self.world.files.open(uri)
        self.connections.append(connection)
        return connection

    async def _serve(self, store: Store, rng: random.Random) -> None:
        poll = self.world.swarm.engine._poll_seconds or 1.0
        client = Client(store, poll_every=poll, clock=self.clock, rng=rng)
        await client.open()
        self.client = client

    async def _run(self, store: Store, rng: random.Random) -> None:
        world = self.world
        app = world.app if {"agent", "inbox"} & set(self.roles) else None
        options = self._options()
        node = Node(
            app, store, roles=self.roles, name=self.name, options=options, clock=self.clock, rng=rng, setups=None if app is None else world.setups,
        )  # fmt: skip
        nodes: list[Node] = []

        def note_defect(defect: Exception) -> None:
            """Note a defect that no row of this world can cause: the Scheduler continues, and the world has
            failed.
            """
            world.crashes.append(f"{self.name} met {defect!r} at {world.loop.now:.3f} s")

        def prepare() -> None:
            self._surround(node)
            if node._agents is not None:
                node._agents.deliver = self._delivering(node._agents.deliver)
            if node._scheduler is not None:
                node._scheduler.turns.listeners.defect = note_defect
            self.node, self.client = node, node.client
            nodes.append(node)

        try:
            await node.run(prepare)
        except Exception as failure:
            if not nodes and isinstance(failure, StoreUnavailableError):
                raise
            world.crashes.append(f"{self.name} died of {failure!r} at {world.loop.now:.3f} s")
        world.handle_exit(self)

    def _verbs_to_strike(self) -> frozenset[str]:
        """Return the verbs of the store that faults strike."""
        return VERBS

    def _options(self) -> Options:
        """Return the settings of the Node; operators who are notified are no part of a world."""
        return replace(self.world.swarm.engine, alerts_every=None, leaderless_after=None)

    def _surround(self, node: Node) -> None:
        """Record a Node's circuits in the history."""
        for slots in node._agents.slots.values() if node._agents is not None else ():
            if slots.circuit is not None:
                self._watch(slots.address, slots.circuit)

    def _watch(self, address: str, circuit: Circuit) -> None:
        become, end = circuit._become, circuit.record_end  # noqa: SLF001 - it has no other listener

        def end_call(ticket: int, outcome: Outcome, now: float, *jitter: float, **details: Any) -> bool:
            caller: CallingStep = details["caller"]
            first = details["first_failure"]
            self.world.history.note(
                "outcome", self.name, caller.task, agent=address, idx=caller.idx, doing=caller.doing,
                outcome=outcome, failing_for=0.0 if first is None else now - first,
            )  # fmt: skip
            return end(ticket, outcome, now, *jitter, **details)

        def become_and_note(state: State, now: float) -> None:
            become(state, now)
            self.world.history.note("circuit", self.name, agent=address, state=state)

        circuit._become = become_and_note  # type: ignore[method-assign]  # noqa: SLF001 - of this one circuit
        circuit.record_end = end_call  # type: ignore[method-assign]
        self.world.history.note("circuit", self.name, agent=address, state="closed")

    def _delivering(
        self, deliver: Callable[[int, TaskMessage, int], bool]
    ) -> Callable[[int, TaskMessage, int], bool]:
        world = self.world

        def deliver_and_note(task: int, message: TaskMessage, node: int) -> bool:
            success = deliver(task, message, node)
            if success:
                world.recorder.memory_replies[task, message.idx, message.attempt] = message.kind
                world.history.note(
                    "reply", self.name, task, idx=message.idx, doing=message.doing, attempt=message.attempt,
                    reply=message.kind, local=True,
                )  # fmt: skip
            return success

        return deliver_and_note
