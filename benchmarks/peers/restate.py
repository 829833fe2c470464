"""Restate under measurement: its server (one node, RocksDB and log in the cell's folder), its Python service behind granian."""

import asyncio
import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks import driving
from benchmarks.peers import helping

_SERVER = "node_modules/@restatedev/restate-server-linux-{}/bin/restate-server"


def program() -> Path:
    """Return the server's program, which npm has put beside this Python."""
    paths = sorted(Path(sys.prefix).glob(_SERVER.format("*")))
    if not paths:
        raise driving.UnableError("npm installed no restate-server for this machine")
    return paths[0]


class Restate(driving.Subject):
    """Restate."""

    durable = "each step's result before the next begins, in the server's log (fsync as it decides); actions in another process"
    places = ("here", "elsewhere")

    def __init__(self, cell: driving.Cell) -> None:
        super().__init__(cell)
        self._processes: list[asyncio.subprocess.Process] = []
        self._session: Any = None
        self._url = ""

    def version(self) -> str:
        """Return the versions of server and SDK."""
        package = program().parents[1] / "package.json"
        server = json.loads(package.read_text(encoding="utf-8"))["version"]
        return f"{server}, SDK {metadata.version('restate-sdk')}"

    async def open(self) -> None:
        """Start the server and the service, and make them known to each other."""
        ingress, admin, node, service = (helping.free_port() for _ in range(4))
        folder = Path(self.cell.folder)
        environment = {
            "DO_NOT_TRACK": "1", "RESTATE_DISABLE_TELEMETRY": "true", "RUST_LOG": "warn",
            "RESTATE_BIND_ADDRESS": f"127.0.0.1:{node}", "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{node}/",
            "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}", "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
        }  # fmt: skip
        server: list[str | Path] = [program(), "--base-dir", folder / "restate", "--node-name", "n1"]
        self._processes.append(
            await helping.started(server, folder / "server.log", ingress, admin, environment=environment)
        )
        granian: list[str | Path] = [
            Path(sys.executable).with_name("granian"), "--interface", "asgi", "--host", "127.0.0.1", "--port", str(service),
            "--http", "2", "--no-access-log", "benchmarks.peers.restate_app:app",
        ]  # fmt: skip
        self._processes.append(
            await helping.started(
                granian, folder / "service.log", service, environment={"RESTATE_CORE_LOG": "error"}
            )
        )
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        await self._register(f"http://127.0.0.1:{admin}", f"http://127.0.0.1:{service}")
        self._url = f"http://127.0.0.1:{ingress}/bench"

    async def _register(self, admin: str, service: str) -> None:
        text = ""
        for _ in range(120):
            try:
                async with self._session.post(f"{admin}/deployments", json={"uri": service}) as answer:
                    if answer.status < 300:
                        return
                    text = await answer.text()
            except aiohttp.ClientError as why:
                text = str(why)
            await asyncio.sleep(0.5)
        raise driving.UnableError(f"its server did not take the service: {text[:200]}")

    async def close(self) -> None:
        """Kill both."""
        if self._session is not None:
            await self._session.close()
        await helping.ended(*self._processes)

    async def task(self, steps: int) -> None:
        """Call the service through the server and wait for the answer."""
        await self._call("chain", steps)

    async def undone(self, steps: int) -> None:
        """As ``task``, with the compensating one."""
        await self._call("failing", steps)

    async def _call(self, name: str, steps: int) -> None:
        async with self._session.post(f"{self._url}/{name}", json=steps) as answer:
            text = await answer.text()
            assert (answer.status, text) == (200, str(steps)), text


if __name__ == "__main__":
    driving.main(Restate)
