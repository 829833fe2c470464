"""The benchmarks' own parts: medians and ratios, the table, the picture, counting, an environment that is missing, a tiny real run."""

import asyncio
import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from benchmarks import chart, driving, environments, figures, meters, plan, table
from benchmarks.__main__ import main, parser

ROOT = Path(__file__).resolve().parents[2]
ROW = plan.Row("throughput", 3, 500)
OURS, FLOOR = plan.Entry("makegood", "sqlite"), plan.Entry("floor", "sqlite")


def result(entry: plan.Entry, *rates: float) -> figures.Result:
    """Return a result whose rounds had these rates."""
    return figures.Result(ROW, entry, [{"tasks_per_second": rate, "version": "1"} for rate in rates])


def some() -> list[figures.Result]:
    """Return results of five entries; one of them was not measured."""
    return [
        result(FLOOR, 400.0),
        result(plan.Entry("floor", "postgres"), 4000.0),
        result(OURS, 100.0, 300.0, 200.0),
        result(plan.Entry("dbos", "sqlite"), 4.0),
        result(plan.Entry("dbos-async", "postgres"), 5.0),
        figures.Result(ROW, plan.Entry("celery", "own"), why="the program redis-server is not installed"),
    ]


def test_medians_are_of_what_was_measured_and_say_how_far_it_lay_apart() -> None:
    medians = figures.medians([{"tasks_per_second": v, "version": "1"} for v in (1.0, 10.0, 4.0)])
    assert medians == {"tasks_per_second": 4.0, "spread": 2.25}
    assert figures.medians([]) == {}


def test_a_peer_is_met_at_its_best_and_the_floor_on_the_same_store() -> None:
    assert figures.ratio(some(), ROW, OURS, "dbos") == 200 / 5
    assert figures.ratio(some(), ROW, OURS, "floor") == 200 / 400
    assert figures.ratio(some(), ROW, OURS, "celery") is None


def test_percentiles() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [meters.percentile(values, share) for share in (0.5, 0.99, 1.0)] == [51.0, 100.0, 100.0]
    assert meters.percentile([], 0.5) == 0.0


def test_the_table_has_a_loud_line_for_what_was_not_measured() -> None:
    text = table.whole(some())
    assert "- celery NOT MEASURED: the program redis-server is not installed" in text
    assert " 50% |" in text
    assert " 40.0× |" in text


def test_the_columns_of_a_table_stand_below_each_other() -> None:
    lines = table.lines(["", "rate"], [["a long name", "1"], ["b", "1,000"]])
    assert len({len(line) for line in lines}) == 1


def test_the_picture_is_xml_with_a_bar_for_each_rate() -> None:
    picture = ET.fromstring(chart.svg("a < b & c", some()))  # noqa: S314 - our own text
    space = "{http://www.w3.org/2000/svg}"
    bars = [bar for bar in picture.iter(f"{space}rect") if bar.get("x")]
    assert len(bars) == 5
    widths = [float(bar.get("width", "0")) for bar in bars]
    assert max(widths) == widths[1]
    assert "a < b & c" in [element.text for element in picture.iter(f"{space}text")]


def test_the_plan_varies_steps_and_flight_one_at_a_time() -> None:
    rows = list(plan.rows(plan.Sizes(), ["throughput"]))
    assert [(r.steps, r.flight) for r in rows] == [(1, 500), (3, 500), (10, 500), (3, 1), (3, 100)]
    assert [r.amount for r in plan.rows(plan.Sizes(), ["ended", "waiting"])] == [1_000_000, 100_000]


def test_sqlite_is_counted_at_the_driver(tmp_path: Path) -> None:
    """A commit that wrote counts, an empty one does not; ``executemany`` is one statement; the driver's own commits count."""
    traffic = meters.Traffic()
    with meters.counting_sqlite(traffic):
        connection = sqlite3.connect(tmp_path / "x.db")
        connection.execute("create table t (a)")
        connection.commit()
        before = traffic.copy()
        connection.cursor().executemany("insert into t values (?)", [(1,), (2,)])
        connection.commit()
        connection.execute("select * from t").fetchall()
        connection.commit()
        connection.close()
    difference = traffic - before
    assert (difference.commits, difference.statements) == (1, 2)


