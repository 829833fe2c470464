"""What the command line says of a task that needs somebody: what is wrong, and the commands that the rules allow now."""

import re
import shlex
import sqlite3

import pytest

from makegood.base import ids
from makegood.cli.context import Cli
from makegood.cli.next_commands import lines, shape
from makegood.client.remedies import remedies
from makegood.model.plan import StepPlan
from makegood.model.policy import Policy
from makegood.store.views import TaskDetail
from makegood.story.trouble import MOST, ending, trouble
from tests.doors.conftest import Shop
from tests.doors.test_acts import submit
from tests.doors.test_watch import detail, step

REMEDY = "if it fails again, undo the effect by hand, and settle the step"


def incomplete(**more: object) -> TaskDetail:
    """A task whose undo of "reserve" was refused for good."""
    return detail(
        step(0, "reserve", "undo_failed", error="the room is locked"),
        step(1, "charge", "failed", error="card refused"),
        **{"state": "error", "goal": "undo", "cause": "charge: card refused", **more},
    )


def doubtful(**more: object) -> TaskDetail:
    """A task that is held, with a step of which nobody knows whether it happened."""
    return detail(
        step(0, "reserve", "done"),
        step(1, "charge[0]", "in_doubt", doubt=True, error="no answer by its deadline"),
        **{"state": "error", "goal": "hold", "cause": "charge[0]: no answer by its deadline", **more},
    )


def words(task_detail: TaskDetail) -> list[str]:
    """Return the commands that are named, without the task and without the reason."""
    task = ids.show(task_detail.task.id)
    return [
        " ".join(word for word in remedy.words[1:] if word not in (task, "--reason", "HOW YOU KNOW"))
        for remedy in remedies(task_detail)
    ]


@pytest.mark.parametrize(
    ("task_detail", "commands"),
    [
        (incomplete(), ["undo", "settle --step reserve --undone"]),
        (
            doubtful(),
            [
                "undo",
                "resubmit",
                "settle --step charge[0] --done VALUE",
                "settle --step charge[0] --not-done",
            ],
        ),
        (doubtful(state="processing", goal="forward"), ["cancel", "watch"]),
        (incomplete(state="undoing"), ["watch"]),
        (detail(step(0, "reserve", "undoing", failures=2), state="undoing", goal="undo"), ["watch"]),
        (detail(step(0, "reserve", "done"), state="error", goal="hold"), ["undo", "resubmit"]),
        (detail(step(0, "reserve", "running"), state="processing"), []),
        (detail(step(0, "reserve", "done"), state="processed"), []),
        (detail(step(0, "reserve", "undone"), state="undone"), []),
    ],
)
def test_only_what_the_rules_allow_is_named_and_nothing_of_a_task_that_goes_on_as_it_should(
    task_detail: TaskDetail, commands: list[str]
) -> None:
    assert words(task_detail) == commands


def test_what_must_be_settled_first_comes_first() -> None:
    """Nobody can tell whether it happened, and it must not be repeated: an undo would be stuck there again."""
    plan = StepPlan(0, name="charge", agent="stock", action="charge", policy=Policy(within=10.0, never=True))
    task_detail = detail(step(0, "charge", "in_doubt", doubt=True, plan=plan), state="error", goal="hold")
    assert words(task_detail) == [
        "settle --step charge --done VALUE",
        "settle --step charge --not-done",
        "undo",
    ]
    assert remedies(task_detail)[-1].means == "undo what is left, once charge is settled"


def test_an_undo_says_that_it_finds_out_again_about_a_step_in_doubt() -> None:
    """The words "undo what is left" alone do not say that makegood asks the service once more."""
    task_detail = detail(
        step(0, "reserve", "done"), step(1, "charge", "in_doubt", doubt=True), state="error", goal="undo"
    )
    assert remedies(task_detail)[0].means == "find out again whether charge happened, then undo what is left"
    certain = detail(step(0, "reserve", "done"), state="error", goal="undo")
    assert remedies(certain)[0].means == "undo what is left"


def test_a_task_that_does_not_read_has_no_remedy() -> None:
    """Nothing can decide about it; why not is shown beside it."""
    task_detail = TaskDetail(incomplete().task, [], unreadable=("what it was given does not read",))
    assert (remedies(task_detail), lines(Cli(), task_detail)) == ([], [])


