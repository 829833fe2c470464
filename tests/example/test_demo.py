"""The demo as people run it: real processes, real kills, the audit at the end, and nothing left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import pytest

from examples.orders.demo import require_broker
from examples.orders.private_servers import SERVERS
from examples.orders.world import PACKAGE, ROOT
from makegood.errors import ConfigError

pytestmark = pytest.mark.timeout(600)

DEMO = (sys.executable, "-m", "makegood", "demo")
FALSIFIED = f"""
import sqlite3, sys
from contextlib import closing
from {PACKAGE} import demo

honest = demo.audit

def falsified(books, told):
    with closing(sqlite3.connect(books)) as db, db:
        names = "service, operation, effect, change, key, asked_by, scope, token, order_id, sku, cents, at"
        other = names.replace(" key,", " 'another key',")
        db.execute(
            f"INSERT INTO entry ({{names}}) SELECT {{other}} FROM entry WHERE effect = 'charge'"
            " GROUP BY order_id HAVING SUM(change) = 1 LIMIT 1"
        )
    return honest(books, told)

demo.audit = falsified
sys.exit(demo.main(sys.argv[1:]))
"""


def run(command: Sequence[str], folder: Path, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    """Run the demo; return its exit code, the objects that it wrote, and what it said besides."""
    process = subprocess.run(
        [*command, *arguments, "--json"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=560,
    )
    return process.returncode, [json.loads(line) for line in process.stdout.splitlines()], process.stderr


def broker_or_skip(name: str = "rabbitmq") -> None:
    """Skip a test, and say why, if a broker cannot be had here."""
    try:
        require_broker(name)
    except ConfigError as reason:
        pytest.skip(f"the demo was NOT tested with {name}: {reason}")


def folders(inside: Path) -> list[Path]:
    """The folders of runs of the demo that are there."""
    return list(inside.glob("makegood-demo-*"))


def small_run(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """Run twenty orders and a few kills; all must be well, and nothing may be left behind."""
    code, lines, errors = run(DEMO, folder, "--orders", "20", "--kills", "5", "--seed", "5", *arguments)
    report = lines[-1]
    assert code == 0, (report, errors)
    assert report["event"] == "report"
    assert report["ok"] is True
    assert report["placed"] == 20
    assert report["processed"] + report["undone"] + report["error"] == 20
    assert report["processed"] > 0
    assert report["kills_survived"] == 5
    assert report["stopped_and_resumed"] == 1
    assert report["died_of_themselves"] == 0, errors
    assert set(report["checks"].values()) == {0}
    assert report["audit"]["balanced"] is True
    answers = [line for line in lines if line["event"] in ("approved", "refused")]
    assert len(answers) == report["approved"] + report["refused"] > 0
    assert all(line["process"] == "desk" and line["text"] for line in answers), "each with who, and why"
    settlements = [line["text"] for line in lines if line["event"] == "settled"]
    assert len(settlements) == 2, "triggered, and ended"
    assert report["audit"]["effects"]["settle"]["done"] >= 1
    assert report["complaints"] == []
    kills = [line for line in lines if line["event"] == "killed"]
    assert len(kills) == 5
    assert {"services"} < {line["process"] for line in kills}
    assert any(line["event"] == "progress" for line in lines)
    assert folders(folder) == [], "a run that went well leaves nothing behind"
    return lines


def test_on_sqlite_orders_survive_the_kills_and_the_books_balance(tmp_path: Path) -> None:
    assert small_run(tmp_path)[-1]["store"] == "sqlite"


def test_on_postgres_orders_survive_the_kills_and_the_books_balance(tmp_path: Path) -> None:
    assert small_run(tmp_path, "--postgres")[-1]["store"] == "postgres"


@pytest.mark.parametrize("broker", SERVERS)
def test_through_a_broker_that_is_killed_each_order_is_one_task_and_each_notice_comes(
    broker: str, tmp_path: Path
) -> None:
    broker_or_skip(broker)
    lines = small_run(tmp_path, "--broker", broker)
    assert "broker" in {line["process"] for line in lines if line["event"] == "killed"}
    passage = lines[-1]["broker"]
    assert (passage["orders"], passage["tasks"]) == (20, 20)
    assert passage["notices"] >= 2 * 20


def test_a_false_entry_in_the_books_is_found_and_the_demo_fails(tmp_path: Path) -> None:
    """Before the audit a charge that stands is entered a second time, as a service without keys would have done."""
    command = (sys.executable, "-c", FALSIFIED)
    code, lines, errors = run(command, tmp_path, "--orders", "6", "--kills", "0", "--seed", "5")
    report = lines[-1]
    assert code == 1, (report, errors)
    assert report.get("ok") is False, (report, errors)
    assert report["checks"]["charged twice"] == 1
    (folder,) = folders(tmp_path)
    assert (folder / "books.db").exists(), "the evidence is kept"
    outcomes = [json.loads(line) for line in (folder / "told.jsonl").read_text().splitlines()]
    assert len(outcomes) == 6


@contextmanager
def descendants(pid: int) -> Iterator[list[int]]:
    """File descriptors of all processes that a process has started, themselves or through others."""
    ignore = suppress(
        FileNotFoundError, ProcessLookupError
    )  # meanwhile: PostgreSQL's short workers come and go
    pids = [pid]
    for one in pids:
        with ignore:
            for task in Path(f"/proc/{one}/task").iterdir():
                with ignore:
                    pids += map(int, (task / "children").read_text().split())
    with ExitStack() as stack:
        descriptors = []
        for one in pids[1:]:
            with ignore:
                descriptors.append(os.pidfd_open(one))
                stack.callback(os.close, descriptors[-1])
        yield descriptors


def all_gone(descriptors: Sequence[int]) -> None:
    """All of these processes, given by their descriptors, end."""
    deadline = time.monotonic() + 120
    while alive := [fd for fd in descriptors if not wait([fd], 0)]:
        assert time.monotonic() < deadline, f"{len(alive)} processes outlived the demo"
        wait(alive, 0.1)


@pytest.mark.parametrize(
    ("number", "around"),
    [
        (signal.SIGINT, ()),
        (signal.SIGTERM, ()),
        (signal.SIGKILL, ()),
        (signal.SIGINT, ("--postgres",)),
        (signal.SIGKILL, ("--postgres",)),
        (signal.SIGINT, ("--broker", "rabbitmq")),
        (signal.SIGKILL, ("--broker", "rabbitmq")),
    ],
)
def test_ended_in_the_middle_it_leaves_no_process_behind(
    number: signal.Signals, around: tuple[str, ...], tmp_path: Path
) -> None:
    """Whoever ends it, however, while one of its processes is stopped: all end, a private PostgreSQL and a broker too."""
    if "--broker" in around:
        broker_or_skip()
    demo = subprocess.Popen(
        [
            *DEMO,
            "--orders",
            "50",
            "--kills",
            "8",
            "--seed",
            "1",
            "--json",
            *around,
        ],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert demo.stdout is not None
    try:
        for line in demo.stdout:
            if json.loads(line)["event"] == "stopped":  # one of its processes is stopped right now
                break
        with descendants(demo.pid) as descriptors:
            assert len(descriptors) >= 7
            demo.send_signal(number)
            _, errors = demo.communicate(timeout=120)
            assert demo.returncode == (130 if number is not signal.SIGKILL else -signal.SIGKILL), errors
            all_gone(descriptors)
    finally:
        demo.kill()
        demo.wait()
    if number is not signal.SIGKILL:
        assert folders(tmp_path) == []
