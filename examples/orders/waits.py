"""Says in one line what open orders wait for, so that a wait of many seconds never looks like a fault.

Everything is read from the store's rows: requests and their deadlines, locks, messages of the queue, and the circuits that
agents publish. Nothing is guessed from the faults and the kills that the demo itself makes.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from makegood import Client, StoreUnavailableError
from makegood.base.counts import quantity
from makegood.base.durations import brief
from makegood.model.breaker import SHUT
from makegood.store.queue_records import MessageView
from makegood.store.views import AgentInfo, Filter, NodeView, StepBrief, TaskView
from makegood.story.waits import listens

from .customers import Customers
from .processes import REGISTERED, Place, State

QUEUE: Final = "orders"
"""The queue of the submission process."""
STILL: Final = 3.0
"""Seconds in which hardly an order has ended, after which the line appears."""
FEW: Final = 20
"""Fewer than one in so many of those under way is hardly one."""
READ_EVERY: Final = 1.0
"""Seconds between two readings of the rows."""
MOST: Final = 2
"""Reasons in a line, those of most orders first."""
MOST_NAMES: Final = 3
AWAY: Final = "the store does not answer"


@dataclass(frozen=True, slots=True)
class Rows:
    """What was read at a moment. ``orders``: accepted orders whose end the shop does not know, by id; None: it has no task."""

    orders: Mapping[str, TaskView | None]
    steps: Mapping[int, Sequence[StepBrief]]
    nodes: Sequence[NodeView]
    messages: Sequence[MessageView]
    led: bool
    """Whether a Supervisor leads."""
    starting: Sequence[str] = ()
    """Places whose process runs, and has not registered yet."""
    broker: str = ""
    """The broker that orders come through, "" for none."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A reason. ``key`` makes orders with the same reason one group; ``words`` take their number, "1 order" or "3 orders"."""

    key: str
    words: Callable[[int], str]
    left: float | None = None
    """Seconds until something happens; of a group, the fewest."""


class Waits:
    """Follows the orders, and reads the rows once hardly one has ended for a while, or while a circuit is open."""

    def __init__(
        self,
        client: Client,
        customers: Customers,
        places: Mapping[str, Place],
        clock: Callable[[], float] = time.monotonic,
        *,
        broker: str = "",
    ) -> None:
        self.line = ""
        """What open orders wait for; "" while orders end."""
        self._client = client
        self._customers = customers
        self._places = places
        self._clock = clock
        self._broker = broker
        self._ended = 0
        self._since = clock()
        self._read = self._since - READ_EVERY

    async def look(self, *, has_leader: bool) -> str:
        """Return the line of this moment."""
        outcomes, now = self._customers.told, self._clock()
        count = sum(bool(one.outcome) for one in outcomes.values())
        left = len(outcomes) - count
        if count - self._ended > left // FEW or not left:
            self._ended, self._since = count, now
        if not left:
            self.line = ""
        elif now - self._read >= READ_EVERY:
            self._read = now
            await self._refresh(has_leader=has_leader, still=now - self._since >= STILL)
        return self.line

    async def _refresh(self, *, has_leader: bool, still: bool) -> None:
        try:
            nodes = await self._client.store.nodes.views()
            shut = any(agent.circuit in SHUT for node in _living(nodes) for agent in node.info.agents)
            self.line = line_of(await self._rows(nodes, has_leader=has_leader)) if still or shut else ""
        except StoreUnavailableError:
            self.line = AWAY if still else ""

    async def _rows(self, nodes: Sequence[NodeView], *, has_leader: bool) -> Rows:
        store = self._client.store
        views = await self._customers.under_way()
        orders: dict[str, TaskView | None] = {
            name: None for name, one in self._customers.told.items() if not one.outcome
        }
        orders.update((view.key or "", view) for view in views)
        if None in orders.values():  # these have ended, or have no task yet
            newest = await self._client.find(Filter(workflow="place_order", limit=1000))
            orders.update(
                (view.key or "", view) for view in newest if orders.get(view.key or "", view) is None
            )
        steps = await store.tasks.briefs([view.id for view in views])
        messages = await store.queues.messages(QUEUE, len(orders))
        starts = _starting(self._places.values(), nodes)
        return Rows(orders, steps, nodes, messages, has_leader, starts, self._broker)


