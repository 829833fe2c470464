"""Messages that a service hides from everybody else for some seconds, once it has delivered them.

SQS and Azure's storage queues call that time the visibility timeout. A message that is neither deleted nor
extended in time is delivered again, to whoever asks. So this extends each message at a third of its time, for
as long as it waits for its commit, and a message whose extension is refused is not ours any more: it comes
again, under the same id.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from makegood.brokers.address import BrokerAddress
from makegood.errors import ConfigError, MakegoodError


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
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
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


def visibility_of(address: BrokerAddress, longest: int) -> int:
    """Return the seconds of the parameter ``visibility``, 60 by default. Raises ``ConfigError``."""
    text = address.parameters.get("visibility", "60")
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= longest):
        raise ConfigError(f"{address}: visibility={text!r:.60}: write whole seconds, from 1 to {longest}")
    return int(text)
