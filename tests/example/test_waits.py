"""What open orders wait for, in a line: read from rows, never guessed; and the waits of a minute that the demo has no more."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from examples.orders.auditor import Told
from examples.orders.customers import Customers, Said
from examples.orders.processes import Place, State
from examples.orders.shop import Order, place_order, shop
from examples.orders.storefront import TOLD, WANTED, Storefront, append
from examples.orders.waits import STILL, Rows, Waits, line_of
from makegood import Client
from makegood.model.queue_message import QueueMessage
from makegood.store.queue_records import MessageView
from makegood.store.views import AgentInfo, NodeInfo, NodeView, StepBrief, TaskView
from tests.waiting import moment

SCHEDULER, AGENT = 1, 2


def node(number: int, name: str, role: str, *agents: AgentInfo, remaining: float = 2.0) -> NodeView:
    info = NodeInfo(name, (role,), "here", 100 + number, 2.0, agents)
    return NodeView(number, info, 0.0, remaining, is_stopped=False, dead=False)


def payments(circuit: str = "closed", **more: Any) -> AgentInfo:
    return AgentInfo("shop/payments", 20, circuit=circuit, **more)


def task(number: int, *, locked_by: int | None = SCHEDULER, end: float | None = None) -> TaskView:
    return TaskView(
        number, "shop", "place_order", f"o-{number}", "processing", "forward", 1, 5, "", 0, locked_by, 1, None, 0.0, end, None
    )  # fmt: skip


def step(doing: str, *, taken_by: int | None = AGENT, due: float | None = 2.0) -> StepBrief:
    return StepBrief(1, "action", "charge", "payments", "running", 1, 1, 0, None, doing, taken_by, due, 1.0)


def message(order: str, due: float, taken_by: str | None = None) -> MessageView:
    return MessageView(
        QueueMessage(seq=1, queue="orders", id=order, body=b"{}"), "waiting", due, taken_by, None, None
    )


def rows(
    *steps: StepBrief,
    count: int = 1,
    nodes: Sequence[NodeView] = (),
    agents: Sequence[AgentInfo] = (payments(),),
    leader: bool = True,
    starting: Sequence[str] = (),
) -> Rows:
    """Rows in which ``count`` orders have these requests in flight."""
    here = nodes or [
        node(SCHEDULER, "scheduler-1", "scheduler"),
        *(node(AGENT + n, f"payments-{n}", "agent", agent) for n, agent in enumerate(agents)),
    ]
    orders = {f"o-{n}": task(n) for n in range(count)}
    return Rows(orders, dict.fromkeys(range(count), steps), here, (), leader, starting)


APPROVAL = StepBrief(4, "wait_for", "approval", "", "ready", 1, 1, 0, None, "timer", None, 42.0, None)
UNTAKEN = step("do", taken_by=None, due=None)


@pytest.mark.parametrize(
    ("table", "line"),
    [
        (
            rows(UNTAKEN, count=80, agents=[payments("open", reset=3.0), payments("open", reset=2.0)]),
            "payments: circuit open, 80 orders wait (next try in 2.0 s)",
        ),
        (
            rows(UNTAKEN, agents=[payments("open", reset=3.0), payments("half-open", most=1)]),
            "payments: circuit half-open, one trial call at a time, 1 order waits",
        ),
        (
            rows(UNTAKEN, count=9, agents=[payments("open", reset=3.0), payments("release", most=4)]),
            "payments: coming back, at most 4 calls at once, 9 orders wait",
        ),
        (
            rows(UNTAKEN, count=9, agents=[payments(used=20), payments("open", reset=3.0)]),
            "payments: all 20 slots in use, 9 orders wait",
        ),
        (rows(UNTAKEN, count=2, agents=[]), "payments: no process runs it, 2 orders wait"),
        (rows(UNTAKEN, count=2), "payments: no process has taken charge yet, 2 orders wait"),
        (rows(step("timer", due=2.6)), "1 order waits before the next attempt of charge, 2.6 s left"),
        (rows(step("do", due=2.4)), "1 order waits for payments to answer charge, 2.4 s left"),
        (rows(step("undo", due=2.4)), "1 order waits for payments to answer the undo of charge, 2.4 s left"),
        (
            rows(step("do", due=12.0, taken_by=99)),
            "1 order waits for the deadline of charge, whose process is gone, 12 s left",
        ),
        (
            rows(step("probe", due=-1.2), count=3),
            "3 orders wait for the Supervisor to judge the probe of charge, 1.2 s past its deadline",
        ),
        (
            rows(step("do", due=-1.2), leader=False),
            "1 order waits for a Supervisor to lead, and to judge charge, 1.2 s past its deadline",
        ),
        (rows(count=2), "2 orders wait for scheduler-1 to continue them"),
        (rows(APPROVAL, count=3), "3 orders wait for somebody's approval, 42 s left"),
        (
            rows(UNTAKEN, nodes=[node(SCHEDULER, "scheduler-1", "scheduler", remaining=-1.0)]),
            "1 order waits for the Supervisor to free it from scheduler-1, silent for 3.0 s",
        ),
        (
            rows(UNTAKEN, agents=[payments("open", reset=1.0)], starting=["payments-2", "inbox-1"]),
            "payments: circuit open, 1 order waits (next try in 1.0 s); payments-2 and inbox-1 are still starting",
        ),
    ],
)  # fmt: skip
def test_the_line_names_what_is_waited_for(table: Rows, line: str) -> None:
    assert line_of(table) == line


@pytest.mark.parametrize(
    ("order", "messages", "nodes", "line"),
    [
        (task(1, locked_by=None), [], [node(1, "scheduler-1", "scheduler")], "1 order waits for a Scheduler to claim it"),
        (task(1, locked_by=None), [], [], "1 order waits for a Scheduler, and none is alive"),
        (task(1, end=5.0), [], [], "1 order ended, and the shop has yet to read that in its queue; what a killed reader had taken comes again"),
        (None, [message("o-1", -3.0)], [node(1, "inbox-1", "inbox")], "1 order waits in the queue for the submission process"),
        (None, [message("o-1", -3.0)], [], "1 order waits in the queue, and no submission process is alive"),
        (None, [message("o-1", 4.0)], [], "1 order waits to be delivered again, in 4.0 s"),
        (
            None, [message("o-1", 48.0, "inbox-1")], [node(1, "inbox-1", "inbox")],
            "1 order waits in the queue: inbox-1 has it, its lease ends in 48 s",
        ),
        (
            None, [message("o-1", 48.0, "inbox-1")], [node(1, "inbox-1", "inbox", remaining=-1.0)],
            "1 order waits in the queue: inbox-1 has it, its process is gone, its lease ends in 48 s",
        ),
    ],
)  # fmt: skip
def test_orders_without_a_scheduler_are_named_too(
    order: TaskView | None, messages: Sequence[MessageView], nodes: Sequence[NodeView], line: str
) -> None:
    assert line_of(Rows({"o-1": order}, {}, nodes, messages, led=True)) == line


def test_an_order_that_waits_for_an_answer_is_held_by_nobody_and_waits_for_nobody_else() -> None:
    """It sleeps, whoever is dead; a scheduler's absence is not its reason."""
    line = line_of(Rows({"o-1": task(1, locked_by=None)}, {1: [APPROVAL]}, [], (), led=True))
    assert line == "1 order waits for somebody's approval, 42 s left"