def line_of(rows: Rows) -> str:
    """Return what most of the orders wait for, in one line; "" if they wait for nothing."""
    groups: dict[str, tuple[Wait, set[str]]] = {}
    for order, view in rows.orders.items():
        for wait in _waits(order, view, rows):
            first, orders = groups.setdefault(wait.key, (wait, set()))
            if (wait.left or 0.0) < (first.left or 0.0):
                first = wait
            groups[wait.key] = (first, orders | {order})
    most = sorted(groups.values(), key=lambda group: -len(group[1]))
    reasons = [wait.words(len(orders)) for wait, orders in most[:MOST]]
    if len(most) > MOST:
        reasons.append(f"{quantity(len(most) - MOST, 'further reason')}")
    if rows.starting:
        reasons.append(f"{named(rows.starting)} {'is' if len(rows.starting) == 1 else 'are'} still starting")
    return "; ".join(reasons)


def _starting(places: Iterable[Place], nodes: Sequence[NodeView]) -> list[str]:
    pids = {node.info.pid for node in nodes}
    return [
        place.name
        for place in places
        if place.role in REGISTERED and place.state is State.RUNNING and place.pid not in pids
    ]


def named(names: Sequence[str]) -> str:
    """Return a list of names that fits into a line.

    >>> named(["shop"]), named(["a", "b"]), named(["a", "b", "c", "d", "e"])
    ('shop', 'a and b', 'a, b, c and 2 more')
    """
    if len(names) > MOST_NAMES:
        return f"{', '.join(names[:MOST_NAMES])} and {len(names) - MOST_NAMES} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def starting(missing: Sequence[str], count: int) -> str:
    """Return what the demo waits for before the first order.

    >>> starting(["scheduler-1", "payments-2"], 11)
    '2 of 11 processes are still starting: scheduler-1 and payments-2'
    """
    return f"{len(missing)} of {quantity(count, 'process')} {'is' if len(missing) == 1 else 'are'} still starting: {named(missing)}"


def _waits(order: str, view: TaskView | None, rows: Rows) -> list[Wait]:
    if view is None:
        return [_queued(order, rows)]
    if view.ended is not None:
        return [
            Wait(
                "ended",
                lambda n: (
                    f"{_orders(n)} ended, and the shop has yet to read that in its queue; what a killed reader had taken comes again"
                ),
            )
        ]
    steps = rows.steps.get(view.id, ())
    if answers := [_answer(step) for step in steps if listens(step)]:
        return answers
    if view.locked_by is None and not _runs("scheduler", rows):
        return [Wait("pending", lambda n: f"{_wait(n)} for a Scheduler, and none is alive")]
    if view.locked_by is None:
        return [Wait("pending", lambda n: f"{_wait(n)} for a Scheduler to claim {_them(n)}")]
    holder = next((node for node in rows.nodes if node.id == view.locked_by), None)
    if holder is None or holder.state != "alive":
        return [_orphaned(holder, rows)]
    requests = [step for step in steps if step.doing is not None]
    waits = [_request(view.app, step, rows) for step in requests]
    return waits or [
        Wait(f"held {holder.id}", lambda n: f"{_wait(n)} for {holder.info.name} to continue {_them(n)}")
    ]


def _queued(order: str, rows: Rows) -> Wait:
    message = next((one for one in rows.messages if one.message.id == order), None)
    if message is None and rows.broker:
        return Wait("broker", lambda n: f"{_wait(n)} at {rows.broker}")
    if (message is None or message.due <= 0) and not _runs("inbox", rows):
        return Wait("queue", lambda n: f"{_wait(n)} in the queue, and no submission process is alive")
    if message is None or message.due <= 0:
        return Wait("queue", lambda n: f"{_wait(n)} in the queue for the submission process")
    left, holder = message.due, message.taken_by
    if not holder:
        return Wait("delayed", lambda n: f"{_wait(n)} to be delivered again, in {brief(left)}", left)
    alive = any(node.info.name == holder for node in _living(rows.nodes))
    end = "its lease ends" if alive else "its process is gone, its lease ends"
    return Wait(
        f"leased {holder}", lambda n: f"{_wait(n)} in the queue: {holder} has {_them(n)}, {end} in {brief(left)}", left
    )  # fmt: skip


