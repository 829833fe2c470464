"""Decisions that are the same stride (see ``saga.straight``): of each only task, result and arguments are its own.

They are nearly all of a batch, so what they have in common is looked at once for all, and their tasks are written down once.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from makegood.base import ids as ids_
from makegood.model.decision import Decision
from makegood.model.messages import Request
from makegood.model.shape import ShapeRequest
from makegood.store import rows
from makegood.store.sqlite.bulk_change import UNUSED, Change, spans, tasks
from makegood.store.sqlite.decision_rows import encoded
from makegood.store.sqlite.transaction import WriteTransaction

_Key = tuple[int, int, int, bool, bool]
"""The stride's id, epoch, priority; whether the task ends; whether what is asked is handed over in memory."""


def _groups() -> defaultdict[_Key, list[Decision]]:
    return defaultdict(list)


@dataclass(slots=True)
class Strides:
    """Those of one batch of ``node``. ``claimed``: tasks whose lock is taken now."""

    tx: WriteTransaction
    node: int | None
    claimed: frozenset[int]
    groups: defaultdict[_Key, list[Decision]] = field(default_factory=_groups)

    def take(self, d: Decision) -> bool:
        """Take a Decision; False when there is more to it, so that it has to be written by itself."""
        if not rows.whole(d, self.claimed):
            return False
        self.groups[id(d.stride), d.before.epoch, d.before.priority, d.release, bool(d.handed)].append(d)
        return True

    def held(self) -> dict[int, list[int]]:
        """Return the tasks that have to be held, by their epoch."""
        found: defaultdict[int, list[int]] = defaultdict(list)
        for (_, epoch, _, _, _), of in self.groups.items():
            found[epoch] += [d.before.id for d in of]
        return found

    def changes(self) -> Iterator[Change]:
        """Yield what is to be done, fences among it."""
        for (_, _, priority, release, here), of in self.groups.items():
            stride = of[0].stride
            assert stride is not None
            ids = [d.before.id for d in of]
            given = tasks(ids)
            ((idx, attempt),) = stride.consumed
            yield "consumed", given, UNUSED, idx, attempt, len(of)
            if read := {seq: d.before.id for d in of for seq in d.seqs}:
                yield "read", tasks(read)
            if release:
                self.tx.topics.add("ended")
                yield "rested", given
                for places, data in spans(ids, [d.task.result or b"null" for d in of]):
                    yield "processed", places, data, self.tx.now, 0
            for places, data in spans(ids, [d.steps[idx].result or b"null" for d in of]):
                yield "done", places, data, idx, attempt
            for n, sent in enumerate(stride.sent):
                yield "sent", given, UNUSED, sent.idx, sent.running.attempt
                yield from self._asked(
                    sent, given, priority, ids, None if here else [d.requests[n] for d in of]
                )
            moves = stride.ending if release else stride.moves
            yield "moved", given, UNUSED, self.tx.now, self.node, encoded(*moves)

    def _asked(
        self,
        sent: ShapeRequest,
        given: str,
        priority: int,
        ids: Sequence[int],
        waiting: Sequence[Request] | None,
    ) -> Iterator[Change]:
        """Yield a step's requests: those that are ``waiting`` for an agent of another process, None: all are handed over."""
        idx, _, attempt, app, agent, action, _, _, within = sent.asked
        to, now = ids_.address(app, agent), self.tx.now
        if waiting is None:
            yield "handed", given, UNUSED, idx, attempt, to, action, priority, now, self.node, within
            return
        self.tx.topics.add(f"agent:{to}")
        for places, data in spans(ids, [*map(rows.request, waiting)]):
            yield "asked", places, data, idx, attempt, to, action, priority, now, within
