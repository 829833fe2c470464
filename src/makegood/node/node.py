"""A Node: one process, or part of a user's, that runs a chosen set of roles on one store.

It opens the store, registers a node row, and starts the actors (``roles.actors_of`` lists them and wires them
together). When it stops, it drains them in order: they claim and take nothing more, let what runs finish, and
release the rest.
"""

import asyncio
import contextlib
import logging
import os
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Self, TypeVar

from makegood.actor.actor import Actor
from makegood.agent.agents import Agents
from makegood.base import durations, process_identity
from makegood.base.arguments import judge_calls
from makegood.base.cancelling import cancel_and_wait
from makegood.base.clock import Clock, SystemClock
from makegood.base.contexts import HomeLoop
from makegood.base.scrubbed_tracebacks import SCRUBBED_TRACEBACKS
from makegood.base.text import hostname, refuse_unstorable, session_name
from makegood.brokers import KINDS as BROKERS
from makegood.brokers import address_of
from makegood.brokers.address import is_address
from makegood.client.client import Client
from makegood.console import import_part
from makegood.console.options import ConsoleOptions
from makegood.errors import ConfigError, StoreUnavailableError
from makegood.messaging.notifier import Notifier
from makegood.messaging.outbox import open_outbox
from makegood.messaging.source_relay import SourceRelay
from makegood.model.lane import LANE
from makegood.model.plan import KINDS
from makegood.node.gc_tuning import Collecting
from makegood.node.heartbeat import Heartbeat
from makegood.node.roles import (
    Parts,
    ServedConsole,
    actors_of,
    declare_schedules,
    firings_of,
    roles_of,
    setups_given,
    slots_of,
    supervisor_of,
)
from makegood.node.signals import Signals
from makegood.options import Options
from makegood.scheduler.scheduler import Scheduler
from makegood.store import Store, open_store, store_given
from makegood.store.views import AgentInfo, NodeInfo, SenderInfo, SourceInfo
from makegood.supervisor.deaths import Deaths
from makegood.supervisor.supervisor import Pass, Supervisor
from makegood.telemetry.hooks import Observer
from makegood.workflow.app import App

log = logging.getLogger("makegood.node")
log.addFilter(SCRUBBED_TRACEBACKS)

A = TypeVar("A", bound=Actor)


class _Running:
    """The running actors. The first to die ends them all: half a node would look alive and do nothing."""

    def __init__(self, name: str) -> None:
        self.stop = asyncio.Event()
        """Set when the node is to stop."""
        self.failure: BaseException | None = None
        """What an actor died of."""
        self.ending = False
        """Whether the node itself ends its actors."""
        self._name = name
        self._home: HomeLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._first: asyncio.Task[None] | None = None  # to die

    def start(self, actors: Iterable[Actor]) -> None:
        """Start actors, each in an asyncio task of its own."""
        home = self._home = HomeLoop("this node")
        for actor in actors:
            task = home.start(actor.run(), name=f"{self._name} {type(actor).__name__.lower()}")
            task.add_done_callback(self._on_task_end)
            self._tasks.append(task)

    def check(self) -> None:
        """Raise ``ClosedError`` on an event loop other than that of the actors."""
        if self._home is not None:
            self._home.check()

    def dead(self) -> str:
        """Return which actors have ended by themselves, "" when none has."""
        failures = [
            task.get_name()
            for task in self._tasks
            if task.done() and (task is self._first or not task.cancelled())
        ]
        return f"{', '.join(failures)} has ended" if failures else ""

    async def cancel(self) -> None:
        """End all actors."""
        await cancel_and_wait(*self._tasks)
        self._tasks.clear()

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        if self.failure is not None:
            return
        if task.cancelled():
            if self.ending:
                return
            self.failure = RuntimeError(f"{task.get_name()} was cancelled, and not by its node")
        elif (failure := task.exception()) is not None:
            self.failure = failure
        else:
            return
        self._first = task
        log.critical("%s died; the node stops and others take over", task.get_name(), exc_info=self.failure)
        for other in self._tasks:
            other.cancel()
        self.stop.set()


