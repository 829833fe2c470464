"""Webhooks: JSON posted to an address, signed after Standard Webhooks (``signing``). One call is one try; who calls decides when
to try again.
"""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from makegood.clock import Clock
from makegood.errors import DeliveryError
from makegood.signing import TIMEOUT, address, key_of, signature

_MOST_READ: Final = 4096


class Webhook:
    """Posts signed messages to one address.

    ``secrets``: signs with each of them. ``clock``: its wall clock goes into the message. Redirects are not followed: who
    signs for one host does not send to another.
    """

    def __init__(
        self, url: str, secrets: Sequence[str] = (), *, clock: Clock, timeout: float = TIMEOUT
    ) -> None:
        self.address = address(url)
        for secret in secrets:
            key_of(secret)
        self._secrets = tuple(secrets)
        self._clock = clock
        self._timeout = timeout

    async def post(self, message_id: str, body: bytes, *, kind: str = "application/json") -> None:
        """Send a message once. Raises ``DeliveryError`` unless the receiver answers 2xx in time."""
        timestamp = int(self._clock.wall())
        headers = {
            "content-type": kind,
            "user-agent": "makegood",
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp),
        }
        if self._secrets:
            headers["webhook-signature"] = signature(self._secrets, message_id, timestamp, body)
        await asyncio.to_thread(self._send, body, headers)

    def _send(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Runs in a thread: the standard library's client needs no further dependency, and webhooks are few."""
        client: Any = import_module("http.client")  # it takes its time to load, and few processes send any
        to = self.address
        connection = (
            client.HTTPSConnection(
                to.host, to.port, timeout=self._timeout, context=ssl.create_default_context()
            )
            if to.scheme == "https"
            else client.HTTPConnection(to.host, to.port, timeout=self._timeout)
        )
        try:
            connection.request("POST", to.path, body, dict(headers))
            answer = connection.getresponse()
            answer.read(_MOST_READ)
        except (OSError, client.HTTPException) as fault:
            raise DeliveryError(
                f"{to.shown} cannot be reached: {type(fault).__name__}: {fault}", status=0
            ) from fault
        finally:
            connection.close()
        if not 200 <= answer.status < 300:
            raise DeliveryError(
                f"{to.shown} answered {answer.status} {answer.reason}",
                status=answer.status,
                retry_after=answer.getheader("retry-after"),
            )
