"""What neither ``.importlinter`` nor ruff sees of imports: those by a text, and those of what is not in the wheel."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


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
        if any(name in (text := path.read_text(encoding="utf-8")) for name in stays)
        if (names := imported(text) & stays)
    }
    assert not wrong, f"not in the wheel: {wrong}"
    assert imported("from proofs.quiet import quiet\nimport json, proofs.seeds") == {"proofs", "json"}
