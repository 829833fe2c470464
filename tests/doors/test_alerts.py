"""``makegood alerts`` and ``makegood audit``: what stands, who took it, and whether anybody would be told."""

import json
import re
import socket
from contextlib import closing

from tests.actors.webhook_receiver import listening
from tests.doors.conftest import Shop
from tests.doors.test_acts import submit


def test_open_ones_come_first_and_are_acknowledged_by_number(open_shop: Shop) -> None:
    """The first who takes it has it; a second one is told who that was."""
    for _ in range(2):
        submit(open_shop, "stuck")
    latest, first = open_shop.json("alerts", "--limit", "2")
    assert latest["open"]
    line = open_shop.done("alerts", "--ack", str(latest["id"]), "--reason", "I look into it", "--who", "ann")
    assert line == f"alert {latest['id']} {latest['kind']} acknowledged by ann\n"
    alerts = open_shop.json("alerts")
    assert [alert["open"] for alert in alerts] == sorted((a["open"] for a in alerts), reverse=True)
    (acknowledgement,) = [a for a in alerts if a["id"] == latest["id"]]
    assert (acknowledgement["open"], acknowledgement["acked_by"], acknowledgement["acked_why"]) == (
        False,
        "ann",
        "I look into it",
    )
    refusal = open_shop.call("alerts", "--ack", str(latest["id"]), "--who", "bob")
    assert refusal.exit_code == 4
    assert "was acknowledged by ann (I look into it) before" in refusal.stderr
    many = open_shop.json("alerts", "--ack", "999999", str(first["id"]), "--who", "ann", code=3)
    assert [one["code"] for one in many] == [3, 0]
    assert "acknowledged by ann" in open_shop.done("alerts", "--all")
    usage = open_shop.call("alerts", "3")
    assert usage.exit_code == 2
    assert "pass --ack to acknowledge it" in usage.stderr


def test_all_of_a_kind_or_of_a_task_are_acknowledged_at_once(open_shop: Shop) -> None:
    """Those that somebody has stay theirs; and all alerts there are can only be named by number."""
    for _ in range(3):
        submit(open_shop, "stuck")
    alerts = [a for a in open_shop.json("alerts", "--limit", "1000") if a["open"]]
    kind = alerts[0]["kind"]
    ours = {a["id"] for a in alerts if a["kind"] == kind}
    others = {a["id"] for a in alerts} - ours
    assert len(ours) >= 3
    first = min(ours)
    open_shop.done("alerts", "--ack", str(first), "--who", "bob")
    assert {a["id"] for a in open_shop.json("alerts", "--kind", kind, "--limit", "1000")} >= ours
    text = open_shop.done("alerts", "--ack-all", "--kind", kind, "--reason", "one outage", "--who", "ann")
    assert text == f"{len(ours) - 1} alerts acknowledged by ann\n"
    after = {a["id"]: a for a in open_shop.json("alerts", "--all", "--limit", "1000")}
    assert {(after[n]["acked_by"], after[n]["acked_why"]) for n in ours - {first}} == {("ann", "one outage")}
    assert after[first]["acked_by"] == "bob"
    assert all(not after[n]["acked_by"] for n in others)
    entries = [e for e in open_shop.json("audit", "--limit", "1000") if e["why"] == "one outage"]
    assert len(entries) == len(ours) - 1
    assert open_shop.done("alerts", "--ack-all", "--kind", kind) == "0 alerts acknowledged\n"
    assert "--kind or --task" in open_shop.call("alerts", "--ack-all").stderr
    submit(open_shop, "stuck")
    task = next(a["task"] for a in open_shop.json("alerts") if a["open"] and a["task"])
    assert open_shop.json("alerts", "--ack-all", "--task", task, "--who", "ann")[0]["task"] == task


