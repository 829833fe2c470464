"""The kinds of brokers, and how one is opened: only then is its module imported, and the client it needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Final, cast
from urllib.parse import urlsplit

import msgspec

from makegood.base.extras import optional
from makegood.base.urls import masked, parts_of, scheme_of
from makegood.brokers.address import NAME, BrokerAddress
from makegood.brokers.protocol import Reader, Sender, Source
from makegood.errors import ConfigError


class Kind(msgspec.Struct, frozen=True):
    """A kind of broker.

    Its module has ``open_source(target, address, reader)``, ``open_sender(target)`` and
    ``permissions(target, sources, places)``.
    """

    title: str
    """What people call it."""
    module: str
    """Its module in this room."""
    package: str
    """The client that it imports."""
    extra: str
    """The extra of makegood that brings the client."""
    forms: tuple[str, ...]
    """What its URL in the settings looks like; their schemes are the ones it takes."""
    parameters: Mapping[str, str]
    """What an address that is read from may say behind the ?, each with what it means."""


_GROUP: Final = "the consumer group; by default one of the store and the queue"

KINDS: Final[Mapping[str, Kind]] = {
    "amqp": Kind(
        "RabbitMQ", "rabbitmq", "aiormq", "rabbitmq",
        ("amqp://user@host:5672/vhost", "amqps://user@host/vhost"),
        {"dead-letters": "broker, if the queue has a dead-letter exchange for refused messages, or store"},
    ),
    "kafka": Kind(
        "Kafka", "kafka", "aiokafka", "kafka",
        ("kafka://host:9092,host2:9092", "kafka+tls://user@host:9093?sasl=SCRAM-SHA-512"),
        {"start": "earliest or latest: where a new group begins; it must be said", "group": _GROUP},
    ),
    "nats": Kind(
        "NATS JetStream", "nats", "nats", "nats",
        ("nats://user@host:4222", "tls://user@host:4222"),
        {"consumer": "the durable consumer; by default one of the store and the queue", "subject": "only messages of this subject"},
    ),
    "redis": Kind(
        "Redis Streams", "redis", "redis", "redis",
        ("redis://user@host:6379/0", "rediss://user@host:6379/0"),
        {"group": _GROUP, "start": "earliest (the default) or latest: where a new group begins"},
    ),
    "servicebus": Kind(
        "Azure Service Bus", "service_bus", "azure.servicebus", "servicebus",
        ("servicebus://NAMESPACE.servicebus.windows.net", "Endpoint=sb://…;SharedAccessKeyName=…;SharedAccessKey=…"),
        {"subscription": "of a topic", "sessions": "on: of a queue that requires sessions"},
    ),
    "azure-queue": Kind(
        "Azure Storage Queues", "storage_queue", "azure.storage.queue", "azure-queue",
        ("azure-queue://ACCOUNT.queue.core.windows.net",), {"visibility": "seconds for which a message is this process's; 60 by default"},
    ),
    "sqs": Kind(
        "Amazon SQS", "sqs", "boto3", "sqs", ("sqs://REGION", "sqs://REGION?endpoint=http://host:port"),
        {"visibility": "seconds for which a message is this process's; 60 by default"},
    ),
}  # fmt: skip
"""The kinds of brokers, by what an address begins with."""

_CONNECTION_STRING: Final = "Endpoint=sb://"


@dataclass(frozen=True, slots=True)
class Target:
    """A broker of the settings."""

    kind: str
    name: str
    """What its operator calls it."""
    url: str
    """Where it is; may hold a password, and is never shown."""

    def __repr__(self) -> str:
        """Return it without its secrets."""
        return f"<{self.where} at {self.shown}>"

    @property
    def where(self) -> str:
        """Its name for messages, such as "amqp:main"."""
        return f"{self.kind}:{self.name}"

    @property
    def shown(self) -> str:
        """Its URL without passwords, tokens and keys."""
        if self.url.startswith(_CONNECTION_STRING):
            return self.url.removeprefix("Endpoint=").partition(";")[0]
        return masked(self.url)


def targets_of(brokers: Mapping[str, str]) -> dict[str, Target]:
    """Return the brokers of the settings by name. Raises ``ConfigError``; no error shows a URL.

    >>> targets_of({"main": "amqps://shop:secret@mq.example/prod"})["main"]
    <amqp:main at amqps://shop:***@mq.example/prod>
    """
    return {name: _target(name, url) for name, url in brokers.items()}


def _target(name: str, url: str) -> Target:
    subject = f"brokers: the URL of {name!r:.60}"
    if NAME.fullmatch(name) is None:
        raise ConfigError(
            f"brokers: {name!r:.60} cannot be a name: write a letter, then letters, digits, _ or -"
        )
    if url.startswith(_CONNECTION_STRING):
        return Target("servicebus", name, url)
    scheme = scheme_of(url)
    for kind, about in KINDS.items():
        if scheme in {form.partition("://")[0] for form in about.forms}:
            parts_of(url, subject)
            return Target(kind, name, url)
    forms = ", ".join(form for about in KINDS.values() for form in about.forms)
    raise ConfigError(
        f"{subject}: {'the scheme ' + repr(scheme) if scheme else 'this text'} names no broker: write one of {forms}"
    )


def target_for(address: BrokerAddress, targets: Mapping[str, Target], subject: str = "") -> Target:
    """Return the broker that an address names. Raises ``ConfigError`` if there is none of its kind."""
    prefix = f"{subject}: " if subject else ""
    target = targets.get(address.name)
    if target is None:
        names = ", ".join(sorted(targets)) or "none"
        raise ConfigError(
            f"{prefix}{address} names the broker {address.name!r}, which the settings of this process lack (they have {names}): "
            f'[brokers] {address.name} = "{KINDS[address.kind].forms[0]}", or MAKEGOOD_BROKERS_{address.name.upper()}'
        )
    if target.kind != address.kind:
        raise ConfigError(
            f"{prefix}{address}: the settings say that {address.name!r} is {KINDS[target.kind].title}: write {target.kind}:{address.name}/…"
        )
    return target


def open_source(address: BrokerAddress, targets: Mapping[str, Target], reader: Reader) -> Source:
    """Return the source at an address; it connects when it is opened.

    Raises ``ConfigError`` for a broker that the settings lack, an unknown parameter, or if the extra for it
    is not installed.
    """
    target = target_for(address, targets)
    parameters = {**KINDS[address.kind].parameters, "queue": "the store's queue for what is taken"}
    if unknown := [name for name in address.parameters if name not in parameters]:
        known = ", ".join(f"{name} ({text})" for name, text in parameters.items())
        raise ConfigError(f"{address}: there is no parameter {unknown[0]!r}; it takes {known}")
    return cast("Source", _module(target.kind).open_source(target, address, reader))


def open_sender(target: Target) -> Sender:
    """Return what sends to a broker; it connects when it is first used.

    Raises ``ConfigError`` if the extra for it is not installed.
    """
    return cast("Sender", _module(target.kind).open_sender(target))


def permissions(target: Target, sources: Sequence[str], places: Sequence[str]) -> str:
    """Return what an operator of a broker grants makegood, and nothing more: commands or a policy, as text.

    ``sources``: the places that are read from. ``places``: those that are sent to. Connects nowhere.
    """
    return cast("str", _module(target.kind).permissions(target, sources, places))


def is_elsewhere(url: str) -> bool:
    """Return whether a URL leads to another machine, where only TLS keeps secrets.

    >>> is_elsewhere("amqp://mq.example/"), is_elsewhere("amqp://127.0.0.1:5672/")
    (True, False)
    """
    places = urlsplit(url).netloc.rpartition("@")[2].split(",")
    hosts = [place.rpartition(":")[0] if place.rpartition(":")[2].isdecimal() else place for place in places]
    return any(host.strip("[]") not in ("localhost", "127.0.0.1", "::1", "") for host in hosts)


def _module(kind: str) -> ModuleType:
    about = KINDS[kind]
    hint = (
        f"{about.title} needs {about.package}: install makegood with its extra {about.extra!r}, `pip install "
        f"'makegood[{about.extra}]'` (in a checkout `pip install '.[{about.extra}]'`)"
    )
    return cast(
        "ModuleType", optional(f"makegood.brokers.{about.module}", about.package.partition(".")[0], hint)
    )
