"""Acts on all tasks that match: counted and shown first, asked for, a line for each; and resubmission with other inputs."""

import json
import re

import pytest

from tests.doors.conftest import Shop
from tests.doors.test_acts import submit


def orders(shop: Shop, count: int) -> list[str]:
    """Submit orders where nothing runs; return their ids, newest first."""
    lines = [
        shop.done("task", "submit", "kiosk:buy", f'{{"id": "b-{n}"}}', "--key", f"b-{n}")
        for n in range(count)
    ]
    return [task.strip() for task in reversed(lines)]


def test_a_dry_run_counts_and_shows_some_and_does_nothing(shop: Shop) -> None:
    tasks = orders(shop, 7)
    lines = shop.done("task", "cancel", "--filter", "state=pending workflow=buy", "--dry-run").splitlines()
    assert lines[0] == "cancel: 7 tasks:"
    assert [line.split()[0] for line in lines[1:6]] == tasks[:5]
    assert lines[6] == "  ... and 2 more"
    preview = shop.json("task", "cancel", "--state", "pending", "--limit", "3", "--dry-run")
    assert (preview["count"], [view["id"] for view in preview["sample"]]) == (3, tasks[:3])
    assert len(shop.json("task", "list", "--state", "pending")) == 7


def test_it_asks_and_no_is_no(shop: Shop) -> None:
    """The question goes to stderr, with a sample; without an answer nothing is done either."""
    orders(shop, 2)
    question = shop.call("task", "cancel", "--state", "pending", stdin="n\n")
    assert question.exit_code == 0
    assert question.stdout == ""
    assert "cancel 2 tasks?" in question.stderr
    assert "b-1" in question.stderr
    assert "nothing was done" in question.stderr
    silence = shop.call("task", "cancel", "--state", "pending", stdin="")
    assert silence.exit_code == 2
    assert "pass --yes. Nothing was changed" in silence.stderr
    assert len(shop.json("task", "list", "--state", "pending")) == 2


def test_yes_does_it_with_a_line_for_each(open_shop: Shop) -> None:
    good, refund = submit(open_shop, "good"), submit(open_shop, "declined")
    result = open_shop.call(
        "task",
        "undo",
        "--filter",
        "workflow=buy since=1h",
        "--limit",
        "2",
        "--yes",
        "--wait",
        "--reason",
        "recall",
        "--who",
        "ann",
    )
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [refund, good], "newest first"
    assert "nothing to do" in lines[0]
    assert lines[1].endswith("undo applied: what was done is being undone (now undone)")
    assert "2 tasks: 1 undone; 1 with nothing to do" in result.stderr
    (entry,) = open_shop.json("audit", "--task", good)
    assert (entry["kind"], entry["who"], entry["why"], entry["verdict"]) == (
        "undo",
        "ann",
        "recall",
        "applied",
    )


def test_the_highest_of_the_codes_is_returned(open_shop: Shop) -> None:
    """What is refused for one is done for the others."""
    before = submit(open_shop, "good")
    verdicts = open_shop.json("task", "resubmit", "--filter", "workflow=buy", "--limit", "2", "--yes", code=4)
    assert {one["task"]: one["code"] for one in verdicts}[before] == 4
    assert open_shop.call("task", "cancel", "--key", "nobody", "--yes").stderr.endswith(
        "0 tasks: nothing to do\n"
    )


@pytest.mark.parametrize(
    "act", [("undo", "--yes"), ("cancel", "--yes"), ("resubmit", "--dry-run"), ("undo", "--preview")]
)
def test_a_name_that_no_task_has_is_exit_3(shop: Shop, act: tuple[str, str]) -> None:
    """A misspelt workflow does not pass in a script; a filter that just matches nothing does."""
    orders(shop, 1)
    kind, option = act
    unknown = shop.call("task", kind, "--filter", "workflow=buyy", option)
    assert (unknown.exit_code, unknown.stdout) == (3, "")
    assert "no task in this store is of the workflow 'buyy'; did you mean 'buy'?" in unknown.stderr
    assert shop.call("task", kind, "--app", "nobody", option).exit_code == 3
    assert shop.call("task", kind, "--filter", "workflow=buy state=error", option).exit_code == 0
    assert shop.call("task", kind, "--filter", "agent=tilll", option).exit_code == 3
    assert shop.call("task", kind, "--filter", "step=nobody", option).exit_code == 3


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("workflow=buyy", "is of the workflow 'buyy'; did you mean 'buy'?"),
        ("app=nobody", "is of the app 'nobody'"),
        ("agent=tilll", "has a step of the agent 'tilll'; did you mean 'till'?"),
        ("step=chargee", "has a step 'chargee'; did you mean 'charge'?"),
    ],
)
def test_a_list_of_a_name_that_no_task_has_is_exit_3_too(shop: Shop, name: str, hint: str) -> None:
    """Its answer, an empty list, would pass for "all is well" in a script."""
    orders(shop, 1)
    listing = shop.call("task", "list", "--filter", name, "--json")
    assert (listing.exit_code, json.loads(listing.stdout)) == (3, [])
    assert f"no task in this store {hint}" in listing.stderr
    assert shop.call("task", "list", "--filter", "workflow=buy state=error").exit_code == 0


