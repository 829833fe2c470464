"""A store that 52f4bc4 wrote is opened, run and operated by this version: `old_store/make.py` made it.

Policies, kinds of alerts and names of columns are in it as that version wrote them.
"""

import asyncio
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import click.testing
import pytest

import makegood as mg
from makegood.cli import main
from proofs.private_server import PrivateServer
from tests.processes.conftest import STORES, another_database
from tests.processes.old_store.desk import shop
from tests.processes.old_store.make import EARLIER, ENDS, HERE, ROOT

QUICK = mg.Options(
    heartbeat="100ms",
    dead_after="1s",
    supervise_every="100ms",
    late_after="100ms",
    lease="2s",
    poll_every="100ms",
)
LAST = {
    "processed-1": "undone", "undone-1": "processed", "held-1": "processed", "held-2": "undone", "stuck-1": "undone",
    "doubtful-1": "processed",
}  # fmt: skip
"""The last state of which each submitter is notified."""


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, folder: Path) -> str:
    """The store, as that version left it."""
    text = (HERE / f"{request.param}.sql").read_text(encoding="utf-8")
    if request.param == "sqlite":
        with sqlite3.connect(folder / "store.db") as db:
            db.executescript(text)
        db.close()
        return f"sqlite:///{folder}/store.db"
    server: PrivateServer = request.getfixturevalue("shared_server")
    made = another_database(server)
    server.run(text, made.rpartition("/")[2].partition("?")[0])
    return made


async def found(client: mg.Client) -> dict[str, mg.TaskView]:
    """Return the tasks by their keys."""
    return {str(task.key): task for task in await client.find(mg.Filter())}


async def test_what_it_holds_is_read(url: str) -> None:
    """PostgreSQL notices that the server is another one than that which wrote it, and frees the tasks under way."""
    moved = url.startswith("postgresql")
    async with mg.Client(url, migrate=True) as client:
        tasks = await found(client)
        assert {key: task.state for key, task in tasks.items()} == {
            **ENDS, "pending-1": "pending", **dict.fromkeys(("waiting-1", "killed-1"), "pending" if moved else "processing"),
        }  # fmt: skip
        step = (await client.task(tasks["doubtful-1"].id).status()).steps[1]
        assert (step.state, step.failures) == ("in_doubt", 2)
        keys = {task.id: key for key, task in tasks.items()}
        alerts = [alert for alert in await client.alerts() if alert.kind != "generation"]
        assert {(alert.kind, keys.get(alert.task or 0)) for alert in alerts} == {
            ("dead_letter", None), ("held", "doubtful-1"), ("held", "held-1"), ("held", "held-2"),
            ("step_failed", "doubtful-1"), ("undo_incomplete", "stuck-1"), ("undo_stuck", "stuck-1"),
        }  # fmt: skip
        (seen,) = [alert for alert in alerts if alert.acked is not None]
        assert (seen.kind, seen.acked_by, seen.acked_why) == ("held", "ann", "seen")
        queues = {view.queue: (view.waiting, view.dead) for view in await client.queues()}
        assert queues == {"orders": (2, 0), "web": (17, 1)}


async def test_what_it_holds_continues_and_obeys(url: str) -> None:
    """What is unfinished ends by itself; an operator ends the rest; messages become tasks; notices arrive in order."""
    async with mg.Node(shop, url, options=QUICK) as node:
        client = node.client
        tasks = {key: client.task(task.id) for key, task in (await found(client)).items()}
        for key in ("pending-1", "waiting-1", "killed-1"):
            assert await tasks[key].result(timeout="60s") == f"paid {key}"
        for key in ("held-1", "undone-1"):
            assert (await tasks[key].resubmit(why="another card")).verdict == "applied"
            assert await tasks[key].result(timeout="60s") == f"paid {key}"
        await tasks["held-2"].undo(why="no")
        await tasks["stuck-1"].settle("reserve", outcome="undone", why="put back by hand")
        await tasks["processed-1"].undo(why="returned")
        await tasks["doubtful-1"].settle(
            "charge", outcome="done", value="paid by hand", why="the bank's list"
        )
        for key in ("held-2", "stuck-1", "processed-1"):
            with pytest.raises(mg.TaskUndone):
                await tasks[key].result(timeout="60s")
        assert await tasks["doubtful-1"].result(timeout="60s") == "paid by hand"

        web = client.queue("web", lease="30s")
        assert len(await client.replay_messages("web")) == 1
        states: dict[str, list[str]] = {}
        while len(states) < len(ENDS) or any(states[key][-1] != end for key, end in LAST.items()):
            for message in await web.receive(5, timeout="30s"):
                assert await web.extend(message, lease="1m")
                states.setdefault(message.correlation_id or "", []).append(message.value["data"]["state"])
                assert await web.acknowledge(message)
        for order in ("sent-1", "sent-2"):
            while not (sent := await client.find(mg.Filter(key=order))):  # noqa: ASYNC110 - others write it
                await asyncio.sleep(0.05)
            assert await client.task(sent[0].id).result(timeout="60s") == f"paid {order}"
        assert not [alert for alert in await client.alerts() if alert.open and alert.kind != "generation"]


