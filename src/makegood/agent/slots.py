"""The slots of one agent in one process: how many calls may run, what keeps more from beginning, and what was seen of them."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from makegood.base.clock import Clock
from makegood.base.ids import address
from makegood.declare.action import Action
from makegood.model.attempt import Running
from makegood.model.breaker import UNCOUNTED, Circuit, Outcome
from makegood.model.messages import Message, Request
from makegood.store.records import Offer
from makegood.store.views import AgentInfo

_RECENT = 0.05
"""The weight of the latest call in the published share of calls that were answered: about the last twenty."""

_SAYS: Mapping[str, Outcome] = {
    "done": "answered", "happened": "answered", "not_happened": "answered", "permanent": "answered", "refused": "answered",
    "later": "later", "gave_up": "failed",
}  # fmt: skip


@dataclass(slots=True)
class Slots:
    """One agent of this process: its actions by every name they go or went by, its slots, and what it has seen.

    ``circuit``: its breaker's state, if it has one. ``rate``: calls a second over all processes, None = as they come.
    ``free``: slots neither taken nor set aside; ``running``: calls under way, ``overdue`` of them known to be past their complete-by. ``backlog``: requests wait in the store. ``rung``: some may. ``spent``: tries beside those that the store counted for the rate.
    ``rests``: until when the rate lets nothing begin.
    """

    address: str
    actions: Mapping[str, Action[..., Any]]
    size: int
    circuit: Circuit | None = None
    rate: float | None = None
    free: int = 0
    running: int = 0
    overdue: int = 0
    calls: int = 0
    failed: int = 0
    seconds: float = 0.0
    success: float = 1.0
    backlog: bool = False
    rung: bool = False
    spent: int = 0
    rests: float = 0.0

    @property
    def lendable(self) -> int:
        """The slots that a Scheduler of this process may fill by itself: none while requests wait in the store, the circuit is
        not closed, or a rate is to be kept over all processes.
        """
        if self.backlog or self.rung or self.rate is not None:
            return 0
        return self.free if self.circuit is None or self.circuit.closed else 0

    def offer(self, now: float) -> Offer | None:
        """Return what may be taken from the store now, None for nothing."""
        free = self.free if self.circuit is None else self.circuit.room(now, self.free)
        if free < 1 or now < self.rests:
            return None
        trial = self.circuit is not None and self.circuit.state == "half-open"
        return Offer(self.address, tuple(self.actions), free, self.rate, self.spent, trial)

    def waits(self, now: float) -> float:
        """Return in how many seconds more may be taken although no call ends; 0: only when one does."""
        if self.free < 1:
            return 0.0
        shut = 0.0 if self.circuit is None else self.circuit.remaining(now)
        return max(shut, self.rests - now, 0.0)

    def took(self, offer: Offer, taken: int, again: float | None, now: float) -> None:
        """Note what an offer brought. ``again``: in how many seconds the rate lets more begin."""
        self.backlog = taken >= offer.slots or again is not None
        self.spent -= offer.spent
        if again is not None:
            self.rests = now + again

    def ended(self, attempt: Running, message: Message | None, now: float) -> None:
        """Count a call that has ended; ``message``: its answer."""
        self.free += 1
        self.running -= 1
        self.overdue -= attempt.overdue
        self.calls += 1
        self.seconds += now - attempt.began
        answered = message is not None and message.kind != "gave_up"
        self.failed += not answered
        # Of the first calls each weighs the same: what has been seen is all there is to go by.
        self.success += max(_RECENT, 1 / self.calls) * (answered - self.success)
        if self.rate is not None:
            self.spent += attempt.again

    def info(self, now: float) -> AgentInfo:
        """Return what the process publishes of this agent."""
        mean = self.seconds / self.calls if self.calls else 0.0
        state, reset, most, heard = "", 0.0, self.size, None
        if self.circuit is not None:
            state, reset, most = self.circuit.state, self.circuit.remaining(now), self.circuit.most
            heard = None if self.circuit.heard is None else round(now - self.circuit.heard, 3)
        return AgentInfo(
            self.address, self.size, self.running, self.calls, self.failed, mean, self.success if self.calls else None,
            state, round(reset, 3), most, self.rate, self.overdue, heard,
        )  # fmt: skip

    def failed_before(self, request: Request, now: float) -> float | None:
        """Return a moment after the last failure of a request's step, None for its first attempt. ``now``: the request was just taken.

        Between a failure and the next request lies the declared wait, but not before a probe.
        """
        if request.attempt == 1:
            return None
        policy = self.actions[request.action].policy
        wait = {"do": policy.wait, "undo": policy.undo_wait}.get(request.doing, 0.0)
        return now - request.waited - wait


def judge(slots: Slots, attempt: Running, message: Message | None, clock: Clock, rng: random.Random) -> bool:
    """Tell the circuit how a call ended, once; returns whether a failure counts for the step as well: see ``breaker``."""
    circuit, ticket = slots.circuit, attempt.ticket
    if circuit is None or ticket is None:
        return True
    attempt.ticket = None
    now = clock.monotonic()
    outcome: Outcome = "neither"
    if message is None or now > attempt.deadline:
        outcome = "failed" if attempt.reached and now >= attempt.deadline else "neither"
    elif attempt.reached and not message.final:
        outcome = _SAYS[message.kind]
    return circuit.ended(ticket, outcome, now, rng.random(), since=attempt.since) or outcome != "failed"


def excused(slots: Slots, running: Mapping[Running, None]) -> list[Running]:
    """Return the calls of an agent that were under way when its circuit opened: what becomes of them does not count."""
    found: list[Running] = []
    for attempt in running:
        if (
            attempt.ticket is not None
            and address(attempt.request.app, attempt.request.agent) == slots.address
        ):
            attempt.ticket = UNCOUNTED
            found.append(attempt)
    return found
