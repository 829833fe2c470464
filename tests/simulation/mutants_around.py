"""Mutants of what lies around the engine: notices, messages, circuits, retention."""

import itertools
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace as changed

from makegood.agent import circuit_watch
from makegood.agent.circuit_watch import CircuitWatch
from makegood.agent.slots import Slots
from makegood.declare.inbox import Inbox, check_answer
from makegood.messaging.inbox import Acceptor
from makegood.model.blame import Evidence
from makegood.model.breaker import Circuit
from makegood.model.notices import ENDS, Notice
from makegood.model.plan import Plan
from makegood.model.queue_message import QueueMessage
from makegood.saga import rules
from makegood.store import queue_operations, upkeep
from makegood.store.queue_records import Outgoing, Sent
from makegood.store.sqlite import notices, slices
from makegood.store.sqlite.transaction import WriteTransaction as Writing
from makegood.store.transaction import Sql
from makegood.transactions import Caller
from makegood.transactions.transaction import Transaction
from proofs.storms.surroundings import RECEIVING, Around
from tests.simulation.mutants_making import mutant
from tests.simulation.mutants_worlds import APART, FAULTS_OF_ALL_KINDS

TOLD = replace(
    FAULTS_OF_ALL_KINDS,
    tasks=6,
    around=Around(told=1.0, hooks=0.4, consumers=2, faults=dict.fromkeys(RECEIVING, 0.2)),
    points={"kill": 0.004, "stop": 0.002},
)
"""Everybody wants to be told, and those who listen are killed and stopped like all others."""
QUEUED = replace(
    TOLD, around=Around(told=1.0, consumers=2), points={"kill": 0.01, "stop": 0.01}, rates={"kill": 0.5}
)
"""The same by queue alone, in worse weather."""


@mutant(TOLD, "place_order")
def notice_lost(m: pytest.MonkeyPatch) -> None:
    """The end of a task is written without its notice."""
    true = notices.write

    def forgetful(tx: Writing, batch: list[Notice]) -> None:
        if remainder := [notice for notice in batch if notice.state not in ENDS]:
            true(tx, remainder)

    m.setattr(notices, "write", forgetful)


@mutant(QUEUED, "place_order")
def notice_before_the_commit(m: pytest.MonkeyPatch) -> None:
    """A notice is sent in a transaction of its own, before the state change that it reports."""
    true = slices.TaskSlice.commit

    async def hasty(self: slices.TaskSlice, batch: Any) -> Any:
        early = [notice for decision in batch.decisions for notice in decision.notices]
        if early:
            await self._db.write(partial(notices.write, batch=early))
            for decision in batch.decisions:
                decision.notices.clear()
        return await true(self, batch)

    m.setattr(slices.TaskSlice, "commit", hasty)


@mutant(QUEUED, "place_order")
def notice_out_of_order(m: pytest.MonkeyPatch) -> None:
    """A queue gives a task's next notice to one receiver while another still has the one before."""
    candidates = copy(queue_operations.CANDIDATES)
    candidates.sqlite = candidates.sqlite.replace("task is null or", "true or")
    m.setattr(queue_operations, "CANDIDATES", candidates)


SENT = replace(
    QUEUED,
    around=Around(
        told=0.5, consumers=1, sent=1.0, inboxes=2, faults={"handler fails": 0.1, "sent twice": 0.5}
    ),
)
"""Orders come as messages, some of them twice."""


@mutant(SENT, "place_order")
def acknowledged_without_the_task(m: pytest.MonkeyPatch) -> None:
    """An inbox acknowledges a message in a transaction of its own, before the task that it becomes."""

    async def hasty(self: Acceptor, inbox: Inbox[Any], message: QueueMessage) -> Any:
        payload = inbox._read(message.body)
        await self._store.queues.acknowledge_messages([(message.seq, message.tries)])

        async def work(caller: Caller) -> Any:
            plan = check_answer(inbox, await self._call(inbox, payload, Transaction(caller, None, message)))
            assert isinstance(plan, Plan)
            return await self._submit(caller, plan, message)

        return await self._store.transact(work, waits=inbox.waits)

    m.setattr(Acceptor, "accept", hasty)


