"""Posting to submitters' addresses: signed and secured as a stranger's library checks it, and never where it must not go."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import standardwebhooks
import trustme
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from makegood import notices
from makegood.clock import SystemClock
from makegood.errors import ConfigError, DeliveryError
from makegood.notices import Notice
from makegood.posting import Hosts, HTTPPoster, RefusedTargetError
from makegood.task import Reply

SECRETS = ("whsec_bmV3IHNlY3JldG5ldyBzZWNyZXRuZXcg", "whsec_b2xkIHNlY3JldG9sZCBzZWNyZXRvbGQg")
NOTICE = Notice(7, 2, "processed", Reply("https://x/", "cart-7"), "shop", "place", "o-1", result=b'{"sum":1}')
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
    made = Receiver()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        if made.hold is not None:
            made.hold.set()
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
        with pytest.raises(DeliveryError, match=says) as failed:
            await poster().post(f"http://localhost:{shop.port}/", "m", BODY)
    assert isinstance(failed.value, RefusedTargetError) is final
    assert len(shop.got) == 1
    assert failed.value.retry_after == ("120" if b"Retry" in answer else None)


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
        "fd00::1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::", "2001:0:a00:1::f5ff:fffe",
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

    for url in ("https://evil.example.com/", "https://10.0.0.1/", "http://localhost/"):
        with pytest.raises(RefusedTargetError, match="webhook_hosts"):
            await poster(Hosts(["hooks.example", "10.1.0.0/16"]), resolve=never).post(url, "m", BODY)


@pytest.mark.parametrize(
    ("entries", "host", "address"),
    [
        (["hooks.example"], "hooks.example", "93.184.215.14"),
        (["hooks.example"], "HOOKS.example.", "2606:4700::1111"),
        (["*.example", "10.0.0.0/8"], "a.b.example", "10.2.3.4"),
        (["10.0.0.0/8"], "10.2.3.4", "10.2.3.4"),
        (["localhost"], "localhost", "127.0.0.1"),
        (["::1"], "::1", "::1"),
    ],
)
def test_what_is_allowed(entries: list[str], host: str, address: str) -> None:
    hosts = Hosts(entries)
    assert hosts.allow(host)
    assert hosts.safe(host.lower().removesuffix("."), [address]) == address


@pytest.mark.parametrize("entry", ["", "a b", "https://shop.example", "shop.example/x", "*", "*.*.example", "shop.example:80", "10.0.0.1/8"])  # fmt: skip
def test_what_is_no_host_is_refused(entry: str) -> None:
    with pytest.raises(ConfigError, match="is no host"):
        Hosts([entry])


def test_without_a_secret_or_with_a_broken_one_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="webhook_secret"):
        HTTPPoster(LOCAL, (), clock=SystemClock())
    with pytest.raises(ConfigError, match="base64"):
        HTTPPoster(LOCAL, ("whsec_!",), clock=SystemClock())


def test_without_httpx2_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Callable[..., Any]:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr("makegood.posting.import_module", missing)
    with pytest.raises(ConfigError, match=r"\[webhook\]"):
        HTTPPoster(LOCAL, SECRETS, clock=SystemClock())
