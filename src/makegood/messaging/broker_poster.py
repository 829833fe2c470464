"""Sending notices to users' brokers: each broker has one sender, opened when it is first needed.

The notifier sees to the order of a task's notices, to repetitions and to limits, as it does for webhooks; a
broker counts as a host.
"""

import asyncio
from collections.abc import Mapping
from typing import Final, Literal

from msgspec.structs import replace

from makegood.brokers import BrokerAddress, OutgoingEvent, RefusedTargetError, Sender, Target, open_sender
from makegood.brokers.kinds import target_for
from makegood.errors import BrokerUnavailableError, ConfigError, DeliveryError
from makegood.messaging.hosts import Hosts
from makegood.messaging.poster import Poster
from makegood.model import notices
from makegood.model.notices import Cause
from makegood.store.views import SenderInfo
from makegood.telemetry.hooks import Observer

_MARGIN: Final = 2.0
"""Seconds beyond its timeout after which a sender is taken to be stuck."""


class BrokerPoster:
    """Sends to the places that ``hosts`` allow; what is addressed elsewhere goes to ``other``.

    ``targets``: the brokers by name. ``cause``: see ``notices.for_receiver``. ``timeout``: seconds for one
    try.
    """

    def __init__(
        self,
        targets: Mapping[str, Target],
        hosts: Hosts,
        other: Poster,
        *,
        cause: Cause,
        timeout: float,
        telemetry: Observer | None = None,
    ) -> None:
        self._targets = targets
        self._hosts = hosts
        self._other = other
        self._cause = cause
        self._timeout = timeout
        self._telemetry = telemetry
        self._senders: dict[str, Sender] = {}
        self._infos: dict[str, SenderInfo] = {}

    async def post(self, url: str, message_id: str, body: bytes) -> None:
        """Send an event once; raises ``DeliveryError`` unless the broker confirms it in time."""
        address = notices.at_broker(url)
        if address is None:
            await self._other.post(url, message_id, body)
            return
        try:
            await self._send(address, message_id, body)
        except DeliveryError as fault:
            self._count(address.broker, "failed", str(fault))
            raise
        self._count(address.broker, "sent", "")

    async def _send(self, address: BrokerAddress, message_id: str, body: bytes) -> None:
        try:
            self._hosts.refuse_place(address)
            target = target_for(address, self._targets)
            sender = self._senders.get(address.name)
            if sender is None:
                sender = self._senders[address.name] = open_sender(target)
        except ConfigError as fault:
            raise RefusedTargetError(str(fault)) from None
        content = notices.for_receiver(body, self._cause)
        event = OutgoingEvent(message_id, notices.subject_of(body), content)
        try:
            async with asyncio.timeout(self._timeout + _MARGIN):
                await sender.send(address.place, event, self._timeout)
        except TimeoutError:
            raise DeliveryError(f"{address} did not confirm within {self._timeout:.0f} s") from None
        except (BrokerUnavailableError, ConfigError) as fault:  # a password may be mended: it is tried again
            raise DeliveryError(f"{address}: {fault}") from None

    def infos(self) -> tuple[SenderInfo, ...]:
        """Return what this process publishes about the brokers to which it has sent."""
        return tuple(self._infos.values())

    def _count(self, broker: str, outcome: Literal["sent", "failed"], error: str) -> None:
        info = self._infos.get(broker) or SenderInfo(broker)
        self._infos[broker] = replace(info, error=error, **{outcome: getattr(info, outcome) + 1})
        if self._telemetry is not None:
            self._telemetry.broker_send(broker, outcome)

    async def close(self) -> None:
        """Let go of the brokers."""
        await asyncio.gather(*(sender.close() for sender in self._senders.values()), return_exceptions=True)
        self._senders.clear()
        await self._other.close()
