"""What a probe answered last is told where an operator looks."""

from pathlib import Path

from tests.doors.conftest import Shop

DESK = """
import makegood as mg

shop = mg.App("desk")
desk = shop.agent("desk")


@desk.action(complete_within="20s", retry=mg.NEVER, recover=mg.Recover(threshold=1))
def charge(order: str) -> str:
    raise OSError("connection reset")


@charge.probe
def find(order: str) -> mg.Happened[str] | mg.NotHappened:
    return mg.NOT_HAPPENED


@charge.undo
def refund(order: str, *, result: str | None) -> None: ...


@shop.workflow(on_failure="hold")
def sell(order: str) -> str:
    return charge(order)
"""


def test_show_and_history_say_what_a_probe_answered_and_when(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    (tmp_path / "desk.py").write_text(DESK, encoding="utf-8")
    try:
        shop.serve("run", "desk:shop")
        shop.call("task", "submit", "desk:sell", "o-1", "--wait", "--timeout", "2m")
        task = shop.json("task", "list")[0]["id"]
        (answer,) = shop.json("task", "show", task)["probes"]
        assert (answer["step"], answer["answer"]) == ("charge", "it did not happen")
        lines = shop.done("task", "show", task).splitlines()
        assert any(line.startswith("probe         charge: it did not happen (") for line in lines)
        assert "  probe: it did not happen\n" in shop.done("task", "history", task)
    finally:
        shop.close()