@mutant(SENT, "place_order")
def messages_not_deduplicated(m: pytest.MonkeyPatch) -> None:
    """A queue takes a message again that it knows by its id."""
    true, counter = slices.QueueSlice.send_messages, itertools.count()

    async def forgetful(
        self: slices.QueueSlice, messages: Sequence[Outgoing], most: int, most_bytes: int
    ) -> list[Sent]:
        copies = [changed(one, id=f"{one.id}#{next(counter)}") for one in messages]
        return await true(self, copies, most, most_bytes)

    m.setattr(slices.QueueSlice, "send_messages", forgetful)


FORGETFUL = replace(
    TOLD, around=Around(told=1.0, hooks=1.0, keep=20.0), services={}, points={}, messages={}, layout=APART
)
"""What has ended is removed soon, while webhooks that fail are still to be told."""


@mutant(FORGETFUL, "lone")
def removed_before_it_was_told(m: pytest.MonkeyPatch) -> None:
    """The janitor removes a task although its submitter's webhook has not received everything."""
    line = "or exists (select 1 from makegood.listener l where l.task between x.task and x.task)"
    assert line in upkeep._KEEPS
    m.setattr(upkeep, "KEPT", Sql("", upkeep.KEPT.sqlite.replace(line.replace("makegood.", "makegood_"), "")))


GUARDED = replace(
    FAULTS_OF_ALL_KINDS,
    layout=APART,
    tasks=12,
    storm=20.0,
    points={},
    messages={},
    services={"service fails": 0.7, "service hangs": 0.1},
    pace=1.5,
    around=Around(guarded=True),
)
"""Agents with breakers, whose services fail more often than not."""


@mutant(GUARDED, "lone")
def counted_while_open(m: pytest.MonkeyPatch) -> None:
    """A failure that was under way when the circuit opened counts for its step."""
    true = Circuit.record_end

    def counting(
        self: Circuit, ticket: int, outcome: Any, now: float, jitter: float = 0.0, **how: Any
    ) -> bool:
        own = ticket == self._term
        return true(self, ticket, outcome, now, jitter, **how) or not own

    m.setattr(Circuit, "record_end", counting)


@mutant(GUARDED, "lone")
def canary_counted(m: pytest.MonkeyPatch) -> None:
    """A trial call that fails counts for its step."""
    true = Circuit.record_end

    def counting(
        self: Circuit, ticket: int, outcome: Any, now: float, jitter: float = 0.0, **how: Any
    ) -> bool:
        canary = ticket == self._term and self.state == "half-open"
        return true(self, ticket, outcome, now, jitter, **how) or canary

    m.setattr(Circuit, "record_end", counting)


@mutant(GUARDED, "lone")
def counted_without_an_answer(m: pytest.MonkeyPatch) -> None:
    """A repeated attempt counts for its step although the service has answered nobody since it failed last."""
    m.setattr(Slots, "latest_failure_bound", lambda _self, _request, _now: None)


POISONED = replace(GUARDED, tasks=16, storm=10.0, services={})
"""Agents with breakers, whose services answer all but one step, which they fail forever."""


@mutant(replace(POISONED, tasks=1, calm_down=90.0), "poisoned_with_probe")
def probe_says_nothing(m: pytest.MonkeyPatch) -> None:
    """Neither the rules nor the circuit take the answer of a step's own probe for one, and nobody else calls."""
    m.setattr(rules, "excuses", lambda step, message: message.excused and not step.again)
    for kind in ("happened", "not_happened"):
        m.setitem(circuit_watch._SAYS, kind, "neither")


@mutant(POISONED, "poisoned")
def nobody_is_to_blame(m: pytest.MonkeyPatch) -> None:
    """A step that is left alone is asked again forever."""
    m.setattr(Evidence, "blames", lambda _self, _caller: False)


@mutant(GUARDED, "lone")
def everybody_is_to_blame(m: pytest.MonkeyPatch) -> None:
    """A repeated attempt counts although other steps fail as well."""
    m.setattr(Evidence, "blames", lambda _self, caller: caller.failures > 0)


@mutant(GUARDED, "lone")
def taken_while_open(m: pytest.MonkeyPatch) -> None:
    """An agent takes requests although its circuit is open."""
    m.setattr(Circuit, "room", lambda _self, _now, free: free)
    m.setattr(CircuitWatch, "shut", lambda _self, _slots: False)
