"""Preferences over a transport: alone, over TCP between real processes, and under a lease that decides."""

import asyncio
import contextlib
import json
import logging
import random
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest

from makegood.election import Election, Term
from makegood.election.preference import (
    Bully,
    LowestId,
    MemoryNetwork,
    Message,
    Ring,
    TcpTransport,
    Transport,
)
from makegood.election.preference.member import ElectionMember
from makegood.election.preference.tcp import LIMIT, FrameError, address, decode, encode
from makegood.errors import ConfigError
from tests.connection_flood import flooding
from tests.election.virtual import Leases, clock, election, forever, virtual, wait

KINDS: dict[str, type[LowestId | Bully | Ring]] = {"lowest": LowestId, "bully": Bully, "ring": Ring}
every = pytest.mark.parametrize("kind", KINDS)


def member(kind: str, transport: Transport, **options: Any) -> ElectionMember:
    """Return a member with its own seed, on virtual time."""
    return KINDS[kind](transport, clock=clock(), rng=random.Random(transport.me), **options)


async def known(leaders: AsyncGenerator[str | None, None], leader: str | None) -> None:
    """Wait until a member takes somebody for the leader."""
    async for view in leaders:
        if view == leader:
            return


# -- alone ---------------------------------------------------------------------------------------------------------------


@every
def test_members_agree_and_agree_anew_when_the_leader_goes(kind: str) -> None:
    @virtual
    async def story() -> None:
        names = ["a", "b", "c"]
        network = MemoryNetwork(names)
        members = {name: member(kind, network.transport(name)) for name in names}
        first, second = ("a", "b") if kind == "lowest" else ("c", "b")
        views = {name: members[name].leaders() for name in names}
        await asyncio.gather(*(known(leaders, first) for leaders in views.values()))
        assert members[first].rank() == 0
        assert members[second].rank() == 1
        await views.pop(first).aclose()
        assert members[first].leader is None
        assert members[first].rank() == 0, "who takes no part knows nothing, and holds nobody back"
        await asyncio.gather(*(known(leaders, second) for leaders in views.values()))
        for leaders in views.values():
            await leaders.aclose()

    story()


@virtual
async def test_a_member_must_be_of_the_group_and_bear_the_transport_s_name() -> None:
    network = MemoryNetwork(["a", "b"])
    with pytest.raises(ConfigError, match="give election and transport the same name"):
        await member("bully", network.transport("a")).start("b")
    with pytest.raises(ConfigError, match="among the members"):
        await member("bully", network.transport("c")).start("c")


@virtual
async def test_a_transport_that_breaks_is_told_and_no_word_of_it_holds_anybody_back() -> None:
    class Broken(MemoryNetwork):
        def carry(self, sender: str, to: str, message: Message) -> None:
            raise LookupError("a defect")

    faulty = member("bully", Broken(["a", "b"]).transport("a"))
    with pytest.raises(LookupError, match="a defect"):
        await known(faulty.leaders(), "a")
    assert faulty.rank() == 0


# -- under a lease -------------------------------------------------------------------------------------------------------


def candidates(kind: str, leases: Leases, network: MemoryNetwork) -> dict[str, Election]:
    """Return candidates, the less preferred first."""
    return {
        name: election(leases, name, ttl=15, retry=1, preference=member(kind, network.transport(name)))
        for name in network.members
    }


@every
def test_the_preferred_candidate_leads_and_after_it_the_next(kind: str) -> None:
    """The others are as quick; the preference alone makes the difference. Ten times, so that it is no chance."""

    @virtual
    async def story() -> None:
        leases = Leases()
        order = ["c", "b", "a"] if kind != "lowest" else ["a", "b", "c"]
        all_of_them = candidates(kind, leases, MemoryNetwork(["a", "b", "c"]))

        async def lead(_: Term) -> None:
            await forever()

        tasks = {name: asyncio.ensure_future(one.run(lead)) for name, one in all_of_them.items()}
        for _ in range(10):
            await wait(40)
            (first,) = [one for one in all_of_them.values() if one.term is not None]
            assert first.me == order[0], leases.verbs()
            await first.step_down(rest=0)
        await wait(40)
        tasks[order[0]].cancel()
        await asyncio.gather(tasks[order[0]], return_exceptions=True)
        await wait(40)
        (heir,) = [one for one in all_of_them.values() if one.term is not None]
        assert heir.me == order[1]
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)

    story()


