"""Writes Decisions of one ``ShapeStep`` (see ``saga.fast_path``): only task, result and arguments differ.

Nearly all Decisions of a batch are of this kind. So their shared part is examined once for all of them, and
their tasks are listed once.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from makegood.base import ids as ids_
from makegood.model.decision import Decision
from makegood.model.messages import Request
from makegood.model.shape import ShapeRequest
from makegood.store import rows
from makegood.store.changes import ShapeGroups
from makegood.store.sqlite.bulk_change import UNUSED, Change, spans, tasks
from makegood.store.sqlite.decision_rows import encode_moves
from makegood.store.sqlite.transaction import WriteTransaction


@dataclass(slots=True)
class ShapeRows:
    """The Decisions of one batch that have a ``ShapeStep``."""

    tx: WriteTransaction
    node: int | None
    """The node that holds the tasks."""
    groups: ShapeGroups

    def tasks_by_epoch(self) -> dict[int, list[int]]:
        """Return the tasks that this node must hold, by epoch."""
        tasks_by_epoch: defaultdict[int, list[int]] = defaultdict(list)
        for (_, epoch, _, _, _), of in self.groups.items():
            tasks_by_epoch[epoch] += [d.before.id for d in of]
        return tasks_by_epoch

    def changes(self) -> Iterator[Change]:
        """Yield the changes to make, including fences."""
        for (shape_step, _, priority, release, in_memory), of in self.groups.items():
            ids = [d.before.id for d in of]
            task_text = tasks(ids)
            ((idx, attempt),) = shape_step.used_requests
            yield "consumed", task_text, UNUSED, idx, attempt, len(of)
            move_text, endings = task_text, list[Decision]()
            if read := {seq: d.before.id for d in of for seq in d.seqs}:
                yield "read", tasks(read)
                endings = [d for d in of if d.attempts]
                move_text = tasks([d.before.id for d in of if not d.attempts])
            if release:
                self.tx.topics.add("ended")
                yield "rested", task_text
                for places, data in spans(ids, [d.task.result or b"null" for d in of]):
                    yield "processed", places, data, self.tx.now
            for places, data in spans(ids, [d.steps[idx].result or b"null" for d in of]):
                yield "done", places, data, idx, attempt
            for n, shape_request in enumerate(shape_step.sends):
                yield "sent", task_text, UNUSED, shape_request.idx, shape_request.running.attempt
                waiting = of[0].handed_at if in_memory else [d.requests[n] for d in of]
                yield from self._request_changes(shape_request, task_text, priority, ids, waiting)
            moves = shape_step.ending if release else shape_step.moves
            if len(endings) < len(of):
                yield "moved", move_text, UNUSED, self.tx.now, self.node, encode_moves(*moves)
            if endings:
                ends = [rows.attempts(d.attempts) for d in endings]
                for places, data in spans([d.before.id for d in endings], ends):
                    yield "ended", places, data, self.tx.now, self.node, encode_moves(*moves)

    def _request_changes(
        self,
        shape_request: ShapeRequest,
        task_text: str,
        priority: int,
        ids: Sequence[int],
        waiting: Sequence[Request] | float,
    ) -> Iterator[Change]:
        """Yield a step's requests.

        ``waiting``: the requests that wait for an agent of another process, or when all of them are handed
        over in memory.
        """
        r, now = shape_request.request, self.tx.now
        to = ids_.address(r.app, r.agent)
        if isinstance(waiting, float):
            yield (
                "handed", task_text, waiting, r.idx, r.attempt, to, r.action, priority, now, self.node, r.within
            )  # fmt: skip
            return
        self.tx.topics.add(f"agent:{to}")
        for places, data in spans(ids, [*map(rows.request, waiting)]):
            yield "asked", places, data, r.idx, r.attempt, to, r.action, priority, now, r.within
