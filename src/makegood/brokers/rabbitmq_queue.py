"""How a queue of RabbitMQ is set up, and what of it loses messages.

AMQP itself shows only whether a queue exists, and how much is ready in it. The rest is known by the
management API, if the broker's URL names one and its user may see it.
"""

import asyncio
import http.client
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal
from urllib.parse import quote, urlsplit

import msgspec

from makegood.brokers.protocol import Requirement, Requirements
from makegood.brokers.rabbitmq_link import AmqpPlace

_CALL: Final = 2.0
_OK: Final = 200
_MISSING: Final = 404
_UNSEEN: Final = (
    "write ?management=https://host:15671 behind the URL of the broker, and give its user the tag management"
)
_DEFAULT_LIMIT: Final = 20
"""Deliveries of a message in a quorum queue, from RabbitMQ 4.0 on."""
_LIMITED: Final = (4, 0)
_ROUTED_BY_KEY: Final = ("direct", "topic", "fanout")
"""Types of exchanges of which bindings and keys say where a message goes."""
_VANISHES: Final = "RabbitMQ drops what expires, overflows the queue or is rejected by a reader"
_OR_NONE: Final = "or take the dead-letter exchange from the queue"
_NAMED: Final = 3


class DeadLetters(msgspec.Struct, frozen=True):
    """Where RabbitMQ puts the dead letters of a queue."""

    verdict: Literal["kept", "partly", "lost", "unknown"]
    """Whether a queue receives all of them, some, or none."""
    what: str = ""
    """What is wrong, "" if all are kept."""
    remedy: str = ""


class QueueSetup(msgspec.Struct, frozen=True):
    """What the management API says of a queue."""

    queue: Mapping[str, Any] | None
    """None: it could not be asked."""
    why: str = ""
    """Why not."""
    remedy: str = ""
    """What lets it be asked."""
    dead_letters: DeadLetters | None = None
    """None: it has no dead-letter exchange."""

    def value(self, name: str) -> Any:
        """Return a setting, by an argument of the queue or else a policy; None if there is neither."""
        assert self.queue is not None
        policy = self.queue.get("effective_policy_definition") or {}
        argument = (self.queue.get("arguments") or {}).get(f"x-{name}")
        # A list is how the API spells an empty object.
        return policy.get(name) if argument is None and isinstance(policy, dict) else argument

    @property
    def keeps_refusals(self) -> bool:
        """Whether a queue is known to receive all that is refused."""
        return self.dead_letters is not None and self.dead_letters.verdict == "kept"


class Topology(msgspec.Struct, frozen=True):
    """The exchanges of a virtual host by name, and all bindings."""

    exchanges: Mapping[str, Mapping[str, Any]]
    bindings: Sequence[Mapping[str, Any]]

    def dead_letters(self, queue: str, exchange: str, key: str | None) -> DeadLetters:
        """Return what becomes of the dead letters of a queue.

        ``key``: their routing key; None: each has the one that its message was published with.
        """
        if exchange not in self.exchanges:
            what = f"its dead-letter exchange {exchange!r} does not exist, so {_VANISHES}"
            return DeadLetters("lost", what, f"declare it and bind a queue to it, {_OR_NONE}")
        gaps, doubts = list[str](), list[str]()
        keys = self._keys(queue) if key is None else [key]
        for each in keys:
            queues, is_certain = self._reach(exchange, each, frozenset())
            if queues == {queue}:
                what = f"the dead letters of this queue return to it, as its dead-letter exchange {exchange or 'amq.default'!r} leads nowhere else"
                return DeadLetters("lost", what, f"bind another queue to the exchange, {_OR_NONE}")
            if not queues:
                (gaps if is_certain else doubts).append(each)
        if gaps:
            names = ", ".join(map(repr, gaps[:_NAMED])) + " …" * (len(gaps) > _NAMED)
            what = f"its dead-letter exchange {exchange or 'amq.default'!r} leads to no queue for the routing key {names}, so {_VANISHES}"
            verdict: Literal["partly", "lost"] = "lost" if len(gaps) == len(keys) else "partly"
            return DeadLetters(verdict, what, f"bind a queue to the exchange with that key, {_OR_NONE}")
        if doubts:
            what = f"whether its dead-letter exchange {exchange!r} leads to a queue depends on each message"
            return DeadLetters(
                "unknown", what, "bind a queue to it that takes all, or see that no message is left out"
            )
        return DeadLetters("kept")

    def _keys(self, queue: str) -> list[str]:
        """Return the routing keys, some of them patterns, by which messages come to a queue."""
        keys = dict[str, None]()
        for each in self.bindings:
            if each["destination_type"] == "queue" and each["destination"] == queue:
                has_keys = self._type(each["source"]) in ("direct", "topic")
                keys[each["routing_key"] if has_keys else "#"] = None
        return list(keys)

    def _type(self, exchange: str) -> str:
        return str(self.exchanges.get(exchange, {}).get("type", "direct"))

    def _reach(self, exchange: str, key: str, trail: frozenset[str]) -> tuple[set[str], bool]:
        """Return the queues that messages of a key reach from an exchange, and whether that is certain."""
        if exchange in trail:
            return set(), True
        trail |= {exchange}
        kind = self._type(exchange)
        queues, is_certain = set[str](), True
        for each in self.bindings:
            if each["source"] != exchange or not _fits(kind, each["routing_key"], key):
                continue
            if kind not in _ROUTED_BY_KEY:
                is_certain = False
            elif each["destination_type"] == "queue":
                queues.add(each["destination"])
            else:
                further, certain = self._reach(each["destination"], key, trail)
                queues |= further
                is_certain = is_certain and certain
        if queues:
            return queues, True
        about = self.exchanges.get(exchange, {})
        if other := (about.get("arguments") or {}).get("alternate-exchange"):
            further, certain = self._reach(other, key, trail)
            return further, bool(further) or (is_certain and certain)
        # A policy may name an alternate exchange, and only makers of policies may read it.
        return queues, is_certain and not about.get("policy") and not _is_pattern(key)


