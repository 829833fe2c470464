"""The roles of a process: which roles it may have, and the actors that each role needs.

``actors_of`` is the one list of all actors. They start and are drained in its order: first those that bring
tasks in, then those that work on them, then those that watch and report.
"""

import logging
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from makegood.actor.actor import Actor
from makegood.agent.agents import Agents
from makegood.agent.circuit_alerts import Circuits
from makegood.agent.slots import Slots
from makegood.base.clock import Clock
from makegood.base.process_identity import ProcessIdentity
from makegood.brokers import BrokerAddress, Reader, Source, open_source
from makegood.brokers.address import covers
from makegood.channels import StoreChannel
from makegood.client.client import Client
from makegood.client.queues import queue_name
from makegood.declare.inbox import Inbox
from makegood.errors import ConfigError, DefinitionError
from makegood.messaging.alert_webhook import Webhook
from makegood.messaging.alerts import AlertSender
from makegood.messaging.hosts import Hosts
from makegood.messaging.inbox import Inboxes
from makegood.messaging.leader_watch import LeaderWatch
from makegood.messaging.notifier import Notifier
from makegood.messaging.outbox import Outbox
from makegood.messaging.relay import Relay
from makegood.messaging.source_messages import SourceMessages
from makegood.messaging.source_relay import BATCH, SourceRelay
from makegood.messaging.source_report import SourceReport
from makegood.model.breaker import Circuit
from makegood.model.schedule import ScheduleDraft
from makegood.node.heartbeat import Heartbeat
from makegood.options import Options
from makegood.scheduler.scheduler import Scheduler
from makegood.store import Store
from makegood.supervisor.chores import Chores
from makegood.supervisor.deaths import Deaths
from makegood.supervisor.firings import Firings
from makegood.supervisor.janitor import Janitor
from makegood.supervisor.supervisor import LEASE, Supervisor
from makegood.telemetry.hooks import Observer
from makegood.workflow.app import App

log = logging.getLogger("makegood.node")

ROLES = ("scheduler", "agent", "supervisor")
"""The roles of a process by default, with "inbox" where the app declares any inbox."""


class ServedConsole(Protocol):
    """A console that this process serves."""

    address: str
    """Where it listens, "" if it does not."""
    link: str
    """The address to open: with its token, if it has no users."""

    async def begin(self) -> None:
        """Listen."""

    async def end(self) -> None:
        """End."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the actors of one process have in common."""

    name: str
    roles: tuple[str, ...]
    store: Store
    client: Client
    options: Options
    slots: Mapping[str, Slots]
    """Of the agents that run here, by address."""
    inboxes: Sequence[Inbox[Any]]
    schedules: Sequence[ScheduleDraft]
    """Those that the app declares."""
    outbox: Outbox | None
    source: BrokerAddress | None
    """Where the operator lets this process take orders from, besides the sources of the app's inboxes."""
    clock: Clock
    rng: random.Random
    telemetry: Observer | None
    process: ProcessIdentity | None = None
    """Which process this is, if it can be known."""
    has_own_name: bool = False
    """Whether its operator gave it its name."""
    console: ServedConsole | None = None
    setups: Mapping[str, Any] | None = None
    """Values in place of the app's setups of these names."""


def actors_of(parts: Parts, heartbeat: Heartbeat) -> list[Actor]:
    """Return the actors of a process, wired together. Raises ``ConfigError``."""
    agents = _agents(parts)
    every = (
        heartbeat,
        _relay(parts),
        *_source_relays(parts),
        _inboxes(parts),
        agents,
        _scheduler(parts, agents),
        _circuits(parts, agents, heartbeat),
        _notifier(parts),
        *_supervision(parts, heartbeat),
        _alert_sender(parts),
        _leader_watch(parts),
    )
    return [actor for actor in every if actor is not None]


async def declare_schedules(parts: Parts) -> None:
    """Write the schedules that the app declares, where they are not stored as they are."""
    if not parts.schedules:
        return
    try:
        outcomes = await parts.store.schedules.apply([await draft.seal() for draft in parts.schedules])
    except ConfigError as denial:  # a role of few rights works without: another process writes them
        log.warning(
            "schedules of %s are not written from here, see `makegood schedule apply`: %s", parts.name, denial
        )
        return
    for draft, outcome in zip(parts.schedules, outcomes, strict=True):
        if outcome != "same":
            log.info("schedule %s/%s is %s", draft.spec.app, draft.spec.name, outcome)


def _relay(parts: Parts) -> Relay | None:
    options = parts.options
    if parts.outbox is None:
        return None
    most, most_bytes = options.queue_limit, options.size("queue_bytes")
    poll = min(0.5, options._poll_seconds or 0.5)
    return Relay(parts.store, parts.outbox, most=most, most_bytes=most_bytes, rng=parts.rng, poll=poll)