def test_commands_are_spelt_out_for_a_shell_and_for_the_store_that_was_named() -> None:
    """They can be copied: quoted where a shell would read something else, without a password."""
    cli = Cli()
    task = ids.show(doubtful().task.id)
    assert lines(cli, doubtful())[3].split("  #")[0].strip() == (
        f"makegood task settle {task} --step 'charge[0]' --done VALUE --reason 'HOW YOU KNOW'"
    )
    cli.flags["store"] = "postgresql://me:secret@db/shop"
    (first, *_) = shape(cli, incomplete())["next"]
    assert shlex.split(first["command"]) == [
        "makegood", "task", "undo", task, "--store", "postgresql://me:•••@db/shop",
    ]  # fmt: skip


def test_of_many_steps_some_are_named_and_the_others_counted() -> None:
    """A task of a thousand items does not fill the screen; in JSON all are there."""
    many = detail(*(step(n, f"s{n}", "undo_failed") for n in range(20)), state="error", goal="undo")
    assert lines(Cli(), many)[-1] == "  ... and settle 15 more steps, such as s5"
    assert len(lines(Cli(), many)) == MOST + 3
    assert trouble(many)[-1] == "and 15 more"
    assert len(shape(Cli(), many)["next"]) == 21


def test_the_ending_says_which_undo_failed_why_and_what_stands() -> None:
    """In one sentence, and nothing twice."""
    task = ids.show(incomplete().task.id)
    assert ending(incomplete()) == (
        f"task {task} is in error: charge: card refused; the undo of reserve failed: the room is locked; "
        "in place or in doubt: reserve"
    )
    assert ending(doubtful()).endswith(
        "charge[0]: no answer by its deadline; nobody knows whether charge[0] happened; "
        "in place or in doubt: reserve, charge[0]"
    )
    task_detail = detail(
        step(0, "reserve", "undoing", failures=2, error="locked"), state="undoing", goal="undo", cause="no"
    )
    assert "is undoing: no; the undo of reserve has failed 2 times: locked" in ending(task_detail)
    assert shape(Cli(), task_detail)["stuck"] == [{"step": "reserve", "state": "undoing", "error": "locked"}]


# -- as commands -------------------------------------------------------------------------------------------------------


def test_a_stuck_task_is_shown_with_what_can_be_done_and_that_can_be_typed(open_shop: Shop) -> None:
    """The lines at the end of ``task show``, each a command for this task; the last one ends it."""
    task = submit(open_shop, "stuck")
    output = open_shop.done("task", "show", task).splitlines()
    at = output.index("what can be done:")
    commands = [shlex.split(line, comments=True) for line in output[at + 1 :]]
    assert [command[:4] for command in commands] == [
        ["makegood", "task", "undo", task],
        ["makegood", "task", "settle", task],
    ]
    document = open_shop.json("task", "show", task)
    assert [shlex.split(one["command"]) for one in document["next"]] == commands
    assert document["stuck"] == [
        {"step": "reserve", "state": "undo_failed", "error": "the stock room is locked"}
    ]
    assert open_shop.done(*commands[1][1:]).startswith(f"{task}  settle applied")
    healthy = open_shop.json("task", "show", submit(open_shop, "good"))
    assert (healthy["stuck"], healthy["next"]) == ([], [])
    assert "what can be done" not in open_shop.done("task", "show", task)


def test_an_undo_that_fails_again_says_why_and_what_can_be_done(open_shop: Shop) -> None:
    """Exit 6; data on stdout as ever, the reason on stderr; several tasks and a filter tell it as well."""
    task, other = submit(open_shop, "stuck"), submit(open_shop, "stuck")
    again = open_shop.call("task", "undo", task, "--wait")
    assert again.exit_code == 6
    assert again.stdout == f"{task}  undo applied: the undo of reserve is tried again; {REMEDY} (now error)\n"
    sentence, heading, first, *_ = again.stderr.splitlines()
    assert sentence == (
        f"makegood: task {task} is in error: charge: card refused; the undo of reserve failed: the stock room is locked; "
        "in place or in doubt: reserve"
    )
    assert heading == "what can be done:"
    assert first.startswith(f"  makegood task undo {task} ")
    (one, two) = open_shop.json("task", "undo", task, other, "--wait", code=6)
    for document in (one, two):
        assert (document["standing"], document["code"]) == (["reserve"], 6)
        assert [remedy["act"] for remedy in document["next"]] == ["undo", "settle"]
    many = open_shop.call("task", "cancel", "--state", "error", "--yes", "--wait")
    assert many.exit_code == 6
    assert (
        "(now error): charge: card refused; the undo of reserve failed: the stock room is locked"
        in many.stdout
    )
    assert "`makegood task show ID`" in many.stderr


