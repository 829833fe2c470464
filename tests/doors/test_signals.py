"""``makegood task signal``: a value for a task by its id or key, its refusals, and what ``task show`` says of it."""

import json
import sqlite3
from contextlib import closing

import pytest

import makegood as mg
from tests.actors.encoded_shop import CANARY, KEYS, refuse_canary
from tests.console.test_secrets import stored
from tests.doors.conftest import Shop

CHECKED = """
import makegood as mg
from makegood.declare.signal import Signal

kiosk = mg.App("kiosk")
vars(kiosk).setdefault("signals", {})["approval"] = Signal("approval", bool, "kiosk")
"""


WAITING = """
from typing import Any

import makegood as mg

kiosk = mg.App("kiosk")


@kiosk.workflow
def buy(order: dict[str, str]) -> None:
    mg.wait_for("approval", Any)
    mg.wait_for("ping", Any)
"""


def change(shop: Shop, sql: str) -> None:
    """Carry out a statement on the shop's file."""
    with closing(sqlite3.connect(shop.folder / "kiosk.db")) as file, file:
        file.execute(sql)


@pytest.fixture
def task(shop: Shop) -> str:
    """A task that waits for signals and that no Scheduler has claimed, with the key "o-1"."""
    (shop.folder / "waiting.py").write_text(WAITING, encoding="utf-8")
    return shop.done("task", "submit", "waiting:buy", '{"id": "o-1"}', "--key", "o-1").strip()


def test_a_signal_is_sent_by_id_or_by_workflow_and_key(shop: Shop, task: str) -> None:
    id_ = shop.done(
        "task", "signal", task, "approval", '{"yes": true}', "--reason", "by phone", "--who", "ann"
    ).strip()
    answer = shop.json(
        "task",
        "signal",
        "buy",
        "approval",
        "false",
        "--key",
        "o-1",
        "--id",
        "mail-7",
        "--step",
        "approval[3]",
    )
    assert answer == {"task": task, "signal": "approval", "id": "mail-7", "created": True, "conflict": False}
    assert shop.json("task", "signal", "kiosk.buy", "ping", "--key", "o-1")["created"], "null is a value"
    ping, second, first = shop.json("task", "show", task)["signals"]
    assert (ping["name"], first["name"], first["id"], first["who"], first["used"]) == (
        "ping",
        "approval",
        id_,
        "ann",
        None,
    )
    assert (second["id"], second["step"], second["kept"]) == ("mail-7", "approval[3]", False)
    text = shop.done("task", "show", task)
    assert "approval (mail-7), unread, for approval[3], sent by " in text
    assert f"approval ({id_}), unread, sent by ann" in text
    acts = shop.json("audit")
    assert [(act["kind"], act["task"]) for act in acts] == [("signal", task)] * 3
    assert (acts[-1]["who"], acts[-1]["why"], acts[-1]["outcome"]) == (
        "ann",
        "by phone",
        f"sent approval ({id_})",
    )


def test_a_signal_is_known_by_its_id(shop: Shop, task: str) -> None:
    """The same again is done, another value is refused, as in a queue."""
    words = ("task", "signal", task, "approval")
    shop.done(*words, "true", "--id", "mail-7")
    again = shop.call(*words, "true", "--id", "mail-7")
    assert (again.exit_code, again.stdout.strip()) == (0, "mail-7")
    assert f"makegood: task {task} knows a signal approval mail-7 already: nothing was sent" in again.stderr
    other = shop.call(*words, "false", "--id", "mail-7")
    assert (other.exit_code, other.stdout) == (4, "")
    assert "knows a signal approval mail-7 already, with another value: nothing was sent" in other.stderr
    assert len(shop.json("audit")) == 1


def test_who_waits_for_the_answer_is_told_that_no_scheduler_runs(shop: Shop, task: str) -> None:
    result = shop.call("task", "signal", task, "approval", "true", "--until", "approval", "--timeout", "10ms")
    assert result.stderr.startswith(
        "makegood: no scheduler runs on this store, nothing continues until one does"
    )
    assert result.exit_code == 7


