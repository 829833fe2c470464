"""Hosts as people list them for webhooks.

An entry is a name, all names below one, an address or a network, each optionally with a port. The same
entries say which hosts a process may post to (``webhook_hosts``) and which secret signs what goes there
(``webhook_secrets``).
"""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from makegood.base.host_port import HIGHEST_PORT, is_host
from makegood.base.public_networks import Address, Network, inner
from makegood.errors import ConfigError


@dataclass(frozen=True, slots=True)
class AllowedHost:
    """One entry of such a list, as ``entry`` reads it. Exactly one of ``name``, ``below`` and ``network`` is
    set.
    """

    text: str
    port: int | None = None
    """The only port that matches; None: any."""
    name: str = ""
    below: str = ""
    """".example.com" for "*.example.com"."""
    network: Network | None = None

    def matches(self, host: str | Address, port: int | None = None) -> bool:
        """Return whether the entry matches a host at a port; None: at any port."""
        if not isinstance(host, str):
            return self.holds(host, port)
        return (
            bool(host)
            and self._at(port)
            and (host == self.name or bool(self.below and host.endswith(self.below)))
        )

    def holds(self, address: Address, port: int | None = None) -> bool:
        """Return whether an address, or the IPv4 address it leads to, is in the entry's network."""
        network = self.network
        if network is None or not self._at(port):
            return False
        return address in network or ((held := inner(address)) is not None and held in network)

    def covers(self, other: "AllowedHost") -> bool:
        """Return whether this entry matches every host that another entry matches."""
        if self.port not in (None, other.port):
            return False
        if self.network is not None and other.network is not None:
            return (
                self.network.version == other.network.version
                and int(self.network[0]) <= int(other.network[0])
                and int(other.network[-1]) <= int(self.network[-1])
            )
        if self.below:
            return (other.name or other.below).endswith(self.below)
        return bool(self.name) and self.name == other.name

    @property
    def wide(self) -> bool:
        """Whether the entry matches several names."""
        return bool(self.below)

    @property
    def closeness(self) -> tuple[int, bool]:
        """How specific the entry is: of several that match a host, the greatest applies."""
        length = len(self.below) if self.below else 1000 + (self.network.prefixlen if self.network else 0)
        return length, self.port is not None

    def _at(self, port: int | None) -> bool:
        return port is None or self.port is None or port == self.port


def entry(text: str, what: str) -> AllowedHost:
    """Read an entry; raises ``ConfigError``, naming ``what``, for any other text.

    >>> entry("*.example.com:8443", "webhook_hosts").matches("hooks.example.com", 8443)
    True
    """
    written = text.strip().lower()
    host, colon, digits = written, "", ""
    if written.count(":") == 1 or "]:" in written:
        host, colon, digits = written.rpartition(":")
    port = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) <= len("65535") else 0
    if colon and not 0 < port <= HIGHEST_PORT:
        raise ConfigError(f"{what}: {text!r}: behind the colon belongs a port from 1 to {HIGHEST_PORT}")
    at = port if colon else None
    try:
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        return AllowedHost(written, at, network=ipaddress.ip_network(bare))
    except ValueError:
        name = host.removeprefix("*.").removesuffix(".")
    if not name.isascii() or not is_host(name) or (host.startswith("*.") and _address(name) is not None):
        raise ConfigError(
            f"{what}: {text!r} is not a host: write hooks.example.com, *.example.com or 10.1.0.0/16, each with :PORT if only that port "
            "is meant"
        )
    if host.startswith("*."):
        return AllowedHost(written, at, below=f".{name}")
    return AllowedHost(written, at, name=name)


def closest(entries: Iterable[AllowedHost], host: str, port: int | None = None) -> AllowedHost | None:
    """Return the most specific entry that matches a host; None if none does."""
    meant = _address(host) or host
    found = [one for one in entries if one.matches(meant, port)]
    return max(found, key=lambda one: one.closeness, default=None)


class Secrets:
    """Which secrets sign for which receiver: those of the most specific entry for it, else the default.

    >>> secrets = Secrets(["D"], {"a.example": ["A"], "*.b.example": ["B"]})
    >>> secrets.of("a.example", 443), secrets.of("x.b.example", 443), secrets.of("c.example", 443)
    (('A',), ('B',), ('D',))
    """

    def __init__(self, default: Sequence[str], own: Mapping[str, Sequence[str]]) -> None:
        self._default = tuple(default)
        self._own = {entry(text, "webhook_secrets"): tuple(secrets) for text, secrets in own.items()}

    def of(self, host: str, port: int) -> tuple[str, ...]:
        """Return the secrets that sign for a receiver; empty if none are set."""
        found = closest(self._own, host, port)
        return self._default if found is None else self._own[found]

    def check(self, listed: Sequence[AllowedHost]) -> None:
        """Raise ``ConfigError`` for a secret of a host that is not ``listed``, and for a listed host without
        a secret.

        Without this check a misspelt host would go unnoticed.
        """
        for own in self._own:
            if not any(own.covers(one) or one.covers(own) for one in listed):
                raise ConfigError(
                    f"webhook_secrets: {own.text!r} is not among webhook_hosts, so nothing is ever signed with its secret"
                )
        for one in listed:
            if not self._default and not any(own.covers(one) for own in self._own):
                raise ConfigError(
                    f"webhook_hosts needs webhook_secret, or webhook_secrets for {one.text!r}: receivers see by the signature that makegood sends"
                )

    def shared(self, listed: Sequence[AllowedHost]) -> list[tuple[str, ...]]:
        """Return the groups of receivers that have one secret in common, as the entries that match them.

        Networks are left out: they say where names may lead.
        """
        served: dict[str, dict[AllowedHost, None]] = {}
        for one in (*self._own, *listed):
            if one.network is not None and one.network.num_addresses > 1:
                continue
            of = max(
                (own for own in self._own if own.covers(one)), key=lambda own: own.closeness, default=None
            )
            for secret in self._default if of is None else self._own[of]:
                served.setdefault(secret, {})[one] = None
        groups = {
            tuple(one.text for one in group)
            for group in served.values()
            if len({one.name or one.below or one.network for one in group}) > 1
            or any(one.wide for one in group)
        }
        return sorted(groups)


def _address(host: str) -> Address | None:
    """Return the address that a host is; None for a name."""
    if ":" not in host and not host[-1:].isdecimal():
        return None  # nearly always; this runs for every host that something is sent to
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
