"""Posting to addresses that submitters name: only to hosts that are allowed, and never further into a network than meant.

An address is a stranger's word. So the host must be on a list; what its name resolves to must be public, or in a network that
is on the list as well; the connection goes to the very address that was looked at (a name may resolve otherwise a moment
later); redirects are not followed; an answer is read to a limit and waited for to a limit.
"""

import asyncio
import ipaddress
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from importlib import import_module
from types import ModuleType
from typing import Final, Protocol

from makegood import notices
from makegood.clock import Clock
from makegood.errors import ConfigError, DeliveryError
from makegood.signing import MAKE, TIMEOUT, key_of, signature

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host, best first."""

EVENT: Final = "application/cloudevents+json"

_MOST_READ: Final = 4096
_GONE: Final = 410
_WITHIN_V6: Final = ipaddress.IPv6Network("64:ff9b::/96")


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

    >>> hosts = Hosts(["*.example.com", "10.1.0.0/16"])
    >>> hosts.allow("hooks.example.com"), hosts.allow("example.com"), hosts.allow("10.1.2.3")
    (True, False, True)

    Raises ``ConfigError`` for an entry that is neither.
    """

    def __init__(self, entries: Iterable[str]) -> None:
        self._names: set[str] = set()
        self._below: list[str] = []
        self._networks: list[Network] = []
        for entry in entries:
            self._add(entry.strip().lower())

    def _add(self, entry: str) -> None:
        try:
            self._networks.append(ipaddress.ip_network(entry.strip("[]")))
        except ValueError:
            name = entry.removeprefix("*.")
            try:
                parsed = notices.parted(f"https://{name}/").hostname == name
            except ConfigError:
                parsed = False
            if not parsed:
                raise ConfigError(
                    f"webhook_hosts: {entry!r} is no host: write hooks.example.com, *.example.com or 10.1.0.0/16"
                ) from None
            if entry.startswith("*."):
                self._below.append(f".{name}")
            else:
                self._names.add(name)

    def __bool__(self) -> bool:
        """Whether any host is allowed."""
        return bool(self._names or self._below or self._networks)

    def allow(self, host: str) -> bool:
        """Return whether a host is on the list."""
        host = host.lower().removesuffix(".")
        try:
            return self._listed(ipaddress.ip_address(host))
        except ValueError:
            return host in self._names or any(host.endswith(below) for below in self._below)

    def check(self, reply_to: str) -> None:
        """Raise ``ConfigError`` for a webhook of a host that is not on the list."""
        if notices.queue(reply_to) is not None:
            return
        host = notices.parted(reply_to).hostname or ""
        if not self.allow(host):
            raise ConfigError(
                f"reply_to={notices.shown(reply_to)!r}: {host} is not among webhook_hosts of this process: submitters may name only hosts "
                "on that list (Options(webhook_hosts=…), MAKEGOOD_WEBHOOK_HOSTS)"
            )

    def _listed(self, address: Address) -> bool:
        return any(address in network for network in self._networks)

    def safe(self, host: str, found: Sequence[str]) -> str:
        """Return which of a host's addresses to connect to. Raises ``RefusedTargetError`` when any of them must not be."""
        addresses = [_plain(ipaddress.ip_address(text.partition("%")[0])) for text in found]
        for address in addresses:
            near = address.is_loopback and host == "localhost" and "localhost" in self._names
            if not (self._listed(address) or near or (address.is_global and not address.is_multicast)):
                raise RefusedTargetError(
                    f"{host} is {address}, which is not public: put its network into webhook_hosts if it is meant"
                )
        if not addresses:
            raise DeliveryError(f"{host} has no address")
        return str(addresses[0])


