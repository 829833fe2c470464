"""The Scheduler's reads: the inbox of its tasks, and the tasks themselves when memory may be wrong."""

from makegood import saga
from makegood.actor.slot_pool import SlotPool, in_memory, resend
from makegood.errors import StoreUnavailableError
from makegood.model.messages import TaskMessage
from makegood.model.shape import HeldTask
from makegood.model.states import UNBEGUN
from makegood.scheduler.doubts import unfit
from makegood.scheduler.task_memory import weigh
from makegood.scheduler.turns import Turns
from makegood.store.protocol import Tasks
from makegood.store.records import MOST_LOST, Loaded


class StoreReader:
    """Brings a Scheduler's memory up to what the store has for its tasks."""

    def __init__(self, store: Tasks, agents: SlotPool, turns: Turns) -> None:
        self._store = store
        self._agents = agents
        self._turns = turns
        self._tasks = turns.tasks

    async def read_inbox(self) -> None:
        """Read the inbox, except the messages that turns under way have taken: they are still in the
        store.
        """
        self._tasks.wakeups.inbox = False
        tasks, inbox_rows = self._tasks, self._turns.inbox_rows()
        claims = self._turns.claims
        at_rest = not claims.is_stocked
        inbox = await self._store.inbox(tasks.node, 10_000, tasks.weights.portion, at_rest=at_rest)
        for task, messages in inbox.messages.items():
            fresh = [m for m in messages if m.seq not in inbox_rows]
            if task in tasks.in_memory:
                seqs = {m.seq for m in tasks.messages.get(task, ())}
                if fresh := [m for m in fresh if m.seq not in seqs]:
                    tasks.messages.setdefault(task, []).extend(fresh)
                    tasks.weights.grow(task, sum([len(m.value) for m in fresh if m.value is not None]))
            elif fresh:  # the store says that it is ours, memory does not: read it
                tasks.reload.add(task)
        claims.call(inbox.at_rest, are_all=at_rest)
        self._tasks.wakeups.inbox = self._tasks.wakeups.inbox or inbox.more

    async def read_again(self) -> None:
        """Read tasks again that memory may be wrong about; release those that no longer belong to us."""
        tasks = self._tasks
        ids = set(tasks.portion())
        tasks.reload -= ids
        if tasks.reload:
            tasks.wakeups.wake()
        node = tasks.node
        try:
            answers = await self._load(node, sorted(ids))
        except Exception:
            tasks.reload |= ids
            raise
        messages = {task: tasks.messages.pop(task, []) for task in ids}
        if any(message.seq for inbox in messages.values() for message in inbox):
            tasks.wakeups.wake_for_inbox()  # one that came while the store was read is perhaps not in the answers
        for task in ids:
            tasks.forget(task)
        if node != tasks.node:  # declared dead meanwhile: they are no longer ours
            answers = []
        for each in answers:
            try:
                held_task, waiting = restore(each)
            except Exception as defect:  # noqa: BLE001 - one task's trouble must not stop the others
                self._turns.listeners.defect(defect)
                self._turns.doubts.unfit[each.task.id] = unfit(each.task.id, defect)
                tasks.wakeups.wake()
                continue
            waiting += [m for m in messages.pop(each.task.id) if in_memory(m)]
            tasks.in_memory[each.task.id] = held_task
            tasks.weights.put(each.task.id, weigh(held_task, waiting))
            if waiting:
                tasks.messages[each.task.id] = waiting
            tasks.arm(each.task.id, each.due)
        resend(self._agents, tasks.node, messages)

    async def _load(self, node: int, tasks: list[int]) -> list[Loaded]:
        """Read tasks; one that cannot even be read alone is to be put to error."""
        try:
            return await self._store.load(node, tasks)
        except StoreUnavailableError:
            raise
        except Exception as defect:  # noqa: BLE001 - one task's trouble must not stop the others
            if len(tasks) > 1:
                middle = len(tasks) // 2
                return await self._load(node, tasks[:middle]) + await self._load(node, tasks[middle:])
            self._turns.doubts.condemn(tasks[0], defect)
            return []

    async def put_to_error(self) -> None:
        """Put tasks to error that are ours and cannot be decided."""
        unfit = self._turns.doubts.unfit
        for task, reason in list(unfit.items()):
            del unfit[task]
            try:
                await self._store.put_to_error(self._tasks.node, task, reason)
            except StoreUnavailableError:
                unfit[task] = reason
                raise
            self._tasks.forget(task)


def restore(task: Loaded) -> tuple[HeldTask, list[TaskMessage]]:
    """Return a task that was read, ready to be held, and the messages that wait for it, in order.

    A sleep until a moment is looked at whatever its timer says: the calendar may have been set since.
    """
    held_task = saga.hold(task.task, task.steps, task.signals)
    messages = saga.repair(held_task, task.messages)
    due = [
        TaskMessage("retry", idx)
        for idx, wait in task.due.items()
        if held_task.steps[idx].waiting and (wait <= 0 or saga.is_until(held_task.steps[idx].plan))
    ]
    claim = [TaskMessage("lane_taken")] if task.lane_taken else []
    if task.task.state in UNBEGUN and not task.sleeps:
        claim.append(TaskMessage("claim"))
        if task.task.lost >= MOST_LOST:
            claim.append(TaskMessage("poison"))
    return held_task, claim + messages + task.messages + due
