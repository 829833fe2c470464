"""Drafts and hand-made Decisions: what a Scheduler would make of its rules, without any rules.

``Hand`` plays a Scheduler: it claims, remembers tasks as it left them, and commits Decisions built here. The builders
return plain ``Decision``s of one remembered task; nothing checks that they are wise.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from msgspec.structs import replace

from makegood.election.protocol import Grant
from makegood.model.decision import Decision, OpenDecision
from makegood.model.messages import Request, TaskMessage
from makegood.model.plan import StepPlan, Template
from makegood.model.policy import Policy
from makegood.model.shape import HeldTask, Shape
from makegood.model.states import UNBEGUN, Move, TaskState
from makegood.model.task import Doing, Step, TaskRecord
from makegood.store.protocol import Store
from makegood.store.records import NO_LIMIT, Batch, Claim, Committed, Loaded, Offer, Submission
from makegood.store.views import AgentInfo, NodeInfo

ARGS = b'{"order":{"id":"o-1","cents":1299}}'
VALUE = b'{"ok":true}'
UNENCODABLE = "\ud800"
"""A text that no database takes: a lone surrogate."""
PAYMENTS = "shop/payments"


def steps(count: int = 3, *, within: float = 30.0, agent: str = "payments") -> Shape:
    """Return a sequence of action steps s0, s1, … of one agent."""
    return Shape(
        StepPlan(
            n,
            "action",
            f"s{n}",
            agent,
            f"act{n}",
            Template((ARGS.decode(),)),
            (n - 1,) if n else (),
            policy=Policy(within=within),
        )
        for n in range(count)
    )


WAITS: Final = (("approval", ""), ("payment", ""))
"""The ``signals`` of a submission whose steps wait for these, now or later."""


def draft(id_: int, **changes: Any) -> Submission:
    """Return a submission of three steps; ``changes`` are fields of ``Submission``."""
    if "steps" in changes:
        changes["steps"] = Shape.of(changes["steps"])
    return replace(
        Submission(id_, "shop", "place_order", steps(), (b'{"id":"o-1"}',), Template(('"fine"',)), b"print"),
        **changes,
    )


def info(
    name: str = "node", roles: tuple[str, ...] = ("scheduler",), ttl: float = 60.0, **changes: Any
) -> NodeInfo:
    """Return what a process says of itself."""
    return NodeInfo(name, roles, "host", 1, ttl, **changes)


async def scheduler(store: Store, ttl: float = 60.0) -> int:
    """Register a process with a Scheduler; returns its number."""
    return await store.nodes.register(info("scheduler", ("scheduler",), ttl))


async def agent(store: Store, ttl: float = 60.0, roles: tuple[str, ...] = ("agent",)) -> int:
    """Register a process with the payments agent; returns its number."""
    return await store.nodes.register(info("agent", roles, ttl, agents=(AgentInfo(PAYMENTS, 4),)))


def offer(slots: int = 10, actions: tuple[str, ...] = ("act0", "act1", "act2"), to: str = PAYMENTS) -> Offer:
    """Return what an agent offers."""
    return Offer(to, actions, slots)


async def term(store: Store, name: str = "supervisor", holder: str = "me", ttl: float = 60.0) -> Grant:
    """Take the lease of the Supervisors; it must be free."""
    grant = await store.leases.acquire(name, holder, f"nonce of {holder}", ttl)
    assert grant is not None
    return grant


@dataclass
class Memory:
    """A task as a Scheduler remembers it."""

    task: TaskRecord
    steps: dict[int, Step]
    messages: list[TaskMessage] = field(default_factory=list)

    @property
    def id(self) -> int:
        """The task's id."""
        return self.task.id


def request(memory: Memory, idx: int, doing: Doing = "do", **changes: Any) -> Request:
    """Return the request of a step's next attempt."""
    step = memory.steps[idx]
    return replace(
        Request(
            memory.id,
            idx,
            doing,
            step.attempt + 1,
            memory.task.app,
            step.plan.agent,
            step.plan.action,
            step.name,
            step.round,
            step.plan.policy.within if step.plan.policy else 30.0,
            ARGS,
            memory.task.priority,
        ),
        **changes,
    )


def unchanged(memory: Memory) -> OpenDecision:
    """Return a Decision that changes nothing."""
    return OpenDecision(memory.task, memory.task)


def begin(memory: Memory, idx: int = 0, decision: OpenDecision | None = None, **changes: Any) -> OpenDecision:
    """Send the request of a step; ``changes`` are fields of ``Request``. Adds to ``decision`` when there is one."""
    builder = decision or unchanged(memory)
    sending = request(memory, idx, **changes)
    before = builder.steps.get(idx, memory.steps[idx])
    state = "undoing" if sending.doing == "undo" else "running"
    builder.steps[idx] = replace(
        before, state=cast("Any", state), attempt=sending.attempt, doing=sending.doing
    )
    builder.requests.append(sending)
    builder.moves.append(Move(before.name, before.state, state, "asked"))
    if builder.task.state in UNBEGUN:
        builder.moves.append(Move("task", builder.task.state, "processing", "claimed"))
        builder.task = replace(builder.task, state="processing")
    return builder


