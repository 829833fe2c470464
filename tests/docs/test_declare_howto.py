"""The page on declaring services: its code is loaded and run to its end on a real store."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import makegood as mg
from makegood.base.clock import SystemClock
from makegood.declare.call import Call
from makegood.model.messages import Request
from makegood.model.task import Doing
from tests.docs.test_operate_howto import loaded

PAGE = (Path(__file__).resolve().parents[2] / "docs/build/write-actions-and-undos.md").read_text("utf-8")


@pytest.fixture
def ledger(tmp_path: Path) -> Callable[[], Any]:
    """Makes a new one of the page's services."""
    (code,) = re.findall(r"^```python service\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "ledger.py").write_text(code, encoding="utf-8")
    ledger_class: Callable[[], Any] = loaded(tmp_path, "ledger").Ledger
    return ledger_class


def sent(doing: Doing, attempt: int, round_: int = 1) -> dict[str, str]:
    """Return the headers of an attempt."""
    request = Request(7, 0, doing, attempt, "shop", "a", "charge", "charge", round_, 30.0, b"{}")
    return Call(request, "store", 1, Running(), SystemClock(), None).headers


class Running:
    """An attempt that has time."""

    deadline = 1e12
    retries = 0
    first_sent = 1_800_000_000.0
    is_over = False

    def note(self, value: object) -> None:
        raise AssertionError

    @property
    def cancelled(self) -> bool:
        raise AssertionError

    async def rest(self, seconds: float) -> None:
        raise AssertionError

    async def extend(self, more: float) -> bool:
        raise AssertionError


def test_the_service_of_the_page_lets_an_effect_stand_once_or_not_at_all(ledger: Callable[[], Any]) -> None:
    """Repeated: one effect, the same answer. An undo that overtakes what it undoes: nothing stands, whatever arrives afterwards."""
    one = ledger()
    assert one.handle(sent("do", 1)) == one.handle(sent("do", 12)) == (200, "done")
    assert len(one.in_place) == 1
    assert one.handle(sent("do", 9))[0] == 409, "1.9 is older than 1.12"
    assert one.handle(sent("undo", 13)) == (200, "done")
    assert one.in_place == set()
    assert [one.handle(sent("do", n))[0] for n in (12, 14)] == [409, 409]
    assert one.in_place == set()
    assert one.handle(sent("do", 15, round_=2)) == (200, "done")
    other = ledger()
    assert other.handle(sent("undo", 2)) == (200, "done")
    assert [other.handle(sent("do", n))[0] for n in (1, 3)] == [409, 409]


def test_every_declaration_runs(tmp_path: Path) -> None:
    """All of the page's actions in one task: each is called, in order, and what it returns is the task's result."""
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    (tmp_path / "declared_services.py").write_text(code, encoding="utf-8")
    page = loaded(tmp_path, "declared_services")
    requests: list[str] = []

    def ask(what: str, headers: object = None) -> str:
        requests.append(what)
        return f"{what} done"

    page.ask = ask

    async def call() -> str:
        async with mg.Node(page.shop, f"sqlite:///{tmp_path / 'services.db'}") as node:
            task = await node.client.submit(page.everything, "o-1")
            result: str = await task.result("60s")
            return result

    assert asyncio.run(call()) == "publish done"
    assert requests == ["reserve", "charge", "ship", "book", "call the plumber", "write a mail", "publish"]
