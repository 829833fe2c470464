"""``makegood queue`` and ``makegood notices``: sent, received, acknowledged; what could not be handled is seen and goes again."""

import contextlib
import json
import re
import signal
import sqlite3
import subprocess

from tests.actors.webhook_receiver import listening
from tests.doors.conftest import Shop


def lines(text: str) -> list[dict[str, object]]:
    """Return the objects that a streaming command wrote."""
    return [json.loads(line) for line in text.splitlines()]


def test_the_list_of_queues_has_a_limit_and_a_no_is_json_too(shop: Shop) -> None:
    for queue in ("a", "b"):
        shop.done("queue", "send", queue, "1")
    assert len(shop.json("queue", "list")) == 2
    assert len(shop.json("queue", "list", "--limit", "1")) == 1
    answer = shop.call("queue", "drop", "a", "--all", "--waiting", "--json", stdin="n\n")
    assert (answer.exit_code, json.loads(answer.stdout)) == (0, {"dropped": [], "missing": []})


def test_a_message_is_sent_listed_received_and_gone(shop: Shop) -> None:
    assert shop.done("queue", "send", "web", '{"n": null}', "--id", "a", "--reply-to", "queue:me") == "a\n"
    again = shop.call("queue", "send", "web", '{"n": null}', "--id", "a")
    assert (again.exit_code, again.stdout) == (0, "a\n")
    assert "knows a message a already: nothing was sent" in again.stderr
    other = shop.call("queue", "send", "web", "7", "--id", "a", "--json")
    assert (other.exit_code, json.loads(other.stdout)["conflict"]) == (4, True)
    refusal = shop.run("queue", "send", "web", "7", "--id", "a")
    assert (refusal.returncode, refusal.stdout) == (4, "")
    assert refusal.stderr == (
        "makegood: queue web knows a message a already, with another value: nothing was sent\n"
    )
    assert shop.call("queue", "send", "web", "no JSON").exit_code == 2
    assert shop.call("queue", "send", "web", "1", "--header", "x").exit_code == 2
    assert (
        shop.call("queue", "send", "web", "-", "--kind", "k", "--header", "x=y=z", stdin="[2]").exit_code == 0
    )
    (queue,) = shop.json("queue", "list")
    assert (queue["queue"], queue["waiting"], queue["dead"]) == ("web", 2, 0)
    first, second = shop.json("queue", "list", "web")
    assert (first["id"], first["value"], first["reply_to"], first["state"]) == (
        "a",
        {"n": None},
        "queue:me",
        "waiting",
    )
    assert (second["kind"], second["headers"]) == ("k", {"x": "y=z"})
    assert '{"n": null}' in shop.done("queue", "list", "web")
    assert shop.done("queue", "receive", "web", "--max", "1") == 'a  {"n": null}\n'
    (message,) = lines(shop.call("queue", "receive", "web", "--json").stdout)
    assert (message["value"], message["tries"]) == ([2], 1)
    empty = shop.call("queue", "receive", "web")
    assert (empty.exit_code, empty.stdout) == (0, "")
    assert "no message waits in queue web" in empty.stderr
    assert shop.call("queue", "receive", "web", "--timeout", "10ms").exit_code == 7
    assert "no message in any queue" in shop.call("queue", "list").stderr


def test_a_long_value_is_cut_in_a_list_and_whole_in_json(shop: Shop) -> None:
    """A pipe got lines of many kilobytes."""
    shop.done("queue", "send", "web", json.dumps("x" * 5000), "--id", "a")
    line = shop.done("queue", "list", "web").splitlines()[1]
    assert line.endswith(f'  "{"x" * 199}… (5,002 characters: --json shows them)')
    (message,) = shop.json("queue", "list", "web")
    assert message["value"] == "x" * 5000


def test_a_misspelt_queue_is_seen_and_emptied(shop: Shop) -> None:
    for n in range(3):
        shop.done("queue", "send", "jbos", str(n), "--id", str(n))
    assert [(queue["queue"], queue["read"]) for queue in shop.json("queue", "list")] == [("jbos", False)]
    assert shop.done("queue", "list").splitlines()[1].endswith(" never")
    assert shop.call("queue", "drop", "jbos", "--waiting").exit_code == 2
    usage = shop.call("queue", "drop", "jbos", "--all", "--waiting")
    assert (usage.exit_code, "drop 3 messages that wait in queue jbos?" in usage.stderr) == (2, True)
    assert "nothing was done" in shop.call("queue", "drop", "jbos", "--all", "--waiting", stdin="n\n").stderr
    assert shop.done("queue", "drop", "jbos", "1", "--waiting", "--reason", "misspelt") == "1 dropped\n"
    shop.done("queue", "send", "jsob", "1")
    one = shop.call("queue", "drop", "jsob", "--all", "--waiting", stdin="y\n")
    assert "drop 1 message that waits in queue jsob?" in one.stderr
    assert shop.done("queue", "drop", "jbos", "--all", "--waiting", stdin="y\n") == "0 dropped\n2 dropped\n"
    assert shop.json("queue", "drop", "jbos", "--all", "--waiting", "--yes") == {"dropped": [], "missing": []}
    assert shop.json("queue", "list") == []
    assert len(shop.json("audit")) == 4


