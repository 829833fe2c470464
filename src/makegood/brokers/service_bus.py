"""Orders from Azure Service Bus, and notices to it.

A message that was received is locked for the time that its queue says, 5 minutes at most. While it waits for
its commit the lock is renewed (``message_leases``), for ten minutes: a store that is away for longer costs
each message that is held one delivery of the queue's ``MaxDeliveryCount``. Nothing is abandoned while the
source is paused, as that would count each time. When the source is closed, what it holds is abandoned: that
counts once, as the lock's expiry would, and others get it at once.

The client judges locks by *this machine's* clock: if that is ahead, it refuses to complete a message whose
lock holds at the service. So clocks are compared whenever messages come.

The service detaches a link after ten idle minutes, so one that was idle for nine is replaced. Each opening
of a link has a time limit of its own, and the client's own retries are switched off.

With ``sessions=on`` one session at a time is read, until it has no more messages: its order holds.
"""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Mapping, Sequence
from datetime import datetime
from importlib import import_module
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from azure.core.exceptions import AzureError
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus import exceptions as failed
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio import ServiceBusReceiver as Link
from azure.servicebus.aio import ServiceBusSender as SendLink

from makegood.base.clock import Clock, SystemClock
from makegood.base.secret_names import COVER
from makegood.brokers.address import BrokerAddress
from makegood.brokers.kinds import Target, check_each
from makegood.brokers.message_leases import LeasedSource, MessageLeases
from makegood.brokers.protocol import (
    MOST_BYTES,
    Answers,
    Backlog,
    Delivery,
    MissingPlaceError,
    OutgoingEvent,
    Reader,
    RefusedTargetError,
    Requirement,
    UnsentError,
)
from makegood.errors import BrokerUnavailableError, ConfigError, DeliveryError, MakegoodError

T = TypeVar("T")

_ANSWER: Final = 8.0
"""Seconds for an answer, and for opening a link."""
_RENEWED: Final = 600.0
"""Seconds for which a message is held."""
_IDLE: Final = 540.0
_SKEW: Final = 5.0
_QUIET: Final = 5.0
"""Seconds without a message after which the service is asked whether it is there."""
_SESSION: Final = 1.0
"""Seconds for which a session without messages is kept."""
_GLANCE: Final = 0.2
"""Seconds for what the service may say against a link that it has just opened."""
_AT_ONCE: Final = 100
_MOST_NAME: Final = 128
_MOST_REASON: Final = 1000
_GUESS: Final = 64 * 1024
"""Bytes that a message is taken to have before any came."""
_SECRET: Final = re.compile(r"(?:SharedAccessKey|SharedAccessSignature)=([^;]+)", re.IGNORECASE)
_ERRORS: Final[Mapping[str, type[failed.ServiceBusError]]] = {
    "amqp:not-found": failed.MessagingEntityNotFoundError,
    "amqp:unauthorized-access": failed.ServiceBusAuthorizationError,
}
_GONE: Final = (failed.MessageLockLostError, failed.SessionLockLostError, failed.MessageAlreadySettled)
_AWAY: Final = (AzureError, OSError, ValueError)
"""ValueError: of a link that was closed meanwhile."""
_REFUSED: Final = (failed.ServiceBusAuthenticationError, failed.ServiceBusAuthorizationError)


def open_source(target: Target, address: BrokerAddress, reader: Reader) -> "ServiceBusSource":
    """Return the source of a queue or a subscription; it connects when it is opened."""
    del reader  # there are no groups: each message is some process's
    return ServiceBusSource(Namespace(target), address)


def open_sender(target: Target) -> "ServiceBusSender":
    """Return what sends to the queues and topics of a namespace."""
    return ServiceBusSender(Namespace(target))