@judge_calls(ConfigError)
class Node:
    """Runs roles: ``async with Node(app, "sqlite:///shop.db") as node: ...``, or ``await Node(...).run()`` as
    a process.

    ``app`` is needed for the roles "agent" and "inbox". ``agents`` names those of its agents to run here
    (default: all). ``roles``: default scheduler, agent and supervisor, and "inbox" where the app declares
    one. ``store`` is a URL (default: MAKEGOOD_STORE, else ``sqlite:///makegood.db``) or a store that the
    caller opened. ``outbox``: URL of another database, from whose outbox orders are relayed to queues of the
    store, or a place at a broker, such as "amqp:main/orders": the role "relay". ``options``: see ``Options``.
    ``telemetry``: the observer, such as ``makegood.telemetry.Telemetry(...)``. ``console``: "HOST:PORT" on
    which this process serves the console, or ``makegood.console.ConsoleOptions``. ``setups``: values in place
    of the app's setups of these names, which are not opened. ``client`` submits to the same store from this
    process.
    """

    def __init__(
        self,
        app: App | None = None,
        store: str | Store | None = None,
        *,
        roles: Iterable[str] | None = None,
        agents: Sequence[str] | None = None,
        name: str | None = None,
        options: Options | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        telemetry: Observer | None = None,
        outbox: str | None = None,
        console: str | ConsoleOptions | None = None,
        setups: Mapping[str, Any] | None = None,
    ) -> None:
        refuse_unstorable(ConfigError, name=name)
        self.options = options or Options()
        source = address_of(outbox, BROKERS) if outbox is not None and is_address(outbox, BROKERS) else None
        outbox_store = None if outbox is None or source is not None else open_outbox(outbox)
        self.roles = roles_of(roles, app, relays=outbox is not None)
        self.name = name or f"{hostname()}-{os.getpid()}"
        clock, rng = clock or SystemClock(), rng or random.Random()
        self._owns_store = store is None or isinstance(store, str)
        self.store: Store = (
            open_store(store, clock=clock, session=session_name(" ".join(self.roles), self.name))
            if store is None or isinstance(store, str)
            else store_given(store)
        )
        if telemetry is not None:
            self.store = telemetry.watched(self.store)
        self.client = Client(
            self.store,
            queue_limit=self.options.queue_limit,
            queue_bytes=self.options.queue_bytes,
            clock=clock,
            rng=rng,
            telemetry=telemetry,
        )
        if app is not None:
            for workflow in app.workflows.values():
                workflow._prepare()  # an annotation that cannot be used is refused here, not at each submission
            self.client._declares(app)
        self._parts = Parts(
            self.name,
            self.roles,
            self.store,
            self.client,
            self.options,
            slots=slots_of(app, agents, self.options.slots)
            if "agent" in self.roles and app is not None
            else {},
            inboxes=tuple(app.inboxes.values()) if "inbox" in self.roles and app is not None else (),
            schedules=() if app is None else tuple(schedule.draft for schedule in app.schedules.values()),
            outbox=outbox_store,
            source=source,
            clock=clock,
            rng=rng,
            telemetry=telemetry,
            # Times of other clocks, and what they are made for, have no processes.
            process=process_identity.own() if isinstance(clock, SystemClock) else None,
            has_own_name=name is not None,
            console=None if console is None else _console(self.client, console, clock),
            setups=setups_given(app, setups),
        )
        self._heartbeat = Heartbeat(
            self.store, self._info, self._renumber_actors, options=self.options, clock=clock, rng=rng
        )
        self._collecting = Collecting()
        self._actors: list[Actor] = []
        self._running = _Running(self.name)
        self._phase: Literal["starting", "ready", "draining", "stopped"] = "starting"

    # -- life ------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Open the store, register, start the roles."""
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Drain and stop; raises what an actor died of, if one did."""
        await self.stop()
        if self._running.failure is not None and kind is None:
            raise self._running.failure

    async def start(self) -> None:
        """Open the store, register, start the roles. If this raises, nothing is left running."""
        parts = self._parts
        if parts.telemetry is not None:
            await parts.telemetry.begin(self)
        try:
            if self._owns_store:
                await self.store.open(migrate=self.options.migrate)
            if parts.outbox is not None:
                await parts.outbox.open()
            await self.client.open()
            self._actors = actors_of(parts, self._heartbeat)
            for relay in self._source_relays:
                await relay.begin()
            await self._heartbeat.register()
            if (deaths := self._actor(Deaths)) is not None:
                with contextlib.suppress(StoreUnavailableError):  # it looks again, and says so
                    await deaths.once()  # first, as what died here may be the leader
            await declare_schedules(parts)
            if parts.console is not None:
                await parts.console.begin()
        except BaseException:
            await self._let_go()
            raise
        self._collecting.begin()
        self._running.start(self._actors)
        self._phase = "ready"

    async def run(self, started: Callable[[], None] | None = None) -> None:
        """Run as a process until SIGTERM or SIGINT, or until an actor dies, whose error is then raised.

        The same signal once more, a second or longer after the first, kills the process without draining.
        ``started`` is called once the roles run and a signal would drain them.
        """
        await self.start()
        with Signals(self._running.stop.set) as signals:
            try:
                if started is not None:
                    started()
                await self._running.stop.wait()
            finally:
                await self.stop(signals.signal_name)
        if self._running.failure is not None:
            raise self._running.failure

    async def stop(self, reason: str = "") -> None:
        """Drain and close: take nothing more, wait up to ``drain`` seconds for what runs, release the rest.

        ``reason``: why, for the log; by default that the program asks for it. Raises ``ClosedError`` on an
        event loop other than that of ``start``.
        """
        self._running.check()
        now, limit, failure = self._parts.clock.monotonic, self.options.number("drain"), self._running.failure
        began, ran, roles = now(), self._phase == "ready", ", ".join(self.roles)
        why = self.dead() or reason or "its program ends it"
        about = {"reason": why, "roles": roles, "node": self.number}
        if ran and failure is None:
            first_line = {"event": "draining", **about, "limit": limit}
            text = "draining %s: %s; what runs has up to %s"
            log.info(text, roles, why, durations.short_duration(limit), extra=first_line)
        self._phase, self._running.ending = "draining", True
        if failure is None:
            try:
                await asyncio.gather(*[actor.drain(limit) for actor in self._actors])
            except StoreUnavailableError as away:
                log.warning("could not give tasks back, a supervisor will free them: %s", away)
        await self._running.cancel()
        self._collecting.end()
        with contextlib.suppress(StoreUnavailableError):  # its heartbeat runs out by itself
            if self.number:
                await self.store.nodes.unregister(self.number)
        await self._let_go()
        if ran:
            took = now() - began
            last_line = {"event": "stopped", **about, "seconds": round(took, 3)}
            log.info("stopped %s after %s: %s", roles, durations.short_duration(took), why, extra=last_line)

    async def supervise_once(self, wait: float | None = None) -> Pass | None:
        """Take the Supervisor's lease, watch one interval, make one pass, and release the lease.

        Returns None when another Supervisor still leads after ``wait`` seconds (default: slightly more than
        the lease's length).
        """
        if self._owns_store:
            await self.store.open(migrate=self.options.migrate)
        try:
            supervisor = supervisor_of(self._parts)
            wait = self.options.number("lease") * 1.5 if wait is None else wait
            return await supervisor.single(wait, firings_of(self._parts, supervisor).once)
        finally:
            await self._let_go()

    async def _let_go(self) -> None:
        self._phase, self._running.ending = "stopped", True
        if self._parts.console is not None:
            await self._parts.console.end()
        await self.client.close()
        if self._parts.outbox is not None:
            await self._parts.outbox.close()
        if self._owns_store:
            await self.store.close()
        if self._parts.telemetry is not None:
            await self._parts.telemetry.end()

    # -- how it is -------------------------------------------------------------------------------------------

    @property
    def number(self) -> int:
        """The number under which this process is registered, 0 before it is."""
        return self._heartbeat.number

    def dead(self) -> str:
        """Return what of this process has died, "" when all of it lives.

        An unavailable store does not count.
        """
        return self._running.dead()

    def unready(self) -> str:
        """Return why this process is not ready, "" when it is ready.

        The reasons: "starting", "draining", "stopped", or that its last heartbeat did not reach the store.
        """
        if self._phase != "ready":
            return self._phase
        return "" if self._heartbeat.reaches() else "the store does not answer"

    def _infos(self) -> tuple[AgentInfo, ...]:
        """Return what is to be said of the agents that run here."""
        agents = self._agents
        return () if agents is None else agents.infos()

    def _sources(self) -> tuple[SourceInfo, ...]:
        """Return what is to be said of the places at brokers from which this process takes orders."""
        return tuple(relay.report.info() for relay in self._source_relays)

    def _senders(self) -> tuple[SenderInfo, ...]:
        """Return what is to be said of the brokers to which this process sends notices."""
        return () if self._notifier is None else self._notifier.senders()

    def leads(self) -> bool | None:
        """Return whether this process's Supervisor leads; None when the process runs no Supervisor."""
        supervisor = self._actor(Supervisor)
        return None if supervisor is None else supervisor.leading is not None

    @property
    def console(self) -> str:
        """Where this process serves the console, such as "http://127.0.0.1:8640"; "" if it does not."""
        return "" if self._parts.console is None else self._parts.console.address

    @property
    def console_link(self) -> str:
        """The console's address for a browser: with its token, if it has no users; "" if there is none.

        It belongs in no log.
        """
        return "" if self._parts.console is None else self._parts.console.link

    @property
    def _agents(self) -> Agents | None:
        """The agents that run the actions here, once started."""
        return self._actor(Agents)

    @property
    def _scheduler(self) -> Scheduler | None:
        """The Scheduler of this process, once started."""
        return self._actor(Scheduler)

    @property
    def _notifier(self) -> Notifier | None:
        """What sends webhooks from here, once started."""
        return self._actor(Notifier)

    @property
    def _source_relays(self) -> list[SourceRelay]:
        """What takes orders from brokers here, once started."""
        return [actor for actor in self._actors if isinstance(actor, SourceRelay)]

    def _actor(self, kind: type[A]) -> A | None:
        return next((actor for actor in self._actors if isinstance(actor, kind)), None)

    def _info(self) -> NodeInfo:
        scheduler = self._scheduler
        return NodeInfo(
            self.name,
            (*self.roles, "console") if self.console else self.roles,
            hostname(),
            os.getpid(),
            self.options.number("dead_after"),
            self._infos(),
            0 if scheduler is None else scheduler.count(),
            None if scheduler is None else scheduler.tally(),
            kinds=(*KINDS, LANE) if "scheduler" in self.roles else (),
            process=self._parts.process,
            sources=self._sources(),
            senders=self._senders(),
            is_successor=self._parts.has_own_name and self._heartbeat.registrations == 1,
        )

    def _renumber_actors(self, number: int) -> None:
        for actor in self._actors:
            actor.rename(number)


def _console(client: Client, listen: str | ConsoleOptions, clock: Clock) -> ServedConsole:
    """Return the console of a process. Raises ``ConfigError``, also if its extra is not installed."""
    options = ConsoleOptions(listen=listen) if isinstance(listen, str) else listen
    console: ServedConsole = import_part("makegood.console.server").ConsoleServer(client, options, clock)
    return console
