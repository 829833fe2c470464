"""Writes Decisions of one ``ShapeStep`` (see ``saga.fast_path``): only task, result and arguments differ.

Nearly all Decisions of a batch are of this kind. So their shared part is examined once for all of them, and
their tasks are listed once.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from makegood.base import ids as ids_
from makegood.model.decision import Decision
from makegood.model.messages import Request
from makegood.model.shape import ShapeRequest, ShapeStep
from makegood.store import rows
from makegood.store.sqlite.bulk_change import UNUSED, Change, spans, tasks
from makegood.store.sqlite.decision_rows import encoded
from makegood.store.sqlite.transaction import WriteTransaction

_Key = tuple[ShapeStep, int, int, bool, bool]
"""The ``ShapeStep``, epoch, priority; whether the task is released; whether requests are handed over in
memory.
"""


@dataclass(slots=True)
class ShapeRows:
    """The Decisions of one batch that have a ``ShapeStep``."""

    tx: WriteTransaction
    node: int | None
    """The node that holds the tasks."""
    claimed: frozenset[int]
    """Tasks whose lock is taken now."""
    groups: defaultdict[_Key, list[Decision]] = field(default_factory=lambda: defaultdict(list))
    """Decisions that are written together."""

    def take(self, d: Decision) -> bool:
        """Take a Decision. Returns False if there is more to it, so that it must be written by itself."""
        known = d.shape_step
        if known is None or not rows.whole(d, self.claimed):
            return False
        self.groups[known, d.before.epoch, d.before.priority, d.release, bool(d.handed)].append(d)
        return True

    def held(self) -> dict[int, list[int]]:
        """Return the tasks that this node must hold, by epoch."""
        found: defaultdict[int, list[int]] = defaultdict(list)
        for (_, epoch, _, _, _), of in self.groups.items():
            found[epoch] += [d.before.id for d in of]
        return found

    def changes(self) -> Iterator[Change]:
        """Yield the changes to make, including fences."""
        for (known, _, priority, release, here), of in self.groups.items():
            ids = [d.before.id for d in of]
            given = tasks(ids)
            ((idx, attempt),) = known.consumed
            yield "consumed", given, UNUSED, idx, attempt, len(of)
            moved, ended = given, list[Decision]()
            if read := {seq: d.before.id for d in of for seq in d.seqs}:
                yield "read", tasks(read)
                ended = [d for d in of if d.attempts]
                moved = tasks([d.before.id for d in of if not d.attempts])
            if release:
                self.tx.topics.add("ended")
                yield "rested", given
                for places, data in spans(ids, [d.task.result or b"null" for d in of]):
                    yield "processed", places, data, self.tx.now, 0
            for places, data in spans(ids, [d.steps[idx].result or b"null" for d in of]):
                yield "done", places, data, idx, attempt
            for n, sent in enumerate(known.sent):
                yield "sent", given, UNUSED, sent.idx, sent.running.attempt
                yield from self._asked(
                    sent, given, priority, ids, None if here else [d.requests[n] for d in of]
                )
            moves = known.ending if release else known.moves
            if len(ended) < len(of):
                yield "moved", moved, UNUSED, self.tx.now, self.node, encoded(*moves)
            if ended:
                ends = [rows.attempts(d.attempts) for d in ended]
                for places, data in spans([d.before.id for d in ended], ends):
                    yield "ended", places, data, self.tx.now, self.node, encoded(*moves)

    def _asked(
        self,
        sent: ShapeRequest,
        given: str,
        priority: int,
        ids: Sequence[int],
        waiting: Sequence[Request] | None,
    ) -> Iterator[Change]:
        """Yield a step's requests.

        ``waiting``: the requests that wait for an agent of another process; None: all are handed over in
        memory.
        """
        idx, _, attempt, app, agent, action, _, _, within = sent.asked
        to, now = ids_.address(app, agent), self.tx.now
        if waiting is None:
            yield "handed", given, UNUSED, idx, attempt, to, action, priority, now, self.node, within
            return
        self.tx.topics.add(f"agent:{to}")
        for places, data in spans(ids, [*map(rows.request, waiting)]):
            yield "asked", places, data, idx, attempt, to, action, priority, now, within
