"""Processes of this version and of the next one work on one store, and are killed: every task ends as it must.

There is no next version yet, so the test makes one: this version with one more migration, and with a field more in each
record that is stored. This version sets the store up and goes on running while the next one migrates it: an upgrade as
`docs/operate/upgrade.md` describes it. (Once migrated, the store lets no further process of this version start.)
"""

import ast
import asyncio
import collections
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import makegood as mg
from proofs.private_server import PrivateServer
from tests.processes.conftest import STORES, another_database
from tests.processes.shop_of_versions import place
from tests.processes.store_rows import rows

ROOT = Path(__file__).parents[2]
APP = "tests.processes.shop_of_versions:shop"
ORDERS = 120
"""Half of them are submitted by each version."""

EXPAND = {
    "sqlite": """
alter table makegood_task add column next text;
alter table makegood_step add column next integer not null default 0;
alter table makegood_request add column next integer not null default 0;
alter table makegood_event add column next text;
create table makegood_next (id integer primary key);
""",
    "postgres": """
alter table makegood.task add column next text;
alter table makegood.step add column next integer not null default 0;
alter table makegood.request add column next integer not null default 0;
alter table makegood.event add column next text;
create table makegood.next (id bigint primary key);
""",
}
"""The migration of the next version: it adds, and removes nothing."""

RECORDS = {
    "model/policy.py": "Policy",
    "model/plan.py": "StepPlan",
    "model/attempt_end.py": "AttemptEnd",
    "model/messages.py": "Request",
    "store/rows.py": "Static",
    "store/views.py": "NodeInfo",
}
"""Records that are stored, by their file; the next version has one field more in each, behind the last, and writes it."""
FIELD = '    next: str = msgspec.field(default_factory=lambda: "next")\n'


def with_field(text: str, record: str) -> str:
    """Return a module with ``FIELD`` behind the last field of a class: records are also made by position."""
    (body,) = [
        node.body for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == record
    ]
    last = max(n for n, node in enumerate(body) if isinstance(node, ast.AnnAssign))
    has_docstring = last + 1 < len(body) and isinstance(body[last + 1], ast.Expr)
    lines = text.splitlines(keepends=True)
    lines.insert(body[last + has_docstring].end_lineno or 0, FIELD)
    longer = "".join(lines)
    return longer if "import msgspec\n" in longer else longer.replace("\nfrom ", "\nimport msgspec\nfrom ", 1)


