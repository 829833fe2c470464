"""Watched nodes on real stores: the fixtures of the conformance suite, and a page of metrics as a scraper reads it."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

import makegood as mg
from makegood.node.node import Node
from makegood.options import Options
from makegood.store.protocol import Store
from makegood.telemetry import Telemetry
from tests.conformance.conftest import (
    counting,
    counting_store,
    counts,
    databases,
    other,
    pytest_pyfunc_call,
    runner,
    store,
    world,
)

__all__ = [
    "Numbers",
    "asked",
    "counting",
    "counting_store",
    "counts",
    "databases",
    "other",
    "page",
    "pytest_pyfunc_call",
    "runner",
    "store",
    "watched",
    "world",
]

QUICK = Options(
    supervise_every="500ms", late_after=0, lease="10s", poll_every="20ms", drain="5s", leaderless_after=None
)


class Numbers:
    """A page of metrics: ``numbers("makegood_tasks_total", outcome="undone")`` is the sum over what has these labels."""

    def __init__(self, text: str) -> None:
        self.samples = [s for family in text_string_to_metric_families(text) for s in family.samples]

    def __call__(self, name: str, **labels: str) -> float | None:
        """Return the sum of the samples with these labels, None when there is none."""
        samples = self.of(name, **labels)
        return sum(samples) if samples else None

    def of(self, name: str, **labels: str) -> list[float]:
        """Return the samples with these labels."""
        return [
            float(s.value)
            for s in self.samples
            if s.name == name and all(s.labels.get(label) == value for label, value in labels.items())
        ]

    def table(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """Return the samples by the values of some labels, summed."""
        values: dict[tuple[str, ...], float] = {}
        for s in self.samples:
            if s.name == name:
                key = tuple(s.labels[label] for label in labels)
                values[key] = values.get(key, 0.0) + s.value
        return values


async def asked(address: str, path: str, *lines: str, method: str = "GET") -> tuple[int, dict[str, str], str]:
    """Ask for a page as a probe does; return status, headers and text."""
    host, _, port = address.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = "\r\n".join([f"{method} {path} HTTP/1.1", "Host: here", *lines, "", ""])
    writer.write(head.encode())
    response = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    top, _, text = response.partition("\r\n\r\n")
    first, *rest = top.split("\r\n")
    return int(first.split(" ")[1]), dict(line.lower().split(": ", 1) for line in rest), text


async def page(telemetry: Telemetry) -> Numbers:
    """Scrape a watched node."""
    status, _, text = await asked(telemetry.address, "/metrics")
    assert status == 200, text
    return Numbers(text)


@asynccontextmanager
async def watched(
    app: mg.App | None,
    store: Store,
    *,
    roles: Iterable[str] | None = None,
    options: Options = QUICK,
    **more: Any,
) -> AsyncIterator[tuple[Node, Telemetry]]:
    """Run roles, watched, on a free port."""
    telemetry = Telemetry(listen="127.0.0.1:0", **more)
    async with Node(app, store, roles=roles, options=options, telemetry=telemetry) as node:
        yield node, telemetry
