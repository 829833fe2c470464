"""Hosts as people list them for webhooks.

An entry is a name, all names below one, an address or a network, each optionally with a port. The same
entries say which hosts a process may post to (``webhook_hosts``) and which secret signs what goes there
(``webhook_secrets``).
"""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from makegood.base.host_port import HIGHEST_PORT, is_host, port_in
from makegood.base.public_networks import Address, Network, address_of, inner
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
        return address in network or (
            (inner_address := inner(address)) is not None and inner_address in network
        )

    def covers(self, candidate: "AllowedHost") -> bool:
        """Return whether this entry matches every host that another entry matches."""
        if self.port not in (None, candidate.port):
            return False
        if self.network is not None and candidate.network is not None:
            return (
                self.network.version == candidate.network.version
                and int(self.network[0]) <= int(candidate.network[0])
                and int(candidate.network[-1]) <= int(self.network[-1])
            )
        if self.below:
            return (candidate.name or candidate.below).endswith(self.below)
        return bool(self.name) and self.name == candidate.name

    @property
    def wide(self) -> bool:
        """Whether the entry matches several names."""
        return bool(self.below)

    @property
    def is_one(self) -> bool:
        """Whether the entry matches one host, at whatever port."""
        return bool(self.name) or (self.network is not None and self.network.num_addresses == 1)

    @property
    def closeness(self) -> tuple[int, bool]:
        """How specific the entry is: of several that match a host, the greatest applies."""
        length = len(self.below) if self.below else 1000 + (self.network.prefixlen if self.network else 0)
        return length, self.port is not None

    def _at(self, port: int | None) -> bool:
        return port is None or self.port is None or port == self.port


def entry(text: str, subject: str) -> AllowedHost:
    """Read an entry; raises ``ConfigError``, naming ``subject``, for any other text.

    >>> entry("*.example.com:8443", "webhook_hosts").matches("hooks.example.com", 8443)
    True
    """
    pattern = text.strip().lower()
    host, colon, digits = pattern, "", ""
    if pattern.count(":") == 1 or "]:" in pattern:
        host, colon, digits = pattern.rpartition(":")
    port = port_in(digits)
    if colon and not port:
        raise ConfigError(f"{subject}: {text!r}: behind the colon belongs a port from 1 to {HIGHEST_PORT}")
    try:
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        return AllowedHost(pattern, port, network=ipaddress.ip_network(bare))
    except ValueError:
        name = host.removeprefix("*.").removesuffix(".")
    if not name.isascii() or not is_host(name) or (host.startswith("*.") and address_of(name) is not None):
        raise ConfigError(
            f"{subject}: {text!r} is not a host: write hooks.example.com, *.example.com or 10.1.0.0/16, each with :PORT if only that port "
            "is meant"
        )
    if host.startswith("*."):
        return AllowedHost(pattern, port, below=f".{name}")
    return AllowedHost(pattern, port, name=name)


def closest(entries: Iterable[AllowedHost], host: str, port: int | None = None) -> AllowedHost | None:
    """Return the most specific entry that matches a host; None if none does."""
    target = address_of(host) or host
    matches = [entry for entry in entries if entry.matches(target, port)]
    return max(matches, key=lambda entry: entry.closeness, default=None)


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
        entry = closest(self._own, host, port)
        return self._default if entry is None else self._own[entry]

    def check(self, allowed_hosts: Sequence[AllowedHost]) -> None:
        """Raise ``ConfigError`` for a secret of a host that is not in ``allowed_hosts``, and for an allowed
        host without a secret.

        Without this check a misspelt host would go unnoticed.
        """
        for own in self._own:
            if not any(own.covers(entry) or entry.covers(own) for entry in allowed_hosts):
                raise ConfigError(
                    f"webhook_secrets: {own.text!r} is not among webhook_hosts, so nothing is ever signed with its secret"
                )
        for entry in allowed_hosts:
            if not self._default and not any(own.covers(entry) for own in self._own):
                raise ConfigError(
                    f"webhook_hosts needs webhook_secret, or webhook_secrets for {entry.text!r}: receivers see by the signature that makegood sends"
                )

    def groups_that_share(self, allowed_hosts: Sequence[AllowedHost]) -> list[tuple[str, ...]]:
        """Return the groups of receivers that have one secret in common, as the entries that match them.

        Networks are left out: they say where names may lead.
        """
        hosts_by_secret: dict[str, dict[AllowedHost, None]] = {}
        for entry in (*self._own, *allowed_hosts):
            if entry.network is not None and entry.network.num_addresses > 1:
                continue
            of = max(
                (own for own in self._own if own.covers(entry)),
                key=lambda own: own.closeness,
                default=None,
            )
            for secret in self._default if of is None else self._own[of]:
                hosts_by_secret.setdefault(secret, {})[entry] = None
        groups = {
            tuple(entry.text for entry in group)
            for group in hosts_by_secret.values()
            if len({entry.name or entry.below or entry.network for entry in group}) > 1
            or any(entry.wide for entry in group)
        }
        return sorted(groups)
