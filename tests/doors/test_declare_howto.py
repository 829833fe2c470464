"""The page on declaring services: its code is loaded and run to its end on a real store."""

import asyncio
import re
from pathlib import Path

import makegood as mg
from tests.doors.test_operate_howto import loaded

PAGE = (Path(__file__).resolve().parents[2] / "docs/how-to/declare-your-service.md").read_text("utf-8")


def test_every_declaration_runs(tmp_path: Path) -> None:
    """All of the page's actions in one task: each is called, in order, and what it returns is the task's result."""
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "declared_services.py").write_text(code, encoding="utf-8")
    page = loaded(tmp_path, "declared_services")
    asked: list[str] = []

    def ask(what: str, headers: object = None) -> str:
        asked.append(what)
        return f"{what} done"

    page.ask = ask

    async def call() -> str:
        async with mg.Node(page.shop, f"sqlite:///{tmp_path / 'services.db'}") as node:
            task = await node.client.submit(page.everything, "o-1")
            result: str = await task.result("30s")
            return result

    assert asyncio.run(call()) == "publish done"
    assert asked == ["reserve", "charge", "ship", "book", "call the plumber", "write a mail", "publish"]
