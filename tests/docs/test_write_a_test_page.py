"""docs/internals/write-a-test.md shows tests as they are, names every folder of tests, and helpers that there are."""

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = (TESTS.parent / "docs/internals/write-a-test.md").read_text(encoding="utf-8")


def test_the_table_names_each_folder_and_a_test_of_it() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .* \| \[(\w+)/(\w+\.py)\]\([^)]*\) `(\w+)` \|$", PAGE, re.MULTILINE)
    for folder, place, file, test in rows:
        assert folder == place
        assert re.search(rf"^(async )?def {test}\(", (TESTS / folder / file).read_text("utf-8"), re.MULTILINE)
    assert {row[0] for row in rows} == {path.parent.name for path in TESTS.rglob("test_*.py")}


def test_the_tests_that_are_shown_are_those_of_the_files() -> None:
    examples = re.findall(r"\[([\w/]+\.py)\]\([^)]*\):\n\n```python\n(.*?)\n```", PAGE, re.DOTALL)
    assert len(examples) == PAGE.count("```python") == 5
    for path, code in examples:
        assert f"{code}\n" in (TESTS / path).read_text(encoding="utf-8")


def test_the_helpers_are_there_with_what_they_are_taken_for() -> None:
    helpers = PAGE.split("## Helpers")[1].split("## ")[0]
    rows = re.findall(r"`([\w/]+\.py)`(?:: ((?:`\w+`(?:, )?)+))?", helpers)
    assert len(rows) > 30
    for path, names in rows:
        text = (TESTS / path).read_text(encoding="utf-8")
        for name in re.findall(r"\w+", names):
            assert re.search(rf"^(async def|def|class) {name}\b", text, re.MULTILINE), (path, name)


def test_no_layer_of_mutants_is_left_out() -> None:
    assert {path.name for path in (TESTS / "simulation").glob("mutants*.py")} <= {
        Path(name).name for name in re.findall(r"`(simulation/\w+\.py)`", PAGE)
    }