def _source_relays(parts: Parts) -> list[SourceRelay]:
    """Return the relays from brokers: of the app's inboxes, and of the source that the operator names."""
    options = parts.options
    targets = options._broker_targets
    places = Hosts.of(options).places
    sources = {inbox.source: inbox for inbox in parts.inboxes if inbox.source is not None}
    relays: list[SourceRelay] = []
    for address in dict.fromkeys([*sources, *([parts.source] if parts.source is not None else [])]):
        inbox = sources.get(address)
        queue = queue_name(address.queue)
        messages = SourceMessages(
            address,
            queue,
            parts.rng,
            codec=None if inbox is None else inbox.registry.codec,
            identify=None if inbox is None else inbox.identify,
            may_reply=lambda place: any(covers(pattern, place) for pattern in places),
        )

        def source(group: str, address: BrokerAddress = address) -> Source:
            return open_source(address, targets, Reader(group, parts.name, BATCH))

        relays.append(
            SourceRelay(
                parts.store,
                source,
                messages,
                SourceReport(parts.store, address, queue, parts.clock, parts.telemetry),
                most=options.queue_limit,
                most_bytes=options.size("queue_bytes"),
                rng=parts.rng,
            )
        )
    return relays


def _inboxes(parts: Parts) -> Inboxes | None:
    if "inbox" not in parts.roles:
        return None
    hosts = Hosts.of(parts.options)
    # Without a Scheduler here, those that send may have hosts and brokers that this process was not told of.
    refuse = partial(hosts.check, sends="scheduler" in parts.roles)
    parts.client.submitter.only_to(refuse)
    return Inboxes(
        parts.store, parts.inboxes, name=parts.name, clock=parts.clock, rng=parts.rng, poll=parts.options._poll_seconds,
        telemetry=parts.telemetry, refuse=refuse,
    )  # fmt: skip


def _agents(parts: Parts) -> Agents | None:
    if "agent" not in parts.roles:
        return None
    return Agents(
        StoreChannel(parts.store),
        parts.slots,
        lambda: parts.store.identity,
        clock=parts.clock,
        rng=parts.rng,
        poll=parts.options._poll_seconds,
        beside_scheduler="scheduler" in parts.roles,
        observe=None if parts.telemetry is None else parts.telemetry.answering,
        alerts=parts.store.alerts,
        setups=parts.setups,
    )


def _circuits(parts: Parts, agents: Agents | None, heartbeat: Heartbeat) -> Circuits | None:
    if agents is None or all(slots.circuit is None for slots in parts.slots.values()):
        return None
    circuits = Circuits(
        parts.store, list(parts.slots.values()), heartbeat.publish, lambda: heartbeat.number,
        clock=parts.clock, rng=parts.rng,
    )  # fmt: skip
    agents.on_change, agents.inform = circuits.note_change, circuits.inform
    return circuits


def _scheduler(parts: Parts, agents: Agents | None) -> Scheduler | None:
    if "scheduler" not in parts.roles:
        return None
    options = parts.options
    scheduler = Scheduler(
        parts.store,
        agents,
        clock=parts.clock,
        rng=parts.rng,
        hold=options.max_tasks,
        memory=options.size("max_task_memory"),
        claim=options.claim_batch,
        linger=options.number("linger"),
        poll=options._poll_seconds,
        on_end=parts.client.waiters.came_to_rest,
        watch=None if parts.telemetry is None else parts.telemetry.watch,
    )
    parts.client._beside(scheduler)  # noqa: SLF001 - no user may call it
    if agents is not None:
        agents.deliver = scheduler.tasks.deliver
    return scheduler


def _notifier(parts: Parts) -> Notifier | None:
    if "scheduler" not in parts.roles:
        return None
    notifier = Notifier.of(
        parts.store, parts.options, clock=parts.clock, rng=parts.rng, telemetry=parts.telemetry
    )
    parts.client.submitter.only_to(notifier.shares.hosts.check)
    return notifier


def supervisor_of(parts: Parts, heartbeat: Heartbeat | None = None) -> Supervisor:
    """Return a Supervisor, whatever the roles are. ``heartbeat``: of its process, None if it has none."""
    contact = None if heartbeat is None else heartbeat.contact
    return Supervisor(
        parts.store, parts.options, me=parts.name, clock=parts.clock, rng=parts.rng, contact=contact
    )


