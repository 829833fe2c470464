"""How a queue of RabbitMQ is set up, and what of it loses messages.

AMQP itself shows only whether a queue exists, and how much is ready in it. The rest is known by the
management API, if the broker's URL names one and its user may see it.
"""

import asyncio
import http.client
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from makegood.brokers.protocol import Requirement
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


class QueueSetup(msgspec.Struct, frozen=True):
    """What the management API says of a queue."""

    queue: Mapping[str, Any] | None
    """None: it could not be asked."""
    why: str = ""
    """Why not."""
    routes: int = 0
    """Queues that its dead letters reach."""

    def value(self, name: str) -> Any:
        """Return a setting, by an argument of the queue or else a policy; None if there is neither."""
        assert self.queue is not None
        policy = self.queue.get("effective_policy_definition") or {}
        argument = (self.queue.get("arguments") or {}).get(f"x-{name}")
        # A list is how the API spells an empty object.
        return policy.get(name) if argument is None and isinstance(policy, dict) else argument

    @property
    def keeps_refusals(self) -> bool:
        """Whether a queue is known to receive what is refused."""
        return self.queue is not None and self.routes > 0


async def setup_of(place: AmqpPlace, queue: str) -> QueueSetup:
    """Ask the management API; its absence is not a fault."""
    if not place.management:
        return QueueSetup(None, "the URL of the broker names no management API")
    return await asyncio.to_thread(_ask, place, queue)


def _ask(place: AmqpPlace, name: str) -> QueueSetup:
    vhost = quote(place.vhost, safe="")
    try:
        setup = QueueSetup(_get(place, f"queues/{vhost}/{quote(name, safe='')}"))
        exchange, key = setup.value("dead-letter-exchange"), setup.value("dead-letter-routing-key")
        if exchange is None:
            return setup
        if exchange:
            routes = len(_get(place, f"exchanges/{vhost}/{quote(exchange, safe='')}/bindings/source") or ())
        else:  # the default exchange leads to the queue of that name
            routes = int(_get(place, f"queues/{vhost}/{quote(str(key), safe='')}") is not None)
        return msgspec.structs.replace(setup, routes=routes)
    except (OSError, http.client.HTTPException, ValueError) as fault:
        return QueueSetup(None, f"its management API answers: {fault}")


def _get(place: AmqpPlace, path: str) -> Any:
    """Return what is at a path of the API; None if there is nothing."""
    api = urlsplit(place.management)
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


def requirements(where: str, setup: QueueSetup, version: tuple[int, ...]) -> Sequence[Requirement]:
    """Return what was checked of a queue that is read."""
    if setup.queue is None:
        return [
            Requirement(
                "warning",
                f"{where}: whether its queue may lose messages was not checked: {setup.why}",
                _UNSEEN,
            )
        ]
    result = list[Requirement]()
    dies = "its messages are lost"
    for flag, event in (("auto_delete", "when its last reader leaves"), ("exclusive", "with its connection")):
        if setup.queue.get(flag):
            result.append(
                Requirement(
                    "error",
                    f"{where}: the queue is deleted {event} ({flag}), and {dies}",
                    "declare it without",
                )
            )
    if setup.queue.get("type") == "stream" or setup.value("queue-type") == "stream":
        result.append(
            Requirement(
                "error",
                f"{where}: the queue is a stream, of which a reader gets what arrives while it reads, and nothing before",
                "declare a quorum queue or a classic one",
            )
        )
    if not setup.queue.get("durable", True):
        result.append(
            Requirement(
                "warning",
                f"{where}: the queue is not durable: {dies} when RabbitMQ restarts",
                "declare it durable",
            )
        )
    for name in ("message-ttl", "expires"):
        if setup.value(name) is not None:
            result.append(
                Requirement(
                    "warning",
                    f"{where}: {name} of {setup.value(name)} ms deletes what nobody has read by then",
                    "remove it",
                )
            )
    if any(setup.value(name) is not None for name in ("max-length", "max-length-bytes")) and setup.value(
        "overflow"
    ) in (None, "drop-head"):
        result.append(
            Requirement(
                "warning",
                f"{where}: a full queue drops its oldest messages",
                "set overflow to reject-publish",
            )
        )
    result += _lives(where, setup, version)
    return result or [Requirement("ok", f"{where}: the queue keeps its messages")]


def _lives(where: str, setup: QueueSetup, version: tuple[int, ...]) -> list[Requirement]:
    """A quorum queue drops a message whose reader left too often without settling it."""
    assert setup.queue is not None
    if setup.queue.get("type") != "quorum" or setup.value("dead-letter-exchange") is not None:
        return []
    limit = setup.value("delivery-limit")
    if limit is None and version >= _LIMITED:
        limit = _DEFAULT_LIMIT
    if limit is None or limit < 0:
        return []
    return [
        Requirement(
            "error",
            f"{where}: this quorum queue drops a message once its reader has left {limit} times with it unacknowledged, as in crashes and "
            f"deployments, and it has no dead-letter exchange",
            f"give it a dead-letter exchange, or set a policy: rabbitmqctl set_policy makegood '^{setup.queue.get('name')}$' "
            f"'{{\"delivery-limit\": -1}}' --apply-to quorum_queues",
        )
    ]
