"""The hosts and the places at brokers that a process may send to, as its settings list them."""

import ipaddress
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Self

from makegood.base.host_lists import closest, entry
from makegood.base.public_networks import public
from makegood.base.webhook_signature import WebhookAddress, address
from makegood.brokers.address import BrokerAddress, covers, pattern_of
from makegood.brokers.kinds import KINDS
from makegood.brokers.protocol import RefusedTargetError
from makegood.errors import ConfigError, DeliveryError
from makegood.model import notices
from makegood.options import Options

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host, best first."""


class UnlistedTargetError(RefusedTargetError):
    """A port or a place that this process may not send to, although it may send to others of the host or the
    broker. Another process may have it on its list.
    """


class Hosts:
    """Which hosts may be posted to, and which places at brokers.

    An entry is a name ("hooks.example.com"), all names below one ("*.example.com"), an address or a network
    ("10.1.0.0/16"), or "localhost". A host that is listed by name must have public addresses, or addresses in
    a network that is listed too. With a port ("hooks.example.com:8443", "10.1.0.0/16:8443",
    "[fd00::/8]:8443") an entry means that port alone.

    >>> hosts = Hosts(["*.example.com", "10.1.0.0/16", "shop.example:8443"])
    >>> hosts.allow("hooks.example.com"), hosts.allow("example.com")
    (True, False)
    >>> hosts.allow("10.1.2.3"), hosts.allow("shop.example", 443)
    (True, False)

    ``places``: entries of ``reply_to_brokers``. Raises ``ConfigError`` for an entry that is neither.
    """

    def __init__(self, entries: Iterable[str], places: Iterable[str] = ()) -> None:
        self.entries = tuple(entry(text, "webhook_hosts") for text in entries)
        self.places = tuple(pattern_of(text, KINDS) for text in places)

    def allow(self, host: str, port: int | None = None) -> bool:
        """Return whether a host is on the list, at that port; None: at any port. Or whether a broker is."""
        if host in {place.broker for place in self.places}:
            return True
        return closest(self.entries, _host(host), port) is not None

    def name(self, host: str) -> bool:
        """Return whether a host is listed by its own name or address, or a broker is."""
        nearest = closest(self.entries, _host(host), None)
        return host in {place.broker for place in self.places} or (nearest is not None and nearest.is_one)

    def share(self, host: str) -> str:
        """Return the entry that lists a host, as it was written; for an unlisted host, the host itself."""
        entry = closest(self.entries, _host(host))
        return host if entry is None else entry.text

    @classmethod
    def of(cls, options: Options) -> Self:
        """Return what these ``options`` allow. Raises ``ConfigError``."""
        return cls((options.webhook_hosts or "").split(), (options.reply_to_brokers or "").split())

    def check(self, reply_to: str, *, sends: bool = True) -> None:
        """Raise ``ConfigError`` for a place at a broker, or a webhook of a host, that is not on the list.

        ``sends``: whether this process sends notices. If not, it may have no list of its own: then only the
        processes that send check the address, against their lists.
        """
        if notices.queue(reply_to) is not None:
            return
        if (place := notices.at_broker(reply_to)) is not None:
            if sends or self.places:
                self.refuse_place(place)
            return
        if not sends and not self.entries:
            return
        notices.split_url(reply_to)
        to = address(reply_to)
        if not self.allow(to.host, to.port):
            missing = f"{to.host}:{to.port}" if self.allow(to.host) else to.host
            raise ConfigError(
                f"reply_to={notices.safe_address(reply_to)!r}: {self._missing(to)} of this process: submitters may name only hosts "
                f"on that list; {_how_to_add('webhook_hosts', missing, [entry.text for entry in self.entries])}"
            )

    def refuse_place(self, place: BrokerAddress) -> None:
        """Raise ``ConfigError`` for a place at a broker that is not on the list."""
        if not any(covers(pattern, place) for pattern in self.places):
            raise ConfigError(
                f"reply_to={str(place)!r} is not among reply_to_brokers of this process: submitters may name only addresses on that list; "
                f"{_how_to_add('reply_to_brokers', str(place), [*map(str, self.places)])}"
            )

    def refuse(self, to: WebhookAddress) -> None:
        """Raise ``UnlistedTargetError`` for an address whose host and port are not on the list."""
        if not self.allow(to.host, to.port):
            raise UnlistedTargetError(self._missing(to))

    def safe(self, host: str, addresses: Sequence[str], port: int | None = None) -> str:
        """Return which of a host's resolved addresses to connect to.

        Raises ``RefusedTargetError`` when any of them must not be connected to.
        """
        for text in addresses:
            at = ipaddress.ip_address(text.partition("%")[0])
            near = at.is_loopback and any(entry.name == host == "localhost" for entry in self.entries)
            if not (near or public(at) or any(entry.holds(at, port) for entry in self.entries)):
                raise RefusedTargetError(
                    f"{host} is {at}, which is not public: put its network into webhook_hosts if it is meant"
                )
        if not addresses:
            raise DeliveryError(f"{host} has no address")
        return addresses[0].partition("%")[0]

    def _missing(self, to: WebhookAddress) -> str:
        host = f"{to.host}:{to.port}" if self.allow(to.host) else to.host
        return f"{host} is not among webhook_hosts"


def _how_to_add(setting: str, entry: str, entries: Sequence[str]) -> str:
    """Return how an operator adds an entry to a setting. ``entries``: those that it has."""
    if entries:
        return f"it lists {' '.join(entries)}: append {entry} after a space"
    return f'add {setting} = "{entry}" to makegood.toml, or set MAKEGOOD_{setting.upper()} (in Python, Options({setting}=…))'


def _host(host: str) -> str:
    return host.lower().removesuffix(".")