@pytest.fixture(scope="session")
def following(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the next version."""
    source = tmp_path_factory.mktemp("next") / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    for dialect, sql in EXPAND.items():
        folder = source / "makegood/store/migrations" / dialect
        (folder / f"{len([*folder.glob('*.sql')]) + 1:04}_next.sql").write_text(sql, encoding="utf-8")
    for name, record in RECORDS.items():
        file = source / "makegood" / name
        file.write_text(with_field(file.read_text(encoding="utf-8"), record), encoding="utf-8")
    return source


class Fleet:
    """Processes of both versions, by name; ``makegood run`` each, with all roles."""

    def __init__(self, url: str, folder: Path, sources: dict[str, Path]) -> None:
        self.url = url
        self.folder = folder
        self.sources = sources
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Start a process, named after its version."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "makegood", "run", APP],
                cwd=self.folder, env=self._environment(name.partition("-")[0]), stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT,
            )  # fmt: skip

    def call(self, version: str, *words: str, code: int = 0) -> str:
        """Run Python to its end; return what it wrote."""
        process = subprocess.run(
            [sys.executable, *words], cwd=self.folder, env=self._environment(version), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        assert process.returncode == code, process.stdout
        return process.stdout

    def _environment(self, version: str) -> dict[str, str]:
        bare = {name: value for name, value in os.environ.items() if not name.startswith("MAKEGOOD_")}
        return bare | {
            "PYTHONPATH": f"{self.sources[version]}{os.pathsep}{ROOT}", "VERSION": version, "MAKEGOOD_STORE": self.url,
            "EFFECTS": str(self.folder / "effects"), "MAKEGOOD_DEAD_AFTER": "10m", "MAKEGOOD_SUPERVISE_EVERY": "0.5s",
        }  # fmt: skip

    def kill(self, name: str) -> None:
        """Kill a process with SIGKILL."""
        process = self.running.pop(name)
        assert process.poll() is None, (self.folder / f"{name}.log").read_text()
        process.send_signal(signal.SIGKILL)
        process.wait()

    def end(self) -> None:
        """Kill what is left."""
        for version in list(self.running):
            process = self.running.pop(version)
            process.kill()
            process.wait()

    def effects(self) -> list[list[str]]:
        """Return the effects so far: version, what, order, attempt."""
        file = self.folder / "effects"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    async def until(self, effects: int) -> None:
        """Wait for so many effects."""
        async with asyncio.timeout(120):
            while len(self.effects()) < effects:  # noqa: ASYNC110 - other processes write them
                await asyncio.sleep(0.05)


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, folder: Path) -> str:
    """An empty store."""
    if request.param == "sqlite":
        return f"sqlite:///{folder}/store.db"
    private_server: PrivateServer = request.getfixturevalue("shared_server")
    return another_database(private_server)


SUBMIT = f"""
import sys
import makegood as mg
from tests.processes.shop_of_versions import place
with mg.SyncClient(sys.argv[1]) as client:
    list(client.submit_many([place.plan(order).with_(key=str(order)) for order in range(1, {ORDERS}, 2)]))
"""
"""What a customer of the next version does: submits the odd orders."""


async def test_two_versions_share_a_store_and_each_other_s_tasks(
    url: str, folder: Path, following: Path
) -> None:
    """Processes of both are killed in the middle; what they held goes on in the others, whichever version that is."""
    fleet = Fleet(url, folder, {"this": ROOT / "src", "next": following})
    try:
        for name in ("this-1", "this-2"):
            fleet.start(name)
            await _running(fleet, name)
        async with mg.Client(url) as client:
            fleet.call("next", "-m", "makegood", "store", "migrate")
            late = fleet.call("this", "-m", "makegood", "run", APP, code=9)
            assert "install the newer makegood" in late
            fleet.start("next-1")
            await _running(fleet, "next-1")
            fleet.call("next", "-c", SUBMIT, url)
            handles = [client.task(view.id) for view in await client.find(mg.Filter(limit=ORDERS))]
            handles += [await client.submit(place, order, key=str(order)) for order in range(0, ORDERS, 2)]
            orders = {handle.number: int((await handle.status()).task.key or 0) for handle in handles}
            assert sorted(orders.values()) == [*range(ORDERS)]
            for name, effects in (("this-1", 20), ("next-1", 60)):  # of about 220
                await fleet.until(effects)
                fleet.kill(name)
            fleet.start("next-2")
            ends = {orders[handle.number]: await _end(handle) for handle in handles}
        assert all(process.poll() is None for process in fleet.running.values()), fleet.running
    finally:
        fleet.end()
    assert ends == {order: "undone" if order % 5 == 0 else "processed" for order in range(ORDERS)}
    marks = collections.defaultdict[str, set[int]](set)
    for _, what, order, _ in fleet.effects():
        marks[what].add(int(order))
    refusals = {order for order in range(ORDERS) if order % 5 == 0}
    assert marks["charge"] == set(range(ORDERS)) - refusals
    assert marks["refund"] <= refusals  # of a charge that was in doubt when its process was killed
    assert refusals <= marks["release"] | (set(range(ORDERS)) - marks["reserve"])
    assert marks["release"] <= refusals
    assert {version for version, *_ in fleet.effects()} == {"this", "next"}
    by_next = [row for row in await rows(url, "step") if b'"next":"next"' in bytes(row["spec"])]
    assert {orders[row["task"]] for row in by_next} == set(range(1, ORDERS, 2))


async def _running(fleet: Fleet, name: str) -> None:
    """Wait until a process says that it runs."""
    log = fleet.folder / f"{name}.log"
    async with asyncio.timeout(120):
        while "drains and stops" not in log.read_text():
            assert fleet.running[name].poll() is None, log.read_text()
            await asyncio.sleep(0.05)


async def _end(handle: mg.TaskHandle[str]) -> str:
    """Return the state that a task ends in."""
    try:
        await handle.result(timeout="4m")
    except mg.TaskUndone:
        return "undone"
    return "processed"
