"""Tasks that a Scheduler holds from the beginning: they are submitted in its own process.

Such a task never waits to be claimed. Its first Decision is made before it is written at all; if that only dispatches first
steps, task, steps, first requests and history are one commit, and the requests are handed over in memory when it is done.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from makegood import saga
from makegood.base.clock import Clock
from makegood.base.ids import address
from makegood.errors import MakegoodError
from makegood.model.decision import Decision
from makegood.model.messages import Request
from makegood.model.shape import Held
from makegood.model.task import Step, Task
from makegood.store.records import Draft


class Lender(Protocol):
    """What is needed of the agents in the same process."""

    def knows(self, address: str, action: str) -> bool:
        """Return whether this process runs that action."""
        ...

    def lend(self, address: str) -> bool:
        """Set one slot of an agent aside, if it may be had now."""
        ...

    def restore(self, unused: Mapping[str, int]) -> None:
        """Take back slots that were set aside and not used."""
        ...

    def hand(self, request: Request, began: float) -> None:
        """Begin a request in a slot set aside."""
        ...

    def backlogged(self, address: str) -> None:
        """Note that a request for this agent went to the store."""
        ...


def give_back(agents: Lender | None, unused: Iterable[Request]) -> None:
    """Give slots back that were set aside for requests that do not come."""
    if agents is not None:
        for request in unused:
            agents.restore({address(request.app, request.agent): 1})


@dataclass(slots=True)
class _Expected:
    held: Held
    began: float


class Births:
    """The tasks of one Scheduler that are being submitted. ``agents``: those of the same process, if any."""

    def __init__(self, agents: Lender | None, clock: Clock) -> None:
        self._agents = agents
        self._clock = clock
        self._beginnings = saga.Beginnings()
        self._expected: dict[int, _Expected] = {}

    def __len__(self) -> int:
        """Return how many are being written."""
        return len(self._expected)

    def expect(self, draft: Draft, node: int) -> Draft:
        """Return the draft as it is to be written, held by ``node``; ``born`` must follow."""
        task = Task(
            draft.id, draft.app, draft.workflow, draft.key, on_failure=draft.on_failure, priority=draft.priority, epoch=1,
            within=draft.within, undo_within=draft.undo_within, inputs=draft.inputs, returns=draft.returns, trace=draft.trace,
            reply=draft.reply, told=draft.told, notified=draft.notified,
        )  # fmt: skip
        first: Decision | None = None
        try:
            held, first = self._beginnings.begin(task, draft.steps)
        except MakegoodError:
            # Found again, told and put to error when the task is decided as all others are.
            held = saga.hold(task, map(Step, draft.steps))
        self._expected[draft.id] = _Expected(held, self._clock.monotonic())
        if first is None or task.reply is not None:
            # What its submitter is told goes with a Decision of its own.
            return replace(draft, holder=node)
        here = self._here(first)
        if here is None or (here and not self._lent(first)):
            return replace(draft, holder=node)
        return replace(draft, holder=node, first=first, handed=here)

    def held(self, task: int) -> Held:
        """Return a task that is being written, as it will be held."""
        return self._expected[task].held

    def _here(self, first: Decision) -> bool | None:
        """Return whether agents of this process run what is asked for; None when they run some of it only."""
        agents = self._agents
        if agents is None:
            return False
        known = [agents.knows(address(r.app, r.agent), r.action) for r in first.requests]
        return True if all(known) else None if any(known) else False

    def _lent(self, first: Decision) -> bool:
        """Set a slot aside for each request, or none."""
        agents = self._agents
        assert agents is not None
        lent: dict[str, int] = {}
        for request in first.requests:
            where = address(request.app, request.agent)
            if not agents.lend(where):
                agents.restore(lent)
                return False
            lent[where] = lent.get(where, 0) + 1
        return True

    def born(self, draft: Draft, *, created: bool) -> Held | None:
        """Return the task that was written, as it is to be held; None when it was not.

        Call ``dispatch`` next, or ``lose`` when it belongs to nobody here any more.
        """
        expected = self._expected[draft.id]
        if not created:
            self.lose(draft)
            return None
        if draft.first is not None:
            saga.apply(expected.held, draft.first)
        return expected.held

    def dispatch(self, draft: Draft) -> None:
        """Hand over the requests that were written with the task."""
        expected = self._expected.pop(draft.id)
        if self._agents is None or draft.first is None:
            return
        for request in draft.first.requests:
            if draft.handed:
                self._agents.hand(request, expected.began)
            else:
                self._agents.backlogged(address(request.app, request.agent))

    def lose(self, draft: Draft) -> None:
        """Give back what was set aside for a task that does not come, or belongs to others."""
        del self._expected[draft.id]
        if draft.handed and draft.first is not None:
            give_back(self._agents, draft.first.requests)
