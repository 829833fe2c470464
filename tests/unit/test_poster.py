"""Posting to submitters' addresses: signed and secured as a stranger's library checks it, and never where it must not go."""

import asyncio
import base64
import gc
import json
import logging
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
import standardwebhooks
import trustme
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from makegood.base.clock import SystemClock
from makegood.base.host_lists import Secrets
from makegood.base.name_lookups import Lookups
from makegood.base.webhook_signature import signature
from makegood.brokers.protocol import RefusedTargetError
from makegood.errors import ConfigError, DeliveryError
from makegood.messaging.alert_webhook import Webhook
from makegood.messaging.hosts import Hosts
from makegood.messaging.poster import HTTPPoster
from makegood.model import notices
from makegood.model.notices import Notice
from makegood.model.task import ReplyTo
from tests.waiting import moment

SECRETS = ("whsec_bmV3IHNlY3JldG5ldyBzZWNyZXRuZXcg", "whsec_b2xkIHNlY3JldG9sZCBzZWNyZXRvbGQg")
NOTICE = Notice(
    7, 2, "processed", ReplyTo("https://x/", "cart-7"), "shop", "place", "o-1", result=b'{"sum":1}'
)
BODY = (notices.head("5e", 1, NOTICE, "2026-01-01T00:00:00.123456Z") + notices.event(NOTICE)).encode()
LOCAL = Hosts(["localhost", "127.0.0.0/8", "*.example"])


