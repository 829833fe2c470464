"""Recipes for waits, delayed starts, schedules, a pause and a search, with real processes."""

import re
import shlex
from pathlib import Path

import pytest

from tests.docs.test_operate_howto import typed
from tests.docs.test_recipes_page import FOLDER, MODULE
from tests.doors.conftest import Shop


def block(page: str | Path, kind: str) -> str:
    """Return the one block of a kind on a page: a recipe's, or that of a path."""
    text = (FOLDER / f"{page}.md" if isinstance(page, str) else page).read_text(encoding="utf-8")
    (body,) = re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return str(body)


def written(page: str, folder: Path) -> None:
    """Write a page's module to a folder."""
    ((name, code),) = MODULE.findall((FOLDER / f"{page}.md").read_text(encoding="utf-8"))
    (folder / f"{name}.py").write_text(code, encoding="utf-8")


def started(shop: Shop, page: str) -> None:
    """Type the lines with which a page begins: the first sets up the store, the second runs the app."""
    setup, run = block(page, "sh start").splitlines()
    typed(shop, setup)
    shop.serve(*shlex.split(run)[1:])


@pytest.fixture
def office(shop: Shop) -> Shop:
    """A folder with the modules of four recipes."""
    for page in (
        "ask-a-person",
        "wait-for-a-moment",
        "start-later",
        "run-on-a-schedule",
    ):
        written(page, shop.folder)
    return shop


def test_a_person_is_asked_and_answers_by_a_signal(office: Shop) -> None:
    """Both wait without a slot; the list finds them, and the command ends one wait."""
    started(office, "ask-a-person")
    *submissions, listing, sending = block("ask-a-person", "sh asking").splitlines()
    typed(office, "\n".join(submissions))
    while len(office.json("task", "list", "--filter", "waits:approval")) < 2:
        pass
    output, _ = typed(office, f"{listing}\n{sending}")
    assert re.search(r"waits for approval, a signal, (7d|6d23h\S*) left", output)
    (view,) = office.json("agents")["nodes"]
    assert view["agents"][0]["used"] == 0, "a task that waits takes no slot"
    (rome,) = office.json("task", "list", "--key", "rome")
    office.done("task", "watch", rome["id"], "--timeout", "60s")
    assert office.json("task", "show", rome["id"])["result"] == "paid rome, approved by ann"
    (oslo,) = office.json("task", "list", "--filter", "waits:approval")
    detail = office.json("task", "show", oslo["id"])
    assert [(wait["step"], wait["for"], wait["name"]) for wait in detail["waits"]] == [
        ("approval", "signal", "approval")
    ]
    assert re.search(
        r"waits for approval, a signal, until \S+Z, (7d|6d23h\S*) left",
        office.done("task", "show", oslo["id"]),
    )
    answering = block("ask-a-person", "sh answering")
    for _ in range(2):  # repeated, it signals once
        typed(office, answering)
    office.done("task", "watch", oslo["id"], "--timeout", "60s")
    detail = office.json("task", "show", oslo["id"])
    assert detail["result"] == "paid oslo, approved by ann"
    assert [signal["id"] for signal in detail["signals"]] == [f"night-1/{oslo['id']}"]


def test_an_answer_after_the_timeout_is_stated_and_the_task_resubmitted(office: Shop) -> None:
    """``settle`` alone leaves the task in error, and the page says so."""
    module = office.folder / "approvals.py"
    text = module.read_text(encoding="utf-8")
    changes = {
        'complete_within="14d"': 'complete_within="14d", on_failure="hold"',
        'timeout="7d"': 'timeout="1s"',
    }
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    module.write_text(text, encoding="utf-8")
    started(office, "ask-a-person")
    office.done("task", "submit", "approvals:travel", "rome", "--key", "rome")
    assert office.call("task", "watch", "rome", "--timeout", "60s").exit_code == 6
    settle, resubmit = block("ask-a-person", "sh settling").splitlines()
    output, _ = typed(office, settle)
    assert "the task is still in error: resubmit it to continue" in output
    assert office.json("task", "show", "rome")["state"] == "error"
    typed(office, resubmit)
    assert office.json("task", "show", "rome")["result"] == "paid rome, approved by ann"


def test_a_workflow_sleeps_until_its_moment_or_until_it_is_woken(office: Shop) -> None:
    """One pays after both sleeps, one fails by itself, one is woken; all of it in real processes."""
    started(office, "wait-for-a-moment")
    assert (
        office.done("task", "submit", "moments:pay_later", '"rome"', "0.5", "--wait").strip() == '"paid rome"'
    )
    office.call("task", "submit", "moments:pay_later", '"nowhere"', "0", "--key", "nowhere-1", "--wait")
    (task,) = office.json("task", "list", "--key", "nowhere-1")
    assert (task["state"], task["cause"]) == ("undone", "nobody wants to go there")
    typed(office, block("wait-for-a-moment", "sh wake"))
    (task,) = office.json("task", "list", "--key", "rome-1")
    while "sleep" not in (page := office.done("task", "show", task["id"])) or "left" not in page:
        pass
    assert re.search(r"sleep +\(sleep\) +ready +until \S+Z, (6d23h59m\S*|7d) left", page)
    assert re.search(r"sleeps +until \S+Z, ", page)
    assert "sleep ends now" in office.done("task", "wake", task["id"], "--step", "sleep")
    office.done("task", "watch", task["id"], "--timeout", "60s")


