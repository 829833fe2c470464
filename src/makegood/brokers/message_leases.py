"""Messages that a service hides from everybody else for some seconds, once it has delivered them.

SQS and Azure's storage queues call that time the visibility timeout. A message that is neither deleted nor
extended in time is delivered again, to whoever asks. So this extends each message at a third of its time, for
as long as it waits for its commit, and a message whose extension is refused is not ours any more: it comes
again, under the same id.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from makegood.base.cancelling import cancel_and_wait
from makegood.brokers.address import BrokerAddress
from makegood.brokers.protocol import Delivery, Requirement, next_batch
from makegood.errors import BrokerUnavailableError, ConfigError, MakegoodError


@dataclass(slots=True)
class _Lease:
    receipt: str
    since: float
    """When it was hidden, on the event loop's clock; taken before the service was asked."""


Extend = Callable[[Mapping[str, str]], Awaitable[Mapping[str, str | None]]]
"""Extends messages, name to receipt. Returns the receipts that hold from now on; None: it is not ours."""


class MessageLeases:
    """The messages that a source has taken and not settled, by their names at the service.

    ``seconds``: how long the service hides them. ``extend``: extends some.
    """

    def __init__(self, seconds: float, extend: Extend) -> None:
        self.seconds = seconds
        self._extend = extend
        self._messages: dict[str, _Lease] = {}
        self._task: asyncio.Task[None] | None = None
        self._added = asyncio.Event()
        self._extending = asyncio.Lock()
        self.fault: MakegoodError | None = None
        """Why extending ended."""

    def add(self, name: str, receipt: str, since: float) -> bool:
        """Remember a message that was hidden at ``since``. Return whether it is new.

        One that is here already was delivered again, as its extension came late: its new receipt counts.
        """
        is_new = name not in self._messages
        self._messages[name] = _Lease(receipt, since)
        self._added.set()
        if self._task is None:
            self._task = asyncio.create_task(self._keep(), name="makegood-visibility")
        return is_new

    async def remove(self, names: Iterable[str]) -> dict[str, str]:
        """Extend these no more. Return the receipts of those that are still ours."""
        async with self._extending:  # which may give them new receipts
            return {name: self._messages.pop(name).receipt for name in names if name in self._messages}

    async def close(self) -> dict[str, str]:
        """Extend nothing more, and return the receipts of all."""
        task, self._task = self._task, None
        await cancel_and_wait(task)
        receipts = {name: lease.receipt for name, lease in self._messages.items()}
        self._messages.clear()
        return receipts

    async def _keep(self) -> None:
        now = asyncio.get_running_loop().time
        while True:
            step = self.seconds / 3
            oldest = min((lease.since for lease in self._messages.values()), default=None)
            if oldest is None:
                self._added.clear()
                await self._added.wait()
                continue
            if (rest := oldest + step - now()) > 0:
                await asyncio.sleep(rest)
                continue
            try:
                async with self._extending:
                    await self._extend_due(now(), step)
            except MakegoodError as fault:  # the source's next call raises it
                self.fault = fault
                return

    async def _extend_due(self, at: float, step: float) -> None:
        due = {
            name: lease.receipt
            for name, lease in self._messages.items()
            if lease.since + step / 2 <= at  # those that are nearly due go with them
        }
        for name, receipt in (await self._extend(due) if due else {}).items():
            lease = self._messages.get(name)
            if lease is None or lease.receipt != due[name]:  # it was delivered again meanwhile
                continue
            if receipt is None:
                del self._messages[name]
            else:
                self._messages[name] = _Lease(receipt, at)


