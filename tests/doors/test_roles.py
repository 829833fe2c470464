"""Processes that run roles: they start, say so, drain on SIGTERM, and never migrate a store unless they may."""

import asyncio
import json
import logging
import signal
from pathlib import Path

import pytest

import makegood as mg
from makegood.cli.context import Cli
from makegood.cli.logs_and_telemetry import set_up_logs
from makegood.supervisor.supervisor import LEASE
from tests.doors.conftest import Shop

QUICK = {"MAKEGOOD_HEARTBEAT": "100ms", "MAKEGOOD_DEAD_AFTER": "1m", "MAKEGOOD_LEASE": "10s"}


@pytest.mark.parametrize(
    "words", [("scheduler",), ("agent", "kiosk:kiosk", "stock"), ("supervisor",), ("supervisor", "--once")]
)
def test_separate_roles_never_migrate(tmp_path: Path, words: tuple[str, ...]) -> None:
    """On an empty store: exit 9, with the command to type; the file is not made."""
    shop = Shop(tmp_path)
    result = shop.call(*words)
    assert result.exit_code == 9, result.output
    assert "makegood store migrate" in result.stderr
    assert not (tmp_path / "kiosk.db").exists()


def test_run_sets_up_an_empty_store_and_drains_on_sigterm(tmp_path: Path) -> None:
    """It says that it started and that it stopped; exit 0."""
    shop = Shop(tmp_path)
    process = shop.serve("run", "kiosk:kiosk")
    assert shop.json("store", "status")["missing"] == []
    code, out, err = shop.stop(process)
    assert code == 0, err
    assert json.loads(out)["event"] == "stopped"
    assert "Traceback" not in err
    (node,) = shop.json("agents", "--all")["nodes"]
    assert node["state"] == "stopped"


def test_with_json_logs_every_line_is_an_object(shop: Shop) -> None:
    """What is told to people when a role starts is an object, too."""
    process = shop.start("scheduler", "--log-format", "json")
    assert process.stderr is not None
    entry = json.loads(process.stderr.readline())
    assert (entry["logger"], entry["level"].lower()) == ("makegood.cli", "info")
    assert entry["message"].startswith("scheduler on sqlite:///")
    code, _, err = shop.stop(process)
    assert code == 0
    assert all(json.loads(line) for line in err.splitlines())


def test_a_process_has_the_name_that_it_was_given_and_its_pid(shop: Shop) -> None:
    """With the pid two of one name are two: a name holds the leader's lease."""
    processes = [shop.serve("scheduler", "--name", "desk"), shop.serve("scheduler", MAKEGOOD_NAME="desk")]
    assert {node["name"] for node in shop.json("agents", "--all")["nodes"]} == {
        f"desk-{process.pid}" for process in processes
    }
    for process in processes:
        assert shop.stop(process)[0] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_orderly_end_is_in_the_log_with_its_reason(shop: Shop, number: signal.Signals) -> None:
    """A log tells it from a kill, as text and as objects."""
    process = shop.serve("scheduler", "--log-format", "json")
    code, _, err = shop.stop(process, number)
    assert code == 0
    events = [json.loads(line) for line in err.splitlines() if '"event"' in line]
    assert [(line["event"], line["reason"], line["roles"]) for line in events] == [
        ("draining", number.name, "scheduler"), ("stopped", number.name, "scheduler"),
    ]  # fmt: skip
    assert events[0]["limit"] == 30.0
    assert events[1]["seconds"] >= 0
    _, _, err = shop.stop(shop.serve("scheduler"), number)
    draining, last = err.splitlines()[-2:]
    assert draining.endswith(f"makegood.node: draining scheduler: {number.name}; what runs has up to 30s")
    assert " makegood.node: stopped scheduler after " in last
    assert last.endswith(f": {number.name}")


def test_ctrl_c_drains_as_well(shop: Shop) -> None:
    """SIGINT is an orderly end too, without a traceback; people are told on stderr what runs, and stdout stays empty."""
    process = shop.start("agent", "kiosk:kiosk", "stock", "till")
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith("makegood: agent (stock, till) on sqlite:///")
    code, out, err = shop.stop(process, signal.SIGINT)
    assert (code, out) == (0, ""), err
    assert "Traceback" not in err


