"""The port of the console, reached by strangers: what each of them may hold, and for how long."""

import asyncio
import base64
import logging
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import makegood as mg
from makegood.console import access, limited_server, live, users
from tests.actors.conftest import QUIET
from tests.connection_flood import flooding, opened
from tests.console.consoles import HASH, migrated, shop
from tests.console.ports import Client, a_port, application_port, cookie, page
from tests.waiting import moment, until

PASSWORD = "correct horse battery"
FORM = "Content-Type: application/x-www-form-urlencoded"
HELD = {
    "silent": (b"", b""),
    "half a head": (b"GET / HTTP/1.1\r\nHost: a\r\nX: ", b""),
    "head, drop by drop": (b"GET / HTTP/1.1\r\nHost: a\r\n", b"X-A: b\r\n"),
    "login, drop by drop": (f"POST /login HTTP/1.1\r\nHost: a\r\n{FORM}\r\nContent-Length: 60000\r\n\r\nuser=".encode(), b"a"),
    "act, drop by drop": (f"POST /alerts/test HTTP/1.1\r\nHost: a\r\n{FORM}\r\nContent-Length: 900000\r\n\r\n".encode(), b"a"),
    "api, drop by drop": (b"POST /api/v1/alerts/test HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 900000\r\n\r\n{", b" "),
    "chunks": (b"POST /login HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n"),
    "half a chunk": (b"POST /login HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1", b""),
    "a page with a body": (b"GET /login HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\n\r\n", b"a"),
    "no such page, with a body": (b"POST /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\n\r\n", b"a"),
    "after a 100": (b"POST /login HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 60000\r\n\r\n", b""),
    "idle after an answer": (b"GET /login HTTP/1.1\r\nHost: a\r\n\r\n", b""),
    "half a head after an answer": (b"GET /login HTTP/1.1\r\nHost: a\r\n\r\nGET / HT", b""),
    "a head after an answer, drop by drop": (b"GET /login HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n", b"X-A: b\r\n"),
    "many at once, and half of one": (b"GET /login HTTP/1.1\r\nHost: a\r\n\r\n" * 20 + b"GET", b""),
    "websocket": (
        b"GET /events HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        b"",
    ),
    "not HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 600, b""),
}  # fmt: skip


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten every time limit."""
    for name, seconds in {"HEAD": 0.4, "IDLE": 1, "BODY": 5, "LINGER": 0.4, "DRAIN": 0.4}.items():
        monkeypatch.setattr(limited_server, name, seconds)
    monkeypatch.setattr(access, "BODY", 0.4)


@pytest.fixture
def files() -> Iterator[None]:
    """Let this process open some thousand files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[1], 4096), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("way", HELD)
async def test_no_client_holds_a_connection_that_it_does_not_use(way: str, tmp_path: Path) -> None:
    first, drop = HELD[way]
    async with a_port(tmp_path) as server:
        client = await Client.at(server.address)
        client.writer.write(first)
        await client.drip(drop)
        assert await page(server.address, "") == 200
        client.close()


@pytest.mark.usefixtures("impatient")
async def test_a_form_that_takes_too_long_is_answered(tmp_path: Path) -> None:
    """And one that is too long: nobody logs in with more than the login page sends."""
    async with a_port(tmp_path) as server:
        slow = await Client.at(server.address)
        slow.send(f"POST /login HTTP/1.1\n{FORM}\nContent-Length: 1000", body=b"user=")
        assert await slow.status() == 408
        long = await Client.at(server.address)
        long.send(f"POST /login HTTP/1.1\n{FORM}\nContent-Length: 100000", body=b"user=" + b"a" * 99_995)
        assert await long.status() == 413
        for client in (slow, long):
            client.close()


