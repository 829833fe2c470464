"""Redis and Valkey Streams: orders by a consumer group, notices appended to a stream.

An entry's id is its id in the stream, or its field ``ce_id``. Redis makes ids of its clock, so that a stream
that was deleted and filled again does not repeat them, unless its senders choose them.

Redis delivers nothing again by itself. What was delivered to this process and not acknowledged is read first
(id 0) after each ``open``; what others have left idle for a minute is claimed from them. So what is held here
is claimed again, by its own consumer, three times in that span.

Redis has no dead letters: the relay keeps what it refuses, and acknowledges it.
"""

import asyncio
import contextlib
import json
import re
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

from makegood.base.cancelling import cancel_and_wait
from makegood.base.sizes import MIB
from makegood.brokers.address import BrokerAddress
from makegood.brokers.connection import SendersConnection, opening
from makegood.brokers.kinds import Target, check_each
from makegood.brokers.protocol import (
    MOST_BYTES,
    Answers,
    Backlog,
    Delivery,
    MissingPlaceError,
    OutgoingEvent,
    Reader,
    RefusedTargetError,
    Requirement,
    Requirements,
    Severity,
    failed_send,
    next_batch,
    raise_first_error,
)
from makegood.brokers.redis_connection import (
    ANSWER,
    CommandError,
    RedisConnection,
    Word,
    grant,
    is_passing,
    trim_of,
)
from makegood.errors import BrokerUnavailableError, ConfigError

LONGEST: Final = 16 * MIB
"""Bytes of the longest event that is sent. Redis itself takes 512 MiB, and hangs up on more."""

_CLOSE: Final = 1.0
_TIDY_AFTER: Final = 3600.0
_FIRST_COUNT: Final = 16
_CHUNK: Final = 500
_OLDEST: Final = (6, 2)
_NO_GROUP: Final = "makegood.no-such-group"
_KEY: Final = re.compile(r"NOPERM.* key")
_TIMES_BEGIN: Final = 1_000_000_000_000  # milliseconds: September 2001; smaller ids are not times
_BODY_FIELDS: Final = (b"data", b"payload")
_ELSEWHERE: Final = ("MOVED", "ASK")
_STARTS: Final = {"earliest": "0", "latest": "$"}
_TRIMMED: Final = "the entry was trimmed or deleted from the stream before it was read"

# Removes consumers without pending entries, which DELCONSUMER would throw away: the one that is named, and
# those that were idle for so many milliseconds.
_TIDY: Final = """
for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
    local name, pending, idle = consumer[2], consumer[4], consumer[6]
    if pending == 0 and (name == ARGV[2] or idle > tonumber(ARGV[3])) then
        redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], name)
    end
end
"""


