"""A store in which every page has something to show: tasks in each state, alerts, agents, past leaders, bulk acts."""

from random import Random
from typing import Any

from msgspec.structs import replace

from makegood.base.clock import SystemClock
from makegood.model.messages import Act, Alert
from makegood.model.plan import StepPlan, Template
from makegood.model.policy import Policy
from makegood.model.schedule import ScheduleDraft, SchedulePlan, spec_of
from makegood.model.shape import Shape
from makegood.model.states import TaskState
from makegood.store.oversight_records import Refusal
from makegood.store.protocol import Store
from makegood.store.records import Submission
from makegood.store.views import AgentInfo, Filter, NodeInfo, SchedulerTally
from tests.conformance.builders import Hand, begin, done, draft, to_state, unchanged

NAMES = (
    ("reserve", "stock"),
    ("charge", "payments"),
    ("book", "carrier"),
    ("pack", "stock"),
    ("email", "carrier"),
    ("ship", "carrier"),
)
HOSTILE = "<script>alert('x')</script> \"quoted\" & {{ 7 * 7 }}"
"""A text that would run, if a page did not escape it."""


def order_steps() -> Shape:
    """Return the six steps of an order."""
    return Shape(
        StepPlan(
            n,
            "action",
            name,
            agent,
            name,
            Template(("{}",)),
            (n - 1,) if n else (),
            policy=Policy(within=30.0),
        )
        for n, (name, agent) in enumerate(NAMES)
    )


def orders(first: int, count: int, **changes: Any) -> list[Submission]:
    """Return orders whose ids were drawn just now."""
    now = int((SystemClock().wall() - 1_704_067_200.0) * 1000) << 22
    return [
        replace(
            draft((now - (200 - n) * 4_000_000) + n, steps=order_steps(), key=f"o-{1000 + n}", within=7200.0),
            **changes,
        )
        for n in range(first, first + count)
    ]


async def _ended(scheduler: Hand, task: int, state: TaskState, steps: str, **changes: Any) -> None:
    """End a task with its steps in these states."""
    memory = scheduler[task]
    decision = to_state(memory, state, unchanged(memory), **changes)
    for idx, code in enumerate(steps.split()):
        after = replace(memory.steps[idx], state=code)
        if code in ("undo_failed", "failed"):
            after = replace(after, error="403 refunds are closed for this merchant account until settlement")
        decision.steps[idx] = after
    await scheduler.commit(decision)


async def fill(store: Store) -> int:
    """Fill a store; return a task in error."""
    agents = tuple(AgentInfo(f"shop/{name}", 20, used=slots, calls=4811, failed=61, seconds=0.31, success=rate, circuit=circuit, reset=2.4)
                   for name, slots, rate, circuit in (("payments", 19, 0.71, "half-open"), ("stock", 7, 1.0, "closed"), ("carrier", 3, 0.99, "closed")))  # fmt: skip
    node = await store.nodes.register(
        NodeInfo("shop-a-20721", ("scheduler",), "shop-a", 20721, 60.0, held=84)
    )
    await store.nodes.register(NodeInfo("shop-b-20733", ("agent",), "shop-b", 20733, 60.0, agents))
    await store.nodes.register(NodeInfo("shop-c-20740", ("supervisor",), "shop-c", 20740, 60.0))
    await store.nodes.register(NodeInfo("shop-d-20760", ("supervisor",), "shop-d", 20760, 60.0))
    await store.nodes.register(NodeInfo("shop-b-20689", ("scheduler",), "shop-b", 20689, 0.0))
    for holder, leads in (("shop-a-20702", False), ("shop-d-20760", False), ("shop-c-20740", True)):
        grant = await store.leases.acquire("makegood/supervisor", holder, f"nonce of {holder}", 600.0)
        assert grant is not None
        if not leads:
            await store.leases.release(grant)
    scheduler = Hand(store, node)
    drafts = orders(0, 12)
    drafts[5] = replace(drafts[5], key=HOSTILE)
    await store.tasks.submit(drafts)
    await scheduler.claim(100)
    tasks = [one.id for one in drafts]
    for task in tasks[:3]:
        await _ended(scheduler, task, "processed", "done done done done done done")
    await _ended(
        scheduler, tasks[3], "undone", "undone failed waiting", goal="undo", cause="charge: card refused"
    )
    await _ended(
        scheduler,
        tasks[4],
        "error",
        "done undo_failed undone undone kept failed",
        goal="undo",
        cause="ship failed: the parcel is too heavy",
    )
    await _ended(scheduler, tasks[5], "error", "done failed", goal="hold", cause=f"charge failed: {HOSTILE}")
    for task in tasks[6:9]:
        await scheduler.commit(begin(scheduler[task], 1, done(scheduler[task], 0)))
    await store.tasks.submit(orders(20, 3, correlation_id="2026-11-28", attributes=(("customer", HOSTILE),)))
    await store.tasks.submit(
        orders(
            30,
            1,
            workflow="settle_partner_invoices_for_region",
            key="batch-2026-11-23-eu-central-retail-000417",
        )
    )
    await store.alerts.alert([
        Alert("undo_stuck", tasks[4], "charge", "the undo of charge failed for good: “403 refunds are closed for this merchant account until settlement”"),
        Alert("undo_incomplete", tasks[4], "", "in place: charge (undo failed), reserve (done), email (kept)"),
        Alert("held", tasks[5], "", f"charge failed: {HOSTILE}"),
        Alert("starved", 0, "shop/label-printer", "14 requests for shop/label-printer wait, and no process takes them"),
        Alert("circuit_open", 0, "shop/payments", "the service of shop/payments fails: its circuit is open"),
        Alert("test", 0, "1", "a test"),
    ])  # fmt: skip
    views = {view.kind: view.id for view in await store.alerts.views()}
    await store.alerts.acknowledge([views["held"]], Act("act-1", "bob", "I call the customer"))
    await store.alerts.ease([Alert("test", 0, "1")], "it was a test")
    await looked_back(store, tasks)
    await scheduled(store)
    return tasks[4]