def test_a_signal_that_no_task_takes_is_refused_with_the_remedy(shop: Shop, task: str) -> None:
    unknown = shop.call("task", "signal", "0000000000007", "approval", "true")
    assert (unknown.exit_code, "there is no task 0000000000007 in this store" in unknown.stderr) == (3, True)
    unknown = shop.call("task", "signal", "sell", "approval", "true", "--key", "o-1")
    assert unknown.exit_code == 3
    assert f"no task of sell has the key 'o-1'; kiosk.buy has {task}" in unknown.stderr
    assert shop.call("task", "signal", task, "approval", "yes").exit_code == 2
    assert "a text needs its quotes" in shop.call("task", "signal", task, "approval", "yes").stderr
    other = shop.done("task", "submit", "kiosk:buy", '{"id": "o-2"}').strip()
    refusal = shop.call("task", "signal", other, "approval", "true")
    assert (refusal.exit_code, refusal.stdout) == (4, "")
    assert (
        f"task {other} waits for no signal 'approval', now or later; no step of its workflow"
        in refusal.stderr
    )
    assert shop.json("task", "show", other)["signals"] == []
    change(shop, "update makegood_task set state = 'undone'")
    refusal = shop.call("task", "signal", task, "approval", "true")
    assert refusal.exit_code == 4
    assert "takes no signal 'approval': the task had ended: undone; resubmit it first" in refusal.stderr


def test_a_value_is_checked_against_the_code(shop: Shop, task: str) -> None:
    (shop.folder / "desk.py").write_text(CHECKED)
    words = ("task", "signal", task, "approval", "--check", "desk:kiosk")
    refusal = shop.call(*words, '"yes"')
    assert refusal.exit_code == 2
    assert "the value of signal approval is str, its annotation says bool" in refusal.stderr
    missing = shop.call("task", "signal", task, "aproval", "--check", "desk:kiosk", "true")
    assert missing.exit_code == 2
    assert "app 'kiosk' declares no signal 'aproval'; it declares approval" in missing.stderr
    assert shop.json(*words, "true")["created"]


def test_a_late_signal_is_listed_as_late(shop: Shop, task: str) -> None:
    shop.done("task", "signal", task, "approval", "true")
    change(shop, "update makegood_task set state = 'processed'")
    assert "late: no step used it before the task ended" in shop.done("task", "show", task)
    assert json.loads(shop.call("task", "show", task, "--json").stdout)["signals"][0]["used"] is None


def test_all_tasks_that_match_get_a_signal_once(shop: Shop, task: str) -> None:
    """The same act again finds it sent; a task that takes it no more refuses, and the other gets it."""
    other = shop.done("task", "submit", "waiting:buy", '{"id": "o-2"}', "--key", "o-2").strip()
    command = (
        "task",
        "signal",
        "--filter",
        "workflow:buy",
        "approval",
        "true",
        "--id",
        "night-1",
        "--who",
        "ann",
    )
    assert "signal approval: 2 tasks:" in shop.done(*command, "--dry-run")
    answers = shop.json(*command, "--yes", "--limit", "1")
    assert [(answer["task"], answer["verdict"]) for answer in answers] == [(other, "applied")]
    answers = shop.json(*command, "--yes", "--reason", "all of them")
    assert {answer["task"]: answer["verdict"] for answer in answers} == {other: "noop", task: "applied"}
    (signal,) = shop.json("task", "show", task)["signals"]
    assert (signal["id"], signal["who"]) == (f"night-1/{task}", "ann")
    acts = [act for act in shop.json("audit") if act["task"] == task]
    assert [(act["kind"], act["why"]) for act in acts] == [("signal", "all of them")]
    change(shop, "update makegood_task set state = 'undone', goal = 'undo' where key = 'o-1'")
    refused, applied = sorted(
        shop.json("task", "signal", "--filter", "workflow:buy", "approval", "--yes", code=4), key=lambda answer: -answer["code"]
    )  # fmt: skip
    assert (refused["task"], refused["verdict"], applied["task"]) == (task, "refused", other)
    assert "the task had ended: undone" in refused["outcome"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--filter", "key:o-1"), "NAME"),
        (("--filter", "key:o-1", "approval", "1", "2"), "name the signal, and one VALUE: NAME [VALUE]"),
        (
            ("--filter", "key:o-1", "approval", "--key", "o-1"),
            "--key, --step, --until and --timeout are for one task",
        ),
        (("o-1", "approval", "--yes"), "go with --filter"),
        (("o-1",), "name the signal, and one VALUE: ID NAME [VALUE]"),
    ],
)
def test_words_that_contradict_each_other_are_refused(shop: Shop, words: tuple[str, ...], text: str) -> None:
    result = shop.call("task", "signal", *words)
    assert (result.exit_code, text in result.output) == (2, True)


OFFICE = """
from dataclasses import dataclass
import makegood as mg

office = mg.App("office")


@dataclass
class Approval:
    yes: bool
    by: str = ""


approval = office.signal("approval", Approval)


@office.workflow()
def travel(trip: str) -> bool:
    return mg.wait_for(approval).yes
"""


