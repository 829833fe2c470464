"""The page on operating does what it says: its shop is served, its commands are typed, its functions are called."""

import asyncio
import importlib.util
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import makegood as mg
from tests.doors.conftest import Shop

PAGE = (Path(__file__).resolve().parents[2] / "docs/operate/operate-tasks.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
TYPED = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def typed(shop: Shop, text: str) -> tuple[str, str]:
    """Type lines as a shell would: ``NAME=$(...)`` keeps what was said, ``|| test $? = N`` expects another end than 0."""
    names: dict[str, str] = {}
    output, complaints = "", ""
    for line in text.splitlines():
        command = re.sub(r"\$([A-Z]+)", lambda match: names[match[1]], line)
        assignment = re.fullmatch(r"([A-Z]+)=\$\((.*)\)", command)
        words = shlex.split(assignment[2] if assignment else command, comments=True)
        if not words:
            continue
        code = 0
        if "||" in words:
            at = words.index("||")
            assert words[at + 1 : at + 4] == ["test", "$?", "="], line
            words, code = words[:at], int(words[at + 4])
        assert words[0] == "makegood", line
        result = shop.call(*words[1:])
        assert result.exit_code == code, f"{line}\n{result.output}"
        if assignment:
            names[assignment[1]] = result.stdout.strip()
        output, complaints = output + result.stdout, complaints + result.stderr
    return output, complaints


def test_everything_on_the_page_can_be_typed(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """All of it, in order; what ends otherwise than the page says is an error."""
    shop = Shop(tmp_path)
    request.addfinalizer(shop.close)
    (tmp_path / "desk.py").write_text(PYTHON[0], encoding="utf-8")
    assert "makegood run desk:shop" in PAGE
    shop.serve("run", "desk:shop", MAKEGOOD_ALERTS_EVERY="100ms")
    output, complaints = typed(shop, "".join(TYPED))
    for text in (
        "held for an operator: charge: the card has expired",
        "acknowledged by ann",
        "with corrected inputs (now processed)",
        "the glue is dry",
        "settle by",
        "undo: 2 tasks:",
        "the card terminal was down",
    ):
        assert text in output, text
    (remedies,) = re.findall(r"^what can be done:\n((?:  makegood .*\n)+)", PAGE, re.MULTILINE)
    for command in remedies.splitlines():
        assert command in re.sub(r"0[0-9a-z]{12}", "0akz99zvq27k6", output), (
            "what the page shows is what is said"
        )
    assert "was acknowledged by ann (I call the customer) before" in complaints
    assert "the last act on it: settle by" in complaints
    (tmp_path / "operate_page.py").write_text("\n".join(PYTHON[1:]), encoding="utf-8")
    desk, page = loaded(tmp_path, "desk"), loaded(tmp_path, "operate_page")
    assert page.is_ours({}, b"{}", 0.0) is False

    async def call() -> None:
        async with mg.Client(shop.url) as client:
            task = await client.submit(desk.sell, "Emma", "expired")
            await task.wait("60s")
            await page.repair(client, task.id)
            assert await task.result("60s") == "Emma paid by visa"
            other = await client.submit(desk.sell, "Emma", "expired")
            await other.wait("60s")
            assert b'"now":{"title":"Emma","card":"visa"}' in await page.correct(client, other.id, desk.sell)
            assert await other.result("60s") == "Emma paid by visa"
            assert await page.tidy(client) == 0

    asyncio.run(call())


def loaded(folder: Path, name: str) -> Any:
    """Return a module of the page."""
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
