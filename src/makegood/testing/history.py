"""What happened in a simulated world, in order: written by the simulator, read by the checker and by people.

What a transaction of the store did is in it only if the transaction was committed. If a commit's answer was
lost, the event ``store`` has the true outcome.

The kinds, with their fields:

- submitted: key, steps (names), no_return, on_failure, reply_to: noted once the client has its answer
- claimed: epoch, lost
- sleeps: a task that begins later was written
- began: early (seconds until its start, by the clock that counts): a task that slept begins
- suspended: wakes (seconds until it is to be claimed; None: by a message only), due (seconds until its first
  timer fires; None: it has none), rests (whether with requests in flight, to make room): a task was let go
- lingers: wait, linger: a Scheduler keeps a task that only waits, for longer than ``linger``
- overfull: count, most: a Scheduler holds more than twice as many tasks as it may
- moved: moves (("task", old, new) and (step idx, old, new, attempt, round)), cause, note: one per committed
  Decision
- signalled: name, id, step (the only one that may use it, or ""), seq, now (the store's clock): a signal was
  written
- acknowledged: name, id, created: the sender of a signal has its answer
- kept: name, id: a Decision keeps a signal;  used: name, id, idx: it ends a wait
- timeout: idx, due, now (both by the store's clock): a step waits for a signal until then
- waited: idx, reason, now: a wait for a signal ended, by a signal or by its timeout
- answered: idx, doing, attempt, complete_by, now: a reply was left in the store, in time by its clock
- accepted: idx, doing ("do", "probe", "undo"), attempt, reply (its kind), complete_by, now (the store's clock
  when a Decision used it), came (the store's clock when it was left there; None: it was handed over in
  memory)
- withdrawn, given back: idx, doing, attempt (by): a request that nobody had taken, or that was taken and not
  begun
- slept: idx, length (seconds since it began, by the store's clock), calendar (the wall clock): a sleep ended
- told: state: a waiting client received the end
- refused: what ("reply", "decision", "supervisor", "act", "lease"), idx, attempt, why: a fence refused a
  stale write
- late: idx, doing, attempt
- sent: idx, doing, attempt, round, key, local
- taken: idx, doing, attempt, by, within (seconds until complete-by, by the clock of the store that gave it
  out)
- cancelled: idx, attempt, by: nobody needs a request any more that a process has taken
- hears: idx, attempt: an attempt hears of that;  runs on: idx, attempt: it was cancelled, and goes on
- wrote: idx, doing, attempt, n, run: an attempt writes its note ``n``; each run of an attempt has a number
- noted: idx, doing, attempt, n, skipped, late: a note is in the history
- call: service, step, doing, attempt, key, token, remaining: a service call begins; ``remaining`` is by the
  agent's clock
- effect: service, key, doing, token, net (effects in place after it), changed, outcome ("ok", "refused",
  "stale token", "tombstone")
- reply: idx, doing, attempt, reply (its kind)
- judged: idx, attempt, failures, epoch (of the term)
- released: epoch (of the term), why ("dead", "deaf")
- lease: name, epoch, holder, verb ("acquired", "renewed", "released")
- notice: sequence, state, queue ("": to a webhook): a notice, written with the change that it reports
- notified: sequence, state, submission, by (the queue, the receiver): a submitter received a notice
- posted: queue, id: a message, once its sender has its acknowledgement
- handled: queue, id, state ("done", "dead", "waiting": replayed): a message has left the queue, or became a
  dead letter
- zones: zone, change, before, after: the zone rules of a host (``node``): when its clocks change, by the
  calendar, and the offsets from UTC
- schedule: name, verb, calendar, spec, before and progress (the row's progress before and after), last_task,
  former_pause and pause (from when, until when), tasks (id and key of each new one): an operation on a row
- lane: lane, seq, at_once, state ("waiting", "held", "out", "gone"): a task's place in a lane
- lane refused: key: a submission was refused, as this task has its lane
- made: message (the id of the one that it was made of): a task
- removed: state, unsent, unheard (listeners, messages in its inbox), ended, now (the store's clock):
  retention removed a task
- swept: overdue: tasks that should have been removed by then, and are there
- circuit: agent, state: the new state of a process's circuit
- outcome: agent, idx, doing, outcome ("answered", "failed", "later", "neither"): a circuit learns how a call
  ended, before its reply is sent
- counted: idx, failures: a failure was counted for a step
- alert: alert (its kind), step, text
- act: what ("cancel", "undo", "resubmit", "settle", "wake"), verdict, reason, who
- ended: state, result, standing (names), submission
- fault: what, point; seconds: by which a clock jump set a monotonic clock forward
- restored: the store went back in time and began a new generation; the history no longer has what the store
  lost
- store: outcome ("committed", "rolled back", "ambiguous committed", "ambiguous not committed"), verb, role
- healed: no fault is injected from here on
- rest: tasks, orphans, leases_held_by_dead, inbox_rows, request_rows: what the store holds when the world has
  settled; slots_lost: agents that have a slot taken without a call
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """One event."""

    at: float
    """Virtual seconds since the world began, by the world's true time."""
    kind: str
    node: str = ""
    """The simulated process that did it; "" for the world, its services and operators."""
    task: int = 0
    """0 for none."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """The rest, by kind."""

    def __getitem__(self, name: str) -> Any:
        """Return one of the fields. Raises ``KeyError`` if the kind has no such field."""
        return self.fields[name]

    def __str__(self) -> str:
        """Return a line of a timeline."""
        fields = " ".join(f"{name}={value!r}" for name, value in self.fields.items())
        task = f" task {self.task}" if self.task else ""
        return f"{self.at:10.4f}  {self.node:<10} {self.kind:<9}{task} {fields}".rstrip()


@dataclass(slots=True)
class History:
    """The events in the order in which they became true. ``clock`` returns the world's time, in seconds since
    it began.
    """

    clock: Callable[[], float] = lambda: 0.0
    events: list[Event] = field(default_factory=list)

    def note(self, kind: str, node: str = "", task: int = 0, **fields: Any) -> None:
        """Add an event.

        >>> history = History(); history.note("healed"); [event.kind for event in history.events]
        ['healed']
        """
        self.events.append(Event(self.clock(), kind, node, task, fields))

    def of(self, *kinds: str) -> list[Event]:
        """Return the events of these kinds, in order."""
        return [event for event in self.events if event.kind in kinds]

    def digest(self) -> str:
        """Return a hash of the whole history: equal for equal seeds, in every process.

        >>> History().digest() == History().digest()
        True
        """
        hasher = hashlib.sha256()
        for event in self.events:
            hasher.update(
                repr((event.at, event.kind, event.node, event.task, sorted(event.fields.items()))).encode()
            )
        return hasher.hexdigest()
