"""Mutants of signals and of the steps that wait for them."""

from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pytest

from makegood.base.ids import parse
from makegood.model.messages import TaskMessage
from makegood.model.shape import KeptSignal
from makegood.model.task import Step
from makegood.saga import rules, signals
from makegood.saga.decision_builder import DecisionBuilder
from makegood.scheduler.eager_signals import EagerSignals
from makegood.scheduler.task_table import TaskTable
from makegood.scheduler.wakeups import Wakeups
from makegood.scheduler.waking_signal import WakingSignal
from makegood.store.sqlite import claim, decision_rows, slices
from makegood.store.sqlite import signals as sending
from tests.simulation.mutants_making import mutant
from tests.simulation.mutants_worlds import (
    APART,
    EVERY,
    FAULTS_OF_ALL_KINDS,
    QUICK,
    aimed,
    approving,
    approving_beside,
)

ASKING = replace(FAULTS_OF_ALL_KINDS, tasks=6, asking=1.0)
"""A little of everything, and all tasks wait for signals."""
UNHEARD = replace(ASKING, layout=APART, wake_loss=1.0, engine=replace(QUICK, poll_every=5.0))
"""The same, and Schedulers hear of signals only when they read their inbox, which is seldom."""


@mutant(ASKING)
def signal_used_twice(m: pytest.MonkeyPatch) -> None:
    """A signal that has ended a wait is still there for the next one."""

    def take(work: DecisionBuilder, step: Step) -> KeptSignal | None:
        signal = next((each for each in work.signals if rules.may_use(step, each)), None)
        if signal is not None:
            work.out.used_signals.append((signal.name, signal.id, step.plan.idx))
        return signal

    m.setattr(signals, "take", take)


@mutant(ASKING)
def early_signal_dropped(m: pytest.MonkeyPatch) -> None:
    """A signal that nobody waits for yet is used up and forgotten."""
    m.setitem(decision_rows._ROWS, "kept", decision_rows._ROWS["kept"] + " and 0")


@mutant(ASKING)
def newest_signal_first(m: pytest.MonkeyPatch) -> None:
    """Of the signals that are kept the last one is used first."""
    true = signals.take

    def take(work: DecisionBuilder, step: Step) -> KeptSignal | None:
        work.signals = [*reversed(work.signals)]
        signal = true(work, step)
        work.signals = [*reversed(work.signals)]
        return signal

    m.setattr(signals, "take", take)


@mutant(ASKING)
def signal_id_ignored(m: pytest.MonkeyPatch) -> None:
    """Each time that a signal is sent it is another one, whatever its id."""
    true, count = sending.send, iter(range(1_000_000))

    def send(tx: Any, signal: Any, act: Any) -> Any:
        answer = true(tx, msgspec.structs.replace(signal, id=f"{signal.id}/{next(count)}"), act)
        return msgspec.structs.replace(answer, id=signal.id)

    m.setattr(sending, "send", send)


@mutant(UNHEARD)
def timeout_unread(m: pytest.MonkeyPatch) -> None:
    """A wait times out at its moment, without a look at the inbox."""
    rest = Wakeups.rest

    async def for_a_timer(self: Wakeups, due: float | None) -> None:
        inbox = self.inbox
        await rest(self, due)
        if due is not None and self._clock.monotonic() >= due:
            self.inbox = inbox

    m.setattr(Wakeups, "rest", for_a_timer)

    def fire(self: TaskTable) -> None:
        for task, idx in self.timers.pop(self.clock.monotonic()):
            held_task = self.in_memory.get(task)
            if held_task is not None and held_task.steps[idx].waiting:
                self.messages.setdefault(task, []).append(TaskMessage("retry", idx))

    m.setattr(TaskTable, "fire", fire)


@mutant(ASKING)
def timeout_cut_short(m: pytest.MonkeyPatch) -> None:
    """A wait lasts for half of its timeout."""
    true = signals.timeout

    def timeout(step: Step) -> float | None:
        length = true(step)
        return None if length is None else length / 2

    m.setattr(signals, "timeout", timeout)


@mutant(ASKING)
def signals_left_behind(m: pytest.MonkeyPatch) -> None:
    """A Scheduler that takes a task over does not read the signals that the task keeps."""
    m.setattr("makegood.store.rows.may_wait", lambda _static: False)


