"""Chaos with a broker: a run on a real one, and what the check of its orders and notices must not miss."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from examples.chaos.broker import FILE
from examples.chaos.broker_checks import examine_broker
from examples.chaos.kinds import BROKER
from examples.chaos.report import THROUGH_BROKER
from examples.orders.private_servers import RabbitServer
from examples.orders.world import ROOT
from makegood import MakegoodError
from tests.chaos.test_chaos import CHAOS

SECONDS = 10
Facts = dict[str, Any]
Lines = list[dict[str, Any]]


@pytest.mark.timeout(400)
def test_orders_through_rabbitmq_are_one_task_each_while_it_and_the_inboxes_are_killed() -> None:
    try:
        RabbitServer.require()
    except MakegoodError as why:
        pytest.skip(f"chaos with a broker was NOT tested: {why}")
    parent = Path(tempfile.mkdtemp(prefix="chaos-"))  # a short path: sockets stand in it
    process = subprocess.run(
        [*CHAOS, "--broker", "rabbitmq", "--seconds", str(SECONDS), "--json", "--keep"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(parent)},
        capture_output=True,
        text=True,
        check=False,
        timeout=360,
    )
    assert process.stdout, process.stderr
    report = json.loads(process.stdout.splitlines()[-1])
    assert report["event"] == "report", (report, process.stderr)
    assert (report["findings"], report["complaints"]) == ([], []), (report["seed"], report["folder"])
    for kind in BROKER:
        assert report["faults"][kind.value] > 0
    for name in THROUGH_BROKER:
        assert report["broker"][name] > 0
    assert (
        report["audit"]["balanced"] is True
    )  # what else so short a run did not meet is the longer runs' matter
    shutil.rmtree(parent)


# -- falsified facts -----------------------------------------------------------------------------------------------------


def notice(order: str, sequence: int, state: str) -> dict[str, Any]:
    task = f"t-{order}"
    return {
        "id": f"{task}-{sequence}",
        "order": order,
        "task": task,
        "sequence": sequence,
        "state": state,
    }


def facts() -> Facts:
    """Two orders, each one task; the first was published twice, and one of its notices was sent twice."""
    return {
        "published": {"a": 2, "b": 1},
        "tasks": {"a": ["t-a"], "b": ["t-b"]},
        "notices": [
            notice("a", 1, "received"),
            notice("b", 1, "received"),
            notice("a", 2, "processing"),
            notice("a", 2, "processing"),
            notice("b", 2, "undone"),
            notice("a", 3, "processed"),
        ],
        "dead": [],
    }


def ends() -> Lines:
    return [{"order": "a", "outcome": "processed"}, {"order": "b", "outcome": "undone"}]


def findings(folder: Path, facts: Facts, lines: Lines) -> list[str]:
    (folder / FILE).write_text(json.dumps(facts))
    return list(examine_broker(folder, lines).findings)


def test_a_run_without_a_broker_has_nothing_to_find(tmp_path: Path) -> None:
    verdict = examine_broker(tmp_path, ends())
    assert (verdict.findings, dict(verdict.counts)) == ((), {})


def test_a_repeated_publication_and_a_repeated_notice_are_counted_and_are_no_fault(tmp_path: Path) -> None:
    assert findings(tmp_path, facts(), ends()) == []
    assert dict(examine_broker(tmp_path, ends()).counts) == {
        "orders through the broker": 2,
        "orders published more than once": 1,
        "notices": 5,
        "notices repeated": 1,
    }


def two_tasks(facts: Facts, lines: Lines) -> None:
    facts["tasks"]["a"].append("t-a2")


def no_task(facts: Facts, lines: Lines) -> None:
    facts["tasks"]["b"].clear()


def unknown_to_its_publisher(facts: Facts, lines: Lines) -> None:
    lines.pop()


def notices_out_of_order(facts: Facts, lines: Lines) -> None:
    facts["notices"].insert(0, facts["notices"].pop())


def notice_missing(facts: Facts, lines: Lines) -> None:
    del facts["notices"][0]


def last_notice_missing(facts: Facts, lines: Lines) -> None:
    facts["notices"].pop()


def all_notices_missing(facts: Facts, lines: Lines) -> None:
    facts["notices"] = [one for one in facts["notices"] if one["order"] != "b"]


def another_end_in_the_notice(facts: Facts, lines: Lines) -> None:
    facts["notices"][-1]["state"] = "undone"


def notice_of_a_stranger(facts: Facts, lines: Lines) -> None:
    facts["notices"].append(notice("c", 1, "received"))


def order_refused(facts: Facts, lines: Lines) -> None:
    facts["dead"].append('{"order": "a"}')


@pytest.mark.parametrize(
    ("falsify", "words"),
    [
        (two_tasks, "published 2 times, is 2 tasks"),
        (no_task, "published 1 times, is 0 tasks"),
        (unknown_to_its_publisher, "its publisher does not know it"),
        (notices_out_of_order, "its notices came as [3, 1, 2]"),
        (notice_missing, "its notices came as [2, 3]"),
        (last_notice_missing, "it is processed, and the last notice says processing"),
        (all_notices_missing, "it is undone, and the last notice says None"),
        (another_end_in_the_notice, "it is processed, and the last notice says undone"),
        (notice_of_a_stranger, "notices came of task t-c"),
        (order_refused, "dead letters have"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_what_is_wrong_with_orders_and_notices_of_a_broker_is_found(
    tmp_path: Path, falsify: Callable[[Facts, Lines], None], words: str
) -> None:
    false_facts, lines = facts(), ends()
    falsify(false_facts, lines)
    assert any(words in finding for finding in findings(tmp_path, false_facts, lines))
