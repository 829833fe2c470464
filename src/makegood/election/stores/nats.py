"""Leases in a key-value bucket of NATS JetStream: one key per name, changed by compare-and-set on its
revision.

The first take creates a missing bucket, on disk, without an age limit; one with an age limit, or in memory,
would forget epochs. A deleted key is refused as long as the bucket has its mark. Where a name has no key,
because housekeeping has removed the mark, or because somebody has deleted the whole bucket with its stream
and the next take made a new one, its epoch is above a floor: the milliseconds from 2024 to the creation of
the bucket, and the bucket's last revision, which NATS keeps whatever is deleted. No epoch of the bucket ever
exceeded its floor by more than the takes since, and the floor of a later bucket is above all of those, unless
the earlier one was written more than a thousand times a second for all its life.

Keys with a time to live are not used: they need a server of 2.11, and leave no epoch; each observer judges
expiry instead (``compare_and_set``).

**Best effort across crashes of the machine**: by default NATS writes to the disk in the background
(``sync_interval``, two minutes), so a power cut may take an epoch back. Replicate the bucket, or set
``sync_interval: always``.
"""

import asyncio
import contextlib
import logging
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from nats import errors as failed
from nats.js import api
from nats.js import errors as refused

from makegood.base.clock import Clock
from makegood.base.durations import Duration
from makegood.base.nats_client import NatsClient, NoTLSError, credentials_of, split_login
from makegood.base.urls import ENCODE, mask_url
from makegood.election.stores.compare_and_set import ObservedLeases, Record, Version
from makegood.errors import ConfigError, MakegoodError

log = logging.getLogger("makegood.election")

BUCKET = "makegood_election"

_CLOSE = 1.0
_EPOCH_2024 = 1_704_067_200.0
_REPLACED = "the bucket was deleted or replaced while this process had it open, and the epochs with it: restore its stream, or restart all candidates"
_DELETED = ("DEL", "PURGE")
_BARRED = (failed.AuthorizationError, NoTLSError, refused.InvalidBucketNameError, refused.BadBucketError)
_NOT_THERE = (refused.ServiceUnavailableError, refused.NoStreamResponseError, failed.NoRespondersError)


