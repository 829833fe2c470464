"""What operators do about more than one task: alerts, the audit, and acts on all tasks that match.

An act on many tasks is many acts: each is a message in its task's inbox, decided by the rules and audited for itself. They are
left in batches; whoever asked may stop in between, and what was left is still decided.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Literal

import msgspec
from msgspec.structs import replace

from makegood.base import ids
from makegood.base.durations import Duration
from makegood.errors import ActRefusedError, AlertNotFoundError
from makegood.model.messages import Act, Answer, Message
from makegood.store import Store
from makegood.store.views import AlertView, AuditView, Filter, TaskView

BulkKind = Literal["cancel", "undo", "resubmit"]

AT_ONCE = 100
"""Acts in one batch."""


class Acted(msgspec.Struct, frozen=True):
    """What became of an act on one of many tasks. ``verdict``: "applied", "noop", "refused", or "waiting": no Scheduler has
    answered yet; the act will be decided. ``outcome``: what came of it, in words; ``state``: the task's state after it.
    """

    task: str
    verdict: str
    outcome: str
    state: str


Progress = Callable[[Acted], None]


class Operators(ABC):
    """The part of a client that operators use."""

    store: Store

    @abstractmethod
    def ready(self) -> None:
        """Raise ``ClosedError`` unless the client is open."""

    @abstractmethod
    def new_act(self, who: str | None, why: str) -> Act:
        """Return an act's identity."""

    @abstractmethod
    async def ask(self, messages: Mapping[int, Message], timeout: Duration | None) -> dict[int, Answer]:
        """Leave acts, by task, and return the answers that came in time."""

    # -- alerts --------------------------------------------------------------------------------------------------------

    async def alerts(
        self, task: str | int | None = None, *, ended: bool = False, limit: int = 100
    ) -> list[AlertView]:
        """Return alerts: open ones first, then those that somebody has acknowledged, each newest first.

        ``task``: only alerts of this task. ``ended``: then those too whose cause has gone. ``limit``: at most so many in all.

        >>> async def look(client):
        ...     return [alert.text for alert in await client.alerts() if alert.open]
        """
        self.ready()
        of = ids.parse(task) if isinstance(task, str) else task
        found = await self.store.alerts(limit, of, ended=False)
        rest = limit - len(found) if ended else 0
        return found + (await self.store.alerts(rest, of, ended=True) if rest > 0 else [])

    async def acknowledge(self, alert: int, *, who: str | None = None, why: str = "") -> AlertView:
        """Say that somebody takes care of an alert: it is no longer open, for nobody. Returns it as it is now.

        Raises ``AlertNotFoundError``, and ``ActRefusedError`` when somebody else was first or its cause has gone.
        """
        self.ready()
        act = self.new_act(who, why)
        found = (await self.store.acknowledge([alert], act)).get(alert)
        if found is None:
            raise AlertNotFoundError(f"there is no alert {alert} in this store: see `makegood alerts --all`")
        if found.acked is None:
            raise ActRefusedError(
                f"alert {alert} has ended by itself: {found.ended_why}", act="acknowledge", state="ended"
            )
        if (found.acked_by, found.acked_why) != (act.who, act.why):
            why = f" ({found.acked_why})" if found.acked_why else ""
            raise ActRefusedError(
                f"alert {alert} was acknowledged by {found.acked_by}{why} before",
                act="acknowledge",
                state="acknowledged",
            )
        return found

    async def audit(self, task: str | int | None = None, *, limit: int = 100) -> list[AuditView]:
        """Return what operators did, newest first: who, when, why, and what became of it. ``task``: only acts on this one."""
        self.ready()
        return await self.store.audit(limit, ids.parse(task) if isinstance(task, str) else task)

    # -- acts on many tasks --------------------------------------------------------------------------------------------

    async def count(self, wanted: Filter) -> int:
        """Return how many tasks match, whatever the filter's ``limit``: before doing something to all of them."""
        self.ready()
        return await self.store.count(wanted)

    async def cancel_all(
        self,
        wanted: Filter,
        *,
        why: str = "",
        who: str | None = None,
        limit: int | None = None,
        timeout: Duration | None = "30s",
        progress: Progress | None = None,
    ) -> list[Acted]:
        """Cancel all tasks that match (the filter's own ``limit`` does not matter; ``limit``: so many at most, newest first).

        ``timeout``: for the answers to one batch of a hundred. ``progress`` is called with each answer. What is not lawful for
        a task is refused for it alone.

        >>> async def stop(client):
        ...     return await client.cancel_all(Filter(states=("pending",), workflow="place_order"), why="wrong price")
        """
        act = self.new_act(who, why)
        return await self._all("cancel", wanted, act, limit=limit, timeout=timeout, progress=progress)

    async def undo_all(
        self,
        wanted: Filter,
        *,
        why: str = "",
        who: str | None = None,
        limit: int | None = None,
        timeout: Duration | None = "30s",
        progress: Progress | None = None,
    ) -> list[Acted]:
        """Undo all tasks that match, those in error or processed: see ``cancel_all``."""
        act = self.new_act(who, why)
        return await self._all("undo", wanted, act, limit=limit, timeout=timeout, progress=progress)

    async def resubmit_all(
        self,
        wanted: Filter,
        *,
        why: str = "",
        who: str | None = None,
        limit: int | None = None,
        timeout: Duration | None = "30s",
        progress: Progress | None = None,
    ) -> list[Acted]:
        """Start all tasks that match again, those in error or undone: see ``cancel_all``."""
        act = self.new_act(who, why)
        return await self._all("resubmit", wanted, act, limit=limit, timeout=timeout, progress=progress)

    async def _all(
        self,
        kind: BulkKind,
        wanted: Filter,
        act: Act,
        *,
        limit: int | None,
        timeout: Duration | None,
        progress: Progress | None,
    ) -> list[Acted]:
        self.ready()
        done: list[Acted] = []
        while limit is None or len(done) < limit:
            most = AT_ONCE if limit is None else min(AT_ONCE, limit - len(done))
            page = await self.store.find(replace(wanted, limit=most))
            for acted in await self.act_on(kind, page, act, timeout):
                done.append(acted)
                if progress is not None:
                    progress(acted)
            if len(page) < most:
                break
            wanted = replace(wanted, before=page[-1].id)  # what is submitted meanwhile was not meant
        return done

    async def act_on(
        self, kind: BulkKind, tasks: list[TaskView], act: Act, timeout: Duration | None
    ) -> list[Acted]:
        """Leave an act of its own for each task and return what became of them, in order."""
        messages = {
            view.id: Message(kind, act=Act(f"{act.id}/{ids.show(view.id)}", act.who, act.why))
            for view in tasks
        }
        answers = await self.ask(messages, timeout)
        return [_acted(view, answers.get(view.id)) for view in tasks]


def _acted(view: TaskView, answer: Answer | None) -> Acted:
    if answer is None:
        why = "no scheduler has answered yet; it will be decided when one runs (`makegood agents` shows what runs)"
        return Acted(ids.show(view.id), "waiting", why, view.state)
    return Acted(ids.show(view.id), answer.verdict, answer.outcome, answer.state)