def test_without_acknowledgement_it_comes_again_until_its_receipt_is_given(shop: Shop) -> None:
    shop.done("queue", "send", "web", "1", "--id", "a")
    receipt, id_, _ = shop.done(
        "queue", "receive", "web", "--no-ack", "--lease", "10ms", "--max", "1"
    ).split()
    assert (receipt.endswith(".1"), id_) == (True, "a")
    (again,) = lines(
        shop.call("queue", "receive", "web", "--no-ack", "--timeout", "2m", "--json", "--max", "1").stdout
    )
    assert again["tries"] == 2
    late = shop.call("queue", "ack", "web", receipt)
    assert late.exit_code == 4
    assert "is no longer valid" in late.stderr
    receipts = shop.json("queue", "ack", "web", str(again["receipt"]))
    assert receipts == [{"receipt": again["receipt"], "acknowledged": True}]
    assert shop.json("queue", "list") == []
    assert shop.call("queue", "ack", "web", "12").exit_code == 2


def test_following_ends_with_its_reader_and_loses_nothing(shop: Shop) -> None:
    """A message that nobody was there to read goes back at once."""
    process = shop.start("queue", "receive", "web", "--follow", "--json")
    assert process.stdout is not None
    shop.done("queue", "send", "web", "1")
    assert json.loads(process.stdout.readline())["value"] == 1
    process.stdout.close()
    shop.done("queue", "send", "web", "2")
    process.wait(120)
    (left,) = shop.json("queue", "list", "web")
    assert (left["value"], left["taken_by"]) == (2, None)
    other = shop.start("queue", "receive", "web", "--follow")
    assert other.stdout is not None
    assert other.stdout.readline().endswith("  2\n")
    code, _, err = shop.stop(other, signal.SIGINT)
    assert (code, "Traceback" in err) == (130, False)


def test_a_dead_letter_goes_again_with_a_corrected_value(shop: Shop) -> None:
    """Or it is dropped, and sent under its id as a new message."""
    for id_ in ("o-1", "o-2"):
        shop.done("queue", "send", "orders", '{"id": "o", "cents": -1}', "--id", id_)
    inbox = shop.serve("inbox", "kiosk:kiosk")
    shop.done("queue", "send", "orders", '{"id": "o-3"}', "--id", "o-3")
    wait_for_task(shop)
    shop.stop(inbox)
    words = ("queue", "replay", "orders")
    right = '{"id": "o-1", "cents": 5}'
    for wrong, hint in (
        (("o-1", "o-2", "--value", right), "--value is for one message"),
        (("--all", "--value", right), "--value is for one message"),
        (("o-1", "--value", "{"), "is not JSON"),
    ):
        refusal = shop.call(*words, *wrong)
        assert (refusal.exit_code, hint in refusal.stderr) == (2, True), refusal.output
    shop.done(*words, "o-1", "--value", right, "--reason", "the sum was wrong", "--who", "ann")
    (waits,) = shop.json("queue", "list", "orders")
    assert (waits["id"], waits["value"]) == ("o-1", {"id": "o-1", "cents": 5})
    (entry,) = shop.json("audit")
    assert (entry["who"], entry["why"]) == ("ann", "the sum was wrong")
    assert (entry["change"]["was"]["cents"], entry["change"]["now"]["cents"]) == (-1, 5)
    assert 'value: {"id":"o-1","cents":5} instead of {"id":"o","cents":-1}' in shop.done("audit")
    shop.done("queue", "drop", "orders", "o-2")
    shop.done("queue", "send", "orders", '{"id": "o-2", "cents": 7}', "--id", "o-2")
    assert [one["id"] for one in shop.json("queue", "list", "orders")] == ["o-1", "o-2"]


