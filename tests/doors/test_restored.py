"""``makegood store restored``: asked for, refused while processes run, audited; what was under way goes on under newer tokens."""

import sqlite3
import time
from contextlib import closing

from tests.doors.conftest import Shop


def test_it_asks_and_does_nothing_unanswered(shop: Shop) -> None:
    """Where nobody can answer that is a wrong usage; a no ends it; in both cases the generation stays."""
    silent = shop.call("store", "restored")
    assert silent.exit_code == 2
    assert "pass --yes" in silent.stderr
    assert shop.call("store", "restored", stdin="n\n").exit_code == 130
    assert shop.json("audit") == []
    line = shop.done("store", "restored", stdin="y\n")
    assert line == "generation 2 began: 0 tasks freed, 0 requests in doubt; now start the processes\n"


def test_it_is_audited_and_alerted(shop: Shop) -> None:
    """Who, why, and which generation began."""
    restoration = shop.json("store", "restored", "--yes", "--reason", "disk died", "--who", "ann")
    assert (restoration["generation"], restoration["freed"], restoration["doubtful"]) == (2, 0, 0)
    (act,) = shop.json("audit")
    assert (act["kind"], act["task"], act["who"], act["why"]) == ("restored", None, "ann", "disk died")
    assert act["outcome"] == "generation 2"
    (alert,) = shop.json("alerts")
    assert (alert["kind"], alert["open"]) == ("generation", True)


def test_it_is_refused_while_a_process_runs(shop: Shop) -> None:
    """Its memory is ahead of the store: exit 4 names it, and nothing is changed."""
    process = shop.serve("scheduler")
    refusal = shop.call("store", "restored", "--yes")
    assert refusal.exit_code == 4
    assert f"pid {process.pid}" in refusal.stderr
    assert "Stop them all" in refusal.stderr
    shop.stop(process)
    assert "generation 2 began" in shop.done("store", "restored", "--yes")


def test_a_task_that_was_under_way_in_the_backup_comes_to_its_end(shop: Shop) -> None:
    """The store goes back to when a step had been asked for, which was carried out since; the restored one asks again."""
    scheduler = shop.serve("scheduler")
    task = submitted(shop)
    wait_until(shop, "select count(*) from makegood_request where taken_by is null")
    with (
        closing(sqlite3.connect(shop.folder / "kiosk.db")) as file,
        closing(sqlite3.connect(shop.folder / "backup.db")) as backup,
    ):
        file.backup(backup)
        backup.execute("update makegood_node set alive_until = 0")  # restored some seconds later
        backup.commit()
    agents = shop.serve("agent", "kiosk:kiosk", "stock", "till")
    assert shop.call("task", "watch", task).exit_code == 0
    shop.stop(scheduler)
    shop.stop(agents)
    for file_name in ("kiosk.db-wal", "kiosk.db-shm"):
        (shop.folder / file_name).unlink(missing_ok=True)
    (shop.folder / "backup.db").replace(shop.folder / "kiosk.db")
    assert shop.json("task", "show", task)["state"] == "processing"
    restoration = shop.json("store", "restored", "--yes", "--reason", "the backup of before")
    assert (restoration["generation"], restoration["freed"], restoration["doubtful"]) == (2, 1, 1)
    shop.serve("run", "kiosk:kiosk")
    assert shop.call("task", "watch", task).exit_code == 0
    steps = shop.json("task", "show", task)["steps"]
    assert [step["attempt"] for step in steps] == [2, 1, 1]


def submitted(shop: Shop) -> str:
    """Submit an order; return its task."""
    return shop.done("task", "submit", "kiosk:buy", '{"id": "o-1"}').strip()


def wait_until(shop: Shop, count: str) -> None:
    """Look until a count is above 0, for at most 120 s."""
    end = time.monotonic() + 120
    with closing(sqlite3.connect(shop.folder / "kiosk.db")) as file:
        while not file.execute(count).fetchone()[0]:
            assert time.monotonic() < end, count