class RedisSource:
    """Takes the entries of a stream for a consumer group."""

    keeps_refusals = False
    idle = 60.0
    """Seconds after which what a process neither acknowledged nor claimed again is given to another one."""

    def __init__(self, target: Target, address: BrokerAddress, reader: Reader) -> None:
        self.where = str(address)
        self._target = target
        self._key = address.place
        self._group = address.parameters.get("group") or reader.group
        start = address.parameters.get("start", "earliest")
        if start not in _STARTS:
            raise ConfigError(f"{self.where}: start={start!r:.60}: write earliest or latest")
        self._start = _STARTS[start]
        self._name = reader.name
        self._batch = reader.batch
        trim_of(target)
        RedisConnection(target, self.where)
        self._reads: RedisConnection | None = None
        """For the command that waits for entries, and for nothing else."""
        self._line: RedisConnection | None = None
        self._requirements: Sequence[Requirement] = ()
        self._buffer: deque[Delivery] = deque()
        self._pending: dict[str, None] = {}
        self._own_after: str | None = "0"
        """After which of its own pending entries it reads on; None: it has read them all."""
        self._claim_after = "0-0"
        self._claim_at = self._tidy_at = 0.0
        self._largest = 0
        self._reading: asyncio.Task[None] | None = None
        self._reading_until = 0.0
        self._keeping: asyncio.Task[None] | None = None

    async def open(self) -> Sequence[Requirement]:
        """Connect, and create the group if it does not exist."""
        if self._is_open():
            return self._requirements
        await self._let_go()
        reads, line = RedisConnection(self._target, self.where), RedisConnection(self._target, self.where)
        async with opening(reads, line):
            await line.open()
            await reads.open()
            self._requirements = await self.examine(line)
            raise_first_error(self._requirements, self.where)
            await self._create_group(line)
        self._reads, self._line = reads, line
        self._keeping = asyncio.get_running_loop().create_task(self._keep(line))
        return self._requirements

    async def examine(self, line: RedisConnection) -> Requirements:
        """Return what is to be said of the server, of the stream, and of missing rights."""
        return await _check(line, self._target, self._key, self._group, self._start)

    async def take(self, limit: int, wait: float) -> Sequence[Delivery]:
        """Return what comes first: its own pending entries, those of dead processes, then new ones."""
        line = self._open_line()
        loop = asyncio.get_running_loop()
        if not self._buffer:
            # The read outlives a cancelled caller: what it brings is this consumer's.
            if self._reading is None:
                self._reading_until = loop.time() + wait + 2 * ANSWER
                self._reading = loop.create_task(self._fetch(line, min(limit, self._batch), wait))
                wait += 2 * ANSWER
            await asyncio.wait({self._reading}, timeout=wait)
            if self._reading.done():
                reading, self._reading = self._reading, None
                reading.result()
            elif loop.time() >= self._reading_until:
                raise self._lose(BrokerUnavailableError(f"{self.where}: no answer within {wait:g} s"))
        return next_batch(self._buffer, limit)

    async def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge all at once."""
        line = self._open_line()
        ids = [one.receipt for one in deliveries if one.receipt in self._pending]
        for entry in ids:
            del self._pending[entry]
        if ids:
            await self._run(line, "XACK", self._key, self._group, *ids)

    async def refuse(self, delivery: Delivery, why: str) -> None:  # noqa: ARG002 - nobody there keeps it
        """Acknowledge it: Redis has no dead letters, so that the caller has kept it."""
        await self.acknowledge([delivery])

    async def pause(self) -> None:
        """Ask for nothing more. What was asked for may still come, and no other process gets it."""
        self._open_line()

    async def backlog(self) -> Backlog:
        """Return what the group has not acknowledged; unknown in a stream from which entries were deleted."""
        line = self._open_line()
        groups = [_pairs(one) for one in await self._run(line, "XINFO", "GROUPS", self._key)]
        mine = next((one for one in groups if one[b"name"].decode() == self._group), None)
        if mine is None:
            raise self._lose(BrokerUnavailableError(f"{self.where}: the group {self._group!r} is gone"))
        (least, clock, following) = await line.calls(
            [
                ("XPENDING", self._key, self._group),
                ("TIME",),
                ("XRANGE", self._key, b"(" + mine[b"last-delivered-id"], "+", "COUNT", 1),
            ]
        )
        waits = [entry[0] for entry in following] + ([least[1]] if least[0] else [])
        oldest = min((int(entry.partition(b"-")[0]) for entry in waits), default=None)
        age = None if oldest is None else max(0.0, int(clock[0]) - oldest / 1000)
        lag = mine.get(b"lag")
        if lag is None and not following:
            lag = 0
        return Backlog(None if lag is None else lag + mine[b"pending"], age)

    async def close(self) -> None:
        """Give back what is held, so that another process claims it at once, and leave."""
        line = self._line
        if self._is_open() and line is not None:
            with contextlib.suppress(BrokerUnavailableError, ConfigError, CommandError, TimeoutError):
                async with asyncio.timeout(_CLOSE):
                    for ids in _chunks(self._pending):
                        await line.call(
                            "XCLAIM",
                            self._key,
                            self._group,
                            self._name,
                            0,
                            *ids,
                            "IDLE",
                            round(2000 * self.idle),
                            "JUSTID",
                        )
                    if self._reading is None:
                        await self._tidy(line, self._name)
        await self._let_go()

    # -- reading -----------------------------------------------------------------------------------

    async def _fetch(self, line: RedisConnection, limit: int, wait: float) -> None:
        """Put the next entries into the buffer."""
        assert self._reads is not None
        # Redis bounds an answer by entries only: their size is guessed by the largest of the last answer.
        count = max(1, min(limit, MOST_BYTES // self._largest if self._largest else _FIRST_COUNT))
        if self._own_after is not None:
            await self._read_own(line, count)
        if not self._buffer and asyncio.get_running_loop().time() >= self._claim_at:
            await self._claim(line, count)
        if self._buffer:
            return
        block = ("BLOCK", max(1, round(wait * 1000))) if wait > 0 else ()
        answer = await self._run(
            self._reads, "XREADGROUP", "GROUP", self._group, self._name, "COUNT", count, *block,
            "STREAMS", self._key, ">", timeout=wait + ANSWER,
        )  # fmt: skip
        for _, entries in answer or ():
            self._note(entries, {})

    async def _read_own(self, line: RedisConnection, count: int) -> None:
        """Read what was delivered to this consumer before, and perhaps never arrived."""
        while self._own_after is not None and not self._buffer:
            answer = await self._run(
                line, "XREADGROUP", "GROUP", self._group, self._name, "COUNT", count, "STREAMS", self._key, self._own_after
            )  # fmt: skip
            entries = answer[0][1] if answer else []
            self._own_after = entries[-1][0].decode() if entries else None
            self._note(entries, await self._counts(line, entries))

    async def _claim(self, line: RedisConnection, count: int) -> None:
        """Take over what others have left, and remove the names of consumers that left nothing."""
        now = asyncio.get_running_loop().time()
        answer = await self._run(
            line, "XAUTOCLAIM", self._key, self._group, self._name, round(1000 * self.idle), self._claim_after, "COUNT", count
        )  # fmt: skip
        after, entries = answer[0].decode(), answer[1]
        entries += [[entry, None] for entry in (answer[2] if len(answer) > 2 else ())]  # since Redis 7
        self._claim_after = after
        if after == "0-0":
            self._claim_at = now + self.idle / 6
        self._note(entries, await self._counts(line, entries))
        if now >= self._tidy_at:
            self._tidy_at = now + _TIDY_AFTER
            await self._tidy(line, "")

    async def _counts(self, line: RedisConnection, entries: Sequence[Any]) -> dict[str, int]:
        """Return how often entries were delivered."""
        if not entries:
            return {}
        answer = await self._run(
            line,
            "XPENDING",
            self._key,
            self._group,
            entries[0][0],
            entries[-1][0],
            _CHUNK + len(entries),
            self._name,
        )
        return {entry.decode(): count for entry, _, _, count in answer}

    def _note(self, entries: Iterable[Any], counts: dict[str, int]) -> None:
        largest = 0
        for name, fields in entries:
            entry = name.decode()
            if entry in self._pending:
                continue
            self._pending[entry] = None
            delivery = delivery_of(self._key, entry, fields, counts.get(entry, 1))
            largest = max(largest, len(delivery.body))
            self._buffer.append(delivery)
        self._largest = largest or self._largest

    # -- the group ---------------------------------------------------------------------------------

    async def _create_group(self, line: RedisConnection) -> None:
        try:
            await line.call("XGROUP", "CREATE", self._key, self._group, self._start)
        except CommandError as refusal:
            if refusal.code != "BUSYGROUP":
                raise self._error_for(refusal) from refusal

    async def _tidy(self, line: RedisConnection, name: str) -> None:
        """Remove this consumer, or those that died long ago, if nothing is pending for them."""
        idle = round(1000 * _TIDY_AFTER)
        with contextlib.suppress(ConfigError):  # without the right to run scripts the names stay
            await line.call("EVAL", _TIDY, 1, self._key, self._group, name, idle)

    async def _keep(self, line: RedisConnection) -> None:
        """Claim again what is held, so that no other process takes it for abandoned."""
        with contextlib.suppress(
            BrokerUnavailableError, ConfigError, CommandError
        ):  # the next call hears of it
            while True:
                await asyncio.sleep(self.idle / 3)
                for ids in _chunks(self._pending):
                    await line.call("XCLAIM", self._key, self._group, self._name, 0, *ids, "JUSTID")

    # -- faults ------------------------------------------------------------------------------------

    async def _run(self, line: RedisConnection, *words: str | bytes | int, timeout: float = ANSWER) -> Any:
        try:
            return await line.call(*words, timeout=timeout)
        except CommandError as refusal:
            raise self._lose(self._error_for(refusal)) from refusal
        except (BrokerUnavailableError, ConfigError) as error:
            raise self._lose(error) from error

    def _error_for(self, refusal: CommandError) -> BrokerUnavailableError | ConfigError:
        if refusal.code in ("NOGROUP", "UNBLOCKED"):
            return BrokerUnavailableError(
                f"{self.where}: the stream, or its group {self._group!r}, is gone ({refusal})"
            )
        return _error_for(refusal, self.where)

    def _lose(self, error: Any) -> Any:
        for line in (self._reads, self._line):
            if line is not None:
                line.lose(error)
        return error

    def _is_open(self) -> bool:
        return all(line is not None and line.fault is None for line in (self._reads, self._line))

    def _open_line(self) -> RedisConnection:
        if self._reads is None or self._line is None:
            raise BrokerUnavailableError(f"{self.where}: it is not open")
        for line in (self._reads, self._line):
            if line.fault is not None:
                raise self._lose(type(line.fault)(*line.fault.args))
        return self._line

    async def _let_go(self) -> None:
        reading, keeping = self._reading, self._keeping
        self._reading = self._keeping = None
        await cancel_and_wait(reading, keeping)
        lines = self._reads, self._line
        self._reads = self._line = None
        for line in lines:
            if line is not None:
                await line.close()
        self._buffer.clear()
        self._pending.clear()
        self._own_after = "0"
        self._claim_after = "0-0"


class RedisSender:
    """Appends to streams; each event is sent once Redis has returned the entry's id."""

    def __init__(self, target: Target) -> None:
        self.where = target.where
        self._trim = trim_of(target)
        RedisConnection(target, self.where)
        self._connection = SendersConnection(partial(RedisConnection, target, self.where))

    async def send(self, place: str, event: OutgoingEvent, timeout: float) -> None:
        """Append an entry with the fields ``ce_id``, ``task``, ``content-type`` and ``data``."""
        where = f"{self.where}/{place}"
        if len(event.body) > LONGEST:
            text = f"the event has {len(event.body)} bytes, and makegood sends at most {LONGEST} to Redis"
            raise RefusedTargetError(f"{where}: {text}")
        trim = ("MAXLEN", "~", self._trim) if self._trim else ()
        fields = (
            "ce_id",
            event.id,
            "task",
            event.task,
            "content-type",
            event.content_type,
            "data",
            event.body,
        )
        began = False
        try:
            async with asyncio.timeout(timeout):
                line = await self._connection.open()
                line.check()
                began = True
                entry = await line.call(
                    "XADD", place, "NOMKSTREAM", *trim, "*", *fields, timeout=timeout + _CLOSE
                )
        except TimeoutError as silent:
            if (connection := self._connection.present) is not None:
                connection.lose(BrokerUnavailableError(f"{self.where}: no answer within {timeout:g} s"))
            text = f"no answer within {timeout:g} s"
            raise failed_send(where, TimeoutError(text), began=began) from silent
        except BrokerUnavailableError as fault:
            raise failed_send(where, fault, began=began) from fault
        except ConfigError as fault:  # an answer to this very command, or to the login
            raise failed_send(where, fault, began=False) from fault
        except CommandError as refusal:
            if is_passing(refusal) or refusal.code in _ELSEWHERE:
                reason = _error_for(refusal, where)
                raise failed_send(where, reason, began=False) from reason
            raise RefusedTargetError(f"{where}: Redis does not take it ({refusal})") from refusal
        if entry is None:
            raise MissingPlaceError(
                f"{where}: there is no such stream: correct the name, or create it with the group that reads it (XGROUP CREATE {place} GROUP 0 MKSTREAM)"
            )

    async def close(self) -> None:
        """Leave."""
        await self._connection.close()


