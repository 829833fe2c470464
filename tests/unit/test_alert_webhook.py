"""Signed webhooks: who knows the secret can tell who sent it; each try is one request, and what fails says why."""

import base64
import http.server
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from makegood.base.clock import SystemClock
from makegood.base.webhook_signature import address, key_of, signature, verified
from makegood.errors import ConfigError, DeliveryError
from makegood.messaging.alert_webhook import Webhook
from makegood.options import Options

NEW, OLD, OTHER = (f"whsec_{base64.b64encode(name * 8).decode()}" for name in (b"new", b"old", b"who"))


class Receiver(http.server.BaseHTTPRequestHandler):
    """Keeps what it is sent and answers what it is told to."""

    got: ClassVar[list[tuple[str, dict[str, str], bytes]]] = []
    answer: ClassVar[int] = 204

    def do_POST(self) -> None:
        """Take a message."""
        body = self.rfile.read(int(self.headers["content-length"]))
        self.got.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        self.send_response(self.answer)
        self.send_header("retry-after", "7")
        self.send_header("location", "http://127.0.0.1:1/")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the standard library's name
        """Say nothing."""


@pytest.fixture
def receiver() -> Iterator[str]:
    """The address of somebody who listens."""
    Receiver.got, Receiver.answer = [], 204
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook?to=ops"
    server.shutdown()
    thread.join()
    server.server_close()


async def test_the_receiver_can_tell_who_sent_it(receiver: str) -> None:
    clock = SystemClock()
    await Webhook(receiver, [NEW, OLD], clock=clock).post("m-1", b'{"n":1}')
    ((path, headers, body),) = Receiver.got
    assert (path, headers["webhook-id"], headers["content-type"]) == (
        "/hook?to=ops", "m-1", "application/json",
    )  # fmt: skip
    for secret in (NEW, OLD):
        assert verified(secret, headers, body, now=clock.wall())
    assert not verified(OTHER, headers, body, now=clock.wall())
    assert not verified(NEW, headers, body + b" ", now=clock.wall())
    assert not verified(NEW, headers, body, now=clock.wall() + 301), "an old message, sent again by somebody"
    assert not verified(NEW, {}, body, now=clock.wall())


async def test_without_a_secret_there_is_no_signature(receiver: str) -> None:
    await Webhook(receiver, clock=SystemClock()).post("m-1", b"{}")
    assert "webhook-signature" not in Receiver.got[0][1]


@pytest.mark.parametrize("answer", [302, 410, 500])
async def test_what_is_not_taken_is_an_error_that_says_what_was_answered(receiver: str, answer: int) -> None:
    """A redirect is not followed."""
    Receiver.answer = answer
    with pytest.raises(DeliveryError, match=f"127.0.0.1.*answered {answer}") as error:
        await Webhook(receiver, clock=SystemClock()).post("m-1", b"{}")
    assert (error.value.status, error.value.retry_after) == (answer, "7")
    assert "to=ops" not in str(error.value), "an address may hold secrets"
    assert len(Receiver.got) == 1


async def test_of_several_addresses_the_first_that_answers_is_taken(
    receiver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a name that has an IPv6 address where nobody listens, such as localhost."""

    def found(host: str, port: int, **_: Any) -> list[Any]:
        assert host == "ops.example"
        return [(10, 1, 6, "", ("::1", port)), (2, 1, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr("socket.getaddrinfo", found)
    await Webhook(receiver.replace("127.0.0.1", "ops.example"), clock=SystemClock()).post("m-1", b"{}")
    assert Receiver.got[0][1]["host"].startswith("ops.example:")


async def test_nobody_there_is_an_error_too() -> None:
    with pytest.raises(DeliveryError, match="cannot be reached") as error:
        await Webhook("http://127.0.0.1:1/", clock=SystemClock()).post("m-1", b"{}")
    assert error.value.status == 0


def test_the_signature_is_that_of_the_specification() -> None:
    """The example of Standard Webhooks."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = b'{"test": 2432232314}'
    assert signature([secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body) == (
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


@pytest.mark.parametrize(
    ("url", "pattern"),
    [("ftp://x/", "write https://"), ("https:///x", "write https://"), ("https://a:b@x/", "name and password"),
     ("https://x:port/", "cannot be read"), ("hook", "write https://"), ("https://x/a b", "in ASCII"), ("https://x/\u00fc", "in ASCII"),
     ("https://x/\u202e", "in ASCII")],
)  # fmt: skip
def test_an_address_that_cannot_be_meant_is_refused(url: str, pattern: str) -> None:
    with pytest.raises(ConfigError, match=pattern):
        address(url)


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        "whsec_$$$",
        "whsec_ü" + NEW,
        NEW.removeprefix("whsec_"),
        "a text that is long enough to be one",
        f"whsec_{base64.b64encode(bytes(23)).decode()}",
        f"whsec_{base64.b64encode(bytes(65)).decode()}",
    ],
)
def test_a_secret_that_receivers_would_read_otherwise_or_guess_is_refused_and_not_shown(secret: str) -> None:
    """Empty, no base64, without its prefix, shorter or longer than the standard has it; wherever it is set, at the start."""
    with pytest.raises(ConfigError, match=r"24 to 64 bytes in base64, as `python -c") as error:
        key_of(secret)
    assert not secret.removeprefix("whsec_") or secret not in str(error.value)
    if secret:
        for setting in ("alert_secret", "webhook_secret"):
            options: dict[str, Any] = {setting: f"{NEW} {secret.replace(' ', '')}"}
            with pytest.raises(ConfigError, match=f"^{setting}: write whsec_"):
                Options(**options)
