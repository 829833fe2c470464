"""The world of one fault test: a state store, the service's books, processes that may be killed and stopped, a client.

Everything is waited for by a condition with a deadline; what is not reached in time fails the test, and the report of
a failure (see ``conftest``) shows the processes' logs and traces, the tables and the books.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from makegood import Client, TaskHandle
from makegood.base import ids
from makegood.store.views import EventView, TaskView
from proofs import halting
from tests.processes import effect_log, fault_app, store_rows
from tests.processes.fork_server import Forked, ForkServer

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120.0
"""Seconds after which something that has not come will never come, on the slowest machine."""
Process = subprocess.Popen[bytes] | Forked
QUICK: Mapping[str, object] = {
    "supervise_every": 0.5,
    "lease": 12.0,
    "late_after": 0.3,
    "starved_after": 600.0,
    "heartbeat": 0.2,
    "dead_after": 600.0,
    "poll_every": 0.5,
    "drain": 600.0,
}
"""Options of the processes. They look often. What ends with time (a life, a lease, the deadline of an attempt) lasts so long that a machine
that stands still for seconds ends none of it: a test that needs its end moves it into the past, see ``World.overdue``.
"""


class NotReachedError(AssertionError):
    """A condition did not come true in time."""


@dataclass(slots=True)
class Child:
    """A process of the test. ``store``: the URL of its state store. ``trace``, ``struck``: what ``fault_points`` wrote."""

    name: str
    folder: Path
    process: Process
    store: str

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def alive(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def killed(self) -> bool:
        """Whether it has died of SIGKILL."""
        return self.process.poll() == -signal.SIGKILL

    def halted(self) -> bool:
        """Whether it is stopped by SIGSTOP, as the system says."""
        return self.process.returncode is None and halting.halted(self.pid)

    def struck(self) -> str:
        """Return which point struck, "" for none yet."""
        sign = self.folder / f"{self.name}.struck"
        return sign.read_text(encoding="utf-8").rpartition(" ")[0] if sign.exists() else ""

    def arm(self) -> None:
        """Let a fault that waits to be armed strike from now on."""
        (self.folder / f"{self.name}.arm").touch()

    def go_on(self) -> None:
        """End the wait of a fault that waits."""
        (self.folder / f"{self.name}.go").touch()

    def kill(self) -> None:
        """Kill it with SIGKILL and see that it died of that."""
        assert self.alive(), f"{self.name} had ended before it was killed:\n{self.log()}"
        self.process.send_signal(signal.SIGKILL)
        assert self.process.wait(PATIENCE) == -signal.SIGKILL

    def stop(self) -> int:
        """Stop it with SIGSTOP, outside of any transaction; return how often it was found inside one."""
        return halting.halt(self.pid, self.store)

    def settle(self) -> int:
        """Do the same with one that has stopped itself."""
        return halting.settle(self.pid, self.store)

    def resume(self) -> None:
        """Let a stopped process go on, from where it stood."""
        assert self.halted(), f"{self.name} was to be resumed but is not stopped"
        (self.folder / f"{self.pid}.resumed").touch()
        self.process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        """Ask it to end in good order."""
        self.process.send_signal(signal.SIGTERM)

    def log(self) -> str:
        """Return what it printed."""
        file = self.folder / f"{self.name}.log"
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""

    def number(self) -> int | None:
        """Return the first number of its node, once it has started."""
        for line in self.log().splitlines(keepends=True):
            if line.startswith("started ") and line.endswith("\n"):  # not while it is being written
                return int(line.split()[1])
        return None

    def trace(self, what: str | None = None) -> list[dict[str, Any]]:
        """Return what it did with its store, in order."""
        file = self.folder / f"{self.name}.trace"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        entries: list[dict[str, Any]] = [json.loads(line) for line in lines if line.endswith("}")]
        return [entry for entry in entries if what is None or entry["what"] == what]


@dataclass(slots=True)
class World:
    """See the module's text. ``url``: the state store's. Use it with ``async with``."""

    folder: Path
    url: str
    children: dict[str, Child] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    _client: Client | None = None

    of_test: ClassVar[list["World"]] = []
    """The worlds of the running test, for its report."""

    fork_server: ClassVar[ForkServer] = ForkServer()
    """Where its processes come from."""

    def __post_init__(self) -> None:
        World.of_test.append(self)

    @property
    def service(self) -> effect_log.Books:
        """The remote service's books."""
        return effect_log.Books(self.folder / "books.db")

    @property
    def client(self) -> Client:
        """The client of the test's own process."""
        assert self._client is not None
        return self._client

    async def __aenter__(self) -> Self:
        """Make the books, and the schema if there is none; open the client."""
        self.service.create()
        self._client = Client(self.url, poll_every=0.1, migrate=True)
        await self._client.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every process, let go of the store."""
        self.end()
        if self._client is not None:
            await self._client.close()

    def end(self) -> None:
        """Kill what still runs."""
        for child in self.children.values():
            if child.alive():
                child.process.kill()
            child.process.wait()

    # -- processes -------------------------------------------------------------------------------------------------------

    def launch(
        self,
        name: str,
        command: Iterable[str],
        *,
        plain_user: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> Child:
        """Start a process that dies with this one: ``python -m`` with ``command``."""
        assert name not in self.children, f"there has been a {name} already"
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("MAKEGOOD_", "COLUMNS"))}
        environment |= {
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src"), str(self.folder)]),
            "PYTHONUNBUFFERED": "1",
        }
        environment |= {"FLOOR_FOLDER": str(self.folder)}
        environment |= {**self.environment, **(settings or {})}
        log = self.folder / f"{name}.log"
        process: Process
        if plain_user:
            process = self._as_plain_user(command, log, environment)
        else:
            process = World.fork_server.launch(
                list(command), folder=self.folder, log=log, environment=environment
            )
        child = self.children[name] = Child(name, self.folder, process, self.url)
        return child

    def _as_plain_user(self, command: Iterable[str], log: Path, environment: Mapping[str, str]) -> Process:
        """Start a program anew: root's powers can only be left behind then."""
        with log.open("wb") as out:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.processes.die_with_parent", "--plain-user", *command],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment,
                process_group=0,
            )

    def start(
        self,
        name: str,
        *roles: str,
        fault: str = "",
        agents: Iterable[str] = (),
        plain_user: bool = False,
        url: str = "",
        outbox: str = "",
        app: str = "",
        **options: object,
    ) -> Child:
        """Start a Node of the given roles; ``options`` beside ``QUICK``."""
        command = [
            "tests.processes.node_process",
            ",".join(roles),
            "--store",
            url or self.url,
            "--name",
            name,
        ]
        command += ["--folder", str(self.folder), "--options", json.dumps({**QUICK, **options})]
        if fault:
            command += ["--fault", fault]
        if app:
            command += ["--app", app]
        if outbox:
            command += ["--outbox", outbox]
        if agents:
            command += ["--agents", ",".join(agents)]
        return self.launch(name, command, plain_user=plain_user)

    async def started(self, *children: Child) -> None:
        """Wait until the roles of these processes run."""
        for child in children:
            await self.until(child.number, f"{child.name} runs", child)

    # -- waiting ---------------------------------------------------------------------------------------------------------

    async def until(
        self,
        condition: Callable[[], object | Awaitable[object]],
        what: str,
        *living: Child,
        limit: float = PATIENCE,
    ) -> Any:
        """Wait until ``condition`` holds and return what it said; the processes ``living`` must not end before."""
        end = time.monotonic() + limit
        while True:
            result = condition()
            value = await result if isinstance(result, Awaitable) else result
            if value:
                return value
            for child in living:
                if not child.alive():
                    raise NotReachedError(f"{child.name} ended ({child.process.returncode}) before {what}")
            if time.monotonic() > end:
                raise NotReachedError(f"not reached within {limit:g} s: {what}")
            await asyncio.sleep(0.02)

    async def dies(self, child: Child, point: str = "") -> None:
        """Wait until a process has killed itself, at the point where it should."""
        await self.until(lambda: not child.alive(), f"{child.name} kills itself")
        assert child.killed(), f"{child.name} ended with {child.process.returncode}, not by SIGKILL"
        if point:
            assert child.struck() == f"{point} kill"

    async def stops(self, child: Child, point: str = "") -> int:
        """Wait until a process has stopped itself, at the point where it should, and stands outside of any transaction.

        Returns how often it was found inside one.
        """
        await self.until(child.halted, f"{child.name} stops itself", child)
        if point:
            assert child.struck() == f"{point} stop"
        return child.settle()

    async def ends(self, child: Child, limit: float = PATIENCE) -> int:
        """Wait until a process has ended by itself; return its exit code."""
        await self.until(lambda: not child.alive(), f"{child.name} ends", limit=limit)
        return child.process.wait()

    async def ended(self, task: TaskHandle[Any], state: str, limit: float = PATIENCE) -> TaskView:
        """Wait until a task is at rest, and see that it is in ``state``."""

        async def at_rest() -> TaskView | None:
            view = await self.view(task)
            return view if view.state in ("processed", "undone", "error") else None

        view: TaskView = await self.until(at_rest, f"task {task.id} is {state}", limit=limit)
        assert view.state == state, f"task {task.id} is {view.state} ({view.cause}), not {state}"
        return view

    # -- the state store -------------------------------------------------------------------------------------------------

    async def submit(
        self, workflow: Any, ref: str, faults: Mapping[str, list[str]] | None = None
    ) -> TaskHandle[Any]:
        """Submit an order."""
        return await self.client.submit(workflow, fault_app.Order(ref, dict(faults or {})))

    async def view(self, task: TaskHandle[Any]) -> TaskView:
        """Return the task as it stands."""
        return (await task.status()).task

    async def steps(self, task: TaskHandle[Any]) -> dict[str, tuple[str, int, int, int]]:
        """Return step -> (state, attempt, round, failures in this direction)."""
        return {s.name: (s.state, s.attempt, s.round, s.failures) for s in (await task.status()).steps}

    async def history(self, task: TaskHandle[Any]) -> list[EventView]:
        """Return the events of a task."""
        return await self.client.store.tasks.history(task.number)

    async def moves(self, task: TaskHandle[Any], who: str) -> list[str]:
        """Return the states that the task (``who`` = "task") or a step went through, with the first one."""
        steps = [move for event in await self.history(task) for move in event.moves if move[0] == who]
        return [steps[0][1], *(after for _, _, after, _ in steps)] if steps else []

    async def notes(self, task: TaskHandle[Any]) -> str:
        """Return the notes in a task's history: late replies and the like."""
        return "; ".join(event.note for event in await self.history(task) if event.note)

    async def alerts(self, task: TaskHandle[Any] | None = None) -> list[str]:
        """Return the kinds of the alerts, oldest first."""
        views = await self.client.store.alerts.views(1000, None if task is None else task.number)
        return [alert.kind for alert in reversed(views)]

    async def epoch(self) -> int:
        """Return the epoch of the Supervisors' lease, 0 when it was never taken."""
        lease = await self.client.store.leases.read("makegood/supervisor")
        return lease.epoch if lease is not None else 0

    async def leader(self) -> str | None:
        """Return who holds the Supervisors' lease."""
        lease = await self.client.store.leases.read("makegood/supervisor")
        return lease.holder if lease is not None and lease.remaining > 0 else None

    async def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of one of makegood's tables, read past the engine."""
        return await store_rows.rows(self.url, table)

    # -- time ------------------------------------------------------------------------------------------------------------

    async def overdue(self, *children: Child) -> None:
        """Let the deadlines pass of all that these processes, which are dead or stopped, have taken and not answered."""
        names = ", ".join(f"'{child.name}'" for child in children)
        past = await self.client.store.now() - 1.0
        await store_rows.change(
            self.url, "request", f"complete_by = {past!r}",
            f"complete_by > {past!r} and kind <> 'timer' and taken_by in (select id from {{node}} where name in ({names}))",
        )  # fmt: skip

    async def declared_dead(self, child: Child) -> None:
        """Let the life of a process run out that is dead or stopped, and wait until a Supervisor has seen it.

        Again and again: a heartbeat that was under way may come behind it.
        """

        async def marked() -> bool:
            nodes = [row for row in await self.rows("node") if row["name"] == child.name]
            latest = max(nodes, key=lambda row: int(row["id"]))
            if not latest["dead"]:
                past = await self.client.store.now() - 1.0
                await store_rows.change(self.url, "node", f"alive_until = {past!r}", f"id = {latest['id']}")
            return bool(latest["dead"])

        await self.until(marked, f"{child.name} is declared dead")

    async def unled(self) -> None:
        """Let the lease of the leading Supervisor, which is stopped, run out."""
        past = await self.client.store.now() - 1.0
        await store_rows.change(self.url, "lease", f"expires_at = {past!r}", "name = 'makegood/supervisor'")

    async def left_over(self) -> list[str]:
        """Return what should not be left when all tasks are at rest: requests, messages, locks."""
        leftovers = [f"request {row}" for row in await self.rows("request")]
        leftovers += [f"message {row}" for row in await self.rows("inbox")]
        leftovers += [f"lock of {ids.show(row['id'])}" for row in await self.rows("task") if row["locked_by"]]
        return leftovers

    def audit(self, effects: Mapping[str, Mapping[str, int]]) -> None:
        """See that the service's books are right: order -> step -> effects that stand."""
        wrong = effect_log.audit(self.service, effects)
        assert not wrong, "\n".join(wrong)

    # -- the report ------------------------------------------------------------------------------------------------------

    async def report(self) -> str:
        """Return everything that is known, for a failed test."""
        parts = [f"store {self.url}", "books:\n" + effect_log.show(self.service)]
        for table in ("task", "step", "request", "inbox", "event", "alert", "node", "lease"):
            try:
                rows = await self.rows(table)
            except Exception as unreadable:
                parts.append(f"{table}: cannot be read: {unreadable!r}")
            else:
                parts.append(f"{table}:\n" + "\n".join(f"  {row}" for row in rows[-60:]))
        for child in self.children.values():
            trace = "\n".join(f"  {json.dumps(entry)}" for entry in child.trace())
            parts.append(
                f"== {child.name} (pid {child.pid}, exit {child.process.returncode})\n{child.log()[-6000:]}"
            )
            parts.append(f"trace of {child.name}:\n{trace[-6000:]}")
        return "\n\n".join(parts)
