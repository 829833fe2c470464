"""A signal that waits in memory has one owner: a turn that has its message, or its sender, which then sends it through the store."""

import asyncio

from makegood import saga
from makegood.model.messages import TaskMessage
from makegood.model.plan import StepPlan
from makegood.model.task import Step, TaskRecord
from makegood.store.records import Committed
from makegood.store.signals import OutgoingSignal, Signalled
from tests.unit.scheduler_parts import Parts


class Desk:
    """The parts of a Scheduler that holds task 7, which waits for an approval."""

    def __init__(self) -> None:
        self.parts = Parts()
        self.signals = self.parts.signals
        self.signals.open()
        task = TaskRecord(7, "shop", "order", state="processing", epoch=1, signals=(("approval", ""),))
        wait = StepPlan(0, "wait_for", "approval", action="approval")
        self.parts.tasks.in_memory[7] = saga.hold(task, [Step(wait, state="ready")])

    async def sent(self) -> "asyncio.Task[Signalled | None]":
        """Send an approval, and return when its message waits."""
        signal = OutgoingSignal(to=7, name="approval", id="a", value=b"true")
        sending = asyncio.ensure_future(self.signals.send(signal, self.parts.commits.writing.values()))
        await asyncio.sleep(0)
        return sending

    def taken(self) -> dict[int, list[TaskMessage]]:
        """Take what waits, as a turn does that is about to begin."""
        inbox, self.parts.tasks.messages = self.parts.tasks.messages, {}
        return inbox


async def test_a_turn_that_has_the_message_keeps_it_before_it_begins_and_writes_the_signal() -> None:
    desk = Desk()
    sending, inbox = await desk.sent(), desk.taken()
    for waiting in (False, True):
        desk.signals.leave([inbox], waiting=waiting)
    await desk.parts.commits.carry_out(inbox, None)
    assert await sending == Signalled("a", created=True, task="0000000000007")
    ((decision,),) = [batch.decisions for batch in desk.parts.store.commits]
    assert decision.new_signal is not None
    assert [*decision.used_signals] == [("approval", "a", 0)]
    assert desk.signals.drafts == {}


async def test_a_message_that_was_dropped_leaves_the_signal_to_its_sender() -> None:
    desk = Desk()
    sending = await desk.sent()
    desk.signals.leave([])
    assert not sending.done()
    desk.taken()
    desk.signals.leave([])
    assert await sending is None


async def test_what_is_left_to_its_sender_is_not_decided_too() -> None:
    desk = Desk()
    sending = await desk.sent()
    desk.parts.tasks.hear(7, TaskMessage("retry", 0))
    desk.signals.leave([], waiting=True)
    assert await sending is None
    assert [m.kind for m in desk.parts.tasks.messages[7]] == ["retry"]


async def test_a_decision_that_is_lost_leaves_it_to_its_sender_and_is_not_reported_as_refused() -> None:
    desk = Desk()
    sending, inbox = await desk.sent(), desk.taken()
    desk.parts.store.committed = lambda _batch: Committed(losses={7})
    await desk.parts.commits.carry_out(inbox, None)
    assert await sending is None
    assert (desk.parts.tasks.reload, desk.parts.tasks.messages, desk.parts.store.refused) == ({7}, {}, [])


async def test_when_the_scheduler_ends_all_are_left_to_their_senders() -> None:
    desk = Desk()
    sending = await desk.sent()
    desk.signals.close()
    assert await sending is None
    assert await (await desk.sent()) is None
