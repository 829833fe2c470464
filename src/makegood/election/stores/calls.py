"""What the lease stores on a server have in common: each call has a time-out, and a cancelled caller leaves
nothing half done.

Each call runs in a task of its own. If its caller is cancelled, the call finishes in the background, within
its time-out, and ``release`` waits for a take under its nonce that is still under way. Otherwise the release
could overtake the take, and a lease would be held without a known holder.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from makegood.base.cancelling import cancel_and_wait
from makegood.base.clock import Clock
from makegood.base.contexts import home_context
from makegood.base.durations import Duration, seconds
from makegood.election.protocol import Grant, LeaseView, PastTerm
from makegood.election.stores.base import Closing, lasting
from makegood.errors import ConfigError, MakegoodError, StoreUnavailableError

T = TypeVar("T")


class RemoteLeases(Closing, ABC):
    """A lease store on a server. ``place`` names it in messages, without secrets; ``timeout``: how long a
    call may take.

    A store implements ``take``, ``extend``, ``free``, ``look``, ``remember``, ``disconnect`` and ``meaning``.
    ``meaning`` maps exceptions that they raise to errors of makegood.
    """

    def __init__(self, place: str, *, timeout: Duration = 5) -> None:
        self._where = place
        self._timeout = seconds(timeout, name="timeout", least=0.01)
        self._context = home_context()  # a connection made by a call outlives its caller
        self._going: set[asyncio.Task[Any]] = set()
        self._leaving: set[asyncio.Task[Any]] = set()
        self._taking: dict[str, asyncio.Task[Any]] = {}

    async def acquire(self, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
        """Take a lease that is free, expired or ours already (the same nonce)."""
        lasting(ttl)
        self.check(name, ttl)
        going = self._begin(lambda: self.take(name, holder, nonce, ttl))
        self._taking[nonce] = going
        going.add_done_callback(lambda call: self._end_taking(nonce, call))
        return await self._answer(going)

    async def renew(self, grant: Grant) -> bool:
        """Extend a lease that is still held; False if the term is over."""
        return await self.call(lambda: self.extend(grant))

    async def release(self, grant: Grant) -> None:
        """Free a lease that is still this grant's, after any take of it that is under way."""
        taking = self._taking.get(grant.nonce)
        if taking is not None:
            await asyncio.wait([taking], timeout=self._timeout)
        await self.call(lambda: self.free(grant))

    async def read(self, name: str) -> LeaseView | None:
        """Return who holds a lease."""
        return await self.call(lambda: self.look(name))

    async def past_terms(self, name: str, limit: int = 100) -> list[PastTerm]:
        """Return the latest terms, newest first."""
        return await self.call(lambda: self.remember(name, limit))

    async def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run a call that only this store has, in the way of the other calls."""
        return await self._answer(self._begin(work))

    async def close(self) -> None:
        """End the calls under way, and close the connections."""
        await cancel_and_wait(*self._going)
        await asyncio.gather(*self._leaving, return_exceptions=True)
        await self.disconnect()

    # -- what a store brings -----------------------------------------------------------------------

    def check(self, name: str, ttl: float) -> None:
        """Raise ``ConfigError`` for a name or a ttl that the store cannot have."""

    @abstractmethod
    async def take(self, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
        """As ``acquire``."""

    @abstractmethod
    async def extend(self, grant: Grant) -> bool:
        """As ``renew``."""

    @abstractmethod
    async def free(self, grant: Grant) -> None:
        """As ``release``."""

    @abstractmethod
    async def look(self, name: str) -> LeaseView | None:
        """As ``read``."""

    @abstractmethod
    async def remember(self, name: str, limit: int) -> list[PastTerm]:
        """As ``past_terms``."""

    @abstractmethod
    async def disconnect(self) -> None:
        """Close the connections without waiting; a later call connects again."""

    @abstractmethod
    def meaning(self, fault: Exception) -> MakegoodError | None:
        """Return our error for one of the client's; None if it is a defect."""

    def reconnect(self) -> None:
        """An outcome was unknown: drop a connection that may be dead, unless the client does so itself."""

    def leave_line(self) -> None:
        """A caller was cancelled and its call goes on: let no other call wait for it, if the store has calls
        that wait for each other.
        """

    # -- errors of ours ----------------------------------------------------------------------------

    def unavailable(self, reason: object) -> StoreUnavailableError:
        """Return an error for an unknown outcome: try again."""
        return StoreUnavailableError(f"{self._where}: {str(reason) or type(reason).__name__}")

    def wrong(self, reason: object) -> ConfigError:
        """Return an error for a setup that can never work."""
        return ConfigError(f"{self._where}: {str(reason) or type(reason).__name__}")

    # -- calls -------------------------------------------------------------------------------------

    def later(self, leave: Coroutine[Any, Any, None]) -> None:
        """Close a connection in the background; only ``close`` waits for it."""
        self._keep_track(leave, self._leaving)

    async def _answer(self, going: "asyncio.Task[T]") -> T:
        try:
            return await asyncio.shield(going)
        except asyncio.CancelledError:
            if not going.done():
                self.leave_line()
            raise

    def _begin(self, call: Callable[[], Awaitable[T]]) -> "asyncio.Task[T]":
        return self._keep_track(self._within(call), self._going)

    def _keep_track(self, work: Coroutine[Any, Any, T], among: set[asyncio.Task[Any]]) -> "asyncio.Task[T]":
        task = asyncio.get_running_loop().create_task(work, context=self._context.copy())
        among.add(task)

        def forget_call(call: "asyncio.Task[Any]") -> None:
            among.discard(call)
            if not call.cancelled():
                call.exception()  # Its caller may be gone.

        task.add_done_callback(forget_call)
        return task

    def _end_taking(self, nonce: str, going: "asyncio.Task[Any]") -> None:
        if self._taking.get(nonce) is going:
            del self._taking[nonce]

    async def _within(self, call: Callable[[], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(self._timeout):
                return await call()
        except TimeoutError as silent:
            self.reconnect()
            raise StoreUnavailableError(f"{self._where}: no answer within {self._timeout:g} s") from silent
        except MakegoodError:
            raise
        except Exception as fault:
            error = self.meaning(fault)
            if error is None:
                raise
            if isinstance(error, StoreUnavailableError):
                self.reconnect()
            raise error from fault


class GrantDeadlines:
    """Until when this process's own grants last, by its own clock, from before each request with a positive
    answer.

    For stores whose server would renew an expired lease, or keeps no time at all: such a renewal is refused
    here, as is one of a grant that this process never had.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def note_grant(self, nonce: str, ttl: float, sent_at: float) -> None:
        """Note a yes to a request that went out at ``sent_at``."""
        now = self._clock.monotonic()
        self._until = {other_nonce: until for other_nonce, until in self._until.items() if until > now}
        self._until[nonce] = sent_at + ttl

    def holds(self, nonce: str) -> bool:
        """Whether the grant has time left."""
        return self._until.get(nonce, 0.0) > self._clock.monotonic()

    def seconds_left(self, nonce: str) -> float | None:
        """Return the seconds left; None: it was never ours."""
        until = self._until.get(nonce)
        return None if until is None else until - self._clock.monotonic()

    def over(self, nonce: str) -> None:
        """Forget a grant that was released or refused."""
        self._until.pop(nonce, None)
