"""Leases in ZooKeeper: one node per name, changed by compare-and-set on its version.

It uses a persistent node and not an ephemeral one: a session ends when the *server* misses heartbeats, which
its owner may learn late or never, and its end leaves no epoch. Each observer judges expiry instead
(``compare_and_set``). Of kazoo only the connection is used, not its recipes. It runs threads of its own;
nothing here waits in them.
"""

import asyncio
import contextlib
import logging
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from kazoo import exceptions as failed
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry
from kazoo.security import make_digest_acl

from makegood.base.clock import Clock
from makegood.base.daemon_threads import DaemonThreads
from makegood.base.durations import Duration
from makegood.base.urls import mask_url
from makegood.election.stores.compare_and_set import ObservedLeases, Record, Version
from makegood.errors import ConfigError, MakegoodError

FOLDER = "/makegood/election"

_SHARE = 0.9
"""The share of the time-out for connecting."""


class ZooKeeperLeases(ObservedLeases):
    """A lease store below ``folder`` on the servers ``hosts`` ("a:2181,b:2181").

    ``clock`` judges expiry; ``login``: user and password, which alone may access the nodes that it creates;
    ``timeout``: how long a call may take.
    """

    def __init__(
        self,
        hosts: str,
        *,
        clock: Clock,
        folder: str = FOLDER,
        login: tuple[str, str] | None = None,
        timeout: Duration = 5,
    ) -> None:
        super().__init__(f"the leases in ZooKeeper at {hosts}{folder}", clock=clock, timeout=timeout)
        self._hosts = hosts
        self._folder = folder
        self._options: dict[str, Any] = {"logger": _quiet()}
        if login is not None:
            self._options["auth_data"] = [("digest", ":".join(login))]
            self._options["default_acl"] = [make_digest_acl(*login, all=True)]
        self._client: Any = None
        self._threads = DaemonThreads(4, "zookeeper")
        self._turn = asyncio.Lock()

    async def get(self, name: str) -> tuple[Record, Version] | None:
        """Read a node, as the leader of the servers has it."""
        client, path = await self._connect(), self._path(name)
        with contextlib.suppress(failed.NoNodeError):
            await _answer(client.sync_async(path))
        try:
            data, stat = await _answer(client.get_async(path))
        except failed.NoNodeError:
            return None
        try:
            return Record.decode(data), stat.version
        except ValueError as fault:
            raise self.wrong(f"the node {path} is used for something else ({fault})") from fault

    async def floor(self, name: str) -> int | None:  # noqa: ARG002 - one for all
        """Return 0 if no node of the folder was ever deleted, else the number of the transaction that last
        created or deleted one: each epoch was written by a transaction of its own.
        """
        stat = await _answer((await self._connect()).exists_async(self._folder))
        if stat is None:
            return None
        return int(stat.pzxid) if stat.cversion > stat.numChildren else 0

    async def put(self, name: str, record: Record, expect: Version | None) -> Version | None:
        """Create a node, or change one whose version is known."""
        client, path = await self._connect(), self._path(name)
        try:
            if expect is None:
                await _answer(client.create_async(path, record.encode(), makepath=True))
                return 0
            return (await _answer(client.set_async(path, record.encode(), version=expect))).version
        except (failed.NodeExistsError, failed.BadVersionError, failed.NoNodeError):
            return None

    async def disconnect(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(failed.KazooException, OSError, TimeoutError):
                async with asyncio.timeout(self._timeout):
                    await asyncio.get_running_loop().run_in_executor(self._threads, _stop, client)

    def meaning(self, fault: Exception) -> MakegoodError | None:
        """Separate faults that can never work from those that may pass."""
        if isinstance(fault, failed.NoAuthError | failed.AuthFailedError | failed.InvalidACLError):
            return self.wrong(f"{type(fault).__name__}: this user may not touch the node")
        kinds = failed.KazooException | KazooTimeoutError | OSError
        return self.unavailable(fault) if isinstance(fault, kinds) else None

    def reconnect(self) -> None:
        """Reconnect at the next call."""
        self.later(self.disconnect())

    def _path(self, name: str) -> str:
        return f"{self._folder}/{quote(name, safe=' ')}"

    async def _connect(self) -> Any:
        async with self._turn:
            if self._client is not None and self._client.connected:
                return self._client
            await self.disconnect()
            self._client = client = KazooClient(
                self._hosts, timeout=max(2.0, 2 * self._timeout), connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=0.5),
                **self._options,
            )  # fmt: skip
            start = client.start
            await asyncio.get_running_loop().run_in_executor(self._threads, start, self._timeout * _SHARE)
            return client


def _quiet() -> logging.Logger:
    """Return kazoo's logger without its lines at level debug: one of them shows the password."""
    quiet = logging.Logger("kazoo.client", logging.INFO)  # noqa: LOG001 - the one that others share keeps its level
    quiet.parent = logging.getLogger(quiet.name)
    return quiet


def _stop(client: Any) -> None:
    client.stop()
    client.close()


async def _answer(request: Any) -> Any:
    """Wait for what kazoo's threads are doing."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any) -> None:
        if future.done():
            return
        if result.exception is not None:
            future.set_exception(result.exception)
        else:
            future.set_result(result.value)

    def in_thread(result: Any) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed: nothing waits any more.
            loop.call_soon_threadsafe(settle, result)

    request.rawlink(in_thread)
    return await future


def from_url(url: str, *, clock: Clock, timeout: float) -> ZooKeeperLeases:
    """Open ``zookeeper://user:password@host:2181,other:2181/folder``; everything except a host is optional.

    Raises ``ConfigError`` for another form.
    """
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    if not hosts or parts.query or (login and not password):
        raise ConfigError(f"{mask_url(url)!r}: write zookeeper://host:2181/folder, several hosts with commas")
    return ZooKeeperLeases(
        hosts, clock=clock, folder=parts.path.rstrip("/") or FOLDER,
        login=(unquote(user), unquote(password)) if login else None, timeout=timeout,
    )  # fmt: skip