def _is_pattern(key: str) -> bool:
    return not {"*", "#"}.isdisjoint(key.split("."))


def _fits(kind: str, pattern: str, key: str) -> bool:
    """Return whether a binding of an exchange of this type takes a key; where headers decide, it may.

    >>> _fits("topic", "order.*", "order.new"), _fits("topic", "order.*", "order.new.eu")
    (True, False)
    >>> _fits("topic", "#.eu", "eu"), _fits("direct", "#", "order.new"), _fits("fanout", "", "order.new")
    (True, False, True)
    """
    if kind == "direct":
        return pattern == key
    return kind != "topic" or _takes(pattern.split("."), key.split("."))


def _takes(pattern: Sequence[str], words: Sequence[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(_takes(pattern[1:], words[at:]) for at in range(len(words) + 1))
    fits = bool(words) and (pattern[0] == words[0] or (pattern[0] == "*" and words[0] != "#"))
    return fits and _takes(pattern[1:], words[1:])


async def setup_of(place: AmqpPlace, queue: str) -> QueueSetup:
    """Ask the management API; its absence is not a fault."""
    if not place.management:
        return QueueSetup(None, "the URL of the broker names no management API", _UNSEEN)
    return await asyncio.to_thread(_ask, place, queue)


def _ask(place: AmqpPlace, name: str) -> QueueSetup:
    vhost = quote(place.vhost, safe="")
    try:
        setup = QueueSetup(_get(place, f"queues/{vhost}/{quote(name, safe='')}"))
        exchange, key = setup.value("dead-letter-exchange"), setup.value("dead-letter-routing-key")
        if exchange is None:
            return setup
        exchanges = _get(place, f"exchanges/{vhost}?columns=name,type,arguments,policy") or ()
        bindings = _get(place, f"bindings/{vhost}?columns=source,destination,destination_type,routing_key")
        topology = Topology({each["name"]: each for each in exchanges}, bindings or ())
        return msgspec.structs.replace(setup, dead_letters=topology.dead_letters(name, exchange, key))
    except ValueError as fault:
        remedy = (
            f"rabbitmqctl set_user_tags {place.user} management, beside the tags that it has"
            if "answers: 401 " in str(fault)
            else "see that the management API runs and can be reached from here, or correct management= in the URL of the broker"
        )
        return QueueSetup(None, str(fault), remedy)


def _get(place: AmqpPlace, path: str) -> Any:
    """Return what is at a path of the API; None if there is nothing. The first host that answers counts.

    Raises ``ValueError`` with what each of them said.
    """
    faults = list[str]()
    for url in place.management:
        try:
            return _get_from(place, url, path)
        except (OSError, http.client.HTTPException, ValueError) as fault:
            verb = "does not answer" if isinstance(fault, OSError) else "answers"
            faults.append(f"the management API at {url} {verb}: {str(fault) or type(fault).__name__}")
    raise ValueError("; ".join(faults))


def _get_from(place: AmqpPlace, url: str, path: str) -> Any:
    api = urlsplit(url)
    port = api.port or (443 if api.scheme == "https" else 80)
    connection = (
        http.client.HTTPSConnection(api.hostname or "", port, timeout=_CALL, context=place.context)
        if api.scheme == "https"
        else http.client.HTTPConnection(api.hostname or "", port, timeout=_CALL)
    )
    login = b64encode(f"{place.user}:{place.password}".encode()).decode()
    try:
        connection.request("GET", f"{api.path}/api/{path}", headers={"authorization": f"Basic {login}"})
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status == _MISSING:
        return None
    if answer.status != _OK:
        raise ValueError(f"{answer.status} {answer.reason}")
    return json.loads(body)


def requirements(setup: QueueSetup, version: tuple[int, ...], keeper: str) -> list[Requirement]:
    """Return what was checked of a queue that is read from.

    ``keeper``: who keeps refused messages, as its address says: "broker", "store", or "" for whoever can.
    """
    if setup.queue is None:
        what = f"whether this queue may lose messages, and where its dead letters go, was not checked, as AMQP shows neither: {setup.why}"
        return [Requirement("warning", what, setup.remedy)]
    result = Requirements()
    dies = "its messages are lost"
    for flag, event in (("auto_delete", "when its last reader leaves"), ("exclusive", "with its connection")):
        if setup.queue.get(flag):
            result.add("error", f"the queue is deleted {event} ({flag}), and {dies}", "declare it without")
    if setup.queue.get("type") == "stream" or setup.value("queue-type") == "stream":
        what = "the queue is a stream, of which a reader gets what arrives while it reads, and nothing before"
        result.add("error", what, "declare a quorum queue or a classic one")
    if not setup.queue.get("durable", True):
        what = f"the queue is not durable: {dies} when RabbitMQ restarts"
        result.add("warning", what, "declare it durable")
    for name in ("message-ttl", "expires"):
        if setup.value(name) is not None:
            what = f"{name} of {setup.value(name)} ms deletes what nobody has read by then"
            result.add("warning", what, "remove it")
    is_limited = any(setup.value(name) is not None for name in ("max-length", "max-length-bytes"))
    if is_limited and setup.value("overflow") in (None, "drop-head"):
        result.add("warning", "a full queue drops its oldest messages", "set overflow to reject-publish")
    letters, limit = setup.dead_letters, _lives(setup, version)
    has_none = letters is None or letters.verdict == "lost"
    if limit is not None and has_none:
        what = f"this quorum queue drops a message once its reader has left {limit} times with it unacknowledged, as in crashes and deployments"
        why = "it has no dead-letter exchange" if letters is None else letters.what
        policy = f"rabbitmqctl set_policy makegood '^{setup.queue.get('name')}$' '{{\"delivery-limit\": -1}}' --apply-to quorum_queues"
        remedy = "give it a dead-letter exchange" if letters is None else letters.remedy
        result.add("error", f"{what}, and {why}", f"{remedy}, or set a policy: {policy}")
    elif letters is not None and letters.what:
        result.add("error" if has_none and keeper == "broker" else "warning", letters.what, letters.remedy)
    if keeper == "broker" and letters is None:
        what = "its address says dead-letters=broker, but the queue has no dead-letter exchange, so RabbitMQ would drop messages that makegood refuses"
        remedy = "give it one and bind a queue to that, or leave the parameter out: then the store keeps them"
        result.add("error", what, remedy)
    return result or [Requirement("ok", "the queue keeps its messages")]


def _lives(setup: QueueSetup, version: tuple[int, ...]) -> int | None:
    """Return how often the reader of a quorum queue may leave with a message unsettled; None: any number."""
    assert setup.queue is not None
    if setup.queue.get("type") != "quorum":
        return None
    limit = setup.value("delivery-limit")
    if limit is None and version >= _LIMITED:
        limit = _DEFAULT_LIMIT
    return None if limit is None or limit < 0 else int(limit)
