"""Leases in Redis: a hash per name that is never deleted and never expires, changed by scripts, each one
atomic step.

No key has a time to live: under memory pressure Redis may evict such keys first (``volatile-*``), and an
evicted lease would be a second leader. The record has the end of the lease, and the server's ``TIME`` judges.
A server whose wall clock is set *forward* by more than the ttl lets the lease run out early, as it would with
keys that expire.

**Best effort.** Redis acknowledges before a write is on the disk (unless ``appendfsync always``) and before a
replica has it: after a crash or a fail-over two may lead, and an epoch may repeat. Where that matters, use a
store that is a database. Of redis-py only the connection is used, not its ``Lock``, which has no epoch.
"""

import logging
from typing import Any

from redis import exceptions as failed
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from makegood.base.clock import Clock
from makegood.base.durations import Duration
from makegood.base.urls import mask_url, parts_of, scrub
from makegood.election.protocol import Grant, LeaseView, PastTerm
from makegood.election.stores.calls import RemoteLeases
from makegood.errors import ConfigError, MakegoodError

log = logging.getLogger("makegood.election")

KEPT = 1000
"""Terms remembered per lease."""

# Every script has two keys: the record, and its past terms, newest first, five fields each. Times are
# milliseconds since 1970.
_NOW = """
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function text(number) return string.format('%.0f', number) end
local function close_last(ended, released)
    local last = redis.call('LINDEX', KEYS[2], 0)
    if not last then return end
    local epoch, began, _, _, holder = string.match(last, '^(%d+)|(%d+)|(%d*)|(%d)|(.*)$')
    redis.call('LSET', KEYS[2], 0, epoch .. '|' .. began .. '|' .. text(ended) .. '|' .. released .. '|' .. holder)
end
"""
# Arguments: holder, nonce, ttl as the holder gave it, ttl in ms, how many terms to keep.
_ACQUIRE = """
local nonce, epoch, expires = unpack(redis.call('HMGET', KEYS[1], 'nonce', 'epoch', 'expires'))
if not epoch then
    epoch = string.match(redis.call('LINDEX', KEYS[2], 0) or '', '^(%d+)|')  -- the record was deleted or evicted
end
epoch = tonumber(epoch or 0)
if nonce ~= ARGV[2] then
    if nonce and nonce ~= '' then
        if tonumber(expires) > now then return false end
        close_last(tonumber(expires), 0)
    end
    epoch = epoch + 1
    redis.call('HSET', KEYS[1], 'epoch', text(epoch), 'since', text(now))
    redis.call('LPUSH', KEYS[2], text(epoch) .. '|' .. text(now) .. '||0|' .. ARGV[1])
    redis.call('LTRIM', KEYS[2], 0, ARGV[5] - 1)
end
redis.call('HSET', KEYS[1], 'holder', ARGV[1], 'nonce', ARGV[2], 'ttl', ARGV[3], 'expires', text(now + ARGV[4]))
return epoch
"""
# Arguments: nonce, epoch, ttl in ms.
_RENEW = """
local nonce, epoch, expires = unpack(redis.call('HMGET', KEYS[1], 'nonce', 'epoch', 'expires'))
if nonce ~= ARGV[1] or epoch ~= ARGV[2] or tonumber(expires) <= now then return 0 end
redis.call('HSET', KEYS[1], 'expires', text(now + ARGV[3]))
return 1
"""
# Argument: the nonce.
_RELEASE = """
if redis.call('HGET', KEYS[1], 'nonce') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'nonce', '', 'holder', '')
close_last(now, 1)
return 1
"""
_READ = """
local holder, nonce, epoch, ttl, since, expires =
    unpack(redis.call('HMGET', KEYS[1], 'holder', 'nonce', 'epoch', 'ttl', 'since', 'expires'))
if not epoch then return false end
return {holder, nonce, epoch, ttl, since, text(expires - now)}
"""


