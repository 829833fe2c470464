"""``make bench-scale``: its plan, its medians, its report, and a tiny real run against a real server."""

import json
from pathlib import Path

import pytest

from benchmarks import crew, fleet, scale
from examples.orders.temporary_postgres import programs

URL = "postgresql://bench@db/bench"


def test_a_fleet_has_its_processes_and_all_of_its_flight() -> None:
    """Each shape has the roles that it says, one Supervisor, and the flight is divided among those with callers."""
    for shape in fleet.SHAPES:
        members = fleet.Plan(shape, 3, 10, submitters=2).members(URL)
        assert sum(member.flight for _, member in members) == 10
        assert sum("supervisor" in member.roles for _, member in members) == 1
        assert all(f"application_name={kind}" in member.store for kind, member in members)
    kinds = [kind for kind, _ in fleet.Plan("apart", 3, 10, submitters=2).members(URL)]
    assert sorted(kinds) == ["agents"] * 3 + ["scheduler"] * 3 + ["submitter"] * 2
    assert fleet.named(f"{URL}?sslmode=require", "a b") == f"{URL}?sslmode=require&application_name=a%20b"


def test_a_member_without_roles_submits() -> None:
    assert crew.Member("submitter", URL, 1).roles == ()
    assert crew.Member("engine", URL, leads=True).roles == ("scheduler", "agent", "supervisor")


def test_costs_are_measured_with_one_process_and_checked_with_more() -> None:
    options = scale.parser().parse_args(["--shapes", "inside", "--processes", "1,4", "--concurrency", "100"])
    plans = list(scale.plans(options))
    assert [(plan.processes, plan.flight, plan.listeners > 0) for plan in plans] == [
        (1, 1, False), (1, 16, False), (1, 100, False), (4, 100, False), (1, 4, True),
    ]  # fmt: skip


def test_medians_reach_into_objects() -> None:
    assert scale.median([{"a": 1, "b": {"c": 5.0}, "d": "x"}, {"a": 3, "b": {"c": 7.0}, "d": "x"}]) == {
        "a": 2.0, "b": {"c": 6.0}, "d": "x",
    }  # fmt: skip


@pytest.mark.parametrize("wrong", [["--shapes", "round"], ["--processes", "0"], ["--processes", "two"]])
def test_what_cannot_be_meant_is_refused(wrong: list[str]) -> None:
    with pytest.raises(SystemExit):
        scale.parser().parse_args(wrong)


def test_a_tiny_run_measures_predicts_and_can_be_read_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Real processes on a real server: costs, the model beside them; and the model again from the figures alone."""
    programs()
    arguments = ["--quick", "--shapes", "inside", "--concurrency", "4", "--out", str(tmp_path)]
    assert scale.main(arguments) == 0
    report = json.loads((tmp_path / "scale.json").read_text(encoding="utf-8"))
    many = next(run for run in report["runs"] if run["processes"] == 2)
    assert many["tasks_per_second"] > 0
    assert many["server_us"] > 0
    assert (
        next(run for run in report["runs"] if run["flight"] == 1)["commits_per_task"] > 3
    )  # 4, and heartbeats
    assert {row["processes"] for row in report["model"]["compared"]} == {1, 2}
    assert capsys.readouterr().out.count("## ") == 4
    assert scale.main(["--from", str(tmp_path / "scale.json"), "--out", str(tmp_path / "again")]) == 0
    again = json.loads((tmp_path / "again/scale.json").read_text(encoding="utf-8"))
    assert again["model"] == report["model"]
