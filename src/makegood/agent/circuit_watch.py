"""Reports the outcome of calls to circuit breakers, and excuses calls that they rule out: see ``breaker``."""

import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping

from makegood.agent.intake import Intake
from makegood.agent.reply_sender import Entry
from makegood.agent.slots import Slots
from makegood.base.clock import Clock
from makegood.base.ids import address
from makegood.channels.protocol import Channel
from makegood.errors import StoreUnavailableError
from makegood.model.attempt import Attempt
from makegood.model.blame import CallingStep
from makegood.model.breaker import SHUT, UNCOUNTED, Outcome
from makegood.model.messages import Request, TaskMessage

log = logging.getLogger("makegood.agent")

_SAYS: Mapping[str, Outcome] = {
    "done": "answered", "happened": "answered", "not_happened": "answered", "permanent": "answered", "refused": "answered",
    "later": "later", "gave_up": "failed",
}  # fmt: skip


class CircuitWatch:
    """Watches the calls of one process for its circuits.

    ``node``: returns the process's number. ``on_change``: called when a circuit opens, is released or closes.
    ``inform``: lets the circuit of an address know what other processes do.
    """

    def __init__(
        self,
        channel: Channel,
        intake: Intake,
        *,
        node: Callable[[], int],
        on_change: Callable[[], None],
        inform: Callable[[str], Awaitable[None]],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.excuses: list[tuple[int, int, int, int]] = []
        """(node, task, idx, attempt) of silences that must not be counted, not yet reported to the store."""
        self._channel = channel
        self._intake = intake
        self._node = node
        self._on_change = on_change
        self._inform = inform
        self._clock = clock
        self._rng = rng

    def shut(self, slots: Slots) -> bool:
        """Return whether a request that was just taken must not begin: its circuit has opened."""
        return slots.circuit is not None and slots.circuit.remaining(self._clock.monotonic()) > 0

    async def inform(self, slots: Slots, request: Request) -> None:
        """Before a step that has failed is asked again, read what other processes know of its service."""
        if slots.circuit is not None and slots.circuit.evidence.matters(_caller(slots, request)):
            await self._inform(slots.address)

    def judge(
        self, slots: Slots, attempt: Attempt, message: TaskMessage | None, running: Iterable[Attempt]
    ) -> bool:
        """Report once to the agent's circuit how a call ended; ``message``: its answer, None for silence.

        Returns whether a failure counts for the step as well. Silence that does not count is excused. When
        the circuit opens, so are the agent's calls among those ``running``.
        """
        circuit, ticket = slots.circuit, attempt.ticket
        if circuit is None or ticket is None:
            return True
        attempt.ticket = None
        before, now = circuit.state, self._clock.monotonic()
        outcome = _outcome(attempt, message, now)
        counts = circuit.record_end(
            ticket, outcome, now, self._rng.random(),
            since=attempt.since, caller=_caller(slots, attempt.request), first_failure=attempt.had_failed,
        )  # fmt: skip
        counts = counts or outcome != "failed"
        after = circuit.state
        if not counts and (message is None or self._clock.monotonic() > attempt.deadline):
            self._excuse(attempt)  # nobody will hear what it says: its silence is what may be counted
            self._intake.wake.set()
        if before != "closed" or after != "closed":
            self._intake.wake.set()  # there may be room now, or a moment to wait for
        if after == "open" and before != "open":
            self._excuse_running(slots, running)
        if (before == "closed", before in SHUT) != (after == "closed", after in SHUT):
            log.warning("the circuit of %s is %s", slots.address, circuit.describe(self._clock.monotonic()))
            self._on_change()
        return counts

    def _excuse_running(self, slots: Slots, running: Iterable[Attempt]) -> None:
        """Excuse the calls under way when their circuit opened: how they end does not count."""
        for attempt in running:
            request = attempt.request
            if attempt.ticket is not None and address(request.app, request.agent) == slots.address:
                self._excuse(attempt)
        self._on_change()

    def _excuse(self, attempt: Attempt) -> None:
        request = attempt.request
        attempt.ticket = None if attempt.ticket is None else UNCOUNTED
        self.excuses.append((attempt.node, request.task, request.idx, request.attempt))

    def cut_off(
        self, slots: Mapping[str, Slots], running: Iterable[Attempt], unsent: Iterable[Entry]
    ) -> None:
        """Excuse the calls and replies that the end of the process cuts off, if their failure would not
        count.
        """
        self.excuses += [
            (node, task, message.idx, message.attempt) for node, task, message in unsent if message.excused
        ]
        for attempt in running:
            own = slots[address(attempt.request.app, attempt.request.agent)]
            circuit, ticket = own.circuit, attempt.ticket
            if circuit is None or ticket is None:
                continue
            if not circuit.counts(ticket, attempt.since, _caller(own, attempt.request)):
                self._excuse(attempt)

    async def excuse(self) -> None:
        """Report to the store the attempts whose silence must not be counted.

        Raises ``StoreUnavailableError``; then they are still to be reported.
        """
        telling, self.excuses, node = self.excuses, [], self._node()
        try:
            await self._channel.excuse(
                node, [(task, idx, attempt) for by, task, idx, attempt in telling if by == node]
            )
        except StoreUnavailableError:
            self.excuses = telling + self.excuses
            raise


def _caller(slots: Slots, request: Request) -> CallingStep:
    """Return the step that a request is about."""
    probe = slots.actions[request.action]._policy.probe
    return CallingStep(request.task, request.idx, request.step, request.doing, request.failures, probe)


def _outcome(attempt: Attempt, message: TaskMessage | None, now: float) -> Outcome:
    """Return what an attempt shows about its service."""
    in_function = attempt.phase != "waiting"
    if message is not None and message.kind == "gave_up" and attempt.cancelled:
        return "neither"  # it ended because nobody needs it
    if message is None or now > attempt.deadline:
        return "failed" if in_function and now >= attempt.deadline else "neither"
    return _SAYS[message.kind] if in_function and not message.final else "neither"
