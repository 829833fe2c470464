"""Restate for ``benchmarks.deaths``: a service of one step; its process is killed and started again, the server lives on.

The process that ``benchmarks.deaths`` starts is a driver: the first one starts the server, in a session of its own, and the service,
and calls it; the second one starts the service alone.
"""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import aiohttp
import restate

from benchmarks.peers import helping
from benchmarks.peers.restate import program

LONG = 600.0
FOLDER = "MAKEGOOD_BENCH_FOLDER"
service = restate.Service("deaths")


async def work() -> None:
    """Note the beginning; the first time, take long."""
    if begin():
        await asyncio.sleep(LONG)


def begin() -> bool:
    """Note that the step begins; return whether it is the first time."""
    file = Path(os.environ[FOLDER], "begun")
    with file.open("a", encoding="utf-8") as notes:
        notes.write(f"{os.getpid()} {time.monotonic()}\n")
    return len(file.read_text(encoding="utf-8").splitlines()) == 1


@service.handler()
async def once(context: restate.Context) -> None:
    """One step."""
    await context.run_typed("work", work)


app = restate.app([service])


def serve(folder: Path, environment: dict[str, str]) -> None:
    """Start the server in a session of its own, and note its number."""
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [program(), "--base-dir", folder / "restate", "--node-name", "n1"],
            stdout=log, stderr=log, env={**os.environ, **environment}, start_new_session=True,
        )  # fmt: skip
    (folder / "server.pid").write_text(str(server.pid), encoding="utf-8")


async def drive(folder: Path, *, is_first: bool) -> None:
    """Start what is to be started; the first time, call the service."""
    ports = folder / "ports"
    if is_first:
        ports.write_text(" ".join(str(helping.free_port()) for _ in range(4)), encoding="utf-8")
    ingress, admin, node, port = map(int, ports.read_text(encoding="utf-8").split())
    if is_first:
        environment = {
            "DO_NOT_TRACK": "1", "RESTATE_DISABLE_TELEMETRY": "true", "RUST_LOG": "warn",
            "RESTATE_BIND_ADDRESS": f"127.0.0.1:{node}", "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{node}/",
            "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}", "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
        }  # fmt: skip
        serve(folder, environment)
    granian: list[str | Path] = [
        Path(sys.executable).with_name("granian"), "--interface", "asgi", "--host", "127.0.0.1", "--port", str(port),
        "--http", "2", "--no-access-log", "benchmarks.peers.deaths_restate:app",
    ]  # fmt: skip
    await helping.started(
        granian, folder / "service.log", port, environment={FOLDER: str(folder), "RESTATE_CORE_LOG": "error"}
    )
    if is_first:
        async with aiohttp.ClientSession() as session:
            await register(session, f"http://127.0.0.1:{admin}", f"http://127.0.0.1:{port}")
            url = f"http://127.0.0.1:{ingress}/deaths/once/send"
            async with session.post(url, skip_auto_headers=["Content-Type"]) as answer:  # it takes no input
                answer.raise_for_status()
    print("ready", flush=True)
    await asyncio.sleep(LONG)


async def register(session: aiohttp.ClientSession, admin: str, uri: str) -> None:
    """Make the service known to the server, once that listens."""
    for _ in range(120):
        try:
            async with session.post(f"{admin}/deployments", json={"uri": uri}) as answer:
                if answer.status < 300:
                    return
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.25)
    raise SystemExit("the server did not take the service")


if __name__ == "__main__":
    asyncio.run(drive(Path(sys.argv[1]), is_first=sys.argv[2] == "first"))