def test_a_dead_letter_is_seen_and_goes_again(shop: Shop) -> None:
    """The inbox's function refuses it; the alert says what to type."""
    shop.done("queue", "send", "orders", '{"id": "o-1", "cents": -1}', "--id", "o-1")
    shop.done("queue", "send", "orders", '{"id": 3}', "--id", "o-2")
    inbox = shop.serve("inbox", "kiosk:kiosk")
    shop.done("queue", "send", "orders", '{"id": "o-3"}', "--id", "o-3")
    task = wait_for_task(shop)
    assert task["key"] == "o-3"
    shop.stop(inbox)
    dead = shop.json("queue", "list", "orders", "--dead")
    assert [(one["id"], one["state"]) for one in dead] == [("o-1", "dead"), ("o-2", "dead")]
    assert "cents must not be negative" in dead[0]["error"]
    assert shop.json("queue", "list", "--dead") == dead
    assert "o-2" in shop.done("queue", "list", "orders", "--dead")
    texts = {alert["step"]: alert["text"] for alert in shop.json("alerts")}
    assert "`makegood queue replay orders o-1`" in texts["orders/o-1"]
    replay = shop.call("queue", "replay", "orders", "o-1", "o-9", "--reason", "mended", "--who", "ann")
    assert (replay.exit_code, replay.stdout) == (3, "o-1 will be sent again\n")
    assert "no dead letter in queue orders with the id o-9" in replay.stderr
    assert shop.json("queue", "drop", "orders", "--all") == {"dropped": ["o-2"], "missing": []}
    assert shop.json("alerts") == []
    acts = [(act["kind"], act["outcome"]) for act in shop.json("audit")]
    assert acts == [
        ("drop_message", "message o-2 of queue orders"),
        ("replay_message", "message o-1 of queue orders"),
    ]
    assert "mended" in shop.done("audit")
    assert shop.call("queue", "replay", "orders").exit_code == 2
    assert [one["id"] for one in shop.json("queue", "list", "orders")] == ["o-1"]


STRANGE = (
    "o-7; touch pwned #",
    "$(touch pwned)",
    "it's > pwned",
    "--all",
    "a b",
    "o`touch pwned`",
    "o\ufe0f",
)


def test_what_an_alert_offers_to_type_is_one_command_whatever_a_message_is_called(shop: Shop) -> None:
    """A sender chooses the id. Pasted into a shell, the line runs makegood alone, on that id; an id that cannot be pasted is not offered."""
    for number, strange in enumerate(STRANGE):
        shop.done("queue", "send", "orders", f'{{"id": "o-{number}", "cents": -1}}', f"--id={strange}")
    inbox = shop.serve("inbox", "kiosk:kiosk")
    shop.done("queue", "send", "orders", '{"id": "o-last"}', "--id", "o-last")
    wait_for_task(shop)
    shop.stop(inbox)
    stub = shop.folder / "bin" / "makegood"
    stub.parent.mkdir()
    stub.write_text('#!/bin/sh\nprintf "%s\\0" "$@"\n', encoding="utf-8")
    stub.chmod(0o755)
    texts = {alert["step"]: alert["text"] for alert in shop.json("alerts")}
    assert set(texts) == {f"orders/{strange}" for strange in STRANGE}
    for strange in STRANGE:
        for command in re.findall("`(makegood [^`]*)`", texts[f"orders/{strange}"].partition("; see ")[2]):
            ran = subprocess.run(
                ["/bin/sh", "-c", command],
                cwd=shop.folder,
                env={"PATH": f"{stub.parent}:/usr/bin:/bin"},
                capture_output=True,
                check=True,
            )
            words = ran.stdout.decode().split("\0")[:-1]
            assert words in (["queue", "list", "--dead", "orders"], ["queue", "replay", "orders", strange],
                             ["queue", "replay", "--", "orders", strange])  # fmt: skip
        assert ("not fit for a command line" in texts[f"orders/{strange}"]) is (
            "`" in strange or "\ufe0f" in strange
        )
    assert not (shop.folder / "pwned").exists()
    replay = shop.call("queue", "replay", "--reason", "mended", "--", "orders", "--all")
    assert (replay.exit_code, replay.stdout) == (0, "--all will be sent again\n"), replay.output


def wait_for_task(shop: Shop) -> dict[str, object]:
    """Wait until the inbox has made a task, and all messages before it are settled."""
    while True:
        tasks: list[dict[str, object]] = shop.json("task", "list")
        if tasks and not shop.json("queue", "list", "orders"):
            return tasks[0]


