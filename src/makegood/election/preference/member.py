"""One member of a group: its rules, run over a transport.

It is a ``Preference`` for an ``Election``. It can also be used alone, if agreement among members that can
reach each other is enough: which host warms the cache, or sends the digest. It is not a lock: see the modules
of the algorithms.

    async for leader in Bully(transport).leaders():
        ...                                            # leader == transport.me: it is this one
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncGenerator

from makegood.base.clock import Clock, SystemClock
from makegood.base.durations import Duration
from makegood.election.preference.protocol import Seen
from makegood.election.preference.rules import Rules, timing
from makegood.election.preference.transport import Letter, Order, Transport, natural
from makegood.errors import ConfigError

log = logging.getLogger("makegood.election")


class ElectionMember:
    """Runs the rules of ``LowestId``, ``Bully`` or ``Ring``, whose docstrings have the guarantees."""

    rules: type[Rules]
    answers = 1.0
    """How long to wait for an answer, in intervals, unless ``timeout`` says otherwise."""

    def __init__(
        self,
        transport: Transport,
        *,
        interval: Duration = 1,
        patience: Duration | None = None,
        timeout: Duration | None = None,
        order: Order = natural,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        if isinstance(transport, type) or not callable(getattr(transport, "members", None)):
            raise ConfigError(
                f"{transport!r} is not a transport: pass an object, such as TcpTransport(me, members)"
            )
        self._transport = transport
        self._timing = timing(interval, patience, timeout, self.answers)
        self._order = order
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()
        self._rules: Rules | None = None
        self._living: asyncio.Task[None] | None = None
        self._leader: str | None = None
        self._change = asyncio.Event()

    @property
    def me(self) -> str:
        """The name of this member: its transport's."""
        return self._transport.me

    @property
    def leader(self) -> str | None:
        """The member that this one takes for the leader now, by its messages; None if it knows none."""
        return self._leader

    async def leaders(self) -> AsyncGenerator[str | None, None]:
        """Yield who leads, as this member sees it, now and after each change; None if it knows none.

        It starts to take part if it does not yet, and stops when this is closed (``contextlib.aclosing``).
        Raises ``ConfigError`` if the transport cannot be opened.
        """
        mine = self._living is None
        if mine:
            await self.start(self._transport.me)
        last: str | None = None
        try:
            while self._living is not None:
                change = self._change
                if self._living.done():
                    self._living.result()
                if self._leader != last:
                    last = self._leader
                    yield last
                else:
                    await change.wait()
        finally:
            if mine:
                await self.stop()

    async def start(self, me: str) -> None:
        """Take part; return once a leader is known, or after a bounded time. See ``Preference``."""
        members = list(self._transport.members())
        if me != self._transport.me or members.count(me) != 1 or len(set(members)) != len(members):
            raise ConfigError(
                f"the candidate is called {me!r}, its transport {self._transport.me!r}, the members are {', '.join(members)}: give "
                "election and transport the same name, which must be among the members, each of them once"
            )
        await self._transport.open()
        self._rules = rules = self.rules(me, members, self._timing, self._order, self._rng)
        self._living = asyncio.get_running_loop().create_task(self._live(rules), name=f"preference of {me}")
        self._living.add_done_callback(self._note_end)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._timing.patience + self._timing.timeout):
                    while self._leader is None and not self._living.done():
                        await self._change.wait()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop taking part. See ``Preference``. It waits only for the transport."""
        living, self._living, self._rules = self._living, None, None
        if living is not None:
            living.cancel()
        await self._transport.close()
        self._see(None)

    def rank(self) -> int:
        """See ``Preference``: 0 for the leader, and for everybody while none is known; the others follow in
        order.
        """
        return self._rules.rank() if self._rules is not None and self._leader is not None else 0

    def seen(self, sighting: Seen) -> None:
        """Nothing: who holds the lease changes nothing about who should."""

    async def _live(self, rules: Rules) -> None:
        await self._say(rules.begin(self._clock.monotonic()))
        while True:
            self._see(rules.leader)
            letter = await self._next(rules.due)
            now, letters = self._clock.monotonic(), list[Letter]()
            if letter is not None and letter[0] in rules.others:
                letters += rules.hear(*letter, now)
            if now >= rules.due:
                letters += rules.tick(now)
            await self._say(letters)

    async def _next(self, due: float) -> Letter | None:
        """Return the next message; None if ``due`` has come.

        Timers may stop while the machine is suspended, so the clock is compared at each interval.
        """
        wait = min(due - self._clock.monotonic(), self._timing.interval)
        try:
            async with asyncio.timeout(max(0.0, wait)):
                return await self._transport.receive()
        except TimeoutError:
            return None

    async def _say(self, letters: list[Letter]) -> None:
        for to, message in letters:
            await self._transport.send(to, message)

    def _see(self, leader: str | None) -> None:
        if leader != self._leader:
            self._leader = leader
            self._wake()

    def _wake(self) -> None:
        change, self._change = self._change, asyncio.Event()
        change.set()

    def _note_end(self, living: "asyncio.Task[None]") -> None:
        if not living.cancelled() and (failure := living.exception()) is not None:
            log.error("%s takes no part in the preference any more", self._transport.me, exc_info=failure)
            self._leader = None
            self._wake()
