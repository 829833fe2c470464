"""Leases in Azure Blob Storage: an empty blob per name, leased by the service itself; epoch and holder in its
metadata.

A take is three requests: acquire the blob's lease under an id made of the nonce (repeatable under the same
id), read the metadata, write epoch + 1 under the lease if nothing else changed. Only then is it a yes. Nobody
writes metadata without the lease, so the epoch is as safe as the lease is. Azure leases last 15 to 60 whole
seconds.

Azure renews a lease that has expired, if nobody took it since. Here such a renewal is not even sent: this
process's own clock judges, counted from before its last request.

The SDK's own retries and time-outs (minutes, where a lease lasts seconds) are switched off.
"""

import contextlib
import math
import uuid
import zlib
from base64 import b64decode, b64encode
from binascii import Error as NotBase64Error
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from os import environ
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from azure.core import MatchConditions
from azure.core import exceptions as failed
from azure.storage.blob import BlobProperties
from azure.storage.blob.aio import BlobClient, BlobLeaseClient, ContainerClient

from makegood.base.clock import Clock
from makegood.base.durations import Duration, seconds
from makegood.base.urls import mask_url
from makegood.election.protocol import Grant, LeaseView, PastTerm
from makegood.election.stores.calls import GrantDeadlines, RemoteLeases
from makegood.election.stores.compare_and_set import Record
from makegood.errors import ConfigError, MakegoodError

SHORTEST, LONGEST = 15, 60
"""Seconds that a lease may last."""

_METADATA = 6000
"""Bytes: Azure accepts 8 KiB of metadata in all."""

_NONCES = uuid.UUID("2b1a9e38-6f0c-4f0e-8d6a-5a0a1f6f8b11")
_EMULATED = "devstoreaccount1"
_EMULATED_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The emulator's account and its published key."""