def test_a_task_begins_when_its_delay_is_over_or_never(office: Shop) -> None:
    """One is cancelled while it sleeps, the other ends once its delay is over, one is woken; all of it in real processes."""
    started(office, "start-later")
    typed(office, block("start-later", "sh acts"))
    (task,) = office.json("task", "list", "--key", "o-2")
    assert (task["state"], task["starts"]) == ("undone", None)
    output, _ = typed(office, block("start-later", "sh delayed"))
    assert re.search(r"sleeping .* starts at \d", output)
    (task,) = office.json("task", "list", "--key", "o-1")
    office.done("task", "watch", task["id"], "--timeout", "60s")
    later = office.done("task", "submit", "reminders:remind", "o-3", "--delay", "9d").strip()
    gap = office.done(
        "task", "submit", "reminders:remind", "o-4", "--at", "2035-03-25T02:30[Europe/Berlin]"
    ).strip()
    assert office.json("task", "show", gap)["starts"].startswith("2035-03-25T01:30:00"), "03:30 in Berlin"
    page = office.done("task", "show", later)
    assert re.search(r"sleeps +starts at \S+Z, (8d23h59m\d*s?|9d) left", page)
    assert office.json("task", "show", later)["starts"] is not None
    assert "it begins now" in office.done("task", "wake", later, "--reason", "now")
    office.done("task", "watch", later, "--timeout", "60s")


def test_a_schedule_is_written_paused_fired_by_hand_and_caught_up(office: Shop) -> None:
    """What the recipe and the page for operators type, and the tasks that come of it, in real processes."""
    started(office, "run-on-a-schedule")
    output, _ = typed(office, block("run-on-a-schedule", "sh acts"))
    assert "reports/morning" in output
    page = FOLDER.parents[1] / "operate/schedules.md"
    output, notes = typed(office, block(page, "sh acts"))
    assert "would be new" in output
    assert "2 of 2 moments would get a task" in notes
    assert "2 new of 2" in notes
    tasks = office.json("task", "list", "--attribute", "makegood.schedule=nightly")
    keys = {task["key"] for task in tasks}
    assert {f"nightly@2025-11-0{day}T02:30[Europe/Berlin]" for day in (1, 2)} < keys
    assert len(keys) == len(tasks) == 3
    for task in tasks:
        office.done("task", "watch", task["id"], "--timeout", "60s")
    shape = office.json("schedule", "show", "nightly")
    assert (shape["firings"], shape["paused"], len(shape["upcoming"])) == (3, None, 5)
    output, notes = typed(office, block(page, "sh clocks"))
    assert "gap: 2026-03-29 02:30 does not exist" in output
    output, _ = typed(office, block(page, "sh zones"))
    assert "zones" in output
    office.done("schedule", "delete", "nightly", "--reason", "enough")
    assert [each["name"] for each in office.json("schedule", "list")] == ["morning"]


def test_an_agent_that_is_stopped_is_paused(office: Shop) -> None:
    """Its requests wait and fail nothing; when it is started again they are done."""
    office.serve("scheduler")
    agent = office.serve("agent", "reminders:shop", "desk")
    office.stop(agent)
    task = office.done("task", "submit", "reminders:remind", "rome").strip()
    while not office.json("agents")["waiting"].get("reminders/desk"):
        pass
    assert office.json("task", "show", task)["state"] == "processing"
    office.serve("agent", "reminders:shop", "desk")
    office.done("task", "watch", task, "--timeout", "60s")
    detail = office.json("task", "show", task)
    assert (detail["state"], [step["failures"] for step in detail["steps"]]) == ("processed", [0])


def test_a_task_is_found_by_its_key_and_by_its_correlation_id(office: Shop) -> None:
    """By options, and by the same words in a filter."""
    office.done("task", "submit", "reminders:remind", "rome", "--key", "rome-1", "--correlation-id", "c-1")
    (task_view,) = office.json("task", "list", "--key", "rome-1")
    assert office.json("task", "show", task_view["id"])["correlation_id"] == "c-1"
    for words in (("--correlation-id", "c-1"), ("--filter", "correlation:c-1")):
        assert [view["id"] for view in office.json("task", "list", *words)] == [task_view["id"]]
