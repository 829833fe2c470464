"""As much of a Kubernetes API server as leases need: a real socket, JSON, ``resourceVersion`` honoured, what it would refuse refused.

A cluster cannot be had in tests. After the API conventions: an update with another ``resourceVersion`` than the present one is a 409
"Conflict", a second create a 409 "AlreadyExists"; versions are opaque, and never come again, not even after a deletion.
"""

import asyncio
import json
import re
import ssl
from types import TracebackType
from typing import Any, Self

PATH = re.compile(r"/apis/coordination\.k8s\.io/v1/namespaces/(?P<space>[^/]+)/leases(?:/(?P<name>[^/]+))?")
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


class Refusal(Exception):  # noqa: N818 - an answer, not a fault
    """An answer other than the object."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = {
            "kind": "Status",
            "status": "Failure",
            "code": status,
            "reason": reason,
            "message": message,
        }


class ApiServer:
    """Listens on 127.0.0.1. ``token``: what a bearer must show, "" for nothing; ``objects`` by namespace and name."""

    def __init__(self, *, token: str = "", tls: ssl.SSLContext | None = None) -> None:
        self.token = token
        self.port = 0
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.namespaces = {"jobs"}
        self._tls = tls
        self._version = 1000
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        """What ``open_leases`` takes, as through ``kubectl proxy``."""
        return f"kubernetes://127.0.0.1:{self.port}/jobs"

    async def __aenter__(self) -> Self:
        """Listen, on the port that it had before if there was one."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop; the objects stay."""
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                method, path, _ = head[0].split(" ")
                headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                try:
                    if self.token and headers.get("authorization") != f"bearer {self.token.lower()}":
                        raise Refusal(401, "Unauthorized", "Unauthorized")  # noqa: TRY301 - an answer like the others
                    status, document = self._answer(method, path, json.loads(body or b"{}"))
                except Refusal as refusal:
                    status, document = refusal.status, refusal.body
                data = json.dumps(document).encode()
                writer.write(
                    b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
                    % (status, len(data))
                )
                writer.write(data)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    def _answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        match = PATH.fullmatch(path)
        if match is None:
            raise Refusal(404, "", "404 page not found")
        space, name = match["space"], match["name"] or body.get("metadata", {}).get("name", "")
        if space not in self.namespaces and method == "POST":
            raise Refusal(404, "NotFound", f'namespaces "{space}" not found')
        lease = self.objects.get((space, name))
        if method == "POST":
            if lease is not None:
                raise Refusal(409, "AlreadyExists", f'leases.coordination.k8s.io "{name}" already exists')
            return 201, self._kept(space, name, body)
        if lease is None:
            raise Refusal(404, "NotFound", f'leases.coordination.k8s.io "{name}" not found')
        if method == "PUT":
            if body["metadata"].get("resourceVersion") != lease["metadata"]["resourceVersion"]:
                raise Refusal(
                    409,
                    "Conflict",
                    "the object has been modified; please apply your changes to the latest version",
                )
            return 200, self._kept(space, name, body)
        return 200, lease

    def _kept(self, space: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
        spec, meta = body["spec"], body["metadata"]
        lawful = (
            NAME.fullmatch(name) and meta["name"] == name and meta.get("namespace", space) == space
            and body["kind"] == "Lease" and spec["leaseDurationSeconds"] >= 1 and spec["leaseTransitions"] >= 0
            and isinstance(spec["holderIdentity"], str) and all(TIME.fullmatch(spec[k]) for k in ("acquireTime", "renewTime"))
        )  # fmt: skip
        if not lawful:
            raise Refusal(422, "Invalid", f"the Lease {name!r} is invalid")
        self._version += 7
        lease = {**body, "metadata": {**meta, "namespace": space, "resourceVersion": str(self._version)}}
        self.objects[space, name] = json.loads(json.dumps(lease))
        return self.objects[space, name]
