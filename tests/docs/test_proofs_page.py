"""docs/internals/proofs.md says of every test in which ring it runs; each entry names tests that there are."""

import re
from pathlib import Path

import pytest

from tests.rings import RING_OF, RINGS, ring_of, rings_in

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/internals/proofs.md").read_text(encoding="utf-8")


def test_the_table_is_that_of_the_rings() -> None:
    rows = re.findall(r"^\| (\w+) \| `([^`]+)` \| ", PAGE, re.MULTILINE)
    assert sorted((name, ring) for ring, name in rows) == sorted(RING_OF.items())


def test_every_folder_has_a_ring() -> None:
    folders = {path.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").rglob("test_*.py")}
    assert folders == {entry.partition("/")[0] for entry in RING_OF}, (
        "a folder without a ring would run in `make test`"
    )


@pytest.mark.parametrize("entry", RING_OF)
def test_an_entry_names_tests_that_there_are(entry: str) -> None:
    path, _, test = entry.partition("[")[0].partition("::")
    assert (ROOT / "tests" / path).exists()
    assert not test or re.search(
        rf"^(async )?def {test}\(", (ROOT / "tests" / path).read_text("utf-8"), re.MULTILINE
    )


def test_the_longest_entry_counts() -> None:
    assert ring_of("tests/unit/test_ids.py::test_x") == "check"
    assert ring_of("tests/docs/test_tutorial.py::test_x[1]") == "proof"
    assert ring_of("tests/docs/test_pages.py::test_x") == "test"
    assert ring_of("tests/processes/test_agents.py::test_agent_killed_after_the_effect[sqlite]") == "test"
    assert (
        ring_of("tests/processes/test_agents.py::test_agent_killed_after_the_effect_of_a_step[sqlite]")
        == "proof"
    )


def test_a_ring_imports_each_file_that_has_a_test_of_it() -> None:
    assert rings_in("unit/test_ids.py") == {"check"}
    assert rings_in("docs/test_site.py") == {"test", "proof"}
    assert rings_in("example/test_demo.py") == {"proof", "nightly"}
    assert (
        ring_of("tests/example/test_demo.py::test_ended_in_the_middle_it_leaves_no_process_behind[9-sqlite]")
        == "nightly"
    )
    assert (
        ring_of(
            "tests/console/test_hostile_rows.py::test_no_value_of_a_column_stops_a_command[postgres-task]"
        )
        == "nightly"
    )
    assert (
        ring_of("tests/console/test_hostile_rows.py::test_no_value_of_a_column_stops_a_command[sqlite-task]")
        == "proof"
    )


@pytest.mark.parametrize("page", ["STYLE.md", "CONTRIBUTING.md", "docs/internals/proofs.md"])
def test_pages_name_each_ring_with_its_time(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    times = {"check": "2 minutes", "test": "14 minutes", "proof": "30 minutes", "nightly": "hours"}
    assert set(RINGS) == set(times)
    for ring, time in times.items():
        assert re.search(rf"`make {ring}`.*{time}", text), f"{page}: `make {ring}` and {time} on one line"