async def test_a_role_is_refused_before_its_form_is_read(tmp_path: Path) -> None:
    """Nobody is sent to the login, and a viewer gets a 403, although no byte of the form has come."""
    async with a_port(tmp_path) as server:
        for path, who, status in (
            ("/alerts/test", "", 303), ("/alerts/test", "vera", 403), ("/api/v1/alerts/test", "", 401),
            ("/api/v1/alerts/test", "vera", 403), ("/tasks/0000000000000/settle", "otto", 403),
        ):  # fmt: skip
            client = await Client.at(server.address)
            client.send(
                f"POST {path} HTTP/1.1\n{FORM}\nContent-Length: 1000", cookie(server, who) if who else ""
            )
            assert await client.status() == status, path
            client.close()


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    "says",
    [
        b"",
        b"GET / HTTP/1.1\r\nX: ",
        b"POST /login HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nuser=",
    ],
)
async def test_under_a_flood_a_user_who_is_logged_in_gets_every_page(
    says: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And keeps the stream of a page that is live; places are limited, and the log stays short."""
    caplog.set_level(logging.WARNING)
    async with a_port(tmp_path) as server:
        assert server.http is not None
        mine = cookie(server)
        viewer = await Client.at(server.address)
        viewer.send("GET /events?page=/alerts HTTP/1.1", mine)
        assert await viewer.status() == 200
        with flooding(server.address, says) as under_way:
            assert await asyncio.get_running_loop().run_in_executor(None, under_way.wait, 60)
            statuses = [await page(server.address, mine, "/api/v1/session") for _ in range(20)]
            assert len(server.http.connections) <= limited_server.MOST_CONNECTIONS
        assert statuses == [200] * 20
        assert not viewer.reader.at_eof()
        viewer.close()
    assert len(caplog.records) < 5


@pytest.mark.usefixtures("files")
async def test_what_strangers_send_is_parsed_a_piece_in_a_turn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """However many of them send bodies in chunks of a byte, which cost more to parse than to send: the loop has other work."""
    monkeypatch.setattr(limited_server, "SHARE", 0.0)
    pieces: list[int] = []
    turn = 0
    parse = limited_server._Connection.parse

    def counted(connection: limited_server._Connection) -> None:
        pieces.append(turn)
        parse(connection)

    monkeypatch.setattr(limited_server._Connection, "parse", counted)
    async with a_port(tmp_path) as server:
        body = b"1\r\na\r\n" * 2000
        strangers = [
            opened(
                server.address,
                b"POST /login HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + body,
            )
            for _ in range(50)
        ]
        asking = asyncio.create_task(page(server.address, cookie(server), "/api/v1/session"))
        while not asking.done() or len(pieces) < 150:
            await asyncio.sleep(0)
            turn += 1
        for stranger in strangers:
            stranger.close()
        assert await asking == 200
        assert max(pieces.count(each) for each in set(pieces)) <= 2  # a head, and a body


async def test_a_head_of_many_lines_is_refused(tmp_path: Path) -> None:
    """Each line becomes several objects: 64 KiB of them take 2 MiB, and a tenth of a second."""
    async with a_port(tmp_path) as server:
        for lines, status in ((150, 200), (10_000, 400)):
            client = await Client.at(server.address)
            client.writer.write(b"GET /login HTTP/1.1\r\nHost: a\r\n" + b"a: b\r\n" * lines + b"\r\n")
            assert await client.status() == status
            client.close()


async def test_a_request_with_two_lengths_ends_its_connection(tmp_path: Path) -> None:
    """What follows it might be another's request, as a proxy in front reads it: nobody answers that."""
    async with a_port(tmp_path) as server:
        client = await Client.at(server.address)
        both = "POST /login HTTP/1.1\nContent-Length: 6\nTransfer-Encoding: chunked"
        client.send(both, body=b"0\r\n\r\nGET /login HTTP/1.1\r\nHost: a\r\n\r\n")
        answers = await client.reader.read()
        assert answers.startswith(b"HTTP/1.1 400 ")
        assert b"not both" in answers
        assert answers.count(b"HTTP/1.1") == 1
        client.close()


async def test_the_lines_of_one_request_are_not_counted_for_the_next(tmp_path: Path) -> None:
    """A browser and a script send hundreds of requests over one connection."""
    async with a_port(tmp_path) as server:
        client = await Client.at(server.address)
        for _ in range(20):
            client.writer.write(b"HEAD /login HTTP/1.1\r\nHost: a\r\n" + b"a: b\r\n" * 50 + b"\r\n")
            assert (await client.reader.readuntil(b"\r\n\r\n")).split()[1] == b"200"
        client.close()


@pytest.mark.usefixtures("files")
async def test_strangers_who_hold_every_place_make_room_for_those_who_are_known(tmp_path: Path) -> None:
    """Each of them with an answer, or a form under way."""
    async with a_port(tmp_path) as server:
        assert server.http is not None
        form = b"POST /login HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nuser="
        strangers = [
            opened(server.address, says)
            for says in (form, b"GET /login HTTP/1.1\r\nHost: a\r\n\r\n")
            for _ in range(limited_server.MOST_CONNECTIONS)
        ]
        for _ in range(10):
            assert await page(server.address, cookie(server), "/alerts") == 200
        assert len(server.http.connections) <= limited_server.MOST_CONNECTIONS
        for stranger in strangers:
            stranger.close()


@pytest.mark.usefixtures("impatient")
async def test_a_client_that_does_not_read_is_cut_off_and_one_that_reads_slowly_gets_all() -> None:
    """Of 30 MB, the server holds a piece at a time."""
    chunks = 0

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        async def counted(message: dict[str, Any]) -> None:
            nonlocal chunks
            chunks += 1
            await send(message)

        await counted({"type": "http.response.start", "status": 200, "headers": []})
        for last in (False, True):
            await counted({"type": "http.response.body", "body": b"x" * 15_000_000, "more_body": not last})

    async with application_port(application) as (server, address):
        deaf = await Client.at(address)
        deaf.send("GET / HTTP/1.1")
        await until(lambda: _so(len(server.connections) == 1), "the connection")
        await until(lambda: _so(len(server.connections) == 0), "the end of a client that reads nothing")
        patient = await Client.at(address)
        patient.send("GET / HTTP/1.1\nConnection: close")
        size = 0
        while part := await patient.reader.read(1_000_000):
            size += len(part)
            await moment()
        assert size > 30_000_000
        for client in (deaf, patient):
            client.close()


async def _so(what: bool) -> bool:
    return what


async def test_the_server_ends_although_its_clients_do_not(tmp_path: Path) -> None:
    """Silent ones, one that does not read, one whose form is under way."""
    async with a_port(tmp_path) as server:
        clients = [await Client.at(server.address) for _ in range(3)]
        clients[1].send("GET /events?page=/ HTTP/1.1", cookie(server))
        clients[2].send(f"POST /login HTTP/1.1\n{FORM}\nContent-Length: 1000", body=b"user=")
        assert await clients[1].status() == 200
        await asyncio.wait_for(server.end(), 60)
        for client in clients:
            await client.drip(b"")
            client.close()


@pytest.mark.usefixtures("impatient")
async def test_a_node_s_console_has_the_same_limits(tmp_path: Path) -> None:
    async with mg.Node(shop, await migrated(tmp_path), options=QUIET, console="127.0.0.1:0") as node:
        client = await Client.at(node.console)
        assert await client.drip(b"") == b""
        client.close()


@pytest.mark.usefixtures("impatient")
async def test_the_limits_hold_on_uvloop_too(tmp_path: Path) -> None:
    """On the loop that the command has where it is installed."""
    program = (
        "import asyncio, sys, pathlib, uvloop\nfrom makegood.console import limited_server\n"
        "limited_server.HEAD = 0.4\nfrom tests.console.ports import *\n"
        "async def main():\n"
        "    async with a_port(pathlib.Path(sys.argv[1])) as server:\n"
        "        client = await Client.at(server.address)\n"
        "        assert await client.drip(b'') == b''\n"
        "        many = [await Client.at(server.address) for _ in range(300)]\n"
        "        assert await page(server.address, cookie(server), '/alerts') == 200\n"
        "        assert len(server.http.connections) <= limited_server.MOST_CONNECTIONS\n"
        "        for each in many: each.close()\n"
        "uvloop.run(main())\n"
    )
    pytest.importorskip("uvloop")
    run = subprocess.run(  # noqa: ASYNC221 - nothing else runs here
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path.cwd(),
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.usefixtures("impatient")
async def test_requests_that_are_not_http_cost_the_log_a_line_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with a_port(tmp_path) as server:
        caplog.clear()
        for _ in range(30):
            client = await Client.at(server.address)
            client.writer.write(b"\x16\x03\x01\r\n\r\n")
            assert await client.status() == 400
            client.close()
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.name for record in warnings] == ["makegood.console.http"]


# -- passwords ---------------------------------------------------------------------------------------------------------


def basic(name: str, password: str) -> str:
    """Return the header by which a program says who it is."""
    return f"Authorization: Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"


async def by_password(address: str, name: str, password: str) -> int:
    """Ask as a program that sends a password, and return the status."""
    client = await Client.at(address)
    client.send(f"GET /api/v1/session HTTP/1.1\n{basic(name, password)}\nConnection: close")
    try:
        return await client.status()
    finally:
        client.close()


@pytest.fixture
def hashings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the passwords that are hashed from now on."""
    passwords: list[str] = []

    def accepts(user: users.User | None, password: str) -> bool:
        passwords.append(password)
        return users.accepts(user, password)

    monkeypatch.setattr(access, "accepts", accepts)
    return passwords


async def test_right_passwords_never_count_as_wrong(hashings: list[str], tmp_path: Path) -> None:
    """One after another and side by side; others behind the same address log in meanwhile. Few are hashed."""
    staff = {
        name: users.User(name, "viewer", users.hash_password(PASSWORD)) for name in ("robot", "ann", "bob")
    }
    async with a_port(tmp_path, staff) as server:
        ask = by_password
        assert [await ask(server.address, "robot", PASSWORD) for _ in range(30)] == [200] * 30
        together = [ask(server.address, name, PASSWORD) for name in staff for _ in range(30)]
        assert await asyncio.gather(*together) == [200] * 90
        assert len(hashings) <= 2 * len(staff)  # two of a name may begin together
        form = f"user=bob&password={PASSWORD.replace(' ', '+')}".encode()
        client = await Client.at(server.address)
        client.send(f"POST /login HTTP/1.1\n{FORM}\nContent-Length: {len(form)}", body=form)
        assert await client.status() == 303
        client.close()


async def test_wrong_passwords_count_side_by_side_too(hashings: list[str], tmp_path: Path) -> None:
    """Not many more than five are tried, and no proof of an old password outlives its hash."""
    ann = users.User("ann", "viewer", users.hash_password(PASSWORD))
    async with a_port(tmp_path, {"ann": ann}) as server:
        assert await by_password(server.address, "ann", PASSWORD) == 200
        server.app.access.users = {"ann": users.User("ann", "viewer", HASH)}
        assert await by_password(server.address, "ann", PASSWORD) == 401
        server.app.access.users = {"ann": ann}
        assert await by_password(server.address, "ann", PASSWORD) == 200
        hashings.clear()
        wrong = [by_password(server.address, "ann", f"wrong {n}") for n in range(30)]
        statuses = await asyncio.gather(*wrong)
        assert (statuses.count(200), statuses.count(429) >= 24, len(hashings) <= 6) == (0, True, True)
        assert await by_password(server.address, "ann", PASSWORD) == 429


# -- streams, addresses ------------------------------------------------------------------------------------------------


async def test_a_user_has_ten_streams_however_fast_they_are_asked_for(tmp_path: Path) -> None:
    """Those whose page is still being drawn count; others have theirs; one that ends makes room."""
    async with a_port(tmp_path) as server:
        mine, most = cookie(server), live.MOST_OF_USER
        clients = [await Client.at(server.address) for _ in range(3 * most)]
        for n, client in enumerate(clients):
            client.send(f"GET /events?page=/tasks?q=key:k{n} HTTP/1.1", mine)
        statuses = [await client.status() for client in clients]
        assert (statuses.count(200), statuses.count(429)) == (most, 2 * most)
        other = await Client.at(server.address)
        other.send("GET /events?page=/ HTTP/1.1", cookie(server, "otto"))
        assert await other.status() == 200
        for client in (*clients, other):
            client.close()
        await until(lambda: _so(not server.app.live.streams), "the ends of the streams")
        missing = await Client.at(server.address)
        missing.send("GET /events?page=/nothing HTTP/1.1", mine)
        assert await missing.status() == 404
        assert not server.app.live.streams
        missing.close()


async def test_an_address_or_a_filter_that_is_too_long_is_refused(tmp_path: Path) -> None:
    """On a page, in a fragment of one, in a stream, in the API; as a form's filter, too."""
    async with a_port(tmp_path) as server:
        mine, long = cookie(server, "otto"), "state:" + "error," * 1000
        for path, status in (
            (f"/tasks?q={long}", 200), (f"/bulk/new?kind=cancel&q={long}", 400), (f"/api/v1/tasks?q={long}", 400),
            (f"/tasks?q={'a' * 40_000}", 414), (f"/tasks?{'a&' * 5000}", 414), (f"/events?page=/tasks?{'a%26' * 5000}", 414),
            (f"/tasks?fragment={'a,' * 20_000}", 414), (f"/{'a' * 40_000}", 414),
        ):  # fmt: skip
            assert await page(server.address, mine, path) == status, path[:40]
        client = await Client.at(server.address)
        client.send(f"GET /tasks?q={long} HTTP/1.1\nConnection: close", mine)
        assert b"at most 2,000 are allowed" in await client.drip(b"")
        client.close()


@pytest.mark.parametrize(
    "text",
    [
        ">",
        "<a ",
        "<span ",
        '<span data-since="x"',
        ' data-since="x"',
        "<time>",
        '<a "',
        "<b x=",
        ' data-left="1" width="',
    ],
)
def test_looking_at_a_page_takes_no_more_than_its_length(text: str) -> None:
    """Eight times the text takes eight times as long, and not 64 times, whatever the text is."""

    def cost(length: int) -> float:
        start = time.process_time()
        live.look_at("<span " + text * length)
        return time.process_time() - start

    assert min(cost(40_000) for _ in range(3)) < 24 * min(cost(5_000) for _ in range(3)) + 0.02
