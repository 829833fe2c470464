"""Submitting tasks and looking at them, on a store where every role runs in another process."""

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys

import pytest

from makegood.base import ids
from makegood.base.service_keys import KeyedRequest, in_form
from makegood.cli.commands import task as commands
from tests.doors.conftest import BARE, Shop
from tests.waiting import moment

ORDER = '{"id": "o-1", "cents": 250}'


def submit(shop: Shop, order: str = ORDER, *more: str) -> str:
    """Submit an order, wait for its end whatever it is, return its id."""
    submission = shop.call("task", "submit", "kiosk:buy", order, "--wait", "--timeout", "2m", "--json", *more)
    assert submission.exit_code in (0, 5, 6), submission.output
    task: str = json.loads(submission.stdout)["id"]
    return task


def test_submit_writes_the_id_alone(open_shop: Shop) -> None:
    """``ID=$(makegood task submit ...)`` works; the result is there with --wait."""
    task = open_shop.done("task", "submit", "kiosk:buy", ORDER).strip()
    assert ids.show(ids.parse(task)) == task
    assert open_shop.done("task", "submit", "kiosk:buy", ORDER, "--wait") == '"paid-250-for-hold-o-1"\n'


def test_a_misspelt_field_of_an_input_is_refused_by_name(open_shop: Shop) -> None:
    """It would be dropped without a word, and the order charged without it: nothing is submitted."""
    before = open_shop.json("task", "list")
    for words in (
        ['{"id": "o-1", "crad": "declined"}'],
        ["--named", '{"order": {"id": "o-1", "crad": "declined"}}'],
    ):
        refusal = open_shop.call("task", "submit", "kiosk:buy", *words)
        assert (refusal.exit_code, refusal.stdout) == (2, ""), refusal.output
        assert "the input order: unknown field 'crad'; did you mean 'card'?" in refusal.stderr
    assert open_shop.json("task", "list") == before


def test_a_task_is_found_by_a_key_of_its_steps_in_whichever_form(open_shop: Shop) -> None:
    task = submit(open_shop)
    steps = open_shop.json("task", "show", task)["steps"]
    store_id = steps[0]["key"].partition("-")[0]
    for step in steps:
        request = KeyedRequest(ids.parse(task), step["idx"], 1, undo=False)
        forms = [in_form(store_id, request, form) for form in ("uuid", "uuid4", "quoted", "length=28")]
        for key in (step["key"], *forms):
            assert open_shop.json("task", "show", key)["id"] == task
            assert [task_view["id"] for task_view in open_shop.json("task", "list", "--filter", key)] == [
                task
            ]
    request = KeyedRequest(ids.parse(task), 0, 2, undo=True)
    for form in ("uuid", "length=28"):  # of a round and a direction that are not shown otherwise
        key = in_form(store_id, request, form)
        assert f"key           {key}  {store_id}-{task}/reserve/2/undo" in open_shop.done("task", "show", key)
    foreign = open_shop.call("task", "show", "6f9619ff-8b86-4d01-b42d-00cf4fc964ff")
    assert foreign.exit_code == 3
    assert "no task has the id or the key '6f9619ff" in foreign.stderr


def test_at_a_terminal_a_step_has_one_line_and_in_a_pipe_its_whole_error(open_shop: Shop) -> None:
    """40 columns; what is not drawn (facts, what is asked for next) is whole in both."""
    task = submit(open_shop, '{"id": "o-1", "card": "rude"}')
    whole = open_shop.done("task", "show", task)
    assert len(re.findall(r"knab.u0007$", whole, re.MULTILINE)) == 3  # head, step, cause
    for command in ("show", "history"):
        output = open_shop.call("task", command, task, "--color", "always", COLUMNS="40").stdout
        lines = re.sub(r"\x1b\[[\d;]*m", "", output).splitlines()
        upper = lines[: next((n for n, line in enumerate(lines) if line.startswith("inputs")), None)]
        assert max(map(len, upper)) == 40
        assert any(line.endswith("…") for line in upper)