async def check(
    target: Target,
    sources: Sequence[BrokerAddress],
    places: Sequence[str],
    reader: Reader,  # noqa: ARG001 - there are no groups
) -> Answers:
    """Open a link to each place, and close it again."""
    namespace = Namespace(target)

    async def read(address: BrokerAddress) -> Sequence[Requirement]:
        source = ServiceBusSource(namespace, address)
        requirements = await source.examine()
        await source.leave_link()
        return requirements

    async def check_place(place: str) -> list[Requirement]:
        link = await namespace.call(send_link_to(namespace, place), _ANSWER)
        await link.close()
        return [Requirement("ok", "the queue or topic is there")]

    try:
        return await check_each(target, sources, read, places, check_place)
    finally:
        await namespace.close()


def permissions(target: Target, sources: Sequence[str], places: Sequence[str]) -> str:
    """Return commands of Azure's CLI: rules with a key for a connection string, else roles for PRINCIPAL."""
    name = Namespace(target).host.partition(".")[0]
    lines = ["GROUP=...  # the namespace's resource group"]
    if Namespace(target).connection_string:
        lines += [
            f'az servicebus queue authorization-rule create --resource-group "$GROUP" --namespace-name {name} '
            f"--queue-name {queue} --name makegood-{right.lower()} --rights {right}"
            for right, queues in (("Listen", sources), ("Send", places))
            for queue in queues
        ]
        return "\n".join(lines)
    lines += [
        "PRINCIPAL=...  # the object id of the managed identity or application that makegood runs as",
        f'NAMESPACE=$(az servicebus namespace show --resource-group "$GROUP" --name {name} --query id --output tsv)',
    ]
    lines += [
        f'az role assignment create --assignee "$PRINCIPAL" --role "Azure Service Bus Data {role}" --scope "$NAMESPACE/queues/{queue}"'
        for role, queues in (("Receiver", sources), ("Sender", places))
        for queue in queues
    ]
    return "\n".join(
        [
            *lines,
            "# for a topic write /topics/NAME, or /topics/NAME/subscriptions/NAME, in place of /queues/NAME",
        ]
    )


