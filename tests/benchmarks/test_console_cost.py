"""``make bench-console``: a tiny real run, and how figures are shown."""

import json

import pytest

from benchmarks import console


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_tiny_run_asks_every_page_and_lets_viewers_watch(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Real processes on a real store: each page answers, streams name fragments, and every fragment comes."""
    arguments = ["--quick", "--stores", store, "--viewers", "3", "--flight", "5", "--seconds", "2", "--json"]
    assert console.main(arguments) == 0
    report = json.loads(capsys.readouterr().out)[store]
    assert {"overview", "tasks", "a task", "stores"} <= set(report["pages"])
    for row in report["pages"].values():
        assert 0 < row["p50_ms"] <= row["p95_ms"]
        assert row["statements"] > 0
    viewers = report["viewers"]["console"]
    assert min(viewers["events"], viewers["fetched"], viewers["statements"], viewers["bytes"]) > 0
    assert viewers["failed"] == 0
    assert report["viewers"]["cpu_ratios"][0] > 0
    text = console.table({store: report})
    assert "the loop without console, and with 3 viewers" in text
    assert f"{store}: pages, ms" in text
