"""The parts of the demo that need no process: what is to come, what is seen, and what is told at the end."""

import io
import json
import random
import re
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import click
import pytest
from rich.console import Console

from examples.orders import display
from examples.orders.approver import MAY_APPROVE
from examples.orders.auditor import Finding, Kind, Told
from examples.orders.auditor import Report as Audit
from examples.orders.chaos import MUSTS, Blow, Event, Score, plan
from examples.orders.customers import wanted
from examples.orders.demo import first, main, opening, parse, store_of
from examples.orders.private_servers import SERVERS, RabbitServer
from examples.orders.processes import Place, State, Wall, environment, posts
from examples.orders.report import CHECKS, Passage, Report, count_outcomes
from examples.orders.shop import LIMIT
from examples.orders.world import ROOT
from makegood.cli.commands.demo import demo
from makegood.errors import ConfigError

MONEY = {"charged": 1200, "refunded": 200, "kept": 1000}


def report(
    *findings: Finding, outcomes: tuple[str, ...] = ("processed", "undone"), orders: int = 2
) -> Report:
    """A run of two orders that went well, but for what is said."""
    told_all = [Told(f"o-{n}", outcome) for n, outcome in enumerate(outcomes)]
    audit = Audit(findings, {"submitted": len(outcomes)}, {}, MONEY)
    score = Score({"agent": 3, "scheduler": 1}, stops=1, heals=[1.0, 3.0, 2.0])
    return Report("sqlite", 12.3, orders, count_outcomes(told_all), score, audit, ())


def blows(kills: int, seed: int = 1) -> list[Blow]:
    return plan(kills, random.Random(seed), life=2.0)


def test_the_logs_are_named_at_the_beginning_only_if_they_are_kept() -> None:
    """A run that went well leaves no folder."""
    openings = [opening(parse(["--seed", "3", *more]), "sqlite", Path("logs/d")) for more in ([], ["--keep"])]
    assert openings == [
        "200 orders on sqlite, 14 kills, seed 3",
        "200 orders on sqlite, 14 kills, seed 3; logs in logs/d",
    ]


# -- a broker ----------------------------------------------------------------------------------------------------------


def test_a_broker_is_hit_once_besides_all_others() -> None:
    roles = [blow.role for blow in plan(14, random.Random(1), life=2.0, broker=True) if not blow.stop]
    assert roles.count("broker") == 1
    assert set(MUSTS) < set(roles)
    assert len(roles) == 14
    assert "broker" not in {blow.role for blow in blows(40)}


def test_the_last_words_say_that_each_order_is_one_task_and_each_notice_came() -> None:
    passage = Passage("RabbitMQ", {"o-1": 1, "o-2": 1}, {"o-1": {1, 2, 3}, "o-2": {1, 2}})
    good = replace(report(), passage=passage)
    assert good.verdict() == (
        "2 orders came through RabbitMQ: each is one task, and each of its notices came, 5 in all; "
        "the books balance: every order is whole, and nothing is lost"
    )
    assert good.as_json()["broker"] == {"title": "RabbitMQ", "orders": 2, "tasks": 2, "notices": 5}
    assert "broker" not in report().as_json()


@pytest.mark.parametrize(
    ("tasks", "notices", "complaint"),
    [
        (2, {1, 2}, "order o-1 came through RabbitMQ and is 2 tasks"),
        (0, {1, 2}, "order o-1 came through RabbitMQ and is 0 tasks"),
        (1, {1, 3}, "of order o-1 notice 2 did not come through RabbitMQ"),
        (1, {2}, "of order o-1 notice 1 did not come through RabbitMQ"),
        (1, set[int](), "of order o-1 notice 1 did not come through RabbitMQ"),
    ],
)
def test_an_order_that_is_two_tasks_or_lacks_a_notice_is_a_complaint(
    tasks: int, notices: set[int], complaint: str
) -> None:
    passage = Passage("RabbitMQ", {"o-1": tasks}, {"o-1": notices})
    assert passage.complaints() == [complaint]


