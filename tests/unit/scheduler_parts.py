"""The parts of a Scheduler without its loop, on a store that only answers."""

import random
from collections.abc import Callable, Sequence
from typing import Any, cast

from makegood import saga
from makegood.base.clock import SystemClock
from makegood.model.messages import TaskMessage
from makegood.model.plan import StepPlan
from makegood.model.task import Step, TaskRecord
from makegood.scheduler.claims import Claims
from makegood.scheduler.commits import Commits
from makegood.scheduler.eager_signals import EagerSignals
from makegood.scheduler.store_reader import StoreReader
from makegood.scheduler.task_table import TaskTable
from makegood.scheduler.turns import Listeners, Turns
from makegood.scheduler.wakeups import Wakeups
from makegood.store.records import Batch, Committed, Loaded, TaskMessages
from tests.unit.slot_pools import Pool

MINE = 1


class Answers:
    """A store that answers with what it was given."""

    def __init__(self) -> None:
        self.commits: list[Batch] = []
        self.committed: Callable[[Batch], Committed] = lambda _batch: Committed()
        self.messages: dict[int, list[TaskMessage]] = {}
        self.at_rest: list[int] = []
        self.loaded: list[Loaded] = []
        self.loads: list[Sequence[int]] = []
        self.meanwhile: Callable[[], object] = lambda: None
        self.put: list[tuple[int, str]] = []
        self.refused: list[tuple[int, int, int]] = []

    def subscribe(self, _topic: str, _ring: Callable[[], None]) -> Callable[[], None]:
        """Ring for nothing."""
        return lambda: None

    def clock(self) -> float:
        """Return the store's time."""
        return 1_800_000_000.0

    calendar = clock

    async def commit(self, batch: Batch) -> Committed:
        """Answer a commit."""
        self.commits.append(batch)
        return self.committed(batch)

    async def inbox(self, _node: int, _limit: int, _room: int, *, at_rest: bool = True) -> TaskMessages:
        """Answer with the messages, and with the tasks at rest if they are wanted."""
        self.meanwhile()
        return TaskMessages(self.messages, self.at_rest if at_rest else [])

    async def load(self, _node: int, tasks: Sequence[int]) -> list[Loaded]:
        """Answer with the tasks."""
        self.loads.append(tasks)
        self.meanwhile()
        return [snapshot for snapshot in self.loaded if snapshot.task.id in tasks]

    async def put_to_error(self, _node: int, task: int, reason: str) -> None:
        """Note it."""
        self.put.append((task, reason))

    async def overtaken(self, node: int, losses: Sequence[tuple[int, int]]) -> None:
        """Note which Decisions were refused."""
        self.refused += [(node, *each) for each in losses]


class Parts:
    """A Scheduler's parts. ``slots``: free slots of its agents."""

    def __init__(self, **slots: int) -> None:
        clock = SystemClock()
        self.store = Answers()
        self.pool = Pool({f"shop/{agent}": n for agent, n in slots.items()})
        self.defects: list[Exception] = []
        self.wakeups = Wakeups(self.store, clock, random.Random(1), None)
        self.tasks = TaskTable(clock, 2**20, self.wakeups)
        self.tasks.node = MINE
        self.claims = Claims(self.tasks, hold=10, most=5)
        self.turns = Turns(self.tasks, self.claims, Listeners(defect=self.defects.append), parallel_from=2)
        self.signals = EagerSignals(self.claims)
        store = cast("Any", self.store)
        self.commits = Commits(store, store, self.pool, self.turns, self.signals)
        self.reader = StoreReader(cast("Any", self.store), self.pool, self.turns)

    def hold(self, task: int, *plans: StepPlan) -> None:
        """Hold a task that nothing was decided on yet."""
        self.tasks.in_memory[task] = saga.hold(TaskRecord(task, "shop", "order", epoch=1), map(Step, plans))


def loaded(task: int, *plans: StepPlan, **fields: Any) -> Loaded:
    """Return a task as the store reads it."""
    return Loaded(TaskRecord(task, "shop", "order", epoch=1, **fields), [Step(plan) for plan in plans], [])