@dataclass
class Receiver:
    """A small web server that keeps what it gets."""

    port: int = 0
    answer: bytes = b"HTTP/1.1 204 No Content\r\n\r\n"
    hold: asyncio.Event | None = None
    got: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one request."""
        try:
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
            headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
            body = await reader.readexactly(int(headers["content-length"]))
            self.got.append((first, headers, body))
            if self.hold is not None:
                await self.hold.wait()
            writer.write(self.answer)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # who sent it has gone
        finally:
            writer.close()


@asynccontextmanager
async def receiving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        if receiver.hold is not None:
            receiver.hold.set()
        server.close()


async def here(host: str, port: int) -> list[str]:
    """Resolve every name to this machine."""
    return ["127.0.0.1"]


def poster(hosts: Hosts = LOCAL, **more: Any) -> HTTPPoster:
    return HTTPPoster(hosts, SECRETS, **{"clock": SystemClock(), "resolve": here, **more})


async def test_the_standards_own_libraries_take_what_is_posted() -> None:
    async with receiving() as shop:
        await poster().post(f"http://localhost:{shop.port}/hook?of=a%20b", notices.name_of(BODY), BODY)
    ((first, headers, body),) = shop.got
    assert first == "POST /hook?of=a%20b HTTP/1.1"
    assert headers["host"] == f"localhost:{shop.port}"
    for secret in SECRETS:  # whichever of them the receiver has so far
        assert standardwebhooks.Webhook(secret).verify(body, headers) == json.loads(BODY)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook("whsec_b3RoZXI=").verify(body, headers)
    assert headers["content-type"] == "application/cloudevents+json"
    event = JSONFormat().read(CloudEvent, body)
    assert (event.get_type(), event.get_id()) == ("dev.makegood.task.processed.v1", headers["webhook-id"])
    assert (event.get_subject(), event.get_extension("sequence")) == ("0000000000007", "0000000002")
    assert event.get_time() is not None
    data: Any = event.get_data()
    assert data["result"] == {"sum": 1}


async def test_the_name_in_the_certificate_is_what_counts_though_the_address_was_looked_up_before() -> None:
    authority = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("hooks.example").configure_cert(server)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with receiving(server) as shop:
        await poster(tls=trusting).post(f"https://hooks.example:{shop.port}/", "m", BODY)
        with pytest.raises(DeliveryError, match="cannot be reached"):
            await poster(tls=trusting).post(f"https://other.example:{shop.port}/", "m", BODY)
        with pytest.raises(DeliveryError, match="cannot be reached"):
            await poster().post(f"https://hooks.example:{shop.port}/", "m", BODY)  # a stranger's certificate
    assert len(shop.got) == 1


@pytest.mark.parametrize(
    ("answer", "says", "final"),
    [
        (b"HTTP/1.1 503 Busy\r\nRetry-After: 120\r\nContent-Length: 0\r\n\r\n", "answered 503", False),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "answered 302", False),
        (b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n", "wants nothing more", True),
        (b"no web server at all\r\n\r\n", "cannot be reached", False),
        (b"", "cannot be reached", False),
    ],
)  # fmt: skip
async def test_any_other_answer_than_2xx_is_a_failure_and_no_redirect_is_followed(
    answer: bytes, says: str, final: bool
) -> None:
    async with receiving() as shop:
        shop.answer = answer
        with pytest.raises(DeliveryError, match=says) as error:
            await poster().post(f"http://localhost:{shop.port}/", "m", BODY)
    assert isinstance(error.value, RefusedTargetError) is final
    assert len(shop.got) == 1
    assert error.value.retry_after == ("120" if b"Retry" in answer else None)


async def test_who_answers_for_ever_or_never_is_left_in_time() -> None:
    async with receiving() as shop:
        shop.hold = asyncio.Event()
        with pytest.raises(DeliveryError, match="did not answer within"):
            await poster(timeout=0.2).post(f"http://localhost:{shop.port}/", "m", BODY)
    async with receiving() as shop:
        shop.answer = b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 5_000_000
        await poster().post(f"http://localhost:{shop.port}/", "m", BODY)


async def test_nobody_there_is_a_failure() -> None:
    async with receiving() as shop:
        pass
    with pytest.raises(DeliveryError, match="cannot be reached"):
        await poster().post(f"http://localhost:{shop.port}/", "m", BODY)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.0.0.5", "169.254.169.254", "192.168.1.1", "100.64.0.1", "224.0.0.1", "::1", "fe80::1%eth0",
        "fd00::1", "fec0::1", "::10.0.0.1", "::ffff:0:8.8.8.8", "::ffff:10.0.0.1", "64:ff9b::a00:1", "64:ff9b:1::808:808", "3fff::1",
        "192.0.0.8", "2002:a00:1::", "2001:0:a00:1::f5ff:fffe",
    ],
)  # fmt: skip
async def test_a_name_on_the_list_that_leads_inside_is_refused(address: str) -> None:
    async def inside(host: str, port: int) -> list[str]:
        return ["93.184.215.14", address]  # one of them is enough

    with pytest.raises(RefusedTargetError, match="not public"):
        await poster(Hosts(["hooks.example"]), resolve=inside).post("https://hooks.example/", "m", BODY)


async def test_a_host_that_is_not_on_the_list_is_not_even_looked_up() -> None:
    async def never(host: str, port: int) -> list[str]:
        raise AssertionError

    hosts = Hosts(["hooks.example:8443", "10.1.0.0/16", "*.shop.example:9443"])
    for url in (
        "https://evil.example.com/",
        "https://10.0.0.1/",
        "http://localhost/",
        "https://hooks.example/",
        "https://a.shop.example:8443/",
    ):
        with pytest.raises(RefusedTargetError, match="webhook_hosts"):
            await poster(hosts, resolve=never).post(url, "m", BODY)


@pytest.mark.parametrize(
    ("entries", "host", "address"),
    [
        (["hooks.example"], "hooks.example", "93.184.215.14"),
        (["hooks.example"], "HOOKS.example.", "2606:4700::1111"),
        (["*.example", "10.0.0.0/8"], "a.b.example", "10.2.3.4"),
        (["10.0.0.0/8"], "10.2.3.4", "10.2.3.4"),
        (["localhost"], "localhost", "127.0.0.1"),
        (["::1"], "::1", "::1"),
        (
            ["hooks.example"],
            "hooks.example",
            "64:ff9b::5db8:d70e",
        ),  # by DNS64, of a name with an IPv4 address
        (["hooks.example"], "hooks.example", "::ffff:93.184.215.14"),
        (["hooks.example", "10.0.0.0/8"], "hooks.example", "64:ff9b::a00:1"),
        (["hooks.example", "fec0::/10"], "hooks.example", "fec0::1"),
    ],
)
def test_what_is_allowed_and_that_very_address_is_connected_to(
    entries: list[str], host: str, address: str
) -> None:
    hosts = Hosts(entries)
    assert hosts.allow(host)
    assert hosts.safe(host.lower().removesuffix("."), [address]) == address


@pytest.mark.parametrize(
    ("entry", "host", "port", "permission"),
    [
        ("hooks.example", "hooks.example", 8443, True),
        ("hooks.example:8443", "hooks.example", 8443, True),
        ("hooks.example:8443", "hooks.example", 443, False),
        ("*.example:8443", "hooks.example", 8443, True),
        ("*.example:8443", "hooks.example", 80, False),
        ("10.0.0.1:8443", "10.0.0.1", 8443, True),
        ("10.0.0.1:8443", "10.0.0.1", 22, False),
        ("[::1]:8443", "::1", 8443, True),
        ("[::1]:8443", "::1", 22, False),
        ("[fd00::/8]:8443", "fd00::7", 8443, True),
        ("[fd00::/8]:8443", "fd00::7", 22, False),
        ("Hooks.Example.:443", "HOOKS.example.", 443, True),
    ],
)
def test_an_entry_with_a_port_means_that_port_alone(
    entry: str, host: str, port: int, permission: bool
) -> None:
    hosts = Hosts([entry])
    assert hosts.allow(host, port) is permission
    assert hosts.allow(host), "the host is listed, at some port"
    url = f"https://[{host}]:{port}/" if ":" in host else f"https://{host}:{port}/"
    if permission:
        hosts.check(url)
    else:
        with pytest.raises(ConfigError, match=rf"{host}:{port} is not among webhook_hosts"):
            hosts.check(url)


def test_a_network_with_a_port_lets_names_lead_into_it_at_that_port_alone() -> None:
    hosts = Hosts(["hooks.example", "10.0.0.0/8:8443"])
    assert hosts.safe("hooks.example", ["10.0.0.1"], 8443) == "10.0.0.1"
    with pytest.raises(RefusedTargetError, match="not public"):
        hosts.safe("hooks.example", ["10.0.0.1"], 22)


@pytest.mark.parametrize(
    "entry",
    ["", "a b", "https://shop.example", "shop.example/x", "*", "*.*.example", "10.0.0.1/8", "*.10.0.0.1", "shöp.example", "[::1"],
)  # fmt: skip
def test_what_is_not_a_host_is_refused(entry: str) -> None:
    with pytest.raises(ConfigError, match=r"is not a host|behind the colon"):
        Hosts([entry])


@pytest.mark.parametrize("port", ["", "0", "65536", "http", "-1", "*", "\u0664", "99999999999999999999"])
def test_a_port_that_is_not_one_is_refused(port: str) -> None:
    with pytest.raises(ConfigError, match="belongs a port"):
        Hosts([f"shop.example:{port}"])


def test_without_a_secret_or_with_a_broken_one_nothing_is_sent() -> None:
    with pytest.raises(ConfigError, match="webhook_secret"):
        HTTPPoster(LOCAL, (), clock=SystemClock())
    with pytest.raises(ConfigError, match="base64"):
        HTTPPoster(LOCAL, ("whsec_!",), clock=SystemClock())
    with pytest.raises(ConfigError, match="base64"):
        HTTPPoster(LOCAL, (), own={"localhost": ["whsec_!"]}, clock=SystemClock())


# -- secrets of receivers ------------------------------------------------------------------------------------------------

A, B, C, D = (f"whsec_{base64.b64encode(name * 24).decode()}" for name in (b"a", b"b", b"c", b"d"))
OWN = {"a.example": [A], "a.example:8443": [B], "*.b.example": [C, D]}


async def test_one_receiver_cannot_forge_what_another_is_sent() -> None:
    """Partner A knows its own secret alone; what it signs is not taken for makegood's by partner B, whatever it says."""
    async with receiving() as shop:
        posts = poster(
            Hosts(["localhost", "127.0.0.1"]),
            own={"localhost": [A], "127.0.0.1": [B]},
        )
        for host in ("localhost", "127.0.0.1"):
            await posts.post(f"http://{host}:{shop.port}/", notices.name_of(BODY), BODY)
    (_, to_a, body), (_, to_b, _) = shop.got
    assert standardwebhooks.Webhook(A).verify(body, to_a) == json.loads(BODY)
    assert standardwebhooks.Webhook(B).verify(body, to_b) == json.loads(BODY)
    headers = to_b | {"webhook-signature": signature([A], to_b["webhook-id"], int(to_b["webhook-timestamp"]), body)}  # fmt: skip
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(B).verify(body, headers)
    for secret in SECRETS:  # the default is known to others
        with pytest.raises(standardwebhooks.WebhookVerificationError):
            standardwebhooks.Webhook(secret).verify(body, to_a)


