"""Messages over TCP, between processes and hosts.

A frame is four bytes of length, at most ``LIMIT``, and a JSON object. Anything else, or a frame from outside
the group, is refused: the connection is closed, and the log says why. A member connects to another when it
first has a message for it, and keeps the connection. A message that cannot be sent within ``timeout`` is
lost, and the next one tries a new connection. No caller waits: each destination has its own short queue.

A silent connection makes room for others: its first message is due within a second, if there is no room the
oldest silent one is closed, and each member has at most two for each address that it comes from.

There is no secret and no encryption: whoever reaches the port can pretend to be a member, with `coordinator`
for a message. Under a lease that costs time and nothing else, since the lease decides; used alone, keep the
port to a network that you trust.
"""

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, cast, get_args

from makegood.base.accepted_connections import Connections, SocketAcceptor, listening_on
from makegood.base.cancelling import cancel_and_wait
from makegood.base.durations import Duration, seconds
from makegood.base.host_port import port_in
from makegood.base.sparse_log import Sparing
from makegood.election.preference.transport import Kind, Letter, Message
from makegood.errors import ConfigError

log = logging.getLogger("makegood.election")

LIMIT = 4096
"""Bytes of a frame, at most."""
MOST_WAITING = 1000
"""Messages that may wait to be received; further ones are lost."""
MOST_UNSENT = 32
"""Messages that may wait for a destination; the oldest is lost then."""
MOST_CONNECTIONS = 64
"""Incoming connections beyond two for each member, which no member of the group needs."""
OF_A_MEMBER = 2
"""Incoming connections of one member from one address; beyond that the oldest is closed."""

FIRST = 1.0
"""Seconds within which an incoming connection must have brought its first message."""
IDLE = 60.0
"""Seconds after which a silent incoming connection is closed: its other end may be long gone."""

_UNHEARD = 3
_KINDS = frozenset(get_args(Kind))
_LARGEST = 2**53


class FrameError(ValueError):
    """These bytes are not a message."""


def encode(sender: str, message: Message) -> bytes:
    """Return the frame of a message."""
    body = json.dumps(
        {"from": sender, "kind": message.kind, "about": message.about, "number": message.number, "hops": message.hops},
        separators=(",", ":"),
    ).encode()  # fmt: skip
    return len(body).to_bytes(4, "big") + body


def decode(body: bytes) -> Letter:
    """Return the sender and the message of a frame's body. Raises ``FrameError`` for anything else."""
    try:
        fields: Any = json.loads(body)
    except (ValueError, RecursionError) as wrong:
        raise FrameError("it is not JSON") from wrong
    if not isinstance(fields, dict) or fields.keys() != {"from", "kind", "about", "number", "hops"}:
        raise FrameError("it does not have the fields of a message")
    sender, kind, about = fields["from"], fields["kind"], fields["about"]
    if not isinstance(sender, str) or not isinstance(about, str):
        raise FrameError("a name is not a text")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise FrameError("its kind is not known")
    for name in ("number", "hops"):
        if type(fields[name]) is not int or not 0 <= fields[name] <= _LARGEST:
            raise FrameError(f"its {name} is not a number from 0 to 2**53")
    return sender, Message(kind, about, fields["number"], fields["hops"])  # type: ignore[arg-type]  # one of `_KINDS`


def address(text: str) -> tuple[str, int]:
    """Return host and port of "host:port" or "[::1]:port". Raises ``ConfigError``."""
    host, _, digits = text.rpartition(":")
    port = port_in(digits)
    if not host or not port:
        raise ConfigError(f"{text!r} is not the address of a member: write host:port, such as 10.0.0.7:7400")
    return host.removeprefix("[").removesuffix("]"), port


