"""``makegood lane``, and lanes in the lists: who holds one, who waits, the alert, and the release by an operator; in a real process."""

import json

from makegood.base import ids
from tests.doors.conftest import Shop


def submitted(shop: Shop, name: str, card: str, lane: str) -> str:
    """Submit an order in a lane; return its task."""
    order = json.dumps({"id": name, "card": card})
    return shop.done("task", "submit", "kiosk:buy", order, "--key", name, "--lane", lane).strip()


def test_a_task_in_error_holds_its_lane_until_it_is_released(shop: Shop) -> None:
    shop.serve("run", "kiosk:kiosk", "--supervise-every", "200ms")
    stuck = submitted(shop, "o-1", "stuck", "ada")
    assert shop.call("task", "watch", stuck, "--timeout", "60s").exit_code == 6
    others = [submitted(shop, f"o-{n}", "good", "ada") for n in (2, 3)]
    free = submitted(shop, "o-4", "good", "bob")
    shop.done("task", "watch", free, "--timeout", "60s")

    assert shop.done("lane", "list").splitlines()[-1].split()[:5] == [
        "kiosk/ada",
        stuck,
        "(error)",
        "2",
        others[0],
    ]
    (lane,) = shop.json("lane", "list")
    assert (lane["app"], lane["name"], lane["held"], lane["waiting"]) == ("kiosk", "ada", 1, 2)
    assert [place["task"] for place in lane["holders"]] == [stuck]
    assert [place["task"] for place in lane["waiters"]] == others

    shown = shop.call("lane", "show", "ada")
    lines = shown.stdout.splitlines()
    assert [line.split()[1:3] for line in lines[2:]] == [["1", others[0]], ["2", others[1]]]
    assert f"makegood lane release {stuck}" in shown.stderr
    assert shop.json("lane", "show", "ada", "--app", "kiosk") == [lane]
    missing = shop.call("lane", "show", "adda")
    assert missing.exit_code == 3
    assert "did you mean 'ada'" in missing.stderr

    assert [task["id"] for task in shop.json("task", "list", "lane:ada")] == [*reversed(others), stuck]
    rows = shop.done("task", "list", "state:queued")
    assert f"waits for lane ada, held by {stuck}, behind 1 task" in rows
    detail = shop.json("task", "show", others[1])
    assert (detail["state"], detail["lanes"]) == (
        "queued",
        [{"name": "ada", "place": "waiting", "at_once": 1, "before": 1, "behind": 0, "held_by": [stuck]}],
    )
    assert "holds lane ada; 2 tasks wait for it" in shop.done("task", "show", stuck)
    why = f"queued: it waits for lane ada, held by {stuck}, behind 1 task"
    assert shop.done("task", "history", others[1]).splitlines()[-1] == why
    assert "queued: it" not in shop.done("task", "history", stuck)
    watching = shop.call("task", "watch", others[1], "--timeout", "5s")
    assert (watching.exit_code, f"task {others[1]} is {why}" in watching.stderr) == (7, True)

    while not (alerts := [a for a in shop.json("alerts") if a["kind"] == "lane_held"]):
        pass
    assert alerts[0]["task"] == stuck
    assert f"lane ada, for which 2 tasks wait: {others[0]}, {others[1]}" in alerts[0]["text"]

    refusal = shop.call("lane", "release", free, "--reason", "a slip")
    assert refusal.exit_code == 4
    assert "processed" in refusal.stderr
    assert shop.call("lane", "release", ids.show(7), "--reason", "a slip").exit_code == 3
    words = ("--reason", "the others may go", "--who", "ann")
    assert "ada" in shop.done("lane", "release", "o-1", *words)
    again = shop.call("lane", "release", "o-1", *words)
    assert (again.exit_code, "it holds no lane any more" in again.stderr) == (4, True)
    for task in others:
        shop.done("task", "watch", task, "--timeout", "60s")
    (act,) = [
        each for each in shop.json("audit") if each["kind"] == "release_lane" and each["verdict"] == "applied"
    ]
    assert (act["task"], act["who"], act["why"]) == (stuck, "ann", "the others may go")
    assert shop.json("task", "show", stuck)["state"] == "error"
    while [a for a in shop.json("alerts") if a["kind"] == "lane_held"]:
        pass
    assert shop.json("lane", "list") == []
    assert "no task holds a lane" in shop.call("lane", "list").stderr


def test_a_lane_without_a_name_is_refused_by_the_name_of_its_option(shop: Shop) -> None:
    order = json.dumps({"id": "o-1", "card": "good"})
    refusal = shop.call("task", "submit", "kiosk:buy", order, "--lane", "")
    assert refusal.exit_code == 2
    assert "makegood: --lane='': a lane is a text" in refusal.stderr


def test_a_page_of_lanes_continues_after_its_last(shop: Shop) -> None:
    tasks = [submitted(shop, f"o-{n}", "good", f"lane-{n}") for n in range(3)]
    first = shop.call("lane", "list", "--limit", "2")
    assert "--after kiosk/lane-1" in first.stderr
    (rest,) = shop.json("lane", "list", "--limit", "2", "--after", "kiosk/lane-1")
    assert [place["task"] for place in rest["waiters"]] == tasks[2:]
    wrong = shop.call("lane", "list", "--after", "lane-1")
    assert (wrong.exit_code, "write APP/NAME" in wrong.stderr) == (2, True)
    assert shop.json("lane", "list", "--app", "shop") == []
