"""The page of the console: its programs run, its settings are settings, its roles are the code's."""

import dataclasses
import inspect
import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest

import makegood as mg
from makegood.cli.console_settings import console_options
from makegood.cli.settings import load
from makegood.console.app import create_app
from makegood.console.options import ConsoleOptions
from makegood.console.users import ROLES
from tests.console.asking import Browser
from tests.console.consoles import migrated, shop

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "operate/console.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    """Return the page's blocks of a language."""
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def run(block: str, folder: Path, url: str = "sqlite:///nowhere.db") -> dict[str, Any]:
    """Run a program of the page on a store of ours, and return its names."""
    program = folder / "program.py"
    program.write_text(block.replace("sqlite:///shop.db", url), encoding="utf-8")
    return runpy.run_path(str(program))


async def test_a_node_serves_the_console(tmp_path: Path) -> None:
    """On the port that it says."""
    names = run(blocks("python")[0], tmp_path, await migrated(tmp_path))
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{43}", await names["serve"](shop))


async def test_the_console_is_mounted_in_an_application(tmp_path: Path) -> None:
    """Under its path, with the application's users; nobody is nobody."""
    names = run(blocks("python")[1], tmp_path, await migrated(tmp_path))
    async with names["lifespan"](names["app"]):
        browser = Browser(names["app"])
        response = await browser.get("/ops/makegood/", x_staff="ann")
        assert 'href="/ops/makegood/static/' in response.text
        assert "<b>ann</b><span>admin</span>" in response.text
        assert "<span>viewer</span>" in (await browser.get("/ops/makegood/", x_staff="eve")).text
        assert (await browser.get("/ops/makegood/")).status == 401


async def test_the_console_is_mounted_beside_django(tmp_path: Path) -> None:
    """By path; everything else is Django's."""
    names = run(blocks("python")[2], tmp_path, await migrated(tmp_path))

    async def django(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with names["console"]:
        browser = Browser(names["with_console"](django))
        assert 'href="/ops/makegood/static/' in (await browser.get("/ops/makegood/", x_staff="ann")).text
        assert (await browser.get("/ops/makegood/")).status == 401
        assert (await browser.get("/shop")).status == 204


def test_the_hook_of_the_page_covers_a_name(tmp_path: Path) -> None:
    """And leaves the rest."""
    names = run(blocks("python")[3], tmp_path)
    assert names["redact"]("order.customer.name", "Ann") == "…"
    assert names["redact"]("order.id", 7) == 7


@pytest.mark.parametrize("block", blocks("toml"))
def test_the_settings_of_the_page_are_settings(block: str, tmp_path: Path) -> None:
    """Read from a file as they are written."""
    (tmp_path / "makegood.toml").write_text(block)
    settings = load({}, {}, tmp_path)
    assert console_options(settings).authenticates
    assert set(settings.origins) == set(tomllib.loads(block))


def test_the_reference_lists_every_parameter_in_order() -> None:
    """Of ``create_app``; and the options are its own, with the address."""
    reference = (DOCS / "reference/console.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", reference, re.MULTILINE) == list(
        inspect.signature(create_app).parameters
    )
    options = {field.name for field in dataclasses.fields(ConsoleOptions)}
    assert options - {"listen"} <= set(inspect.signature(create_app).parameters)


def test_the_page_names_every_role() -> None:
    """In order, and no other."""
    assert tuple(re.findall(r"^\| `(\w+)` \| ", PAGE, re.MULTILINE)) == ROLES


async def test_a_public_address_needs_users(tmp_path: Path) -> None:
    """Or the word that it is insecure."""
    with pytest.raises(mg.ConfigError, match="nobody has to log in"):
        mg.Node(shop, "sqlite:///x.db", console="0.0.0.0:0")
