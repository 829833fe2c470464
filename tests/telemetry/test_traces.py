"""One trace for each task: every attempt a child of the submission, attempts linked to those before, whoever ran them."""

import asyncio
import itertools
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry import context as otel
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import makegood as mg
from makegood.base.clock import SystemClock
from makegood.node.node import Node
from makegood.store.protocol import Store
from makegood.telemetry import Telemetry
from makegood.telemetry.sdk import TaskIds
from makegood.telemetry.traces import SpanRef, Traces, derived_id, place_of
from tests.telemetry.conftest import QUICK
from tests.telemetry.test_task_metrics import Bank, shop


class Recorder:
    """What a process's spans go to. ``ours``: whether its ids are makegood's."""

    def __init__(self, *, ours: bool = True) -> None:
        self.kept = InMemorySpanExporter()
        self.provider = TracerProvider(id_generator=TaskIds() if ours else None)
        self.provider.add_span_processor(SimpleSpanProcessor(self.kept))
        self.tracer = self.provider.get_tracer("test")

    def telemetry(self) -> Telemetry:
        """Return what a Node or a Client is given."""
        return Telemetry(traces=self.provider)

    def named(self, name: str) -> list[ReadableSpan]:
        """Return the spans of a name, in the order in which they ended."""
        return [span for span in self.kept.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        """Return the only span of a name."""
        (span,) = self.named(name)
        return span

    @property
    def traces(self) -> set[int]:
        """The traces that there are."""
        return {context(span).trace_id for span in self.kept.get_finished_spans()}


def context(span: ReadableSpan) -> trace.SpanContext:
    """Return a span's context."""
    span_context = span.get_span_context()
    assert span_context is not None
    return span_context


def parent(span: ReadableSpan) -> int | None:
    """Return the id of a span's parent."""
    return None if span.parent is None else span.parent.span_id


def says(span: ReadableSpan, *names: str) -> tuple[Any, ...]:
    """Return attributes of a span, without the prefix."""
    return tuple((span.attributes or {})[f"makegood.{name}"] for name in names)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """A provider whose ids are makegood's."""
    new_recorder = Recorder()
    yield new_recorder
    new_recorder.provider.shutdown()


async def test_a_task_is_part_of_the_trace_in_which_it_was_submitted(
    store: Store, recorder: Recorder
) -> None:
    """The caller's span, its submission, every attempt, the task: one trace, with parents as one would draw them."""
    app, buy = shop(Bank())
    async with Node(app, store, options=QUICK, telemetry=recorder.telemetry()) as node:
        with recorder.tracer.start_as_current_span("request") as request:
            task = await node.client.submit(buy, "o")
        await task.result("60s")
    assert len(recorder.traces) == 1
    submit = recorder.one("submit buy")
    assert parent(submit) == request.get_span_context().span_id
    for name in ("do reserve", "do charge", "task buy"):
        assert parent(recorder.one(name)) == context(submit).span_id, name
    attempt = recorder.one("do charge")
    about = says(attempt, "app", "agent", "action", "task.id", "step", "step.attempt", "outcome")
    assert about == ("shop", "payments", "charge", task.id, "charge", 1, "ok")
    assert attempt.links == ()
    assert says(recorder.one("task buy"), "outcome", "workflow") == ("processed", "buy")


async def test_an_attempt_links_to_the_one_before_and_says_how_it_ended(
    store: Store, recorder: Recorder
) -> None:
    """Three attempts that failed, each linked to the one before, none its child; the undo of what was done links to the doing."""
    app, buy = shop(Bank())
    async with Node(app, store, options=QUICK, telemetry=recorder.telemetry()) as node:
        task = await node.client.submit(buy, "down")
        await task.wait("60s")
    attempts = recorder.named("do charge")
    assert [says(span, "step.attempt", "outcome") for span in attempts] == [
        (n, "transient") for n in (1, 2, 3)
    ]
    assert {span.status.status_code for span in attempts} == {trace.StatusCode.ERROR}
    for before, after in itertools.pairwise(attempts):
        assert [link.context.span_id for link in after.links] == [context(before).span_id]
        assert parent(after) == parent(before)
    undo = recorder.one("undo reserve")
    assert [link.context.span_id for link in undo.links] == [context(recorder.one("do reserve")).span_id]
    assert says(recorder.one("task buy"), "outcome", "task.failures") == ("undone", 3)
    assert len(recorder.traces) == 1


async def test_what_an_action_calls_is_a_child_of_its_attempt(store: Store, recorder: Recorder) -> None:
    """In a coroutine and in a thread: spans made there, and the traceparent that a service is told."""
    app, headers = mg.App("shop"), dict[str, str]()
    desk = app.agent("desk")

    @desk.action(complete_within="20s", undo=mg.NOTHING)
    async def one(x: int) -> int:
        headers["one"] = mg.current_call().headers["traceparent"]
        recorder.tracer.start_span("in one").end()
        return x

    @desk.action(complete_within="20s", undo=mg.NOTHING)
    def two(x: int) -> int:
        headers["two"] = mg.current_call().headers["traceparent"]
        recorder.tracer.start_span("in two").end()
        return x

    @app.workflow()
    def do(x: int) -> int:
        return two(one(x))

    async with Node(app, store, options=QUICK, telemetry=recorder.telemetry()) as node:
        await (await node.client.submit(do, 1)).result("60s")
    for name in ("one", "two"):
        attempt = context(recorder.one(f"do {name}"))
        assert parent(recorder.one(f"in {name}")) == attempt.span_id
        assert place_of(headers[name]) == SpanRef(attempt.trace_id, attempt.span_id, int(attempt.trace_flags))


async def test_where_nobody_traced_the_submission_all_processes_agree_on_a_trace(
    store: Store, other: Store
) -> None:
    """Scheduler and agents in processes that share nothing but the store: one trace, whose root is the task."""
    app, buy = shop(Bank())
    first, second = Recorder(), Recorder()
    async with (
        Node(None, store, roles=("scheduler",), options=QUICK, telemetry=first.telemetry()),
        Node(app, other, roles=("agent",), options=QUICK, telemetry=second.telemetry()),
        mg.Client(store) as client,
    ):
        task = await client.submit(buy, "flaky")
        await task.result("60s")
    root = first.one("task buy")
    assert root.parent is None
    assert first.traces == second.traces == {context(root).trace_id}
    assert {parent(span) for span in second.kept.get_finished_spans()} == {context(root).span_id}
    assert says(root, "task.id") == (task.id,)
    again = Recorder()
    async with Node(app, store, options=QUICK, telemetry=again.telemetry()), mg.Client(store) as client:
        await client.task(task.id).undo(timeout="2m")
        await client.task(task.id).wait("60s")
    assert again.traces == first.traces
    assert parent(again.one("task buy")) == context(root).span_id
    assert again.one("task buy").start_time > root.end_time  # type: ignore[operator]


async def test_with_ids_of_others_attempts_of_one_process_are_linked(store: Store) -> None:
    app, buy = shop(Bank())
    theirs = Recorder(ours=False)
    async with Node(app, store, options=QUICK, telemetry=theirs.telemetry()) as node:
        await (await node.client.submit(buy, "flaky")).result("60s")
    first, second = theirs.named("do charge")
    assert [link.context.span_id for link in second.links] == [context(first).span_id]
    assert len(theirs.traces) == 1


async def test_a_trace_goes_through_a_queue_and_its_inbox(store: Store, recorder: Recorder) -> None:
    """Who sent the message is the ancestor of the task that came of it; the function's own spans belong there as well."""
    app, buy = shop(Bank())

    @app.inbox("orders")
    def accept(order: str, tx: mg.Transaction) -> mg.Plan[str]:
        recorder.tracer.start_span("in the inbox").end()
        plan: mg.Plan[str] = buy.plan(order)
        return plan.with_(reply_to="queue:answers")

    telemetry = recorder.telemetry()
    async with Node(app, store, options=QUICK, telemetry=telemetry) as node:
        with recorder.tracer.start_as_current_span("request") as request:
            await node.client.send("orders", "o")
        async with asyncio.timeout(60):
            async for message in node.client.queue("answers"):
                if message.value["data"]["state"] == "processed":
                    break
    sender = request.get_span_context()
    assert parent(recorder.one("submit buy")) == sender.span_id
    assert parent(recorder.one("in the inbox")) == sender.span_id
    assert recorder.traces == {sender.trace_id}


async def test_submissions_in_batches_and_in_transactions_have_traces_as_well(
    store: Store, recorder: Recorder
) -> None:
    """Each task of a batch has a span of its own; under a span they are part of it, without one each begins a trace."""
    _, buy = shop(Bank())
    async with mg.Client(store, telemetry=recorder.telemetry()) as client:
        await client.submit_many(buy, ["a", "b", "c"])
        assert len(recorder.traces) == len(recorder.named("submit buy")) == 3
        recorder.kept.clear()
        with recorder.tracer.start_as_current_span("import"):
            await client.submit_many(buy, ["d", "e"])
        assert (len(recorder.traces), len(recorder.named("submit buy"))) == (1, 2)


def test_the_blocking_client_takes_the_callers_span_along(tmp_path: Any, recorder: Recorder) -> None:
    """Although it works on a thread of its own."""
    _, buy = shop(Bank())
    with (
        mg.SyncClient(
            f"sqlite:///{tmp_path / 's.db'}", migrate=True, telemetry=recorder.telemetry()
        ) as client,
        recorder.tracer.start_as_current_span("request") as request,
    ):
        client.submit(buy, "o")
    assert parent(recorder.one("submit buy")) == request.get_span_context().span_id


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "00-0-0-01",
        "00-" + "g" * 32 + "-" + "1" * 16 + "-01",
        "00-" + "0" * 32 + "-" + "1" * 16 + "-01",
    ],
)
def test_a_traceparent_that_cannot_be_read_is_none(text: str | None) -> None:
    assert place_of(text) is None