@pytest.mark.parametrize("store", STORES)
def test_it_is_that_version_s(store: str) -> None:
    """The migrations that it has are those of that commit: none is missing, and no later one was applied."""
    folder = f"src/makegood/store/migrations/{store}/"
    listed = subprocess.run(
        ["git", "ls-tree", "--name-only", EARLIER, folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip(f"the store of {EARLIER} was NOT compared with its sources: {listed.stderr.strip()}")
    had = {Path(line).stem for line in listed.stdout.split() if line.endswith(".sql")}
    assert had
    assert set(re.findall(r"'(\d{4}_\w+)'", (HERE / f"{store}.sql").read_text(encoding="utf-8"))) == had


class Desk:
    """The command line on that store, and one process that runs its shop, both with the settings' old names."""

    OLD: ClassVar[dict[str, str]] = {
        "MAKEGOOD_HEARTBEAT": "100ms", "MAKEGOOD_LIFE": "1s", "MAKEGOOD_EVERY": "100ms", "MAKEGOOD_GRACE": "100ms",
        "MAKEGOOD_LEASE": "2s", "MAKEGOOD_POLL": "100ms",
    }  # fmt: skip

    def __init__(self, url: str, folder: Path) -> None:
        self.environ = {**self.OLD, "MAKEGOOD_STORE": url}
        self.log = folder / "run.log"

    def call(self, *words: str, code: int = 0) -> str:
        """Run a command; return its stdout."""
        done = click.testing.CliRunner(env=self.environ).invoke(main, list(words))
        assert done.exit_code == code, done.output
        return done.stdout

    def json(self, *words: str, code: int = 0) -> Any:
        """Run a command with --json; return what it writes."""
        return json.loads(self.call(*words, "--json", code=code))

    def run(self) -> subprocess.Popen[bytes]:
        """Start the process."""
        bare = {name: value for name, value in os.environ.items() if not name.startswith("MAKEGOOD_")}
        with self.log.open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "makegood", "run", "tests.processes.old_store.desk:shop"],
                cwd=ROOT, env=bare | self.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip


@pytest.fixture
def desk(url: str, folder: Path) -> Iterator[Desk]:
    """The migrated store, and its process."""
    desk = Desk(url, folder)
    desk.call("task", "list", code=9)
    desk.call("store", "migrate")
    process = desk.run()
    try:
        yield desk
    finally:
        process.terminate()
        process.wait(30)


def test_the_command_line_operates_it(desk: Desk) -> None:
    """Every operator command, queues and alerts, under old and new names of options; then nothing is wrong."""
    tasks = {task["key"]: task["id"] for task in desk.json("task", "list")}
    for key in ("pending-1", "waiting-1", "killed-1"):
        assert f"paid {key}" in desk.call("task", "watch", tasks[key], "--timeout", "1m")
    (held,) = [alert for alert in desk.json("alerts", "--task", tasks["held-2"]) if alert["kind"] == "held"]
    desk.call("alerts", "--ack", str(held["id"]), "--why", "I call them", "--who", "ben")
    kinds = {line.split()[3] for line in desk.call("alerts", "--task", tasks["doubtful-1"]).splitlines()[1:]}
    assert kinds == {"step_gave_up", "held"}
    assert {alert["kind"] for alert in desk.json("alerts", "--task", tasks["doubtful-1"])} == {
        "step_failed",
        "held",
    }

    desk.call("task", "cancel", tasks["held-2"], "--reason", "no", "--wait")
    desk.call("task", "resubmit", tasks["held-1"], tasks["undone-1"], "--why", "another card", "--wait")
    desk.call("task", "undo", tasks["processed-1"], "--reason", "returned", "--wait")
    desk.call(
        "task", "settle", tasks["stuck-1"], "--step", "reserve", "--undone", "--reason", "put back by hand"
    )
    desk.call(
        "task",
        "settle",
        tasks["doubtful-1"],
        "--step",
        "charge",
        "--done",
        '"by hand"',
        "--reason",
        "the bank's list",
    )
    shown = {key: desk.json("task", "show", task)["state"] for key, task in tasks.items()}
    assert shown == {
        **LAST, "held-1": "processed", "pending-1": "processed", "waiting-1": "processed", "killed-1": "processed",
    }  # fmt: skip

    (dead,) = desk.json("queue", "list", "web", "--dead")
    desk.call("queue", "replay", "web", dead["id"], "--why", "it was mine")
    received = desk.call("queue", "receive", "web", "--max", "3", "--json").splitlines()
    assert len(received) == 3
    assert desk.json("notices", "list") == []
    acts = {act["kind"] for act in desk.json("audit")}
    assert acts >= {"cancel", "undo", "resubmit", "settle", "replay_message", "acknowledge"}
    assert desk.call("store", "check") == "nothing found: the store is intact\n"
    desk.call("doctor")
    assert desk.log.read_text().count("MAKEGOOD_LIFE is called MAKEGOOD_DEAD_AFTER now") == 1