def test_a_webhook_that_was_given_up_is_told_when_an_operator_says_so(shop: Shop) -> None:
    """It refuses once, and once is enough here; then all three states arrive, in order."""
    with listening() as receiver:
        receiver.refuse = 1
        shop.serve(
            "run", "kiosk:kiosk", MAKEGOOD_WEBHOOK_HOSTS="127.0.0.1 127.0.0.0/8", MAKEGOOD_WEBHOOK_SECRET="whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0",
            MAKEGOOD_WEBHOOK_TRIES="1",
        )  # fmt: skip
        task = shop.json("task", "submit", "kiosk:buy", '{"id": "w"}', "--reply-to", receiver.url, "--wait")
        given_up_and_retried(shop, task["id"])
    assert [event["data"]["state"] for event in receiver.events] == ["received", "processing", "processed"]


def given_up_and_retried(shop: Shop, task: str) -> None:
    """See what was given up, and send it again."""
    while not (notices := shop.json("notices", "list", "--dead")):
        pass
    assert (notices[0]["task"], notices[0]["dead"], notices[0]["last"]) == (task, True, 3)
    assert "/alerts" not in notices[0]["to"], "a webhook's path may be secret"
    assert "abandoned" in shop.done("notices", "list")
    (alert,) = shop.json("alerts", "--task", task)
    assert f"`makegood notices retry {task}`" in alert["text"]
    assert shop.done("notices", "retry", task, "--reason", "it is back") == f"{task} will be sent again\n"
    (act,) = shop.json("audit", "--task", task)
    assert (act["kind"], act["why"], shop.json("alerts", "--task", task)) == (
        "retry_notices",
        "it is back",
        [],
    )
    while shop.json("notices", "list"):
        pass
    missing = shop.call("notices", "drop", task)
    assert missing.exit_code == 3
    assert shop.json("notices", "retry", "--all") == {"again": [], "missing": []}


def test_a_webhook_of_a_host_that_the_settings_do_not_name_is_refused_at_submission(shop: Shop) -> None:
    refusal = shop.call(
        "task", "submit", "kiosk:buy", '{"id": "w"}', "--reply-to", "https://other.example/", MAKEGOOD_WEBHOOK_HOSTS="hooks.example",
    )  # fmt: skip
    assert refusal.exit_code == 2
    assert "other.example is not among webhook_hosts" in refusal.output
    assert shop.json("task", "list") == []


def test_a_task_is_followed_on_a_private_queue(open_shop: Shop) -> None:
    """`--reply-to` on one side, `queue receive` on the other: every state in order, then the result."""
    task = open_shop.done(
        "task",
        "submit",
        "kiosk:buy",
        '{"id": "q"}',
        "--reply-to",
        "queue:web-7",
        "--correlation-id",
        "c-1",
        "--key",
        "q",
    ).strip()
    follow = open_shop.call("queue", "receive", "web-7", "--follow", "--max", "3", "--json")
    assert follow.exit_code == 0, follow.output
    events = [line["value"] for line in lines(follow.stdout)]
    data = [event["data"] for event in events]  # type: ignore[index]
    assert [d["state"] for d in data] == ["received", "processing", "processed"]
    assert [d["sequence"] for d in data] == [1, 2, 3]
    assert {(d["task"], d["key"], d["correlation_id"]) for d in data} == {(task, "q", "c-1")}
    assert data[-1]["result"] == "paid-100-for-hold-q"


def test_orders_of_another_database_become_tasks(shop: Shop) -> None:
    """The table is made by the statement that is printed; a process carries what the application leaves in it."""
    outbox = f"sqlite:///{shop.folder / 'app.db'}"
    assert shop.call("inbox").exit_code == 2
    assert shop.call("inbox", "--ddl").exit_code == 2
    missing = shop.run("inbox", "--from", outbox)
    assert (missing.returncode, "there is no such file" in missing.stderr) == (2, True)
    with contextlib.closing(sqlite3.connect(shop.folder / "app.db")) as application:
        application.executescript(shop.done("inbox", "--from", outbox, "--ddl"))
        serves = shop.serve("inbox", "kiosk:kiosk", "--from", outbox)
        with application:
            application.execute("create table purchase (id text)")
            application.execute("insert into purchase values ('p-1')")
            application.execute(
                "insert into makegood_outbox (key, queue, payload) values ('p-1', 'orders', '{\"id\": \"p-1\"}')"
            )
        assert wait_for_task(shop)["key"] == "p-1"
        while application.execute("select count(*) from makegood_outbox").fetchone() != (0,):
            pass
    code, out, _ = shop.stop(serves)
    assert code == 0
    assert json.loads(out)["roles"] == ["inbox", "relay"]
    assert "create table" in shop.done("inbox", "--from", "postgresql://db/shop", "--ddl")
