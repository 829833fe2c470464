"""The errors of makegood, one family.

Names of problems end in ``Error``; verdicts and outcomes read as words. Data are attributes. The message says
what was wrong, where, and what to do::

    MakegoodError
    ├─ DefinitionError              the declaration is wrong; at import or at submission
    │  ├─ DuplicateNameError
    │  ├─ MissingUndoError          a workflow uses an action that does not declare how it is undone
    │  ├─ UnknownActionError        a plan names an action that no agent declares
    │  └─ PromiseError              ``if promise:`` and the like; the remedy is in the message
    ├─ SubmissionError
    │  ├─ KeyConflict               same key, other inputs
    │  ├─ TransactionError          ``connection=``: not this connection, or not now
    │  ├─ PayloadError              not encodable, too large (size and limit named), or nested too deeply
    │  ├─ QueueFullError            a queue is at its limit: nothing was sent
    │  ├─ LaneTakenError            a lane is taken, and the workflow does not wait
    │  └─ SignalRefused             the task has ended, or does not wait for such a signal: nothing was sent
    ├─ CodecError                   a payload cannot be opened in this process, or not be encoded now
    ├─ MissingValueError            a step needs part of a result that is missing
    ├─ TaskNotFoundError
    ├─ AlertNotFoundError
    ├─ BulkNotFoundError
    ├─ ScheduleNotFoundError
    ├─ ActRefusedError              the command is not allowed in this state, or lost a race
    ├─ TaskOutcome                  raised by ``result()``
    │  ├─ TaskUndone                .cause .undone .standing
    │  ├─ TaskInError               .cause .standing: an operator is needed
    │  ├─ StepFailedError           .step .state .error: the step that answers a signal has no result
    │  └─ WaitExpiredError          the task continues, only the waiting ended
    ├─ Verdict                      what an action may raise; any other exception counts as transient
    │  ├─ Permanent                 do not try again
    │  ├─ Refused                   the service says that nothing is in place for this key, now or later
    │  ├─ Later                     wait; not a failure
    │  ├─ CompleteByPassed          from ``call.check()``
    │  └─ CallCancelled             from ``call.check()``, and ``call.sleep()``
    ├─ StoreError
    │  ├─ StoreUnavailableError     transient; actors rest and continue
    │  ├─ SchemaMismatchError       run ``makegood store migrate``
    │  ├─ FencedOffError            the lease's epoch moved
    │  └─ IllegalTransitionError    a defect of makegood, never the user's
    ├─ DeliveryError                a notice or an alert was not delivered; .status .retry_after
    ├─ BrokerUnavailableError       transient; the relay rests and continues
    ├─ LeadershipLostError          the term is over: stop, and contend again
    ├─ ConfigError                  a setting, a duration, a store URL, a cron text, a time zone
    └─ ClosedError                  a client was used that is not open, or closed while its caller waited
"""

import math
import re
from collections.abc import Sequence
from copyreg import __newobj__  # type: ignore[attr-defined]  # typeshed lacks it
from datetime import timedelta
from email.utils import parsedate_to_datetime

Wait = float | int | str | timedelta
"""A length of time: seconds, ``timedelta``, "200ms", "20s", "5m", "2h", or a Retry-After header's value."""


class MakegoodError(Exception):
    """Root of the family: ``except MakegoodError`` catches everything that makegood raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        """Leave a pool's process as it is, whatever the constructor of a subclass takes."""
        return __newobj__, (type(self), *self.args), self.__dict__


class DefinitionError(MakegoodError):
    """An app, agent, action or workflow is declared wrongly. Raised at import or at submission; correct the
    code.
    """


class DuplicateNameError(DefinitionError):
    """Two things of one app share a name that must be unique. Rename one, or pass ``name=``."""


class MissingUndoError(DefinitionError):
    """A workflow uses an action that does not declare how it is undone, or not yet."""


class UnknownActionError(DefinitionError):
    """A plan or a waiting step names an action that no agent of the app declares."""


class PromiseError(DefinitionError):
    """A promise was used as if its value were known. The message names the construct and the remedy."""


class SubmissionError(MakegoodError):
    """A submission could not be accepted; nothing was written."""


class KeyConflict(SubmissionError):  # noqa: N818 - an outcome, reads as a word
    """A task with this key exists with other inputs."""

    def __init__(self, message: str, *, task_id: str = "", key: str = "") -> None:
        super().__init__(message)
        self.task_id = task_id
        """The existing task."""
        self.key = key


class TransactionError(SubmissionError):
    """The ``connection=`` cannot carry a submission.

    It is of another database, has no open transaction, makes commits that a power cut could revert, or is of
    an unknown kind. Nothing was written, and the transaction, if there is one, is unchanged.
    """


