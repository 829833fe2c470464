"""OpenTelemetry traces: one trace for each task, across all processes, with a span for each attempt of a
step.

A task belongs to the trace in which it was submitted. The submission's ``traceparent`` is stored with the
task and travels with every request. If the submission was not traced, the trace's id is made from the store's
id and the task's id, so that all processes agree without communicating.

Every attempt is a child of the submission, never of another attempt: between two attempts there may be
seconds or days, and a parent span is expected to wait for its children. So an attempt *links* to the attempt
before it. A link needs the id of the other span, which another process may have drawn. With ``sdk.TaskIds``
as the provider's source of ids, the id is made from task, step and attempt, and every process knows it. With
other sources, only attempts of the same process are linked.

Only opentelemetry-api is needed, an optional extra. The program chooses the SDK that records the spans
(``sdk`` is the one of the command line). Attributes are called ``makegood.*``; they never contain inputs,
arguments or results.
"""

import asyncio
import hashlib
import random
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from makegood.base import ids
from makegood.base.clock import Clock
from makegood.base.extras import optional
from makegood.declare.action import Action
from makegood.declare.call import current_call, enter
from makegood.model.attempt import Attempt
from makegood.model.messages import Request, TaskMessage
from makegood.model.states import AT_REST, TEXTS
from makegood.model.task import TaskRecord
from makegood.store.records import Committed, Submission
from makegood.telemetry.hooks import Answering, Decided, Heard
from makegood.telemetry.task_metrics import is_end, outcome, written_decisions

_REMEMBERED: Final = 10_000
_VERSION: Final = "00"
_PARTS: Final = 4
_WIDTHS: Final = (32, 16)


class SpanRef(NamedTuple):
    """A reference to a span: the ids of its trace and of itself, and whether it is recorded."""

    trace: int
    span: int
    flags: int = 1

    @property
    def traceparent(self) -> str:
        """The W3C ``traceparent`` header.

        >>> SpanRef(1, 2).traceparent
        '00-00000000000000000000000000000001-0000000000000002-01'
        """
        return f"{_VERSION}-{self.trace:032x}-{self.span:016x}-{self.flags:02x}"


def place_of(traceparent: str | None) -> SpanRef | None:
    """Return the span that a ``traceparent`` names; None if there is none or it cannot be read.

    >>> place_of(SpanRef(1, 2).traceparent) == SpanRef(1, 2), place_of("a-b-c")
    (True, None)
    """
    parts = (traceparent or "").split("-")
    if len(parts) < _PARTS or (len(parts[1]), len(parts[2])) != _WIDTHS:
        return None
    try:
        span_ref = SpanRef(*(int(part, 16) for part in parts[1:_PARTS]))
    except ValueError:
        return None
    return span_ref if span_ref.trace and span_ref.span else None


def derived_id(*words: object, size: int) -> int:
    """Return an id that depends only on these words, and is never 0; ``size`` in bytes."""
    digest = hashlib.blake2b("/".join(map(str, words)).encode(), digest_size=size).digest()
    return int.from_bytes(digest) or 1


class SettledIds:
    """A source of ids: random, except for the spans of tasks, whose ids every process can compute.

    ``sdk.TaskIds`` is such a source for the SDK.
    """

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.SystemRandom()
        self._trace = self._span = 0

    def settle(self, span: int, trace: int = 0) -> None:
        """Set the ids of the next span, which must be started right after this call."""
        self._span, self._trace = span, trace

    def generate_trace_id(self) -> int:
        """Return the id of a trace, for the SDK."""
        trace, self._trace = self._trace, 0
        return trace or self._rng.getrandbits(128) or 1

    def generate_span_id(self) -> int:
        """Return the id of a span, for the SDK."""
        span, self._span, self._trace = self._span, 0, 0
        return span or self._rng.getrandbits(64) or 1

    def is_trace_id_random(self) -> bool:
        """Return True: a sampler may decide by a part of the trace's id."""
        return True


def opentelemetry() -> Any:
    """Return the module opentelemetry.trace; raises ``ConfigError`` when the extra is not installed."""
    message = (
        "traces need opentelemetry-api: `pip install opentelemetry-api`, or install makegood with its extra "
        "(in a checkout `pip install '.[otel]'`)"
    )
    return optional("opentelemetry.trace", "opentelemetry", message)