def delivery_of(key: str, entry: str, fields: Sequence[bytes] | None, count: int) -> Delivery:
    """Return an entry as a delivery.

    The body is the field ``data``, else ``payload``, else the only field, else all fields as JSON.
    """
    moment = int(entry.partition("-")[0])
    sent_at = moment / 1000 if moment >= _TIMES_BEGIN else None
    name = f"{key}/{entry}"
    if not fields:
        return Delivery(receipt=entry, body=b"", id=name, sent_at=sent_at, count=count, fault=_TRIMMED)
    values = dict(zip(fields[::2], fields[1::2], strict=True))
    field: bytes | None = next((one for one in _BODY_FIELDS if one in values), None)
    fault = ""
    if field is None and len(values) == 1:
        (field,) = values
    body = b"" if field is None else values.pop(field)
    texts: dict[str, str] = {}
    for one, value in values.items():
        try:
            texts[one.decode()] = value.decode()
        except UnicodeDecodeError:
            fault = (
                fault
                if field is not None
                else "a field of the entry is not text in UTF-8, and it has no field data"
            )
    if field is None:
        body = json.dumps(texts).encode()
    return Delivery(
        receipt=entry, body=body, id=texts.get("ce_id") or name, headers={} if field is None else texts,
        kind=texts.get("ce_type", ""), correlation_id=texts.get("correlation_id"), reply_to=texts.get("reply_to"),
        sent_at=sent_at, count=count, fault=fault,
    )  # fmt: skip


