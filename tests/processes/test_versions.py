"""Processes of an earlier version and of this one work on one store, and are killed: every task ends as it must.

The earlier version comes from the repository's history. It sets the store up and goes on running while this version migrates
it: an upgrade as `docs/operate/upgrade.md` describes it. (Once migrated, the store lets no further process of it start.)
"""

import asyncio
import collections
import json
import os
import signal
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

import makegood as mg
from proofs.private_server import PrivateServer
from tests.processes.conftest import STORES, another_database
from tests.processes.public_names import names
from tests.processes.shop_of_versions import place

ROOT = Path(__file__).parents[2]
EARLIER = "52f4bc4"
ORDERS = 120


@pytest.fixture(scope="session")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the earlier version."""
    packed = subprocess.run(["git", "archive", EARLIER, "src"], cwd=ROOT, capture_output=True, check=False)
    if packed.returncode != 0:
        pytest.skip(
            f"two versions on one store were NOT tested: the history has no {EARLIER} ({packed.stderr.decode()})"
        )
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


INTERNAL = {
    "makegood.App": {"addresses", "find_action", "find_workflow"},
    "makegood.Call": {"traced"},
    "makegood.Client": {
        "act", "act_on", "ask", "beside", "ended", "handle", "may_tell", "means", "new_act", "only_to", "ready", "rested",
        "submit_plans", "waits_for",
    },
    "makegood.Inbox": {"checked", "pause", "prepare", "read"},
    "makegood.Node": {"infos"},
    "makegood.Options": {"poll_seconds"},
    "makegood.TaskHandle": {"look"},
    "makegood.testing.FakeService": {
        "ask_now", "calls", "carried_out", "carry_out", "kind", "spell", "spell_ends", "take_back", "under_way", "undone_by",
    },
}  # fmt: skip
"""What that version showed, and no page named: parts of makegood called it."""


def test_each_public_name_of_that_version_works(earlier: Path) -> None:
    """Under its old form, if it has another one now; and functions take the parameters that they took."""
    environ = {**os.environ, "PYTHONPATH": f"{earlier}{os.pathsep}{ROOT}"}
    told = subprocess.run(
        [sys.executable, "-m", "tests.processes.public_names"],
        cwd="/",
        env=environ,
        capture_output=True,
        check=True,
    )
    had: dict[str, list[str]] = json.loads(told.stdout)
    internal = {f"{name}.{member}" for name, members in INTERNAL.items() for member in members}
    assert internal <= set(had)
    now = names()
    assert not had.keys() - now.keys() - internal
    fewer = {
        name: {*taken} - {*now[name]}
        for name, taken in had.items()
        if name in now and {*taken} - {*now[name]}
    }
    assert not {name: lost for name, lost in fewer.items() if not name.startswith(PASSED_ON)}, fewer


PASSED_ON = ("makegood.SyncClient.submit_many", "makegood.SyncTaskHandle.settle")
"""They hand ``**options`` on to the asynchronous ones."""


class Fleet:
    """Processes of both versions, by name; ``makegood run`` each, with all roles."""

    def __init__(self, url: str, folder: Path, sources: dict[str, Path]) -> None:
        self.url = url
        self.folder = folder
        self.sources = sources
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Start a process, named after its version."""
        version = name.partition("-")[0]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKEGOOD_")}
        environment |= {
            "PYTHONPATH": f"{self.sources[version]}{os.pathsep}{ROOT}", "VERSION": version,
            "EFFECTS": str(self.folder / "effects"), "MAKEGOOD_LIFE": "3s", "MAKEGOOD_EVERY": "0.5s",
        }  # fmt: skip
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "makegood", "--store", self.url, "run", "tests.processes.shop_of_versions:shop"],
                cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

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
    shared: PrivateServer = request.getfixturevalue("shared_server")
    return another_database(shared)


async def test_two_versions_share_a_store_and_each_other_s_tasks(
    url: str, folder: Path, earlier: Path
) -> None:
    """Processes of both are killed in the middle; what they held goes on in the others, whichever version that is."""
    fleet = Fleet(url, folder, {"earlier": earlier, "this": ROOT / "src"})
    try:
        for name in ("earlier-1", "earlier-2"):
            fleet.start(name)
            await _running(fleet, name)
        async with mg.Client(url, migrate=True) as client:
            fleet.start("this-1")
            await _running(fleet, "this-1")
            handles = [await client.submit(place, order, key=str(order)) for order in range(ORDERS)]
            for name, effects in (("earlier-1", 20), ("this-1", 60)):  # of about 220
                await fleet.until(effects)
                fleet.kill(name)
            fleet.start("this-2")
            ends = [await _end(handle) for handle in handles]
        assert all(process.poll() is None for process in fleet.running.values()), fleet.running
    finally:
        fleet.end()
    assert ends == ["undone" if order % 5 == 0 else "processed" for order in range(ORDERS)]
    done = collections.defaultdict[str, set[int]](set)
    for _, what, order, _ in fleet.effects():
        done[what].add(int(order))
    refused = {order for order in range(ORDERS) if order % 5 == 0}
    assert done["charge"] == set(range(ORDERS)) - refused
    assert done["refund"] <= refused  # of a charge that was in doubt when its process was killed
    assert refused <= done["release"] | (set(range(ORDERS)) - done["reserve"])
    assert done["release"] <= refused
    assert {version for version, *_ in fleet.effects()} == {"earlier", "this"}


async def _running(fleet: Fleet, name: str) -> None:
    """Wait until a process says that it runs."""
    log = fleet.folder / f"{name}.log"
    async with asyncio.timeout(60):
        while "drains and stops" not in log.read_text():
            assert fleet.running[name].poll() is None, log.read_text()
            await asyncio.sleep(0.05)


async def _end(handle: mg.TaskHandle[str]) -> str:
    """Return the state that a task ends in."""
    try:
        await handle.result(timeout="2m")
    except mg.TaskUndone:
        return "undone"
    return "processed"
