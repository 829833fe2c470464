"""Real processes, watched from outside: their numbers add up to the work done, their logs say where and never what."""

import contextlib
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from makegood.telemetry.http_server import MOST_AT_ONCE
from tests.connection_flood import flooding
from tests.doors.conftest import Shop
from tests.telemetry.conftest import Numbers

SECRET = "4111-1111-1111-1111"
ENVIRON = {
    "MAKEGOOD_LISTEN": "127.0.0.1:0",
    "MAKEGOOD_SUPERVISE_EVERY": "100ms",
    "MAKEGOOD_LEASE": "10s",
    "MAKEGOOD_HEARTBEAT": "100ms",
}


class Served:
    """A process that runs roles and listens."""

    def __init__(self, shop: Shop, *words: str, **environ: str) -> None:
        self.process: Popen[str] = shop.start(*words, "--json", **ENVIRON, **environ)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate(timeout=120)[1]
        self.address = json.loads(line)["listen"]

    def get(self, path: str) -> tuple[int, str]:
        """Return status and text of a page."""
        try:
            with urllib.request.urlopen(f"{self.address}{path}", timeout=60) as page:  # noqa: S310 - our own http
                return page.status, page.read().decode()
        except urllib.error.HTTPError as answer:
            with answer:
                return answer.code, answer.read().decode()

    def numbers(self) -> Numbers:
        """Return its metrics."""
        status, text = self.get("/metrics")
        assert status == 200, text
        return Numbers(text)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A shop whose store is set up and where nothing runs; the leaky app is there, too."""
    new_shop = Shop(tmp_path)
    (tmp_path / "leaky.py").write_text(
        (Path(__file__).parent / "secrets_app.py").read_text(encoding="utf-8"), encoding="utf-8"
    )
    assert new_shop.call("store", "migrate").exit_code == 0
    yield new_shop
    new_shop.close()


def probed(role: Served) -> tuple[int, str]:
    """Ask /livez as Kubernetes does: three failures in a row count, not one.

    On a loaded machine more of the flood than there is room for may arrive between a probe's connection and its request; then
    the probe's is the oldest silent connection, and is closed.
    """
    for _ in range(2):
        with contextlib.suppress(http.client.RemoteDisconnected, ConnectionResetError):
            return role.get("/livez")
    return role.get("/livez")


@pytest.mark.parametrize("says", [b"", b"G"])
def test_a_flood_of_silent_connections_costs_a_process_neither_probes_nor_files(
    shop: Shop, says: bytes
) -> None:
    """On the event loop that roles have: every probe is answered, a task is done meanwhile, and few files are open."""
    role = Served(shop, "run", "kiosk:kiosk")
    files = Path(f"/proc/{role.process.pid}/fd")
    before = len(list(files.iterdir()))
    with flooding(role.address, says) as under_way:
        assert under_way.wait(120)
        assert [probed(role) for _ in range(40)] == [(200, "ok\n")] * 40
        assert len(list(files.iterdir())) < before + MOST_AT_ONCE + 100
        shop.done("task", "submit", "kiosk:buy", '{"id": "o"}', "--wait", "--timeout", "2m")
    assert role.get("/readyz") == (200, "ok\n")


def test_every_role_answers_and_their_numbers_add_up_to_the_work_done(shop: Shop) -> None:
    """Each role as a process of its own: each part of the work is counted where it was done, once."""
    scheduler = Served(shop, "scheduler")
    agent = Served(shop, "agent", "kiosk:kiosk", "stock", "till")
    supervisor = Served(shop, "supervisor")
    inbox = Served(shop, "inbox", "kiosk:kiosk")
    for n in range(3):
        shop.done("task", "submit", "kiosk:buy", json.dumps({"id": f"o{n}"}), "--key", f"o{n}")
    for n in range(3):
        shop.done(
            "task",
            "submit",
            "kiosk:buy",
            json.dumps({"id": f"o{n}"}),
            "--key",
            f"o{n}",
            "--wait",
            "--timeout",
            "2m",
        )
    refusal = shop.call(
        "task", "submit", "kiosk:buy", '{"id": "no", "card": "declined"}', "--wait", "--timeout", "2m"
    )
    assert refusal.exit_code == 5
    roles = (scheduler, agent, supervisor, inbox)
    for role in roles:
        assert [role.get(path) for path in ("/livez", "/readyz", "/startupz")] == [(200, "ok\n")] * 3
    by_role = [role.numbers() for role in roles]
    assert by_role[0].table("makegood_tasks_total", "app", "workflow", "outcome") == {
        ("kiosk", "buy", "processed"): 3,
        ("kiosk", "buy", "undone"): 1,
    }
    attempts = by_role[0].table("makegood_step_attempts_total", "agent", "step", "outcome")
    assert attempts == {
        ("stock", "reserve", "ok"): 5,  # four, and one undo
        ("till", "charge", "ok"): 3,
        ("till", "charge", "permanent"): 1,
        ("till", "print_receipt", "ok"): 3,
    }
    durations = by_role[1].table("makegood_step_duration_seconds_count", "agent", "step", "doing")
    assert durations["till", "charge", "do"] == 4
    assert durations["stock", "reserve", "undo"] == 1
    assert by_role[1]("makegood_step_schedule_to_start_seconds_count") == sum(attempts.values())
    assert by_role[1]("makegood_commit_batch_size_sum", op="answer") == sum(attempts.values())
    while not supervisor.numbers()(
        "makegood_leader"
    ):  # it leads again soon if the machine kept it from renewing its lease
        pass
    assert [numbers("makegood_leader") is None for numbers in by_role] == [True, True, False, True]
    assert by_role[2]("makegood_tasks") is None  # nothing is unended
    assert by_role[1]("makegood_tasks_total") is None


def test_run_tells_people_where_it_listens_and_refuses_where_it_cannot(shop: Shop) -> None:
    first = Served(shop, "run", "kiosk:kiosk")
    listen = first.address.removeprefix("http://")
    second = shop.call("run", "kiosk:kiosk", "--listen", listen)
    assert second.exit_code == 2
    assert f"listen='{listen}': this process cannot listen there" in second.stderr
    assert "Traceback" not in second.stderr
    third = shop.start("supervisor", "--listen", "127.0.0.1:0")
    assert third.stderr is not None
    lines = [third.stderr.readline() for _ in range(2)]
    assert any("listens on http://127.0.0.1:" in line for line in lines), lines
    assert any("; probes and metrics on http://127.0.0.1:" in line for line in lines), lines
    code, _, err = shop.stop(first.process)
    assert code == 0, err


def test_logs_say_which_task_step_and_attempt_and_never_a_payload(shop: Shop) -> None:
    """Every way in which a step can go wrong, at the finest level, as JSON: fields are there, the secret is not."""
    node = Served(
        shop,
        "run",
        "leaky:app",
        "--log-format",
        "json",
        MAKEGOOD_LOG_LEVEL="debug",
        MAKEGOOD_ALERTS_EVERY="100ms",
    )
    tasks = {}
    for how in ("fine", "down", "odd", "unfit", "stuck"):
        order = json.dumps({"secret": SECRET, "how": how})
        submission = shop.call("task", "submit", "leaky:buy", order, "--wait", "--timeout", "2m", "--json")
        tasks[how] = json.loads(submission.stdout)["id"]
    assert node.process.stderr is not None
    lines: list[dict[str, Any]] = []
    while not lines or (lines[-1]["logger"], lines[-1].get("task")) != ("makegood.alerts", tasks["stuck"]):
        lines.append(json.loads(node.process.stderr.readline()))
    code, _, err = shop.stop(node.process)
    assert code == 0
    lines += [json.loads(line) for line in err.splitlines()]
    assert SECRET not in json.dumps(lines)
    assert len(json.dumps(lines)) < 40_000  # the pipe is not read before
    inside = [line for line in lines if line["logger"] == "leaky" and line["message"] == "charging"]
    assert [(line["step"], line["attempt"]) for line in inside if line["task"] == tasks["down"]] == [
        ("charge", 1),
        ("charge", 2),
        ("charge", 3),
    ]
    gave_up = [
        line for line in lines if line["logger"] == "makegood.agent" and line.get("task") == tasks["down"]
    ]
    assert {(line["step"], line["attempt"]) for line in gave_up} >= {
        ("charge", 1),
        ("charge", 2),
        ("charge", 3),
    }