async def _missing_rights(line: RedisConnection, target: Target, key: str, group: str | None) -> Requirements:
    """Return what this user may not do with a stream. Nothing is read or written: there is no such group, and
    no such id, and Redis looks at rights first.
    """
    always = {"type": ("TYPE", key), "pttl": ("PTTL", key), "xinfo|stream": ("XINFO", "STREAM", key)}
    of_use: dict[str, tuple[Word, ...]] = {"xadd": ("XADD", key, "NOMKSTREAM", "none", "data", "")}
    of_less_use: dict[str, tuple[Word, ...]] = {}
    if group is not None:
        of_use = {
            "xreadgroup": ("XREADGROUP", "GROUP", _NO_GROUP, "check", "COUNT", 1, "STREAMS", key, ">"),
            "xack": ("XACK", key, _NO_GROUP, "0-0"),
            "xautoclaim": ("XAUTOCLAIM", key, _NO_GROUP, "check", 0, "0-0"),
            "xclaim": ("XCLAIM", key, _NO_GROUP, "check", 0, "0-0", "JUSTID"),
            "xpending": ("XPENDING", key, _NO_GROUP),
            "xrange": ("XRANGE", key, "+", "+", "COUNT", 1),
            "xgroup|create": ("XGROUP", "CREATE", key, _NO_GROUP, "none"),
            "xinfo|groups": ("XINFO", "GROUPS", key),
            "time": ("TIME",),
        }
        of_less_use = {
            "eval": ("EVAL", "return 0", 0),
            "xinfo|consumers": ("XINFO", "CONSUMERS", key, _NO_GROUP),
            "xgroup|delconsumer": ("XGROUP", "DELCONSUMER", key, _NO_GROUP, "check"),
        }
    result = Requirements()
    severities: tuple[tuple[Severity, dict[str, tuple[Word, ...]], str], ...] = (
        ("error", {**always, **of_use}, ""),
        ("warning", of_less_use, ": the names of consumers that died long ago stay in the group"),
    )
    for severity, commands, consequence in severities:
        rights = list[str]()
        for name, words in commands.items():
            try:
                await line.call(*words)
            except CommandError:
                continue
            except ConfigError as fault:
                rights.append(f"~{_pattern(key)}" if _KEY.search(str(fault)) else f"+{name}")
        if rights := list(dict.fromkeys(rights)):
            what = f"this user lacks the rights {' '.join(rights)}{consequence}"
            result.add(severity, what, grant(target, rights))
    return result