def test_of_several_reasons_those_of_most_orders_come_first_with_the_nearest_moment() -> None:
    table = rows(count=6)
    timers = {n: [step("timer", due=3.0 - n)] for n in range(3)}
    others = {3: [step("do", due=1.0)], 4: [step("do", due=1.0)], 5: [UNTAKEN]}
    line = line_of(Rows(table.orders, timers | others, table.nodes, (), led=True))
    assert line == (
        "3 orders wait before the next attempt of charge, 1.0 s left; "
        "2 orders wait for payments to answer charge, 1.0 s left; 1 further reason"
    )


# -- the rows of a real store ------------------------------------------------------------------------------------------


class Shown:
    """A store with one order in it, and the line about it at moments of our own."""

    def __init__(self, client: Client, folder: Path, places: Mapping[str, Place]) -> None:
        self.client, self.now = client, 100.0
        self.customers = Customers(client, folder)
        self.waits = Waits(client, self.customers, places, lambda: self.now)

    def accept(self, order: str) -> None:
        """Have the shop know that its order was accepted."""
        self.customers.orders[order] = Said(Order(order, "pen", 300), 0.0, "accepted", told=Told(order))

    async def line(self, later: float) -> str:
        """Return the line so many seconds later."""
        self.now += later
        return await self.waits.look(has_leader=True)


@asynccontextmanager
async def shown(folder: Path, places: Mapping[str, Place] | None = None) -> Any:
    async with Client(f"sqlite:///{folder / 'store.db'}", migrate=True) as client:
        yield Shown(client, folder, places or {})


