"""Alerts about open circuits: one for each agent, until all its processes know that the service answers.

The processes themselves raise and end the alert. Each first publishes the state of its own circuit, so the
last one to hear an answer sees that it is the last. If a process died with an open circuit, the Supervisor
ends its alert.

If one step made all failures, the alert is about that step's task: a person is needed, since the step may be
what is broken. If two or three did, its text names them.

Before a step that has failed is asked again, the process reads what others know: whether the service has
answered them, and who fails there. That decides which failures count (``blame``).

A circuit that is half-open waits for a trial call, and there may be none for days. Meanwhile its
process checks now and then whether the service has answered another process since, and takes that for the
answer to its trial call. When nothing waits for the service, the alert ends after a while: nobody knows
whether the service answers, and nobody needs it. A failed trial call raises the alert again.
"""

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from makegood.actor.actor import Actor
from makegood.actor.setbacks import Setbacks
from makegood.agent.slots import Slots
from makegood.base.clock import Clock
from makegood.base.durations import short_duration
from makegood.base.ids import show
from makegood.base.pacing import Pauses, event_within
from makegood.errors import StoreUnavailableError
from makegood.model.blame import FailingStep
from makegood.model.breaker import SHUT
from makegood.model.messages import Alert
from makegood.store.protocol import Store
from makegood.store.views import NodeView

log = logging.getLogger("makegood.agent")

_LOOK, _SELDOM = 1.0, 15.0
"""Seconds between two looks at other processes while a circuit is half-open, at first and at most."""

_FRESH = 0.5
"""Seconds for which what was read of other processes counts as new: they publish it once a second."""

_MOST_NAMED = 3
"""Steps that an alert names: so few may be what is broken."""

_UNASKED = 60.0
"""Seconds after which the alert of a half-open circuit ends if nothing waits for its service.

They are added to the longest time that a step may rest between two attempts.
"""