@pytest.mark.parametrize(
    ("host", "port", "signs"),
    [
        ("a.example", 443, (A,)),
        ("a.example", 8443, (B,)),
        ("x.b.example", 443, (C, D)),
        ("b.example", 443, SECRETS),
        ("other.example", 443, SECRETS),
    ],
)
def test_the_closest_entry_says_which_secret_signs(host: str, port: int, signs: tuple[str, ...]) -> None:
    assert Secrets(SECRETS, OWN).of(host, port) == signs


def test_a_host_without_a_secret_and_a_secret_without_a_host_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"webhook_secrets for 'c\.example'"):
        HTTPPoster(Hosts(["a.example", "c.example"]), (), own={"a.example": [A]}, clock=SystemClock())
    with pytest.raises(ConfigError, match=r"webhook_secrets for 'a\.example'"):
        HTTPPoster(Hosts(["a.example"]), (), own={"a.example:443": [A]}, clock=SystemClock())
    with pytest.raises(ConfigError, match=r"'a\.exmaple' is not among webhook_hosts"):
        HTTPPoster(Hosts(["a.example"]), SECRETS, own={"a.exmaple": [A]}, clock=SystemClock())
    HTTPPoster(Hosts(["a.example", "*.b.example"]), (), own={"a.example": [A], "*.b.example": [B]}, clock=SystemClock())  # fmt: skip


