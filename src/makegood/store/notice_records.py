"""The records of notices on their way to webhooks, the same for every store.

A task with a webhook has one *listener* row while any notice is unsent, and one *notice* row for each unsent
notice. The listener row records the progress, so notices of one task leave strictly in order, and tasks do
not wait for each other. A notice to a queue is a message in that queue and has neither row.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

import msgspec

from makegood.base import ids
from makegood.errors import ConfigError
from makegood.model import notices
from makegood.model.messages import Act, Alert
from makegood.model.notices import Notice
from makegood.model.plan import StepPlan
from makegood.model.states import StepState
from makegood.model.task import Step, TaskRecord
from makegood.payload.codec import UNREADABLE
from makegood.store import rows
from makegood.store.records import Submission


class HostDue(msgspec.Struct, frozen=True):
    """A host with notices to send."""

    host: str
    seconds: float
    """Seconds until the first notice is due; 0 or less: now."""


class Due(msgspec.Struct, frozen=True):
    """A notice claimed for sending, the next one of its task."""

    task: int
    sequence: int
    url: str
    tries: int
    """Failed tries so far."""
    body: bytes
    early: float = 0.0
    """Seconds by which it was claimed before its next try was due; if this try fails, it does not count."""

    @property
    def host(self) -> str:
        """The host that it is sent to."""
        return host(self.url)


class Waiting(msgspec.Struct, frozen=True):
    """Notices that wait for their next try: at most ``limit`` of a host, the next ones first."""

    host: str
    limit: int
    url: str = ""
    """Only those to this address; "": to any."""
    without: Sequence[str] = ()
    """None to these addresses."""


class Sending(msgspec.Struct, frozen=True):
    """The outcome of a claimed notice."""

    task: int
    sequence: int
    outcome: Literal["sent", "failed", "kept", "dead"]
    """What happened.

    ``sent``: the next notice is due. ``failed``: it is due again after ``wait`` seconds. ``kept``: the same,
    but the try does not count. ``dead``: nothing more is sent of this task until an operator asks for it.
    """
    wait: float = 0.0
    error: str = ""


class ListenerView(msgspec.Struct, frozen=True):
    """A webhook with unsent notices of a task."""

    task: int
    url: str
    sent: int
    """The last notice that was sent."""
    last: int
    """The last notice to send."""
    tries: int
    dead: bool
    due: float | None
    """Seconds until the next try, None when ``dead``."""
    error: str
    """The error of the last try."""


COUNTED: Final = 1000
"""How far the tasks are counted that wait for one receiver."""


class ReceiverBacklog(msgspec.Struct, frozen=True):
    """What waits to be sent to a host, or to a broker."""

    host: str
    waiting: int
    """Tasks with notices to send, up to ``COUNTED`` and one more."""
    overdue: float | None
    """Seconds since the first of them became due, negative before; None: none is to be sent."""
    dead: int
    """Tasks whose notices were given up, up to ``COUNTED`` and one more."""
    error: str
    """Why the last try of one of them failed."""


def host(url: str) -> str:
    """Return the host of a webhook's URL, or the broker of an address ("amqp:main"), as ``HostDue`` and
    per-host limits name it; "" for any other text.
    """
    try:
        address = notices.at_broker(url)
        return notices.split_url(url).hostname or "" if address is None else address.broker
    except ConfigError:
        return ""


KEPT = 7 * 86_400.0
"""Seconds for which a notice waits in a queue that nobody reads."""


def to_queues(batch: Iterable[Notice]) -> list[tuple[str, Notice]]:
    """Return the notices to queues of the store, each with its queue."""
    return [(queue, n) for n in batch if (queue := notices.queue(n.reply.to)) is not None]


def queue_notice_rows(batch: Iterable[Notice]) -> list[tuple[int, int, str, str, str, str, str | None]]:
    """Return task, sequence, label, event, queue, kind, correlation id of notices to queues of the store."""
    return [
        (
            n.task, n.sequence, notices.label(n), notices.event(n), queue, n.type,
            n.reply.correlation_id,
        )
        for queue, n in to_queues(batch)
    ]  # fmt: skip


def first_notice(draft: Submission) -> Notice | None:
    """Return the first notice of a submission, None if nobody is to be notified."""
    reply = draft.reply
    if reply is None:
        return None
    return Notice(draft.id, 1, "received", reply, draft.app, draft.workflow, draft.key)


def dead_letter(outcome: Sending, url: str) -> Alert:
    """Return the alert for a notice that is given up."""
    text = (
        f"notice {outcome.sequence} to {notices.safe_address(url)} is given up: {outcome.error}; nothing more of this task is sent until "
        f"`makegood notices retry {ids.show(outcome.task)}`, or `drop`"
    )
    return Alert("dead_letter", outcome.task, text=text)


def dead_notice_audit(act: Act, pairs: Iterable[tuple[int, str]], *, drop: bool) -> list[rows.AuditRow]:
    """Return the audit rows for dead notices (of task, to URL) that an operator resends or drops."""
    kind, state = ("drop_notices", "dropped") if drop else ("retry_notices", "retried")
    return rows.audit_rows(
        act, kind, state, [(task, task, f"notices to {notices.safe_address(url)}") for task, url in pairs]
    )


def listeners(batch: Iterable[Notice]) -> list[tuple[int, str, str, int, int]]:
    """Return (task, host, url, first sequence, last sequence) of notices to webhooks, in order of task."""
    by_task: dict[int, list[Notice]] = {}
    for notice in batch:
        by_task.setdefault(notice.task, []).append(notice)
    return [
        (task, host(sequence[0].reply.to), sequence[0].reply.to, sequence[0].sequence, sequence[-1].sequence)
        for task, sequence in sorted(by_task.items())
    ]


def of_rejection(
    columns: Sequence[Any], static: bytes, cause: str, steps: Iterable[tuple[str, StepState, int]]
) -> Notice | None:
    """Return the notice of a task that the store itself puts to error; None if no
    recipient is set or readable.

    ``columns``: id, app, workflow, key, submission, told, notified. ``steps``: name, state
    and flags of its actions.
    """
    id_, app, workflow, key, submission, told_state, notice_count = columns
    try:
        reply = rows.read_static(static)[2]
    except UNREADABLE:  # the reason why it is put to error: there is an alert, and no notice
        return None
    task = TaskRecord(
        id_, app, workflow, key, "error", submission=submission, cause=cause, reply=reply, told=told_state or "",
        notified=notice_count or 0,
    )  # fmt: skip
    return notices.notice_of(
        task,
        lambda: [
            Step(StepPlan(0, "action", name), state, stood=bool(flags & rows.STOOD))
            for name, state, flags in steps
        ],
    )