def test_inputs_come_from_arguments_files_stdin_and_by_name(open_shop: Shop) -> None:
    """One INPUT per parameter, plain text for a text, @FILE, - and --named; each is the same submission."""
    (open_shop.folder / "order.json").write_text(ORDER, encoding="utf-8")
    both = json.dumps({"note": "for you", "order": json.loads(ORDER)})
    for words, stdin in (
        ((ORDER, "for you", "--key", "same"), None),
        ((ORDER, '"for you"', "--key", "same"), None),
        (("@order.json", "for you", "--key", "same"), None),
        (("-", "for you", "--key", "same"), ORDER),
        (("--named", both, "--key", "same"), None),
    ):
        open_shop.done("task", "submit", "kiosk:buy", *words, stdin=stdin)
    (task_view,) = open_shop.json("task", "list", "--key", "same")
    detail = open_shop.json("task", "show", task_view["id"], "--uncovered")
    assert detail["inputs"] == [{"id": "o-1", "cents": 250, "card": "good"}, "for you"]


@pytest.mark.parametrize(
    ("words", "pattern"),
    [
        ((), r"needs order as well"),
        ((ORDER, "x", "3"), r"takes 2 inputs, not 3"),
        (("{",), r"the input order"),
        (('{"id": 3}',), r"the input order"),
        (("--named", "[1]"), r"not a JSON object"),
        (("--named", '{"ordre": 1}'), r"'ordre' is not a parameter of buy"),
        (("--named", ORDER, ORDER), r"--named takes one INPUT"),
        (("@nowhere.json",), r"@nowhere.json: .*No such file"),
    ],
)
def test_inputs_that_do_not_fit_are_usage_errors(
    open_shop: Shop, words: tuple[str, ...], pattern: str
) -> None:
    """Exit 2, and the message says which input and why."""
    result = open_shop.call("task", "submit", "kiosk:buy", *words)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert re.search(pattern, result.stderr), result.stderr


def test_what_the_workflow_function_raises_is_told_with_its_place(open_shop: Shop) -> None:
    """The user's own error: exit 1, where it arose, and that nothing was submitted."""
    result = open_shop.call("task", "submit", "kiosk:buy", '{"id": "x", "cents": -1}')
    assert result.exit_code == 1
    assert re.search(r"kiosk\.buy raised ValueError: cents must.*kiosk\.py, line \d+", result.stderr), (
        result.stderr
    )


def test_the_same_key_is_the_same_task_and_other_inputs_are_a_conflict(open_shop: Shop) -> None:
    """``created`` tells; the conflict names the task that has the key."""
    first = open_shop.json("task", "submit", "kiosk:buy", ORDER, "--key", "k-1")
    again = open_shop.json("task", "submit", "kiosk:buy", ORDER, "--key", "k-1")
    assert (first["created"], again["created"], again["id"]) == (True, False, first["id"])
    other = open_shop.call("task", "submit", "kiosk:buy", '{"id": "o-2"}', "--key", "k-1")
    assert other.exit_code == 4
    assert first["id"] in other.stderr
    assert "Traceback" not in other.stderr


def test_waiting_tells_the_outcome_by_exit_code_and_by_document(open_shop: Shop) -> None:
    """0 processed with its result, 5 undone with what was undone, 6 in error with what stands."""
    good = open_shop.json("task", "submit", "kiosk:buy", ORDER, "--wait")
    assert (good["state"], good["result"]) == ("processed", "paid-250-for-hold-o-1")
    document = open_shop.json(
        "task", "submit", "kiosk:buy", '{"id": "u", "card": "declined"}', "--wait", code=5
    )
    assert (document["state"], document["undone"], document["standing"]) == ("undone", ["reserve"], [])
    assert "card refused" in document["cause"]
    error = open_shop.json("task", "submit", "kiosk:buy", '{"id": "e", "card": "stuck"}', "--wait", code=6)
    assert (error["state"], error["standing"]) == ("error", ["reserve"])


def test_waiting_has_an_end_and_the_task_goes_on(open_shop: Shop) -> None:
    """Exit 7; the document still says which task it was."""
    slow = '{"id": "s", "card": "slow"}'
    late = open_shop.json("task", "submit", "kiosk:buy", slow, "--wait", "--timeout", "300ms", code=7)
    assert late["state"] in ("pending", "processing")
    plain = open_shop.call("task", "watch", late["id"], "--timeout", "200ms")
    assert plain.exit_code == 7
    assert "the task continues" in plain.stderr
    assert open_shop.call("task", "cancel", late["id"], "--timeout", "2m").exit_code == 0