class PayloadError(SubmissionError):
    """A payload cannot be encoded, is too large, or is nested too deeply."""

    def __init__(self, message: str, *, size: int = 0, limit: int = 0) -> None:
        super().__init__(message)
        self.size = size
        """Bytes; 0 if the error is not about size."""
        self.limit = limit
        """Bytes; 0 if the error is not about size."""


class QueueFullError(SubmissionError):
    """More messages, or more bytes, would wait in a queue than are allowed: nothing was sent."""

    def __init__(
        self, message: str, *, queue: str = "", limit: int = 0, room: int = 0, unit: str = "messages"
    ) -> None:
        super().__init__(message)
        self.queue = queue
        self.limit = limit
        """The queue's limit, in ``unit``."""
        self.room = room
        """Messages that the queue could have taken."""
        self.unit = unit
        """Whether it is the limit of "messages" or of "bytes"."""


class LaneTakenError(SubmissionError):
    """A lane is taken, and the workflow says ``when_taken="refuse"``: nothing was written."""

    def __init__(self, message: str, *, task_id: str = "", lane: str = "") -> None:
        super().__init__(message)
        self.task_id = task_id
        """The task that has the lane, or that is next."""
        self.lane = lane


class SignalRefused(SubmissionError):  # noqa: N818 - an outcome, reads as a word
    """A task takes no such signal, and nothing was sent.

    The task has ended or is being undone, no step waits for a signal of this name, or too many are unused.
    """

    def __init__(
        self,
        message: str,
        *,
        task_id: str = "",
        signal: str = "",
        state: str = "",
        app: str = "",
        workflow: str = "",
        is_known: bool = False,
        takes_encoded: bool = False,
        is_full: bool = False,
    ) -> None:
        super().__init__(message)
        self.task_id = task_id
        self.signal = signal
        """The name of the signal."""
        self.state = state
        """The task's state."""
        self.app = app
        self.workflow = workflow
        self.is_known = is_known
        """Whether a step of the task waits, at some time, for a signal of this name."""
        self.takes_encoded = takes_encoded
        """Whether the value was refused because it is not encoded: this process lacks the app's codec."""
        self.is_full = is_full
        """Whether only the number of the task's unused signals is at fault: sent later, it may be taken."""


class CodecError(MakegoodError):
    """A payload is encoded, and cannot be opened here; or the codec cannot encode one now.

    This process has no codec or not its key, or the value was changed, or copied from another place. Or the
    codec raised as it encoded a value, which was not written then: that error is the ``__cause__``.

    An agent that cannot open a payload does not fail the step: it raises an alert and is asked again later.
    """


class MissingValueError(MakegoodError):
    """A step, a condition or a list of ``mg.each`` needs part of a value that is missing, or a value that is
    too large once it is filled in.

    Never reaches a user's program: the step fails with this text, and has certainly done nothing.
    """


class ClosedError(MakegoodError):
    """A client was used that is not open (any more), or was closed while its caller waited. Do not try
    again.
    """


class TaskNotFoundError(MakegoodError):
    """There is no such task in this store."""

    def __init__(self, message: str, *, task_id: str = "") -> None:
        super().__init__(message)
        self.task_id = task_id
        """The id that was asked for."""


class AlertNotFoundError(MakegoodError):
    """There is no such alert in this store."""


class BulkNotFoundError(MakegoodError):
    """There is no such command on many tasks in this store."""


class ScheduleNotFoundError(MakegoodError):
    """There is no such schedule in this store."""