@every
def test_a_preferred_one_that_never_tries_blocks_nobody_for_ever(kind: str) -> None:
    """It is alive for its transport, and dead for the lease: the others wait their turn, and then one leads."""

    @virtual
    async def story() -> None:
        leases, network = Leases(), MemoryNetwork(["a", "b", "c"])
        idle = "a" if kind == "lowest" else "c"
        dreamer = member(kind, network.transport(idle))
        await dreamer.start(idle)
        tasks = [
            asyncio.ensure_future(one.run(lambda _: forever()))
            for name, one in candidates(kind, leases, network).items()
            if name != idle
        ]
        await wait(3 + 2 * (2 * 1) + 1.5)
        assert [line for line in leases.verbs() if "took" in line] == ["b took 1"]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await dreamer.stop()

    story()


@every
def test_where_no_message_comes_through_the_lease_decides_alone(kind: str) -> None:
    @virtual
    async def story() -> None:
        class Silent(MemoryNetwork):
            def carry(self, sender: str, to: str, message: Message) -> None:
                pass

        leases = Leases()
        everybody = candidates(kind, leases, Silent(["a", "b", "c"]))
        tasks = [asyncio.ensure_future(one.run(lambda _: forever())) for one in everybody.values()]
        await wait(60)
        assert len([one for one in everybody.values() if one.term is not None]) == 1
        assert [line for line in leases.verbs() if "took" in line] == leases.verbs()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    story()


# -- over TCP ------------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no connection end because this machine is slow."""
    monkeypatch.setattr("makegood.election.preference.tcp.FIRST", 30.0)


@contextlib.contextmanager
def places(*names: str) -> Iterator[dict[str, str]]:
    """Return an address for each, with a port that nobody else is given meanwhile."""
    with contextlib.ExitStack() as stack:
        addresses = {}
        for name in names:
            port = stack.enter_context(socket.socket())
            port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            port.bind(("127.0.0.1", 0))
            addresses[name] = f"127.0.0.1:{port.getsockname()[1]}"
        yield addresses


async def test_a_message_arrives_whole_and_one_to_a_dead_member_is_lost_without_a_word() -> None:
    with places("a", "b", "c") as where:
        a, b = TcpTransport("a", where), TcpTransport("b", where)
        await a.open()
        await b.open()
        messages = [Message("candidate", "c", 2**53, 7), Message("alive", "a")]
        for message in messages:
            await a.send("c", message)
            await a.send("b", message)
        async with asyncio.timeout(60):
            assert [await b.receive(), await b.receive()] == [("a", message) for message in messages]
            await b.close()
            await b.open()  # the connection that a still has is broken; a new one is made
            while True:
                await a.send("b", messages[1])
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.2):
                        assert await b.receive() == ("a", messages[1])
                        break
        await a.close()
        await b.close()


def frame(body: bytes) -> bytes:
    """Return bytes with their length before them."""
    return len(body).to_bytes(4, "big") + body


GOOD = encode("b", Message("alive", "b"))
BAD = {
    "too long": (LIMIT + 1).to_bytes(4, "big"),
    "empty": frame(b""),
    "no JSON": frame(b"{"),
    "nested without end": frame(b"[" * (LIMIT - 10)),
    "no object": frame(b"[1]"),
    "a field too many": frame(b'{"from":"b","kind":"alive","about":"b","number":0,"hops":0,"more":1}'),
    "an unknown kind": GOOD.replace(b"alive", b"alike"),
    "a kind that is a list": frame(b'{"from":"b","kind":["alive"],"about":"b","number":0,"hops":0}'),
    "a number that is true": frame(b'{"from":"b","kind":"alive","about":"b","number":true,"hops":0}'),
    "a negative number": frame(b'{"from":"b","kind":"alive","about":"b","number":-1,"hops":0}'),
    "a huge number": frame(b'{"from":"b","kind":"alive","about":"b","number":1e99,"hops":0}'),
    "a stranger": GOOD.replace(b'"from":"b"', b'"from":"x"'),
    "about a stranger": GOOD.replace(b'"about":"b"', b'"about":"x"'),
    "from oneself": GOOD.replace(b'"from":"b"', b'"from":"a"'),
    "another protocol": b"GET / HTTP/1.1\r\n\r\n",
}