async def test_the_line_appears_once_no_order_has_ended_for_a_while_and_goes_when_one_ends(
    tmp_path: Path,
) -> None:
    async with shown(tmp_path) as here:
        here.accept("o-1")
        here.accept("o-2")
        assert await here.line(0.0) == ""
        assert await here.line(STILL) == "2 orders wait in the queue, and no submission process is alive"
        for order in ("o-1", "o-2"):
            await here.client.submit(place_order, here.customers.orders[order].order, key=order)
        assert await here.line(STILL) == "2 orders wait for a Scheduler, and none is alive"
        here.customers.orders["o-1"].told = Told("o-1", "processed")
        assert await here.line(1.0) == ""
        assert await here.line(STILL) == "1 order waits for a Scheduler, and none is alive"
        here.customers.orders["o-2"].told = Told("o-2", "processed")
        assert await here.line(0.0) == ""


async def test_a_few_of_many_that_end_are_no_reason_to_be_silent(tmp_path: Path) -> None:
    async with shown(tmp_path) as here:
        for number in range(100):
            here.accept(f"o-{number}")
        assert await here.line(0.0) == ""
        for number in range(4):
            here.customers.orders[f"o-{number}"].told = Told(f"o-{number}", "processed")
            await here.line(STILL / 2)
        assert await here.line(0.0) == "96 orders wait in the queue, and no submission process is alive"
        for number in range(4, 20):
            here.customers.orders[f"o-{number}"].told = Told(f"o-{number}", "processed")
        assert await here.line(STILL) == ""


async def test_an_open_circuit_is_shown_at_once(tmp_path: Path) -> None:
    async with shown(tmp_path) as here:
        agent = AgentInfo("shop/payments", 20, circuit="open", reset=2.0)
        await here.client.store.nodes.register(NodeInfo("payments-1", ("agent",), "here", 7, 60.0, (agent,)))
        here.accept("o-1")
        assert await here.line(0.1) == "1 order waits in the queue, and no submission process is alive"


async def test_a_process_that_has_not_registered_yet_is_named(tmp_path: Path) -> None:
    """On the wall it runs; on a busy machine it takes half a minute until it works."""
    places = {
        "inbox-1": Place("inbox-1", "inbox", 4711, State.RUNNING),
        "shop": Place("shop", "shop", 1, State.RUNNING),
    }
    async with shown(tmp_path, places) as here:
        here.accept("o-1")
        await here.line(0.0)
        assert (await here.line(STILL)).endswith("; inbox-1 is still starting")
        await here.client.store.nodes.register(NodeInfo("inbox-1", ("inbox",), "here", 4711, 60.0))
        assert await here.line(STILL) == "1 order waits in the queue for the submission process"


# -- waits that there are no more --------------------------------------------------------------------------------------


def test_a_killed_submission_process_keeps_its_messages_for_seconds_not_for_a_minute() -> None:
    assert [inbox.lease for inbox in shop.inboxes.values()] == [5.0]


async def test_the_shop_reads_what_its_queue_holds_in_few_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by one it fell half a minute behind its orders on a busy machine."""
    async with Client(f"sqlite:///{tmp_path / 'store.db'}", migrate=True) as client:
        for number in range(150):
            data = {"key": f"o-{number}", "state": "processing", "sequence": 1, "task": f"{number}"}
            await client.send("shop-1", {"data": data}, id=f"{number}")
        calls = 0
        queues = type(client.store.queues)
        settle = queues.acknowledge_messages

        async def counted(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            return await settle(*arguments)

        monkeypatch.setattr(queues, "acknowledge_messages", counted)
        listening = asyncio.get_running_loop().create_task(
            Storefront(tmp_path, client, "shop-1").remember().listen()
        )
        while await client.store.queues.messages("shop-1", 1):
            await moment()
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening
        assert calls == 2
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 150


async def test_an_answer_to_an_order_is_not_taken_for_its_acceptance(tmp_path: Path) -> None:
    """A shop that was killed between sending an order and noting it: the approver may note its answer first."""
    async with Client(f"sqlite:///{tmp_path / 'store.db'}", migrate=True) as client:
        append(tmp_path / WANTED, {"id": "o-1", "sku": "pen", "cents": 300, "card": "good"})
        append(tmp_path / TOLD, {"order": "o-1", "approved_by": "desk", "why": "so it is"})
        selling = asyncio.get_running_loop().create_task(
            Storefront(tmp_path, client, "shop-1").remember().sell()
        )
        while len(lines := (tmp_path / TOLD).read_text().splitlines()) < 2:
            await moment()
        selling.cancel()
        with suppress(asyncio.CancelledError):
            await selling
    assert lines[1] == '{"order": "o-1", "cents": 300}'
