"""What the pages say of metrics is so: the table is the code's, rules and board name what there is, the program runs."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from makegood.cli.settings import load
from makegood.model.messages import AlertKind
from makegood.telemetry.catalogue import METRICS
from tests.telemetry.conftest import Numbers

DOCS = Path(__file__).resolve().parents[2] / "docs"
MONITOR = (DOCS / "operate/monitor.md").read_text(encoding="utf-8")
RULES = (DOCS / "operate/alerts.yml").read_text(encoding="utf-8")
BOARD = json.loads((DOCS / "operate/dashboard.json").read_text(encoding="utf-8"))
BY_NAME = {metric.name: metric for metric in METRICS}
PARTS = ("_bucket", "_sum", "_count")
SELECTOR = re.compile(r"(makegood_\w+)(?:\{([^}]*)\})?")


def test_the_table_of_metrics_is_the_codes() -> None:
    """Every metric with its kind, labels and meaning, in the same order, and no other."""
    page = (DOCS / "reference/metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(makegood_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", page, re.MULTILINE)
    metrics = [(name, kind, tuple(re.findall(r"`(\w+)`", labels)), text) for name, kind, labels, text in rows]
    assert metrics == [(m.name, m.kind, m.labels, m.text) for m in METRICS]


def expressions() -> Iterator[str]:
    """Yield every expression of the rules, of the board and of the page."""
    yield from re.findall(r"^ +expr: (.+)$", RULES, re.MULTILINE)
    for panel in BOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from (code for code in re.findall(r"`([^`\n]+)`", MONITOR) if "makegood_" in code)


@pytest.mark.parametrize("expression", list(expressions()))
def test_an_expression_names_metrics_that_there_are_with_labels_that_they_have(expression: str) -> None:
    labels: set[str] = set()
    for name, selector in SELECTOR.findall(expression):
        part = next((part for part in PARTS if name.endswith(part)), "")
        metric = BY_NAME.get(name) or BY_NAME[name.removesuffix(part)]
        assert (metric.kind == "histogram") == bool(part) or "(" not in expression, name
        mine = {*metric.labels, *(["le"] if part == "_bucket" else [])}
        labels |= mine
        for label, value in re.findall(r'(\w+)[=!]~?"([^"]*)"', selector):
            assert label in mine, f"{name} has no {label}"
            if label == "kind":
                kinds = AlertKind.__args__  # type: ignore[attr-defined]  # of a Literal
                assert set(re.split(r"\\?\|", value)) <= set(kinds)
            elif label in ("state", "outcome", "op", "decision", "role"):
                assert value in metric.text or value in ("ok", "commit"), f"{name} has no {label} {value}"
    for grouping in re.findall(r"by \(([^)]*)\)", expression):
        assert set(re.split(r", *", grouping)) <= labels, expression


def test_every_rule_is_whole_and_every_metric_is_on_the_board() -> None:
    """A rule has expression, length, severity, summary and action; the board shows all that is measured."""
    rules = re.split(r"^ +- alert: ", RULES, flags=re.MULTILINE)[1:]
    assert len(rules) >= 10
    for rule in rules:
        for part in ("expr: ", "for: ", "labels: {severity: ", "summary: ", "action: "):
            assert f" {part}" in rule, rule
    names = {
        name
        for panel in BOARD["panels"]
        for target in panel["targets"]
        for name, _ in SELECTOR.findall(target["expr"])
    }
    assert not [m.name for m in METRICS if not any(name.startswith(m.name) for name in names)]


def test_the_settings_on_the_page_are_settings(tmp_path: Path) -> None:
    environ = {"MAKEGOOD_LISTEN": "127.0.0.1:9464", "MAKEGOOD_TRACES": "on", "MAKEGOOD_LOG_FORMAT": "json"}
    settings = load({}, environ, tmp_path)
    assert (settings.listen, settings.traces, settings.log_format) == ("127.0.0.1:9464", True, "json")
    assert set(environ) <= set(re.findall(r"MAKEGOOD_\w+", MONITOR))


DRIVER = """
import asyncio, json
import desk
from prometheus_client import REGISTRY, generate_latest

async def run():
    serving, seen = asyncio.create_task(desk.serve("sqlite:///d.db", "lamp")), ""
    while not serving.done():
        seen = generate_latest(REGISTRY).decode() if "makegood_agent_slots{" not in seen else seen
        await asyncio.sleep(0)
    return await serving, seen

desk.set_up_logs()
print(json.dumps(asyncio.run(run())))
"""


def test_the_program_on_the_page_runs(tmp_path: Path) -> None:
    """Its registry has our metrics while it serves; the line of its action says where it was written."""
    (source,) = re.findall(r"^```python\n(# desk\.py\n.*?)^```", MONITOR, re.MULTILINE | re.DOTALL)
    (tmp_path / "desk.py").write_text(source, encoding="utf-8")
    command = [sys.executable, "-c", DRIVER]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert process.returncode == 0, process.stderr
    result, exposition = json.loads(process.stdout)
    assert result == "packed lamp"
    assert (Numbers(exposition)("makegood_agent_slots", agent="desk") or 0) > 0
    (line,) = [line for line in map(json.loads, process.stderr.splitlines()) if line["logger"] == "desk"]
    assert (line["message"], line["step"], line["attempt"]) == ("packing", "pack", 1)
    assert len(line["task"]) == 13