class Circuits(Actor):
    """Watches the circuits of one process.

    ``slots``: its agents. ``publish``: writes a heartbeat. ``me``: returns the process's number.
    """

    def __init__(
        self,
        store: Store,
        slots: Sequence[Slots],
        publish: Callable[[], Awaitable[object]],
        me: Callable[[], int],
        *,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._store = store
        self._circuits = {each.address: each.circuit for each in slots if each.circuit is not None}
        self._publish = publish
        self._me = me
        self._clock = clock
        self._rng = rng
        self._patience = {each.address: _UNASKED + _rests(each) for each in slots}
        self._open_alerts: dict[str, float] = {}  # when that circuit had opened
        self._idle: dict[str, float] = {}  # since when nothing waits for a service
        self._informed_at: dict[str, float] = {}
        self._wake = asyncio.Event()

    def note_change(self) -> None:
        """Note that a circuit has opened, or that its service has answered again."""
        self._wake.set()

    async def run(self) -> None:
        """Keep the alerts current, until cancelled."""
        pauses, look, setbacks = Pauses(self._rng), _LOOK, Setbacks("circuits", self._store.alerts, self._rng)
        while True:
            wake = await self._wait_for_change(look)
            look = _LOOK if wake else min(_SELDOM, look * 1.5)
            try:
                if not wake:
                    await self.look()
                await self.report()
                pauses.reset()
            except StoreUnavailableError as away:
                log.warning("an open circuit cannot be reported now: %s", away)
                await asyncio.sleep(pauses.draw())
                self._wake.set()
            except Exception as defect:  # noqa: BLE001 - agents continue without it
                await asyncio.sleep(await setbacks.pause_after(defect))
                self._wake.set()
            else:
                await setbacks.over()

    async def _wait_for_change(self, look: float) -> bool:
        """Wait for a change, or until it is time to check other processes.

        Returns whether something changed.
        """
        now = self._clock.monotonic()
        shut = [circuit.remaining(now) for circuit in self._circuits.values() if circuit.state in SHUT]
        if not await event_within(
            self._wake, min(shut) + look * self._rng.uniform(0.8, 1.2) if shut else None
        ):
            return False
        self._wake.clear()
        return True

    async def report(self) -> None:
        """Raise and end the alerts of circuits that have changed."""
        shut = {name: circuit.opened_at for name, circuit in self._circuits.items() if circuit.state in SHUT}
        new = sorted(name for name, since in shut.items() if self._open_alerts.get(name) != since)
        over = sorted(self._open_alerts.keys() - shut.keys())
        if not (new or over):
            return
        await self._publish()
        if new:
            await self._store.alerts.alert([self._alert(address) for address in new])
            self._open_alerts |= {address: shut[address] for address in new}
            for address in new:
                self._idle.pop(address, None)
        if over:
            elsewhere = self._shut(await self._store.nodes.views())
            await self._ease(
                [address for address in over if address not in elsewhere], "the service answers again"
            )
            for address in over:
                del self._open_alerts[address]

    def _alert(self, address: str) -> Alert:
        evidence, now = self._circuits[address].evidence, self._clock.monotonic()
        callers = evidence.callers()
        if len(callers) != 1:
            text = "its service does not answer: its circuit is open, requests wait (see `makegood agents`)"
            if 1 < len(callers) <= _MOST_NAMED:
                steps = ", ".join(f"{caller.step} of task {show(caller.task)}" for caller in callers)
                text = f"{text}; only these steps fail: {steps}"
            return Alert("circuit_open", step=address, text=text)
        (caller,) = callers
        ago, task = now - evidence.last_other_answer(caller), show(caller.task)
        sentence = (
            f"its service answered another step {short_duration(ago)} ago"
            if math.isfinite(ago)
            else "no other step is known to have been answered"
        )
        text = (
            f"only step {caller.step} of task {task} fails, and opened its circuit: {sentence}. See `makegood task show {task}`; "
            f"if the step is broken and not the service, `makegood task cancel {task}` ends it"
        )
        return Alert("circuit_open", caller.task, address, text)

    async def _ease(self, agents: Sequence[str], why: str) -> None:
        if agents:
            await self._store.alerts.ease([Alert("circuit_open", step=address) for address in agents], why)

    # -- what others know ------------------------------------------------------------------------------------

    async def inform(self, address: str) -> None:
        """Let the circuit of an agent know what other processes have published of its service."""
        now = self._clock.monotonic()
        if now - self._informed_at.get(address, -math.inf) < _FRESH:
            return
        try:
            views = await self._store.nodes.views()
        except StoreUnavailableError as away:
            log.info("what other processes know of %s cannot be read now: %s", address, away)
            return
        self._informed_at[address] = now
        self._learn(views, address)

    async def look(self) -> None:
        """Find the services that have answered other processes since, and those that nothing waits for."""
        awaiting = {name: circuit for name, circuit in self._circuits.items() if circuit.state == "half-open"}
        if not awaiting:
            return
        views = await self._store.nodes.views()
        now = self._clock.monotonic()
        silent: list[str] = []
        for address, circuit in awaiting.items():
            self._learn(views, address)
            if self._answers_others(
                views, address, now - circuit.opened_at
            ) and circuit.record_answer_elsewhere(now):
                log.warning(
                    "the circuit of %s is %s: its service answers others", address, circuit.describe(now)
                )
                continue
            if any(view.waiting.get(address) for view in views) or self._busy(views, address):
                self._idle.pop(address, None)
            elif now - self._idle.setdefault(address, now) >= self._patience[address]:
                silent.append(address)
        await self._ease(silent, "nothing waits for its service; the next call shows whether it answers")
        self._idle |= dict.fromkeys(silent, math.inf)  # once

    def _learn(self, views: Sequence[NodeView], address: str) -> None:
        now = self._clock.monotonic()
        alive = {view.id for view in self._alive(views)}
        answers: list[float] = []
        action_answers: list[float] = []
        failing: list[FailingStep] = []
        for view in views:
            heartbeat_at = now - (view.info.ttl - view.remaining)
            for info in view.info.agents if view.id != self._me() else ():
                if info.agent != address:
                    continue
                if info.heard is not None:
                    answers.append(heartbeat_at - info.heard)
                if info.heard_action is not None:
                    action_answers.append(heartbeat_at - info.heard_action)
                if view.id in alive:
                    failing += [replace(each, last=heartbeat_at - each.last) for each in info.failing]
        self._circuits[address].evidence.learn(
            max(answers, default=None), max(action_answers, default=None), failing
        )

    def _alive(self, views: Sequence[NodeView]) -> list[NodeView]:
        return [view for view in views if not (view.is_stopped or view.dead) and view.remaining > 0]

    def _answers_others(self, views: Sequence[NodeView], address: str, since: float) -> bool:
        """Return whether a service has answered another living process in the last ``since`` seconds."""
        return any(
            info.agent == address
            and info.circuit not in SHUT
            and info.heard is not None
            and info.heard + view.info.ttl - view.remaining < since
            for view in self._alive(views)
            if view.id != self._me()
            for info in view.info.agents
        )

    def _busy(self, views: Sequence[NodeView], address: str) -> bool:
        """Return whether a process calls the service now, or is sure that it does not answer."""
        return any(
            info.agent == address and (info.used > 0 or info.circuit == "open")
            for view in self._alive(views)
            for info in view.info.agents
        )

    def _shut(self, views: Sequence[NodeView]) -> set[str]:
        """Return the agents whose circuit is not closed in another living process."""
        return {
            info.agent
            for view in self._alive(views)
            if view.id != self._me()
            for info in view.info.agents
            if info.circuit in SHUT
        }


def _rests(slots: Slots) -> float:
    """Return the longest rest between two attempts that an agent's actions declare."""
    policies = [action._policy for action in slots.actions.values()]
    return max((max(p.wait, p.extended, p.undo_wait, p.undo_extended) for p in policies), default=0.0)
