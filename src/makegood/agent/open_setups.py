"""The setups of a process: opened before the first call of the agents that need them, closed at the drain.

::

    declared ──► open ──► closed          an agent takes requests once all its setups are open
        ▲  │
        └──┘ it raised: the error is logged, and it is tried again after a pause

All of them are opened and closed in one asyncio task, as some context managers demand; those that block, in
one thread.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

from makegood.agent.own_frame import own_frame
from makegood.agent.slots import Slots
from makegood.base.daemon_threads import DaemonThreads
from makegood.base.pacing import Pauses, event_within
from makegood.base.scrubbed_tracebacks import SCRUBBED_TRACEBACKS
from makegood.base.text import without_backticks, words
from makegood.declare.setup import Setup
from makegood.errors import StoreUnavailableError
from makegood.model.messages import Alert
from makegood.payload.envelopes import withheld
from makegood.store.alerts import AlertVerbs

log = logging.getLogger("makegood.agent")
log.addFilter(SCRUBBED_TRACEBACKS)

ROLE: Final = "agents (setup)"
"""What its alert is about."""
_IN_A_ROW: Final = 3
"""Failures of a setup without an alert."""
_LONGEST: Final = 30.0
"""Seconds between two tries, at most."""
_SLOW: Final = 10.0
"""Seconds after which a setup that still opens is logged."""
_CLOSING: Final = 5.0
"""Seconds to close everything, if the process ends without a drain."""
_GRACE: Final = 1.0
"""Seconds in which what is cancelled may end, once the time to close is over."""
_AGAIN: Final = 0.1
"""Seconds between two cancellations: each ends one of the things that are still open."""


class OpenSetups:
    """Opens and closes the setups that agents need.

    ``values``: by name, in place of those setups, for tests. ``on_ready``: called with each agent whose
    setups are all open.
    """

    def __init__(
        self,
        slots: Mapping[str, Slots],
        values: Mapping[str, Any],
        *,
        on_ready: Callable[[Slots], None],
        alerts: AlertVerbs | None,
        rng: random.Random,
    ) -> None:
        self.values: dict[str, Any] = dict(values)
        """What is open, by name. It stays here when it is closed: who asks then is cut off anyway."""
        self._needs = {each.address: _needs(each) for each in slots.values()}
        self._slots = slots
        self._on_ready = on_ready
        self._alerts = alerts
        self._pauses = Pauses(rng, longest=_LONGEST)
        self._failures = 0
        self._closing = asyncio.Event()
        self._threads: DaemonThreads | None = None
        self._work: asyncio.Task[None] | None = None
        self._at = ""
        """The setup that opens or closes now, for the log."""
        for each in slots.values():
            each.is_ready = self._has(each.address)

    def _has(self, agent: str) -> bool:
        return self._needs[agent].keys() <= self.values.keys()

    @property
    def _to_open(self) -> list[Setup]:
        """The setups that are not open, each after those that it needs."""
        every = {name: setup for needs in self._needs.values() for name, setup in needs.items()}
        return [setup for name, setup in every.items() if name not in self.values]

    async def run(self) -> None:
        """Open what the agents need, and close it when ``close`` is called, or this is cancelled."""
        if not self._to_open:
            return
        self._work = asyncio.create_task(self._live(), name="the setups")
        try:
            await asyncio.shield(self._work)
        finally:
            if not self._closing.is_set():
                await self.close(_CLOSING)

    async def close(self, limit: float) -> None:
        """Close everything, within ``limit`` seconds. What is still open then is cancelled, and nobody waits
        for it: its process is about to end.
        """
        self._closing.set()
        work = self._work
        if work is None or work.done():
            return
        await asyncio.wait({work}, timeout=limit)
        if not work.done():
            log.warning(
                "the setups could not be closed within %.1f s (%s); the process ends without", limit, self._at
            )
            _cancel_until_done(work)
            await asyncio.wait({work}, timeout=_GRACE)

    async def _live(self) -> None:
        self._threads = DaemonThreads(1, "setup")
        stack = AsyncExitStack()
        try:
            while not await self._open_all(stack) and not self._closing.is_set():
                await event_within(self._closing, self._pauses.draw())
            await self._closing.wait()
        finally:
            try:
                await stack.aclose()
            finally:
                self._threads.shutdown()

    async def _open_all(self, stack: AsyncExitStack) -> bool:
        """Open what can be opened now; return whether that is all."""
        failure = ""
        for setup in self._to_open:
            if self._closing.is_set():
                break
            if not self.values.keys() >= set(setup.needs):
                continue  # one of those has failed
            text = "%s is still opening after %g s; the agents that need it begin no calls until it is open"
            slow = asyncio.get_running_loop().call_later(_SLOW, log.warning, text, setup.where, _SLOW)
            try:
                await self._open(setup, stack)
            except Exception as fault:  # noqa: BLE001 - it is logged
                failure = f"{setup.where}: {_text(setup, fault)}"
                _log(setup, fault, f"{failure}; the agents that need it begin no calls until it works")
            finally:
                slow.cancel()
        for each in self._slots.values():
            if not each.is_ready and self._has(each.address):
                each.is_ready = True
                self._on_ready(each)
        await self._report(failure)
        return not self._to_open

    async def _open(self, setup: Setup, stack: AsyncExitStack) -> None:
        self._at = f"{setup.where} opens"
        needs = {name: self.values[name] for name in setup.needs}
        if setup.awaits:
            manager = setup.make(**needs)
            value = await manager.__aenter__()
            leave: Callable[[], Any] = partial(manager.__aexit__, None, None, None)
        else:
            manager = await self._in_thread(partial(setup.make, **needs))
            value = await self._in_thread(manager.__enter__)
            leave = partial(self._in_thread, partial(manager.__exit__, None, None, None))
        stack.push_async_callback(self._close, setup, leave)
        self.values[setup.name] = value
        log.info("%s is open", setup.where)

    async def _close(self, setup: Setup, leave: Callable[[], Any]) -> None:
        """Close a setup, whatever becomes of it: the others are closed as well."""
        self._at = f"{setup.where} closes"
        try:
            await leave()
        except Exception as fault:  # noqa: BLE001 - it is logged
            _log(setup, fault, f"{setup.where} could not be closed: {_text(setup, fault)}")

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def _report(self, failure: str) -> None:
        """Raise an alert after failures in a row, and end it once all setups are open."""
        before = self._failures
        self._failures = before + 1 if failure else 0
        if self._alerts is None:
            return
        try:
            if self._failures == _IN_A_ROW:
                await self._alerts.alert(
                    [_alert(f"a setup fails, and the agents that need it do nothing: {failure}")]
                )
            elif before >= _IN_A_ROW and not failure:
                await self._alerts.ease([_alert("")], "it works again")
        except StoreUnavailableError as away:
            self._failures = before  # again at the next try
            log.warning("the alert about a setup could not be written: %s", away)
        except Exception as fault:  # noqa: BLE001 - the agents work or not, whatever becomes of the alert
            log.warning("the alert about a setup could not be written: %s", words(fault, named=True))


def _needs(slots: Slots) -> dict[str, Setup]:
    """Return the setups that an agent needs, in the order in which to open them."""
    actions = {id(action): action for action in slots.actions.values()}
    return {setup.name: setup for action in actions.values() for setup in action._setups()}


def _cancel_until_done(work: asyncio.Task[None]) -> None:
    """Cancel a task again and again: whatever it closes next may wait as well."""
    if not work.done():
        work.cancel()
        asyncio.get_running_loop().call_later(_AGAIN, _cancel_until_done, work)


def _log(setup: Setup, fault: Exception, text: str) -> None:
    """Log an error of a setup, with its traceback unless that is withheld: it has the text of the error."""
    log.error("%s", text, exc_info=None if setup.withholds else fault)


def _text(setup: Setup, fault: Exception) -> str:
    """Return why a setup failed, and if its text is withheld, in which line."""
    if not setup.withholds:
        return words(fault, named=True)
    frame = own_frame(fault)
    return withheld(fault) if frame is None else f"{withheld(fault)}, {frame}"


def _alert(text: str) -> Alert:
    return Alert("role_failing", step=ROLE, text=without_backticks(text)[:1000])
