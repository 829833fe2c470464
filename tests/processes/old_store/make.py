"""``python -m tests.processes.old_store.make``: has 52f4bc4 write a store, and keeps it here as SQL.

The sources come from the repository's history. The store has tasks that are pending, waiting, undone, in the
hands of an operator and held by a process that was killed; queues with messages; alerts.
"""

import asyncio
import os
import re
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import makegood as mg

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
EARLIER = "52f4bc4"
QUICK: dict[str, Any] = {
    "heartbeat": "100ms",
    "life": "1s",
    "every": "100ms",
    "grace": "100ms",
    "lease": "2s",
    "poll": "50ms",
}
ENDS = {
    "processed-1": "processed", "undone-1": "undone", "held-1": "error", "held-2": "error", "stuck-1": "error",
    "doubtful-1": "error",
}  # fmt: skip


async def write(url: str) -> None:
    """Fill a store; the last task kills this process."""
    from tests.processes.old_store.desk import sell, sell_or_ask, shop  # noqa: PLC0415 - of the version that writes

    node = mg.Node(
        shop, url, roles=("scheduler", "agent", "supervisor"), options=mg.Options(**QUICK, migrate=True)
    )
    async with node, mg.Client(url) as client:
        for order, state in ENDS.items():
            workflow = sell_or_ask if order.startswith(("held", "doubtful")) else sell
            task = await client.submit(workflow, order, key=order, reply_to="queue:web", correlation_id=order)
            assert (await task.wait("60s")).state == state
        held = next(alert for alert in await client.alerts() if alert.kind == "held")
        await client.acknowledge(held.id, who="ann", why="seen")
        web = client.queue("web", lease="1s")
        await web.acknowledge(*(await web.receive(2)))
        await web.give_back(*(await web.receive(1)), error="not mine", dead=True)
        await client.send("orders", "sent-1", id="sent-1")
        await client.send("orders", "sent-2", id="sent-2")
        await client.queue("orders", lease="1s").receive(1)
        await client.submit(sell, "waiting-1", key="waiting-1")
        await asyncio.sleep(1.0)
        await client.submit(sell, "killed-1", key="killed-1")
        await asyncio.sleep(60.0)


async def add(url: str) -> None:
    """Submit what nobody claims."""
    from tests.processes.old_store.desk import sell  # noqa: PLC0415 - of the version that writes

    async with mg.Client(url) as client:
        await client.submit(sell, "pending-1", key="pending-1", priority=7)


@contextmanager
def sources() -> Iterator[Path]:
    """Provide the sources of the earlier version."""
    packed = subprocess.run(
        ["git", "archive", EARLIER, "src"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
        yield Path(folder) / "src"


def written(url: str, src: Path) -> None:
    """Let the earlier version write a store."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKEGOOD_")}
    environ |= {"CASE": "written", "PYTHONPATH": f"{src}{os.pathsep}{ROOT}"}
    for phase, code in (("write", 9), ("add", 0)):
        done = subprocess.run([sys.executable, __file__, phase, url], env=environ, check=False)
        if done.returncode != code:
            raise SystemExit(f"{phase} ended with {done.returncode}")


def main() -> None:
    """Write both stores."""
    from proofs.private_server import PrivateServer  # noqa: PLC0415 - not there for the earlier version

    with sources() as src, tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "store.db"
        written(f"sqlite:///{file}", src)
        with sqlite3.connect(file) as db:
            (HERE / "sqlite.sql").write_text("\n".join(db.iterdump()) + "\n", encoding="utf-8")
        server = PrivateServer()
        server.start()
        try:
            url = server.create_database("old")
            written(url, src)
            dumped = subprocess.run(
                ["pg_dump", "--no-owner", "--no-privileges", "--inserts", "--rows-per-insert=100", "--schema=makegood", url],
                capture_output=True, text=True, check=True,
            ).stdout  # fmt: skip
        finally:
            server.discard()
    kept = re.sub(r"^(--.*|\\.*|SET .*|SELECT pg_catalog\.set_config.*|)\n", "", dumped, flags=re.MULTILINE)
    (HERE / "postgres.sql").write_text(kept, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        asyncio.run({"write": write, "add": add}[sys.argv[1]](sys.argv[2]))
    else:
        main()
