"""The examples in docstrings run, and give what they say."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = re.compile(r"^ +>>> ", re.MULTILINE)


def examples() -> dict[str, int]:
    """Return the modules that hold examples, and how many."""
    counts = {}
    for folder in ("src", "tests", "proofs", "scripts", "benchmarks", "examples"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            if number := len(EXAMPLE.findall(file.read_text(encoding="utf-8"))):
                path = file.relative_to(ROOT / "src" if folder == "src" else ROOT)
                counts[".".join(path.with_suffix("").parts).removesuffix(".__init__")] = number
    return counts


EXAMPLES = examples()


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_in_docstrings_give_what_they_say(name: str) -> None:
    """None of them is skipped, or overlooked because it is not in a docstring."""
    module = importlib.import_module(name)
    tests = doctest.DocTestFinder().find(module)
    assert sum(len(test.examples) for test in tests) == EXAMPLES[name]
    runner = doctest.DocTestRunner()
    report: list[str] = []
    for test in tests:
        runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)
    assert not any(doctest.SKIP in example.options for test in tests for example in test.examples)
