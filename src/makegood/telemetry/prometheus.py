"""Exports metrics to Prometheus: a collector for a registry of prometheus-client, an optional extra.

A process's counts come from its ``Counters``, and its slots and circuits from its agents. Figures of the
store as a whole come only from the process whose Supervisor leads, so that a sum over all processes is right.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Final

from makegood.base.clock import Clock
from makegood.base.extras import optional
from makegood.errors import StoreUnavailableError
from makegood.store.views import TaskFigures
from makegood.telemetry import catalogue
from makegood.telemetry.catalogue import METRICS, Metric
from makegood.telemetry.counters import Counters, Labels
from makegood.telemetry.hooks import Process

CIRCUITS: Final[Mapping[str, float]] = {"closed": 0.0, "half-open": 1.0, "release": 1.0, "open": 2.0}

_TAKEN: Final = frozenset(metric.name for metric in METRICS if metric.kind == "gauge")

FRESH: Final = 1.0
"""Seconds for which figures from the store are reused.

If reading them takes long, they are reused for longer: reading takes at most a twentieth of the store's time.
"""
_SHARE: Final = 20.0
RECOUNTED: Final = 60.0
"""Seconds between two counts of sleeping tasks, if they are many."""
PATIENCE: Final = 2.0
"""The most seconds for reading the figures; after that the page omits them."""


def prometheus() -> Any:
    """Return the module prometheus_client; raises ``ConfigError`` when the extra is not installed."""
    message = (
        "metrics need prometheus-client: `pip install prometheus-client`, or install makegood with its extra "
        "(in a checkout `pip install '.[prometheus]'`)"
    )
    return optional("prometheus_client", "prometheus_client", message)


class Gauges:
    """The current values of gauges: slots, circuits, who leads, and the figures that the leader read from the
    store.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._process: Process | None = None
        self._figures: TaskFigures | None = None
        self._next = 0.0
        self._sleepers: Mapping[tuple[str, str], int] | None = None
        self._recount = 0.0

    def begin(self, process: Process) -> None:
        """Set the process whose values are read."""
        self._process = process

    async def refresh(self) -> None:
        """Read the figures that only the leader reports from the store, unless they are fresh."""
        process, now = self._process, self._clock.monotonic()
        if process is None or not process.leads():
            self._figures = self._sleepers = None
            return
        if self._figures is not None and now < self._next:
            return
        sleepers = self._sleepers if now < self._recount else None
        try:
            async with asyncio.timeout(PATIENCE):
                self._figures = await process.store.admin.figures(sleepers, calendar=self._clock.wall())
        except (StoreUnavailableError, TimeoutError):
            self._figures = None  # better no number than an old one
        after = self._clock.monotonic()
        if self._figures is not None and self._figures.sleepers is not sleepers:
            self._sleepers, self._recount = self._figures.sleepers, after + RECOUNTED
        self._next = after + max(FRESH, _SHARE * (after - now))

    def values(self) -> Mapping[str, Mapping[Labels, float]]:
        """Return every gauge's numbers by labels."""
        gauges: dict[str, dict[Labels, float]] = {m.name: {} for m in METRICS if m.kind == "gauge"}
        process, figures = self._process, self._figures
        if process is None:
            return gauges
        for info in process._infos():
            whose = _app_and_agent(info.agent)
            gauges[catalogue.SLOTS.name][*whose, "used"] = float(info.used)
            gauges[catalogue.SLOTS.name][*whose, "free"] = float(max(0, info.slots - info.used))
            if info.circuit:
                gauges[catalogue.CIRCUIT.name][whose] = CIRCUITS[info.circuit]
        for source in process._sources():
            if source.waiting is not None:
                gauges[catalogue.SOURCE_WAITING.name][source.address,] = float(source.waiting)
            if source.oldest is not None:
                gauges[catalogue.SOURCE_OLDEST.name][source.address,] = source.oldest
            gauges[catalogue.SOURCE_AWAY.name][source.address,] = source.away or 0.0
        for sender in process._senders():
            gauges[catalogue.RECEIVER_AWAY.name][sender.broker,] = sender.away or 0.0
        leads = process.leads()
        if leads is not None:
            gauges[catalogue.LEADER.name]["supervisor",] = float(leads)
        if figures is not None:
            gauges[catalogue.TASKS.name] |= {labels: float(n) for labels, n in figures.tasks.items()}
            gauges[catalogue.ALERTS.name] |= {(kind,): float(n) for kind, n in figures.alerts.items()}
            gauges[catalogue.DUE_LAG.name][()] = figures.due_lag
            for agent, (waiting, oldest) in figures.queues.items():
                gauges[catalogue.QUEUE.name][_app_and_agent(agent)] = float(waiting)
                gauges[catalogue.OLDEST.name][_app_and_agent(agent)] = oldest
        return gauges


def _app_and_agent(address: str) -> tuple[str, str]:
    app, _, agent = address.partition("/")
    return app, agent


class Collector:
    """A collector for a registry of prometheus-client: ``registry.register(collector)``."""

    def __init__(self, tally: Counters, gauges: Gauges) -> None:
        self._tally = tally
        self._gauges = gauges

    def collect(self) -> Iterator[Any]:
        """Yield every metric with its numbers, as prometheus-client asks."""
        prometheus()
        core = import_module("prometheus_client.core")
        gauge = partial(self._gauge, self._gauges.values())
        make: Mapping[str, Callable[[Any, Metric], Any]]
        make = {"counter": self._counter, "histogram": self._histogram, "gauge": gauge}
        for metric in METRICS:
            yield make[metric.kind](core, metric)

    def _counter(self, core: Any, metric: Metric) -> Any:
        base = metric.name.removesuffix("_total")
        if base in _TAKEN:  # OpenMetrics has one name for a family, and a gauge of that name is there
            family = core.UnknownMetricFamily(metric.name, metric.text, labels=metric.labels)
        else:
            family = core.CounterMetricFamily(base, metric.text, labels=metric.labels)
        return _fill(family, self._tally.counts(metric))

    def _gauge(self, now: Mapping[str, Mapping[Labels, float]], core: Any, metric: Metric) -> Any:
        family = core.GaugeMetricFamily(metric.name, metric.text, labels=metric.labels)
        return _fill(family, now[metric.name])

    def _histogram(self, core: Any, metric: Metric) -> Any:
        family = core.HistogramMetricFamily(metric.name, metric.text, labels=metric.labels)
        bounds = [*(f"{limit:g}" for limit in metric.buckets), "+Inf"]
        for labels, spread in self._tally.spreads(metric).items():
            family.add_metric(labels, list(zip(bounds, spread.rising(), strict=True)), spread.total)
        return family


def _fill(family: Any, numbers: Mapping[Labels, float]) -> Any:
    for labels, value in numbers.items():
        family.add_metric(labels, value)
    return family


def exposition(registry: Any, accept: str) -> tuple[str, bytes]:
    """Return the content type and the text of a registry's metrics.

    The format is the newest that the client accepts, or the usual one if its Accept header cannot be read.
    """
    choose = prometheus().exposition.choose_encoder
    try:
        encode, kind = choose(accept)
    except Exception:  # noqa: BLE001 - the library reads the header as it comes: a stranger chooses what it raises
        encode, kind = choose("")
    return kind, encode(registry)