class DeliveryError(MakegoodError):
    """A notice or an alert was not delivered."""

    def __init__(self, message: str, *, status: int = 0, retry_after: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        """The receiver's HTTP status; 0 if it could not be reached."""
        self.retry_after = retry_after
        """The header in which the receiver asks for a pause."""


class BrokerUnavailableError(MakegoodError):
    """A broker cannot be reached, or does not answer now. It redelivers what it delivered and nobody
    acknowledged.
    """


class ActRefusedError(MakegoodError):
    """An operator command is not allowed in the task's state, or lost a race."""

    def __init__(self, message: str, *, act: str = "", state: str = "") -> None:
        super().__init__(message)
        self.act = act
        self.state = state
        """The state that won."""


class TaskOutcome(MakegoodError):  # noqa: N818 - an outcome, reads as a word
    """A task did not end with a result."""

    def __init__(self, message: str, *, task_id: str = "") -> None:
        super().__init__(message)
        self.task_id = task_id


class TaskUndone(TaskOutcome):
    """The task could not be finished and every effect was undone."""

    def __init__(
        self,
        message: str,
        *,
        task_id: str = "",
        cause: str = "",
        undone: Sequence[str] = (),
        standing: Sequence[str] = (),
    ) -> None:
        super().__init__(message, task_id=task_id)
        self.cause = cause
        """Why the task was undone."""
        self.undone = tuple(undone)
        """The steps that were undone."""
        self.standing = tuple(standing)
        """The steps whose harmless effects stay in place."""


class TaskInError(TaskOutcome):
    """The task waits for an operator."""

    def __init__(
        self, message: str, *, task_id: str = "", cause: str = "", standing: Sequence[str] = ()
    ) -> None:
        super().__init__(message, task_id=task_id)
        self.cause = cause
        """Why the task is in error."""
        self.standing = tuple(standing)
        """The steps whose effects are, or may be, still in place."""


class StepFailedError(TaskOutcome):
    """A step whose result is the answer to a signal has none.

    It failed, was skipped or undone; or its task ended, or turned to undo, before it was done.
    """

    def __init__(
        self, message: str, *, task_id: str = "", step: str = "", state: str = "", error: str = ""
    ) -> None:
        super().__init__(message, task_id=task_id)
        self.step = step
        """The name of the step."""
        self.state = state
        """The step's state."""
        self.error = error
        """Why its last attempt failed; "" if that is not known."""


class WaitExpiredError(TaskOutcome):
    """The waiting ended before the task, or the step, did. The task continues; ask again later."""


class Verdict(MakegoodError):  # noqa: N818 - what an action says, reads as a word
    """What an action may raise to report its end. Any other exception counts as transient."""


class Permanent(Verdict):
    """Do not try again: the service answered, and will answer the same next time.

    Right only if no other request for this key went unanswered: makegood knows its own attempts and tries,
    and not those that an SDK makes by itself.
    """


class Refused(Verdict):
    """The service itself says that nothing is in place for this key, now or later.

    A search that finds nothing does not say that: it may lag behind.
    """


class Later(Verdict):
    """Try again after ``wait``; it is not a failure.

    ``wait`` is a duration or the value of a Retry-After header (seconds, or an HTTP date). Raises
    ``ConfigError`` for anything else.
    """

    def __init__(self, wait: Wait = 1.0, message: str = "") -> None:
        if not _is_wait(wait):
            raise ConfigError(
                f'Later({wait!r:.60}): a wait is seconds from 0, a timedelta, "200ms", "20s", "5m", "2h", or the value of a Retry-After '
                'header; for an answer that may have none, write Later(headers.get("Retry-After", "5s"))'
            )
        super().__init__(message or f"asked to wait {wait}")
        self.wait = wait


_WAIT = re.compile(r"\s*(?:\d+(?:\.\d+)?|\.\d+)\s*(?:ms|s|m|h|d)?\s*", re.ASCII)


def _is_wait(value: object) -> bool:
    """Whether a value says how long to wait."""
    if isinstance(value, str):
        if _WAIT.fullmatch(value):
            return True
        try:
            parsedate_to_datetime(value)
        except (TypeError, ValueError):
            return False
        return True
    if isinstance(value, timedelta):
        value = value.total_seconds()
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


class CompleteByPassed(Verdict):
    """The step's deadline has passed: stop, and report nothing. Raised by ``call.check()``."""


class CallCancelled(Verdict):
    """Nobody needs this call any more: its task is being undone. Raised by ``call.check()`` and
    ``call.sleep()``.

    An action that lets it out may have happened: the step is in doubt, and is undone at once. If certainly
    nothing is in place, raise ``Refused`` instead.
    """


class StoreError(MakegoodError):
    """The state store could not do what it was asked."""


class StoreUnavailableError(StoreError):
    """The store cannot be reached or written now; nothing was written. Actors rest and try again."""


class SchemaMismatchError(StoreError):
    """The store's schema is not the one this version understands.

    An older one: run ``makegood store migrate``. A newer one: install the newer makegood. One from before
    0.1.0: create a new store.
    """


class FencedOffError(StoreError):
    """A write carried an epoch that is no longer current."""

    def __init__(self, message: str, *, epoch: int = 0) -> None:
        super().__init__(message)
        self.epoch = epoch
        """The epoch of the write."""


class LeadershipLostError(MakegoodError):
    """A leader's term is over: its lease could not be renewed in time, or another process holds it."""

    def __init__(self, message: str, *, epoch: int = 0) -> None:
        super().__init__(message)
        self.epoch = epoch
        """The epoch of the term."""


class IllegalTransitionError(StoreError):
    """A move that the table of allowed transitions does not contain. A defect of makegood: please report
    it.
    """


class ConfigError(MakegoodError):
    """A setting, a duration or a store URL is wrong."""