def test_without_a_scheduler_they_wait_and_that_is_exit_7(shop: Shop) -> None:
    orders(shop, 2)
    result = shop.call("task", "cancel", "--state", "pending", "--yes", "--timeout", "300ms")
    assert result.exit_code == 7
    assert result.stdout.count("waiting: no scheduler has answered yet") == 2


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("task", "cancel"), "name tasks by ID, or choose them"),
        (("task", "cancel", "0000000000000", "--state", "error"), "not both"),
        (("task", "cancel", "0000000000000", "--dry-run"), "go with a filter"),
        (
            ("task", "undo", "--filter", "stat=error"),
            "'stat=error' is not understood; did you mean state=...?",
        ),
        (("task", "undo", "--filter", "state=eror"), "'eror' is not a state"),
        (("task", "undo", "--filter", "older=soon"), "filter: older='soon'"),
        (("task", "undo", "--filter", "state=error", "--state", "error"), "state is given twice"),
        (("task", "undo", "--filter", "key='a"), "filter: no closing quote for 'a"),
        (("task", "list", "--filter", "app=a app=b"), "app is given twice"),
        (("task", "resubmit", "0000000000000", "--step", "charge"), "give both"),
        (("task", "resubmit", "--state", "error", "--input", "{}"), "--input is for one task"),
        (("task", "resubmit", "0000000000000", "--input", "3"), "an array of the workflow's inputs"),
        (("task", "resubmit", "0000000000000", "--input", "{"), "--input is not JSON"),
    ],
)
def test_what_cannot_be_meant_is_exit_2(shop: Shop, words: tuple[str, ...], hint: str) -> None:
    result = shop.call(*words)
    assert result.exit_code == 2, result.output
    assert hint in result.stderr


def test_the_list_takes_the_same_filter(shop: Shop) -> None:
    tasks = orders(shop, 2)
    assert [view["id"] for view in shop.json("task", "list", "--filter", "key=b-1")] == [tasks[0]]
    assert shop.json("task", "list", "--older", "1h") == []
    assert len(shop.json("task", "list", "--since", "1h")) == 2
    assert [
        view["id"] for view in shop.json("task", "list", "--filter", "b-1 age:<1h step:sell", code=3)
    ] == []
    assert [view["id"] for view in shop.json("task", "list", "--filter", f"{tasks[1]} state:pending")] == [
        tasks[1]
    ]


def test_a_step_is_given_other_arguments(open_shop: Shop) -> None:
    """The card was declined; the customer gives another one."""
    task = submit(open_shop, "declined")
    order = json.dumps({"order": {"id": "o", "cents": 70, "card": "good"}})
    (open_shop.folder / "order.json").write_text(order, encoding="utf-8")
    refusal = open_shop.call("task", "resubmit", task, "--step", "chrage", "--input", "@order.json")
    assert refusal.exit_code == 3
    (again,) = open_shop.json(
        "task",
        "resubmit",
        task,
        "--step",
        "charge",
        "--input",
        "@order.json",
        "--reason",
        "another card",
        "--wait",
    )
    assert (again["verdict"], again["state"]) == ("applied", "processed")
    detail = open_shop.json("task", "show", task)
    assert detail["result"].startswith("paid-70-for-hold-")
    assert {step["name"]: step["round"] for step in detail["steps"]} == {
        "reserve": 2, "charge": 2, "print_receipt": 1,
    }  # fmt: skip
    (entry,) = open_shop.json("audit", "--task", task)
    assert entry["change"]["step"] == "charge"
    assert (entry["change"]["was"]["order"]["card"], entry["change"]["now"]["order"]["card"]) == (
        "•••", "•••",
    )  # fmt: skip
    short = 'charge: {"order":{"id":"o","cents":70,"card":"•••"}} instead of {"order":{"id":"'
    assert short in open_shop.done("audit", "--task", task)
    assert re.search(rf"^corrected  .*{re.escape(short)}", open_shop.done("task", "show", task), re.MULTILINE)
    assert detail["corrected"][0]["change"] == entry["change"]


def test_other_arguments_are_checked_where_the_code_is_at_hand(open_shop: Shop) -> None:
    """Before anything is asked: with --check; without it, it is said that nobody has checked them."""
    task = submit(open_shop, "declined")
    words = ("task", "resubmit", task, "--step", "charge", "--input")
    refusal = open_shop.call(*words, '{"order": 5}', "--check", "kiosk:kiosk")
    assert refusal.exit_code == 2
    assert (
        "the argument order of charge is int, its annotation says Order: Expected `object`, got `int`"
        in refusal.stderr
    )
    whole = open_shop.call("task", "resubmit", task, "--input", '[{"id": 5}]', "--check", "kiosk:kiosk")
    assert whole.exit_code == 2
    assert "the input order does not fit Order" in whole.stderr
    assert open_shop.json("audit", "--task", task) == []
    warning = open_shop.call(*words, '{"hold": "h-1"}', "--wait")
    assert "was not checked against the annotations of your code: --check APP does that" in warning.stderr
    good = '{"order": {"id": "o", "cents": 70, "card": "good"}}'
    assert open_shop.call(*words, good, "--check", "kiosk:kiosk", "--wait").exit_code == 0


def test_a_task_is_given_other_inputs(open_shop: Shop) -> None:
    """All of them, in order."""
    task = submit(open_shop, "declined")
    few = open_shop.call("task", "resubmit", task, "--input", "[]")
    assert few.exit_code == 4
    assert "inputs, not 0" in few.stderr
    inputs = json.dumps([{"id": "o", "cents": 80, "card": "good"}, "hello"])
    inputs_shown = open_shop.json("task", "show", task)["inputs"]
    correction = inputs if len(inputs_shown) == 2 else json.dumps(json.loads(inputs)[: len(inputs_shown)])
    (again,) = open_shop.json("task", "resubmit", task, "--input", correction, "--wait")
    assert again["state"] == "processed"
    assert open_shop.json("task", "show", task)["result"] == "paid-80-for-hold-o"
