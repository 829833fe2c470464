"""``Telemetry``: the object that watches a process, made from the parts of this package."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from makegood.base.arguments import judge_calls
from makegood.base.cancelling import cancel_and_wait
from makegood.base.clock import Clock, SystemClock
from makegood.errors import ConfigError
from makegood.store.protocol import Store
from makegood.store.records import Committed, Submission
from makegood.telemetry import catalogue
from makegood.telemetry.counters import Counters
from makegood.telemetry.hooks import Answering, Decided, Heard, Process, Watch
from makegood.telemetry.http_server import Page, Server
from makegood.telemetry.metered_store import CountedAttempts, WatchedStore, Whose
from makegood.telemetry.prometheus import Collector, Gauges, exposition, prometheus
from makegood.telemetry.task_metrics import Accounts
from makegood.telemetry.traces import TracedAttempts, Traces

log = logging.getLogger("makegood.telemetry")


@judge_calls(ConfigError)
class Telemetry:
    """Watches one Node: ``Node(app, url, telemetry=Telemetry(listen="127.0.0.1:9464"))``. Make one for each
    Node.

    ``listen``: "HOST:PORT" on which to serve /livez, /readyz, /startupz and, with the extra ``prometheus``,
    /metrics. Port 0 takes any free port (``address`` says which). ``registry``: a ``CollectorRegistry`` of
    prometheus-client, such as its ``REGISTRY``, that also gets the metrics, for a program that serves its own
    metrics page.

    ``traces``: True = make spans with the tracer provider that the program has set, or a ``TracerProvider``.
    This needs the extra ``otel``. For traces a ``Client`` takes a Telemetry as well (the same one, or one of
    its own).

    Raises ``ConfigError`` for an invalid address, for a ``registry`` without prometheus-client, and for
    ``traces`` without opentelemetry-api.

    >>> Telemetry(listen="127.0.0.1:0").address
    ''
    """

    def __init__(
        self,
        *,
        listen: str | None = None,
        registry: Any = None,
        traces: Any = False,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._server = None if listen is None else Server(listen, self._page)
        self._tally: Counters | None = None
        self._missing = ""
        self._registry = registry
        self._shared = registry is not None
        self._gauges = Gauges(self._clock)
        self._collector: Collector | None = None
        self._process: Process | None = None
        self._looking: asyncio.Task[None] | None = None
        self._whose = Whose()
        provider = None if traces is True else traces
        self._traces = None if traces is False else Traces(provider, self._clock, self._store_id)
        if listen is not None or registry is not None:
            self._set_up_metrics()

    def _set_up_metrics(self) -> None:
        try:
            library = prometheus()
        except ConfigError as missing:
            if self._shared:
                raise
            self._missing = str(missing)
            return
        if self._registry is None:
            self._registry = library.CollectorRegistry()
        self._tally = Counters()
        self._collector = Collector(self._tally, self._gauges)

    @property
    def address(self) -> str:
        """The address that it listens on, such as "http://127.0.0.1:43121"; "" if it does not, or not yet."""
        return "" if self._server is None else self._server.address

    # -- hooks.Observer ----------------------------------------------------------------------------

    @property
    def watch(self) -> Watch | None:
        """The watch that is notified of a Scheduler's commits; None if there is none."""
        watches: list[Watch] = []
        if self._tally is not None:
            watches.append(Accounts(self._tally, self._clock))
        if self._traces is not None:
            watches.append(self._traces)
        return _All(watches) if watches else None

    def watched(self, store: Store) -> Store:
        """Return the store that the roles must use instead of ``store``."""
        if self._tally is None:
            return store
        return WatchedStore(store, self._tally, self._clock, self._whose)

    def answering(self, runner: Answering) -> Answering:
        """Return the runner that the agents must use instead of ``runner``."""
        if self._tally is not None:
            runner = CountedAttempts(runner, self._tally, self._clock)
        return runner if self._traces is None else TracedAttempts(runner, self._traces)

    def submitted(self, draft: Submission) -> Submission:
        """Return a submission with the trace that it belongs to, ready to be written."""
        return draft if self._traces is None else self._traces.submitted(draft)

    def sent(self, headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
        """Return a message's headers with the current trace, ready to be sent."""
        return headers if self._traces is None else self._traces.sent(headers)

    def receiving(self, headers: Mapping[str, str]) -> AbstractContextManager[object]:
        """Return a context whose work belongs to the trace that a message's headers name."""
        return nullcontext() if self._traces is None else self._traces.receiving(headers)

    def source_messages(self, source: str, outcome: str, count: int) -> None:
        """Count messages of a broker."""
        if self._tally is not None:
            self._tally.count(catalogue.SOURCE_MESSAGES, source, outcome, by=count)

    def broker_send(self, broker: str, outcome: str) -> None:
        """Count a notice to a broker."""
        if self._tally is not None:
            self._tally.count(catalogue.BROKER_SENDS, broker, outcome)

    async def begin(self, process: Process) -> None:
        """Start watching, before the store is opened. Raises ``ConfigError`` if it cannot listen."""
        if self._process is not None:
            raise ConfigError("this Telemetry watches a Node already: make one for each")
        if self._server is not None:
            await self._server.begin()
        self._process = process
        self._gauges.begin(process)
        if self._server is not None:
            log.info("%s listens on %s for probes and metrics", process.name, self.address)
            if self._missing:
                log.warning("/metrics has none to show: %s", self._missing)
        if self._collector is not None:
            self._registry.register(self._collector)
            if self._shared:
                self._looking = asyncio.get_running_loop().create_task(self._look(), name="telemetry")

    async def end(self) -> None:
        """Stop watching: the process has stopped."""
        if self._process is None:
            return
        self._process = None
        await cancel_and_wait(self._looking)
        if self._collector is not None:
            self._registry.unregister(self._collector)
        if self._server is not None:
            await self._server.end()

    def _store_id(self) -> str:
        assert self._process is not None  # a Scheduler or an agent asks, hence a Node
        return self._process.store.identity.store_id

    # -- answering -----------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Keep the figures from the store fresh, for a registry that is read in another thread."""
        while True:
            await self._gauges.refresh()
            await asyncio.sleep(_LOOK)

    async def _page(self, path: str, headers: Mapping[str, str]) -> Page:
        process = self._process
        if process is None:
            return Page(503, b"not ready: stopped\n")
        if path == "/livez":
            return _probe(process.dead(), "not alive")
        if path == "/readyz":
            return _probe(process.dead() or process.unready(), "not ready")
        if path == "/startupz":
            return _probe("starting" if process.unready() == "starting" else "", "not ready")
        if path == "/metrics":
            return await self._metrics(headers.get("accept", ""))
        return Page(404, b"there are /livez, /readyz, /startupz and /metrics\n")

    async def _metrics(self, accept: str) -> Page:
        if self._collector is None:
            return Page(501, f"{self._missing}\n".encode())
        await self._gauges.refresh()
        kind, text = exposition(self._registry, accept)
        return Page(200, text, kind)


_LOOK = 5.0  # seconds between refreshes for a registry that others read


class _All:
    """Notifies several watches.

    An error in one of them is logged, and does not stop the others or the work.
    """

    def __init__(self, watches: Sequence[Watch]) -> None:
        self._watches = watches

    def decided(self, messages: Heard, decisions: Decided, outcome: Committed) -> None:
        """Notify each watch of a commit."""
        for watch in self._watches:
            try:
                watch.decided(messages, decisions, outcome)
            except Exception:  # a watch must not stop the work
                log.exception("%s could not record a commit; the work continues", type(watch).__name__)


def _probe(wrong: str, what: str) -> Page:
    return Page(503, f"{what}: {wrong}\n".encode()) if wrong else Page(200, b"ok\n")
