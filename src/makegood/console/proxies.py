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
_OF_A_PROXY: Final = re.compile(
    r"forwarded.*|via|cdn-loop|remote-user|front-end-https|.*ip|"
    r"x-(?:forwarded|original|remote|scheme|url-scheme|nginx-proxy|varnish)|"
    r"(?:x-(?:forwarded|original|remote|envoy|amzn|amz-cf|azure|appengine|arr|ms-original|vercel|sucuri|traefik)|"
    r"cf|cloudfront|fly|fastly|akamai|tailscale|proxy)-.*"
)
"""Headers by which a proxy shows that it is one."""
_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9.-]+))(?::\d{1,5})?")


class TrustedProxies:
    """The listed proxies: addresses, or networks such as "10.0.0.0/8". Raises ``ConfigError`` for another
    text.
    """

    def __init__(self, addresses: Iterable[str], base: str = "") -> None:
        try:
            self._networks = [ipaddress.ip_network(address, strict=False) for address in addresses]
        except ValueError as wrong:
            raise ConfigError(
                f"console_proxies: {wrong}; write addresses or networks, such as 127.0.0.1 or 10.0.0.0/8"
            ) from None
        self.base = base.rstrip("/")
        if self.base and not _PREFIX.fullmatch(self.base):
            raise ConfigError(f"base={base!r}: a path, such as /ops/makegood")

    def trusts(self, address: str) -> bool:
        """Return whether an address is a listed proxy's."""
        ip = ip_of(address)
        return ip is not None and any(ip in network for network in self._networks)

    def origin(self, request: Request) -> Whence:
        """Return where a request comes from, and where its links begin."""
        address = "" if request.client is None else request.client.host
        base = quote(request.scope.get("root_path", "").rstrip("/"))
        secure = request.url.scheme in ("https", "wss")
        if not self.trusts(address):
            return Whence(address, base + self.base, secure, trusted=False)
        headers = request.headers
        prefix = _last(headers.getlist("x-forwarded-prefix")).rstrip("/")
        proto = _last(headers.getlist("x-forwarded-proto")).rpartition(",")[2].strip().lower()
        hops = [part.strip() for part in ",".join(headers.getlist("x-forwarded-for")).split(",")]
        for hop in reversed(hops):
            if not ip_of(hop):
                break
            address = hop
            if not self.trusts(hop):
                break
        before = prefix if _PREFIX.fullmatch(prefix) else self.base
        return Whence(address, before + base, proto == "https" if proto else secure, trusted=True)


def _last(values: list[str]) -> str:
    """Return what the last proxy wrote: what is before it may be a browser's."""
    return values[-1] if values else ""


def ip_of(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return an IP address; None for another text, and for the path of a socket."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return None
    ipv4 = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return ipv4 or ip


def is_local(request: Request) -> bool:
    """Return whether a browser on this machine asks for a page by a name of this machine, and no proxy.

    A page of a stranger that gives its own name the address 127.0.0.1 asks by that name, so the Host header
    counts. nginx speaks HTTP/1.0 to its servers by default, and browsers do not.
    """
    address = None if request.client is None else ip_of(request.client.host)
    if address is None or not address.is_loopback or request.scope.get("http_version") == "1.0":
        return False
    if any(_OF_A_PROXY.fullmatch(name.lower()) for name in request.headers.keys()):  # noqa: SIM118 - they may repeat
        return False
    hosts = request.headers.getlist("host")
    if len(hosts) != 1 or (host := _HOST.fullmatch(hosts[0].lower())) is None:
        return False
    name = host[1] or host[2]
    ip = ip_of(name)
    return name == "localhost" or name.endswith(".localhost") or (ip is not None and ip.is_loopback)
