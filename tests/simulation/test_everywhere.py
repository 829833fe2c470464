"""One fault at every point of a calm run: a part of it here, all of it by ``make everywhere``."""

import json
import logging
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from makegood.testing.simulator.world import Outcome
from proofs import everywhere
from proofs.everywhere import KINDS, LAYOUTS_TRIED, WORKFLOWS, Everywhere, FaultCase, several

PART = 60
"""So many blows are struck here, spread evenly over all that there are."""


@pytest.fixture(scope="module")
def everywhere_run() -> Iterator[Everywhere]:
    """The runs, whose noise is not printed."""
    logging.disable(logging.CRITICAL)
    yield Everywhere()
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def blows() -> list[FaultCase]:
    """Every blow that there is."""
    return everywhere.all_blows()


def test_every_kind_of_fault_has_points_in_every_workflow(blows: list[FaultCase]) -> None:
    """Messages travel only between processes; everything else strikes in every layout."""
    there = {(blow.workflow, blow.layout, blow.kind) for blow in blows}
    between = {"duplicate", "late reply", "drop"}
    points = {
        (workflow, layout, kind)
        for workflow in WORKFLOWS
        for layout in LAYOUTS_TRIED
        for kind in KINDS
        if layout == "apart" or kind not in between
    }
    assert there == points


def test_a_fault_at_points_everywhere_leaves_every_task_whole(blows: list[FaultCase]) -> None:
    """Sixty of some four thousand, over all workflows, layouts and kinds."""
    step = len(blows) // PART + 1
    tally = several(blows[::step])
    assert {blow.replay: findings for blow, findings in tally.failed.items()} == {}
    assert tally.runs >= PART - 1
    for (workflow, _, _), ends in tally.ends.items():
        states = {"undone"} if workflow == "undone_order" else {"processed", "undone"}
        assert ends.keys() <= states, "one fault alone never needs an operator"


def test_every_kind_once_where_it_matters_most(everywhere_run: Everywhere, blows: list[FaultCase]) -> None:
    """The last point of each kind that belongs to a Scheduler's commit, an agent's reply or its request."""
    cases = {
        (blow.layout, blow.kind): blow
        for blow in blows
        if blow.workflow == "undone_order" and (" commit" in blow.name or blow.name in ("reply", "request"))
    }
    assert {kind for _, kind in cases} >= KINDS.keys() - {"store down"}
    for blow in cases.values():
        assert everywhere_run.strike(blow).findings == [], blow.replay


def test_a_blow_is_struck_where_it_says(everywhere_run: Everywhere, blows: list[FaultCase]) -> None:
    """The run before the fault is the calm one: the same point has the same name."""
    for blow in blows[:: len(blows) // 8]:
        fault = everywhere_run.strike(blow).history.of("fault")[0]
        assert (fault["what"], fault["point"]) == (KINDS[blow.kind], blow.name)


def test_a_blow_that_strikes_nothing_is_a_finding(everywhere_run: Everywhere) -> None:
    """A run that met no fault proves nothing."""
    findings = everywhere_run.strike(FaultCase("place_order", "together", "kill", 10**6)).findings
    assert findings == ["nothing struck: the run never came to point 1000000"]


def test_the_command_counts_tells_and_says_how_to_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 0 when all ended whole, 1 when one did not: then the command that replays it is printed."""
    arguments = ["--workflow", "place_order", "--layout", "apart", "--kind", "late reply"]
    result = CliRunner().invoke(everywhere.main, [*arguments, "--json"])
    assert result.exit_code == 0
    counts = json.loads(result.stdout)
    assert (counts["runs"], counts["failed"]) == (6, [])
    assert counts["ends"][0]["processed"] + counts["ends"][0].get("undone", 0) == 6

    strike = Everywhere.strike

    def wrong(self: Everywhere, blow: FaultCase) -> Outcome:
        outcome = strike(self, blow)
        outcome.findings.append("falsified")
        return outcome

    monkeypatch.setattr(Everywhere, "strike", wrong)
    result = CliRunner().invoke(everywhere.main, arguments)
    assert result.exit_code == 1
    assert "falsified" in result.stdout
    assert result.stdout.count("again: python -m proofs.everywhere --workflow place_order") == 6
