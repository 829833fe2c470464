"""A task of which a row does not read: what reads is shown, what is asked of it is refused in words, and others are not held up."""

import sqlite3

import pytest

from tests.doors.conftest import Shop
from tests.doors.test_tasks import submit


@pytest.fixture
def damaged(shop: Shop) -> str:
    """A task that waited while the row of a step was damaged, until a Scheduler put it to error; beside a sound one."""
    task = shop.done("task", "submit", "kiosk:buy", '{"id": "o-1", "cents": 250}').strip()
    with sqlite3.connect(shop.folder / "kiosk.db") as raw:
        raw.execute("update makegood_step set spec = ? where idx = 1", (b"not JSON",))
    raw.close()
    process = shop.serve("run", "kiosk:kiosk")
    assert shop.call("task", "watch", task, "--timeout", "20s").exit_code == 6
    submit(shop)
    shop.stop(process)
    return task


def test_what_reads_of_it_is_shown_and_what_is_asked_of_it_is_refused(shop: Shop, damaged: str) -> None:
    """Exit codes as of any task in error; each refusal says which row, and what is left to do."""
    shown = shop.json("task", "show", damaged)
    (broken,) = shown["unreadable"]
    name = shown["steps"][1]["name"]
    assert broken.startswith(
        f"what step {name} declares (column spec of its row) is unreadable: JSON is malformed"
    )
    assert (shown["state"], shown["inputs"][0]["id"]) == ("error", "o-1")
    assert f"\nunreadable    what step {name} declares" in shop.done("task", "show", damaged)
    assert "pending" in shop.done("task", "history", damaged)
    assert [view["id"] for view in shop.json("task", "list", "--state", "error")] == [damaged]
    assert shop.call("task", "watch", damaged).exit_code == 6
    for words in (("cancel", damaged), ("undo", damaged), ("resubmit", damaged),
                  ("settle", damaged, "--step", name, "--done", "null", "--reason", "seen")):  # fmt: skip
        refused = shop.call("task", *words)
        assert refused.exit_code == 4, words
        for part in (
            broken,
            "from a backup",
            "by hand, at the services",
            f"makegood alerts --task {damaged}",
        ):
            assert part in refused.stderr, words
    assert "cannot be known: what step" in shop.call("task", "undo", damaged, "--preview").stderr


def test_a_check_names_it_and_goes_on(shop: Shop, damaged: str) -> None:
    waiting = shop.done("task", "submit", "kiosk:buy", '{"id": "o-2", "cents": 250}').strip()
    said = shop.call("check", "kiosk:kiosk")
    assert said.exit_code == 1
    assert "2 open tasks" in said.stdout
    assert f"task {damaged} is unreadable, so its steps were not checked: what step" in said.stdout
    assert waiting not in said.stdout


def test_inputs_and_history_that_do_not_read_are_said_too(shop: Shop, damaged: str) -> None:
    """However much of it is damaged."""
    with sqlite3.connect(shop.folder / "kiosk.db") as raw:
        raw.execute("update makegood_task set static = ?", (b"{",))
        raw.execute("update makegood_event set moves = ?", (b"[3]",))
    raw.close()
    assert "unreadable    what the task was given (column static of its row) is unreadable" in shop.done(
        "task", "show", damaged
    )
    assert "this entry is unreadable" in shop.done("task", "history", damaged)