def test_a_meter_sees_the_processor_and_the_memory_of_children() -> None:
    works = "import time\nwhile time.process_time() < 0.3: pass\nprint(1, flush=True); input()"  # it is counted by the tick
    child = subprocess.Popen([sys.executable, "-c", works], stdin=-1, stdout=-1)
    assert child.stdout is not None
    assert child.stdin is not None
    with child, child.stdin:
        child.stdout.readline()
        assert meters.cpu_of(child.pid) >= 0.01
        assert meters.memory_of(child.pid) > 1


class Fake(driving.Subject):
    """A system whose tasks take one turn of the loop, or never end."""

    ends = True
    opened = False

    def version(self) -> str:
        """Return a version."""
        return "1"

    async def open(self) -> None:
        """Note it."""
        self.opened = True

    async def task(self, steps: int) -> None:
        """End, or never."""
        await (asyncio.sleep(0) if self.ends else asyncio.Event().wait())


class Stuck(Fake):
    """Its tasks never end."""

    ends = False


def cell(**more: Any) -> driving.Cell:
    """Return a cell with a short window."""
    return driving.Cell("throughput", "own", "", flight=3, seconds=0.01, **more)


async def test_a_closed_loop_counts_what_ends_in_its_window() -> None:
    answer = await driving.measure(Fake(cell()), meters.Traffic())
    assert answer["flight"] == 3
    assert answer["tasks"] >= driving.FEWEST
    assert answer["steps_per_second"] == pytest.approx(3 * answer["tasks_per_second"])
    assert answer["p50_ms"] <= answer["p99_ms"]


async def test_what_is_not_to_be_measured_says_why() -> None:
    """Neither silence nor a workload that a system cannot do becomes a figure."""
    with pytest.raises(driving.UnableError, match="do not run elsewhere"):
        await driving.measure(Fake(cell(place="elsewhere")), meters.Traffic())
    subject = Fake(cell())
    subject.cell.workload = "undo"
    with pytest.raises(driving.UnableError, match="nothing to undo with"):
        await driving.measure(subject, meters.Traffic())
    assert not subject.opened, "it was started for nothing"


def test_an_environment_without_its_program_is_missing_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = environments.Environment(("nothing",), programs=("no-such-program",))
    monkeypatch.setitem(environments.ENVIRONMENTS, "nobody", environment)
    with pytest.raises(environments.MissingError, match="no-such-program is not installed"):
        environments.interpreter("nobody", tmp_path)
    assert environments.interpreter("makegood", tmp_path) == Path(sys.executable)


def test_each_peer_has_a_module_and_an_environment() -> None:
    for peer in {name.partition("-")[0] for name in plan.PEERS}:
        assert (ROOT / f"benchmarks/peers/{peer}.py").is_file(), peer
        assert peer in {*environments.ENVIRONMENTS, "makegood", "floor"}


def test_the_command_line_knows_what_it_was_given() -> None:
    options = parser().parse_args(["--only", "undo,ended", "--peers", "dbos", "--ended", "5"])
    assert (options.only, options.peers, options.ended) == (("undo", "ended"), ("dbos",), 5)
    with pytest.raises(SystemExit):
        parser().parse_args(["--peers", "nobody"])


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_tiny_run_measures_makegood_and_the_floor(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Real processes on a real store: rates, and the commits of a task, which are n + 1 on the floor."""
    words = f"--only throughput --peers makegood --stores {store} --steps 2 --concurrency 1 --seconds 0.05 --rounds 1 --counted 20"
    assert main([*words.split(), "--out", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["results"]
    assert [(one["peer"], one["why"]) for one in results] == [("floor", ""), ("makegood", "")]
    assert all(one["figures"]["steps_per_second"] > 0 for one in results)
    assert results[0]["figures"]["commits_per_task"] == 3
    assert results[1]["figures"]["commits_per_task"] >= 3
    assert "of the floor" in capsys.readouterr().out
    ET.parse(tmp_path / "results.svg")  # noqa: S314 - our own file
