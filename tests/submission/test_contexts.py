"""Whose context work runs in: that of the node's start, whoever submits, and a fresh copy of it for each call of a user's function."""

import asyncio
import decimal
import gc
import json
import subprocess
import sys
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextvars import Context, ContextVar
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry import context as otel

import makegood as mg
from makegood.base.contexts import fresh, within
from makegood.model.policy import Retry
from tests.submission.connections import PlainSQLite, SQLiteWorld, World
from tests.waiting import until

TENANT: ContextVar[str] = ContextVar("tenant", default="nobody")
MARK: ContextVar[str] = ContextVar("mark", default="")

QUIET = mg.Options(alerts_every=None, leaderless_after=None, poll_every="50ms")
RETRIED = mg.Recover(threshold=1, wait="10ms", extended="10ms")

SEEN: dict[str, list[tuple[str, str]]] = defaultdict(list)
"""What each function saw: the tenant, and the mark of whoever ran before in the same context."""


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    SEEN.clear()
    yield
    SEEN.clear()


def seen(name: str) -> None:
    """Note what this call sees, and leave a mark that no other call may see."""
    SEEN[name].append((TENANT.get(), MARK.get()))
    TENANT.set(f"somebody in {name}")
    MARK.set(name)


app = mg.App("contexts")
desk = app.agent("desk", concurrency=8)


@desk.action(complete_within="1m")
def plain(to: str) -> str:
    """A ``def`` action."""
    seen("def")
    return to


@plain.undo
def plain_undone(*, result: str | None) -> None:
    """Its undo."""
    seen("def undo")


@desk.action(complete_within="1m")
async def awaited(to: str) -> str:
    """An ``async def`` action."""
    seen("async def")
    await asyncio.sleep(0)
    assert MARK.get() == "async def"
    return to


@awaited.undo
async def awaited_undone(*, result: str | None) -> None:
    """Its undo."""
    seen("async def undo")


def failing(name: str, *, awaits: bool, retry: Retry, recover: mg.Recover = RETRIED) -> Any:
    """Declare an action that fails for good after all its tries and attempts, with a probe that is asked between them."""
    declare = desk.action(complete_within="1m", name=name, retry=retry, recover=recover, undo=mg.NOTHING)

    def blocking(to: str) -> str:
        seen(name)
        raise OSError

    async def awaiting(to: str) -> str:
        seen(name)
        await asyncio.sleep(0)
        raise OSError

    action = declare(awaiting if awaits else blocking)

    def probe(to: str) -> mg.Happened[str] | mg.NotHappened:
        seen(f"{name} probe")
        return mg.NOT_HAPPENED

    action.probe(probe)
    return action


TRIES = Retry(tries=3, wait="1ms", factor=1)
RELUCTANT = failing("reluctant", awaits=False, retry=TRIES)
HESITANT = failing("hesitant", awaits=True, retry=TRIES)


@app.workflow()
def both(to: str) -> str:
    """One action of each kind."""
    return awaited(plain(to))


@app.workflow()
def undone(to: str) -> Any:
    """Both kinds are undone, after an action that fails in its tries, its attempts and its probes."""
    return RELUCTANT(awaited(plain(to)))


@app.workflow()
def undone_awaiting(to: str) -> Any:
    """The same with an ``async def``."""
    return HESITANT(awaited(plain(to)))


def assert_alike(names: set[str], tenant: str = "node") -> None:
    """All calls of these functions, and no others, ran in fresh copies of the context of the node's start."""
    assert set(SEEN) == names
    for name, calls in SEEN.items():
        assert set(calls) == {(tenant, "")}, name


async def in_context_of(tenant: str, work: Callable[[], Any]) -> Any:
    """Run work as a web framework runs a request: in an asyncio task, with a context variable of its own."""

    async def request() -> Any:
        TENANT.set(tenant)
        return await work()

    return await asyncio.create_task(request())


async def test_actions_run_in_the_context_of_the_nodes_start(world: World) -> None:
    """The first task of a process, tasks one after the other, and tasks that are submitted at the same moment."""
    TENANT.set("node")
    async with mg.Node(app, world.url, options=QUIET) as node:
        TENANT.set("later")

        async def request(n: int) -> None:
            async def work() -> None:
                await (await node.client.submit(both, str(n))).result("120s")

            await in_context_of(f"tenant-{n}", work)

        await request(0)
        await request(1)
        await asyncio.gather(*map(request, range(10, 20)))
    assert_alike({"def", "async def"})
    assert len(SEEN["def"]) == len(SEEN["async def"]) == 12


