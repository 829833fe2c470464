"""The pages on sparing services and on keeping the store small: what they show is served, typed and seen."""

import re
from pathlib import Path

import pytest

from tests.docs.test_operate_howto import typed
from tests.doors.conftest import Shop

DOCS = Path(__file__).resolve().parents[2] / "docs"


def blocks(page: str, kind: str) -> list[str]:
    """Return the blocks of one kind on a page."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_a_service_that_is_down_is_spared_and_nothing_is_undone(shop: Shop) -> None:
    """The circuit opens, its alert stands, the rest waits; when the service is back all tasks are done and the alert has ended."""
    page = "build/rate-limits-and-circuit-breakers.md"
    (code,) = blocks(page, "python")
    (shop.folder / "calm.py").write_text(code, encoding="utf-8")
    down = shop.folder / "down"
    down.touch()
    shop.serve("run", "calm:shop")
    typed(shop, blocks(page, "sh")[0])
    while not shop.json("alerts"):
        pass
    output, _ = typed(shop, blocks(page, "sh open")[0])
    assert "circuit_open" in output
    (view,) = shop.json("agents")["nodes"]
    assert view["agents"][0]["rate"] == 100.0
    down.unlink()
    output, _ = typed(shop, blocks(page, "sh back")[0])
    assert '"paid o-5"' in output
    while shop.json("alerts"):
        pass
    for task in shop.json("task", "list"):
        shop.done("task", "watch", task["id"], "--timeout", "60s")
    assert {task["state"] for task in shop.json("task", "list")} == {"processed"}


def test_the_store_is_kept_small_as_written(shop: Shop) -> None:
    """The settings of the page are settings, and what is typed by hand is taken."""
    page = "operate/keep-the-store-small.md"
    (settings,) = blocks(page, "toml")
    (shop.folder / "makegood.toml").write_text(settings, encoding="utf-8")
    origins = {one["name"]: (one["value"], one["origin"]) for one in shop.json("doctor")["settings"]}
    assert origins["retention"] == ("90d", "retention in makegood.toml")
    assert origins["cleanup_every"] == ("10m", "cleanup_every in makegood.toml")
    output, _ = typed(shop, blocks(page, "sh")[0])
    assert output.splitlines() == ["0 tasks would be removed", "0 tasks removed"]


FASTER = (
    ('reset="2s"', 'reset="100ms"'),
    ("retry=", 'recover=mg.Recover(wait="250ms", extended="1s"), retry='),
)
"""The page's times twenty times faster; five minutes are a second, or it would take too long to be seen."""

UNDO = """
@charge.undo
def refund(order: str, *, result: str | None) -> None:
    charge.fn(order)
"""


@pytest.mark.parametrize("agents", [1, 2])
@pytest.mark.parametrize("undoable", [False, True], ids=["undo=NOTHING", "undo at the same service"])
def test_a_long_outage_undoes_nothing_in_real_processes(shop: Shop, agents: int, undoable: bool) -> None:
    """The page's program, with one process of its agent and with two: forty calls in vain, and each step has failed once at most."""
    (code,) = blocks("build/rate-limits-and-circuit-breakers.md", "python")
    for slow, fast in FASTER:
        assert slow in code
        code = code.replace(slow, fast)
    if undoable:
        code = code.replace("undo=mg.NOTHING, ", "").replace(
            "\n\n@shop.workflow()", f"\n{UNDO}\n\n@shop.workflow()"
        )
    code = code.replace(
        "        raise ",
        '        with open("calls", "a") as calls:\n            calls.write(".")\n        raise ',
    )
    (shop.folder / "calm.py").write_text(code, encoding="utf-8")
    down, calls = shop.folder / "down", shop.folder / "calls"
    down.touch()
    calls.touch()
    shop.done("store", "migrate")
    shop.serve("scheduler")
    shop.serve("supervisor", "--supervise-every", "500ms")
    for _ in range(agents):
        shop.serve("agent", "calm:shop", "payments")
    typed(shop, blocks("build/rate-limits-and-circuit-breakers.md", "sh")[0])
    while calls.stat().st_size < 40:
        pass
    assert {task["state"] for task in shop.json("task", "list")} == {"processing"}
    tasks = [task["id"] for task in shop.json("task", "list")]
    assert max(shop.json("task", "show", task)["steps"][0]["failures"] for task in tasks) <= 1
    down.unlink()
    for task in tasks:
        shop.done("task", "watch", task, "--timeout", "60s")
    assert {task["state"] for task in shop.json("task", "list")} == {"processed"}