def test_alerts_end_with_their_cause(open_shop: Shop) -> None:
    """Settled by hand: nothing stands any more of that task, and --all knows why."""
    task = submit(open_shop, "stuck")
    (alert,) = open_shop.json("alerts", "--task", task)
    assert (alert["kind"], "the undo of reserve failed" in alert["text"]) == ("undo_incomplete", True)
    open_shop.done(
        "task", "settle", task, "--step", "reserve", "--undone", "--reason", "by hand", "--who", "ann"
    )
    assert open_shop.json("alerts", "--task", task) == []
    alerts = open_shop.json("alerts", "--task", task, "--all")
    reasons = {alert["kind"]: alert["ended_why"] for alert in alerts}
    assert reasons["undo_incomplete"] == "the task is undone"
    assert set(reasons) <= {"undo_incomplete", "undo_stuck"}
    (act,) = open_shop.json("audit", "--task", task)
    assert (act["kind"], act["who"], act["why"], act["verdict"]) == ("settle", "ann", "by hand", "applied")
    assert "by hand" in open_shop.done("audit", "--limit", "1")
    notes = [event["note"] for event in open_shop.json("task", "history", task) if event["note"]]
    assert notes == ["settle by ann (by hand) applied: reserve is undone"]


def test_a_test_alert_goes_all_ways(shop: Shop) -> None:
    """Told by the process that runs, or by the command itself where none does."""
    alone = shop.call("alerts", "--test")
    assert alone.exit_code == 0, alone.output
    assert [line.split()[0] for line in alone.stdout.splitlines()] == ["row", "log", "webhook"]
    assert "not set" in alone.stdout
    with listening() as receiver:
        webhook_test = shop.call("alerts", "--test", "--json", MAKEGOOD_ALERT_WEBHOOK=receiver.url)
        assert webhook_test.exit_code == 0, webhook_test.output
        assert json.loads(webhook_test.stdout)["told"] is True
        process = shop.serve(
            "scheduler",
            MAKEGOOD_ALERT_WEBHOOK=receiver.url,
            MAKEGOOD_ALERT_SECRET="whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0",
            MAKEGOOD_ALERTS_EVERY="100ms",
        )
        log_test = shop.call("alerts", "--test")
        assert log_test.exit_code == 0, log_test.output
        assert "written by one process that runs" in log_test.stdout
        assert "sent, and accepted" in log_test.stdout
        assert re.search(r" test +- +- +open ", shop.done("alerts").splitlines()[1])
        code, _, err = shop.stop(process)
        assert code == 0
    assert [event["data"]["kind"] for event in receiver.events if event["type"].endswith("raised.v1")] == [
        "test"
    ] * 3
    assert "webhook-signature" in receiver.got[-1][0]
    assert " test: a test alert" in err
    assert shop.call("alerts", "--test", "--ack", "1").exit_code == 2
    assert shop.call("alerts", "--test", "--reason", "x").exit_code == 2
    assert shop.call("alerts", "--who", "olga").exit_code == 2


def test_a_test_alert_says_who_asked_for_it(shop: Shop) -> None:
    shop.call("alerts", "--test", "--who", "olga", "--timeout", "1s")
    (alert,) = shop.json("alerts")
    assert "by olga: nothing is wrong" in alert["text"]


def test_a_webhook_that_nobody_is_set_to_call_is_noticed(shop: Shop) -> None:
    """Exit 1: the row is there, but a process that runs would not tell."""
    shop.serve("scheduler", MAKEGOOD_ALERTS_EVERY="100ms")
    result = shop.call("alerts", "--test", "--timeout", "1s")
    assert result.exit_code == 1
    assert "either alert_webhook is not set where a scheduler or supervisor runs" in result.stdout
    assert "see the log of the schedulers and supervisors" in result.stdout


def test_a_webhook_that_does_not_take_an_alert_is_not_called_unset(shop: Shop) -> None:
    """The store knows that it was posted to: by a process, whose log says why, or by the command itself."""
    with closing(socket.socket()) as port:
        port.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{port.getsockname()[1]}/alerts"
        alone = shop.call("alerts", "--test", "--timeout", "1s", MAKEGOOD_ALERT_WEBHOOK=url)
        assert alone.exit_code == 1
        assert "webhook  sent, and not accepted: see the lines above" in alone.stdout
        process = shop.serve("scheduler", MAKEGOOD_ALERTS_EVERY="100ms", MAKEGOOD_ALERT_WEBHOOK=url)
        result = shop.call("alerts", "--test", "--timeout", "2m")
        assert result.exit_code == 1
        assert "sent, and not accepted: see the log of the schedulers and supervisors" in result.stdout
        assert "alert_webhook" not in result.stdout
        _, _, log = shop.stop(process)
    assert "was not delivered" in log
    assert "unsigned: alert_secret is not set" in log  # once, at the start