def _plain(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address stands for, if it does."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _WITHIN_V6:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    inner = address.ipv4_mapped or address.sixtofour or (address.teredo and address.teredo[1])
    return inner or address


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host, as the system resolves it."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=1)  # 1: streams
    return [str(address[0]) for *_, address in found]


class NoPoster:
    """Posts nothing: of a process whose list of hosts is empty."""

    async def post(self, url: str, message_id: str, body: bytes) -> None:  # noqa: ARG002 - as every Poster
        """Raise ``RefusedTargetError``."""
        raise RefusedTargetError(f"{notices.shown(url)}: webhook_hosts is empty")


class HTTPPoster:
    """Posts over HTTP, signed after Standard Webhooks with each of ``secrets``.

    ``hosts``: whom to. ``timeout``: seconds for one try, from resolving the name to the answer. ``tls``: whom to trust, default
    the system. Raises ``ConfigError`` without a secret, and when httpx2 is not installed.
    """

    def __init__(
        self,
        hosts: Hosts,
        secrets: Sequence[str],
        *,
        clock: Clock,
        timeout: float = TIMEOUT,
        tls: ssl.SSLContext | None = None,
        resolve: Resolve = resolve,
    ) -> None:
        if not secrets:
            raise ConfigError(
                "webhook_hosts needs webhook_secret: receivers tell by its signature who sends; make one with "
                + MAKE
            )
        for secret in secrets:
            key_of(secret, "webhook_secret")
        self._http = _httpx2()
        self._hosts = hosts
        self._secrets = tuple(secrets)
        self._clock = clock
        self._timeout = timeout
        self._tls = tls
        self._resolve = resolve

    async def post(self, url: str, message_id: str, body: bytes) -> None:
        """Post an event once; raises ``DeliveryError`` unless the receiver answers 2xx in time."""
        shown = notices.shown(url)
        try:
            async with asyncio.timeout(self._timeout):
                await self._post(url, shown, message_id, body)
        except TimeoutError:
            raise DeliveryError(f"{shown} did not answer within {self._timeout:g} s") from None
        except (OSError, self._http.HTTPError, ssl.SSLError) as fault:
            raise DeliveryError(f"{shown} cannot be reached: {type(fault).__name__}: {fault}") from fault

    async def _post(self, url: str, shown: str, message_id: str, body: bytes) -> None:
        parts = notices.parted(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        if not self._hosts.allow(host):
            raise RefusedTargetError(f"{host} is not among webhook_hosts")
        address = self._hosts.safe(host, await self._resolve(host, port))
        stamp = int(self._clock.wall())
        headers = {
            "host": parts.netloc,
            "content-type": EVENT,
            "user-agent": "makegood",
            "connection": "close",
            "webhook-id": message_id,
            "webhook-timestamp": str(stamp),
            "webhook-signature": signature(self._secrets, message_id, stamp, body),
        }
        at = f"[{address}]" if ":" in address else address
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        # A client of its own for each: a connection kept open for one name must not serve another at the same address.
        async with (
            self._http.AsyncClient(
                verify=self._tls or ssl.create_default_context(), trust_env=False, follow_redirects=False
            ) as client,
            client.stream(
                "POST",
                f"{parts.scheme}://{at}:{port}{path}",
                content=body,
                headers=headers,
                extensions={"sni_hostname": host},
            ) as answer,
        ):
            status: int = answer.status_code
            async for chunk in answer.aiter_raw(_MOST_READ):
                if chunk:  # what it says is not wanted; how much it says is its own affair
                    break
            if status == _GONE:
                raise RefusedTargetError(f"{shown} answered 410: it wants nothing more", status=status)
            if not 200 <= status < 300:
                raise DeliveryError(
                    f"{shown} answered {status}", status=status, retry_after=answer.headers.get("retry-after")
                )


def _httpx2() -> ModuleType:
    try:
        return import_module("httpx2")
    except ModuleNotFoundError as missing:
        if missing.name != "httpx2":
            raise
        raise ConfigError(
            "webhook_hosts needs httpx2: `pip install httpx2`, or install makegood with its extra (in a checkout "
            "`pip install '.[webhook]'`)"
        ) from missing