class Namespace:
    """A client of a namespace; faults in makegood's words."""

    def __init__(self, target: Target, clock: Clock | None = None) -> None:
        self.target = target
        self.where = target.where
        self.clock = clock or SystemClock()
        self.connection_string = "" if target.url.startswith("servicebus://") else target.url
        if self.connection_string:
            self.host = re.split("[;/]", target.url.partition("://")[2], maxsplit=1)[0]
        else:
            parts = urlsplit(target.url)
            self.host = parts.hostname or ""
            if not self.host or parts.username or parts.path.strip("/") or parts.query:
                raise ConfigError(
                    f"{self.where}: write servicebus://NAMESPACE.servicebus.windows.net, or a connection string: Endpoint=sb://…"
                )
        self._secrets = _SECRET.findall(target.url)
        self._client: ServiceBusClient | None = None
        self._credential: Any = None
        self._handlers: list[tuple[object, Any]] = []
        """Links that are being opened, each with the client's own object."""
        self._writers: list[tuple[object, asyncio.StreamWriter]] = []
        """Links that were opened, each with its connection: the client leaves a broken one open."""

    def client(self) -> ServiceBusClient:
        """Return the client. Raises ``ConfigError`` for a connection string that cannot be read."""
        if self._client is None:
            limits: dict[str, Any] = {"retry_total": 0, "try_timeout": _ANSWER, "logging_enable": False}
            try:
                if self.connection_string:
                    self._client = ServiceBusClient.from_connection_string(self.connection_string, **limits)
                else:
                    self._credential = import_module("azure.identity.aio").DefaultAzureCredential()
                    self._client = ServiceBusClient(self.host, self._credential, **limits)
            except ValueError as bad:
                raise ConfigError(f"{self.where}: {self.clean(bad)}") from None
        return self._client

    async def attach(self, link: Any) -> None:
        """Open a link, and raise what the service says against it.

        The service attaches every link, and then detaches the wrong ones with a reason. azure-servicebus 7.15
        takes a link to be open in between, and loses the reason. It also forgets a connection whose opening
        was not answered in time, and leaves it open.
        """
        create = link._create_handler  # noqa: SLF001 - there is no public way to any of this

        def create_and_keep(auth: Any) -> None:
            create(auth)
            self._handlers.append((link, link._handler))  # noqa: SLF001

        link._create_handler = create_and_keep  # noqa: SLF001
        await link.__aenter__()
        handler = link._handler  # noqa: SLF001
        self._writers = [each for each in self._writers if not each[1].transport.is_closing()]
        self._handlers = [each for each in self._handlers if each[0] is not link]
        if (writer := _writer_of(handler)) is not None:
            self._writers.append((link, writer))
        try:
            # Not do_work_async: that gives a receiver's link a credit, and so takes a message.
            await handler._connection.listen(wait=_GLANCE)  # noqa: SLF001
            await handler.client_ready_async()
        except Exception as fault:
            condition = getattr(fault, "condition", None)
            if condition is None:
                raise
            name = _text(getattr(condition, "value", condition))
            text = f"{_text(getattr(fault, 'description', None) or '')} ({name})"
            raise _ERRORS.get(name, failed.ServiceBusError)(message=text) from None

    async def call(self, work: Awaitable[T], timeout: float) -> T:
        """Await a call of the client. Raises ``BrokerUnavailableError``, ``ConfigError``."""
        try:
            async with asyncio.timeout(timeout):
                return await work
        except TimeoutError:
            raise BrokerUnavailableError(
                f"{self.where}: Service Bus has not answered within {timeout:g} s"
            ) from None
        except _GONE:
            raise
        except _AWAY as fault:
            raise self.meaning(fault) from None

    def meaning(self, fault: Exception) -> MakegoodError:
        """Separate faults that no retry mends from those that may pass."""
        text = self.clean(fault)
        if isinstance(fault, failed.MessagingEntityNotFoundError):
            return ConfigError(
                f"{self.where}: there is no such queue or subscription ({text}): make it, or correct its name"
            )
        if isinstance(fault, _REFUSED):
            return ConfigError(
                f"{self.where}: Service Bus refuses this key or identity ({text}): `makegood broker permissions {self.target.name} --from PLACE --to PLACE` prints "
                "the rights that it needs"
            )
        if "sessions" in text and "amqp:not-allowed" in text:
            return ConfigError(
                f"{self.where}: {text}: a queue that requires sessions is read with ?sessions=on, another one without"
            )
        return BrokerUnavailableError(f"{self.where}: {text}")

    def clean(self, fault: object) -> str:
        """Return what a fault says, without the keys of the connection string."""
        text = str(fault) or type(fault).__name__
        for secret in self._secrets:
            text = text.replace(secret, COVER)
        return text.partition("\n")[0]

    async def close(self) -> None:
        """Close the connections, within a moment."""
        client, self._client = self._client, None
        credential, self._credential = self._credential, None
        try:
            async with asyncio.timeout(3):
                if client is not None:
                    await client.close()
                if credential is not None:
                    await credential.close()
        except (TimeoutError, *_AWAY):
            pass
        if self._handlers or self._writers:
            self.sever(None)
            await asyncio.sleep(0)  # the loop closes the sockets in its next turn

    def sever(self, link: object | None) -> None:
        """Break the connections of a link, or of all: nothing is left to be said."""
        opening = [
            (owner, writer) for owner, each in self._handlers if (writer := _writer_of(each)) is not None
        ]
        for owner, writer in (*self._writers, *opening):
            if link is None or owner is link:
                writer.transport.abort()
        self._writers = [each for each in self._writers if link is not None and each[0] is not link]
        self._handlers = [each for each in self._handlers if link is not None and each[0] is not link]