def test_the_ending_of_a_task_is_told_in_one_sentence(open_shop: Shop) -> None:
    """For people: what happened, and what to do."""
    result = open_shop.call("task", "submit", "kiosk:buy", '{"id": "u", "card": "declined"}', "--wait")
    assert (result.exit_code, result.stdout) == (5, "")
    assert "was undone: " in result.stderr
    error = open_shop.call("task", "submit", "kiosk:buy", '{"id": "e", "card": "stuck"}', "--wait")
    assert error.exit_code == 6
    assert (
        "the undo of reserve failed: the stock room is locked; in place or in doubt: reserve\n"
        in error.stderr
    )
    assert "\nwhat can be done:\n  makegood task undo " in error.stderr


def test_list_filters_and_pages(open_shop: Shop) -> None:
    """By state, key, workflow and app; a page goes on where the last one ended."""
    tasks = [submit(open_shop, json.dumps({"id": f"page-{n}"}), "--key", f"page-{n}") for n in range(3)]
    newest = open_shop.json("task", "list", "--limit", "2", "--state", "processed")
    assert [view["id"] for view in newest] == [tasks[2], tasks[1]]
    older = open_shop.json("task", "list", "--limit", "1", "--before", tasks[1], "--state", "processed")
    assert [view["id"] for view in older] == [tasks[0]]
    assert open_shop.json("task", "list", "--app", "nobody", code=3) == []
    assert [
        view["key"] for view in open_shop.json("task", "list", "--key", "page-1", "--workflow", "buy")
    ] == ["page-1"]
    table = open_shop.done("task", "list", "--limit", "1").splitlines()
    assert table[0].split() == [
        "ID",
        "WORKFLOW",
        "STATE",
        "STEPS",
        "CREATED",
        "TOOK",
        "KEY",
        "UNANSWERED",
        "CAUSE",
    ]
    assert table[1].split()[:4] == [tasks[2], "kiosk.buy", "processed", "3/3"]


def test_show_draws_the_ladder_and_what_else_is_known(open_shop: Shop) -> None:
    """Rungs, inputs, cause and alerts; JSON has all of it by name."""
    task = submit(open_shop, '{"id": "e", "card": "stuck"}', "--correlation-id", "web-7", "--priority", "3")
    text = open_shop.done("task", "show", task)
    assert f"kiosk.buy {task}  error" in text
    assert "reserve        stock  undo_failed" in text
    assert "the stock room is locked" in text
    for name in ("inputs", "cause", "correlation   web-7", "priority      3", "alert"):
        assert f"\n{name}" in text
    detail = open_shop.json("task", "show", task)
    states = {step["name"]: step["state"] for step in detail["steps"]}
    assert states == {"reserve": "undo_failed", "charge": "failed", "print_receipt": "waiting"}
    assert {alert["kind"] for alert in detail["alerts"] if alert["ended"] is None} == {"undo_incomplete"}, (
        "one a task"
    )


def test_a_task_is_shown_by_its_own_key(open_shop: Shop) -> None:
    """Operators have keys; one that several workflows have names them."""
    task = submit(open_shop, ORDER, "--key", "e-17")
    for command in ("show", "history", "watch"):
        assert open_shop.done("task", command, "e-17") == open_shop.done("task", command, task)
    assert open_shop.call("task", "show", "e-18").exit_code == 3


def test_a_list_shows_how_far_tasks_are_and_what_they_wait_for(open_shop: Shop) -> None:
    """The first line of what its service said; nothing of it is a failure."""
    task = open_shop.done("task", "submit", "kiosk:buy", '{"id": "w", "card": "later"}').strip()
    while "nobody" not in (text := open_shop.done("task", "list", "--limit", "1")):
        asyncio.run(moment())
    line = text.splitlines()[1]
    assert line.split()[:4] == [task, "kiosk.buy", "sleeping", "1/3"]
    assert line.endswith("  nobody has answered yet")


def test_history_tells_every_move(open_shop: Shop) -> None:
    """From pending to the end; followed, it ends with the task, one object per line."""
    task = submit(open_shop)
    events = open_shop.json("task", "history", task)
    moves = [(move["step"], move["to"]) for event in events for move in event["moves"]]
    assert (
        moves.index((None, "processing")) < moves.index(("reserve", "done")) < moves.index(("charge", "done"))
    )
    assert moves[-1] == (None, "processed")
    lines = open_shop.done("task", "history", task, "--follow", "--json").splitlines()
    assert [json.loads(line) for line in lines] == events
    text = open_shop.done("task", "history", task)
    assert "task" in text
    assert "processing → processed" in text


