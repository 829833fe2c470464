"""What happened in a simulated world, in order: written by the simulator, read by the checker and by people.

An event that was noted inside a transaction of the store counts only if the transaction was committed: ``begin`` opens a
buffer, ``keep`` puts it into the history, ``drop`` throws it away. Where a commit's answer was lost, the event ``store``
says what truly happened.

The kinds, with their fields:

- submitted: key, steps (names), no_return, on_failure, reply_to: after the client was told
- claimed: epoch, lost
- moved: moves (("task", old, new) and (step idx, old, new, attempt, round)), cause, note: one per committed Decision
- answered: idx, doing, attempt, complete_by, now: a reply was left in the store, which found it in time
- accepted: idx, doing ("do", "probe", "undo"), attempt, reply (its kind), complete_by, now (the store's clock when a Decision
  used it), came (the store's clock when it was left there; None: it was handed over in memory)
- withdrawn, given back: idx, doing, attempt (by): a request that nobody had taken, or that was taken and not begun
- told: state: a client that waited was told of the end
- refused: what ("reply", "decision", "supervisor", "act", "lease"), idx, attempt, why: a stale write turned away by a fence
- late: idx, doing, attempt
- sent: idx, doing, attempt, round, key, local
- taken: idx, doing, attempt, by, within (seconds until complete-by, by the clock of the store that gave it out)
- call: idx, doing, attempt, key, token, remaining: a service call begins; the agent's clock says how much time remains
- effect: service, key, doing, token, net (standing after it), changed, outcome ("ok", "refused", "stale token", "tombstone")
- reply: idx, doing, attempt, reply (its kind)
- judged: idx, attempt, failures, epoch (of the term)
- released: epoch (of the term), why ("dead", "deaf")
- lease: name, epoch, holder, verb ("acquired", "renewed", "released", "lost")
- notice: sequence, state, queue ("": to a webhook): what a submitter is to be told, written with what it tells of
- notified: sequence, state, submission, by (the queue, the receiver): a submitter was told
- posted: queue, id: a message, once its sender was told that it is there
- handled: queue, id, state ("done", "dead", "waiting": replayed): a message has left the queue, or became a dead letter
- made: message (the id of the one that it was made of): a task
- removed: state, unsent, unheard (listeners, messages in its inbox), ended, now (the store's clock): retention removed a task
- swept: overdue: tasks that should have been removed by then, and are there
- circuit: agent, state: a process's circuit, as it becomes
- counted: idx, failures: a failure was counted for a step
- alert: alert (its kind), step, text
- act: what ("cancel", "undo", "resubmit", "settle"), verdict, reason
- ended: state, result, standing (names), submission
- fault: what, point
- restored: the store went back in time and began a new generation; what it does not know any more is not in the history
- store: outcome ("committed", "rolled back", "ambiguous committed", "ambiguous not committed"), verb, role
- healed: from here on no fault is injected
- rest: tasks, orphans, leases_held_by_dead, inbox_rows, request_rows: what the store holds when the world came to rest; slots_lost:
  agents of which a slot is taken that no call has
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. ``at``: virtual seconds since the world began, by the world's true time. ``node``: the simulated
    process that did it, "" for the world, its services and operators. ``task``: 0 for none. ``fields``: the rest, by kind.
    """

    at: float
    kind: str
    node: str = ""
    task: int = 0
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        """Return one of the fields; raises ``KeyError`` when the kind has no such field."""
        return self.fields[name]

    def __str__(self) -> str:
        """Return a line of a timeline."""
        told = " ".join(f"{name}={value!r}" for name, value in self.fields.items())
        task = f" task {self.task}" if self.task else ""
        return f"{self.at:10.4f}  {self.node:<10} {self.kind:<9}{task} {told}".rstrip()


@dataclass(slots=True)
class History:
    """The events in the order in which they became true. ``clock`` returns the world's time, in seconds since it began."""

    clock: Callable[[], float] = lambda: 0.0
    events: list[Event] = field(default_factory=list)
    _open: list[list[Event]] = field(default_factory=list)

    def note(self, kind: str, node: str = "", task: int = 0, **fields: Any) -> None:
        """Add an event; inside ``begin`` ... ``keep`` it waits for the outcome of the transaction.

        >>> history = History(); history.note("healed"); [event.kind for event in history.events]
        ['healed']
        """
        event = Event(self.clock(), kind, node, task, fields)
        (self._open[-1] if self._open else self.events).append(event)

    def begin(self) -> None:
        """From here on events belong to a transaction."""
        self._open.append([])

    def keep(self) -> None:
        """The transaction was committed: what was noted since ``begin`` became true just now."""
        self.events += self._open.pop()

    def drop(self) -> None:
        """The transaction was rolled back: what was noted since ``begin`` never happened."""
        self._open.pop()

    def of(self, *kinds: str) -> list[Event]:
        """Return the events of these kinds, in order."""
        return [event for event in self.events if event.kind in kinds]

    def digest(self) -> str:
        """Return a hash of the whole history: equal for equal seeds, in every process.

        >>> History().digest() == History().digest()
        True
        """
        hashed = hashlib.sha256()
        for event in self.events:
            hashed.update(
                repr((event.at, event.kind, event.node, event.task, sorted(event.fields.items()))).encode()
            )
        return hashed.hexdigest()

    def timeline(self, only: Iterable[int] = (), last: int | None = None) -> str:
        """Return the history as text, a line per event: of the tasks ``only`` (and what belongs to none), the ``last`` lines."""
        wanted = set(only)
        lines = [str(event) for event in self.events if not wanted or not event.task or event.task in wanted]
        return "\n".join(lines if last is None else lines[-last:])