def test_a_task_is_named_by_its_key_as_in_show(shop: Shop, task: str) -> None:
    """For a signal and for each act; an error says how a workflow is named."""
    answer = shop.json("task", "signal", "o-1", "approval", "true", "--id", "mail-7")
    assert (answer["task"], answer["created"]) == (task, True)
    workflow = shop.call("task", "signal", "kiosk.buy", "approval", "true")
    assert workflow.exit_code == 3
    assert "no task has the id or the key 'kiosk.buy'" in workflow.stderr
    assert "with a workflow give --key" in workflow.stderr
    shop.serve("scheduler")
    (answer,) = shop.json("task", "wake", "o-1")
    assert (answer["task"], answer["verdict"]) == (task, "noop")
    unknown = shop.call("task", "wake", "o-9")
    assert (unknown.exit_code, "no task has the id or the key 'o-9'" in unknown.stderr) == (3, True)
    (answer,) = shop.json("task", "cancel", "o-1")
    assert (answer["task"], answer["verdict"]) == (task, "applied")


def test_a_submission_again_says_whether_its_task_still_runs(shop: Shop, task: str) -> None:
    """A task that was undone does not run because somebody submits it again."""
    submission = ("task", "submit", "waiting:buy", '{"id": "o-1"}', "--key", "o-1")
    sentence = f"task {task} has this key already, with the same inputs; it is"
    two_starts = shop.call(*submission[:4], "--delay", "1h", "--at", "2035-03-25T02:30Z")
    assert (two_starts.exit_code, "--delay and --at both say when" in two_starts.stderr) == (2, True)
    assert f"{sentence} pending\n" in shop.call(*submission).stderr
    change(shop, "update makegood_task set state = 'error'")
    assert f"{sentence} in error: `makegood task show {task}`" in shop.call(*submission).stderr
    change(shop, "update makegood_task set state = 'undone', goal = 'undo'")
    again = shop.call(*submission)
    assert (again.exit_code, again.stdout.strip()) == (0, task)
    assert (
        f"{sentence} undone and does not run again by itself: `makegood task resubmit {task}`" in again.stderr
    )


@pytest.fixture
def trips(shop: Shop) -> Shop:
    """A shop with two tasks that wait for an approval."""
    (shop.folder / "trips.py").write_text(OFFICE, encoding="utf-8")
    shop.serve("run", "trips:office")
    for trip in ("rome", "oslo"):
        shop.done("task", "submit", "trips:travel", trip, "--key", trip)
    while len(shop.json("task", "list", "waits:approval")) < 2:
        pass
    return shop


def test_a_value_of_another_type_is_refused_before_it_decides_anything(trips: Shop) -> None:
    """Singly and for many, without the code: a text is no yes, and no no."""
    for value, reason in (
        ('{"yes": "true"}', "yes is a text, and must be true or false"),
        ('{"by": "ann"}', "yes is missing"),
        ("true", "the value is true, and must be an object"),
    ):
        alone = trips.call("task", "signal", "travel", "approval", value, "--key", "rome")
        assert (alone.exit_code, reason in alone.stderr) == (4, True), alone.output
        answers = trips.json(
            "task", "signal", "--filter", "waits:approval", "approval", value, "--yes", code=4
        )
        assert [(answer["verdict"], reason in answer["outcome"]) for answer in answers] == [
            ("refused", True)
        ] * 2
    assert len(trips.json("task", "list", "waits:approval")) == 2
    sending = (
        "task",
        "signal",
        "--filter",
        "waits:approval",
        "approval",
        '{"yes": true}',
        "--id",
        "night",
        "--yes",
    )
    lines = trips.done(*sending).splitlines()
    assert (
        sorted(line.partition("  ")[2].partition("/")[0] for line in lines[:2])
        == ["sent approval (night"] * 2
    )
    for trip in ("rome", "oslo"):
        trips.done("task", "watch", trip, "--timeout", "60s")
        assert trips.json("task", "show", trip)["result"] is True


