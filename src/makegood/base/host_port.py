"""Hosts and ports as people write them.

Where a process listens ("HOST:PORT"), which texts can be a host, and where a PostgreSQL server is: on this
machine or behind a network.
"""

import ipaddress
import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from makegood.errors import ConfigError

HIGHEST_PORT: Final = 65_535


def host_and_port(listen: str, name: str = "listen") -> tuple[str, int]:
    """Return the parts of "HOST:PORT"; an IPv6 host is in brackets. Port 0: any free one. Raises
    ``ConfigError``.

    >>> host_and_port("127.0.0.1:9464"), host_and_port("[::1]:0")
    (('127.0.0.1', 9464), ('::1', 0))
    """
    usual = 8640 if name.endswith("console") else 9464
    hint = f"write HOST:PORT, such as 127.0.0.1:{usual}, 0.0.0.0:{usual} (every address of this machine) or [::1]:{usual}"
    if not isinstance(listen, str):
        raise ConfigError(f"{name}={listen!r}: {hint}")
    host, colon, port = listen.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(f"{name}={listen!r}: write an IPv6 address in brackets; {hint}")
    if not colon or not host or any(letter.isspace() or letter == "/" for letter in host):
        raise ConfigError(f"{name}={listen!r}: {hint}")
    if not (port.isascii() and port.isdecimal()) or int(port) > HIGHEST_PORT:
        raise ConfigError(f"{name}={listen!r}: the port is a number from 0 to {HIGHEST_PORT}; {hint}")
    return host, int(port)


def is_host(host: str) -> bool:
    """Return whether a text can be a host of a URL: an IP address, or a name that no program takes for one.

    >>> is_host("hooks.example.com"), is_host("10.1.2.3"), is_host("0x7f.1"), is_host("a b")
    (True, True, False, False)
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        labels = host.removesuffix(".").split(".")
        known = all(
            part and len(part) < 64 and part.replace("-", "").replace("_", "").isalnum() for part in labels
        )
        return known and not labels[-1].isdecimal()  # 0x7f.1 and the like are addresses in disguise
    return True


_VERIFIED: Final = ("verify-full", "verify-ca")
_ENCRYPTED: Final = (*_VERIFIED, "require")


def remote_hosts(url: str, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the hosts of a PostgreSQL URL that are neither this machine's loopback nor a socket.

    >>> remote_hosts("postgresql://me@localhost,db.internal:5433/shop", {})
    ['db.internal']
    """
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    named = query.get("host") or [unquote(parts.netloc.rpartition("@")[2]) or environ.get("PGHOST", "")]
    hosts = [_without_port(host) for host in named[-1].split(",")]
    return [host for host in hosts if not _is_here(host)]


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host if host.count(":") > 1 else host.partition(":")[0]


def _is_here(host: str) -> bool:
    if not host or host.startswith(("/", "@")) or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def tls_mode(url: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the sslmode of a PostgreSQL URL, or PGSSLMODE; "" for none."""
    named = parse_qs(urlsplit(url).query).get("sslmode", [""])[-1]
    return named or environ.get("PGSSLMODE", "")


def is_verified(url: str) -> bool:
    """Return whether the driver verifies the server's certificate."""
    return tls_mode(url) in _VERIFIED


def with_tls(url: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return a URL that sends nothing to a remote PostgreSQL server except over TLS.

    A URL without an sslmode gets ``sslmode=verify-full``. Raises ``ConfigError`` for one that asks for less
    than TLS. Other URLs are returned unchanged.

    >>> with_tls("postgresql://me@db.internal/shop", {})
    'postgresql://me@db.internal/shop?sslmode=verify-full'
    """
    if not url.startswith(("postgresql:", "postgres:")) or not (hosts := remote_hosts(url, environ)):
        return url
    mode = tls_mode(url, environ)
    if mode in _ENCRYPTED:
        return url
    if mode:
        raise ConfigError(
            f"sslmode={mode} for {', '.join(hosts)}, and require_tls is on: write sslmode=verify-full, or take it away; nothing was sent"
        )
    return f"{url}{'&' if urlsplit(url).query else '?'}sslmode=verify-full"
