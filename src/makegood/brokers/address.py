"""Addresses at brokers, as code, operators and submitters write them: ``KIND:NAME/PLACE?PARAMETER=VALUE``."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final
from urllib.parse import parse_qsl

from makegood.errors import ConfigError

NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,49}")
"""What an operator may call a broker."""

_PLACE: Final = re.compile(r"[!-~]{1,255}")
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_.-]")
_FORM: Final = '"{kind}:NAME/PLACE", with the NAME of a broker in the settings ([brokers] NAME = "URL")'


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """A queue, topic, stream or subject of a broker."""

    kind: str
    """The kind of broker: a key of ``KINDS``."""
    name: str
    """What its operator calls the broker."""
    place: str
    """The queue, topic, stream or subject."""
    parameters: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    """How to read from it; empty for an address that is sent to."""

    def __str__(self) -> str:
        """Return the address without its parameters, for messages."""
        return f"{self.kind}:{self.name}/{self.place}"

    @property
    def broker(self) -> str:
        """The broker alone, such as "amqp:main"."""
        return f"{self.kind}:{self.name}"

    @property
    def queue(self) -> str:
        """The store's queue for what is taken from it.

        >>> address_of("amqp:main/orders", {"amqp"}).queue
        'amqp-main-orders'
        >>> address_of("amqp:main/orders?queue=orders", {"amqp"}).queue
        'orders'
        """
        return self.parameters.get("queue") or _UNFIT.sub("-", f"{self.kind}-{self.name}-{self.place}")[:100]


def is_address(text: str, kinds: Mapping[str, object]) -> bool:
    """Return whether a text begins as an address at a broker of one of these kinds does.

    >>> is_address("amqp:main/orders", {"amqp": 0}), is_address("orders", {"amqp": 0})
    (True, False)
    """
    kind, colon, _ = text.partition(":")
    return bool(colon) and kind in kinds


def pattern_of(text: str, kinds: Mapping[str, object]) -> BrokerAddress:
    """Return an entry of ``reply_to_brokers`` as an address whose place may end with a ``*``.

    Raises ``ConfigError`` for any other.
    """
    address = address_of(text, kinds, "reply_to_brokers")
    if address.parameters or "*" in address.place[:-1]:
        raise ConfigError(
            f"reply_to_brokers: {text!r}: write KIND:NAME/PLACE, perhaps with a * at its end for any further text"
        )
    return address


def covers(pattern: BrokerAddress, address: BrokerAddress) -> bool:
    """Return whether an entry of ``reply_to_brokers`` allows an address.

    >>> kinds = {"amqp": 0}
    >>> covers(address_of("amqp:a/shop.*", kinds), address_of("amqp:a/shop.eu", kinds))
    True
    """
    if pattern.broker != address.broker:
        return False
    if pattern.place.endswith("*"):
        return address.place.startswith(pattern.place[:-1])
    return address.place == pattern.place


def address_of(text: str, kinds: "Mapping[str, object] | set[str]", subject: str = "") -> BrokerAddress:
    """Return the parts of an address. ``kinds``: the kinds there are. ``subject``: what has it, for messages.

    Raises ``ConfigError`` for anything else.

    >>> address_of("kafka:main/orders?start=earliest", {"kafka"}).parameters["start"]
    'earliest'
    """
    kind, colon, rest = text.partition(":")
    # What looks like a URL may hold a password: it is not excerpt.
    excerpt = f"{kind if kind in kinds else ''}…" if "//" in text or "@" in text else text
    what = f"{subject}={excerpt!r:.200}" if subject else f"{excerpt!r:.200}"
    form = _FORM.format(kind=kind if kind in kinds else "amqp")
    if not colon or kind not in kinds:
        raise ConfigError(f"{what}: write an address at a broker, such as {form}")
    if rest.startswith("//"):
        raise ConfigError(
            f"{what}: no URL belongs here, as it would show where the broker is, and perhaps a password; write {form}"
        )
    name, slash, rest = rest.partition("/")
    place, mark, query = rest.partition("?")
    if not slash or NAME.fullmatch(name) is None or _PLACE.fullmatch(place) is None:
        raise ConfigError(f"{what}: write {form}")
    pairs = parse_qsl(query, keep_blank_values=True)
    if mark and not (pairs and all("=" in part for part in query.split("&"))):
        raise ConfigError(f"{what}: after the ? there must be name=value, with & between two of them")
    return BrokerAddress(kind, name, place, MappingProxyType(dict(pairs)))
