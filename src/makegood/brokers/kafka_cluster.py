"""What makegood asks of a Kafka cluster beside reading and writing: whether it lets us in, and if not, why;
topics and their ids; a group's offsets; the settings by which messages get lost.

aiokafka's own clients report little of this: a wrong password looks like an outage, and an unknown topic is
waited for, or even created.
"""

import asyncio
import math
import ssl
from collections.abc import Collection, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote
from uuid import UUID

import msgspec
from aiokafka import errors as kafka_errors
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.conn import create_conn
from aiokafka.protocol.admin import DescribeConfigsRequest
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.protocol.types import Boolean, CompactArray, CompactString, Int16, Int32, Schema, TaggedFields

from makegood.base.urls import parts_of, scrub
from makegood.brokers.kinds import Target
from makegood.brokers.protocol import Requirements
from makegood.errors import BrokerUnavailableError, ConfigError, MakegoodError

ANSWER: Final = 5.0
"""Seconds in which a broker answers, or counts as away."""
EARLIEST: Final = -2
LATEST: Final = -1
"""In place of a time, for ``Cluster.offsets``."""

_READ_COMMITTED: Final = 1
_TOPIC_RESOURCE: Final = 2
_DAY: Final = 86_400_000
"""Milliseconds."""
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_SESSION: Final = 15.0
_LEAST_SESSION, _MOST_SESSION = 1, 1800
_PARAMETERS: Final = {
    "session": f"seconds without a sign of life after which others read what a process reads; {_SESSION:g} by default",
    "sasl": f"how the user logs in: {', '.join(_MECHANISMS)}",
    "sslrootcert": "the file with the authority's certificate; by default the system's authorities",
    "sslcert": "the file with this process's certificate",
    "sslkey": "the file with its key",
}
_BARRED: Final = (
    kafka_errors.SaslAuthenticationFailed, kafka_errors.UnsupportedSaslMechanismError, kafka_errors.IllegalSaslStateError,
    kafka_errors.AuthenticationFailedError,
)  # fmt: skip
_RIGHTS: Final = (
    kafka_errors.TopicAuthorizationFailedError, kafka_errors.GroupAuthorizationFailedError,
    kafka_errors.ClusterAuthorizationFailedError,
)  # fmt: skip
_UNFIT: Final = (
    kafka_errors.InvalidTopicError, kafka_errors.InvalidGroupIdError, kafka_errors.InvalidSessionTimeoutError,
    kafka_errors.IncompatibleBrokerVersion,
)  # fmt: skip
"""What no retry changes."""


class _Uuid:
    """A type that aiokafka's protocol lacks."""

    @staticmethod
    def encode(value: UUID) -> bytes:
        return value.bytes

    @staticmethod
    def decode(data: Any) -> UUID:
        return UUID(bytes=data.read(16))

    repr = repr


class _TopicsResponse(Response):  # type: ignore[misc]  # aiokafka has no types
    """Metadata in version 11, of Kafka 2.8: it has the ids of topics. aiokafka knows versions up to 5."""

    API_KEY = 3
    API_VERSION = 11
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("brokers", CompactArray(
            ("node_id", Int32), ("host", CompactString()), ("port", Int32), ("rack", CompactString()), ("tags", TaggedFields),
        )),
        ("cluster_id", CompactString()),
        ("controller_id", Int32),
        ("topics", CompactArray(
            ("error_code", Int16), ("topic", CompactString()), ("topic_id", _Uuid), ("is_internal", Boolean),
            ("partitions", CompactArray(
                ("error_code", Int16), ("partition", Int32), ("leader", Int32), ("leader_epoch", Int32),
                ("replicas", CompactArray(Int32)), ("isr", CompactArray(Int32)), ("offline_replicas", CompactArray(Int32)),
                ("tags", TaggedFields),
            )),
            ("authorized_operations", Int32), ("tags", TaggedFields),
        )),
        ("tags", TaggedFields),
    )  # fmt: skip


