"""Leases in etcd: a key that lives as long as an etcd lease, beside a permanent record, changed in one
transaction.

``PREFIX/NAME/held`` is attached to an etcd lease, which expires by etcd's own clock; its value is the nonce.
``PREFIX/NAME/record`` has epoch, holder and past terms. A take writes both keys if neither changed since they
were read.

It uses etcd's JSON gateway, over plain HTTP: the Python clients of its gRPC interface are unmaintained, or
break with the present protobuf. etcd counts whole seconds, and has a shortest lease of its own (2 s with its
default settings), so a lease may last a little longer than its ttl, never shorter. A change of etcd's leader
restarts the time of every lease.
"""

import math
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from makegood.base.clock import Clock
from makegood.base.durations import Duration
from makegood.base.urls import mask_url
from makegood.election.protocol import Grant, LeaseView, PastTerm
from makegood.election.stores.compare_and_set import Record
from makegood.election.stores.http import Http, HttpLeases
from makegood.errors import ConfigError

PREFIX = "makegood/election"

_TRIES = 4
_NOT_FOUND = 5
_NEVER = frozenset({3, 7, 9, 12, 16})
"""gRPC's codes of errors that no repetition fixes: invalid, not allowed, not as it is set up, not known to
this etcd, not authenticated.
"""


@dataclass(frozen=True, slots=True)
class _Kept:
    """Both keys at one moment."""

    record: Record | None
    version: str
    """The version of the record."""
    nonce: str
    """The nonce in the held key; "": there is none."""
    lease: str
    """The etcd lease of the held key; "0": there is none."""
    revision: int
    """The cluster's, which rises with each write."""


