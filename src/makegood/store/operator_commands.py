"""Operator commands to tasks, and the answers to them; with them, all verbs on tasks that stores share."""

from collections.abc import Sequence

from makegood.base.ids import show
from makegood.errors import TaskNotFoundError
from makegood.model.messages import Act, Answer, TaskMessage
from makegood.store import rows, search, task_excerpts, task_lists
from makegood.store.step_outcomes import step_outcomes
from makegood.store.transaction import ReadTx, Sql, Tx, Verbs, reading, writing
from makegood.store.views import Filter, TaskView

_THERE = Sql("select 1 from makegood.task where id = $1")
_ACT = Sql(
    "insert into makegood.inbox (task, kind, at, body, db_user) values ($1, $2, {now}, $3, session_user)",
    "insert into makegood.inbox (task, kind, at, body) values ($1, $2, {now}, $3)",
)
_ANSWERS = Sql(
    "select act, kind, who, why, verdict, reason, state, change from makegood.audit where act = any ($1::text[])"
)


async def post(tx: Tx, task: int, message: TaskMessage) -> None:
    """Put an operator command in a task's inbox. Raises ``TaskNotFoundError``."""
    if not await tx.rows(_THERE, task):
        raise TaskNotFoundError(
            f"there is no task {show(task)} in this store: see `makegood task list`", task_id=show(task)
        )
    await tx.run(_ACT, task, message.kind, rows.message(message))
    tx.topics.add("inbox")


async def answers(tx: ReadTx, acts: Sequence[str]) -> dict[str, Answer]:
    """Return the answers to operator commands, by act id; undecided ones are missing."""
    return {
        act: Answer(Act(act, who, why), kind, *rest)
        for act, kind, who, why, *rest in await tx.rows(_ANSWERS, list(acts))
    }


class TaskVerbs(Verbs):
    """The verbs on tasks that are the same for every store."""

    post = writing(post)
    answers = reading(answers)
    step_outcomes = reading(step_outcomes)
    history = reading(search.history)
    tally = reading(task_lists.tally)
    states = reading(task_lists.states)
    tally_unended = reading(task_lists.tally_unended)
    lately = reading(task_lists.lately)
    waits = reading(task_lists.waits)
    signal_waits = reading(task_lists.signal_waits)
    progress = reading(task_lists.progress)
    briefs = reading(task_lists.briefs)
    search = reading(task_lists.search)
    groups = reading(task_lists.groups)
    attribute_names = reading(task_lists.attribute_names)
    ids_by_key = reading(task_lists.ids_by_key)
    step_names = reading(task_excerpts.step_names)
    recent = reading(task_excerpts.recent)
    events_after = reading(task_excerpts.events_after)
    value = reading(task_excerpts.value)

    async def find(self, condition: Filter) -> list[TaskView]:
        """Return matching tasks, newest first, at most ``condition.limit``; it looks at all tasks."""
        return (await self.search(condition, None)).tasks

    async def count(self, condition: Filter) -> int:
        """Return the number of matching tasks; ``condition.limit`` is ignored."""
        return (await self.tally(condition, None)).count
