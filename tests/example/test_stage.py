"""The show as visitors see it: real processes, every act played by its button, and the audit at the end."""

import re
import signal
from pathlib import Path

import pytest

from tests.example.shows import RunningShow, show
from tests.example.test_demo import all_gone, broker_or_skip, descendants, folders

pytestmark = pytest.mark.timeout(600)


def play(stage: RunningShow, number: int, *words: str) -> None:
    """Play an act; each of the words must be shown, one after another."""
    assert stage.press("act", number=str(number)) == 204
    for pattern in words:
        stage.until("live", rf"Act {number}\..*{pattern}")


def ends_well(stage: RunningShow, folder: Path) -> dict[str, object]:
    """End the show; the books must balance and nothing be left."""
    report = stage.end()
    errors = (folder / "stderr").read_text()
    assert report["event"] == "report", errors
    assert report["ok"] is True, report
    assert set(report["checks"].values()) == {0}
    assert report["open"] == 0
    assert stage.process.returncode == 0
    assert folders(folder) == []
    return report


def answer(stage: RunningShow, yes: str) -> None:
    """Play the eighth act, and press one of its buttons once an agent was killed meanwhile."""
    play(stage, 8, "is too large to ship unseen", "agents? died meanwhile")
    order = re.search(r"Act 8\. (\S+) waits for you: \d+ s left", stage.part("live"))
    assert order is not None
    assert re.search(rf"{order[1]} waits for an approval: \d+ s left", stage.part("live"))
    assert re.search(r"approval .*\S+ left: waits for approval, a signal, until \S+Z", stage.part("live"))
    stage.until("customers", rf"{order[1]} paid, waiting for an approval")
    assert stage.press("answer", order=order[1], yes=yes) == 204
    stage.until("feed", rf"(approved|refused) you: {order[1]}, 1,200.00: pressed on the stage")
    stage.until("live", r"were killed just now|is (processed|undone)\.")


def zeros(stage: RunningShow) -> None:
    """The three big figures are 0."""
    stage.until("score", r"^ 0 orders lost of [\d,]+ 0 charged twice of [\d,]+ 0 left after an undo")


def test_the_acts_are_played_on_sqlite_and_the_zeros_hold(tmp_path: Path) -> None:
    with show(tmp_path, "--seed", "7") as stage:
        stage.until("customers", "shipped: ship-")
        play(stage, 1, "All is well", r"is (processed|undone)\.")
        play(stage, 2, "was killed while it charged", "is processed, and its card was charged once")
        zeros(stage)
        play(stage, 3, r"(led term \d+, and was killed|leads term)", r"leads term ([2-9]|[1-9]\d+)\.")
        text = stage.until("live", r"Act 3\..*What a leader of term \d+ would write")
        terms = re.search(r"leads term (\d+)\..*a leader of term (\d+) would write", text)
        assert terms is not None
        assert int(terms[1]) > int(terms[2])
        stage.until("wall", r"leads, term ([2-9]|[1-9]\d+)")
        play(stage, 5, "its card was refused", "is undone, rung by rung")
        answer(stage, "yes")
        stage.until("live", r"Act 8\..*is processed\. You approved it")
        play(stage, 7, "All 1[0-9] processes are dead", "orders have ended whole")
        assert stage.press("settle") == 204
        stage.until("score", r"paid out at night [1-9]")
        zeros(stage)
        report = ends_well(stage, tmp_path)
        assert int(str(report["kills_survived"])) >= 16
        assert int(str(report["approved"])) >= 1


def test_the_acts_are_played_on_postgres_and_an_operator_is_needed(tmp_path: Path) -> None:
    """In the sixth act the test is the operator, on the command line; the browser's test presses in the console."""
    with show(tmp_path, "--seed", "8", "--postgres") as stage:
        play(stage, 4, "Payments hang")
        stage.until("wall", r"circuit (half )?open")
        stage.until("live", r"Act 4\..*orders that waited have ended")
        answer(stage, "no")
        stage.until("live", r"Act 8\..*is undone\. You refused it")
        play(stage, 6, "needs you")
        stage.until("score", "1 in error")
        stage.press("act", number="1")
        stage.until("live", r"Act 1\.")
        zeros(stage)
        report = ends_well(stage, tmp_path)
        assert report["error"] == 1
        assert int(str(report["refused"])) >= 1
        assert report["store"] == "postgres"