class AzureLeases(RemoteLeases):
    """A lease store in a container at ``account_url``, created if it is missing.

    - ``credential``: an account key or a SAS, or a function that makes a token credential, called for each
      connection.
    - ``prefix``: of the blobs' names.
    - ``timeout``: how long a call may take.
    - ``clock``: judges this process's renewals.
    """

    def __init__(
        self,
        account_url: str,
        container: str,
        *,
        clock: Clock,
        credential: Any = None,
        prefix: str = "",
        timeout: Duration = 5,
    ) -> None:
        super().__init__(
            f"the leases in Azure at {mask_url(account_url).partition('://')[2]}/{container}", timeout=timeout
        )
        self._prefix = prefix
        self._deadlines = GrantDeadlines(clock)
        self._clock = clock
        self._credential: Any = None
        self._empty: set[str] = set()

        def client() -> ContainerClient:
            self._credential = credential() if callable(credential) else credential
            try:
                return ContainerClient(
                    account_url, container, credential=self._credential, retry_total=0, connection_timeout=self._timeout,
                    read_timeout=self._timeout, logging_enable=False,
                )  # fmt: skip
            except ValueError as bad:  # such as an address without an account
                raise self.wrong(bad) from None

        self._open: Callable[[], ContainerClient] = client
        self._client: ContainerClient | None = None

    def check(self, name: str, ttl: float) -> None:
        """Refuse what Azure would refuse."""
        if not SHORTEST <= ttl <= LONGEST:
            raise self.wrong(
                f"a lease on a blob lasts {SHORTEST} to {LONGEST} s, not {ttl:g}: use another ttl"
            )
        self._blob(name)
        if not 1 <= len(self._prefix + name) <= 1024:
            raise self.wrong(
                f"a blob's name has 1 to 1024 characters, not {len(self._prefix + name)}: give the election another name"
            )

    async def take(self, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
        """Acquire, read, write the epoch."""
        blob = self._blob(name)
        sent_at = self._clock.monotonic()
        if name not in self._empty and not await self._make_blob(blob):
            sent_at = self._clock.monotonic()
        self._empty.add(name)
        key = _lease_id(nonce)
        try:
            await BlobLeaseClient(blob, lease_id=key).acquire(lease_duration=math.ceil(ttl))
        except failed.HttpResponseError as fault:
            if _is_held(fault):
                return None
            self._empty.discard(name)
            raise
        properties = await blob.get_blob_properties()
        record = self._record(properties)
        if record is None or record.nonce != nonce:
            record = Record.take(record, Grant(name, holder, nonce, 0, ttl), self._clock.wall())
            try:
                await self._write(blob, record, properties.etag, key)
            except (failed.ResourceModifiedError, failed.ResourceNotFoundError):
                return None  # The lease was broken meanwhile, and taken.
        elif (record.holder, record.ttl) != (holder, ttl):
            record = replace(record, holder=holder, ttl=ttl)
            await self._write(blob, record, properties.etag, key)
        self._deadlines.note_grant(nonce, ttl, sent_at)
        return Grant(name, holder, nonce, record.epoch, ttl)

    async def extend(self, grant: Grant) -> bool:
        """Renew the lease, if our own clock says that it still runs."""
        if not self._deadlines.holds(grant.nonce):
            return False
        sent_at = self._clock.monotonic()
        try:
            await BlobLeaseClient(self._blob(grant.name), lease_id=_lease_id(grant.nonce)).renew()
        except failed.HttpResponseError as fault:
            if not _is_lost(fault):
                raise
            self._deadlines.over(grant.nonce)
            return False
        self._deadlines.note_grant(grant.nonce, grant.ttl, sent_at)
        return True

    async def free(self, grant: Grant) -> None:
        """Clear the holder under the lease, then release it."""
        self._deadlines.over(grant.nonce)
        blob, key = self._blob(grant.name), _lease_id(grant.nonce)
        try:
            properties = await blob.get_blob_properties()
            record = self._record(properties)
            if record is not None and record.nonce == grant.nonce:
                await self._write(blob, record.free(self._clock.wall()), properties.etag, key)
            await BlobLeaseClient(blob, lease_id=key).release()
        except failed.HttpResponseError as fault:
            if not _is_lost(fault) and not isinstance(fault, failed.ResourceModifiedError):
                raise

    async def look(self, name: str) -> LeaseView | None:
        """Read the metadata and the state of the lease. Azure does not report the time left: assume its full
        ttl.
        """
        try:
            properties = await self._blob(name).get_blob_properties()
        except failed.ResourceNotFoundError:
            return None
        record = self._record(properties)
        if record is None:
            return None
        left = 0.0
        if properties.lease.state in ("leased", "breaking"):
            own = self._deadlines.seconds_left(record.nonce)
            left = record.ttl if own is None else own
        return LeaseView(name, record.holder, record.epoch, record.ttl, record.since, left)

    async def remember(self, name: str, limit: int) -> list[PastTerm]:
        """Read the terms in the metadata."""
        try:
            record = self._record(await self._blob(name).get_blob_properties())
        except failed.ResourceNotFoundError:
            return []
        return [] if record is None else record.past[:limit]

    async def break_lease(self, name: str, within: Duration = 0) -> float:
        """Break any holder's lease, now or ``within`` up to 60 s; return the seconds until it can be taken
        again.

        For an operator whose leader is alive but useless: it may continue until its next renewal is refused,
        so fence by the epoch. Raises ``StoreUnavailableError``. A lease without a holder is already broken.
        """
        wait = min(LONGEST, math.ceil(seconds(within, name="within")))

        async def break_lease() -> float:
            try:
                return float(await BlobLeaseClient(self._blob(name)).break_lease(lease_break_period=wait))
            except failed.HttpResponseError as fault:
                if not _is_lost(fault):
                    raise
                return 0.0

        return await self.call(break_lease)

    async def disconnect(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
        leave = getattr(self._credential, "close", None)
        if leave is not None:
            await leave()

    def meaning(self, fault: Exception) -> MakegoodError | None:
        """Separate faults that can never work from those that may pass."""
        text = str(fault).partition("\n")[0]
        is_final = isinstance(fault, failed.HttpResponseError) and fault.status_code in (400, 401, 403)
        if is_final or isinstance(fault, failed.ClientAuthenticationError):
            return self.wrong(text)
        return self.unavailable(text) if isinstance(fault, failed.AzureError | OSError) else None

    def _blob(self, name: str) -> BlobClient:
        if any(part in ("", ".", "..") for part in name.split("/")) or name.endswith("."):
            raise self.wrong(
                f"{name!r} is not a name for a blob: a part of it is empty, . or .., or it ends with a dot; give the election another name"
            )
        if self._client is None:
            self._client = self._open()
        return self._client.get_blob_client(self._prefix + name)

    async def _make_blob(self, blob: BlobClient) -> bool:
        """Create the blob, and the container, if they are missing; return whether it existed. It must be
        empty.
        """
        try:
            self._record(await blob.get_blob_properties())
        except failed.ResourceNotFoundError as missing:
            if _code(missing) == "ContainerNotFound" and self._client is not None:
                with contextlib.suppress(failed.ResourceExistsError):
                    await self._client.create_container()
            try:
                await blob.upload_blob(b"", overwrite=False)
            except failed.ResourceExistsError:
                return True  # Another process created it at the same moment.
            except failed.HttpResponseError as fault:
                if not _is_held(fault) and fault.status_code != 412:
                    raise
            return False
        return True

    def _record(self, properties: BlobProperties) -> Record | None:
        """Return the record in the metadata; None: nothing yet. Raises ``ConfigError`` for a blob with
        another use.
        """
        if properties.size:
            raise self.wrong(
                f"the blob {properties.name} has content, so it serves something else: give the election another name"
            )
        metadata = (properties.metadata or {}).get("makegood")
        if metadata is None:
            return None
        try:
            return Record.decode(zlib.decompress(b64decode(metadata, validate=True)))
        except (ValueError, NotBase64Error, zlib.error) as fault:
            raise self.wrong(
                f"the metadata of the blob {properties.name} are not a lease's ({fault})"
            ) from fault

    async def _write(self, blob: BlobClient, record: Record, etag: str, lease: str) -> None:
        """Write the metadata under the lease, if nothing changed since they were read."""
        data = b64encode(zlib.compress(record.encode()))
        while len(data) > _METADATA and record.past:
            record = replace(record, past=record.past[:-1])
            data = b64encode(zlib.compress(record.encode()))
        metadata = {
            "makegood": data.decode(),
            "epoch": str(record.epoch),
            "holder": quote(record.holder or ""),
        }
        condition = MatchConditions.IfNotModified
        await blob.set_blob_metadata(metadata, lease=lease, etag=etag, match_condition=condition)


def _lease_id(nonce: str) -> str:
    """Return the nonce in the form that Azure accepts."""
    return str(uuid.uuid5(_NONCES, nonce))


def _code(fault: failed.HttpResponseError) -> str:
    code = getattr(fault, "error_code", None)
    return str(getattr(code, "value", code) or "")


def _is_held(fault: failed.HttpResponseError) -> bool:
    return fault.status_code == 409 and _code(fault).startswith("Lease")


def _is_lost(fault: failed.HttpResponseError) -> bool:
    """Whether the lease is not, or no longer, ours."""
    return isinstance(fault, failed.ResourceNotFoundError) or _code(fault).startswith("Lease")


def _token() -> Any:
    """Return a credential from what the machine has for Azure: environment, managed identity, the Azure
    CLI.
    """
    try:
        return import_module("azure.identity.aio").DefaultAzureCredential
    except ModuleNotFoundError:
        raise ConfigError(
            "Azure needs a key: set AZURE_STORAGE_KEY, put a SAS behind the URL (?sv=…), or install azure-identity for "
            "managed identities"
        ) from None


def from_url(url: str, *, clock: Clock, timeout: float) -> AzureLeases:
    """Open ``azure-blob://ACCOUNT.blob.core.windows.net/CONTAINER/PREFIX``, or
    ``azure-blob://ACCOUNT:KEY@HOST:PORT/CONTAINER/PREFIX`` for an emulator.

    The key: in the URL, in AZURE_STORAGE_KEY, or a SAS as the URL's query; else what azure-identity finds.
    Raises ``ConfigError`` for another form.
    """
    parts = urlsplit(url)
    container, _, prefix = parts.path.strip("/").partition("/")
    if not parts.hostname or not container:
        raise ConfigError(
            f"{mask_url(url)!r}: write azure-blob://ACCOUNT.blob.core.windows.net/CONTAINER, or "
            "azure-blob://devstoreaccount1@127.0.0.1:10000/CONTAINER for Azurite"
        )
    place = parts.netloc.rpartition("@")[2]
    account_url = f"http://{place}/{parts.username}" if parts.username else f"https://{place}"
    account = parts.username or parts.hostname.partition(".")[0]
    key: Any = parts.query or unquote(parts.password or "") or environ.get("AZURE_STORAGE_KEY")
    if not key:
        key = _EMULATED_KEY if account == _EMULATED else _token()
    elif not parts.query:
        key = {"account_name": account, "account_key": key}
    folder = f"{prefix}/" if prefix else ""
    return AzureLeases(account_url, container, clock=clock, credential=key, prefix=folder, timeout=timeout)