class RedisLeases(RemoteLeases):
    """A lease store in the Redis that ``url`` names. ``timeout``: how long a call may take."""

    def __init__(self, url: str, *, timeout: Duration = 5) -> None:
        super().__init__("the leases in Redis", timeout=timeout)
        self._is_checked = False
        path = parts_of(url, "the URL of the leases").path.strip("/")
        if path and not path.isdecimal():
            raise ConfigError(
                f"{path!r} is not the number of a Redis database: write redis://user:password@host:6379/0"
            )
        try:
            # No retries of its own: the election decides whether and when to try again.
            self._redis: Any = Redis.from_url(
                url, decode_responses=True, retry=Retry(NoBackoff(), 0),
                socket_timeout=self._timeout, socket_connect_timeout=self._timeout,
            )  # fmt: skip
        except (ValueError, TypeError) as bad:
            raise ConfigError(
                f"{mask_url(url)!r} names no Redis ({scrub(str(bad), url)}): write redis://user:password@host:6379/0"
            ) from None
        options = self._redis.connection_pool.connection_kwargs
        place = f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"
        self._where = f"the leases in Redis at {place}"
        self._scripts = {
            verb: self._redis.register_script(_NOW + text)
            for verb, text in (("take", _ACQUIRE), ("renew", _RENEW), ("release", _RELEASE), ("read", _READ))
        }

    async def take(self, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
        """Take it by one script."""
        epoch = await self._run("take", name, holder, nonce, repr(ttl), _ms(ttl), KEPT)
        return None if epoch is None else Grant(name, holder, nonce, int(epoch), ttl)

    async def extend(self, grant: Grant) -> bool:
        """Renew it by one script."""
        return bool(await self._run("renew", grant.name, grant.nonce, str(grant.epoch), _ms(grant.ttl)))

    async def free(self, grant: Grant) -> None:
        """Release it by one script."""
        await self._run("release", grant.name, grant.nonce)

    async def look(self, name: str) -> LeaseView | None:
        """Read the record and the server's clock at one moment."""
        reply = await self._run("read", name)
        if reply is None:
            return None
        holder, nonce, epoch, ttl, since, left = reply
        return LeaseView(
            name, holder if nonce else None, int(epoch), float(ttl), int(since) / 1000, int(left) / 1000
        )

    async def remember(self, name: str, limit: int) -> list[PastTerm]:
        """Read the list of terms."""
        await self._check()
        lines = await self._redis.lrange(_keys(name)[1], 0, limit - 1)
        return [_term(line) for line in lines]

    async def disconnect(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    def meaning(self, fault: Exception) -> MakegoodError | None:
        """Separate faults that can never work from those that may pass."""
        if isinstance(
            fault, failed.AuthenticationError | failed.AuthorizationError | failed.NoPermissionError
        ):
            return self.wrong(fault)
        if "WRONGTYPE" in str(fault):
            return self.wrong(
                f"a key of the lease is used for something else; remove it, or rename the election ({fault})"
            )
        self._is_checked = False
        return self.unavailable(fault) if isinstance(fault, failed.RedisError | OSError) else None

    async def _run(self, verb: str, name: str, *values: str | int) -> Any:
        await self._check()
        return await self._scripts[verb](keys=_keys(name), args=values)

    async def _check(self) -> None:
        """Check the server's settings once: a record that may be evicted, or forgotten at a restart, is not a
        lease.
        """
        if self._is_checked:
            return
        try:
            info = await self._redis.info()
        except failed.NoPermissionError:
            info = {}  # Not permitted to read them.
        policy = str(info.get("maxmemory_policy", ""))
        if policy.startswith("allkeys"):
            raise self.wrong(
                f"its maxmemory-policy {policy} may evict the lease, and then two would lead: use noeviction or volatile-*, "
                "or another Redis"
            )
        if not info.get("aof_enabled", 1):
            log.warning(
                "%s: appendonly is off, so a restart may forget who leads and in which epoch", self._where
            )
        self._is_checked = True


def _ms(ttl: float) -> int:
    return max(1, round(ttl * 1000))


def _keys(name: str) -> list[str]:
    """Return the keys of a lease; braces keep them on one node of a cluster."""
    tag = name.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")
    return [f"makegood:election:{{{tag}}}", f"makegood:election:{{{tag}}}:terms"]


def _term(line: str) -> PastTerm:
    epoch, began, end, release_flag, holder = line.split("|", 4)
    return PastTerm(
        int(epoch), holder, int(began) / 1000, int(end) / 1000 if end else None, release_flag == "1"
    )


def from_url(url: str, *, clock: Clock, timeout: float) -> RedisLeases:  # noqa: ARG001 - the server's clock judges
    """Open ``redis://user:password@host:6379/0``, or ``rediss://`` for TLS."""
    return RedisLeases(url, timeout=timeout)
