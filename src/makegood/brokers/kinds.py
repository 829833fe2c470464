"""The kinds of brokers, and how one is opened: only then is its module imported, and the client it needs."""

import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Final, cast
from urllib.parse import SplitResult, parse_qsl, urlsplit

import msgspec

from makegood.base.extras import optional
from makegood.base.urls import mask_url, parts_of, scheme_of
from makegood.brokers.address import NAME, BrokerAddress
from makegood.brokers.protocol import Answers, Reader, Requirement, Sender, Source
from makegood.errors import ConfigError


class Kind(msgspec.Struct, frozen=True):
    """A kind of broker.

    Its module has ``open_source(target, address, reader)``, ``open_sender(target)``,
    ``check(target, sources, places, reader)`` and ``permissions(target, sources, places)``.
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
    """What an address that is read from may have after the ?, each with what it means."""

    @property
    def has_groups(self) -> bool:
        """Whether the broker knows the readers of a place by a name of theirs."""
        return not {"group", "consumer"}.isdisjoint(self.parameters)


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
        return f"<{self.where} at {self.safe_url}>"

    @property
    def where(self) -> str:
        """Its name for messages, such as "amqp:main"."""
        return f"{self.kind}:{self.name}"

    @property
    def subject(self) -> str:
        """Its URL, for messages about what the URL says."""
        return f"brokers: the URL of {self.name!r:.60}"

    def settings(self, known: Mapping[str, str]) -> tuple[SplitResult, dict[str, str]]:
        """Return the parts of its URL, and the parameters in it. Raises ``ConfigError``.

        ``known``: the parameters that a URL of its kind takes, each with what it means.
        """
        parts = parts_of(self.url, self.subject)
        parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
        if unknown := [name for name in parameters if name not in known]:
            choices = ", ".join(f"{name} ({text})" for name, text in known.items())
            raise ConfigError(
                f"{self.subject}: there is no parameter {unknown[0]!r:.60}; a URL takes {choices}"
            )
        return parts, parameters

    def tls(self, parameters: Mapping[str, str], names: tuple[str, str, str]) -> ssl.SSLContext:
        """Return what checks the certificate of a server. Raises ``ConfigError`` for a file that is unusable.

        ``names``: the parameters that name the files of the authority that signed it (by default those that
        the system trusts), of this process's own certificate, and of its key.
        """
        authority, certificate, key = map(parameters.get, names)
        try:
            context = ssl.create_default_context(cafile=authority)
            if certificate:
                context.load_cert_chain(certificate, key)
        except (OSError, ValueError) as fault:  # ssl.SSLError is an OSError
            files = [f"{name}={parameters[name]}" for name in names if name in parameters]
            raise ConfigError(
                f"{self.subject}: {', '.join(files) or 'the system'} cannot be used for TLS, which needs files in PEM form that can be read: {fault}"
            ) from None
        return context

    def tls_hint(self, fault: BaseException, plain: str) -> str:
        """Return what to add to an error that a port without TLS may cause, by silence or a hang-up.

        ``plain``: the scheme without TLS.
        """
        is_doubtful = any(
            isinstance(each, TimeoutError | ConnectionResetError) for each in (fault, fault.__context__)
        )
        if not is_doubtful or scheme_of(self.url) == plain:
            return ""
        return f"; if that port does not speak TLS, write {plain}://"

    @property
    def safe_url(self) -> str:
        """Its URL without passwords, tokens and keys."""
        if self.url.startswith(_CONNECTION_STRING):
            return self.url.removeprefix("Endpoint=").partition(";")[0]
        return mask_url(self.url)


def targets_of(brokers: Mapping[str, str]) -> dict[str, Target]:
    """Return the brokers of the settings by name. Raises ``ConfigError``; no error shows a URL.

    >>> targets_of({"main": "amqps://shop:secret@mq.example/prod"})["main"]
    <amqp:main at amqps://shop:•••@mq.example/prod>
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
        f"{subject}: {repr(scheme) if scheme else 'this text'} is not the scheme of a broker: write one of {forms}"
    )


def target_for(address: BrokerAddress, targets: Mapping[str, Target], subject: str = "") -> Target:
    """Return the broker that an address names. Raises ``ConfigError`` if there is none of its kind."""
    prefix = f"{subject}: " if subject else ""
    target = targets.get(address.name)
    if target is None:
        names = ", ".join(sorted(targets)) or "none"
        raise ConfigError(
            f"{prefix}{address} names the broker {address.name!r}, which the settings of this process lack (they have {names}): "
            f'add it to makegood.toml, [brokers] {address.name} = "{KINDS[address.kind].forms[0]}", or set MAKEGOOD_BROKERS_{address.name.upper()}'
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
    _refuse_unknown_parameters(address)
    return cast("Source", _module(target.kind).open_source(target, address, reader))


def _refuse_unknown_parameters(address: BrokerAddress) -> None:
    parameters = {**KINDS[address.kind].parameters, "queue": "the store's queue for what is taken"}
    if unknown := [name for name in address.parameters if name not in parameters]:
        known = ", ".join(f"{name} ({text})" for name, text in parameters.items())
        raise ConfigError(f"{address}: there is no parameter {unknown[0]!r}; an address takes {known}")


def open_sender(target: Target) -> Sender:
    """Return what sends to a broker; it connects when it is first used.

    Raises ``ConfigError`` if the extra for it is not installed.
    """
    return cast("Sender", _module(target.kind).open_sender(target))


def rights_command(target: Target, where: str) -> str:
    """Return the command that prints the rights for a place, for messages.

    ``where``: the place, or the broker.

    >>> rights_command(Target("nats", "main", ""), "nats:main/orders")
    '`makegood broker permissions nats:main/orders`'
    """
    place = where if where.startswith(f"{target.where}/") else f"{target.name} --from PLACE --to PLACE"
    return f"`makegood broker permissions {place}`"


async def check(
    target: Target, sources: Sequence[BrokerAddress], places: Sequence[str], reader: Reader
) -> Answers:
    """Return what was checked of a broker, each with the place that it is about, on one connection to it.

    ``sources``: the places that are read from; nothing is consumed, and nothing created. ``places``: those
    that are sent to; nothing is sent there. ``reader``: as whom to read. Raises ``BrokerUnavailableError``,
    and ``ConfigError`` for what concerns all of them, such as a wrong password or an extra that is not
    installed.
    """
    for address in sources:
        _refuse_unknown_parameters(address)
    return cast("Answers", await _module(target.kind).check(target, sources, places, reader))


async def check_each(
    target: Target,
    sources: Sequence[BrokerAddress],
    read: Callable[[BrokerAddress], Awaitable[Sequence[Requirement]]],
    places: Sequence[str],
    sent_to: Callable[[str], Awaitable[Sequence[Requirement]]],
) -> Answers:
    """Return what ``read`` and ``sent_to`` check of each place; what cannot be used is an error of that place
    alone.

    Raises ``BrokerUnavailableError``.
    """
    answers: Answers = []
    checks = [
        *((str(each), partial(read, each)) for each in sources),
        *((f"{target.where}/{place}", partial(sent_to, place)) for place in places),
    ]
    for where, look in checks:
        try:
            answers += [(where, one) for one in await look()]
        except ConfigError as fault:
            answers.append((where, Requirement("error", str(fault).removeprefix(f"{where}: "))))
    return answers


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