def test_every_service_may_be_slow_and_its_orders_end_whole(tmp_path: Path) -> None:
    """Slow is slow: no agent gives up on a call, so no attempt follows another."""
    with show(tmp_path, "--seed", "11") as stage:
        for service in ("stock", "payments", "carrier"):
            assert stage.press("dial", service=service, fault="slow") == 204
        assert stage.press("switch", switch="share", value="every call") == 204
        assert stage.press("order", kind="order") == 204
        text = stage.until("live", r"ship carrier done")
        assert "attempt 2" not in text
        ends_well(stage, tmp_path)


def test_an_order_whose_undo_fails_needs_an_operator(tmp_path: Path) -> None:
    with show(tmp_path, "--seed", "12") as stage:
        assert stage.press("switch", switch="rate", value="3/s") == 204
        assert stage.press("dial", service="stock", fault="no undo") == 204
        assert stage.press("order", kind="card refused") == 204
        stage.until("score", r"[1-9]\d* in error")
        assert stage.press("dial", service="stock", fault="well") == 204
        report = ends_well(stage, tmp_path)
        assert int(str(report["error"])) >= 1


def test_what_a_visitor_kills_stops_and_spoils_is_survived(tmp_path: Path) -> None:
    with show(tmp_path, "--seed", "9") as stage:
        assert stage.press("switch", switch="rate", value="3/s") == 204
        assert stage.press("dial", service="payments", fault="lie") == 204
        assert stage.press("dial", service="carrier", fault="5xx") == 204
        stage.until("feed", r"turned payments: does it")
        for name in ("payments-1", "scheduler-1", "shop", "inbox-1", "services", "auditor"):
            assert stage.press("process", name=name, do="kill") == 204, name
        assert stage.press("process", name="payments-1", do="start") in (204, 409)
        assert stage.press("process", name="scheduler-2", do="stop") == 204
        stage.until("wall", r"scheduler-2 stopped for")
        assert stage.press("process", name="scheduler-2", do="start") == 204
        stage.until("feed", r"resumed scheduler-2")
        stage.until("wall", r"auditor \d+ s ago ·")
        stage.until("wall", r"scheduler-1 \d+ orders? ·")
        for name in ("stock", "payments", "carrier"):
            assert stage.press("dial", service=name, fault="down") == 204
        zeros(stage)
        report = ends_well(stage, tmp_path)
        assert report["kills_survived"] == 6
        assert report["stopped_and_resumed"] == 1


def test_a_broker_that_is_killed_comes_back_and_the_orders_that_waited_flow(tmp_path: Path) -> None:
    """Nothing is doubled: each order is one task, and each notice comes."""
    broker_or_skip()
    with show(tmp_path, "--seed", "13", "--broker", "rabbitmq") as stage:
        stage.until("broker", r"RabbitMQ .* [1-9]\d* notices came")
        assert stage.press("switch", switch="replace", value="off") == 204
        assert stage.press("process", name="inbox-1", do="kill") == 204
        stage.until("broker", r" [1-9]\d* orders wait in it")
        assert stage.press("switch", switch="replace", value="on") == 204
        assert stage.press("process", name="broker", do="kill") == 204
        stage.until("broker", r"broker killed \d+ s ago; a new one in \d s .* – orders wait in it")
        stage.until("broker", r" [1-9]\d* orders to publish")
        stage.until("feed", r"started broker \(\d+\): back after [\d.]+ s, with its queues")
        stage.until("broker", r" 0 orders to publish [1-9]\d* orders wait in it")
        assert stage.press("process", name="inbox-1", do="start") == 204
        stage.until("broker", r" 0 orders wait in it")
        zeros(stage)
        report = ends_well(stage, tmp_path)
    assert report["kills"] == {"broker": 1, "inbox": 1}
    passage = report["broker"]
    assert isinstance(passage, dict)
    assert passage["orders"] == passage["tasks"] == report["placed"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_however_the_show_is_ended_no_process_is_left(number: signal.Signals, tmp_path: Path) -> None:
    """Its services, one of them stopped, the console and the auditor too."""
    with show(tmp_path, "--seed", "1") as stage:
        assert stage.press("process", name="services", do="stop") == 204
        assert stage.press("process", name="stock-1", do="stop") == 204
        with descendants(stage.process.pid) as descriptors:
            assert len(descriptors) >= 14
            stage.process.send_signal(number)
            stage.process.wait(240)
            all_gone(descriptors)
    assert (folders(tmp_path) == []) is (number is signal.SIGTERM)
