"""Signals to tasks, sent in a transaction of the store or of a caller."""

from collections.abc import Awaitable, Callable
from typing import Any

from makegood.model.messages import Act
from makegood.store import alerts, signals
from makegood.store.signals import Addressee, OutgoingSignal, Signalled
from makegood.store.sqlite.transaction import WriteTransaction
from makegood.transactions import Caller, at_once

_STATE = f"""
select t.id, t.state, t.goal, t.static, t.app, t.workflow, (select s.digest from makegood_signal s where s.task = t.id and s.name = ? and s.id = ?),
    (select count(*) from (select 1 from makegood_signal s where s.task = t.id and s.used is null limit {signals.MOST_BACKLOG}))
from makegood_task t where
"""  # noqa: S608 - our own number
_BY_ID = _STATE + "t.id = ?"
_BY_KEY = _STATE + "t.key = ? and t.workflow = ? and t.app = ?"
_SIGNAL = """
insert into makegood_signal (task, name, id, step, at, who, digest) values (?, ?, ?, ?, ?, ?, ?) on conflict do nothing returning 1
"""
_MESSAGE = "insert into makegood_inbox (task, kind, at, body) values (?, 'signal', ?, ?)"


class _Tables:
    """``ask``: executes a statement; returns its rows. ``now``: the store's clock."""

    def __init__(self, ask: Callable[..., Awaitable[list[Any]]], now: float) -> None:
        self._ask = ask
        self._now = now

    async def state(self, signal: OutgoingSignal) -> Addressee | None:
        """Return the state of a signal's task."""
        to = signal.to
        place = (_BY_ID, (to,)) if isinstance(to, int) else (_BY_KEY, (to.key, to.workflow, to.app))
        for row in await self._ask(place[0], signal.name, signal.id, *place[1]):
            return Addressee(*row)
        return None

    async def insert(self, task: int, signal: OutgoingSignal, who: str) -> bool:
        """Insert a signal and its message."""
        values = (task, signal.name, signal.id, signal.step, self._now, who, signal.digest)
        if not await self._ask(_SIGNAL, *values):
            return False
        await self._ask(_MESSAGE, task, self._now, signal.message)
        return True


def send(tx: WriteTransaction, signal: OutgoingSignal, act: Act | None) -> Signalled:
    """Send a signal in a transaction of the store; ``act``: an operator's, which is audited."""

    async def ask(sql: str, *values: Any) -> list[Any]:
        return tx.rows(sql, values)

    answer = at_once(signals.send(_Tables(ask, tx.now), signal, "" if act is None else act.who))
    if act is not None:
        tx.do(alerts.write_audit, signals.audit_rows(act, signal, answer))
    if answer.created:
        tx.topics.add("inbox")
    return answer


async def put(caller: Caller, signal: OutgoingSignal, now: float) -> Signalled:
    """Send a signal in the caller's transaction."""
    answer = await signals.send(_Tables(caller.ask, now), signal)
    if answer.created:
        caller.topics.add("inbox")
    return answer
