"""The slots of one agent in one process: how many calls may run, what keeps more from starting, and
statistics.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from makegood.agent.begin_spacing import BeginSpacing
from makegood.declare.action import Action
from makegood.model.attempt import Attempt
from makegood.model.blame import FailingStep
from makegood.model.breaker import Circuit
from makegood.model.messages import Request, TaskMessage
from makegood.store.records import Offer
from makegood.store.views import AgentInfo

_RECENT = 0.05
"""The weight of the latest call in the published share of calls that were answered: about the last twenty."""

_LEFT_TO_OTHERS = 3.0
"""Seconds in which a process that cannot decode requests takes none: longer than the first waits of a step
that it could not begin (``sealed_calls``), so that another process takes that step.
"""

_SHOWN = 10
"""Failing steps that are published, at most."""


@dataclass(slots=True)
class Slots:
    """One agent of this process: its actions, its slots and its statistics."""

    address: str
    """Its app and name: "APP/AGENT"."""
    actions: Mapping[str, Action[..., Any]]
    """Its actions by name, former names included."""
    size: int
    """How many calls may run at once."""
    circuit: Circuit | None = None
    """The state of its circuit breaker, if it has one."""
    rate: float | None = None
    """Calls a second over all processes; None: as they come."""
    free: int = 0
    """Slots that are neither taken nor set aside."""
    running: int = 0
    """Calls under way."""
    overdue: int = 0
    """Calls under way that were logged as running long after their deadline."""
    calls: int = 0
    """Calls that have ended."""
    failures: int = 0
    """Calls that ended without an answer."""
    seconds: float = 0.0
    """How long the calls lasted, summed."""
    success: float = 1.0
    """The share of calls that were answered; the latest weigh most."""
    backlog: bool = False
    """Requests are waiting in the store."""
    needs_look: bool = False
    """Requests may be waiting in the store; look."""
    rests: float = 0.0
    """Until when nothing is taken, by the clock's ``monotonic()``: the rate lets nothing begin, or requests
    are left to processes that can decode them.
    """
    spacing: BeginSpacing | None = None
    """Spaces the calls of this process, if there is a rate."""
    is_ready: bool = True
    """Whether the setups that its actions need are open: before, nothing begins."""
    decodes: bool = True
    """Whether the latest encoded request could be decoded. If not, the next ones go through the store, where
    another process may take them.
    """

    @property
    def lendable(self) -> int:
        """The slots that a Scheduler of this process may fill by itself.

        0 while requests wait in the store, while the circuit is not closed, before its setups are open, after
        a request that could not be decoded, or when a rate limit applies over all processes.
        """
        return 0 if self.backlog or self.needs_look or not self.lends else self.free

    @property
    def is_wanted(self) -> bool:
        """Whether requests may wait for it in the store."""
        return self.backlog or self.needs_look

    @property
    def lends(self) -> bool:
        """Whether it lends slots at all, whatever waits in the store."""
        return (
            self.rate is None
            and self.is_ready
            and self.decodes
            and (self.circuit is None or self.circuit.is_closed)
        )

    def offer(self, now: float) -> Offer | None:
        """Return what may be taken from the store now, None for nothing."""
        free = self.free if self.circuit is None else self.circuit.room(now, self.free)
        if free < 1 or now < self.rests or not self.is_ready:
            return None
        trial = self.circuit is not None and self.circuit.state == "half-open"
        return Offer(self.address, tuple(self.actions), free, self.rate, trial)

    def waits(self, now: float) -> float:
        """Return in how many seconds more may be taken although no call ends; 0: none until one ends."""
        if self.free < 1:
            return 0.0
        shut = 0.0 if self.circuit is None else self.circuit.remaining(now)
        return max(shut, self.rests - now, 0.0)

    def took(self, offer: Offer, count: int, again: float | None, now: float) -> None:
        """Record how many requests an offer brought.

        ``again``: in how many seconds the rate lets more begin; None: now.
        """
        self.backlog = count >= offer.slots or again is not None
        if again is not None:
            self.rests = now + again

    def note_decoding(self, now: float, *, works: bool) -> None:
        """Record whether an encoded request could be decoded. After two in a row that could not, the next
        ones are left to other processes for a while; a single one may be at fault itself.
        """
        if not works and not self.decodes:
            self.rests = max(self.rests, now + _LEFT_TO_OTHERS)
        self.decodes = works

    def count_end(self, attempt: Attempt, message: TaskMessage | None, now: float) -> None:
        """Count a call that has ended; ``message``: its answer."""
        self.free += 1
        self.running -= 1
        if attempt.phase == "overdue":
            self.overdue -= 1
        self.calls += 1
        self.seconds += now - attempt.began
        share = 1.0
        if message is None or (message.kind == "gave_up" and not attempt.cancelled):
            self.failures += 1
            share = 0.0
        if share != self.success:  # the first twenty calls weigh the same: a plain mean
            self.success += max(_RECENT, 1 / self.calls) * (share - self.success)

    def info(self, now: float) -> AgentInfo:
        """Return what the process publishes of this agent."""
        mean = self.seconds / self.calls if self.calls else 0.0
        state, reset, most = "", 0.0, self.size
        answer_age = action_answer_age = None
        failing: tuple[FailingStep, ...] = ()
        if self.circuit is not None:
            state, reset, most = self.circuit.state, self.circuit.remaining(now), self.circuit.most
            evidence = self.circuit.evidence
            answer_age, action_answer_age = (
                None if at is None else round(now - at, 3)
                for at in (evidence.answer_at, evidence.action_answer_at)
            )
            failing = tuple(
                replace(each, last=round(now - each.last, 3)) for each in evidence.failing[:_SHOWN]
            )
        return AgentInfo(
            self.address, self.size, self.running, self.calls, self.failures, mean, self.success if self.calls else None,
            state, round(reset, 3), most, self.rate, self.overdue, answer_age, failing, action_answer_age,
        )  # fmt: skip

    def latest_failure_bound(self, request: Request, now: float) -> float:
        """Return a time at or after the last failure of a request's step. It is not its first attempt.

        ``now``: the request was just taken. Between a failure and the next request lies the declared wait,
        except before a probe.
        """
        policy = self.actions[request.action]._policy
        wait = {"do": policy.wait, "undo": policy.undo_wait}.get(request.doing, 0.0)
        return now - request.waited - wait
