"""What a client shows of lanes, and an operator's release of them."""

from typing import Any

from makegood.base.arguments import checked_count, judge_calls
from makegood.base.durations import Duration
from makegood.base.text import refuse_unstorable
from makegood.client.handle import TaskHandle
from makegood.client.opened_store import OpenedStore
from makegood.errors import ConfigError
from makegood.model.messages import Answer
from makegood.store.lane_views import LaneView


@judge_calls(ConfigError, values=True, constructor=False)
class ClientLanes:
    """The part of a ``Client`` that shows and releases lanes."""

    _opened_store: OpenedStore

    def task(self, task_id: str | int, returns: Any = None) -> "TaskHandle[Any]":
        """Return a handle to a task."""
        raise NotImplementedError

    async def lanes(
        self,
        app: str | None = None,
        name: str | None = None,
        *,
        limit: int = 100,
        after: tuple[str, str] | None = None,
    ) -> list[LaneView]:
        """Return at most ``limit`` lanes that tasks hold or wait for, by app and name: who holds each, how
        many wait, and the first of them. ``app``, ``name``: only those. ``after``: the app and the name of
        the last lane of the page before.

        >>> async def busy(client):
        ...     return [lane.name for lane in await client.lanes() if lane.waiting > 100]
        """
        checked_count(limit)
        begin = after or ("", "")
        if len(begin) != 2 or not all(isinstance(part, str) for part in begin):
            raise ConfigError(f"after={after!r:.60}: the app and the name of a lane, two texts")
        refuse_unstorable(ConfigError, app=app, name=name, after="".join(begin))
        return await self._opened_store.ready().lanes.lanes(app, name, limit, begin)

    async def release_lane(
        self, task: str | int, *, why: str = "", who: str | None = None, timeout: Duration | None = "30s"
    ) -> Answer:
        """Take the lanes of a task in error away, so that the next tasks in them go: see
        ``TaskHandle.release_lane``.
        """
        return await self.task(task).release_lane(why=why, who=who, timeout=timeout)