class ServiceBusSource(LeasedSource):
    """A queue or a subscription that orders are taken from. A link that was idle for long is replaced."""

    keeps_refusals = True

    def __init__(self, namespace: Namespace, address: BrokerAddress) -> None:
        super().__init__(address, "Service Bus", 60, _ANSWER + 1)
        self._namespace = namespace
        self._address = address
        sessions = address.parameters.get("sessions", "off")
        if sessions not in ("on", "off"):
            raise ConfigError(f"{address}: sessions={sessions!r:.20}: write on or off")
        self._has_sessions = sessions == "on"
        self._link: Link | None = None
        self._messages: dict[str, tuple[ServiceBusReceivedMessage, float]] = {}
        """What is held, with when it came, on the loop's clock."""
        self._skew: Requirement | None = None
        self._heard_at = 0.0
        self._used_at = 0.0
        self._mean = _GUESS
        """Bytes of a message, by the latest ones."""

    async def examine(self) -> Sequence[Requirement]:
        """Open a link; it is given no credit, so nothing is delivered."""
        await self._open_link(_SESSION)
        self._heard_at = self._used_at = asyncio.get_running_loop().time()
        return self._requirements()

    def _requirements(self) -> list[Requirement]:
        what = (
            "a crash or a deployment counts as a delivery of what was held, and the queue moves a message to its dead letters "
            "after MaxDeliveryCount of them, 10 by default"
        )
        return [Requirement("ok", what), *([] if self._skew is None else [self._skew])]

    async def _open_link(self, wait: float) -> None:
        """Open a link. Of a queue with sessions none is open when no session has messages."""
        client = self._namespace.client()
        names: dict[str, Any] = {"prefetch_count": 0}
        if self._has_sessions:
            names |= {"session_id": NEXT_AVAILABLE_SESSION, "max_wait_time": wait}
        place, subscription = self._address.place, self._address.parameters.get("subscription")
        link = (
            client.get_queue_receiver(place, **names)
            if subscription is None
            else client.get_subscription_receiver(place, subscription, **names)
        )
        try:
            async with asyncio.timeout(wait + 1 if self._has_sessions else _ANSWER):
                await self._namespace.attach(link)
        except (TimeoutError, failed.OperationTimeoutError) as fault:
            if self._has_sessions:
                return
            raise BrokerUnavailableError(
                f"{self._namespace.where}: Service Bus has not opened a link within {_ANSWER:g} s"
            ) from fault
        except _AWAY as fault:
            error = self._namespace.meaning(fault)
            raise type(error)(str(error).replace(self._namespace.where, self.where, 1)) from None
        self._link = link

    async def _receive(self, leases: MessageLeases, limit: int, wait: float) -> None:
        now = asyncio.get_running_loop().time
        deadline = now() + wait
        if self._link is not None and now() - self._used_at > _IDLE:
            await self.leave_link()
        if self._link is None:
            await self._open_link(max(wait, 0.5))
        link = self._link
        if link is None:
            return
        since = now()
        count = max(1, min(limit, MOST_BYTES // self._mean))
        patience = max(0.2, deadline - since)
        if self._has_sessions:
            patience = min(patience, _SESSION)
        try:
            messages = await self._namespace.call(link.receive_messages(count, patience), patience + _ANSWER)
        except _GONE:  # the session's lock
            messages = []
        if messages:
            self._heard_at = now()
        elif now() - self._heard_at > _QUIET:  # a service that was stopped is as quiet as an empty queue
            await self._namespace.call(link.peek_messages(1, timeout=_ANSWER), _ANSWER)
            self._heard_at = now()
        self._used_at = now()
        if not messages and self._has_sessions and not self._messages:
            await self.leave_link()  # the next take begins with another session
        since = max(since, now() - 1)  # the client returns a fifth of a second after the first message
        for message in messages:
            name = str(message.sequence_number)
            if not self._messages:
                leases.seconds = self._lock_seconds(message, link)
            self._messages[name] = (message, since)
            if leases.add(name, "", since):
                self._ready.append(_delivery(name, message))
        if messages:
            self._compare_clocks(messages[-1])
            self._mean = max(
                1,
                sum(len(delivery.body) for delivery in self._ready) // len(self._ready) if self._ready else 1,
            )

    async def leave_link(self) -> None:
        """Close the link."""
        link, self._link = self._link, None
        if link is not None:
            await self._namespace.call(link.close(), _ANSWER)

    def _lock_seconds(self, message: ServiceBusReceivedMessage, link: Link) -> float:
        until = link.session.locked_until_utc if self._has_sessions else message.locked_until_utc
        if until is None:
            return 60.0
        return min(300.0, max(3.0, until.timestamp() - self._namespace.clock.wall()))

    def _compare_clocks(self, message: ServiceBusReceivedMessage) -> None:
        """Compare this machine's clock with the service's, as far as a message shows it."""
        wall = self._namespace.clock.wall()
        until = None if self._has_sessions else message.locked_until_utc
        sent_at = message.enqueued_time_utc
        if sent_at is not None and sent_at.timestamp() - wall >= _SKEW:
            ahead = sent_at.timestamp() - wall
            what = f"this machine's clock is {ahead:.0f} s or more behind that of Service Bus"
        elif until is not None and until.timestamp() - wall < _SKEW:
            what = (
                f"by this machine's clock a lock that was just taken ends in {until.timestamp() - wall:.0f} s: the clock is ahead of that of "
                "Service Bus, and the client refuses to complete what it takes to be expired"
            )
        else:
            self._skew = None
            return
        self._skew = Requirement("warning", what, "synchronise the clock")

    async def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Complete the messages; those whose lock is lost come again."""
        leases = await self._usable()
        names = await leases.remove(delivery.receipt for delivery in deliveries)
        link = self._link
        messages = [self._messages.pop(name)[0] for name in names if name in self._messages]
        async with self._close_on_fault():
            for at in range(0, len(messages), _AT_ONCE):
                await asyncio.gather(
                    *(
                        self._settle(link.complete_message(message))
                        for message in messages[at : at + _AT_ONCE]
                        if link
                    )
                )

    async def refuse(self, delivery: Delivery, why: str) -> None:
        """Move a message to the queue's dead letters, with the reason."""
        leases = await self._usable()
        await leases.remove([delivery.receipt])
        message, _ = self._messages.pop(delivery.receipt, (None, 0.0))
        if message is None or self._link is None:
            return
        work = self._link.dead_letter_message(
            message, reason="makegood", error_description=why[:_MOST_REASON]
        )
        async with self._close_on_fault():
            await self._settle(work)

    async def _settle(self, work: Awaitable[None]) -> None:
        with contextlib.suppress(*_GONE):  # it comes again
            await self._namespace.call(work, _ANSWER)

    async def backlog(self) -> Backlog:
        """Return that it is unknown: to count messages takes the right to manage the queue."""
        await self._usable()
        return Backlog(None)

    async def _release(self, receipts: Mapping[str, str]) -> None:
        link = self._link
        if link is not None:
            messages = [self._messages[name][0] for name in receipts if name in self._messages]
            await asyncio.gather(*(self._settle(link.abandon_message(message)) for message in messages))

    async def _disconnect(self) -> None:
        self._link = None
        self._messages.clear()
        await self._namespace.close()

    async def _extend(self, names: Mapping[str, str]) -> Mapping[str, str | None]:
        link = self._link
        if link is None:
            return dict.fromkeys(names)
        at = asyncio.get_running_loop().time()
        fresh = [name for name in names if name in self._messages and at - self._messages[name][1] < _RENEWED]
        if self._has_sessions:
            works = [link.session.renew_lock(timeout=_ANSWER)] if fresh else []
            renewed = await asyncio.gather(*map(self._renew, works))
            kept = fresh if all(renewed) else []
        else:
            renewals = (
                self._renew(link.renew_message_lock(self._messages[name][0], timeout=_ANSWER))
                for name in fresh
            )
            kept = [name for name, ok in zip(fresh, await asyncio.gather(*renewals), strict=True) if ok]
        for name in set(names) - set(kept):
            self._messages.pop(name, None)
        return {name: "" if name in kept else None for name in names}

    async def _renew(self, work: Awaitable[datetime]) -> bool:
        try:
            await self._namespace.call(work, _ANSWER + 1)
        except _GONE:
            return False
        return True


async def send_link_to(namespace: Namespace, place: str) -> SendLink:
    """Open a link to a place that is sent to."""
    link = namespace.client().get_queue_sender(place)
    try:
        await namespace.attach(link)
    except BaseException:
        namespace.sever(link)
        raise
    return link


class ServiceBusSender:
    """Sends to the queues and topics of a namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self.where = namespace.where
        self._namespace = namespace
        self._links: dict[str, SendLink] = {}
        self._turns: dict[str, asyncio.Lock] = {}

    async def send(self, place: str, event: OutgoingEvent, timeout: float) -> None:
        """Send under the event's id, by which duplicate detection knows a repetition; session: the task."""
        message = ServiceBusMessage(
            event.body,
            message_id=event.id[:_MOST_NAME],
            session_id=event.task[:_MOST_NAME],
            content_type=event.content_type,
            correlation_id=event.correlation(_MOST_NAME),
        )
        error: type[DeliveryError] = UnsentError
        reason: MakegoodError | None = None
        try:
            async with asyncio.timeout(timeout), self._turns.setdefault(place, asyncio.Lock()):
                try:
                    if place not in self._links:
                        self._links[place] = await send_link_to(self._namespace, place)
                    error = DeliveryError
                    await self._links[place].send_messages(message)
                except BaseException:
                    self._namespace.sever(self._links.pop(place, None) or place)
                    raise
        except TimeoutError:
            text = f"Service Bus has not confirmed within {timeout:g} s"
        except failed.MessagingEntityNotFoundError as fault:
            error, text = MissingPlaceError, self._namespace.clean(fault)
        except failed.MessageSizeExceededError as fault:
            error, text = RefusedTargetError, self._namespace.clean(fault)
        except (ConfigError, *_AWAY) as fault:
            text = self._namespace.clean(fault)
            reason = fault if isinstance(fault, ConfigError) else self._namespace.meaning(fault)
        else:
            return
        raise error(f"{self.where}/{place}: {text}") from reason

    async def close(self) -> None:
        """Close the connections."""
        self._links.clear()
        await self._namespace.close()


def _delivery(name: str, message: ServiceBusReceivedMessage) -> Delivery:
    headers = {
        _text(key): _text(value)
        for key, value in (message.application_properties or {}).items()
        if isinstance(value, str | bytes)
    }
    sent_at = message.enqueued_time_utc
    seconds = None if sent_at is None else sent_at.timestamp()
    body = message.body
    fault = ""
    if isinstance(body, str):
        content = body.encode()
    else:
        parts = [body] if isinstance(body, bytes) else list(body or ())
        content = b"".join(part for part in parts if isinstance(part, bytes))
        if not all(isinstance(part, bytes) for part in parts):
            fault = f"its body is {message.body_type}, neither bytes nor a text"
    return Delivery(
        receipt=name,
        body=content,
        # A queue that is created again counts from 1 again: the time belongs to the name.
        id=message.message_id or f"{message.sequence_number} of {seconds}",
        headers=headers,
        kind=headers.get("ce_type") or headers.get("cloudEvents:type") or message.subject or "",
        correlation_id=message.correlation_id,
        reply_to=message.reply_to,
        sent_at=seconds,
        count=int(message.delivery_count or 0) + 1,
        fault=fault,
    )


def _writer_of(handler: Any) -> asyncio.StreamWriter | None:
    """Return what a client writes its connection with; None once that was closed."""
    connection = getattr(handler, "_connection", None)
    writer: asyncio.StreamWriter | None = getattr(getattr(connection, "_transport", None), "writer", None)
    return writer


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")
