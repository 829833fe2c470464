"""Watching stays outside: nothing of it is loaded unasked, it works without its extras as far as it can, and stops nobody."""

import json
import logging
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from makegood.store.protocol import Store
from makegood.telemetry.hooks import Watch
from makegood.telemetry.task_metrics import Accounts
from tests.telemetry.conftest import page, watched
from tests.telemetry.test_task_metrics import Bank, shop

PROGRAM = """
import asyncio, json, sys, urllib.request
import makegood as mg

app = mg.App("shop")

@app.agent("desk").action(complete_within="20s", undo=mg.NOTHING)
async def work(x: int) -> int:
    return x

@app.workflow()
def do(x: int) -> int:
    return work(x)

async def main(listen):
    telemetry = None
    if listen:
        from makegood.telemetry import Telemetry
        telemetry = Telemetry(listen=listen)
    said = {}
    async with mg.Node(app, "sqlite:///o.db", telemetry=telemetry) as node:
        said["result"] = await (await node.client.submit(do, 7)).result("60s")
        if telemetry is not None:
            for name in ("readyz", "metrics"):
                try:
                    with await asyncio.to_thread(urllib.request.urlopen, f"{telemetry.address}/{name}") as page:
                        said[name] = page.status, page.read().decode()
                except urllib.error.HTTPError as answer:
                    said[name] = answer.code, answer.read().decode()
    said["loaded"] = sorted(sys.modules)
    print(json.dumps(said))

"""


def run(folder: Path, ending: str) -> Any:
    """Run the program in a process of its own; return what it says."""
    program = textwrap.dedent(PROGRAM) + ending
    process = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout), process.stderr


def test_nothing_is_loaded_unasked(tmp_path: Path) -> None:
    """A process that nobody asked to be watched loads neither the extras nor what watches."""
    report, _ = run(tmp_path, "asyncio.run(main(None))")
    assert report["result"] == 7
    wrong = ("makegood.telemetry.telemetry", "prometheus_client", "opentelemetry")
    assert not [name for name in report["loaded"] if name.startswith(wrong)]


def test_without_the_extra_there_are_probes_and_a_page_that_says_what_is_missing(tmp_path: Path) -> None:
    ending = "sys.modules['prometheus_client'] = None\nasyncio.run(main('127.0.0.1:0'))"
    report, _ = run(tmp_path, ending)
    assert report["readyz"] == [200, "ok\n"]
    status, text = report["metrics"]
    assert status == 501
    assert "pip install prometheus-client" in text
    assert not [name for name in report["loaded"] if name.startswith("prometheus_client.")]


async def test_whoever_only_watches_stops_nobody(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A defect in what watches is told, and the work goes on."""

    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Accounts, "decided", broken)
    app, buy = shop(Bank())
    with caplog.at_level(logging.ERROR):
        async with watched(app, store) as (node, telemetry):
            assert await (await node.client.submit(buy, "o")).result("60s") == "o"
            assert (await page(telemetry))("makegood_tasks_total") is None
            watch: Watch | None = telemetry.watch
            assert watch is not None
    assert "could not record a commit" in caplog.text