def test_an_undo_that_goes_on_when_the_time_to_wait_is_over_is_told_with_both(open_shop: Shop) -> None:
    """Exit 7: that it was begun, and how far it is."""
    slow = open_shop.done("task", "submit", "kiosk:buy", '{"id": "s", "card": "slow"}').strip()
    assert open_shop.call("task", "watch", slow, "--timeout", "300ms").exit_code == 7
    late = open_shop.call("task", "cancel", slow, "--wait", "--timeout", "5s")
    assert late.exit_code == 7
    assert late.stdout == f"{slow}  cancel applied: what was done is being undone (now undoing)\n"
    assert "did not end within 5 s" in late.stderr
    assert f"task {slow} is undoing: " in late.stderr


def test_who_settles_one_of_several_is_told_what_can_be_done_about_the_rest(open_shop: Shop) -> None:
    """As a task that is still in error goes on by nobody's doing but the operator's."""
    task = submit(open_shop, "stuck")
    noop = open_shop.call("task", "settle", task, "--step", "charge", "--not-done", "--reason", "r")
    assert noop.exit_code == 0
    assert "what can be done:" in noop.stderr


@pytest.mark.parametrize(("card", "count"), [("declined", 0), ("stuck", 0), ("stuck", 3)])
def test_the_failures_of_a_task_are_one_number_wherever_they_are_shown(
    open_shop: Shop, card: str, count: int
) -> None:
    """What the engine counts: attempts without an answer that settles anything. What was refused for good is none."""
    task = submit(open_shop, card)
    with sqlite3.connect(open_shop.folder / "kiosk.db") as raw:
        raw.execute("update makegood_task set failure_count = ? where id = ?", (count, ids.parse(task)))
    raw.close()
    heads, row, *_ = open_shop.done("task", "list", "--limit", "1").splitlines()
    in_list = row[heads.index("KEY") + 3 : heads.index("CAUSE")].strip()
    match = re.search(r"^unanswered +(\d+)$", open_shop.done("task", "show", task), re.MULTILINE)
    assert in_list == (str(count) if count else "-")
    assert (int(match[1]) if match else 0) == count
    assert open_shop.json("task", "show", task)["failure_count"] == count
    assert open_shop.json("task", "list", "--limit", "1")[0]["failure_count"] == count


def test_the_list_tells_what_failed_of_a_task_in_error(open_shop: Shop) -> None:
    """Beside the cause, whose undo is stuck and why."""
    task = submit(open_shop, "stuck")
    _, row, *_ = open_shop.done("task", "list", "--limit", "1").splitlines()
    assert row.startswith(task)
    assert row.endswith("charge: card refused; the undo of reserve failed: the stock room is locked")


def test_alerts_say_where_to_look_for_what_can_be_done(open_shop: Shop) -> None:
    """On stderr; an id of no task is told as everywhere, by the audit too."""
    task = submit(open_shop, "stuck")
    assert "`makegood task show ID`" in open_shop.call("alerts", "--task", task).stderr
    for command in ("alerts", "audit"):
        missing = open_shop.call(command, "--task", "0000000000000")
        assert (missing.exit_code, missing.stdout) == (3, ""), command
        assert "there is no task 0000000000000" in missing.stderr


def test_an_empty_store_says_how_to_begin(shop: Shop) -> None:
    """Unlike a filter that nothing matches."""
    assert "no tasks yet: `makegood task submit`" in shop.call("task", "list").stderr
    assert shop.call("task", "list", "--state", "error").stderr == "no task matches\n"
