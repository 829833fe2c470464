"""The public surface looks public: sorted ``__all__``, every name there and explained, loaded at its first use."""

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import makegood

ROOT = Path(__file__).resolve().parents[2]
PUBLIC = ["makegood", *(f"makegood.{name}" for name in ("election", "testing", "telemetry", "console"))]


def public_modules() -> list[str]:
    """Return the modules users import from, as far as this version has them: those that say what they export."""
    present = {f"makegood.{module.name}" for module in pkgutil.iter_modules(makegood.__path__)}
    modules = [
        name for name in PUBLIC if name in present and hasattr(importlib.import_module(name), "__all__")
    ]
    return ["makegood", *modules]


LAZY = ("makegood", "makegood.election", "makegood.telemetry")
"""Packages whose names load at first use; their stubs say where each one lives."""


def stub_of(module: ModuleType) -> tuple[list[str], dict[str, str]]:
    """Return what the stub of a lazy package exports, in its order, and the module of each name."""
    tree = ast.parse(Path(str(module.__file__)).with_suffix(".pyi").read_text(encoding="utf-8"))
    homes = {
        alias.name: str(node.module)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname is None  # a module that the package re-exports
    }
    (names,) = [ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign)]
    return names, homes


@pytest.mark.parametrize("name", LAZY)
def test_stub_says_what_loads_at_first_use(name: str) -> None:
    """Type checkers and the running program see the same names, from the same modules."""
    module = importlib.import_module(name)
    names, homes = stub_of(module)
    assert sorted(names) == sorted(homes) == sorted(module.__all__)
    assert {n: getattr(importlib.import_module(home), n) for n, home in homes.items()} == {
        n: getattr(module, n) for n in names
    }
    assert set(names) <= set(dir(module))
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nothing'"):
        getattr(module, "nothing")  # noqa: B009 - a checker would know


def loaded(*arguments: str) -> set[str]:
    """Return the modules that a fresh interpreter holds at its end."""
    code = "import atexit, sys; atexit.register(lambda: print('\\n', *sys.modules)); " + arguments[0]
    run = subprocess.run(
        [sys.executable, "-c", code, *arguments[1:]], capture_output=True, text=True, check=True
    )
    return set(run.stdout.rpartition("\n ")[2].split())


@pytest.mark.parametrize(
    ("arguments", "without"),
    [
        (("import makegood",), ("asyncio", "msgspec", "makegood.errors")),
        (("import makegood.election.protocol",), ("asyncio", "msgspec", "makegood.election.election")),
        (("from makegood.cli import main; main()", "--version"), ("asyncio", "rich", "makegood.store")),
        (("from makegood.cli import main; main()", "task", "--help"), ("asyncio", "rich", "makegood.store")),
    ],
)
def test_imports_cost_what_is_used(arguments: tuple[str, ...], without: tuple[str, ...]) -> None:
    """``import makegood`` loads nothing of the engine, ``makegood --version`` and ``--help`` no store and no event loop."""
    modules = loaded(*arguments)
    assert "makegood" in modules
    assert not modules & set(without)


def rank(name: str) -> tuple[int, str]:
    """Sort as the linter does: CONSTANTS, then Classes, then functions."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2), name


def explained(module: ModuleType, name: str) -> bool:
    """Whether a public name says what it is: its own docstring, not an inherited or a generated one."""
    value = getattr(module, name)
    if inspect.isclass(value):
        own = value.__doc__ or ""
        return bool(own.strip()) and not own.startswith(f"{value.__name__}(")
    return bool((inspect.getdoc(value) or "").strip())


@pytest.mark.parametrize("name", public_modules())
def test_all_is_sorted_and_true(name: str) -> None:
    """``__all__`` is sorted, holds nothing twice, nothing private and nothing that is not there."""
    module = importlib.import_module(name)
    names = stub_of(module)[0] if name in LAZY else list(module.__all__)
    assert names == sorted(set(names), key=rank), f"{name}.__all__ is not sorted, or holds a name twice"
    assert not [n for n in names if not hasattr(module, n)]
    assert not [n for n in names if n.startswith("_") and n != "__version__"]


@pytest.mark.parametrize("name", public_modules())
def test_every_public_name_is_explained(name: str) -> None:
    """Each name in ``__all__`` has a docstring of its own."""
    module = importlib.import_module(name)
    assert not [n for n in module.__all__ if n != "__version__" and not explained(module, n)]


def test_names_in_readme_and_docs_exist() -> None:
    """Every ``mg.Name`` that a page or the example uses is a public name."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.py")]
    uses = {
        (name, page.relative_to(ROOT).as_posix())
        for page in pages
        for name in re.findall(r"\bmg\.([A-Za-z_]+)", page.read_text(encoding="utf-8"))
    }
    names = {*vars(makegood)["__all__"], "codecs", "keys"}
    assert uses
    assert not sorted((name, page) for name, page in uses if name not in names)
    presets = {
        name
        for page in pages
        for name in re.findall(r"\bmg\.keys\.([A-Za-z_]+)", page.read_text(encoding="utf-8"))
    }
    assert presets
    assert not sorted(name for name in presets if not hasattr(makegood.keys, name))


def test_an_unexplained_name_would_be_found() -> None:
    """The check can fail: a class without a docstring, a dataclass's generated one, a bare function."""
    sample = ModuleType("sample")
    sample.__dict__.update(
        Bare=type("Bare", (Exception,), {}),
        Generated=type("Generated", (), {"__doc__": "Generated(x: int)"}),
        plain=lambda: None,
        Good=type("Good", (), {"__doc__": "What it is."}),
    )
    assert [explained(sample, n) for n in ("Bare", "Generated", "plain", "Good")] == [
        False,
        False,
        False,
        True,
    ]