@pytest.mark.parametrize(
    ("hosts", "default", "own", "groups"),
    [
        ("a.example", SECRETS, {}, []),
        ("a.example 10.0.0.0/8", SECRETS, {}, []),  # where it leads, no receiver of its own
        ("a.example:443 a.example:8443", SECRETS, {}, []),
        ("a.example c.example", SECRETS, {}, [("a.example", "c.example")]),
        ("*.b.example", SECRETS, {}, [("*.b.example",)]),
        ("a.example c.example", SECRETS, {"c.example": [C]}, []),
        ("a.example c.example", (), {"c.example": [C], "a.example": [C]}, [("c.example", "a.example")]),
        ("a.example *.b.example", SECRETS, {"*.b.example": [C]}, [("*.b.example",)]),
        ("10.0.0.1 10.0.0.2", SECRETS, {}, [("10.0.0.1", "10.0.0.2")]),
    ],
)
def test_receivers_that_share_a_secret_are_named(
    hosts: str, default: tuple[str, ...], own: dict[str, list[str]], groups: list[tuple[str, ...]],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    posts = HTTPPoster(Hosts(hosts.split()), default, own=own, clock=SystemClock())
    posts.warn()
    assert [", ".join(group) in record.getMessage() for group, record in zip(groups, caplog.records, strict=True)] == [True] * len(groups)  # fmt: skip


# -- what a hostile receiver can do --------------------------------------------------------------------------------------


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("begins", [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_a_receiver_that_drips_is_left_in_time_and_its_connection_is_closed(
    tls: bool, begins: bytes
) -> None:
    """Over and over a byte, so that no read ever takes long; with TLS the bytes take the place of its first message."""
    close = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x16\x03\x03\x40\x00\x02" if tls else begins)
        with suppress(ConnectionError):
            while True:
                writer.write(b"a")
                await writer.drain()
                await moment()
        close.set()
        writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = f"https://hooks.example:{port}/" if tls else f"http://localhost:{port}/"
    with pytest.raises(DeliveryError, match="did not answer within 2 s"):
        await poster(timeout=2).post(url, "m", BODY)
    async with asyncio.timeout(60):
        await close.wait()
    server.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n" * 1000 + b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10_000 + b"\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 \xd9\xa2\xd9\xa0\xd9\xa0 OK\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 200\r\n",
        b"\0" * 100_000,
    ],
)
async def test_what_is_not_an_answer_is_a_failure(answer: bytes) -> None:
    async with receiving() as shop:
        shop.answer = answer
        with pytest.raises(DeliveryError, match=r"its answer is not one of HTTP/1\.1|ConnectionReset"):
            await poster().post(f"http://localhost:{shop.port}/", "m", BODY)


@pytest.mark.parametrize("first", [b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", b""])
async def test_an_answer_without_a_reason_or_behind_a_hint_counts(first: bytes) -> None:
    async with receiving() as shop:
        shop.answer = first + b"HTTP/1.1 200\r\n\r\n"
        await poster().post(f"http://localhost:{shop.port}/", "m", BODY)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 204 No\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: /hooks/T0KENSECRET?key=QUERYSECRET\r\n\r\n",
        b"HTTP/1.1 500 /hooks/T0KENSECRET \x1b[2J\r\n\r\n",
        b"/hooks/T0KENSECRET\r\n\r\n",
    ],
)
async def test_no_log_and_no_error_has_the_path_or_query_of_an_address(
    answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """At the lowest level, of every logger; also where a receiver repeats it."""
    caplog.set_level(logging.DEBUG)
    messages = []
    async with receiving() as shop:
        shop.answer = answer
        url = f"http://localhost:{shop.port}/hooks/T0KENSECRET?key=QUERYSECRET"
        alerts = Webhook(url.replace("localhost", "127.0.0.1"), [A], clock=SystemClock())
        for post in (poster().post(url, "m", BODY), alerts.post("m", BODY)):
            try:
                await post
            except DeliveryError as error:
                messages.append(str(error))
    for text in (caplog.text, *messages):
        assert "SECRET" not in text
        assert "\x1b" not in text
    assert len(shop.got) == 2


async def test_a_name_that_several_notices_ask_for_is_looked_up_by_one_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hosts, go = [], threading.Event()

    def slow(host: str, port: int, **_: Any) -> list[Any]:
        hosts.append(host)
        go.wait(30)
        return [(2, 1, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr("socket.getaddrinfo", slow)
    lookups = Lookups(limit=30)
    waiting = [asyncio.create_task(lookups.resolve("hooks.example", 443)) for _ in range(8)]
    async with asyncio.timeout(60):
        while not hosts:
            await moment()
    go.set()
    assert await asyncio.gather(*waiting) == [["127.0.0.1"]] * 8
    assert hosts == ["hooks.example"]
    assert await lookups.resolve("10.0.0.7", 443) == ["10.0.0.7"], "which is no name"


async def test_a_look_up_that_fails_after_all_have_gone_is_nobodys_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And the name may be asked for again."""
    go, names = threading.Event(), iter(["first", "second"])

    def slow(host: str, port: int, **_: Any) -> list[Any]:
        if next(names) == "first":
            go.wait(30)
            raise socket.gaierror(-3, "Temporary failure in name resolution")
        return [(2, 1, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr("socket.getaddrinfo", slow)
    lookups = Lookups(limit=0.05)
    with pytest.raises(
        DeliveryError, match=r"was not looked up within 0\.05 s: do its name servers answer\?"
    ):
        await lookups.resolve("hooks.example", 443)
    go.set()
    async with asyncio.timeout(60):
        while lookups._under_way:
            await moment()
    gc.collect()
    assert await Lookups(limit=30).resolve("hooks.example", 443) == ["127.0.0.1"]
    assert not caplog.records


async def test_a_name_that_cannot_be_one_or_that_nobody_knows_is_a_failure() -> None:
    lookups = Lookups(limit=30)
    for name in (f"{'a' * 64}.example", "no-such-host.invalid"):
        with pytest.raises(DeliveryError, match="cannot be looked up"):
            await lookups.resolve(name, 443)


# -- what receivers are told of causes -------------------------------------------------------------------------------------

CAUSE = "pack: OSError: refused by db-internal-7:5432 user=svc password=S3CR3T (3 failures)"


@pytest.mark.parametrize(
    ("setting", "cause"), [({}, "pack: OSError"), ({"cause": "none"}, ""), ({"cause": "text"}, CAUSE)]
)
async def test_a_receiver_gets_the_kind_of_a_cause_and_its_text_only_if_that_is_set(
    setting: dict[str, Any], cause: str
) -> None:
    notice = Notice(
        7, 3, "undone", ReplyTo("https://x/"), "shop", "place", cause=CAUSE, undone_steps=("pack",)
    )
    body = (notices.head("5e", 1, notice, "2026-01-01T00:00:00Z") + notices.event(notice)).encode()
    async with receiving() as shop:
        await poster(**setting).post(f"http://localhost:{shop.port}/", "m", body)
    ((_, headers, body_),) = shop.got
    assert ("S3CR3T" in body_.decode()) is (cause == CAUSE)
    for secret in SECRETS:
        standardwebhooks.Webhook(secret).verify(body_, headers)
    whole = json.loads(body)
    whole["data"]["cause"] = cause
    assert json.loads(body_) == whole, "nothing else is changed"
    assert list(json.loads(body_)["data"]) == list(whole["data"])


async def test_a_result_is_posted_as_it_is() -> None:
    result = b'{"cause":"pack: OSError: x","sum":1.10,"big":123456789012345678901234567890}'
    notice = Notice(7, 3, "processed", ReplyTo("https://x/"), "shop", "place", result=result)
    body = (notices.head("5e", 1, notice, "2026-01-01T00:00:00Z") + notices.event(notice)).encode()
    assert notices.for_receiver(body, "name") == notices.for_receiver(body, "none") == body


@pytest.mark.parametrize(
    ("cause", "name"),
    [
        ("charge: card 4711 refused", "charge: failed"),
        ("charge: S3CR3T", "charge: failed"),
        ("charge: psycopg.OperationalError: db-7", "charge: failed"),
        ("charge[2]: ReadTimeout", "charge[2]: ReadTimeout"),
        ("pack: no answer by its deadline (3 failures)", "pack: failed"),
        ("cancelled by ann@bank: they were cross", "cancelled"),
        ("undo requested by ann", "undo requested"),
        ("the deadline passed", "the deadline passed"),
        ("the result cannot be put together: 4711", "the result cannot be put together"),
        ("it lost its Scheduler 3 times in a row", "failed"),
        ("the database refuses a value of its Decision: ValueError: 4711", "failed"),
        ("", "failed"),
        ("two words: OSError", "failed"),
    ],
)
def test_the_name_of_a_cause_holds_nothing_of_its_text(cause: str, name: str) -> None:
    assert notices.kind_of_cause(cause) == name
