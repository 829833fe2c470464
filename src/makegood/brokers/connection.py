"""What connections to NATS and to Redis have in common: none is used after its first fault."""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import Final, Generic, TypeVar

from makegood.brokers.kinds import Target
from makegood.errors import BrokerUnavailableError, MakegoodError

_OPEN: Final = 9.0


class BrokerConnection(ABC):
    """One connection. ``where`` begins its messages."""

    def __init__(self, target: Target, where: str) -> None:
        self._target = target
        self.where = where
        self.fault: MakegoodError | None = None
        """Why it cannot be used any more."""

    @abstractmethod
    async def open(self) -> None:
        """Connect. Raises ``ConfigError``, ``BrokerUnavailableError``."""

    @abstractmethod
    async def close(self) -> None:
        """Leave at once."""

    def check(self) -> None:
        """Raise the fault of the connection, if it has one."""
        if self.fault is not None:
            raise type(self.fault)(*self.fault.args)


C = TypeVar("C", bound=BrokerConnection)


@contextlib.asynccontextmanager
async def opening(*connections: BrokerConnection) -> AsyncIterator[None]:
    """Give the first use of these connections nine seconds; if it fails, close them."""
    try:
        async with asyncio.timeout(_OPEN):
            yield
    except BaseException as fault:
        for connection in connections:
            await connection.close()
        if isinstance(fault, TimeoutError):
            raise BrokerUnavailableError(f"{connections[0].where}: no answer within {_OPEN:g} s") from fault
        raise


class SendersConnection(Generic[C]):
    """The one connection of all who send: opened when somebody needs it, and again after a fault."""

    def __init__(self, make: Callable[[], C]) -> None:
        self._make = make
        self._turn = asyncio.Lock()
        self.present: C | None = None

    async def open(self) -> C:
        """Return the connection. Raises what its ``open`` raises."""
        async with self._turn:
            if self.present is None or self.present.fault is not None:
                await self.close()
                connection = self._make()
                async with opening(connection):
                    await connection.open()
                self.present = connection
            return self.present

    async def close(self) -> None:
        """Leave at once."""
        present, self.present = self.present, None
        if present is not None:
            await present.close()
