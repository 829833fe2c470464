"""How the shop's actions speak to the remote services: one request, one connection, one verdict.

``ask`` blocks and ``ask_async`` does not; they take and say the same. An answer that settles something comes back as
``Answer`` or is raised as ``Declined`` or ``AlreadyUndone``; whatever leaves open what happened is raised as
``Unanswered``, a plain exception like any other network trouble, and worth another try under the same key.
"""

import asyncio
import http.client
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

SERVICES_VARIABLE: Final = "MAKEGOOD_DEMO_SERVICES"
_ANSWER_LIMIT: Final = 256 * 1024


class Call(Protocol):
    """What a request must know of the call it is made for: ``mg.current_call()`` has it."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Key, token, scope and the like, ready to be sent."""
        ...

    def remaining(self) -> float:
        """Seconds until nobody waits for the answer any more."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """A definite answer. ``id`` is what the service calls its effect; ``happened`` is what a probe found; ``cents`` what it
    paid out.
    """

    id: str = ""
    happened: bool = False
    cents: int = 0


class RemoteError(Exception):
    """Root of what this module raises."""


class Unanswered(RemoteError):  # noqa: N818 - what happened, reads as a word
    """No answer, or one that says nothing: the effect may stand or not. Try again under the same key."""


class Busy(Unanswered):
    """The service asks to come back; it did nothing. ``wait`` is its Retry-After value."""

    def __init__(self, message: str, wait: str) -> None:
        super().__init__(message)
        self.wait = wait


class Declined(RemoteError):  # noqa: N818 - as above
    """The service refuses, and will refuse this key again: card refused, out of stock."""


class AlreadyUndone(RemoteError):  # noqa: N818 - as above
    """The key was undone before: nothing stands under it, now or later."""


def ask(call: Call, place: str, facts: Mapping[str, Any], *, patience: float | None = None) -> Answer:
    """Ask a service ("service/operation") and wait for the answer.

    ``facts`` is the JSON body. ``patience`` is the most to wait in seconds; never longer than the call has left.
    Raises ``Declined``, ``AlreadyUndone``, ``Busy`` or ``Unanswered``.
    """
    host, port = _address()
    connection = http.client.HTTPConnection(host, port, timeout=_seconds(call, patience))
    try:
        connection.request("POST", f"/{place}", json.dumps(facts), {**call.headers, "Connection": "close"})
        response = connection.getresponse()
        return _judge(place, response.status, response.read(), response.headers.get("Retry-After", ""))
    except (OSError, http.client.HTTPException) as error:
        raise Unanswered(f"{place}: {error!r}") from error
    finally:
        connection.close()


async def ask_async(
    call: Call, place: str, facts: Mapping[str, Any], *, patience: float | None = None
) -> Answer:
    """As ``ask``, on the event loop: thousands may wait at once without a thread for each."""
    try:
        async with asyncio.timeout(_seconds(call, patience)):
            status, headers, content = await _exchange(f"/{place}", json.dumps(facts).encode(), call.headers)
    except (OSError, EOFError, ValueError) as error:
        raise Unanswered(f"{place}: {error!r}") from error
    return _judge(place, status, content, headers.get("retry-after", ""))


async def _exchange(path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, dict[str, str], bytes]:
    """Send one request, read one answer of known length."""
    host, port = _address()
    reader, writer = await asyncio.open_connection(host, port, limit=_ANSWER_LIMIT)
    try:
        lines = [
            f"POST {path} HTTP/1.1",
            f"Host: {host}:{port}",
            "Connection: close",
            f"Content-Length: {len(body)}",
        ]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        await writer.drain()
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        fields = dict(line.split(": ", 1) for line in head[1:] if ": " in line)
        fields_by_name = {name.lower(): value for name, value in fields.items()}
        content = await reader.readexactly(int(fields_by_name["content-length"]))
        return int(head[0].split()[1]), fields_by_name, content
    except (KeyError, IndexError, asyncio.LimitOverrunError) as error:
        raise ValueError(f"not an HTTP answer: {error!r}") from error
    finally:
        writer.close()


def _judge(place: str, status: int, content: bytes, retry_after: str) -> Answer:
    """Say what an HTTP answer means for the effect that was asked for."""
    try:
        body = json.loads(content)
        code, message = body["code"], f"{place}: {body.get('message', body['code'])}"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unanswered(
            f"{place}: status {status} with a body that makes no sense: {content[:100]!r}"
        ) from error
    if status == 200:
        return Answer(body.get("id", ""), body.get("happened", True), body.get("cents", 0))
    if status == 429:
        raise Busy(message, retry_after or "1")
    if code == "undone":
        raise AlreadyUndone(message)
    if 400 <= status < 500 and code != "superseded":
        raise Declined(message)
    raise Unanswered(f"{message} (status {status})")


def _seconds(call: Call, patience: float | None) -> float:
    """How long to wait, in seconds; raise ``Unanswered`` when no time is left to ask at all."""
    remaining = call.remaining()
    if remaining <= 0:
        raise Unanswered("no time is left to ask")
    return remaining if patience is None else min(patience, remaining)


def _address() -> tuple[str, int]:
    url = urlsplit(os.environ.get(SERVICES_VARIABLE, ""))
    if not url.hostname or not url.port:
        raise RemoteError(
            f"{SERVICES_VARIABLE} must say where the services are, such as http://127.0.0.1:8900"
        )
    return url.hostname, url.port