class LeasedSource(ABC):
    """A source of messages that are hidden, or locked, while it holds them. See ``Source``.

    Its classes say how messages are received, extended and released.
    """

    keeps_refusals = False

    def __init__(self, address: BrokerAddress, service: str, seconds: float, patience: float) -> None:
        self.where = str(address)
        self._service = service
        self._seconds = seconds
        self._patience = patience
        """Seconds that ``_receive`` may take beyond its wait."""
        self._leases: MessageLeases | None = None
        self._ready: deque[Delivery] = deque()
        self._receiving: asyncio.Task[None] | None = None

    @abstractmethod
    async def examine(self) -> Sequence[Requirement]:
        """Connect if need be, and return what was checked.

        Raises ``BrokerUnavailableError``, ``ConfigError``.
        """

    @abstractmethod
    def _requirements(self) -> Sequence[Requirement]:
        """Return what ``examine`` has checked."""

    @abstractmethod
    async def _receive(self, leases: MessageLeases, limit: int, wait: float) -> None:
        """Put what ``take`` returns, and perhaps a little more, into ``_ready``."""

    @abstractmethod
    async def _extend(self, receipts: Mapping[str, str]) -> Mapping[str, str | None]:
        """Extend some: see ``Extend``."""

    @abstractmethod
    async def _release(self, receipts: Mapping[str, str]) -> None:
        """Show these to others again."""

    @abstractmethod
    async def _disconnect(self) -> None:
        """Let go of the service."""

    async def _interrupt(self, receiving: asyncio.Task[None]) -> dict[str, str]:
        """Cancel a call of ``_receive``. Return the receipts of what it received and nobody took."""
        await cancel_and_wait(receiving)
        return {}

    async def open(self) -> Sequence[Requirement]:
        """See whether the queue is there."""
        if self._leases is None:
            try:
                await self.examine()
            except MakegoodError:
                await self.close()
                raise
            self._leases = MessageLeases(self._seconds, self._extend)
        return self._requirements()

    async def take(self, limit: int, wait: float) -> Sequence[Delivery]:
        """Receive."""
        leases = await self._usable()
        if not self._ready:
            if self._receiving is None:
                self._receiving = asyncio.create_task(self._receive(leases, limit, wait))
            # It outlives a take that is cancelled: what it receives would be hidden in vain.
            await asyncio.wait({self._receiving}, timeout=wait + self._patience)
        receiving = self._receiving
        if receiving is not None and (receiving.done() or not self._ready):
            async with self._close_on_fault():
                if not receiving.done():
                    raise BrokerUnavailableError(f"{self.where}: {self._service} has not answered in time")
                self._receiving = None
                receiving.result()
        return next_batch(self._ready, limit)

    async def pause(self) -> None:
        """Nothing is received between two takes anyway; what is here is extended."""
        await self._usable()

    async def refuse(self, delivery: Delivery, why: str) -> None:
        """Raise ``ConfigError``: there is no such call."""
        del delivery, why
        raise ConfigError(
            f"{self.where}: {self._service} cannot refuse a message; it is kept in the store's dead letters"
        )

    async def close(self) -> None:
        """Show the messages to others again, if the service can be reached within a moment."""
        leases, self._leases = self._leases, None
        receiving, self._receiving = self._receiving, None
        receipts = {} if receiving is None else await self._interrupt(receiving)
        if leases is not None:
            receipts |= await leases.close()
        self._ready.clear()
        try:
            if receipts:
                # What is not released is redelivered once its time is over.
                with suppress(MakegoodError, TimeoutError):
                    async with asyncio.timeout(2):
                        await self._release(receipts)
        finally:
            await self._disconnect()

    async def _usable(self) -> MessageLeases:
        leases = self._leases
        if leases is None:
            raise BrokerUnavailableError(f"{self.where} is not open")
        if leases.fault is not None:
            await self.close()
            raise leases.fault
        return leases

    @asynccontextmanager
    async def _close_on_fault(self) -> AsyncIterator[None]:
        """Close the source if what is inside fails."""
        try:
            yield
        except MakegoodError:
            await self.close()
            raise


def visibility_of(address: BrokerAddress, longest: int) -> int:
    """Return the seconds of the parameter ``visibility``, 60 by default. Raises ``ConfigError``."""
    text = address.parameters.get("visibility", "60")
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= longest):
        raise ConfigError(f"{address}: visibility={text!r:.60}: write whole seconds, from 1 to {longest}")
    return int(text)