def test_the_roles_work_as_processes_of_their_own(shop: Shop) -> None:
    """Scheduler, agents and supervisor each in a process: an order is processed, each process shows its roles and slots."""
    shop.serve("scheduler")
    shop.serve("agent", "kiosk:kiosk", "stock", "till", "--slots", "2")
    shop.serve("supervisor", "--supervise-every", "1s", **QUICK)
    task = shop.json("task", "submit", "kiosk:buy", '{"id": "o"}', "--wait", "--timeout", "2m")
    assert task["state"] == "processed"
    nodes = {tuple(node["roles"]): node for node in shop.json("agents")["nodes"]}
    assert set(nodes) == {("scheduler",), ("agent",), ("supervisor",)}
    assert {agent["slots"] for agent in nodes["agent",]["agents"]} == {2}
    assert shop.json("leader")["holder"] == nodes["supervisor",]["name"]


def test_an_agent_must_be_declared(shop: Shop) -> None:
    """A usage error that lists those there are; none at all is one too."""
    result = shop.call("agent", "kiosk:kiosk", "carrier")
    assert result.exit_code == 2
    assert "declares no agent 'carrier'; it has stock, till" in result.stderr
    assert shop.call("agent", "kiosk:kiosk").exit_code == 2


def test_supervisor_once_makes_one_pass(shop: Shop) -> None:
    """It judges and goes; the lease is free again."""
    environ = {"MAKEGOOD_SUPERVISE_EVERY": "50ms", "MAKEGOOD_LEASE": "10s"}
    result = shop.call("supervisor", "--once", "--json", **environ)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["led"], report["judged"]) == (True, 0)
    assert shop.json("leader")["holder"] is None
    assert "judged 0 attempts" in shop.call("supervisor", "--once", **environ).stdout


def test_supervisor_once_says_first_for_whom_it_waits(shop: Shop) -> None:
    """Beside one that leads: on stderr, at once, for how long at most; and at the end that there was nothing to do."""

    async def lead() -> None:
        async with mg.Client(shop.url) as client:
            await client.store.leases.acquire(LEASE, "web-7", "nonce", 60.0)

    asyncio.run(lead())
    result = shop.call("supervisor", "--once", MAKEGOOD_SUPERVISE_EVERY="10ms", MAKEGOOD_LEASE="100ms")
    assert result.stdout == "another supervisor leads: nothing to do\n"
    assert result.stderr.splitlines()[0] == "makegood: web-7 leads; waiting up to 150ms for its lease"


def test_settings_reach_the_process(shop: Shop) -> None:
    """A setting that cannot be meant stops the process at its start."""
    result = shop.call("scheduler", MAKEGOOD_DEAD_AFTER="1s", MAKEGOOD_HEARTBEAT="1s")
    assert result.exit_code == 2
    assert "at least twice" in result.stderr
    wrong = shop.call("supervisor", "--supervise-every", "often")
    assert wrong.exit_code == 2
    assert "--supervise-every='often' is not a duration" in wrong.stderr


def test_an_http_clients_lines_do_not_drown_the_others() -> None:
    """From a warning on they are logged; at the finest level all are."""
    chatty = logging.getLogger("httpx")
    before = chatty.level
    try:
        for level, visible in (("info", False), ("debug", True)):
            chatty.setLevel(logging.DEBUG)
            cli = Cli()
            cli.flags["log_level"] = level
            set_up_logs(cli)
            assert chatty.isEnabledFor(logging.INFO) is visible
            assert chatty.isEnabledFor(logging.WARNING)
    finally:
        chatty.setLevel(before)


@pytest.mark.parametrize(("name", "worst"), [("aiormq", logging.ERROR), ("aiokafka", logging.CRITICAL)])
def test_a_broken_connection_to_a_broker_is_one_sentence_and_none_of_its_client(
    name: str, worst: int
) -> None:
    """What is worse is still logged, and at the finest level everything is."""
    client, connection = logging.getLogger(name), logging.getLogger(f"{name}.connection")
    before = client.level
    try:
        for level, visible in (("info", False), ("debug", True)):
            client.setLevel(logging.DEBUG)
            cli = Cli()
            cli.flags["log_level"] = level
            set_up_logs(cli)
            assert connection.isEnabledFor(worst - 1) is visible
            assert connection.isEnabledFor(worst)
    finally:
        client.setLevel(before)
