"""Posting to addresses that submitters name: only to hosts that are allowed, and never further into a network than meant.

An address is a stranger's word. So the host must be on a list; what its name resolves to must be public, or in a network that
is on the list as well; the connection goes to the very address that was looked at (a name may resolve otherwise a moment
later); redirects are not followed; an answer is read to a limit and waited for to a limit.
"""

import ipaddress
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from makegood import notices
from makegood.clock import Clock
from makegood.errors import ConfigError, DeliveryError
from makegood.hosts import Secrets, closest, entry
from makegood.lookups import Lookups
from makegood.networks import public
from makegood.options import Cause
from makegood.signing import MAKE, TIMEOUT, Address, address, key_of
from makegood.webhook import LOOKUP, Message, post

log = logging.getLogger("makegood.notifier")

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host, best first."""

EVENT: Final = "application/cloudevents+json"

_GONE: Final = 410


class RefusedTargetError(DeliveryError):
    """An address that must not be posted to. Trying again does not help."""


class Poster(Protocol):
    """Posts events."""

    async def post(self, url: str, message_id: str, body: bytes) -> None:
        """Post an event once. Raises ``DeliveryError``; ``RefusedTargetError`` when trying again does not help."""
        ...


class Hosts:
    """Which hosts may be posted to: names ("hooks.example.com"), all below a name ("*.example.com"), addresses and networks
    ("10.1.0.0/16"), "localhost". A host on the list by name must have public addresses, or ones in a network that is listed too.
    With a port ("hooks.example.com:8443", "10.1.0.0/16:8443", "[fd00::/8]:8443") an entry means that port alone.

    >>> hosts = Hosts(["*.example.com", "10.1.0.0/16", "shop.example:8443"])
    >>> hosts.allow("hooks.example.com"), hosts.allow("example.com"), hosts.allow("10.1.2.3"), hosts.allow("shop.example", 443)
    (True, False, True, False)

    Raises ``ConfigError`` for an entry that is neither.
    """

    def __init__(self, entries: Iterable[str]) -> None:
        self.entries = tuple(entry(text, "webhook_hosts") for text in entries)

    def __bool__(self) -> bool:
        """Whether any host is allowed."""
        return bool(self.entries)

    def allow(self, host: str, port: int | None = None) -> bool:
        """Return whether a host is on the list, at that port; None: at any port at all."""
        return closest(self.entries, _host(host), port) is not None

    def share(self, host: str) -> str:
        """Return the entry that lists a host, as it was written; of a host that is not listed the host itself."""
        found = closest(self.entries, _host(host))
        return host if found is None else found.text

    def check(self, reply_to: str) -> None:
        """Raise ``ConfigError`` for a webhook of a host that is not on the list."""
        if notices.queue(reply_to) is not None:
            return
        notices.parted(reply_to)
        to = address(reply_to)
        if not self.allow(to.host, to.port):
            raise ConfigError(
                f"reply_to={notices.shown(reply_to)!r}: {self._missing(to)} of this process: submitters may name only hosts "
                "on that list (Options(webhook_hosts=…), MAKEGOOD_WEBHOOK_HOSTS)"
            )

    def refuse(self, to: Address) -> None:
        """Raise ``RefusedTargetError`` for an address whose host is not on the list."""
        if not self.allow(to.host, to.port):
            raise RefusedTargetError(self._missing(to))

    def safe(self, host: str, found: Sequence[str], port: int | None = None) -> str:
        """Return which of a host's addresses to connect to, as it was found. Raises ``RefusedTargetError`` when any of them must not be
        connected to.
        """
        for text in found:
            at = ipaddress.ip_address(text.partition("%")[0])
            near = at.is_loopback and any(one.name == host == "localhost" for one in self.entries)
            if not (near or public(at) or any(one.holds(at, port) for one in self.entries)):
                raise RefusedTargetError(
                    f"{host} is {at}, which is not public: put its network into webhook_hosts if it is meant"
                )
        if not found:
            raise DeliveryError(f"{host} has no address")
        return found[0].partition("%")[0]

    def _missing(self, to: Address) -> str:
        host = f"{to.host}:{to.port}" if self.allow(to.host) else to.host
        return f"{host} is not among webhook_hosts"


def _host(host: str) -> str:
    return host.lower().removesuffix(".")


class NoPoster:
    """Posts nothing: of a process whose list of hosts is empty."""

    async def post(self, url: str, message_id: str, body: bytes) -> None:  # noqa: ARG002 - as every Poster
        """Raise ``RefusedTargetError``."""
        raise RefusedTargetError(f"{notices.shown(url)}: webhook_hosts is empty")


class HTTPPoster:
    """Posts over HTTP, signed after Standard Webhooks with each of the receiver's secrets.

    ``hosts``: whom to. ``secrets``: of every receiver that has none in ``own`` (entries as in ``hosts``: their secrets). ``cause``: see
    ``notices.for_receiver``. ``timeout``: seconds for one try, from the look-up of the name to the answer. ``tls``: whom to trust, default the
    system. Raises ``ConfigError`` for a host without a secret.
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
        for secret in (*secrets, *(one for some in own.values() for one in some)):
            key_of(secret, "webhook_secret")
        self.secrets = Secrets(secrets, own)
        self.secrets.check(hosts.entries)
        self._hosts = hosts
        self._clock = clock
        self._cause = cause
        self._timeout = timeout
        self._tls = tls
        self._resolve = resolve or Lookups(limit=LOOKUP * timeout, lane=hosts.share).resolve

    def warn(self) -> None:
        """Log which receivers share a secret."""
        for group in self.secrets.shared(self._hosts.entries):
            log.warning(
                "one secret signs what is posted to %s: each receiver that knows it can forge notices to the others; give each receiver "
                "a secret of its own (webhook_secrets)",
                ", ".join(group),
            )

    async def post(self, url: str, message_id: str, body: bytes) -> None:
        """Post an event once; raises ``DeliveryError`` unless the receiver answers 2xx in time."""
        notices.parted(url)
        to = address(url)
        self._hosts.refuse(to)
        if to.scheme == "https" and self._tls is None:
            self._tls = ssl.create_default_context()  # reads the system's certificates: once

        async def find() -> list[str]:
            return [self._hosts.safe(to.host, await self._resolve(to.host, to.port), to.port)]

        made = notices.for_receiver(body, self._cause)
        signs = self.secrets.of(_host(to.host), to.port)
        message = Message(EVENT, message_id, int(self._clock.wall()), signs, made)
        tls = self._tls if to.scheme == "https" else None
        try:
            await post(to, find, message, timeout=self._timeout, tls=tls)
        except DeliveryError as failed:
            if failed.status == _GONE:
                raise RefusedTargetError(f"{failed}: it wants nothing more", status=_GONE) from None
            raise
