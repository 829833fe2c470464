"""A Node: one process, or part of a user's, that runs a chosen set of roles on one store.

It opens the store, registers a node row, sends heartbeats, starts the actors, wires those of one process together (so
that a Scheduler hands requests to its own agents in memory), and drains them in order when it is to stop: claim and
take nothing more, let what runs finish, give the rest back.

A process that was stopped for longer than its heartbeat lasts learns from its next heartbeat that it was declared dead.
It then goes on under a new number: what it held belongs to others, and what it still writes is refused by the fences.
"""

import asyncio
import contextlib
import logging
import os
import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from makegood.actor.setbacks import Setbacks
from makegood.agent.agents import Agents
from makegood.agent.circuit_alerts import Circuits
from makegood.base import durations
from makegood.base.clock import Clock, SystemClock
from makegood.base.text import hostname, refuse_unstorable, session_name
from makegood.channels import StoreChannel
from makegood.client.client import Client
from makegood.errors import ConfigError, StoreUnavailableError
from makegood.messaging.alert_webhook import Webhook
from makegood.messaging.alerts import Teller
from makegood.messaging.inbox import Inboxes
from makegood.messaging.leader_watch import LeaderWatch
from makegood.messaging.notifier import Notifier
from makegood.messaging.outbox import Outbox, open_outbox
from makegood.messaging.relay import Relay
from makegood.model.shape import Held
from makegood.model.task import Step
from makegood.node.gc_tuning import Collecting
from makegood.node.loop_lag import Lateness
from makegood.node.roles import _roles, _slots
from makegood.node.signals import Signals
from makegood.options import Options
from makegood.scheduler.scheduler import Scheduler
from makegood.store import Store, open_store, store_given
from makegood.store.views import AgentInfo, NodeInfo, StepView, TaskView
from makegood.supervisor.janitor import Janitor
from makegood.supervisor.supervisor import LEASE, Pass, Supervisor
from makegood.telemetry.hooks import Observer
from makegood.workflow.app import App

log = logging.getLogger("makegood.node")