def test_watch_in_a_pipe_is_lines_and_ends_with_the_outcome(open_shop: Shop) -> None:
    """Moves as they come, then the result; with --json one object per line, the last one the whole task."""
    task = submit(open_shop)
    text = open_shop.done("task", "watch", task)
    assert "running → done" in text
    assert text.endswith('result  "paid-250-for-hold-o-1"\n')
    objects = [json.loads(line) for line in open_shop.done("task", "watch", task, "--json").splitlines()]
    assert [o["event"] for o in objects][-1] == "end"
    assert {o["event"] for o in objects[:-1]} <= {"moves", "note"}
    assert objects[-1]["state"] == "processed"
    undone_task = submit(open_shop, '{"id": "u", "card": "declined"}')
    assert open_shop.call("task", "watch", undone_task).exit_code == 5
    error = submit(open_shop, '{"id": "e", "card": "stuck"}')
    assert open_shop.call("task", "watch", error, "--json").exit_code == 6


def test_watch_draws_a_ladder_for_people(open_shop: Shop) -> None:
    """With --color always it draws even into a pipe: rungs in colour, the undo in its own."""
    task = submit(open_shop, '{"id": "u", "card": "declined"}')
    result = open_shop.call("task", "watch", task, "--color", "always")
    assert result.exit_code == 5
    assert "\x1b[35m  ↩ \x1b[0m" in result.stdout
    assert "card refused" in result.stdout


def test_watch_at_a_real_terminal(open_shop: Shop) -> None:
    """Drawn over and over until the end, with the cursor moved up; NO_COLOR takes the colour only."""
    order = '{"id": "t"}'
    task = open_shop.done("task", "submit", "kiosk:buy", order).strip()
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "makegood", "task", "watch", task]
    environ = {
        **BARE,
        "MAKEGOOD_STORE": open_shop.url,
        "TERM": "xterm-256color",
        "COLUMNS": "100",
        "NO_COLOR": "1",
    }
    with subprocess.Popen(
        command, cwd=open_shop.folder, env=environ, stdin=theirs, stdout=theirs
    ) as watching:
        os.close(theirs)
        output = b""
        with contextlib.suppress(OSError):  # a pseudo-terminal ends with EIO
            while data := os.read(ours, 65536):
                output += data
        assert watching.wait(timeout=120) == 0
    os.close(ours)
    text = output.decode()
    assert "\x1b[?25l" in text, "the cursor is hidden while it draws"
    assert "\x1b[32m" not in text
    assert "  ✓ reserve        stock  done" in re.sub(r"\x1b\[[?\d;]*\w", "", text)


def test_what_is_not_there_is_told(open_shop: Shop) -> None:
    """Exit 3 for an id of no task and for a text that is no id."""
    for verb in ("show", "watch", "history", "cancel", "undo", "resubmit"):
        result = open_shop.call("task", verb, "0000000000000")
        assert (result.exit_code, result.stdout) == (3, ""), verb
        assert "task list" in result.stderr
    assert open_shop.call("task", "show", "nonsense").exit_code == 3


def test_an_input_nested_too_deeply_is_refused_by_its_name(shop: Shop) -> None:
    """Reading it ended in a RecursionError, which names nothing."""
    result = shop.call("task", "submit", "kiosk:buy", "[" * 5000 + "]" * 5000)
    assert result.exit_code == 2
    assert "the input order is nested too deeply" in result.stderr


def test_a_history_prints_its_newest_lines_unless_all_are_asked_for(
    open_shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And texts up to a length; the limits are 1,000 lines and 2,000 characters. --json is complete."""
    task = submit(open_shop, '{"id": "o-1", "card": "declined"}')
    whole = open_shop.done("task", "history", task, "--all").splitlines()
    assert open_shop.done("task", "history", task).splitlines() == whole
    events = open_shop.json("task", "history", task)
    monkeypatch.setattr(commands, "MOST_MOVES", 3)
    assert open_shop.done("task", "history", task).splitlines() == [
        f"{len(whole) - 3} older lines are left out: --all shows them",
        *whole[-3:],
    ]
    assert open_shop.done("task", "history", task, "--all").splitlines() == whole
    assert open_shop.json("task", "history", task) == events
    monkeypatch.setattr(commands, "MOST_MOVES", 1)
    output = open_shop.done("task", "history", task, "--follow")
    assert f"more lines of this moment: `makegood task history {task} --all` shows them" in output
    assert open_shop.done("task", "history", task, "--follow", "--all").count("\n") == len(whole)
    monkeypatch.setattr(commands, "MOST_VALUE", 20)
    assert "nothing left to un… (22 characters)" in open_shop.done("task", "history", task)