class TcpTransport:
    """The transport of the member ``me``.

    - ``members``: the address "host:port" of each member, ``me`` too, in the order of the ring.
    - ``listen``: the address to listen on, if others reach this member by another one ("0.0.0.0:7400").
    - ``timeout``: how long a connection may accept no data before it is given up.

    Raises ``ConfigError`` for an invalid address.

    >>> TcpTransport("a", {"a": "10.0.0.7:7400", "b": "10.0.0.8:7400"}).members()
    ['a', 'b']
    """

    def __init__(
        self, me: str, members: Mapping[str, str], *, listen: str | None = None, timeout: Duration = 1
    ) -> None:
        if me not in members:
            raise ConfigError(f"{me!r} is not among the members: {', '.join(members)}")
        self._me = me
        self._addresses = {name: address(place) for name, place in members.items()}
        self._listen = self._addresses[me] if listen is None else address(listen)
        self._timeout = seconds(timeout, name="timeout", least=0.001)
        self._inbox: asyncio.Queue[Letter] = asyncio.Queue(MOST_WAITING)
        self._acceptor: SocketAcceptor | None = None
        self._unsent: dict[str, asyncio.Queue[bytes]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._serving: set[asyncio.Task[Any]] = set()
        self._incoming = Connections(MOST_CONNECTIONS + OF_A_MEMBER * len(self._addresses))
        self._connections: dict[tuple[str, str], list[asyncio.Transport]] = {}
        self._sparing = Sparing()
        self.refusals = 0

    @property
    def me(self) -> str:
        """The name of this member."""
        return self._me

    def members(self) -> Sequence[str]:
        """Return all members, in the order of the ring."""
        return list(self._addresses)

    async def open(self) -> None:
        """Listen. Raises ``ConfigError`` when that is not possible here."""
        host, port = self._listen
        self._inbox = asyncio.Queue(MOST_WAITING)
        try:
            listening = await listening_on(host, port)
            self._acceptor = SocketAcceptor(
                f"the member {self._me!r} of an election", listening, self._incoming, self._stream
            )
        except OSError as fault:
            raise ConfigError(f"{self._me!r} cannot listen on {host}:{port}: {fault.strerror}") from fault

    async def close(self) -> None:
        """Listen no more; break all connections."""
        acceptor, self._acceptor = self._acceptor, None
        if acceptor is not None:
            await acceptor.close()
        self._incoming.abort()
        await cancel_and_wait(*self._tasks)
        # Those that serve end with their connections.
        await asyncio.gather(*self._serving, return_exceptions=True)
        self._unsent.clear()

    async def send(self, to: str, message: Message) -> None:
        """Send, as well as that can be done."""
        queue = self._unsent.get(to)
        if queue is None:
            queue = self._unsent[to] = asyncio.Queue(MOST_UNSENT)
            self._begin(self._deliver(to, queue), f"messages to {to}")
        if queue.full():
            queue.get_nowait()
        queue.put_nowait(encode(self._me, message))

    async def receive(self) -> Letter:
        """Wait for the next message."""
        return await self._inbox.get()

    # -- out ---------------------------------------------------------------------------------------

    async def _deliver(self, to: str, queue: "asyncio.Queue[bytes]") -> None:
        """Send the frames of a queue, one after another; connect if there is a frame and no connection."""
        writer: asyncio.StreamWriter | None = None
        try:
            while True:
                frame = await queue.get()
                try:
                    async with asyncio.timeout(self._timeout):
                        if writer is None or writer.is_closing():
                            writer = await self._connect(to)
                        writer.write(frame)
                        await writer.drain()
                except (OSError, TimeoutError) as fault:
                    log.debug("a message from %s to %s is lost: %s", self._me, to, str(fault) or "no answer")
                    if writer is not None:
                        writer.transport.abort()
                        writer = None
        finally:
            if writer is not None:
                writer.transport.abort()

    async def _connect(self, to: str) -> asyncio.StreamWriter:
        reader, writer = await asyncio.open_connection(*self._addresses[to], limit=LIMIT)
        writer.transport.set_write_buffer_limits(high=LIMIT)
        # Otherwise the kernel retries for minutes, and then old news arrives.
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            limit = int(_UNHEARD * self._timeout * 1000)
            writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit)

        async def watch_end() -> None:
            """Only the end of this connection can arrive here, and it must be seen before the next message is
            written.
            """
            with contextlib.suppress(OSError):
                while await reader.read(LIMIT):
                    pass
            writer.transport.abort()

        self._begin(watch_end(), f"end of the messages to {to}")
        return writer

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- in ----------------------------------------------------------------------------------------

    def _stream(self) -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(LIMIT), self._accept)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task, transport = asyncio.current_task(), cast("asyncio.Transport", writer.transport)
        assert task is not None
        if self._acceptor is None:
            transport.abort()
            return
        self._serving.add(task)
        self._incoming.join(transport)
        sender = ""
        try:
            while True:
                async with asyncio.timeout(IDLE if sender else FIRST):
                    letter = await self._frame(reader)
                self._take(letter, sender)
                self._incoming.keep(transport)
                if not sender:
                    sender = letter[0]
                    self._greet(sender, transport)
        except (asyncio.IncompleteReadError, OSError, TimeoutError):
            return
        except FrameError as wrong:
            self.refusals += 1
            suffix = self._sparing.due(asyncio.get_running_loop().time())
            if suffix is not None:
                peer = writer.get_extra_info("peername")
                log.warning("%s refuses a message from %s: %s%s", self._me, peer, wrong, suffix)
        finally:
            self._serving.discard(task)
            self._incoming.leave(transport)
            self._forget(sender, transport)
            transport.abort()

    def _greet(self, sender: str, transport: asyncio.Transport) -> None:
        """Note which member a connection speaks for; of too many from one address the oldest is closed."""
        of_it = self._connections.setdefault((sender, _from(transport)), [])
        of_it.append(transport)
        if len(of_it) > OF_A_MEMBER:
            of_it.pop(0).abort()

    def _forget(self, sender: str, transport: asyncio.Transport) -> None:
        of_it = self._connections.get((sender, _from(transport)), [])
        if transport in of_it:
            of_it.remove(transport)
        if not of_it:
            self._connections.pop((sender, _from(transport)), None)

    async def _frame(self, reader: asyncio.StreamReader) -> Letter:
        length = int.from_bytes(await reader.readexactly(4), "big")
        if not 0 < length <= LIMIT:
            raise FrameError(f"it has {length} bytes, at most {LIMIT} are allowed")
        return decode(await reader.readexactly(length))

    def _take(self, letter: Letter, sender: str) -> None:
        """Receive a message; ``sender``: the member whose connection it is, "" before its first."""
        name, about = letter[0], letter[1].about
        if name not in self._addresses or name == self._me or about not in self._addresses:
            raise FrameError(f"{_brief(name)} or {_brief(about)} is not of the group")
        if sender not in ("", name):
            raise FrameError(f"{_brief(name)} speaks on a connection of {_brief(sender)}")
        if not self._inbox.full():
            self._inbox.put_nowait(letter)


def _brief(name: str) -> str:
    """Return a name in a form that is safe for the log, whoever chose it."""
    return repr(name if len(name) <= 40 else f"{name[:40]}...")


def _from(transport: asyncio.Transport) -> str:
    """Return the address that a connection comes from."""
    return str((transport.get_extra_info("peername") or ("",))[0])