class NatsLeases(ObservedLeases):
    """A lease store in ``bucket`` on the servers.

    ``timeout``: how long a call may take; ``clock`` judges expiry; ``replicas``: of a bucket that it creates;
    ``creds``: a file with credentials. Raises ``ConfigError`` for one that cannot be used.
    """

    def __init__(
        self,
        servers: list[str],
        *,
        clock: Clock,
        bucket: str = BUCKET,
        replicas: int = 1,
        creds: str | None = None,
        timeout: Duration = 5,
    ) -> None:
        places = ",".join(mask_url(server).rpartition("@")[2].rpartition("/")[2] for server in servers)
        super().__init__(f"the leases in NATS at {places}, bucket {bucket}", clock=clock, timeout=timeout)
        self._servers = servers
        self._bucket = bucket
        self._replicas = replicas
        self._options: dict[str, Any] = {}
        if creds is not None:
            self._options["user_credentials"] = credentials_of(creds, "the leases in NATS")
        self._client: NatsClient | None = None
        self._values: Any = None
        self._created_at: datetime | None = None
        self._turn = asyncio.Lock()

    async def get(self, name: str) -> tuple[Record, Version] | None:
        """Read a key and its revision; without a bucket there was never one."""
        bucket = await self._connect(make=False)
        if bucket is None:
            return None
        key = _key(name)
        try:
            entry = await bucket.get(key)
        except refused.KeyNotFoundError as missing:
            if missing.op in _DELETED:
                raise self.wrong(
                    f"the key {key} was deleted, perhaps while its lease was held: once nobody leads, remove its mark (`nats kv compact {self._bucket}`), and "
                    "the epoch continues above all earlier ones; or give the election another name"
                ) from missing
            return None
        try:
            return Record.decode(entry.value), entry.revision
        except ValueError as fault:
            raise self.wrong(f"the key {key} is used for something else ({fault})") from fault

    async def floor(self, name: str) -> int | None:  # noqa: ARG002 - one for all
        """Return what no deletion takes back, neither of the key nor of the bucket: each epoch was written
        under a revision of its own.
        """
        await self._connect(make=True)
        info = await self._examine(self._client)
        since: float = info.created.timestamp() - _EPOCH_2024
        return round(since * 1000) + int(info.state.last_seq)

    async def put(self, name: str, record: Record, expect: Version | None) -> Version | None:
        """Write a key whose revision is known; 0: it never existed."""
        bucket = await self._connect(make=True)
        try:
            return await bucket.update(_key(name), record.encode(), last=expect or 0)
        except refused.KeyWrongLastSequenceError:
            return None

    async def disconnect(self) -> None:
        """Close the connection."""
        client, self._client, self._values = self._client, None, None
        if client is not None:
            await _close(client)

    def meaning(self, fault: Exception) -> MakegoodError | None:
        """Separate faults that can never work from those that may pass."""
        if isinstance(fault, _BARRED) or "Authorization" in str(fault):
            return self.wrong(fault)
        if isinstance(fault, _NOT_THERE):
            return self.unavailable(f"{fault}; is JetStream switched on (nats-server -js)?")
        return self.unavailable(fault) if isinstance(fault, failed.Error | OSError) else None

    def reconnect(self) -> None:
        """Reconnect at the next call."""
        if self._client is not None:
            self.later(self.disconnect())

    async def _connect(self, *, make: bool) -> Any:
        """Return the bucket. If it is missing, create it (``make``) or return None: reads create nothing."""
        async with self._turn:
            if self._client is None or not self._client.is_connected:
                await self.disconnect()
            client = self._client or NatsClient()
            try:
                if self._client is None:
                    servers, login = split_login(self._servers, "the URL of the leases")
                    client.must_encrypt = servers[0].startswith("tls://")
                    # No automatic reconnect: a call without an answer is tried again on a new connection.
                    await client.connect(
                        servers, name="makegood election", allow_reconnect=False, max_reconnect_attempts=1,
                        reconnect_time_wait=0, connect_timeout=max(1, round(self._timeout)),
                        error_cb=_nothing, **login, **self._options,
                    )  # fmt: skip
                if self._values is None:
                    self._values = await self._open_bucket(client, make=make)
            except BaseException:
                self._client = self._values = None
                self.later(_close(client))
                raise
            self._client = client
            return self._values

    async def _open_bucket(self, client: NatsClient, *, make: bool) -> Any:
        """Return the bucket once it is known to keep its data; None: there is none."""
        stream = client.jetstream(timeout=self._timeout)
        try:
            bucket = await stream.key_value(self._bucket)
        except refused.BucketNotFoundError:
            if self._created_at is not None:
                raise self.wrong(_REPLACED) from None
            if not make:
                return None
            config = api.KeyValueConfig(
                self._bucket, history=1, storage=api.StorageType.FILE, replicas=self._replicas
            )
            try:
                bucket = await stream.create_key_value(config)
                log.info("created %s", self._where)
            except refused.BadRequestError:  # Another process created it at the same moment.
                bucket = await stream.key_value(self._bucket)
        bucket_config = (await self._examine(client)).config
        if bucket_config.max_age:
            raise self.wrong(
                f"the bucket forgets keys after {bucket_config.max_age:g} s, and epochs with them: use one without a ttl"
            )
        if bucket_config.storage == api.StorageType.MEMORY:
            raise self.wrong(
                "the bucket is kept in memory, and epochs must survive a restart: use one with file storage"
            )
        return bucket

    async def _examine(self, client: Any) -> Any:
        """Return what the server says of the bucket, once it is known to be the one that was opened first."""
        info = await client.jetstream(timeout=self._timeout).stream_info(f"KV_{self._bucket}")
        self._created_at = self._created_at or info.created
        if info.created != self._created_at:
            raise self.wrong(_REPLACED)
        return info


async def _close(client: NatsClient) -> None:
    with contextlib.suppress(failed.Error, OSError, TimeoutError):
        async with asyncio.timeout(_CLOSE):
            await client.close()


async def _nothing(_fault: Exception) -> None:
    """Each call reports its own errors."""


def _key(name: str) -> str:
    """Return a name as NATS allows it in a key."""
    return quote(name, safe="").replace("~", "%7E").replace(".", "%2E").replace("%", "=")


def from_url(url: str, *, clock: Clock, timeout: float) -> NatsLeases:
    """Open ``nats://user:password@host:4222/bucket?replicas=3&creds=FILE``; several servers with commas;
    ``tls://`` for TLS.

    Everything except the host is optional. Raises ``ConfigError`` for another form.
    """
    parts = urlsplit(url)
    options = parse_qs(parts.query, keep_blank_values=True)
    bucket = parts.path.strip("/") or BUCKET
    number = options.pop("replicas", ["1"])[0]
    creds = options.pop("creds", [None])[0]
    login = parts.netloc.rpartition("@")[0]
    if "," in login and not all("@" in place for place in f"{login}@".split(",")):
        raise ConfigError(f"the URL of the leases has a comma before its @: {ENCODE}, and , is %2C")
    if not parts.netloc or "/" in bucket or options or not number.isdecimal():
        raise ConfigError(
            f"{mask_url(url)!r}: write nats://host:4222/bucket, with ?replicas= and ?creds= if need be"
        )
    servers = [f"{parts.scheme}://{place}" for place in parts.netloc.split(",")]
    return NatsLeases(servers, clock=clock, bucket=bucket, replicas=int(number), creds=creds, timeout=timeout)