class Traces:
    """Makes the spans of one process.

    ``provider``: the tracer provider; None = the one that the program has set globally. ``store_id``: returns
    the id of the store, once it is open.
    """

    def __init__(self, provider: Any, clock: Clock, store_id: Callable[[], str]) -> None:
        self._api = opentelemetry()
        self._clock = clock
        self._store_id = store_id
        self._provider = provider
        self._tracer = self._api.get_tracer("makegood", tracer_provider=provider)
        self._last: OrderedDict[tuple[int, str], Any] = OrderedDict()
        self._left: OrderedDict[int, float] = OrderedDict()

    @property
    def _ids(self) -> SettledIds | None:
        """The provider's source of ids, if it is ours; else None.

        The program may set its provider at any time.
        """
        provider = self._api.get_tracer_provider() if self._provider is None else self._provider
        source = getattr(provider, "id_generator", None)
        return source if isinstance(source, SettledIds) else None

    # -- messages -----------------------------------------------------------------------------------

    def sent(self, headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
        """Return a message's headers with the ``traceparent`` of the current span, unless they have one."""
        context = self._api.get_current_span().get_span_context()
        return (
            {"traceparent": _place(context).traceparent, **(headers or {})} if context.is_valid else headers
        )

    def receiving(self, headers: Mapping[str, str]) -> AbstractContextManager[object]:
        """Return a context in which spans are children of the message's sender."""
        origin = place_of(headers.get("traceparent"))
        if origin is None:
            return nullcontext()
        span = self._api.NonRecordingSpan(self._remote(origin))
        context: AbstractContextManager[object] = self._api.use_span(span)
        return context

    # -- submission ---------------------------------------------------------------------------------

    def submitted(self, draft: Submission) -> Submission:
        """Return a submission with the trace that it belongs to: that of the current span, or a new one."""
        if draft.trace is not None:
            return draft
        span = self._tracer.start_span(
            f"submit {draft.workflow}",
            kind=self._api.SpanKind.PRODUCER,
            attributes={
                "makegood.app": draft.app,
                "makegood.workflow": draft.workflow,
                "makegood.task.id": ids.show(draft.id),
            },
        )
        span.end()
        context = span.get_span_context()
        return replace(draft, trace=_place(context).traceparent) if context.is_valid else draft

    # -- attempts -----------------------------------------------------------------------------------

    def begin(self, request: Request) -> Any:
        """Start the span of an attempt."""
        origin = self._origin(request.task, request.trace)
        before = self._before(request, origin)
        if self._ids is not None:
            self._ids.settle(_span_of(request.task, request.step, request.attempt))
        span = self._tracer.start_span(
            f"{request.doing} {request.action}",
            context=self._context(origin),
            links=[] if before is None else [self._api.Link(before, {"makegood.link": "the attempt before"})],
            attributes={
                "makegood.app": request.app,
                "makegood.agent": request.agent,
                "makegood.action": request.action,
                "makegood.task.id": ids.show(request.task),
                "makegood.step": request.step,
                "makegood.step.doing": request.doing,
                "makegood.step.attempt": request.attempt,
                "makegood.step.round": request.round,
            },
        )
        if self._ids is None:
            self._last[request.task, request.step] = span.get_span_context()
            if len(self._last) > _REMEMBERED:
                self._last.popitem(last=False)
        return span

    def finish(self, span: Any, message: TaskMessage | None) -> None:
        """Record in a span how its attempt ended; ``message``: its answer, None for silence."""
        word = "timeout" if message is None else outcome(message)
        span.set_attribute("makegood.outcome", word)
        if message is not None and message.kind in ("refused", "not_happened"):
            span.set_attribute("makegood.answer", message.kind)
        if word in ("transient", "permanent", "timeout"):
            text = TEXTS["deadline"] if message is None else message.error
            span.set_status(self._api.Status(self._api.StatusCode.ERROR, text))

    def using(self, span: Any) -> Any:
        """Return a context in which the span is current: spans started there are its children."""
        return self._api.use_span(
            span, end_on_exit=True, record_exception=False, set_status_on_exception=False
        )

    def _before(self, request: Request, origin: SpanRef) -> Any:
        """Return the span of the attempt before; None if there was none or it is unknown."""
        if request.attempt <= 1:
            return None
        if self._ids is None:
            return self._last.get((request.task, request.step))
        span = _span_of(request.task, request.step, request.attempt - 1)
        return self._remote(SpanRef(origin.trace, span, origin.flags))

    # -- tasks --------------------------------------------------------------------------------------

    def decided(self, _messages: Heard, decisions: Decided, outcome: Committed) -> None:
        """Make a span for each task that came to rest, from its submission (or since it left its rest) until
        now.
        """
        for _, decision in written_decisions(decisions, outcome):
            task = decision.task
            if is_end(decision):
                self._span_of_task(task, self._left.pop(task.id, None))
            elif decision.before.state in AT_REST and task.state not in AT_REST:
                self._left[task.id] = self._clock.wall()
                if len(self._left) > _REMEMBERED:
                    self._left.popitem(last=False)

    def _span_of_task(self, task: TaskRecord, left: float | None) -> None:
        """Make the span of a task.

        It is the root of the trace if nobody traced the submission and its ids can be set.
        """
        origin, is_root = self._origin(task.id, task.trace), False
        if task.trace is None and left is None and self._ids is not None:
            self._ids.settle(origin.span, origin.trace)
            is_root = True
        span = self._tracer.start_span(
            f"task {task.workflow}",
            context=self._api.set_span_in_context(self._api.INVALID_SPAN)
            if is_root
            else self._context(origin),
            start_time=_nanoseconds(ids.draw_time(task.id) if left is None else left),
            attributes={
                "makegood.app": task.app,
                "makegood.workflow": task.workflow,
                "makegood.task.id": ids.show(task.id),
                "makegood.outcome": task.state,
                "makegood.task.submission": task.submission,
                "makegood.task.failures": task.failure_count,
            },
        )
        if task.state == "error":
            span.set_status(self._api.Status(self._api.StatusCode.ERROR))
        span.end(_nanoseconds(self._clock.wall()))

    # -- contexts -----------------------------------------------------------------------------------

    def _origin(self, task: int, trace: str | None) -> SpanRef:
        """Return the origin of a task's trace: its submission, or ids that all processes derive from the
        task's id.
        """
        place = place_of(trace)
        if place is not None:
            return place
        store = self._store_id()
        return SpanRef(derived_id(store, task, "trace", size=16), derived_id(store, task, "task", size=8))

    def _context(self, origin: SpanRef) -> Any:
        return self._api.set_span_in_context(self._api.NonRecordingSpan(self._remote(origin)))

    def _remote(self, place: SpanRef) -> Any:
        flags = self._api.TraceFlags(place.flags)
        return self._api.SpanContext(place.trace, place.span, is_remote=True, trace_flags=flags)


class TracedAttempts:
    """Runs each attempt in a span of its own; see ``hooks.Answering``."""

    def __init__(self, inner: Answering, traces: Traces) -> None:
        self._inner = inner
        self._traces = traces

    async def answer(self, attempt: Attempt, action: Action[..., Any]) -> TaskMessage | None:
        """Return the answer of one attempt.

        Its span is current for the action's own spans and for ``call.headers``.
        """
        traces = self._traces
        span = traces.begin(attempt.request)
        with traces.using(span):
            context = span.get_span_context()
            if context.is_valid:
                enter(current_call()._with_trace(_place(context).traceparent))
            try:
                message = await self._inner.answer(attempt, action)
            except asyncio.CancelledError:  # halted at its deadline, or its process ends
                traces.finish(span, None)
                raise
            traces.finish(span, message)
        return message


def _place(context: Any) -> SpanRef:
    return SpanRef(context.trace_id, context.span_id, int(context.trace_flags))


def _span_of(task: int, step: str, attempt: int) -> int:
    """Return the id of an attempt's span, made from the task, the step and the attempt number."""
    return derived_id(task, step, attempt, size=8)


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