class _TopicsStruct(RequestStruct):  # type: ignore[misc]  # aiokafka has no types
    FLEXIBLE_VERSION = True
    API_KEY = 3
    API_VERSION = 11
    RESPONSE_TYPE = _TopicsResponse
    SCHEMA = Schema(
        ("topics", CompactArray(("topic_id", _Uuid), ("topic", CompactString()), ("tags", TaggedFields))),
        ("allow_auto_topic_creation", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class _TopicsRequest(Request[_TopicsStruct]):  # type: ignore[misc]  # aiokafka has no types
    API_KEY = 3

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class([(UUID(int=0), self._topic, {})], False, False, {})


class Topic(msgspec.Struct, frozen=True):
    """What a cluster says of a topic."""

    id: str
    """Its UUID, never given again; "" at a broker older than Kafka 2.8."""
    leaders: dict[int, int]
    """The node that leads each partition; -1: none does now."""
    replicas: int
    """Of the partition that has the fewest."""


def servers_of(target: Target) -> list[str]:
    """Return the places of a broker's URL, each HOST:PORT.

    >>> servers_of(Target("kafka", "main", "kafka://me:secret@a,b:9093"))
    ['a:9092', 'b:9093']
    """
    places = parts_of(target.url).netloc.rpartition("@")[2].split(",")
    return [place if place.rpartition(":")[2].isdecimal() else f"{place}:9092" for place in places]


def session_of(target: Target) -> float:
    """Return the seconds without a heartbeat after which a group gives a reader's partitions to others.

    Raises ``ConfigError`` if the URL names no number from 1 to 1,800.
    """
    text = dict(parse_qsl(parts_of(target.url).query)).get("session", f"{_SESSION}")
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not _LEAST_SESSION <= seconds <= _MOST_SESSION:
        raise ConfigError(
            f"{target.where}: session={text!r:.60} in its URL: write a number of seconds from {_LEAST_SESSION} to {_MOST_SESSION}"
        )
    return seconds


def options_of(target: Target) -> dict[str, Any]:
    """Return what aiokafka's clients take to log in at a broker of the settings.

    Raises ``ConfigError`` for an unknown parameter, a file that cannot be read, a user without a password.
    """
    parts, values = target.settings(_PARAMETERS)
    if parts.path.strip("/"):
        raise ConfigError(
            f"{target.where}: its URL has a path, which Kafka knows nothing of: write kafka://host:9092"
        )
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    mechanism = values.get("sasl", "SCRAM-SHA-512")
    if mechanism not in _MECHANISMS:
        raise ConfigError(
            f"{target.where}: sasl={mechanism!r:.60} is not supported: write one of {', '.join(_MECHANISMS)}"
        )
    if bool(user) != bool(password) or ("sasl" in values and not user):
        raise ConfigError(
            f"{target.where}: Kafka's logins have a user and a password: write both into the URL, or neither of them and no sasl="
        )
    context = _tls(target, values)
    security = ("SASL_" if user else "") + ("SSL" if context else "PLAINTEXT")
    options: dict[str, Any] = {"security_protocol": security, "ssl_context": context}
    if user:
        options |= {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": unquote(user),
            "sasl_plain_password": unquote(password),
        }
    return options


def _tls(target: Target, values: Mapping[str, str]) -> ssl.SSLContext | None:
    names = ("sslrootcert", "sslcert", "sslkey")
    if target.url.lower().startswith("kafka+tls:"):
        return target.tls(values, names)
    if files := [name for name in names if name in values]:
        raise ConfigError(f"{target.where}: {files[0]} is for TLS: write kafka+tls:// in its URL")
    return None


class Cluster:
    """Connections to a Kafka cluster for questions, apart from those that read and write.

    All methods raise aiokafka's errors, ``TimeoutError`` and ``OSError``, which ``explain`` turns into
    makegood's; ``connect`` raises makegood's.
    """

    def __init__(self, target: Target, client_id: str) -> None:
        self.target = target
        self.options: dict[str, Any] = {
            "bootstrap_servers": servers_of(target),
            "client_id": client_id,
            "retry_backoff_ms": 250,
            "metadata_max_age_ms": 60_000,
            **options_of(target),
        }
        """What aiokafka's consumers and producers take, beside the time for an answer."""
        self._client: Any = None

    async def connect(self) -> None:
        """Connect to the first broker of the URL that answers.

        Raises ``ConfigError`` if one turns us away, and ``BrokerUnavailableError`` if none answers.
        """
        faults = []
        apart = {"bootstrap_servers", "retry_backoff_ms", "metadata_max_age_ms"}
        login = {name: value for name, value in self.options.items() if name not in apart}
        for server in self.options["bootstrap_servers"]:
            host, _, port = server.rpartition(":")
            try:
                async with asyncio.timeout(ANSWER):
                    connection = await create_conn(
                        host.strip("[]"), int(port), request_timeout_ms=ANSWER * 1000, **login
                    )
            except KeyError as fault:  # aiokafka, where a wrong password is answered in words of SCRAM
                error = explain(
                    kafka_errors.SaslAuthenticationFailed(repr(fault)), self.target, self.target.where
                )
                raise error from None
            except (OSError, TimeoutError, kafka_errors.KafkaError) as fault:
                error = explain(fault, self.target, self.target.where)
                if isinstance(error, ConfigError):
                    raise error from None
                faults.append(f"{server}: {_text(fault)}{self.target.tls_hint(fault, 'kafka')}")
            else:
                connection.close()
                break
        else:
            raise BrokerUnavailableError(f"{self.target.where}: no broker answers at {'; '.join(faults)}")
        self._client = AIOKafkaClient(request_timeout_ms=ANSWER * 1000, **self.options)
        creates_nothing(self._client)
        try:
            await self._client.bootstrap()
        except kafka_errors.KafkaError:
            hint = (
                "" if "sasl_mechanism" in self.options else "; if it wants a login, or TLS, say so in the URL"
            )
            raise BrokerUnavailableError(
                f"{self.target.where}: {server} hung up on the first question{hint}"
            ) from None

    async def topic(self, name: str) -> Topic:
        """Return what the cluster says of a topic; it is not created."""
        try:
            answer = await self._ask(_TopicsRequest(name))
        except NotImplementedError:  # the broker is older than Kafka 2.8
            answer = await self._ask(MetadataRequest([name], allow_auto_topic_creation=False))
        about = answer.to_object()["topics"][0]
        _raise_for(about["error_code"], name)
        partitions = about["partitions"]
        id_ = about.get("topic_id", UUID(int=0))
        return Topic(
            str(id_) if id_.int else "",
            {part["partition"]: part["leader"] for part in partitions},
            min((len(part["replicas"]) for part in partitions), default=0),
        )

    async def offsets(self, topic: str, leaders: Mapping[int, int], at: int) -> dict[int, int]:
        """Return the offset of each partition's first record that is not older than a time.

        ``at``: milliseconds since 1970, ``EARLIEST`` or ``LATEST``: the end of what is committed. -1: there
        is no such record.
        """
        nodes: dict[int, list[int]] = {}
        for partition, node in leaders.items():
            nodes.setdefault(node, []).append(partition)
        offsets = {}
        for node, partitions in nodes.items():
            if node < 0:
                raise kafka_errors.LeaderNotAvailableError(
                    f"partition {partitions[0]} of {topic} has no leader"
                )
            request = OffsetRequest(-1, _READ_COMMITTED, [(topic, [(part, at) for part in partitions])])
            answer = await self._ask(request, node)
            for part in answer.to_object()["topics"][0]["partitions"]:
                _raise_for(part["error_code"], topic)
                offsets[part["partition"]] = part["offset"]
        return offsets

    async def group_offsets(
        self, group: str, topic: str, partitions: Collection[int]
    ) -> dict[int, tuple[int, str]]:
        """Return the offset and the note that a group has committed for each partition, where it has."""
        request = OffsetFetchRequest(group, [(topic, list(partitions))])
        answer = (await self._ask(request, await self._coordinator(group))).to_object()
        _raise_for(answer.get("error_code", 0), group)
        offsets = {}
        for part in answer["topics"][0]["partitions"]:
            _raise_for(part["error_code"], group)
            if part["offset"] >= 0:
                offsets[part["partition"]] = (part["offset"], part["metadata"] or "")
        return offsets

    async def commit(self, group: str, topic: str, offsets: Mapping[int, int], note: str) -> bool:
        """Commit offsets of a group that has no members; return False if it has some."""
        parts = [(partition, offset, note) for partition, offset in offsets.items()]
        request = OffsetCommitRequest(group, -1, "", -1, [(topic, parts)])
        answer = await self._ask(request, await self._coordinator(group))
        members = (
            kafka_errors.UnknownMemberIdError, kafka_errors.IllegalGenerationError, kafka_errors.RebalanceInProgressError,
        )  # fmt: skip
        for part in answer.to_object()["topics"][0]["partitions"]:
            try:
                _raise_for(part["error_code"], group)
            except members:
                return False
        return True

    async def settings(self, topic: str) -> dict[str, str] | None:
        """Return a topic's settings by name; None: we lack the right to read them, or the broker has none."""
        try:
            answer = await self._ask(DescribeConfigsRequest([(_TOPIC_RESOURCE, topic, None)]))
            about = answer.to_object()["resources"][0]
            _raise_for(about["error_code"], topic)
        except (*_RIGHTS, kafka_errors.IncompatibleBrokerVersion):
            return None
        return {entry["config_names"]: entry["config_value"] for entry in about["config_entries"]} or None

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await end(self._client)

    async def _coordinator(self, group: str) -> int:
        """Return the node that coordinates a group; a cluster that never had one takes a moment."""
        tries = 8
        while True:
            tries -= 1
            try:
                node: int = await self._client.coordinator_lookup(CoordinationType.GROUP, group)
            except kafka_errors.GroupCoordinatorNotAvailableError:
                if not tries:
                    raise
                await asyncio.sleep(ANSWER / 10)
            else:
                return node

    async def _ask(self, request: Any, node: int | None = None) -> Any:
        if node is None:
            node = self._client.get_random_node()
        return await self._client.send(node, request)


def creates_nothing(client: Any) -> None:
    """Keep a client of aiokafka from creating topics.

    It asks for its topics again each minute and after each fault, and says each time that the broker may
    create those that are missing.
    """

    async def update(metadata: Any, topics: Collection[str]) -> bool:
        request = MetadataRequest(list(topics) or None, allow_auto_topic_creation=False)
        nodes = [broker.nodeId for broker in client.cluster.brokers()]
        for node in nodes:
            connection = await client._get_conn(node)  # noqa: SLF001 - as the method that this one replaces
            if connection is None:
                continue
            try:
                answer = await connection.send(request)
            except (kafka_errors.KafkaError, TimeoutError):
                continue
            if answer.brokers:
                metadata.update_metadata(answer)
                return True
        metadata.failed_update(None)
        return False

    client._metadata_update = update  # noqa: SLF001 - there is no public way


async def end(client: Any) -> None:
    """Close a client of aiokafka at once: whatever waits for an answer of its brokers fails, and it connects
    no more.
    """

    async def refuse(*_: Any, **__: Any) -> None:
        return None

    client._get_conn = refuse  # noqa: SLF001 - there is no public way
    for connection in list(client._conns.values()):  # noqa: SLF001
        writer = connection._writer  # noqa: SLF001
        connection.close()
        if writer is not None:
            writer.transport.abort()  # else it waits until a stopped broker has read what was written
    await client.close()


def requirements_of(
    place: str, topic: Topic, settings: Mapping[str, str] | None, *, read: bool
) -> Requirements:
    """Return what of a topic may lose messages. ``read``: whether it is read from, else it is sent to."""
    findings = Requirements()
    alter = f"kafka-configs.sh --alter --topic {place} --add-config"
    if topic.replicas == 1:
        what = "a partition is on one broker only (replication factor 1): if its disk is lost, so are the messages"
        findings.add("warning", what, "spread it with kafka-reassign-partitions.sh")
    if settings is None:
        what = "its retention, min.insync.replicas and unclean.leader.election.enable could not be checked: rights missing, or a broker that does not say"
        findings.add("warning", what, "allow the operation DescribeConfigs on the topic")
        return findings
    if topic.replicas > 1 and settings.get("min.insync.replicas") == "1":
        what = "min.insync.replicas is 1: a message that one broker has confirmed is lost with that broker"
        findings.add("warning", what, f"{alter} min.insync.replicas=2")
    if settings.get("unclean.leader.election.enable") == "true":
        what = "unclean.leader.election.enable: a broker that lags behind may lead, and what it lacks is lost"
        findings.add("warning", what, f"{alter} unclean.leader.election.enable=false")
    if read:
        _add_retention(findings, settings, alter)
    return findings


def _add_retention(findings: Requirements, settings: Mapping[str, str], alter: str) -> None:
    policy, bytes_ = settings.get("cleanup.policy", ""), settings.get("retention.bytes", "-1")
    if "compact" in policy:
        what = "cleanup.policy has compact: of several messages with one key, unread ones among them, only the last remains"
        findings.add("warning", what, f"{alter} cleanup.policy=delete")
    if "delete" in policy and bytes_.isdecimal():
        what = (
            f"retention.bytes is {bytes_}: a partition that is longer loses its oldest messages, read or not"
        )
        findings.add("warning", what, f"{alter} retention.bytes=-1")
    retention = settings.get("retention.ms", "-1")
    if "delete" in policy and retention.isdecimal():
        what = f"messages that nobody reads for {int(retention) / _DAY:.3g} days expire (retention.ms)"
        if int(retention) < _DAY:
            findings.add("warning", what, f"{alter} retention.ms={7 * _DAY}")
        else:
            findings.add("ok", what)


_REASONS: Final[tuple[tuple[Any, str], ...]] = (
    (
        _BARRED,
        "Kafka refuses the login ({text}): correct user, password and sasl= in the URL of {name!r}",
    ),
    (
        ssl.SSLCertVerificationError,
        "Kafka's certificate cannot be verified ({text}): name its authority's file with sslrootcert= in the URL",
    ),
    (_RIGHTS, "Kafka denies the right to it ({text}): `makegood broker permissions {name} --from PLACE --to PLACE` shows what to grant"),
    (
        kafka_errors.UnknownTopicOrPartitionError,
        "there is no such topic: create it, makegood creates none",
    ),
    (
        kafka_errors.InconsistentGroupProtocolError,
        "other programs read with this group ({text}): name another one behind the address, ?group=NAME",
    ),
    (
        kafka_errors.UnsupportedCodecError,
        "messages are compressed in a form that this installation lacks ({text}): pip install cramjam",
    ),
    (_UNFIT, "Kafka refuses it ({text})"),
)  # fmt: skip
"""What no retry changes."""


def explain(fault: BaseException, target: Target, where: str) -> MakegoodError:
    """Return makegood's error for a fault of aiokafka or of the connection.

    ``where``: what was read from, or sent to. A ``ConfigError`` is what no retry changes.
    """
    if isinstance(fault, MakegoodError):
        return fault
    text = scrub(_text(fault), target.url)
    for kinds, reason in _REASONS:
        if isinstance(fault, kinds):
            return ConfigError(f"{where}: {reason.format(text=text, name=target.name)}")
    if isinstance(fault, ssl.SSLError) and fault.reason == "WRONG_VERSION_NUMBER":
        return ConfigError(
            f"{where}: no TLS is spoken there ({text}): write kafka:// in the URL of {target.name!r}"
        )
    if isinstance(fault, TimeoutError):
        return BrokerUnavailableError(f"{where}: Kafka does not answer in time")
    return BrokerUnavailableError(f"{where}: {text}")


def _text(fault: BaseException) -> str:
    if isinstance(fault, TimeoutError):
        return "no answer"
    if isinstance(fault, kafka_errors.NodeNotReadyError):
        return "a broker of the cluster cannot be reached"
    detail = " ".join(str(part) for part in fault.args)
    name = getattr(fault, "message", "")  # of an error that the broker sent
    return ": ".join(part for part in (name, detail) if part) or type(fault).__name__


def _raise_for(code: int, what: str) -> None:
    """Raise aiokafka's error for a code of the protocol other than 0."""
    if code:
        raise kafka_errors.for_code(code)(what)