async def test_bad_frames_are_refused_and_good_ones_go_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING, "makegood.election")
    monkeypatch.setattr("makegood.base.sparse_log.PAUSE", 0.0)  # each is logged
    with places("a", "b") as where:
        a = TcpTransport("a", where)
        await a.open()
        host, port = where["a"].split(":")
        async with asyncio.timeout(60):
            for number, bad in enumerate(BAD.values(), 1):
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(GOOD + bad + GOOD)
                assert await a.receive() == ("b", Message("alive", "b"))
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b"", "the connection is closed"
                writer.close()
                assert a.refusals == number
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(GOOD[:7])
            writer.close()  # in the middle of a frame: a member that died, nothing to complain about
            other = TcpTransport("b", where)
            await other.open()
            await other.send("a", Message("elected", "b", 3, 1))
            assert await a.receive() == ("b", Message("elected", "b", 3, 1)), (
                "what followed the bad ones is lost"
            )
            await other.close()
        await a.close()
    assert len(caplog.records) == len(BAD)
    assert "it has 1195725856 bytes, at most 4096 are allowed" in caplog.text


async def test_strangers_fill_the_log_neither_with_many_lines_nor_with_long_ones(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One line a minute, and a name of 3,900 letters is not in it."""
    caplog.set_level(logging.DEBUG, "makegood.election")
    with places("a", "b") as where:
        a = TcpTransport("a", where)
        await a.open()
        async with asyncio.timeout(60):
            for _ in range(30):
                reader, writer = await asyncio.open_connection(*address(where["a"]))
                writer.write(encode("x" * 3900, Message("alive", "b")))
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
                writer.close()
        assert a.refusals == 30
        await a.close()
    (record,) = caplog.records
    assert "is not of the group" in record.getMessage()
    assert len(record.getMessage()) < 200


async def test_silent_connections_do_not_deafen_a_member() -> None:
    """Eighty are open; all of twenty letters arrive, of a member that was connected before and of one that connects then."""
    with places("a", "b", "c") as where:
        a, b, c = (TcpTransport(name, where) for name in where)
        for one in (a, b, c):
            await one.open()
        await a.send("b", Message("alive", "a", 0))
        async with asyncio.timeout(60):
            assert await b.receive() == ("a", Message("alive", "a", 0))
            silent = [await asyncio.open_connection(*address(where["b"])) for _ in range(80)]
            for n in range(1, 21):
                sender = (a, c)[n % 2]
                await sender.send("b", Message("alive", sender.me, n))
                assert await b.receive() == (sender.me, Message("alive", sender.me, n))
        for _, writer in silent:
            writer.close()
        for one in (a, b, c):
            await one.close()


async def test_under_a_flood_of_silent_connections_every_letter_of_a_connected_member_arrives() -> None:
    with places("a", "b") as where:
        a, b = TcpTransport("a", where), TcpTransport("b", where)
        await a.open()
        await b.open()
        await a.send("b", Message("alive", "a"))  # from here on they are connected
        async with asyncio.timeout(60):
            assert await b.receive() == ("a", Message("alive", "a"))
        with flooding(f"http://{where['b']}", b"\0") as under_way:
            assert await asyncio.get_running_loop().run_in_executor(None, under_way.wait, 60)
            async with asyncio.timeout(60):
                for n in range(20):
                    await a.send("b", Message("alive", "a", n))
                    assert await b.receive() == ("a", Message("alive", "a", n))
        async with asyncio.timeout(60):  # the last of all: nothing is on its way when b is closed
            last = await asyncio.open_connection(*address(where["b"]))
            last[1].write(encode("a", Message("ack", "a")))
            assert await b.receive() == ("a", Message("ack", "a"))
            last[1].close()
        await a.close()
        await b.close()


async def closes(reader: asyncio.StreamReader) -> bool:
    """Wait until the other end closes a connection."""
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    return True


async def test_a_connection_without_a_letter_is_closed_soon_and_a_member_has_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of three connections that speak for one member the oldest is closed; for another member there are two more."""
    with places("a", "b", "c") as where:
        a = TcpTransport("a", where)
        await a.open()
        async with asyncio.timeout(60):
            with monkeypatch.context() as soon:
                soon.setattr("makegood.election.preference.tcp.FIRST", 0.1)
                reader, writer = await asyncio.open_connection(*address(where["a"]))
                assert await closes(reader)
                writer.close()
            connections = []
            for sender in "bbcc":
                connections.append(await asyncio.open_connection(*address(where["a"])))
                connections[-1][1].write(encode(sender, Message("alive", sender)))
                assert (await a.receive())[0] == sender
            connections.append(await asyncio.open_connection(*address(where["a"])))
            connections[-1][1].write(GOOD)
            assert (await a.receive())[0] == "b"
            assert await closes(connections[0][0])
            for sender, (_, still) in zip("bccb", connections[1:], strict=True):
                still.write(encode(sender, Message("ack", sender)))
                assert (await a.receive())[0] == sender
            connections[1][1].write(encode("c", Message("ack", "c")))
            assert await closes(connections[1][0]), "a connection is that of one member"
        for _, writer in connections:
            writer.close()
        await a.close()


def test_what_is_encoded_is_decoded() -> None:
    for message in (Message("ack", "näme", 5, 2), Message("coordinator", "b")):
        assert decode(encode("a", message)[4:]) == ("a", message)
    with pytest.raises(FrameError):
        decode(b"null")


def test_addresses_and_names_are_looked_at_early() -> None:
    with pytest.raises(ConfigError, match="'c' is not among the members: a"):
        TcpTransport("c", {"a": "h:1"})
    for wrong in ("host", "host:", ":1", "host:port", "host:0", "host:70000", "host:" + "9" * 5000):
        with pytest.raises(ConfigError, match="is not the address of a member"):
            TcpTransport("a", {"a": wrong})
    assert TcpTransport("a", {"a": "[::1]:80"}).members() == ["a"]


async def test_a_port_that_is_taken_is_named() -> None:
    with places("a") as where:
        first = TcpTransport("a", where)
        await first.open()
        with pytest.raises(ConfigError, match=r"'a' cannot listen on 127\.0\.0\.1:\d+: .*in use"):
            await TcpTransport("a", where).open()
        await first.close()


# -- real processes ------------------------------------------------------------------------------------------------------


class Fleet:
    """Members as processes."""

    def __init__(self, kind: str, where: dict[str, str]) -> None:
        self._kind, self._where = kind, where
        self._processes: dict[str, Process] = {}

    async def start(self, name: str) -> None:
        """Start one."""
        script = Path(__file__).with_name("preference_process.py")
        self._processes[name] = await asyncio.create_subprocess_exec(
            sys.executable, str(script), self._kind, name, json.dumps(self._where), stdout=asyncio.subprocess.PIPE
        )  # fmt: skip

    async def kill(self, name: str) -> None:
        """End one with SIGKILL."""
        process = self._processes.pop(name)
        process.kill()
        await process.communicate()

    async def agree(self, leader: str) -> None:
        """Wait until all take this one for the leader."""

        async def says(process: Process) -> None:
            assert process.stdout is not None
            while line := await process.stdout.readline():
                if json.loads(line) == leader:
                    return
            raise AssertionError("it ended")

        async with asyncio.timeout(60):
            await asyncio.gather(*(says(process) for process in self._processes.values()))

    async def end(self) -> None:
        """Kill all."""
        for name in list(self._processes):
            await self.kill(name)


async def test_real_processes_agree_after_kill_9_of_the_leader_and_when_it_is_back() -> None:
    names, first = ["m-1", "m-2", "m-10"], "m-10"
    with places(*names) as where:
        fleet = Fleet("bully", where)
        try:
            for name in names:
                await fleet.start(name)
            await fleet.agree(first)
            await fleet.kill(first)
            await fleet.agree("m-2")
            await fleet.start(first)
            await fleet.agree(first)
        finally:
            await fleet.end()
