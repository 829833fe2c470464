"""``makegood demo`` finds the example and hands its options on; the demo itself is tested where it lives."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from makegood.cli.commands.demo import examples
from tests.doors.conftest import Shop


def test_the_examples_of_a_checkout_are_found() -> None:
    """Beside ``src``, where the package ``orders`` lies."""
    assert (examples() / "orders" / "shop.py").is_file()


def test_options_are_handed_on_and_the_exit_code_comes_back(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was said is passed, what was not is left to the demo's own defaults; --postgres excludes --store."""
    calls: list[list[str]] = []
    stand_in = ModuleType("orders.demo")
    stand_in.main = lambda argv: calls.append(argv) or 1  # type: ignore[attr-defined,func-returns-value]
    monkeypatch.setitem(sys.modules, "orders.demo", stand_in)
    monkeypatch.setattr(sys, "path", list(sys.path))
    words = (
        "demo",
        "--orders",
        "7",
        "--seed",
        "3",
        "--json",
        "--store",
        "sqlite:///d.db",
        "--schedulers",
        "2",
    )
    command = ("demo", "--stage", "--no-browser", "--port", "0", "--seconds", "9", "--chaos")
    assert shop.call(*words).exit_code == 1
    assert shop.call("demo", "--postgres", "--broker", "rabbitmq").exit_code == 1
    assert shop.call(*command).exit_code == 1
    assert calls == [
        ["--orders", "7", "--seed", "3", "--schedulers", "2", "--store", "sqlite:///d.db", "--json"],
        ["--broker", "rabbitmq", "--postgres"],
        ["--port", "0", "--seconds", "9", "--stage", "--no-browser", "--chaos"],
    ]
    assert str(examples()) in sys.path
    both = shop.call("demo", "--postgres", "--store", "sqlite:///d.db")
    assert both.exit_code == 2


def test_an_installation_without_examples_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence instead of an import error."""
    monkeypatch.setattr(
        "makegood.cli.commands.demo.files", lambda _: tmp_path / "lib" / "site-packages" / "makegood"
    )
    assert Shop(tmp_path).call("demo").exit_code == 2