@pytest.mark.parametrize(("workflow", "name"), [(undone, "reluctant"), (undone_awaiting, "hesitant")])
async def test_tries_attempts_probes_and_undos_run_in_fresh_contexts(
    world: World, workflow: Any, name: str
) -> None:
    TENANT.set("node")
    async with mg.Node(app, world.url, options=QUIET) as node:

        async def work() -> None:
            with pytest.raises(mg.TaskUndone):
                await (await node.client.submit(workflow, "a")).result("120s")

        await in_context_of("tenant-1", work)
    assert_alike({"def", "async def", "def undo", "async def undo", name, f"{name} probe"})
    assert len(SEEN[name]) >= 6


def test_threads_that_share_a_sync_node_or_a_sync_client(world: World) -> None:
    """Each thread submits in a context of its own; the client is opened by the first of them."""
    TENANT.set("node")
    with mg.SyncNode(app, world.url, options=QUIET) as node, mg.SyncClient(world.url) as client:
        failures: list[BaseException] = []

        def submit(n: int) -> None:
            TENANT.set(f"tenant-{n}")
            try:
                which = node.client if n % 2 else client
                which.submit(both, str(n)).result("120s")
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=Context().run, args=(submit, n)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
    assert_alike({"def", "async def"})
    TENANT.set("nobody")


async def test_an_agent_of_another_node_has_the_context_of_its_own_start(world: World) -> None:
    TENANT.set("agent")
    async with mg.Node(app, world.url, roles=("agent",), options=QUIET):
        TENANT.set("scheduler")
        async with mg.Node(None, world.url, roles=("scheduler", "supervisor"), options=QUIET) as node:

            async def work() -> None:
                await (await node.client.submit(both, "a")).result("120s")

            await in_context_of("tenant-1", work)
    assert_alike({"def", "async def"}, "agent")


AGENT = """
import asyncio, json
from tests.submission import test_contexts as contexts
import makegood as mg

async def main():
    contexts.TENANT.set("process")
    async with mg.Node(contexts.app, {url!r}, roles=("agent",), options=contexts.QUIET):
        print("ready", flush=True)
        await asyncio.to_thread(input)
    print(json.dumps(contexts.SEEN))

asyncio.run(main())
"""


async def test_an_agent_of_another_process(world: World) -> None:
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", AGENT.format(url=world.url), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert agent.stdout is not None
    try:
        assert await agent.stdout.readline() == b"ready\n"
        async with mg.Node(None, world.url, roles=("scheduler", "supervisor"), options=QUIET) as node:

            async def work() -> None:
                await (await node.client.submit(both, "a")).result("120s")

            await in_context_of("tenant-1", work)
        out, _ = await agent.communicate(b"\n")
    finally:
        if agent.returncode is None:
            agent.kill()
            await agent.wait()
    contexts = json.loads(out)
    assert contexts["def"] == contexts["async def"] == [["process", ""]]


# -- inboxes -------------------------------------------------------------------------------------------------


inboxes = mg.App("inboxes")
post = inboxes.agent("post")


@post.action(complete_within="1m", undo=mg.NOTHING)
def noted(text: str) -> str:
    """Do nothing."""
    return text


@inboxes.workflow()
def note(text: str) -> str:
    """Do nothing."""
    return noted(text)


@inboxes.inbox("plain", concurrency=1)
def take(text: str, tx: mg.Transaction) -> mg.Plan[str]:
    """A ``def`` function, which fails the first time."""
    seen("inbox def")
    if tx.message.tries == 1:
        raise LookupError("not yet")
    return note.plan(text)


@inboxes.inbox("awaited", concurrency=1)
async def take_awaiting(text: str, tx: mg.Transaction) -> mg.Plan[str]:
    """An ``async def`` function, which fails the first time."""
    seen("inbox async def")
    await tx.execute_async("select 1")
    if tx.message.tries == 1:
        raise LookupError("not yet")
    return note.plan(text)