def done(
    memory: Memory, idx: int = 0, decision: OpenDecision | None = None, value: bytes = VALUE
) -> OpenDecision:
    """Use up the reply to a step's attempt: it is done."""
    builder = decision or unchanged(memory)
    step = memory.steps[idx]
    builder.used_requests.append((idx, step.attempt))
    builder.steps[idx] = replace(step, state="done", doing=None, result=value)
    builder.moves.append(Move(step.name, step.state, "done", "reply"))
    return builder


def to_state(
    memory: Memory,
    state: TaskState,
    decision: OpenDecision | None = None,
    *,
    release: bool | None = None,
    **changes: Any,
) -> OpenDecision:
    """Move the task; at rest and in pending it is released unless ``release`` says otherwise."""
    builder = decision or unchanged(memory)
    rests = state in Move("processed", "undone", "error", "pending") or state in ("sleeping", "queued")
    builder.moves.append(Move("task", builder.task.state, state, "by_hand"))
    builder.task = replace(builder.task, state=state, **changes)
    builder.release = rests if release is None else release
    return builder


Make = Callable[[Memory], Decision]


@dataclass
class Hand:
    """A Scheduler by hand: ``tasks`` as its commits left them, ``committed`` what came of the last one."""

    store: Store
    node: int
    tasks: dict[int, Memory] = field(default_factory=dict)
    committed: Committed = field(default_factory=Committed)
    seen: list[Loaded] = field(default_factory=list)

    async def claim(
        self,
        limit: int = 100,
        make: Make = begin,
        *,
        at_rest: Sequence[int] = (),
        decisions: Sequence[Decision] = (),
        local: bool = False,
        room: int = NO_LIMIT,
        sleepers: bool = False,
        queued: bool = False,
    ) -> list[int]:
        """Claim tasks and write what ``make`` decides; returns their ids in the order in which they came."""
        batch = Batch(self.node, decisions, claim=Claim(limit, tuple(at_rest), room, sleepers, queued))

        def decide(snapshots: Sequence[Loaded]) -> list[tuple[HeldTask, Decision]]:
            self.seen = list(snapshots)
            pairs: list[tuple[HeldTask, Decision]] = []
            for each in snapshots:
                memory = Memory(each.task, {s.idx: s for s in each.steps}, each.messages)
                decision = make(memory)
                if local:
                    decision.handovers = decision.requests
                pairs.append((cast("HeldTask", memory), decision))
            return pairs

        batch.decide = decide
        return await self._commit(batch)

    async def commit(self, *decisions: Decision, local: Sequence[tuple[int, int, int]] = ()) -> Committed:
        """Commit Decisions; those that were not lost are remembered."""
        for decision in decisions:
            decision.handovers = [r for r in decision.requests if (r.task, r.idx, r.attempt) in local]
        await self._commit(Batch(self.node, decisions))
        return self.committed

    async def _commit(self, batch: Batch) -> list[int]:
        self.committed = outcome = await self.store.tasks.commit(batch)
        losers = outcome.losses | {task for task, _ in outcome.rejections}
        for decision in batch.decisions:
            if decision.task.id not in losers:
                _apply(self.tasks[decision.task.id], decision)
        for memory_, decision in outcome.claims:
            memory = cast("Memory", memory_)
            self.tasks[memory.id] = memory
            _apply(memory, decision)
        return [decision.task.id for _, decision in outcome.claims]

    def __getitem__(self, task: int) -> Memory:
        """Return a task as it is remembered."""
        return self.tasks[task]


def _apply(memory: Memory, decision: Decision) -> None:
    memory.task = decision.task
    memory.steps |= decision.steps
    memory.steps |= {s.idx: s for s in decision.new_steps}


async def hand(store: Store, *, ttl: float = 60.0) -> Hand:
    """Register a Scheduler by hand."""
    return Hand(store, await scheduler(store, ttl))


async def running(store: Store, *ids: int, local: bool = False, **changes: Any) -> Hand:
    """Submit tasks, claim them and send their first request; ``changes`` are fields of ``Submission``."""
    scheduler = await hand(store)
    await store.tasks.submit([draft(id_, **changes) for id_ in ids])
    assert sorted(await scheduler.claim(len(ids), local=local)) == sorted(ids)
    return scheduler


def reply(request: Request, kind: Any = "done", **changes: Any) -> tuple[int, TaskMessage]:
    """Return an agent's reply to a request, with the task that it is for."""
    value = VALUE if kind == "done" else None
    message = TaskMessage(kind, request.idx, request.doing, request.attempt, value)
    return request.task, replace(message, **changes)
