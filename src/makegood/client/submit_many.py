"""Submission of many tasks, batch after batch."""

import asyncio
import warnings
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Generic, TypeVar

from makegood.base.arguments import checked_count, judge_calls
from makegood.base.durations import Duration
from makegood.base.function_layers import is_async
from makegood.client.handle import TaskHandle
from makegood.client.submission import CommonOptions, Submitter, plan_of, with_options
from makegood.errors import ConfigError
from makegood.model.attributes import Attribute
from makegood.model.lane import Lane
from makegood.model.plan import Plan, Start
from makegood.transactions import Caller

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

BATCH = 500
"""Tasks that ``submit_many`` writes in one commit."""
_MOST_BYTES = 4 * 1024 * 1024
_SLICE = 50  # inputs planned without a pause: a millisecond


def many_of(workflow: Any, inputs: Any) -> Any:
    """Return what ``submit_many`` goes through: a workflow's inputs, or plans. Raises ``ConfigError``."""
    many = workflow if inputs is None else inputs
    if isinstance(many, str | bytes) or not any(
        hasattr(many, name) for name in ("__iter__", "__aiter__", "__getitem__")
    ):
        raise ConfigError(
            f"submit_many({many!r:.60}): pass a workflow and an iterable of its inputs, or an iterable of plans"
        )
    return many


class ManyOptions(CommonOptions, Generic[T], total=False):
    """The options of ``submit_many``: functions of the input, or the same for all."""

    key: Callable[[T], str | None] | None
    correlation_id: Callable[[T], str | None] | None
    attributes: Callable[[T], Mapping[str, Attribute] | None] | None
    lane: Callable[[T], Lane | None] | None
    batch: int


@judge_calls(ConfigError, called="submit_many", values=True)
class Many:
    """Makes plans of the inputs of ``submit_many``, one batch at a time."""

    def __init__(
        self,
        workflow: Any,
        /,
        *,
        key: Any = None,
        priority: int | None = None,
        correlation_id: Any = None,
        reply_to: str | None = None,
        notes: bool | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        attributes: Any = None,
        lane: Any = None,
        batch: int = BATCH,
        connection: Any = None,
    ) -> None:
        self.connection = connection
        """The caller's, if it has one."""
        self._of_each = {"key": key, "correlation_id": correlation_id, "attributes": attributes, "lane": lane}
        for name, option in self._of_each.items():
            if option is not None and (not callable(option) or is_async(option)):
                kind = "an async function" if callable(option) else repr(option)
                raise ConfigError(
                    f"{name}={kind}: submit_many takes a plain function of the input, such as lambda order: order.id"
                )
        checked_count(batch, "batch")
        if batch < 1:
            raise ConfigError(f"batch={batch}: a whole number of at least 1")
        Start.of(delay, at)  # raises for a wrong one before anything is submitted
        self._workflow = workflow
        self._of_all: dict[str, Any] = {
            "priority": priority, "reply_to": reply_to, "notes": notes, "delay": delay, "at": at,
        }  # fmt: skip
        self._batch = batch
        self._plans: list[Plan[Any]] = []
        self._bytes = 0

    def add(self, item: Any) -> list[Plan[Any]]:
        """Take an input, or a Plan; returns a batch when one is full."""
        plan = plan_of(item, ()) if isinstance(item, Plan) else plan_of(self._workflow, (item,))
        own = {name: option(item) for name, option in self._of_each.items() if option is not None}
        self._plans.append(with_options(plan, **self._of_all, **own))
        self._bytes += sum(map(len, plan.inputs))
        full = len(self._plans) >= self._batch or self._bytes >= _MOST_BYTES
        return self.rest() if full else []

    def rest(self) -> list[Plan[Any]]:
        """Return what is not in a full batch."""
        plans, self._plans, self._bytes = self._plans, [], 0
        return plans

    def batches(self, items: Iterable[Any]) -> Iterator[list[Plan[Any]]]:
        """Yield the batches of an iterable."""
        for item in items:
            if full := self.add(item):
                yield full
        if rest := self.rest():
            yield rest

    async def batches_async(self, items: Any) -> AsyncIterator[list[Plan[Any]]]:
        """Yield the batches of an iterable, or of an asynchronous one."""
        async for item in items if hasattr(items, "__aiter__") else _with_pauses(items):
            if full := self.add(item):
                yield full
        if rest := self.rest():
            yield rest