async def test_an_inbox_sees_the_context_of_the_nodes_start(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for inbox in inboxes.inboxes.values():
        monkeypatch.setattr(inbox, "retry", Retry(tries=4, wait="10ms"))
    TENANT.set("node")
    async with mg.Node(inboxes, world.url, options=QUIET) as node:

        async def send(queue: str) -> None:
            async def work() -> None:
                for n in range(3):
                    await node.client.send(queue, str(n))

            await in_context_of(f"sender of {queue}", work)

        await asyncio.gather(send("plain"), send("awaited"))

        async def ended() -> bool:
            return await node.client.count(mg.Filter(states=("processed",))) == 6

        await until(ended, "six tasks to end")
    assert_alike({"inbox def", "inbox async def"})
    assert {len(calls) for calls in SEEN.values()} == {6}


# -- what is kept alive --------------------------------------------------------------------------------------


elsewhere = mg.App("elsewhere")


@elsewhere.agent("nobody").action(complete_within="1m", undo=mg.NOTHING)
def unserved(to: str) -> str:
    """No process runs this agent."""
    return to


@elsewhere.workflow()
def far(to: str) -> str:
    """It never ends."""
    return unserved(to)


class Request:
    """What a framework holds in a context variable."""


async def kept_after(work: Callable[[], Any]) -> list[Any]:
    """Return what keeps a request's object alive after it, [] if nothing does."""
    holder: ContextVar[Request] = ContextVar("request")
    request = Request()
    alive = weakref.ref(request)

    async def serve(request: Request) -> None:
        holder.set(request)
        await work()

    await asyncio.create_task(serve(request))
    del request
    for _ in range(3):  # what was called soon
        await asyncio.sleep(0)
    await asyncio.to_thread(int)  # what a thread may still hold
    gc.collect()
    referent = alive()
    return [] if referent is None else gc.get_referrers(referent)


async def test_no_object_of_a_request_is_kept_alive(world: World) -> None:
    """Not by a node, nor by a client that is used for the first time in the request: the next requests keep them in use."""
    async with mg.Node(app, world.url, options=QUIET) as node, mg.Client(world.url) as client:
        waiting = []

        async def use(client: mg.Client) -> None:
            never = await client.submit(far, "a")
            with pytest.raises(mg.WaitExpiredError):  # whoever waits first makes the client watch the store
                await never.wait(timeout=0.0001)
            waiting.append(asyncio.get_running_loop().create_task(never.wait("1h"), context=Context()))
            await asyncio.sleep(0)
            task = await client.submit(both, "a")
            assert await task.result("120s") == "a"
            await task.status()
            await (await client.submit(far, "a")).cancel(timeout="1h")
            await client.cancel_all(mg.Filter(key="none"), timeout="1h")
            await client.send("anywhere", "x")
            assert await client.queue("anywhere").receive(timeout="2m")
            await client.send("anywhere", "y")
            async for _ in client.queue("anywhere", lease="1h"):
                break
            with pytest.raises(TimeoutError):  # a wait that was cancelled
                await asyncio.wait_for(client.queue("empty").receive(timeout="1h"), 0.01)
            await client.find()

        for each in (node.client, client):
            for _ in range(2):
                assert await kept_after(partial(use, each)) == []
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_no_object_is_kept_alive_of_a_request_that_opens_the_client_of_the_process(
    world: World,
) -> None:
    client = mg.Client(world.url)

    async def work() -> None:
        await client.open()
        await client.submit(far, "a")

    try:
        assert await kept_after(work) == []
        await client.find()
    finally:
        await client.close()


async def test_no_object_is_kept_alive_of_a_request_that_submits_in_its_own_transaction(
    tmp_path: Path,
) -> None:
    """The store looks for the commit for a while."""
    world = SQLiteWorld(tmp_path / "shop.db")
    door = PlainSQLite(world)
    async with mg.Client(world.url) as client:

        async def work() -> None:
            async with door.begin() as connection:
                await client.submit(far, "a", connection=connection)
                await client.send("orders", 1, connection=connection)

        assert await kept_after(work) == []


def test_no_object_of_a_request_is_kept_alive_by_a_sync_client(world: World) -> None:
    """It opens at its first call, which may be a request's."""
    holder: ContextVar[Request] = ContextVar("request")
    with mg.SyncNode(app, world.url, options=QUIET), mg.SyncClient(world.url) as client:

        def serve() -> weakref.ref[Request]:
            request = Request()
            holder.set(request)
            client.submit(both, "a").result("120s")
            with pytest.raises(mg.WaitExpiredError):  # a timer that outlives the request
                client.submit(both, "b", delay="1h").wait(timeout=0.0001)
            return weakref.ref(request)

        alive = Context().run(serve)
        client.find()  # the thread has taken up something else
        gc.collect()
        assert alive() is None or gc.get_referrers(alive()) == []


# -- decimal, spans and baggage ------------------------------------------------------------------------------


arithmetic = mg.App("arithmetic")
sums = arithmetic.agent("sums", concurrency=1)


@sums.action(complete_within="1m", undo=mg.NOTHING)
def third(digits: int) -> str:
    """Change the arithmetic in place, as programs do."""
    before = decimal.getcontext().prec
    decimal.getcontext().prec = digits
    return f"{before}: {decimal.Decimal(1) / 3}"


@sums.action(complete_within="1m", undo=mg.NOTHING)
async def third_awaiting(digits: int, before: str) -> str:
    """The same, awaited."""
    precision, decimal.getcontext().prec = decimal.getcontext().prec, digits
    return f"{before}, {precision}"


@arithmetic.workflow()
def thirds(digits: int) -> str:
    """Both."""
    return third_awaiting(digits, third(digits))


async def test_decimals_precision_is_the_nodes_and_nobody_changes_it(world: World) -> None:
    with decimal.localcontext(prec=12):
        async with mg.Node(arithmetic, world.url, options=QUIET) as node:
            with decimal.localcontext(prec=50):
                first = await (await node.client.submit(thirds, 3)).result("120s")
                second = await (await node.client.submit(thirds, 4)).result("120s")
        assert decimal.getcontext().prec == 12
    assert (first, second) == ("12: 0.333, 12", "12: 0.3333, 12")


async def test_a_request_that_changes_the_programs_arithmetic_in_place_does_not_change_the_nodes(
    world: World,
) -> None:
    """Requests share the object of the program that starts them, and so did the node."""
    with decimal.localcontext(prec=12):
        async with mg.Node(arithmetic, world.url, options=QUIET) as node:

            async def work() -> str:
                decimal.getcontext().prec = 50
                return await (await node.client.submit(thirds, 3)).result("120s")

            assert await in_context_of("x", work) == "12: 0.333, 12"


watched = mg.App("watched")
eyes = watched.agent("eyes")
SPANS: list[tuple[bool, dict[str, object]]] = []


@eyes.action(complete_within="1m", undo=mg.NOTHING)
def look(n: int) -> int:
    """Note the span and the baggage that are current."""
    SPANS.append((trace.get_current_span().get_span_context().is_valid, dict(baggage.get_all())))
    otel.attach(baggage.set_baggage("from", "another attempt"))
    return n


@eyes.action(complete_within="1m", undo=mg.NOTHING)
async def look_awaiting(n: int) -> int:
    """The same, awaited."""
    return look.fn(n)


@watched.workflow()
def looks(n: int) -> int:
    """Both."""
    return look_awaiting(look(n))


async def test_spans_and_baggage_of_callers_and_of_the_nodes_start_end_there(world: World) -> None:
    """Nobody traces the tasks: the program's own spans in an action begin traces of their own, and carry nobody's baggage."""
    SPANS.clear()
    around = trace.NonRecordingSpan(trace.SpanContext(1, 1, is_remote=False))
    with trace.use_span(around):
        token = otel.attach(baggage.set_baggage("started by", "deploy 7"))
        try:
            async with mg.Node(watched, world.url, options=QUIET) as node:

                async def work() -> None:
                    otel.attach(baggage.set_baggage("customer", "x"))
                    await (await node.client.submit(looks, 1)).result("120s")

                await asyncio.gather(*[in_context_of("x", work) for _ in range(3)])
        finally:
            otel.detach(token)
    assert SPANS == [(False, {})] * 6


# -- the parts -----------------------------------------------------------------------------------------------


async def test_within_is_the_same_task_and_passes_cancellation_on() -> None:
    context = fresh()
    inside: list[Any] = []

    async def work() -> str:
        MARK.set("inside")
        inside.append(asyncio.current_task())
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            inside.append(MARK.get())
            raise
        return "never"

    async def call() -> str:
        try:
            return await within(context, work())
        finally:
            inside.append(MARK.get())

    task = asyncio.create_task(call())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert inside == [task, "inside", ""]
    assert context[MARK] == "inside"

    async def answers() -> str:
        await asyncio.sleep(0)
        return "done"

    assert await within(fresh(), answers()) == "done"

    async def fails() -> None:
        await asyncio.sleep(0)
        raise LookupError("as it was raised")

    with pytest.raises(LookupError, match="as it was raised"):
        await within(fresh(), fails())