class EtcdLeases(HttpLeases):
    """A lease store on an etcd cluster.

    ``servers``: such as ``http://host:2379``; ``login``: user and password; ``clock``: for dates that people
    read; ``timeout``: how long a call may take.
    """

    def __init__(
        self,
        servers: list[str],
        *,
        clock: Clock,
        prefix: str = PREFIX,
        login: tuple[str, str] | None = None,
        timeout: Duration = 5,
    ) -> None:
        places = ",".join(mask_url(server).partition("://")[2] for server in servers)
        super().__init__(f"the leases in etcd at {places}, under {prefix}", timeout=timeout)
        self._clock = clock
        self._prefix = prefix
        self._login = login
        self._token = ""
        self._http = Http(servers, timeout=self._timeout)

    async def take(self, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
        """Write both keys if nobody holds the lease."""
        for _ in range(_TRIES):
            keys = await self._read_keys(name)
            if keys.nonce and (keys.nonce != nonce or keys.record is None):
                return None
            if keys.nonce and keys.record is not None:
                if await self._alive(keys.lease):
                    return Grant(name, holder, nonce, keys.record.epoch, ttl)
                continue  # It ran out at this very moment.
            # Each epoch was written by a transaction of its own, so none exceeds the cluster's revision.
            least = keys.revision + 1 if keys.record is None else 1
            record = Record.take(
                keys.record, Grant(name, holder, nonce, 0, ttl), self._clock.wall(), least=least
            )
            lease = str((await self._ask("lease/grant", {"TTL": math.ceil(ttl)}))["ID"])
            holder_put = self._put(name, "held", nonce.encode(), lease)
            if await self._write_unchanged(
                name, keys, [holder_put, self._put(name, "record", record.encode())]
            ):
                return Grant(name, holder, nonce, record.epoch, ttl)
            await self._ask("lease/revoke", {"ID": lease})
        return None  # Others were quicker each time.

    async def extend(self, grant: Grant) -> bool:
        """Keep the etcd lease alive, if the key on it is ours."""
        keys = await self._read_keys(grant.name)
        if keys.nonce != grant.nonce or keys.record is None or keys.record.epoch != grant.epoch:
            return False
        return await self._alive(keys.lease)

    async def free(self, grant: Grant) -> None:
        """Delete the held key, and clear the holder in the record."""
        for _ in range(_TRIES):
            keys = await self._read_keys(grant.name)
            record = keys.record
            if record is None or record.nonce != grant.nonce:
                return
            free = self._put(grant.name, "record", record.free(self._clock.wall()).encode())
            drop = {"requestDeleteRange": {"key": self._key(grant.name, "held")}}
            if await self._write_unchanged(grant.name, keys, [drop, free]):
                if keys.lease != "0":
                    await self._ask("lease/revoke", {"ID": keys.lease})
                return
        raise self.unavailable("the record keeps changing")

    async def look(self, name: str) -> LeaseView | None:
        """Read both keys, and how long the lease has to live."""
        keys = await self._read_keys(name)
        if keys.record is None:
            return None
        left = 0.0
        if keys.lease != "0":
            seconds_left = int((await self._ask("lease/timetolive", {"ID": keys.lease})).get("TTL", -1))
            # Whole seconds, rounded down: it may have one more.
            left = min(seconds_left + 1.0, keys.record.ttl)
        record = keys.record
        return LeaseView(name, record.holder, record.epoch, record.ttl, record.since, left)

    async def remember(self, name: str, limit: int) -> list[PastTerm]:
        """Read the terms in the record."""
        record = (await self._read_keys(name)).record
        return [] if record is None else record.past[:limit]

    def reconnect(self) -> None:
        """Use another server next time."""
        self._token = ""
        super().reconnect()

    # -- the gateway -------------------------------------------------------------------------------

    def _key(self, name: str, part: str) -> str:
        return b64encode(f"{self._prefix}/{name}/{part}".encode()).decode()

    def _put(self, name: str, part: str, value: bytes, lease: str = "0") -> dict[str, Any]:
        put = {"key": self._key(name, part), "value": b64encode(value).decode(), "lease": lease}
        return {"requestPut": put}

    async def _read_keys(self, name: str) -> _Kept:
        """Read both keys at one moment, as the majority of the cluster has them."""
        ranges = [{"requestRange": {"key": self._key(name, part)}} for part in ("record", "held")]
        reply = await self._ask("kv/txn", {"success": ranges})
        answers = reply["responses"]
        record_row, holder_row = (answer["response_range"].get("kvs", [{}])[0] for answer in answers)
        nonce = b64decode(holder_row.get("value", "")).decode()
        try:
            record = Record.decode(b64decode(record_row["value"])) if record_row else None
        except ValueError as fault:
            raise self.wrong(f"the key {name}/record is used for something else ({fault})") from fault
        return _Kept(
            record,
            str(record_row.get("mod_revision", "0")),
            nonce,
            str(holder_row.get("lease", "0")),
            int(reply["header"]["revision"]),
        )

    async def _write_unchanged(self, name: str, keys: _Kept, puts: list[dict[str, Any]]) -> bool:
        """Write if nothing changed since both keys were read."""
        condition: dict[str, Any] = {"key": self._key(name, "held"), "result": "EQUAL"}
        if keys.nonce:
            condition |= {"target": "VALUE", "value": b64encode(keys.nonce.encode()).decode()}
        else:
            condition |= {"target": "CREATE", "create_revision": "0"}
        record = {"key": self._key(name, "record"), "result": "EQUAL", "target": "MOD", "mod_revision": keys.version}  # fmt: skip
        reply = await self._ask("kv/txn", {"compare": [condition, record], "success": puts})
        return bool(reply.get("succeeded"))

    async def _alive(self, lease: str) -> bool:
        """Restart the time of an etcd lease; False: it has run out."""
        reply = await self._ask("lease/keepalive", {"ID": lease})
        return int(reply.get("result", {}).get("TTL", 0)) > 0

    async def _ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if self._login is not None and not self._token:
            user = {"name": self._login[0], "password": self._login[1]}
            self._token = (await self._ask_server("auth/authenticate", user, {}))["token"]
        return await self._ask_server(path, body, {"authorization": self._token} if self._token else {})

    async def _ask_server(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
        status, reply = await self._http.ask("POST", f"/v3/{path}", body, headers)
        fault = reply.get("error") if status == 200 else reply  # A stream's fault has status 200.
        if not fault:
            answer: dict[str, Any] = reply
            return answer
        code = int(fault.get("code") or fault.get("grpc_code") or 0)
        reason = str(fault.get("message") or f"status {status}")
        if code == _NOT_FOUND and path.startswith("lease/"):
            return {}
        if code == 16 and self._token:
            raise self.unavailable(reason)  # The token expired: `reconnect` forgets it.
        if code in _NEVER:
            raise self.wrong(reason)
        raise self.unavailable(reason)


def from_url(url: str, *, clock: Clock, timeout: float) -> EtcdLeases:
    """Open ``etcd://user:password@host:2379/prefix``; several servers with commas; ``etcd+https://`` for TLS.

    Everything except the host is optional. Raises ``ConfigError`` for another form.
    """
    parts = urlsplit(url)
    login, _, places = parts.netloc.rpartition("@")
    if not places or parts.query:
        raise ConfigError(f"{mask_url(url)!r}: write etcd://host:2379/prefix, or etcd+https:// for TLS")
    user, _, password = login.partition(":")
    scheme = "https" if parts.scheme.endswith("https") else "http"
    servers = [f"{scheme}://{place}" for place in places.split(",")]
    return EtcdLeases(
        servers, clock=clock, prefix=unquote(parts.path).strip("/") or PREFIX,
        login=(unquote(user), unquote(password)) if login else None, timeout=timeout,
    )  # fmt: skip
