"""JSON over HTTP, for the lease stores whose server speaks it."""

import asyncio
import contextlib
import json
import ssl
from abc import ABC
from collections.abc import Mapping, Sequence
from typing import Any

import httpx2

from makegood.election.stores.calls import RemoteLeases
from makegood.errors import MakegoodError

_CLOSE_TIMEOUT = 1.0
"""Seconds that closing the connections may take."""

FAULTS = (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError)
"""What a request may raise."""


class Http:
    """Sends requests to one of several equivalent servers; to another one after ``drop``. It never retries.

    ``timeout``: seconds for each step of a request. ``verify``: the authorities that may sign a server's
    certificate. Proxies from the environment are not used: they do not reach a cluster's internal addresses.
    """

    def __init__(
        self, servers: Sequence[str], *, timeout: float, verify: ssl.SSLContext | bool = True
    ) -> None:
        self._servers = servers
        self._server_index = 0
        self._timeout = timeout
        # Loading the authorities takes a tenth of a second, which is wasted without TLS.
        self._verify = verify if any(server.startswith("https:") for server in servers) else False
        self._client: httpx2.AsyncClient | None = None

    async def ask(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Send a request; return the status and the JSON of the answer (its last line, if there are
        several).

        If the answer is not JSON, its text is the ``message``. Raises those of ``FAULTS``.
        """
        if self._client is None:
            self._client = httpx2.AsyncClient(timeout=self._timeout, verify=self._verify, trust_env=False)
        server = self._servers[self._server_index % len(self._servers)]
        content = None if body is None else json.dumps(body).encode()
        all_headers = {"content-type": "application/json", **(headers or {})}
        answer = await self._client.request(method, server + path, content=content, headers=all_headers)
        lines = answer.text.strip().splitlines()
        last = answer.text if len(lines) < 2 else lines[-1]
        try:
            return answer.status_code, json.loads(last) if lines else {}
        except ValueError:
            return answer.status_code, {"message": answer.text[:200]}

    async def drop(self) -> None:
        """Close the connections, and use another server next time."""
        client, self._client = self._client, None
        self._server_index += 1
        if client is not None:
            with contextlib.suppress(TimeoutError, *FAULTS):
                async with asyncio.timeout(_CLOSE_TIMEOUT):
                    await client.aclose()


class HttpLeases(RemoteLeases, ABC):
    """A lease store whose server speaks JSON over HTTP."""

    _http: Http

    async def disconnect(self) -> None:
        """Close the connections."""
        await self._http.drop()

    def meaning(self, fault: Exception) -> MakegoodError | None:
        """Any fault of the connection may pass."""
        return self.unavailable(fault) if isinstance(fault, FAULTS) else None

    def reconnect(self) -> None:
        """Reconnect at the next call, to another server if there is one."""
        self.later(self._http.drop())