def test_ids_are_settled_for_one_span_only() -> None:
    source = TaskIds()
    source.settle(7, 9)
    assert (source.generate_trace_id(), source.generate_span_id()) == (9, 7)
    assert source.generate_span_id() != 7
    assert source.generate_trace_id() != 9
    source.settle(7, 9)
    assert source.generate_span_id() == 7  # a child asks for no trace
    assert source.generate_trace_id() != 9
    assert source.is_trace_id_random()
    assert derived_id("a", 1, size=8) == derived_id("a", 1, size=8) != derived_id("a", 2, size=8)


def test_without_the_extra_it_is_said_which_one_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(mg.ConfigError, match=r"pip install opentelemetry-api.*\[otel\]"):
        Telemetry(traces=True)


def test_a_program_that_has_set_no_provider_makes_no_spans_and_stores_no_trace() -> None:
    """Asked for traces, but nobody records: nothing is pretended."""
    traces = Traces(trace.NoOpTracerProvider(), SystemClock(), lambda: "s")
    assert traces.sent(None) is None
    assert traces.sent({"a": "b"}) == {"a": "b"}


class Carried(SpanProcessor):
    """Notes the baggage with which spans begin: processors copy it into attributes, exporters send it."""

    def __init__(self) -> None:
        self.by_name: dict[str, dict[str, object]] = {}

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Note it."""
        self.by_name[span.name] = dict(baggage.get_all(parent_context))


async def test_an_attempt_has_the_trace_of_its_task_and_nobodys_baggage(
    store: Store, recorder: Recorder
) -> None:
    """Of two customers' requests at the same moment, on a node that was started in a span with baggage of its own."""
    app, spans = mg.App("shop"), Carried()
    recorder.provider.add_span_processor(spans)
    desk = app.agent("desk")
    contexts: dict[str, list[tuple[int, dict[str, object]]]] = {"ann": [], "bob": []}

    def note(customer: str) -> str:
        span_context = trace.get_current_span().get_span_context()
        contexts[customer].append((span_context.trace_id, dict(baggage.get_all())))
        otel.attach(baggage.set_baggage("from", "another attempt"))
        return customer

    @desk.action(complete_within="20s", undo=mg.NOTHING)
    async def one(customer: str) -> str:
        return note(customer)

    @desk.action(complete_within="20s", undo=mg.NOTHING)
    def two(customer: str) -> str:
        return note(customer)

    @app.workflow()
    def buy(customer: str) -> str:
        return two(one(customer))

    otel.attach(baggage.set_baggage("started by", "deploy 7"))
    with recorder.tracer.start_as_current_span("start"):
        async with Node(app, store, options=QUICK, telemetry=recorder.telemetry()) as node:

            async def request(customer: str) -> int:
                with recorder.tracer.start_as_current_span("request") as span:
                    otel.attach(baggage.set_baggage("customer", customer))
                    task = await node.client.submit(buy, customer)
                    await task.result("60s")
                    return span.get_span_context().trace_id

            ann, bob = await asyncio.gather(*map(asyncio.create_task, map(request, contexts)))
    assert contexts == {"ann": [(ann, {})] * 2, "bob": [(bob, {})] * 2}
    assert {name: spans.by_name[name] for name in ("do one", "do two", "task buy")} == {
        "do one": {}, "do two": {}, "task buy": {},
    }  # fmt: skip