def test_a_misspelt_signal_is_not_an_empty_list(trips: Shop) -> None:
    """A hint, and exit 3; a signal that nobody waits for now, and one like no other, are no mistakes."""
    hint = "no task waits for a signal 'aproval'; did you mean 'approval'?"
    sending = ("task", "signal", "--filter", "waits:aproval", "approval", "true", "--dry-run")
    for words in (("task", "list", "waits:aproval"), sending, ("task", "follow", "waits:aproval")):
        result = trips.call(*words)
        assert (result.exit_code, hint in result.stderr) == (3, True), result.output
    assert trips.json("task", "list", "waits:payment") == []
    trips.done("task", "signal", "--filter", "waits:approval", "approval", '{"yes": true}', "--yes")
    while trips.json("task", "list", "waits:approval"):
        pass
    asked = trips.call("task", "signal", "--filter", "workflow:travel", "approval", "true")
    assert "send approval to 2 tasks?" in asked.output


def test_until_writes_the_answer(shop: Shop) -> None:
    """In the process of the command; a node of this process runs the workflow."""
    app = mg.App("chats")
    word, desk = app.signal("word", str), app.agent("desk")

    @desk.action(complete_within="1m", undo=mg.NOTHING, recover=mg.Recover(threshold=0))
    def reply(text: str) -> dict[str, str]:
        if text == "bad":
            raise mg.Permanent("no such word")
        return {"reply": text}

    @app.workflow
    def chat(_order: str) -> dict[str, str]:
        return reply(mg.wait_for(word))

    with mg.SyncNode(app, shop.url, options=mg.Options(migrate=True, leaderless_after=None)) as node:
        for key in "abc":
            node.client.submit(chat, key, key=key)
        to_a = ("task", "signal", "chat", "word", '"hello"', "--key", "a", "--id", "m-1", "--until", "reply")
        assert json.loads(shop.done(*to_a)) == {"reply": "hello"}
        answer = shop.json(*to_a, "--timeout", "2m")
        assert (answer["signal"], answer["step"], answer["result"]) == ("word", "reply", {"reply": "hello"})
        failure = shop.call("task", "signal", "chat", "word", '"bad"', "--key", "b", "--until", "reply")
        assert failure.exit_code == 1
        assert "the step is failed (no such word)" in failure.stderr
    late = shop.call(
        "task", "signal", "chat", "word", '"x"', "--key", "c", "--until", "reply", "--timeout", "10ms"
    )
    assert late.exit_code == 7
    assert "The signal is sent, and the task continues" in late.stderr
    wrong = shop.call("task", "signal", "chat", "word", '"x"', "--key", "c", "--until", "replies")
    assert wrong.exit_code == 3
    assert "has no step 'replies'; it has word, reply" in wrong.stderr
    many = shop.call("task", "signal", "word", '"x"', "--filter", "waits:word", "--until", "reply")
    assert many.exit_code == 2


NO_CODEC = "takes encoded values of the signal 'approval' only, and this process has no codec of app 'shop'"


def test_the_command_encodes_a_signal_with_the_codec_or_the_app(shop: Shop) -> None:
    (shop.folder / "trips.py").write_text(
        "import makegood as mg\n"
        f"codec = mg.codecs.Encrypted({KEYS!r})\n"
        "shop = mg.App('shop', codec=codec)\n"
        "approval = shop.signal('approval', dict[str, str])\n"
        "@shop.agent('desk').action(complete_within='10s', undo=mg.NOTHING)\n"
        "def note(text: dict[str, str]) -> str:\n"
        "    return text['note']\n"
        "@shop.workflow\n"
        "def ask(name: str) -> str:\n"
        "    return note(mg.wait_for(approval))\n",
        encoding="utf-8",
    )
    shop.serve("run", "trips:shop")
    for n in range(3):
        shop.done("task", "submit", "trips:ask", "x", "--key", f"o-{n}")
    words = ("task", "signal", "o-0", "approval", f'{{"note": "{CANARY}"}}')
    refusal = shop.call(*words)
    assert refusal.exit_code == 4
    assert NO_CODEC in refusal.stderr
    assert "pass the app, --check MODULE:APP, or its codec, --codec MODULE:OBJECT" in refusal.stderr
    for n, option in enumerate((("--check", "trips:shop"), ("--codec", "trips:codec"))):
        answer = shop.json(*words[:2], f"o-{n}", *words[3:], *option, "--until", "note", "--timeout", "60s")
        assert answer["result"] == CANARY
    wrong = shop.call(*words[:-1], '"yes"', "--check", "trips:shop")
    assert (wrong.exit_code, "the value of signal approval is str" in wrong.stderr) == (2, True)
    (answer,) = shop.json(
        "task", "signal", "--filter", "key:o-2", *words[3:], "--codec", "trips:shop", "--yes"
    )
    assert answer["verdict"] == "applied"
    refuse_canary(stored(shop.folder).decode("latin-1"), "the store's file")