async def _with_pauses(items: Iterable[Any]) -> AsyncIterator[Any]:
    """Yield what an iterable yields, and let others run now and then."""
    for n, item in enumerate(items):
        if n % _SLICE == 0:
            await asyncio.sleep(0)
        yield item


class _Begun:
    """Says so when nobody has begun."""

    _remedy = "write `await client.submit_many(...)`, or `async for task in client.submit_many(...)`"
    _is_begun = False

    def __del__(self) -> None:
        if not self._is_begun:
            warnings.warn(f"nothing was submitted: {self._remedy}", RuntimeWarning, stacklevel=2)


class Submissions(_Begun, Generic[R_co]):
    """Tasks that are being submitted, batch after batch, while the caller iterates over their handles.

    ``async for task in submissions`` keeps a batch or two in memory; ``await submissions`` returns the
    handles of all. Nothing is submitted before either. A ``KeyConflict`` is raised in its task's turn; the
    rest of its batch is submitted.
    """

    def __init__(self, handles: AsyncIterator[TaskHandle[R_co]]) -> None:
        self._handles = handles

    def __aiter__(self) -> AsyncIterator[TaskHandle[R_co]]:
        """Submit, and yield a handle for each task."""
        self._is_begun = True
        return self._handles

    def __await__(self) -> Generator[Any, None, list[TaskHandle[R_co]]]:
        """Submit all, and return their handles."""
        return self._all().__await__()

    async def _all(self) -> list[TaskHandle[R_co]]:
        return [handle async for handle in self]


class SyncSubmissions(_Begun, Generic[T]):
    """``Submissions`` for blocking code: ``for task in submissions``, or ``list(submissions)``."""

    _remedy = "write `list(client.submit_many(...))`, or `for task in client.submit_many(...)`"

    def __init__(self, handles: Iterator[T]) -> None:
        self._handles = handles

    def __iter__(self) -> Iterator[T]:
        """Submit, and yield a handle for each task."""
        self._is_begun = True
        return self._handles


def submissions(submitter: Submitter, many: Many, items: Any, caller: Caller | None) -> Submissions[Any]:
    """Submit batch after batch, in the caller's transaction if there is one: see ``Client.submit_many``."""
    batches = many.batches_async(items)
    if caller is None and not hasattr(items, "__aiter__"):
        return Submissions(_ahead(submitter, batches))
    return Submissions(_handles(submitter, batches, caller))


async def _handles(
    submitter: Submitter, batches: AsyncIterator[list[Plan[Any]]], caller: Caller | None
) -> AsyncIterator[TaskHandle[Any]]:
    """Submit each batch as soon as it is complete.

    How long the next batch takes is unknown, and making it may need the caller's connection.
    """
    async for plans in batches:
        for plan, answer in zip(plans, await submitter.write(plans, caller), strict=True):
            yield submitter.handle(plan, answer, exists=caller is None)


async def _ahead(
    submitter: Submitter, batches: AsyncIterator[list[Plan[Any]]]
) -> AsyncIterator[TaskHandle[Any]]:
    """Plan a batch while the one before is written.

    An error in a batch is raised in its turn, after the handles of the batch before.
    """
    plans: list[Plan[Any]] = await anext(batches, [])
    while plans:
        answers, following = await asyncio.gather(
            submitter.write(plans), anext(batches, []), return_exceptions=True
        )
        if isinstance(answers, BaseException):
            raise answers
        for plan, answer in zip(plans, answers, strict=True):
            yield submitter.handle(plan, answer, exists=True)
        if isinstance(following, BaseException):
            raise following
        plans = following
