"""Posting to addresses that submitters name: only to allowed hosts, and no further into a network than meant.

An address comes from a stranger. So the host must be on a list. What its name resolves to must be public, or
in a network that is on the list as well. The connection goes to the very address that was checked, because a
name may resolve otherwise a moment later. Redirects are not followed. The answer is read up to a limit, and
waited for up to a limit.
"""

import logging
import ssl
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from makegood.base.clock import Clock
from makegood.base.host_lists import Secrets
from makegood.base.name_lookups import Lookups
from makegood.base.webhook_signature import MAKE, TIMEOUT, address, key_of
from makegood.brokers.protocol import RefusedTargetError
from makegood.errors import ConfigError, DeliveryError
from makegood.messaging.alert_webhook import LOOKUP, WebhookMessage, post
from makegood.messaging.hosts import Hosts, Resolve, _host
from makegood.model import notices
from makegood.model.notices import Cause

log = logging.getLogger("makegood.notifier")

EVENT: Final = "application/cloudevents+json"

_GONE: Final = 410


class Poster(Protocol):
    """Posts events."""

    async def post(self, url: str, message_id: str, body: bytes) -> None:
        """Post an event once.

        Raises ``DeliveryError``, and ``RefusedTargetError`` when trying again does not help.
        """

    async def close(self) -> None:
        """Let go of connections."""


class NoPoster:
    """Posts nothing: for a process whose list of hosts is empty."""

    async def post(self, url: str, message_id: str, body: bytes) -> None:  # noqa: ARG002 - as every Poster
        """Raise ``RefusedTargetError``."""
        raise RefusedTargetError(f"{notices.safe_address(url)}: webhook_hosts is empty")

    async def close(self) -> None:
        """Do nothing."""


class HTTPPoster:
    """Posts over HTTP, signed after Standard Webhooks with each of the receiver's secrets.

    ``hosts``: those that may be posted to. ``secrets``: for every receiver that has none in ``own`` (entries
    as in ``hosts``, with their secrets). ``cause``: see ``notices.for_receiver``. ``timeout``: seconds for
    one try, from resolving the name to the answer. ``tls``: which certificates to trust, by default the
    system's. Raises ``ConfigError`` for a host without a secret.
    """

    def __init__(
        self,
        hosts: Hosts,
        secrets: Sequence[str],
        *,
        clock: Clock,
        own: Mapping[str, Sequence[str]] | None = None,
        cause: Cause = "name",
        timeout: float = TIMEOUT,
        tls: ssl.SSLContext | None = None,
        resolve: Resolve | None = None,
    ) -> None:
        own = own or {}
        if not secrets and not own:
            raise ConfigError(
                "webhook_hosts needs webhook_secret, or webhook_secrets: receivers see by the signature that makegood sends; make one with "
                + MAKE
            )
        for secret in (
            *secrets,
            *(own_secret for host_secrets in own.values() for own_secret in host_secrets),
        ):
            key_of(secret, "webhook_secret")
        self.secrets = Secrets(secrets, own)
        self.secrets.check(hosts.entries)
        self._hosts = hosts
        self._clock = clock
        self._cause = cause
        self._timeout = timeout
        self._tls = tls
        self._resolve = resolve or Lookups(limit=LOOKUP * timeout, group=hosts.share).resolve

    def warn(self) -> None:
        """Log which receivers share a secret."""
        for group in self.secrets.groups_that_share(self._hosts.entries):
            log.warning(
                "one secret signs what is posted to %s: each receiver that knows it can forge notices to the others; give each receiver "
                "a secret of its own (webhook_secrets)",
                ", ".join(group),
            )

    async def post(self, url: str, message_id: str, body: bytes) -> None:
        """Post an event once; raises ``DeliveryError`` unless the receiver answers 2xx in time."""
        notices.split_url(url)
        to = address(url)
        self._hosts.refuse(to)
        if to.scheme == "https" and self._tls is None:
            self._tls = ssl.create_default_context()  # reads the system's certificates: once

        async def find() -> list[str]:
            return [self._hosts.safe(to.host, await self._resolve(to.host, to.port), to.port)]

        content = notices.for_receiver(body, self._cause)
        signs = self.secrets.of(_host(to.host), to.port)
        message = WebhookMessage(EVENT, message_id, int(self._clock.wall()), signs, content)
        tls = self._tls if to.scheme == "https" else None
        try:
            await post(to, find, message, timeout=self._timeout, tls=tls)
        except DeliveryError as failure:
            if failure.status == _GONE:
                raise RefusedTargetError(f"{failure}: it wants nothing more", status=_GONE) from None
            raise

    async def close(self) -> None:
        """Do nothing: each post has a connection of its own."""
