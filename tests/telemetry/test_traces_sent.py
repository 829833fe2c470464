"""Traces of real processes, as a collector gets them: one trace over all of them, linked across a death."""

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from makegood.base import ids
from makegood.telemetry.traces import derived_id
from tests.doors.conftest import Shop

APP = """
import os, makegood as mg
app = mg.App("frail")
desk = app.agent("desk")

@desk.action(complete_within="3s", retry=mg.Retry(tries=1), recover=mg.Recover(threshold=50, wait="10ms"), undo=mg.NOTHING)
async def work(x: int) -> str:
    if "FRAIL" in os.environ:
        os._exit(9)
    return mg.current_call().headers["traceparent"]

@app.workflow()
def do(x: int) -> str:
    return work(x)
"""


class Collector:
    """Takes spans by OTLP over HTTP, as a collector does. ``spans``: with the name of the process that sent each."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Any]] = []
        self.came = threading.Condition()
        collector = self

        class Taking(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                message = ExportTraceServiceRequest()
                message.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
                with collector.came:
                    for resource in message.resource_spans:
                        names = {a.key: a.value.string_value for a in resource.resource.attributes}
                        collector.spans += [
                            (names["service.name"], span)
                            for scope in resource.scope_spans
                            for span in scope.spans
                        ]
                    collector.came.notify_all()
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Taking)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    @property
    def environ(self) -> dict[str, str]:
        """What tells a process to send here, and at once."""
        endpoint = f"http://127.0.0.1:{self.server.server_port}"
        return {
            "MAKEGOOD_TRACES": "on", "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_BSP_SCHEDULE_DELAY": "20",
        }  # fmt: skip

    def wait(self, *names: str) -> dict[str, tuple[str, Any]]:
        """Wait until there are spans of these names; return the last of each, with its process."""
        with self.came:
            assert self.came.wait_for(
                lambda: {span.name for _, span in self.spans} >= set(names), timeout=120
            )
            return {span.name: (service, span) for service, span in self.spans}

    def close(self) -> None:
        """Take no more."""
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A collector."""
    new_collector = Collector()
    yield new_collector
    new_collector.close()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A shop with an app whose agent dies if it is to."""
    new_shop = Shop(tmp_path)
    (tmp_path / "frail.py").write_text(APP, encoding="utf-8")
    assert new_shop.call("store", "migrate").exit_code == 0
    yield new_shop
    new_shop.close()


def span_of(task: str, attempt: int) -> int:
    """Return the id of an attempt's span, as every process makes it."""
    return derived_id(ids.parse(task), "work", attempt, size=8)


def test_one_trace_over_all_processes_linked_across_a_death(shop: Shop, collector: Collector) -> None:
    """The first agent dies in the attempt, so its span is never sent; the second's is a child of the same submission and names it."""
    quick = {
        "MAKEGOOD_HEARTBEAT": "100ms",
        "MAKEGOOD_DEAD_AFTER": "1m",
        "MAKEGOOD_SUPERVISE_EVERY": "100ms",
        "MAKEGOOD_LEASE": "10s",
        "MAKEGOOD_LATE_AFTER": "0s",
    }
    shop.serve("scheduler", **collector.environ, **quick, OTEL_SERVICE_NAME="planner")
    shop.serve("supervisor", **quick)
    first = shop.serve("agent", "frail:app", "desk", **collector.environ, **quick, FRAIL="1")
    trace = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"
    task = json.loads(
        shop.run("task", "submit", "frail:do", "1", "--json", **collector.environ, TRACEPARENT=trace).stdout
    )["id"]
    assert first.wait(120) == 9
    second = shop.serve("agent", "frail:app", "desk", **collector.environ, **quick)
    shop.done("task", "watch", task, "--timeout", "2m")
    spans = collector.wait("submit do", "do work", "task do")
    assert {span.trace_id.hex() for _, span in spans.values()} == {"ab" * 16}
    submit = spans["submit do"][1]
    assert submit.parent_span_id.hex() == "cd" * 8
    service, attempt = spans["do work"]
    assert service == "makegood"
    assert attempt.parent_span_id == spans["task do"][1].parent_span_id == submit.span_id
    assert spans["task do"][0] == "planner"
    (link,) = attempt.links
    about = {a.key: a.value.int_value or a.value.string_value for a in attempt.attributes}
    number = int(about["makegood.step.attempt"])
    assert (number > 1, about["makegood.task.id"]) == (True, task)
    assert (link.trace_id, int.from_bytes(link.span_id)) == (attempt.trace_id, span_of(task, number - 1))
    assert span_of(task, 1) not in {
        int.from_bytes(span.span_id) for _, span in collector.spans
    }  # its process died
    result = json.loads(shop.done("task", "show", task, "--json"))
    assert attempt.span_id.hex() in json.dumps(result)
    assert shop.stop(second)[0] == 0


def test_a_collector_that_is_away_hinders_nothing(shop: Shop) -> None:
    """Tasks are done, and the process ends in good order."""
    environ = {
        "MAKEGOOD_TRACES": "on",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
        "OTEL_BSP_SCHEDULE_DELAY": "20",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "0.2",
    }
    process = shop.start("run", "frail:app", **environ)
    assert process.stderr is not None
    while not (line := process.stderr.readline()).startswith("makegood: "):
        assert line
    assert "probes" not in line  # it listens nowhere
    shop.done("task", "submit", "frail:do", "1", "--wait", "--timeout", "2m")
    code, _, err = shop.stop(process)
    assert code == 0, err


def test_without_the_sdk_it_is_said_which_extra_is_missing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    monkeypatch.delitem(sys.modules, "makegood.telemetry.sdk", raising=False)
    result = shop.call("scheduler", "--traces", "on")
    assert result.exit_code == 2
    assert "pip install opentelemetry-sdk" in result.stderr
    assert shop.call("scheduler", "--traces", "perhaps").exit_code == 2
