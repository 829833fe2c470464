"""A task of which a row does not read: what reads is shown, what is asked of it is refused in words, and others are not held up."""

import sqlite3

import pytest

from tests.doors.conftest import Shop
from tests.doors.test_tasks import submit


@pytest.fixture
def damaged_task(shop: Shop) -> str:
    """A task that waited while the row of a step was damaged, until a Scheduler put it to error; beside a sound one."""
    task = shop.done("task", "submit", "kiosk:buy", '{"id": "o-1", "cents": 250}').strip()
    with sqlite3.connect(shop.folder / "kiosk.db") as raw:
        raw.execute("update makegood_step set spec = ? where idx = 1", (b"not JSON",))
    raw.close()
    process = shop.serve("run", "kiosk:kiosk")
    assert shop.call("task", "watch", task, "--timeout", "2m").exit_code == 6
    submit(shop)
    shop.stop(process)
    return task


def test_what_reads_of_it_is_shown_and_what_is_asked_of_it_is_refused(shop: Shop, damaged_task: str) -> None:
    """Exit codes as of any task in error; each refusal says which row, and what is left to do."""
    detail = shop.json("task", "show", damaged_task)
    (defect,) = detail["unreadable"]
    name = detail["steps"][1]["name"]
    assert defect.startswith(
        f"what step {name} declares (column spec of its row) is unreadable: JSON is malformed"
    )
    assert (detail["state"], detail["inputs"][0]["id"]) == ("error", "o-1")
    assert f"\nunreadable    what step {name} declares" in shop.done("task", "show", damaged_task)
    assert "pending" in shop.done("task", "history", damaged_task)
    assert [view["id"] for view in shop.json("task", "list", "--state", "error")] == [damaged_task]
    assert shop.call("task", "watch", damaged_task).exit_code == 6
    for words in (("cancel", damaged_task), ("undo", damaged_task), ("resubmit", damaged_task),
                  ("settle", damaged_task, "--step", name, "--done", "null", "--reason", "seen")):  # fmt: skip
        refusal = shop.call("task", *words)
        assert refusal.exit_code == 4, words
        for part in (
            defect,
            "from a backup",
            "by hand, at the services",
            f"makegood alerts --task {damaged_task}",
        ):
            assert part in refusal.stderr, words
    assert "cannot be known: what step" in shop.call("task", "undo", damaged_task, "--preview").stderr


def test_a_check_names_it_and_goes_on(shop: Shop, damaged_task: str) -> None:
    waiting = shop.done("task", "submit", "kiosk:buy", '{"id": "o-2", "cents": 250}').strip()
    check = shop.call("check", "kiosk:kiosk")
    assert check.exit_code == 1
    assert "2 open tasks" in check.stdout
    assert f"task {damaged_task} is unreadable, so its steps were not checked: what step" in check.stdout
    assert waiting not in check.stdout


def test_inputs_and_history_that_do_not_read_are_said_too(shop: Shop, damaged_task: str) -> None:
    """However much of it is damaged."""
    with sqlite3.connect(shop.folder / "kiosk.db") as raw:
        raw.execute("update makegood_task set static = ?", (b"{",))
        raw.execute("update makegood_event set moves = ?", (b"[3]",))
    raw.close()
    assert "unreadable    what the task was given (column static of its row) is unreadable" in shop.done(
        "task", "show", damaged_task
    )
    assert "this entry is unreadable" in shop.done("task", "history", damaged_task)
