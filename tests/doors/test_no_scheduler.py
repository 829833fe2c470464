"""Who waits where nothing runs is told so at once, not when the time is over."""

import re

import pytest

from tests.doors.conftest import Shop

ORDER = '{"id": "o-1", "cents": 250}'
TOLD = "no scheduler runs on this store"


@pytest.fixture
def waiting(shop: Shop) -> str:
    """A task of a store on which nothing runs."""
    return shop.done("task", "submit", "kiosk:buy", ORDER).strip()


@pytest.mark.parametrize(
    ("words", "until"),
    [
        (("task", "watch", "ID", "--timeout", "10ms"), "nothing continues"),
        (("task", "watch", "ID", "--timeout", "10ms", "--color", "always"), "nothing continues"),
        (("task", "watch", "ID", "--timeout", "10ms", "--json"), "nothing continues"),
        (("task", "follow", "workflow:buy", "--timeout", "10ms"), "nothing continues"),
        (("task", "follow", "key:later", "--expect", "1", "--timeout", "10ms"), "nothing continues"),
        (("task", "submit", "kiosk:buy", ORDER, "--wait", "--timeout", "10ms"), "nothing continues"),
        (("task", "cancel", "ID", "--timeout", "10ms"), "the command is not decided"),
        (("task", "undo", "ID", "--timeout", "10ms"), "the command is not decided"),
        (("task", "settle", "ID", "--step", "reserve", "--not-done", "--reason", "x", "--timeout", "10ms"),
         "the command is not decided"),
        (("task", "cancel", "--state", "pending", "--yes", "--timeout", "10ms"), "the command is not decided"),
    ],
)  # fmt: skip
def test_who_waits_is_told_first_that_no_scheduler_runs(
    shop: Shop, waiting: str, words: tuple[str, ...], until: str
) -> None:
    """The first line on stderr says so, and what starts one; it is waited all the same, to exit code 7."""
    result = shop.call(*(waiting if word == "ID" else word for word in words))
    lines = [line for line in result.stderr.splitlines() if not line.endswith(" submitted")]
    assert lines[0].startswith(f"makegood: {TOLD}, {until} until one does: `makegood run APP`"), result.stderr
    assert "the task continues" not in result.stderr
    assert result.exit_code == 7


def test_who_waits_is_told_which_agents_do_not_run(shop: Shop) -> None:
    """At once, and when the time is over; with the command that starts one."""
    shop.serve("scheduler")
    result = shop.call("task", "submit", "kiosk:buy", ORDER, "--wait", "--timeout", "10ms")
    missing = "no process runs kiosk/stock (reserve), kiosk/till (charge); `makegood agent MODULE:kiosk stock till`, or `makegood run APP`"
    first, last = (line for line in result.stderr.splitlines() if not line.endswith(" submitted"))
    assert first.startswith(f"makegood: {missing}")
    assert f"within 0.01 s: {missing}" in last
    assert result.exit_code == 7


def test_a_wait_that_is_over_does_not_say_that_a_task_goes_on_when_nothing_runs(
    shop: Shop, waiting: str
) -> None:
    for words in (("watch", waiting), ("submit", "kiosk:buy", ORDER, "--wait")):
        line = shop.call("task", *words, "--timeout", "10ms").stderr.splitlines()[-1]
        assert f"within 0.01 s: {TOLD}; `makegood run APP`" in line


def test_an_act_that_is_not_decided_is_shown_with_its_task(shop: Shop, waiting: str) -> None:
    """Who asked, when, what and why, until a Scheduler has decided; then it stands in the audit."""
    shop.call("task", "cancel", waiting, "--who", "ann", "--reason", "wrong price", "--timeout", "10ms")
    (command,) = shop.json("task", "show", waiting)["asked"]
    assert (command["kind"], command["who"], command["why"], command["step"]) == (
        "cancel",
        "ann",
        "wrong price",
        None,
    )
    assert command["at"].endswith("Z")
    line = r"^asked +[-\d]+ [:\d]+  cancel  by ann: wrong price  \(not decided: no scheduler has taken it\)$"
    assert re.search(line, shop.done("task", "show", waiting), re.MULTILINE)
    process = shop.serve("scheduler")
    assert shop.call("task", "watch", waiting, "--timeout", "2m").exit_code == 5
    shop.stop(process)
    assert shop.json("task", "show", waiting)["asked"] == []
    assert "asked" not in shop.done("task", "show", waiting)


def test_where_one_runs_or_all_is_over_nothing_is_said(open_shop: Shop) -> None:
    assert open_shop.call("task", "submit", "kiosk:buy", ORDER, "--wait").stderr.count("\n") == 1
    (newest,) = open_shop.json("task", "list", "--limit", "1")
    slow = open_shop.done("task", "submit", "kiosk:buy", '{"id": "o-2", "card": "slow"}').strip()
    late = open_shop.call("task", "watch", slow, "--timeout", "10ms")
    assert "the task continues, watch it again" in late.stderr
    errors = late.stderr + open_shop.call("task", "undo", newest["id"]).stderr
    assert TOLD not in errors + open_shop.call("task", "cancel", slow).stderr


def test_of_a_task_at_rest_nothing_is_said_where_nothing_runs(shop: Shop) -> None:
    """Nobody waits then."""
    process = shop.serve("run", "kiosk:kiosk")
    task = shop.call("task", "submit", "kiosk:buy", ORDER, "--key", "one", "--wait", "--json")
    shop.stop(process)
    (newest,) = shop.json("task", "list")
    assert task.exit_code == 0
    again = shop.call("task", "submit", "kiosk:buy", ORDER, "--key", "one", "--wait")
    assert (again.stdout, TOLD in again.stderr) == ('"paid-250-for-hold-o-1"\n', False)
    for words in (("watch", newest["id"]), ("follow", "key:one")):
        again = shop.call("task", *words)
        assert (again.exit_code, TOLD in again.stderr) == (0, False)


def test_a_task_in_the_hands_of_a_dead_process_says_so(shop: Shop) -> None:
    """Which process, what it has, and since when it gave no sign of life; a living one is no news."""
    quick = {"MAKEGOOD_NAME": "desk", "MAKEGOOD_HEARTBEAT": "50ms", "MAKEGOOD_DEAD_AFTER": "500ms"}
    process = shop.serve("run", "kiosk:kiosk", **quick)
    task = shop.done("task", "submit", "kiosk:buy", '{"id": "o-1", "card": "slow"}').strip()
    text = ""
    while not re.search(r"charge +till +running", text):
        text = shop.done("task", "show", task)
    process.kill()
    while "a Supervisor hands it over" not in text:
        text = shop.done("task", "show", task)
    name = f"desk-{process.pid}"
    line = rf"^silent +{name} has the task and a call of charge in hand, and no heartbeat for [\d.]+m?s: a Supervisor hands it over$"
    assert re.search(line, text, re.MULTILINE), text
