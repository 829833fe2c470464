"""The Scheduler's reads: the inbox of its tasks, and the tasks themselves when memory may be wrong."""

from makegood import saga
from makegood.actor.slot_pool import SlotPool, in_memory, resend
from makegood.errors import StoreUnavailableError
from makegood.model.messages import TaskMessage
from makegood.model.shape import HeldTask
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
        tasks, taken = self._tasks, self._turns.inbox_rows()
        inbox = await self._store.inbox(tasks.node, 10_000, tasks.weights.portion)
        for task, messages in inbox.messages.items():
            fresh = [m for m in messages if m.seq not in taken]
            if task in tasks.held:
                known = {m.seq for m in tasks.messages.get(task, ())}
                if fresh := [m for m in fresh if m.seq not in known]:
                    tasks.messages.setdefault(task, []).extend(fresh)
                    tasks.weights.grow(task, sum([len(m.value) for m in fresh if m.value is not None]))
            elif fresh:  # the store says that it is ours, memory does not: read it
                tasks.reload.add(task)
        self._turns.claims.at_rest = inbox.at_rest
        self._tasks.wakeups.inbox = self._tasks.wakeups.inbox or inbox.more

    async def read_again(self) -> None:
        """Read tasks again that memory may be wrong about; release those that no longer belong to us."""
        tasks = self._tasks
        wanted = set(tasks.portion())
        tasks.reload -= wanted
        if tasks.reload:
            tasks.wakeups.ring()
        node = tasks.node
        try:
            found = await self._load(node, sorted(wanted))
        except Exception:
            tasks.reload |= wanted
            raise
        heard = {task: tasks.messages.pop(task, []) for task in wanted}
        for task in wanted:
            tasks.forget(task)
        if node != tasks.node:  # declared dead meanwhile: they are no longer ours
            found = []
        for loaded in found:
            try:
                held, waiting = restored(loaded)
            except Exception as defect:  # noqa: BLE001 - one task's trouble must not stop the others
                self._turns.listeners.defect(defect)
                self._turns.doubts.unfit[loaded.task.id] = unfit(loaded.task.id, defect)
                tasks.wakeups.ring()
                continue
            waiting += [m for m in heard.pop(loaded.task.id) if in_memory(m)]
            tasks.held[loaded.task.id] = held
            tasks.weights.put(loaded.task.id, weigh(held, waiting))
            if waiting:
                tasks.messages[loaded.task.id] = waiting
            tasks.arm(loaded.task.id, loaded.due)
        resend(self._agents, tasks.node, heard)

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
        found = self._turns.doubts.unfit
        for task, reason in list(found.items()):
            del found[task]
            try:
                await self._store.put_to_error(self._tasks.node, task, reason)
            except StoreUnavailableError:
                found[task] = reason
                raise
            self._tasks.forget(task)


def restored(loaded: Loaded) -> tuple[HeldTask, list[TaskMessage]]:
    """Return a task that was read, ready to be held, and the messages that wait for it, in order."""
    held = saga.hold(loaded.task, loaded.steps)
    missed = saga.repair(held, loaded.messages)
    due = [
        TaskMessage("retry", idx) for idx, wait in loaded.due.items() if wait <= 0 and held.steps[idx].waiting
    ]
    claim: list[TaskMessage] = []
    if loaded.task.state == "pending":
        claim.append(TaskMessage("claim"))
        if loaded.task.lost >= MOST_LOST:
            claim.append(TaskMessage("poison"))
    return held, claim + missed + loaded.messages + due
