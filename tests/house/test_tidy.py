"""The project keeps its own rules of shape (STYLE.md): those that ruff does not have are in ``tidy``."""

import ast
import tomllib
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import pytest

from tests.house import tidy

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("src", "examples", "tests", "scripts", "benchmarks", "proofs", "docs", ".ci")
TEXT = {".py", ".md", ".sh", ".sql", ".toml", ".yml", ".yaml", ".cfg", ".ini", ".txt", ".pml"}

# The rooms whose objects are the engine's own: their attributes are counted.
ENGINE = tuple(
    f"src/makegood/{room}/"
    for room in (
        "scheduler",
        "agent",
        "supervisor",
        "client",
        "node",
        "messaging",
        "store",
        "workflow",
        "saga",
    )
)

RULES_OF_SHIPPED_CODE = (tidy.banned_word, tidy.module_state)


@cache
def files() -> dict[str, str]:
    """Return every text file of the project: path from the root -> text."""
    paths = [path for part in PARTS for path in (ROOT / part).rglob("*")]
    paths += [
        path for path in ROOT.iterdir() if path.suffix in TEXT or path.name in {"Makefile", ".importlinter"}
    ]
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(paths)
        if path.is_file() and (path.suffix in TEXT or not path.suffix) and "__pycache__" not in path.parts
    }


@cache
def trees() -> dict[str, ast.Module]:
    """Return every Python file, parsed."""
    return {path: ast.parse(text) for path, text in files().items() if path.endswith(".py")}


def refuse(findings: Iterable[tuple[str, tidy.Finding]]) -> None:
    """Fail with one line per finding."""
    lines = [f"{path}:{line}: {what}" for path, (line, what) in findings]
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)


def under(*folders: str) -> list[str]:
    """Return the Python files below these folders; there must be some, or a moved folder would pass in silence."""
    paths = [path for path in trees() if path.startswith(folders)]
    assert paths, f"no Python file under {folders}"
    return paths


def test_functions_fit_a_screen() -> None:
    """Those of the tests too."""
    paths = under("src/", "examples/", "tests/")
    refuse((path, finding) for path in paths for finding in tidy.too_long_function(trees()[path]))


@pytest.mark.parametrize("rule", RULES_OF_SHIPPED_CODE, ids=lambda rule: rule.__name__)
def test_shipped_code(rule: Callable[[ast.Module], Iterable[tidy.Finding]]) -> None:
    """What users get, engine and example, keeps the rule."""
    refuse((path, finding) for path in under("src/", "examples/") for finding in rule(trees()[path]))


def test_no_file_is_too_long() -> None:
    """No source, test or page has more than 800 lines."""
    refuse((path, finding) for path, text in files().items() for finding in tidy.too_long_file(text))


def test_a_class_of_the_core_holds_little() -> None:
    """No class of the engine sets more than twelve attributes."""
    counts = {
        (path, name): what
        for path in under(*ENGINE)
        for name, what in tidy.too_many_attributes(trees()[path])
    }
    refuse((path, what) for (path, _), what in counts.items())


def test_one_class_name_in_one_place() -> None:
    """A class's name says which class it is."""
    modules = {path: trees()[path] for path in under("src/")}
    refuse(what for _, what in tidy.repeated_class_names(modules))


def test_tests_do_not_sleep() -> None:
    """Tests wait for events; only those with real processes may let time pass, and those on virtual time."""
    still = [
        path
        for path in under("tests/")
        if not path.startswith(("tests/brokers/", "tests/processes/", "tests/simulation/"))
    ]
    refuse((path, finding) for path in still for finding in tidy.sleeping(trees()[path]))


def test_every_module_has_a_test() -> None:
    """Each module of makegood has its own test file or is imported by some test."""
    modules = {
        path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", "."): path
        for path in under("src/makegood/")
    }
    tests = {
        path: text for path, text in files().items() if path.startswith("tests/") and path.endswith(".py")
    }
    refuse(("src", finding) for finding in tidy.untested_modules(modules, tests))


def test_nothing_tells_where_it_was_made() -> None:
    """No file names a machine's path, a package host or the making of the project."""
    refuse((path, finding) for path, text in files().items() for finding in tidy.workplace(text, path))


def test_changelog_is_well_formed() -> None:
    """CHANGELOG.md keeps the form of Keep a Changelog, and speaks of the version in pyproject.toml."""
    text = files()["CHANGELOG.md"]
    refuse(("CHANGELOG.md", finding) for finding in tidy.changelog_form(text))
    version = tomllib.loads(files()["pyproject.toml"])["project"]["version"]
    assert f"[{version}]" in text or "[Unreleased]" in text


def test_migrations_are_numbered_without_gaps() -> None:
    """The migrations of each dialect run 0001, 0002, …, and every dialect has the same numbers."""
    dialects: dict[str, list[str]] = {}
    for path in files():
        if path.startswith("src/") and "/migrations/" in path and path.endswith(".sql"):
            folder, _, name = path.rpartition("/")
            dialects.setdefault(folder, []).append(name)
    refuse(
        (folder, finding) for folder, names in dialects.items() for finding in tidy.migration_numbers(names)
    )
    counts = {folder: len(names) for folder, names in dialects.items()}
    assert len(set(counts.values())) <= 1, f"the dialects differ in their migrations: {counts}"
