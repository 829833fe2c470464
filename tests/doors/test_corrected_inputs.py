"""``task resubmit --input``: what changes is shown first; the whole task is corrected, or nothing of it."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.doors.conftest import BARE, Shop

DESK = """
from dataclasses import dataclass

import makegood as mg

shop = mg.App("part")
desk = shop.agent("desk")


@dataclass
class Order:
    id: str
    cents: int
    card: str


@desk.action(complete_within="20s", undo=mg.NOTHING)
def invoice(order: Order) -> str:
    return f"invoice over {order.cents}"


@desk.action(complete_within="20s")
def charge(order: str, cents: int, card: str) -> str:
    if card == "expired":
        raise mg.Permanent("the card has expired")
    return f"charged {cents}"


@charge.undo
def refund(order: str, *, result: str | None) -> None: ...


@desk.action(complete_within="20s", undo=mg.NOTHING)
def audit(order: Order, paid: str) -> str:
    return f"ordered {order.cents}, {paid}"


@shop.workflow()
def sell(order: Order) -> str:
    with open("runs", "a") as runs:
        runs.write(".")
    if order.id == "strange":
        raise LookupError("no such order")
    invoice(order)
    if order.cents > 1000:
        audit(order, "later")
    paid = charge(order.id, order.cents, order.card)
    return audit(order, paid)


@shop.workflow()
def whole(order: Order) -> str:
    return invoice(order)
"""


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A shop whose workflow makes arguments of its input, with ``makegood run``."""
    new_shop = Shop(tmp_path_factory.mktemp("part"))
    (new_shop.folder / "part.py").write_text(DESK, encoding="utf-8")
    new_shop.serve("run", "part:shop")
    yield new_shop
    new_shop.close()


def order(cents: int = 100, card: str = "visa", name: str = "a") -> str:
    return json.dumps({"id": name, "cents": cents, "card": card})


def undone(part: Shop) -> str:
    """Return an order of 100 that was undone."""
    task = part.done("task", "submit", "part:sell", order(), "--wait").strip()
    task = part.json("task", "list", "--limit", "1")[0]["id"]
    part.done("task", "undo", task, "--wait", "--reason", "wrong sum")
    return str(task)


def test_with_the_code_the_whole_task_runs_on_the_corrected_input(part: Shop) -> None:
    task = undone(part)
    refusal = part.call("task", "resubmit", task, "--input", f"[{order(250)}]")
    assert refusal.exit_code == 4
    assert "they would keep the old values: charge (order, cents, card); name the code" in refusal.stderr
    words = ("task", "resubmit", task, "--input", f"[{order(250)}]", "--check", "part:shop")
    dry = part.call(*words, "--dry-run")
    assert dry.exit_code == 0
    assert 'charge: {"cents":250} instead of {"cents":100}' in dry.stdout
    assert (
        dry.stdout.splitlines()[-1]
        == f"{task}  resubmit would be applied: submission 2, with corrected inputs"
    )
    assert part.json("task", "show", task)["state"] == "undone"
    (wet,) = part.json(*words, "--dry-run")
    assert wet["dry_run"]
    assert [step["step"] for step in wet["change"]["steps"]] == ["invoice", "charge", "audit"]
    runs = part.folder / "runs"
    before = len(runs.read_text("utf-8"))
    result = part.call(*words, "--yes", "--wait", "--reason", "it was 250")
    assert result.exit_code == 0, result.output
    assert len(runs.read_text("utf-8")) == before + 1, "what is shown is what is sent: the function runs once"
    assert 'charge: {"cents":250} instead of {"cents":100}' in result.stderr
    detail = part.json("task", "show", task)
    assert detail["result"] == "ordered 250, charged 250"
    assert detail["corrected"][0]["change"]["steps"] == wet["change"]["steps"]
    entry = next(act for act in part.json("audit", "--task", task) if act["change"])
    assert (entry["why"], entry["outcome"]) == ("it was 250", "submission 2, with corrected inputs")
    assert re.search(
        r"^corrected .*charge: .*250.* instead of", part.done("task", "show", task), re.MULTILINE
    )


def test_an_input_that_every_step_takes_as_it_is_needs_no_code(part: Shop) -> None:
    part.done("task", "submit", "part:whole", order(), "--wait")
    task = part.json("task", "list", "--limit", "1")[0]["id"]
    part.done("task", "undo", task, "--wait")
    result = part.call("task", "resubmit", task, "--input", f"[{order(250)}]", "--wait")
    assert result.exit_code == 0, result.output
    assert "the branches that the workflow took are not decided again: --check APP does that" in result.stderr
    assert part.json("task", "show", task)["result"] == "invoice over 250"


@pytest.mark.parametrize(
    ("inputs", "code", "hint"),
    [
        (f"[{order(5000)}]", 4, "step 2 would be audit (desk.audit) instead of charge (desk.charge); submit a new task"),
        (f"[{order(name='strange')}]", 1, "part.sell raised LookupError: no such order ("),
        ('[{"id": "a", "cent": 5}]', 2, "the input order: unknown field 'cent'; did you mean 'cents'?"),
        ('[{"id": 5}]', 2, "the input order does not fit Order"),
        ("[]", 2, "takes 1 input, not 0"),
    ],
)  # fmt: skip
def test_what_the_code_does_not_plan_is_refused_before_anything_is_written(
    part: Shop, inputs: str, code: int, hint: str
) -> None:
    task = undone(part)
    refusal = part.call("task", "resubmit", task, "--input", inputs, "--check", "part:shop", "--dry-run")
    assert refusal.exit_code == code, refusal.output
    assert hint in refusal.stderr
    assert [act["kind"] for act in part.json("audit", "--task", task)] == ["undo"]


def test_another_app_s_code_is_refused(part: Shop) -> None:
    task = undone(part)
    refusal = part.call("task", "resubmit", task, "--input", f"[{order()}]", "--check", "kiosk:kiosk")
    assert refusal.exit_code == 2
    assert "declares no workflow part.sell, which this task is one of" in refusal.stderr


def test_a_terminal_is_asked_before_anything_is_written(part: Shop) -> None:
    task = undone(part)
    words = ("task", "resubmit", task, "--input", f"[{order(250)}]", "--check", "part:shop")
    ours, theirs = pty.openpty()
    try:
        os.write(ours, b"n\n")
        process = subprocess.run(
            [sys.executable, "-m", "makegood", *words],
            cwd=part.folder,
            env={**BARE, "MAKEGOOD_STORE": part.url},
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert process.returncode == 0, process.stderr
    assert f"resubmit task {task}? [y/N]" in process.stderr
    assert "nothing was done" in process.stderr
    assert part.json("task", "show", task)["state"] == "undone"
