"""Sending notices to users' brokers: each broker has one sender, which connects when it is first needed.

The notifier sees to the order of a task's notices, to repetitions and to limits, as it does for webhooks; a
broker counts as a host.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from makegood.brokers import (
    BrokerAddress,
    OutgoingEvent,
    Reader,
    RefusedTargetError,
    Sender,
    Target,
    UnsentError,
    check,
    open_sender,
)
from makegood.brokers.kinds import target_for
from makegood.brokers.protocol import Answers, raise_first_error
from makegood.errors import BrokerUnavailableError, ConfigError, DeliveryError
from makegood.messaging.hosts import Hosts, UnlistedTargetError
from makegood.messaging.poster import Poster
from makegood.model import notices
from makegood.model.notices import Cause

_IN_DOUBT: Final = "it may have arrived"
_PROBE: Final = 20.0
"""Seconds after which a broker that is asked counts as away."""
_PROBER: Final = Reader("makegood-probe", "probe")
_MARGIN: Final = 2.0
"""Seconds beyond its timeout after which a sender is taken to be stuck."""


class BrokerPoster:
    """Sends to the places that ``hosts`` allow; what is addressed elsewhere goes to ``other``.

    ``targets``: the brokers by name. ``cause``: see ``notices.for_receiver``. ``timeout``: seconds for one
    try. ``opener`` makes the sender of a broker, ``checker`` checks one. Raises ``ConfigError`` for a broker
    that cannot be sent to with these settings, whether it answers or not.
    """

    def __init__(
        self,
        targets: Mapping[str, Target],
        hosts: Hosts,
        other: Poster,
        *,
        cause: Cause,
        timeout: float,
        opener: Callable[[Target], Sender] = open_sender,
        checker: Callable[
            [Target, Sequence[BrokerAddress], Sequence[str], Reader], Awaitable[Answers]
        ] = check,
    ) -> None:
        self._targets = targets
        self._hosts = hosts
        self._other = other
        self._cause = cause
        self._timeout = timeout
        self.opener = opener
        self._check = checker
        self._senders: dict[str, Sender] = {}
        for place in hosts.places:
            self._sender(place)

    async def post(self, url: str, message_id: str, body: bytes) -> None:
        """Send an event once; raises ``DeliveryError`` unless the broker confirms it in time."""
        address = notices.at_broker(url)
        if address is None:
            await self._other.post(url, message_id, body)
            return
        try:
            self._hosts.refuse_place(address)
        except ConfigError as fault:
            raise UnlistedTargetError(str(fault)) from None
        try:
            sender = self._sender(address)
        except ConfigError as fault:  # such as a file that has vanished: other processes may have theirs
            raise UnsentError(str(fault)) from fault
        content = notices.for_receiver(body, self._cause)
        names = notices.names_of(body)
        event = OutgoingEvent(message_id, names.subject, content, correlation_id=names.correlationid)
        try:
            async with asyncio.timeout(self._timeout + _MARGIN):
                await sender.send(address.place, event, self._timeout)
        except TimeoutError:
            text = f"{address} did not confirm within {self._timeout:.0f} s"
            raise DeliveryError(f"{text}; {_IN_DOUBT}") from None
        except (RefusedTargetError, UnsentError):
            raise
        except DeliveryError as fault:
            raise DeliveryError(f"{fault}; {_IN_DOUBT}") from fault.__cause__

    def _sender(self, address: BrokerAddress) -> Sender:
        """Return the sender of a broker. Raises ``ConfigError``."""
        if address.name not in self._senders:
            self._senders[address.name] = self.opener(target_for(address, self._targets))
        return self._senders[address.name]

    async def probe(self, broker: str, place: str) -> None:
        """Raise ``DeliveryError`` unless a broker answers. Nothing is sent.

        ``place``: one at it, looked at as well; "": none. The cause of the error is a ``ConfigError`` if the
        broker refuses this process, wherever it sends.
        """
        target = self._targets.get(broker.partition(":")[2])
        if target is None:
            raise DeliveryError(f"{broker} is not among the brokers of the settings")
        try:
            async with asyncio.timeout(_PROBE):
                answers = await self._check(target, [], [place] if place else [], _PROBER)
        except TimeoutError:
            raise DeliveryError(f"{broker} did not answer within {_PROBE:.0f} s") from None
        except (BrokerUnavailableError, ConfigError) as fault:
            raise DeliveryError(str(fault)) from fault
        try:
            for where, requirement in answers:
                raise_first_error([requirement], where)
        except ConfigError as fault:
            raise DeliveryError(str(fault)) from None

    async def close(self) -> None:
        """Let go of the brokers."""
        await asyncio.gather(*(sender.close() for sender in self._senders.values()), return_exceptions=True)
        self._senders.clear()
        await self._other.close()