async def _check(
    line: RedisConnection, target: Target, key: str, group: str | None, start: str = "0"
) -> Requirements:
    """Return what Redis promises of a stream. ``group``: who reads from it; None: it is sent to. ``start``:
    after which entry a new group begins; by default before all, as others may fill the stream first.

    Raises ``ConfigError``, ``BrokerUnavailableError``.
    """
    where, result = f"{target.where}/{key}", Requirements()
    try:
        info = await line.call("INFO")
    except ConfigError as fault:
        result.add("warning", f"The server cannot be checked: {fault}", grant(target, ["+info"]))
    except CommandError as refusal:
        raise _error_for(refusal, where) from refusal
    else:
        result.extend(_of_server(_info(info), where))
    missing = await _missing_rights(line, target, key, group)
    result.extend(missing)
    if any(one.severity == "error" for one in missing):
        return result
    kind, left, stream = await line.calls([("TYPE", key), ("PTTL", key), ("XINFO", "STREAM", key)])
    for answer in (kind, left):
        if isinstance(answer, CommandError):
            raise _error_for(answer, where) from answer
    if kind == b"none":
        create = f"XGROUP CREATE {key} {group or 'GROUP'} {start} MKSTREAM"
        result.add("error", f"There is no stream {key}", f"Correct the name, or create it: {create}")
        return result
    if kind != b"stream":
        result.add("error", f"{key} is not a stream, but a {kind.decode()}", "Name another key")
        return result
    result.add("ok", f"The stream {key} exists")
    if left > 0:
        what = f"The stream {key} expires in {left / 1000:.0f} s, with all that is in it"
        result.add("error", what, f"PERSIST {key}")
    last = _pairs(stream).get(b"last-generated-id", b"0-0") if isinstance(stream, list) else b"0-0"
    if group is not None and 0 < int(last.partition(b"-")[0]) < _TIMES_BEGIN:
        what = (
            f"The senders of {key} choose the ids of its entries ({last.decode()}): in a stream that was deleted and filled again, they "
            "repeat, and are taken for known ones"
        )
        result.add("warning", what, "Let Redis make the ids (XADD … *), or never delete the stream")
    return result