def test_a_broker_that_this_machine_lacks_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is started, and before there is a folder."""
    monkeypatch.setenv("MAKEGOOD_TEST_RABBITMQ_ROOT", str(tmp_path / "nowhere"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ConfigError, match=r"apt-get install rabbitmq-server"):
        main(["--broker", "rabbitmq", "--headless"])
    with pytest.raises(ConfigError):
        RabbitServer()
    monkeypatch.setenv("PATH", "")
    for name in ("nats", "redis"):
        with pytest.raises(ConfigError, match=f"apt-get install {name}-server"):
            main(["--broker", name, "--headless"])
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_takes_the_brokers_that_there_are() -> None:
    """``makegood demo`` does not import the example before it runs it."""
    (option,) = [each for each in demo.params if each.name == "broker"]
    assert isinstance(option.type, click.Choice)
    assert list(option.type.choices) == list(SERVERS)


# -- what is to come ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kills", [0, 1, 4, 5, 14, 40])
def test_the_plan_has_as_many_kills_as_asked_for_in_order_of_time(kills: int) -> None:
    all_blows = blows(kills)
    assert sum(not blow.stop for blow in all_blows) == kills
    moments = [blow.at for blow in all_blows]
    assert moments == sorted(moments)
    assert all(0 < at < 1 for at in moments)


@pytest.mark.parametrize("seed", range(5))
def test_agents_schedulers_the_leader_and_the_services_are_all_hit(seed: int) -> None:
    roles = [blow.role for blow in blows(14, seed) if not blow.stop]
    assert set(MUSTS) <= set(roles)
    assert roles.count("services") == 1


def test_the_seed_decides_the_plan() -> None:
    assert blows(14, 3) == blows(14, 3)
    assert blows(14, 3) != blows(14, 4)


def test_who_is_stopped_is_stopped_for_longer_than_a_heartbeat_lasts() -> None:
    stops = [blow for blow in blows(12) if blow.stop]
    assert len(stops) == 3
    assert all(blow.away > 2.0 for blow in stops)


def test_some_orders_must_be_undone_and_no_two_have_one_id() -> None:
    orders = wanted(200, random.Random(1))
    assert len({order.id for order in orders}) == 200
    assert 0 < sum(order.sku == "sold-out" for order in orders) < 30
    assert 0 < sum(order.card == "declined" for order in orders) < 30
    assert 0 < sum(order.cents > LIMIT for order in orders) < 40
    assert all(order.cents <= MAY_APPROVE for order in orders), "the approver may answer all of them"
    assert orders == wanted(200, random.Random(1))


# -- the wall ----------------------------------------------------------------------------------------------------------


def test_killing_one_agents_process_leaves_another_for_every_service() -> None:
    agents = [set(post.arguments) for post in posts(agents=2) if post.role == "agent"]
    for service in ("stock", "payments", "carrier"):
        assert sum(service in arguments for arguments in agents) == 2


def test_further_agents_serve_one_service_each() -> None:
    third, fourth = [post for post in posts(agents=4) if post.role == "agent"][2:]
    assert third.arguments[2:3] == ("payments",)
    assert fourth.arguments[2:3] == ("carrier",)


def test_no_list_of_processes_shows_the_stores_url() -> None:
    """It may hold a password; the processes find it in their environment."""
    assert not any("--store" in post.arguments for post in posts(agents=4))


def test_processes_that_do_not_start_are_named_with_what_to_do_and_the_end_of_a_log(tmp_path: Path) -> None:
    wall = Wall(posts(), tmp_path, settings={}, more={})
    text = str(wall.late(["stock-1", "stock-2"], 90))
    assert text.startswith("stock-1, stock-2 did not start, and no other process has for 90 s.")
    assert "run it again when the machine is idle" in text
    assert text.endswith("The log of stock-1 is empty.")
    wall.log("stock-1").write_text("no module named 'shop'\n", encoding="utf-8")
    assert str(wall.late(["stock-1"], 90)).endswith("The log of stock-1 ends with:\nno module named 'shop'")


def test_a_persons_own_settings_do_not_reach_the_wall() -> None:
    outside = {
        "MAKEGOOD_STORE": "sqlite:///mine.db",
        "MAKEGOOD_LEASE": "1h",
        "PATH": "/bin",
        "PYTHONPATH": "here",
    }
    inside = environment(outside, {"lease": "2s"}, {"WORLD": "far"})
    assert "MAKEGOOD_STORE" not in inside
    assert (inside["MAKEGOOD_LEASE"], inside["PATH"], inside["WORLD"]) == ("2s", "/bin", "far")
    assert inside["PYTHONPATH"] == f"{ROOT}:here"


# -- what is seen ------------------------------------------------------------------------------------------------------


def scene() -> display.Scene:
    new_scene = display.Scene(10, Score({"agent": 2}, heals=[1.5]), placed=8)
    new_scene.states = Counter({"processed": 4, "undone": 1, "processing": 2, "pending": 1})
    new_scene.wall = [
        Place("agent-1", "agent", 4711, State.KILLED, kills=2),
        Place("scheduler-1", "scheduler", 4712, State.RUNNING),
        Place("supervisor-1", "supervisor", 4713, State.RUNNING),
    ]
    new_scene.leader = 4713
    new_scene.events.append((1.0, Event("killed", "agent-1", 4711, "the agent was killed")))
    return new_scene


@pytest.mark.parametrize("width", [1, 7, 40, 100])
def test_the_bar_is_as_wide_as_it_should_be_and_leaves_room_for_what_is_to_come(width: int) -> None:
    text = display.bar(scene(), width).plain
    assert len(text) == width
    assert text.count("█") == round(width * 0.8)


def test_the_scoreboard_counts_what_is_under_way() -> None:
    line = display.scoreboard(scene()).plain
    assert line.startswith(
        "orders 8/10 · processed 4 · undone 1 · in error 0 · under way 3 · kills survived 2"
    )
    assert line.endswith("last heal 1.5 s")


def test_the_lights_stand_beside_long_events() -> None:
    """In a narrow terminal the events wrap; whether a process runs is still seen."""
    moment = scene()
    moment.events.append(
        (12.3, Event("healed", "agent-2", 4711, "4 requests that it held continued elsewhere " * 3))
    )
    console = Console(width=90, record=True, file=io.StringIO())
    console.print(display.drawn(moment, 90))
    assert re.findall(r"^ ([●✖])", console.export_text(), re.MULTILINE) == ["✖", "●", "●"]


def test_the_drawn_screen_names_who_was_killed_who_runs_and_who_leads() -> None:
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123 - closed with the test
    console.print(display.drawn(scene(), 120))
    text = console.export_text()
    console.file.close()
    assert "the agent was killed" in text
    assert any("scheduler-1" in line and "4712" in line for line in text.splitlines())
    assert any("agent-1" in line and "killed" in line for line in text.splitlines())
    assert "supervisor-1 ★" in text


def test_json_is_one_object_per_line_and_progress_comes_seldom(capsys: pytest.CaptureFixture[str]) -> None:
    moment, output = scene(), display.screen(as_json=True)
    moment.begun -= 10.0
    output.event(moment, moment.events[0][1])
    for _ in range(5):
        output.show(moment)
    output.report(report())
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["event"] for line in lines] == ["killed", "progress", "report"]
    assert lines[1]["under way"] == 3


def test_what_open_orders_wait_for_is_said_with_each_line_of_progress(
    capsys: pytest.CaptureFixture[str],
) -> None:
    moment = scene()
    moment.begun -= 10.0
    moment.waits = "payments: circuit open, 80 orders wait (next try in 2.0 s)"
    for as_json in (False, True):
        display.screen(as_json=as_json).show(moment)
    progress, plain, as_object = capsys.readouterr().out.splitlines()
    assert "under way 3" in progress
    assert plain == f"  10.0 s  waits    {moment.waits}"
    assert json.loads(as_object)["waits"] == moment.waits
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(display.drawn(moment, 120))
    assert moment.waits in console.export_text()


def test_in_a_pipe_lines_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    output = display.screen(as_json=False)
    assert isinstance(output, display.PlainScreen)
    output.event(scene(), Event("killed", "agent-1", 4711, "the agent was killed"))
    output.report(report(Finding(Kind.CHARGED_TWICE, "o-1", "charge again")))
    text = capsys.readouterr().out
    assert "killed   agent-1 (4711): the agent was killed" in text
    assert "\x1b" not in text
    assert "FINDING  order o-1: charged twice" in text
    assert any(line.split() == ["charged", "twice", "1", "<--", "!"] for line in text.splitlines())


# -- what is told at the end -------------------------------------------------------------------------------------------


def test_a_good_run_is_well() -> None:
    good = report()
    assert good.well
    assert good.as_json()["ok"] is True
    assert good.as_json()["kills_survived"] == 4
    assert set(good.checks().values()) == {0}
    assert "the books balance" in good.verdict()


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_of_finding_is_counted_and_spoils_the_run(kind: Kind) -> None:
    bad = report(Finding(kind, "o-1", "so it is"))
    assert not bad.well
    assert sum(bad.checks().values()) == 1
    assert "o-1" in bad.verdict()
    assert all(good for *_, good in bad.rows())
    assert [good for *_, good in bad.audit_rows()].count(False) == 1


def test_every_kind_of_finding_is_looked_for_once() -> None:
    assert Counter(kind for kinds in CHECKS.values() for kind in kinds) == Counter(Kind)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (report(outcomes=("processed", "")), "open"),
        (report(orders=3), "1 orders could not be placed"),
        (replace(report(), complaints=("order o-1 is in error, and there is no alert of it",)), "no alert"),
    ],
)
def test_an_open_or_missing_order_or_a_complaint_spoils_the_run(bad: Report, why: str) -> None:
    assert not bad.well
    assert why in bad.verdict()


def test_an_order_in_error_that_was_listed_and_alerted_does_not() -> None:
    assert report(outcomes=("processed", "error")).well


# -- the command line --------------------------------------------------------------------------------------------------


def test_without_a_seed_chance_decides_and_the_seed_is_known() -> None:
    assert isinstance(parse([]).seed, int)
    assert parse(["--seed", "7"]).seed == 7


@pytest.mark.parametrize(
    "arguments", [["--orders", "0"], ["--kills", "-1"], ["--postgres", "--store", "sqlite:///x.db"]]
)
def test_what_cannot_be_meant_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        parse(arguments)
    assert error.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_a_store_in_the_present_folder_is_found_from_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:
        assert (
            store_of(parse(["--store", "sqlite:///mine.db"]), tmp_path, stack)
            == f"sqlite:///{tmp_path}/mine.db"
        )
        assert store_of(parse(["--store", "sqlite:////x/y.db"]), tmp_path, stack) == "sqlite:////x/y.db"
        assert store_of(parse([]), tmp_path / "f", stack) == f"sqlite:///{tmp_path}/f/store.db"
        assert store_of(parse(["--store", "postgresql://h/d"]), tmp_path, stack) == "postgresql://h/d"


def test_the_first_trouble_is_found_in_groups_of_groups() -> None:
    trouble = ValueError("the one")
    assert first(ExceptionGroup("", [ExceptionGroup("", [trouble, KeyError()])])) is trouble
