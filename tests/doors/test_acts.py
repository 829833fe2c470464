"""Operators' acts: what is asked, what the rules answer, and what several answers add up to."""

import json
from typing import Any

import pytest

from makegood.client.handle import TaskHandle
from tests.doors.conftest import Shop


def submit(shop: Shop, card: str) -> str:
    """Submit an order paid with such a card, wait for its end, return its id."""
    order = json.dumps({"id": f"o-{card}", "card": card})
    submission = shop.call("task", "submit", "kiosk:buy", order, "--wait", "--json")
    assert submission.exit_code in (0, 5, 6), submission.output
    task: str = json.loads(submission.stdout)["id"]
    return task


def test_a_processed_task_is_undone_and_can_be_resubmitted(open_shop: Shop) -> None:
    """An undo with --wait succeeds when the task is undone; a resubmission when it is processed again."""
    task = submit(open_shop, "good")
    (undo,) = open_shop.json("task", "undo", task, "--wait", "--reason", "wrong address", "--who", "ann")
    assert (undo["verdict"], undo["state"], undo["code"]) == ("applied", "undone", 0)
    assert "ann" in undo["cause"]
    assert "wrong address" in undo["cause"]
    (again,) = open_shop.json("task", "resubmit", task, "--wait")
    assert (again["verdict"], again["state"]) == ("applied", "processed")
    assert open_shop.json("task", "show", task)["submission"] == 2


def test_what_is_refused_is_exit_4_with_the_reason(open_shop: Shop) -> None:
    """For people on stderr, for machines in the document as well."""
    task = submit(open_shop, "good")
    refusal = open_shop.call("task", "cancel", task)
    assert (refusal.exit_code, refusal.stdout) == (4, "")
    assert "the task had ended: processed" in refusal.stderr
    (refusal_document,) = open_shop.json("task", "resubmit", task, code=4)
    assert (refusal_document["verdict"], refusal_document["code"]) == ("refused", 4)
    assert "only one in error or undone" in refusal_document["outcome"]


def test_what_is_so_already_is_done(open_shop: Shop) -> None:
    """Undoing an undone task is no error."""
    task = submit(open_shop, "declined")
    assert "nothing to do" in open_shop.done("task", "undo", task)


def test_of_many_each_has_its_line_and_the_highest_of_4_5_6_is_returned(open_shop: Shop) -> None:
    """One refused among several: the others are carried out all the same."""
    good, declined_task = submit(open_shop, "good"), submit(open_shop, "declined")
    result = open_shop.call("task", "resubmit", good, "0000000000000", declined_task, "--wait")
    assert result.exit_code == 5, result.output  # it is declined again
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [good, "0000000000000", declined_task]
    assert "refused" in lines[0]
    assert "there is no task" in lines[1]
    assert "applied" in lines[2]
    codes = [one["code"] for one in open_shop.json("task", "cancel", good, "0000000000000", code=4)]
    assert codes == [4, 3]


def test_a_stuck_undo_is_settled_by_hand(open_shop: Shop) -> None:
    """The operator put the goods back: the task ends undone."""
    task = submit(open_shop, "stuck")
    (settlement,) = open_shop.json(
        "task", "settle", task, "--step", "reserve", "--undone", "--reason", "put back myself"
    )
    assert (settlement["verdict"], settlement["act"]) == ("applied", "settle")
    assert open_shop.json("task", "show", task)["state"] == "undone"


@pytest.mark.parametrize("flag", ["--not-done", "--failed"])
def test_a_step_that_did_not_happen_is_settled_under_either_name(open_shop: Shop, flag: str) -> None:
    """Python and the states of a step say failed; both flags mean it, and only one may be given with another."""
    words = ("task", "settle", submit(open_shop, "stuck"), "--step", "reserve", "--reason", "r", flag)
    (settlement,) = open_shop.json(*words, code=4)
    assert "it can be settled as undone" in settlement["outcome"]
    assert open_shop.call(*words, "--undone").exit_code == 2


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        (("--step", "reserve", "--reason", "r"), 2, "one of --done VALUE, --not-done, --undone"),
        (("--step", "reserve", "--reason", "r", "--undone", "--not-done"), 2, "one of --done VALUE"),
        (("--step", "reserve", "--undone"), 2, "--reason"),
        (("--step", "reserve", "--reason", "r", "--done", "hold-1"), 2, "--done '\"hold-1\"'"),
        (("--step", "resreve", "--reason", "r", "--undone"), 3, "it has reserve, charge, print_receipt"),
        (("--step", "charge", "--reason", "r", "--undone"), 4, "is not allowed"),
    ],
)
def test_settle_refuses_what_it_cannot_mean(
    open_shop: Shop, words: tuple[str, ...], code: int, hint: str
) -> None:
    """Which step, how it ended and how one knows must be said; a value is JSON."""
    task = open_shop.json("task", "list", "--state", "error", "--limit", "1")
    number = task[0]["id"] if task else submit(open_shop, "stuck")
    result = open_shop.call("task", "settle", number, *words)
    assert result.exit_code == code, result.output
    assert hint in result.stderr


def test_the_preview_lists_the_undo_in_order_and_does_nothing(open_shop: Shop) -> None:
    """Last first; what is harmless stays; the task is as it was."""
    task = submit(open_shop, "good")
    table = open_shop.done("task", "undo", "--preview", task).splitlines()
    assert [line.split()[1] for line in table[1:]] == ["print_receipt", "charge", "reserve"]
    (preview,) = open_shop.json("task", "undo", "--preview", task)
    assert [(step["position"], step["name"], step["undo"]) for step in preview["steps"]] == [
        (1, "print_receipt", "nothing to undo: stays"),
        (2, "charge", "undone"),
        (3, "reserve", "undone"),
    ]
    assert open_shop.json("task", "show", task)["state"] == "processed"


def test_all_acts_are_sent_before_the_end_of_one_is_waited_for(
    open_shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the first may need the act on the second, as in a lane."""
    tasks = [submit(open_shop, "good"), submit(open_shop, "fine")]
    events = list[str]()
    for name in ("undo", "wait"):
        method = getattr(TaskHandle, name)

        async def noted(*args: Any, _name: str = name, _method: Any = method, **options: Any) -> Any:
            if _name == "wait":
                events.append(_name)
            result = await _method(*args, **options)
            if _name != "wait":
                events.append(_name)
            return result

        monkeypatch.setattr(TaskHandle, name, noted)
    outcomes = open_shop.json("task", "undo", *tasks, "--wait")
    assert [(each["task"], each["state"]) for each in outcomes] == [(task, "undone") for task in tasks]
    assert events == ["undo", "undo", "wait", "wait"]


def test_without_a_scheduler_an_act_waits_and_says_so(shop: Shop) -> None:
    """Exit 7: the act stands and will be decided."""
    task = shop.done("task", "submit", "kiosk:buy", '{"id": "o"}').strip()
    result = shop.call("task", "cancel", task, "--timeout", "300ms")
    assert result.exit_code == 7
    assert "it will be decided when one runs" in result.stderr


def test_a_deadline_is_moved_and_one_that_does_not_count_is_not(open_shop: Shop) -> None:
    """Of a task that ended, or is unknown, it is refused with the reason; a time must be given."""
    task = submit(open_shop, "good")
    refusal = open_shop.call("task", "extend", task, "--by", "1h")
    assert (refusal.exit_code, refusal.stdout) == (4, "")
    assert "processed" in refusal.stderr
    assert open_shop.call("task", "extend", task).exit_code == 2
