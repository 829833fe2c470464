"""Where a request comes from: a header that says so is believed only from a proxy that the settings list."""

import ipaddress
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

from starlette.requests import Request

from makegood.console.visits import Whence
from makegood.errors import ConfigError

_PREFIX: Final = re.compile(r"(/[A-Za-z0-9._~-]+)+")
FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
"""Headers by which a proxy shows that it is one."""


class TrustedProxies:
    """The listed proxies: addresses, or networks such as "10.0.0.0/8". Raises ``ConfigError`` for another
    text.
    """

    def __init__(self, listed: Iterable[str], base: str = "") -> None:
        try:
            self._networks = [ipaddress.ip_network(one, strict=False) for one in listed]
        except ValueError as wrong:
            raise ConfigError(
                f"console_proxies: {wrong}; write addresses or networks, such as 127.0.0.1 or 10.0.0.0/8"
            ) from None
        self.base = base.rstrip("/")
        if self.base and not _PREFIX.fullmatch(self.base):
            raise ConfigError(f"base={base!r}: a path, such as /ops/makegood")

    def trusts(self, address: str) -> bool:
        """Return whether an address is a listed proxy's."""
        found = ip_of(address)
        return found is not None and any(found in network for network in self._networks)

    def origin(self, request: Request) -> Whence:
        """Return where a request comes from, and where its links begin."""
        address = "" if request.client is None else request.client.host
        base = quote(request.scope.get("root_path", "").rstrip("/"))
        secure = request.url.scheme in ("https", "wss")
        if not self.trusts(address):
            return Whence(address, base + self.base, secure, trusted=False)
        headers = request.headers
        prefix = headers.get("x-forwarded-prefix", "").rstrip("/")
        proto = headers.get("x-forwarded-proto", "").rpartition(",")[2].strip().lower()
        passed = [part.strip() for part in ",".join(headers.getlist("x-forwarded-for")).split(",")]
        for hop in reversed(passed):
            if not ip_of(hop):
                break
            address = hop
            if not self.trusts(hop):
                break
        before = prefix if _PREFIX.fullmatch(prefix) else self.base
        return Whence(address, before + base, proto == "https" if proto else secure, trusted=True)


def ip_of(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return an IP address; None for another text, and for the path of a socket."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def is_local(request: Request) -> bool:
    """Return whether a browser on this machine asks for a page by a name of this machine.

    A page of a stranger that gives its own name the address 127.0.0.1 asks by that name, so the Host header
    counts.
    """
    address = None if request.client is None else ip_of(request.client.host)
    if address is None or not address.is_loopback or any(name in request.headers for name in FORWARDED):
        return False
    host = request.headers.get("host", "").lower()
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    named = ip_of(name)
    return name == "localhost" or name.endswith(".localhost") or (named is not None and named.is_loopback)