def _orphaned(holder: NodeView | None, rows: Rows) -> Wait:
    name = holder.info.name if holder is not None else "a Scheduler that is gone"
    silent = f", silent for {brief(holder.silent)}" if holder is not None else ""
    return Wait(
        f"orphaned {name}",
        lambda n: f"{_wait(n)} for {_judge(rows)} to free {_them(n)} from {name}{silent}",
    )


def _answer(step: StepBrief) -> Wait:
    """Return that somebody's answer is awaited; who holds the task does not matter."""
    return Wait(
        f"answer {step.name}",
        lambda n: (
            f"{_wait(n)} for somebody's {step.name}" + ("" if step.due is None else f", {_left(step.due)}")
        ),
        step.due,
    )


def _request(app: str, step: StepBrief, rows: Rows) -> Wait:
    """Return what the request of a step waits for."""
    doing, due = step.doing, step.due or 0.0
    if doing == "timer":
        return Wait(
            f"timer {step.name}",
            lambda n: f"{_wait(n)} before the next attempt of {step.name}, {_left(due)}",
            due,
        )
    call = step.name if doing in ("do", None) else f"the {doing} of {step.name}"
    if step.taken_by is None:
        return _untaken(f"{app}/{step.agent}", step.agent, call, rows)
    if due <= 0:
        return Wait(
            f"overdue {call}", lambda n: f"{_wait(n)} for {_judge(rows)} to judge {call}, {brief(-due)} past its deadline", due
        )  # fmt: skip
    if not any(node.id == step.taken_by for node in _living(rows.nodes)):
        return Wait(
            f"dead {call}",
            lambda n: f"{_wait(n)} for the deadline of {call}, whose process is gone, {_left(due)}",
            due,
        )
    return Wait(
        f"called {call}", lambda n: f"{_wait(n)} for {step.agent} to answer {call}, {_left(due)}", due
    )


def _untaken(address: str, agent: str, call: str, rows: Rows) -> Wait:
    """Return why nobody has taken a request: what the processes of its agent publish."""
    infos = [info for node in _living(rows.nodes) for info in node.info.agents if info.agent == address]
    why, left = _busy(infos, call)
    return Wait(
        f"untaken {agent} {why}",
        lambda n: f"{agent}: {why}, {_wait(n)}{'' if left is None else f' (next try in {brief(left)})'}",
        left,
    )


def _busy(infos: Sequence[AgentInfo], call: str) -> tuple[str, float | None]:
    if not infos:
        return "no process runs it", None
    usable = [info for info in infos if info.circuit not in SHUT]
    if not usable and all(info.circuit == "open" for info in infos):
        return "circuit open", min(info.reset for info in infos)
    if not usable:
        return "circuit half-open, one trial call at a time", None
    if all(info.circuit == "release" for info in usable):
        return (
            f"coming back, at most {quantity(sum(info.most or 0 for info in usable), 'call')} at once",
            None,
        )
    if all(info.used >= info.slots for info in usable):
        return f"all {sum(info.slots for info in usable)} slots in use", None
    return f"no process has taken {call} yet", None


def _living(nodes: Sequence[NodeView]) -> list[NodeView]:
    return [node for node in nodes if node.state == "alive"]


def _runs(role: str, rows: Rows) -> bool:
    return any(role in node.info.roles for node in _living(rows.nodes))


def _judge(rows: Rows) -> str:
    return "the Supervisor" if rows.led else "a Supervisor to lead, and"


def _left(due: float) -> str:
    return f"{brief(due)} left" if due > 0 else "due now"


def _orders(count: int) -> str:
    return quantity(count, "order")


def _wait(count: int) -> str:
    return f"{_orders(count)} {'waits' if count == 1 else 'wait'}"


def _them(count: int) -> str:
    return "it" if count == 1 else "them"
