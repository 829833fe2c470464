"""The reference on declaring: its module is loaded and run, and the defaults in its tables are those of the code."""

import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import makegood as mg
from makegood import agent, options, terms, workflow
from makegood.cli.settings import KNOWN
from tests.doors.test_operate_howto import loaded

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "reference/declare.md").read_text("utf-8")


def module(folder: Path) -> Any:
    """Return the page's blocks as one module."""
    code = "\n\n".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    (folder / "declared_reference.py").write_text(code, encoding="utf-8")
    return loaded(folder, "declared_reference")


@pytest.mark.parametrize(("cents", "reviewed"), [(5, "skipped"), (200_000, "done")])
def test_its_workflow_runs(tmp_path: Path, cents: int, reviewed: str) -> None:
    page = module(tmp_path)

    async def call() -> dict[str, str]:
        async with mg.Node(page.shop, f"sqlite:///{tmp_path / 'shop.db'}") as node:
            task = await node.client.submit(page.place_order, page.Order("o", ["nut", "bolt"], cents))
            assert await task.result("30s") == "charge done"
            return {step.name: step.state for step in (await task.status()).steps}

    states = asyncio.run(call())
    assert states["review"] == reviewed
    del states["review"]
    done = [name.partition("-")[0] for name, state in states.items() if state == "done"]
    assert {"reserve", "charge", "receipt", "rate_risk"} <= set(done)
    assert "failed" not in states.values()


def rows(heading: str) -> dict[str, str]:
    """Return the second column of the first table below a heading, by the names in the first."""
    table = PAGE.partition(f"\n## `{heading}")[2].partition("\n\n**")[0].partition("\n## ")[0]
    cells = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    return {name: what.strip() for names, what in cells for name in re.findall(r"`(\w+)`", names)}


def test_the_options_and_their_defaults_are_those_of_the_code() -> None:
    """Each parameter has its row, each row its parameter."""
    app = {n: p.default for n, p in inspect.signature(workflow.App).parameters.items() if n != "name"}
    assert {n: int(text) for n, text in rows("mg.App").items()} == app
    of_agent = inspect.signature(workflow.App.agent).parameters
    assert {n: str(of_agent[n].default) for n in list(of_agent)[2:]} == rows("app.agent")
    assert set(rows("@agent.action")) == set(inspect.signature(terms.Declared).parameters)
    for made in (mg.Retry(), mg.Recover(), mg.Breaker()):
        given = ", ".join(
            f'{n}="{p.default}"' if isinstance(p.default, str) else f"{n}={p.default}"
            for n, p in inspect.signature(type(made)).parameters.items()
            if n != "never"
        )
        assert f"`mg.{type(made).__name__}({given})`" in PAGE


def test_every_attribute_of_a_call_is_listed() -> None:
    table = PAGE.partition("### `mg.current_call()`")[2].partition("\n## ")[0]
    told = {
        name
        for line in table.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)[`(]", line.split("|")[1])
    }
    assert told == {name for name in vars(mg.Call) if not name.startswith("_")} - {"traced"}
    assert agent.EXTEND_MOST == 10


def test_options_are_the_settings() -> None:
    assert set(inspect.signature(options.Options).parameters) - {"migrate"} <= set(KNOWN)