def _supervision(parts: Parts, heartbeat: Heartbeat) -> list[Actor]:
    """Return a Supervisor, and the actors that work while it leads: they mark processes that are certainly
    dead, remove rows that are old or too many, work off acts on many tasks, and fire schedules.
    """
    if "supervisor" not in parts.roles:
        return []
    store, options, rng, supervisor = parts.store, parts.options, parts.rng, supervisor_of(parts, heartbeat)
    every = options.number("supervise_every")

    def leads() -> bool:
        return supervisor.leading is not None

    janitor = Janitor(
        store,
        keep=None if options.retention is None else options.number("retention"),
        sweep=options.number("cleanup_every"),
        most=options.queue_limit,
        most_bytes=options.size("queue_bytes"),
        leads=leads,
        rng=rng,
        every=every,
    )
    chores = Chores(store, leads=leads, rng=rng, every=every)
    actors: list[Actor] = [supervisor, janitor, chores, firings_of(parts, supervisor)]
    if parts.process is not None:
        life, clock = options.number("dead_after"), parts.clock
        actors.insert(1, Deaths(store, parts.process, supervisor.hurry, life=life, clock=clock, rng=rng))
    return actors


def firings_of(parts: Parts, supervisor: Supervisor) -> Firings:
    """Return what fires schedules in the terms of a Supervisor."""
    return Firings(
        parts.store,
        lambda: supervisor.leading,
        supervisor.leads,
        clock=parts.clock,
        rng=parts.rng,
        every=parts.options.number("supervise_every"),
    )


def _alert_sender(parts: Parts) -> AlertSender | None:
    """Return the actor that reports alerts, None in a process without a Scheduler or Supervisor."""
    options = parts.options
    if options.alerts_every is None or not {"scheduler", "supervisor"} & set(parts.roles):
        return None
    url = options.alert_webhook
    webhook = None if url is None else Webhook(url, options.secrets, clock=parts.clock)
    if webhook is not None and not options.secrets:  # right for a chat; elsewhere the secret was forgotten
        log.info("alerts are posted to alert_webhook unsigned: alert_secret is not set")
    return AlertSender(parts.store, webhook, pause=options.number("alerts_every"), rng=parts.rng)


def _leader_watch(parts: Parts) -> LeaderWatch | None:
    """Return the actor that raises the alert about a missing leader.

    It runs in every process, because a leader cannot notice its own absence.
    """
    if parts.options.leaderless_after is None:
        return None
    after = parts.options.number("leaderless_after")
    return LeaderWatch(parts.store, LEASE, after=after, clock=parts.clock, rng=parts.rng)


def roles_of(roles: Iterable[str] | None, app: App | None, *, relays: bool) -> tuple[str, ...]:
    """Return the roles that a process runs. Raises ``ConfigError`` for roles that it cannot have."""
    if isinstance(roles, str):
        raise ConfigError(f"roles={roles!r}: a tuple of names, roles=({roles!r},)")
    if roles is None:
        roles = ROLES if app is None or not app.inboxes else (*ROLES, "inbox")
    names = tuple(dict.fromkeys([*roles, *(["relay"] if relays else [])]))
    unknown = [role for role in names if role not in (*ROLES, "inbox", "relay")]
    if "relay" in names and not relays:
        raise ConfigError(
            "the role 'relay' needs the outbox or the broker from which it carries: Node(..., outbox=URL)"
        )
    if unknown or not names:
        raise ConfigError(f"roles={names!r}: any of {', '.join(ROLES)} and inbox, at least one")
    if "agent" in names and app is None:
        raise ConfigError(
            "the role 'agent' runs actions and needs the app that declares them: Node(app, ...)"
        )
    if "inbox" in names and (app is None or not app.inboxes):
        raise ConfigError(
            "the role 'inbox' needs an app that declares one: @app.inbox(\"orders\") above the function that takes its messages"
        )
    return names


def slots_of(app: App, agents: Sequence[str] | None, slots: int | None) -> dict[str, Slots]:
    """Return the slots of an app's agents (default: all), by address. Raises ``DefinitionError``."""
    names = list(app.agents) if agents is None else list(agents)
    by_agent: dict[str, Slots] = {}
    for name in names:
        agent = app.agents.get(name)
        if agent is None:
            raise DefinitionError(
                f"app {app.name!r} declares no agent {name!r}; it has {', '.join(app.agents) or 'none'}"
            )
        actions = {
            alias: action for action in agent.actions.values() for alias in (action.name, *action.formerly)
        }
        for action in agent.actions.values():
            action._fit()  # an annotation that cannot be used is refused here, not found out by a step
            action._setups()  # and so is a setup that nobody declares
        address = f"{app.name}/{name}"
        size = slots or agent.concurrency
        circuit = None if agent.breaker is None else Circuit(agent.breaker, size)
        by_agent[address] = Slots(address, actions, size, circuit, agent.rate)
    return by_agent


def setups_given(app: App | None, setups: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the values in place of setups. Raises ``ConfigError`` for a name that the app does not have."""
    names = {} if app is None else app.setups
    if unknown := [name for name in setups or {} if name not in names]:
        raise ConfigError(
            f"setups={{{unknown[0]!r}: ...}}: the app declares no setup of this name; it has {', '.join(names) or 'none'}"
        )
    return setups or {}