def _of_server(info: dict[str, str], where: str) -> Requirements:
    """Return what a server promises of all its streams."""
    version = tuple(int(part) for part in info.get("redis_version", "0").split(".")[:2] if part.isdecimal())
    if version < _OLDEST:
        raise ConfigError(
            f"{where}: Redis {info.get('redis_version')} is too old: 6.2 is the oldest that has XAUTOCLAIM"
        )
    if info.get("role") == "slave":
        raise BrokerUnavailableError(f"{where}: the server is a replica now: name the one that is written to")
    result = Requirements()
    policy = info.get("maxmemory_policy", "")
    if policy.startswith("allkeys"):
        what = f"Redis may evict whole streams when its memory is full (maxmemory-policy {policy})"
        is_limited = info.get("maxmemory", "0") != "0"
        result.add("error" if is_limited else "warning", what, "Set maxmemory-policy to noeviction")
    if info.get("aof_enabled") == "0":
        what = "appendonly is off: a restart of Redis loses what came since its last snapshot"
        result.add("warning", what, "Set appendonly to yes")
    else:
        what = "appendonly is on; unless appendfsync is always, a power cut loses the last second"
        result.add("ok", what)
    if info.get("connected_slaves", "0") != "0":
        what = "Redis confirms before its replicas have an entry: a fail-over loses the last ones"
        remedy = "min-replicas-to-write 1 makes the loss smaller; nothing in Redis rules it out"
        result.add("warning", what, remedy)
    return result


def _error_for(refusal: CommandError, where: str) -> BrokerUnavailableError | ConfigError:
    if is_passing(refusal):
        return BrokerUnavailableError(f"{where}: {refusal}")
    if refusal.code in _ELSEWHERE:
        return ConfigError(
            f"{where}: the stream is on another node of the cluster ({refusal}): name that node in the URL"
        )
    if refusal.code == "WRONGTYPE":
        return ConfigError(f"{where}: the key is used for something else than a stream: name another one")
    return ConfigError(f"{where}: Redis refuses it ({refusal})")


def _pairs(flat: Sequence[Any]) -> dict[bytes, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _info(text: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in text.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


def _pattern(key: str) -> str:
    """Return a key as a pattern of Redis; only a * at its end keeps its meaning."""
    end = "*" if key.endswith("*") else ""
    return re.sub(r"([*?\[\]\\])", r"\\\1", key.removesuffix("*")) + end


def _chunks(ids: Iterable[str]) -> list[list[str]]:
    every = list(ids)
    return [every[at : at + _CHUNK] for at in range(0, len(every), _CHUNK)]


def open_source(target: Target, address: BrokerAddress, reader: Reader) -> RedisSource:
    """Return the source at a stream. Raises ``ConfigError`` for a URL or parameter that cannot be used."""
    return RedisSource(target, address, reader)


def open_sender(target: Target) -> RedisSender:
    """Return what appends to streams. Raises ``ConfigError`` for a URL that cannot be used."""
    return RedisSender(target)


async def check(
    target: Target, sources: Sequence[BrokerAddress], places: Sequence[str], reader: Reader
) -> Answers:
    """Check the server, each stream, and what this user may do with it."""
    line = RedisConnection(target, target.where)
    async with opening(line):
        await line.open()
        answers = await check_each(
            target,
            sources,
            lambda each: RedisSource(target, each, reader).examine(line),
            places,
            lambda place: _check(line, target, place, None),
        )
    await line.close()
    return answers


def permissions(target: Target, sources: Sequence[str], places: Sequence[str]) -> str:
    """Return the commands that give a user these rights.

    ``sources``, ``places``: streams; a * at the end means any further text.
    """
    keys = " ".join(f"'~{_pattern(key)}'" for key in dict.fromkeys([*sources, *places]))
    reads = "+xreadgroup +xack +xautoclaim +xclaim +xpending +xrange +xgroup|create +xgroup|delconsumer +xinfo|groups +xinfo|consumers +eval +time"
    rights = [
        "+client|setname +select +info +type +pttl +xinfo|stream",
        *([reads] if sources else []),
        *(["+xadd"] if places else []),
    ]
    return f"""\
# {target.where}: as an administrator of Redis; then ACL SAVE, or CONFIG REWRITE.
ACL SETUSER makegood on '>PASSWORD' resetkeys {keys} resetchannels -@all {" ".join(rights)}
"""