def a_schedule(name: str, **options: Any) -> ScheduleDraft:
    """Return a schedule of an app that declares it."""
    defaults = {
        "cron": None, "every": None, "timezone": "UTC", "overlap": "skip", "catch_up": "1d", "coalesce": True, "jitter": 0,
        "start": None, "end": None, "is_declared": True,
    }  # fmt: skip
    plan = SchedulePlan("report", tuple(order_steps()), (), (), Template(("null",)))
    return ScheduleDraft(spec_of("shop", name, **{**defaults, **options}), plan)


async def scheduled(store: Store) -> None:
    """Add schedules, one of them paused."""
    await store.schedules.apply([
        a_schedule("nightly", cron="30 2 * * *", timezone="Europe/Berlin"),
        a_schedule("watch", every="15m", overlap="buffer", jitter="30s"),
        a_schedule("bill/customer-4711-of-the-retail-branch-in-the-north", cron="0 6 1 * *"),
    ])  # fmt: skip
    await store.schedules.pause(Act("pause-1", "ann", "the ledger is closed"), "shop", "watch", 7200.0)


async def looked_back(store: Store, tasks: list[int]) -> None:
    """Add figures of the last minutes, refusals, and acts on many tasks."""
    minute, chance = int(await store.now()) // 60, Random(7)
    for n in range(60):
        hit = 46 <= n <= 50
        count = 400 + chance.randint(-26, 26)
        latencies = [0] * 7 + [count // 3, count // 2, 40 if hit else 3, 30 if hit else 1, 90 if hit else 1]
        figures = SchedulerTally(
            int(count * 0.2) if hit else count, 47 if hit else 9, n in (49, 58), count * 6, tuple(latencies)
        )
        await store.oversight.add_minute(minute - 59 + n, 60.0, figures)
    await store.oversight.refused([
        Refusal("decision", "a decision under epoch 1 was refused: process 1 holds the task under epoch 2", "shop-b-20689", None, tasks[6], epoch=1, against=2),
        Refusal("reply", f"done came too late: {HOSTILE}", "shop-b-20733", None, tasks[7], "charge", 3),
        Refusal("term", "a former leader judged 4 attempts", "shop-d-20760", epoch=2, against=3),
    ])  # fmt: skip
    bulk = await store.oversight.bulk(
        Act("bulk-1", "bob", "wrong cover"), "undo", Filter(workflow="publish"), rate=50.0
    )
    await store.oversight.stop_bulk(bulk.id, Act("stop-1", "ann", "enough"))
    await store.oversight.bulk(
        Act("bulk-2", "ann", "the card terminal was down"), "undo", Filter(states=("error",))
    )
