"""Operators' acts on tasks: on one task, or on all that match.

An act is left in its task's inbox, decided by the rules of a Scheduler, and audited. An act on many tasks is
many acts, left in batches. The operator may stop in between; acts already left are still decided.
"""

import asyncio
import getpass
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from itertools import count

import msgspec

from makegood.base import ids
from makegood.base.arguments import checked_count
from makegood.base.contexts import bare_context, within
from makegood.base.durations import Duration, seconds, short_duration
from makegood.base.pacing import event_within
from makegood.base.text import hostname, refuse_unstorable, storable_text
from makegood.client.opened_store import OpenedStore
from makegood.client.waiters import RecentTasks
from makegood.errors import ActRefusedError, ConfigError, WaitExpiredError
from makegood.model.messages import Act, Answer, TaskMessage
from makegood.store.oversight_records import BulkKind
from makegood.store.views import Filter, TaskView

AT_ONCE = 100
"""Acts in one batch."""


class Acted(msgspec.Struct, frozen=True):
    """What became of an act on one of many tasks."""

    task: str
    verdict: str
    """"applied", "noop", "refused", or "waiting": no Scheduler has answered yet; the act will be decided."""
    outcome: str
    """What came of it, in words."""
    state: str
    """The task's state after it."""


Progress = Callable[[Acted], None]


async def page_by_page(
    opened_store: OpenedStore,
    condition: Filter,
    limit: int | None,
    progress: Progress | None,
    command: Callable[[Sequence[TaskView]], Awaitable[list[Acted]]],
) -> list[Acted]:
    """Let ``command`` act on all tasks that match, newest first, ``AT_ONCE`` at a time; return what became of
    each. ``limit``: the most tasks.
    """
    store = opened_store.ready()
    if limit is not None:
        checked_count(limit)
    outcomes: list[Acted] = []
    while limit is None or len(outcomes) < limit:
        most = AT_ONCE if limit is None else min(AT_ONCE, limit - len(outcomes))
        page = await store.tasks.find(replace(condition, limit=most))
        for outcome in await command(page):
            outcomes.append(outcome)
            if progress is not None:
                progress(outcome)
        if len(page) < most:
            break
        condition = replace(condition, before=page[-1].id)  # what is submitted meanwhile was not meant
    return outcomes


_REQUEST: ContextVar[Iterator[str] | None] = ContextVar("makegood_request", default=None)


@contextmanager
def under_request(request: str) -> Iterator[None]:
    """Let the acts within have the id of the request that asks for them; a second one has "/2" after it."""
    before = _REQUEST.set(request if n == 1 else f"{request}/{n}" for n in count(1))
    try:
        yield
    finally:
        _REQUEST.reset(before)


class Acts:
    """Leaves acts and waits for their answers. ``recent``: tasks whose kept ends an act makes stale."""

    def __init__(
        self, opened_store: OpenedStore, recent: RecentTasks, *, poll: float, rng: random.Random
    ) -> None:
        self._opened_store = opened_store
        self._recent = recent
        self._poll = poll
        self._rng = rng
        self._wakes: dict[asyncio.Event, None] = {}  # in the order in which they were added

    def wake(self) -> None:
        """Look for answers: the store has something new."""
        for wake in self._wakes:
            wake.set()

    def new(self, who: str | None, why: str, id: str | None = None) -> Act:  # noqa: A002 - what it is
        """Return an act's identity; ``who`` defaults to the user and host of this process, ``id`` to a new
        one.
        """
        refuse_unstorable(ConfigError, who=who, why=why)
        return Act(id or self.new_id(), who or _user(), why or "")

    def new_id(self) -> str:
        """Return the id of a new act."""
        request_ids = _REQUEST.get()
        return ids.random_uuid(self._rng) if request_ids is None else next(request_ids)

    async def leave(self, task: int, message: TaskMessage, *, timeout: Duration | None) -> Answer:
        """Leave an act in the task's inbox and return what a Scheduler's rules made of it.

        Raises ``ActRefusedError`` when it is refused, and ``WaitExpiredError`` when no Scheduler answered in
        time: the act is in the inbox and will be decided.
        """
        answer = (await self._ask({task: message}, timeout)).get(task)
        name = ids.show(task)
        if answer is None:
            raise WaitExpiredError(
                f"no scheduler answered {message.kind!r} of task {name} within {seconds(timeout or 0.0):g} s; it will be decided when one runs "
                f"(`makegood agents` shows what runs)",
                task_id=name,
            )
        if answer.verdict == "refused":
            outcome = answer.outcome + await self._earlier_act(task, answer.act.id)
            text = f"{message.kind} of task {name} is not allowed: {outcome}"
            raise ActRefusedError(text, act=message.kind, state=answer.state)
        return answer

    async def leave_all(
        self,
        kind: BulkKind,
        condition: Filter,
        act: Act,
        *,
        limit: int | None,
        timeout: Duration | None,
        progress: Progress | None,
    ) -> list[Acted]:
        """Leave an act of its own for each task that matches: see ``Client.cancel_all``."""

        async def command(page: Sequence[TaskView]) -> list[Acted]:
            messages = {
                view.id: TaskMessage(kind, act=Act(f"{act.id}/{ids.show(view.id)}", act.who, act.why))
                for view in page
            }
            answers = await self._ask(messages, timeout)
            return [_outcome_of(view, answers.get(view.id)) for view in page]

        return await page_by_page(self._opened_store, condition, limit, progress, command)

    async def _ask(self, messages: Mapping[int, TaskMessage], timeout: Duration | None) -> dict[int, Answer]:
        """Leave acts, by task, and return the answers that arrived in time. Raises ``TaskNotFoundError``."""
        limit = seconds(timeout, name="timeout") if timeout is not None else None
        return await within(bare_context(), self._answers(messages, limit))

    async def _answers(self, messages: Mapping[int, TaskMessage], limit: float | None) -> dict[int, Answer]:
        store = self._opened_store.ready()
        waiting = {message.act.id: task for task, message in messages.items() if message.act is not None}
        answers: dict[int, Answer] = {}
        wake = asyncio.Event()
        self._wakes[wake] = None
        try:
            for task in messages:
                self._recent.pop(task)  # its end, if it had come, is no longer its end
            await asyncio.gather(*(store.tasks.post(task, message) for task, message in messages.items()))
            async with asyncio.timeout(limit):
                while waiting:
                    wake.clear()
                    for act, answer in (await store.tasks.answers(list(waiting))).items():
                        answers[waiting.pop(act)] = answer
                    if waiting:
                        await event_within(wake, min(self._poll, 0.25))
        except TimeoutError:
            return answers
        finally:
            self._wakes.pop(wake, None)
        return answers

    async def _earlier_act(self, task: int, act: str) -> str:
        """Return a phrase naming the last applied act on the task before this one, "" when there was none."""
        for entry in await self._opened_store.store.admin.audit(10, task):
            if entry.verdict == "applied" and entry.act != act:
                why = f" ({entry.why})" if entry.why else ""
                ago = max(0.0, await self._opened_store.store.now() - entry.at)
                return f"; the last act on it: {entry.kind} by {entry.who}{why}, {short_duration(ago)} ago"
        return ""


def _outcome_of(view: TaskView, answer: Answer | None) -> Acted:
    if answer is None:
        why = "no scheduler has answered yet; it will be decided when one runs (`makegood agents` shows what runs)"
        return Acted(ids.show(view.id), "waiting", why, view.state)
    return Acted(ids.show(view.id), answer.verdict, answer.outcome, answer.state)


def _user() -> str:
    """Return the user and host of this process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{storable_text(user)}@{hostname()}"