class Node:
    """Runs roles: ``async with Node(app, "sqlite:///shop.db") as node: ...``, or ``await Node(...).run()`` as a process.

    ``app`` is needed for the roles "agent" and "inbox"; ``agents`` names those of its agents to run here (default: all).
    ``roles``: default all that there are, "inbox" where the app declares one.
    ``store`` is a URL (default: MAKEGOOD_STORE, else ``sqlite:///makegood.db``) or a store that the caller opened.
    ``outbox``: URL of another database, from whose outbox orders are carried into queues of the store: the role "relay".
    ``options``: see ``Options``. ``telemetry``: who watches, such as ``makegood.telemetry.Telemetry(...)``. ``client`` submits to the
    same store from this process.
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
    ) -> None:
        refuse_unstorable(ConfigError, name=name)
        self.options = options or Options()
        self._outbox: Outbox | None = None if outbox is None else open_outbox(outbox)
        self.roles = _roles(roles, app, relays=outbox is not None)
        self.name = name or f"{hostname()}-{os.getpid()}"
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()
        self._owned = store is None or isinstance(store, str)
        self._telemetry = telemetry
        self.store: Store = (
            open_store(store, clock=self._clock, session=session_name(" ".join(self.roles), self.name))
            if store is None or isinstance(store, str)
            else store_given(store)
        )
        if telemetry is not None:
            self.store = telemetry.watched(self.store)
        self._slots = (
            _slots(app, agents, self.options.slots) if "agent" in self.roles and app is not None else {}
        )
        self.number = 0
        self.client = Client(
            self.store,
            queue_limit=self.options.queue_limit,
            queue_bytes=self.options.queue_bytes,
            clock=self._clock,
            rng=self._rng,
            telemetry=telemetry,
        )
        self.scheduler: Scheduler | None = None
        self.agents: Agents | None = None
        self.circuits: Circuits | None = None
        self.supervisor: Supervisor | None = None
        self.notifier: Notifier | None = None
        self._janitor: Janitor | None = None
        self.inboxes: Inboxes | None = None
        self.relay: Relay | None = None
        self._declared = tuple(app.inboxes.values()) if "inbox" in self.roles and app is not None else ()
        self._tasks: list[asyncio.Task[None]] = []
        self._first: asyncio.Task[None] | None = None  # to die
        self._stop = asyncio.Event()
        self._failure: BaseException | None = None
        self._phase = "starting"
        self._reached: float | None = None
        self._collecting = Collecting()

    # -- life ----------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Open the store, register, start the roles."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drain and stop; raises what an actor died of, if one did."""
        await self.stop()
        if self._failure is not None and kind is None:
            raise self._failure

    async def start(self) -> None:
        """Open the store, register, start the roles. Raises what ``store.open`` raises; nothing is left running then."""
        if self._telemetry is not None:
            await self._telemetry.begin(self)
        try:
            if self._owned:
                await self.store.open(migrate=self.options.migrate)
            if self._outbox is not None:
                await self._outbox.open()
            await self.client.open()
            self._build()
            await self._register()
        except BaseException:
            await self._let_go()
            raise
        self._collecting.begin()
        self._spawn("heartbeat", self._beat())
        actors = (
            self.agents,
            self.scheduler,
            self.circuits,
            self.supervisor,
            self.notifier,
            self._janitor,
            self.inboxes,
            self.relay,
            *self._tellers(),
        )
        for actor in actors:
            if actor is not None:
                self._spawn(type(actor).__name__.lower(), actor.run())
        self._phase = "ready"

    async def run(self, started: Callable[[], None] | None = None) -> None:
        """Run as a process: until SIGTERM or SIGINT, or until an actor dies, whose error is then raised. The same signal once more,
        a second or longer after the first, kills the process without draining.

        ``started`` is called once the roles run and a signal would drain them.
        """
        await self.start()
        with Signals(self._stop.set) as signals:
            try:
                if started is not None:
                    started()
                await self._stop.wait()
            finally:
                await self.stop(signals.received)
        if self._failure is not None:
            raise self._failure

    async def stop(self, reason: str = "") -> None:
        """Drain: take nothing more, wait for what runs (at most ``drain`` seconds), give the rest back, close. ``reason``: why, for the
        log; by default that the program asks for it.
        """
        began, limit = self._clock.monotonic(), self.options.number("drain")
        ran, roles = self._phase == "ready", ", ".join(self.roles)
        about = {
            "reason": self.dead() or reason or "its program ends it",
            "roles": roles,
            "node": self.number,
        }
        if ran and self._failure is None:
            text = "draining %s: %s; what runs has up to %s"
            log.info(
                text,
                roles,
                about["reason"],
                durations.shown(limit),
                extra={"event": "draining", **about, "limit": limit},
            )
        self._phase = "draining"
        if self._failure is None:
            drains = [
                actor.drain(limit)
                for actor in (self.relay, self.inboxes, self.agents, self.scheduler, self.notifier)
                if actor is not None
            ]
            try:
                await asyncio.gather(*drains)
            except StoreUnavailableError as away:
                log.warning("could not give tasks back, a supervisor will free them: %s", away)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        self._collecting.end()
        with contextlib.suppress(StoreUnavailableError):  # its heartbeat runs out by itself
            if self.number:
                await self.store.unregister(self.number)
        await self._let_go()
        if ran:
            took = self._clock.monotonic() - began
            ended = {"event": "stopped", **about, "seconds": round(took, 3)}
            log.info("stopped %s after %s: %s", roles, durations.shown(took), about["reason"], extra=ended)

    async def supervise_once(self, wait: float | None = None) -> Pass | None:
        """Open the store, take the Supervisor's lease, watch one interval, make one pass, give the lease back.

        Returns None when another Supervisor still leads after ``wait`` seconds (default: the lease's length and a bit).
        """
        if self._owned:
            await self.store.open(migrate=self.options.migrate)
        try:
            supervisor = self._supervisor()
            return await supervisor.single(self.options.number("lease") * 1.5 if wait is None else wait)
        finally:
            await self._let_go()

    async def _let_go(self) -> None:
        self._phase = "stopped"
        await self.client.close()
        if self._outbox is not None:
            await self._outbox.close()
        if self._owned:
            await self.store.close()
        if self._telemetry is not None:
            await self._telemetry.end()

    # -- how it is -----------------------------------------------------------------------------------------------------------

    def dead(self) -> str:
        """Return what of this process has died, "" when all of it lives. That the store is away is no death."""
        ended = [
            task.get_name()
            for task in self._tasks
            if task.done() and (task is self._first or not task.cancelled())
        ]
        return f"{', '.join(ended)} has ended" if ended else ""

    def unready(self) -> str:
        """Return why this process is not ready, "" when it is: "starting", "draining", "stopped", or that its last heartbeat did not
        reach the store.
        """
        if self._phase != "ready":
            return self._phase
        reached = self._reached
        if reached is None or self._clock.monotonic() - reached > self.options.number("life"):
            return "the store does not answer"
        return ""

    def infos(self) -> tuple[AgentInfo, ...]:
        """Return what is to be said of the agents that run here."""
        return self.agents.infos() if self.agents is not None else ()

    def leads(self) -> bool | None:
        """Return whether this process's Supervisor leads; None when it runs none."""
        return None if self.supervisor is None else self.supervisor.leading is not None

    # -- building ----------------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        if "agent" in self.roles:
            self.agents = Agents(
                StoreChannel(self.store),
                self._slots,
                lambda: self.store.identity,
                clock=self._clock,
                rng=self._rng,
                poll=self.options.poll_seconds,
                beside_scheduler="scheduler" in self.roles,
                watched=None if self._telemetry is None else self._telemetry.answering,
                alerts=self.store,
            )
            if any(slots.circuit is not None for slots in self._slots.values()):
                self.circuits = Circuits(
                    self.store, list(self._slots.values()), self._publish, lambda: self.number,
                    clock=self._clock, rng=self._rng,
                )  # fmt: skip
                self.agents.changed = self.circuits.changed
        if "scheduler" in self.roles:
            self.scheduler = Scheduler(
                self.store,
                self.agents,
                clock=self._clock,
                rng=self._rng,
                hold=self.options.hold,
                memory=self.options.size("max_task_memory"),
                claim=self.options.claim,
                poll=self.options.poll_seconds,
                ended=self._ended,
                watch=None if self._telemetry is None else self._telemetry.watch,
            )
            self.client.beside(self.scheduler)
            if self.agents is not None:
                self.agents.deliver = self.scheduler.deliver
            self.notifier = Notifier.of(self.store, self.options, clock=self._clock, rng=self._rng)
            self.client.only_to(self.notifier.hosts)
        if "supervisor" in self.roles:
            self.supervisor = self._supervisor()
            self._janitor = self._sweeping(self.supervisor)
        if "inbox" in self.roles:
            poll = self.options.poll_seconds
            self.inboxes = Inboxes(
                self.store, self._declared, name=self.name, clock=self._clock, rng=self._rng, poll=poll,
                telemetry=self._telemetry,
            )  # fmt: skip

        if self._outbox is not None:
            self.relay = Relay(
                self.store,
                self._outbox,
                most=self.options.queue_limit,
                most_bytes=self.options.size("queue_bytes"),
                rng=self._rng,
                poll=min(0.5, self.options.poll_seconds or 0.5),
            )

    def _tellers(self) -> list[Teller | LeaderWatch]:
        """Return who tells people: of alerts where decisions are made, and everywhere that nobody leads."""
        options, found = self.options, list[Teller | LeaderWatch]()
        if options.tell is not None and {"scheduler", "supervisor"} & set(self.roles):
            url = options.alert_webhook
            webhook = None if url is None else Webhook(url, options.secrets, clock=self._clock)
            if (
                webhook is not None and not options.secrets
            ):  # right for a chat; elsewhere the secret was forgotten
                log.info("alerts are posted to alert_webhook unsigned: alert_secret is not set")
            found.append(Teller(self.store, webhook, pause=options.number("tell"), rng=self._rng))
        if options.leaderless is not None:
            after = options.number("leaderless")
            found.append(LeaderWatch(self.store, LEASE, after=after, clock=self._clock, rng=self._rng))
        return found

    def _sweeping(self, supervisor: Supervisor) -> Janitor:
        """Return who removes what is old or too much, as long as this process leads."""
        options = self.options
        return Janitor(
            self.store,
            keep=None if options.keep is None else options.number("keep"),
            sweep=options.number("sweep"),
            most=options.queue_limit,
            most_bytes=options.size("queue_bytes"),
            leads=lambda: supervisor.leading is not None,
            rng=self._rng,
        )

    def _supervisor(self) -> Supervisor:
        return Supervisor(self.store, self.options, me=self.name, clock=self._clock, rng=self._rng)

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"{self.name} {name}")
        task.add_done_callback(self._died)
        self._tasks.append(task)

    def _died(self, task: asyncio.Task[None]) -> None:
        """An actor that ends by itself takes the node with it: half a node would look alive and do nothing."""
        if self._failure is not None:
            return
        if task.cancelled():
            if self._phase in ("draining", "stopped"):
                return
            self._failure = RuntimeError(f"{task.get_name()} was cancelled, and not by its node")
        elif (failure := task.exception()) is not None:
            self._failure = failure
        else:
            return
        self._first = task
        log.critical("%s died; the node stops and others take over", task.get_name(), exc_info=self._failure)
        for other in self._tasks:
            other.cancel()
        self._stop.set()

    # -- heartbeat -------------------------------------------------------------------------------------------------------

    def _info(self) -> NodeInfo:
        return NodeInfo(
            self.name,
            self.roles,
            hostname(),
            os.getpid(),
            self.options.number("life"),
            self.infos(),
            self.scheduler.held() if self.scheduler is not None else 0,
        )

    async def _register(self) -> None:
        self.number = await self.store.register(self._info())
        self._reached = self._clock.monotonic()
        if self.agents is not None:
            self.agents.renamed(self.number)
        if self.scheduler is not None:
            self.scheduler.renamed(self.number)
        if self.notifier is not None:
            self.notifier.node = self.number

    async def _beat(self) -> None:
        pause = self.options.number("heartbeat")
        lateness, setbacks = Lateness(), Setbacks("heartbeat", self.store, self._rng)
        while True:
            rest, began = pause * self._rng.uniform(0.9, 1.0), self._clock.monotonic()
            await asyncio.sleep(rest)
            lateness.slept(rest, began, self._clock.monotonic())
            try:
                if not await self._publish():
                    await self._register()
                if self._reached is None:
                    log.info("the store is back: the heartbeat goes on")
                self._reached = self._clock.monotonic()
                if setbacks.count:
                    await setbacks.over()
            except StoreUnavailableError as away:
                if self._reached is not None:
                    log.warning("no heartbeat until the store is back: %s", away)
                self._reached = None
            except Exception as defect:  # noqa: BLE001 - others would take a process for dead that works
                await asyncio.sleep(await setbacks.met(defect))

    async def _publish(self) -> bool:
        return await self.store.heartbeat(self.number, self._info())

    def _ended(self, held: Held) -> None:
        task = held.task
        if self.client.waits_for(task.id):
            view = TaskView(
                task.id, task.app, task.workflow, task.key, task.state, task.goal, task.submission, task.priority, task.cause,
                task.failure_count, None, task.epoch, None, 0.0, None, None, task.result,
            )  # fmt: skip
            self.client.ended(view, None if task.state == "processed" else [_shown(s) for s in held.steps])


def _shown(step: Step) -> StepView:
    """Return a step that rests as one who waits for its task's end is told of it."""
    plan, policy = step.plan, step.plan.policy
    return StepView(
        plan.idx, plan.kind, plan.name, plan.agent, plan.action, step.state, step.attempt, step.round, step.failures, step.doubt,
        policy is not None and policy.undoable, error=step.error, plan=plan, stood=step.stood,
    )  # fmt: skip