LET_GO = replace(UNHEARD, engine=replace(QUICK, poll_every=5.0, linger=0.1))
"""Schedulers that hear late let go of what waits."""


@mutant(LET_GO)
def sleeper_not_rung(m: pytest.MonkeyPatch) -> None:
    """A message wakes no task that sleeps."""
    m.setattr(claim, "_AT_REST", claim._AT_REST.replace(", 'sleeping'", ""))


@mutant(replace(LET_GO, layout=EVERY, tasks=8, services={}, pace=2.0), twist=approving, within=24)
def woken_by_update(m: pytest.MonkeyPatch) -> None:
    """A signal wakes a task only if its sender sees that the task sleeps."""
    kind = (
        "case (select state from makegood_task where id = ?1) when 'sleeping' then 'signal' else 'quiet' end"
    )
    message = f"insert into makegood_inbox (task, kind, at, body) values (?1, {kind}, ?2, ?3)"
    m.setattr(sending, "_MESSAGE", message)
    by_message = "where task = makegood_task.id"
    condition = f"{by_message} and (makegood_task.state <> 'sleeping' or kind <> 'quiet')"
    m.setattr(claim, "_AT_REST", claim._AT_REST.replace(by_message, condition))

    async def through_the_store(*_: Any) -> None:
        """Leave each signal to the store, whose message this is about."""

    m.setattr(WakingSignal, "send", through_the_store)


@mutant(ASKING, twist=aimed("kill", "committed send", 0.5))
def signal_and_its_ring_apart(m: pytest.MonkeyPatch) -> None:
    """The message of a signal is written in a second transaction, once its row is durable."""
    insert, signal_ = sending._Tables.insert, slices.TaskSlice.signal

    async def without_message(self: Any, task: int, signal: Any, who: str) -> bool:
        ask = self._ask

        async def but_for_the_message(sql: str, *values: Any) -> Any:
            return [] if sql == sending._MESSAGE else await ask(sql, *values)

        self._ask = but_for_the_message
        return await insert(self, task, signal, who)

    async def apart(self: Any, signal: Any, act: Any = None) -> Any:
        answer = await signal_(self, signal, act)
        if answer.created:

            def ring(tx: Any) -> None:
                tx.connection.execute(sending._MESSAGE, (parse(answer.task), tx.now, signal.message))
                tx.topics.add("inbox")

            await self._db.write(ring)
        return answer

    m.setattr(sending._Tables, "insert", without_message)
    m.setattr(slices.TaskSlice, "signal", apart)


EAGER = replace(ASKING, layout=EVERY, engine=replace(QUICK, linger=60.0))
"""Tasks are held while they wait."""


@mutant(
    replace(EAGER, wake_loss=1.0, engine=replace(QUICK, poll_every=5.0, linger=60.0)), twist=approving_beside
)
def eager_signal_jumps_the_inbox(m: pytest.MonkeyPatch) -> None:
    """A Decision writes its new signal although the task's inbox has a message that came first."""
    true = decision_rows._NEW_SIGNAL
    m.setattr(decision_rows, "_NEW_SIGNAL", true.replace("where task = ?1", "where 0"))


@mutant(EAGER, twist=approving_beside)
def eager_signal_answered_before_its_commit(m: pytest.MonkeyPatch) -> None:
    """The sender of a signal has its answer before the Decision that writes it is committed."""
    true = EagerSignals.join

    def join(self: EagerSignals, inbox: Any, decisions: Any) -> None:
        true(self, inbox, decisions)
        for draft in self.drafts.values():
            if draft.is_decided and not draft.answer.done():
                draft.answer.set_result(True)

    m.setattr(EagerSignals, "join", join)


ASLEEP = replace(ASKING, layout=EVERY, engine=replace(QUICK, linger=0.1))
"""Tasks sleep while they wait."""


@mutant(ASLEEP, twist=partial(approving_beside, is_held=False))
def waking_signal_answered_although_its_task_was_not_claimed(m: pytest.MonkeyPatch) -> None:
    """A signal counts as written once its task was looked at, whether or not the task waits for it."""
    true = WakingSignal._answer
    m.setattr(WakingSignal, "_answer", lambda self, **_: true(self, is_written=True))
