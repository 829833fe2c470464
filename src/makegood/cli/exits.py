"""Exit codes: the one table from errors to numbers."""

from collections.abc import Iterable, Mapping

from makegood import errors

DONE = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
REFUSED = 4
UNDONE = 5
IN_ERROR = 6
TIMED_OUT = 7
UNREACHABLE = 8
MIGRATION_NEEDED = 9
INTERRUPTED = 130

_CODES: Mapping[int, tuple[type[errors.MakegoodError], ...]] = {
    NOT_FOUND: (
        errors.TaskNotFoundError,
        errors.AlertNotFoundError,
        errors.BulkNotFoundError,
        errors.ScheduleNotFoundError,
    ),
    REFUSED: (errors.ActRefusedError, errors.KeyConflict, errors.LaneTakenError, errors.SignalRefused),
    USAGE: (errors.ConfigError, errors.PayloadError, errors.CodecError),
    UNDONE: (errors.TaskUndone,),
    IN_ERROR: (errors.TaskInError,),
    TIMED_OUT: (errors.WaitExpiredError,),
    UNREACHABLE: (errors.StoreUnavailableError,),
    MIGRATION_NEEDED: (errors.SchemaMismatchError,),
}

_OUTCOMES = {"processed": DONE, "undone": UNDONE, "error": IN_ERROR}


def code_of(error: errors.MakegoodError) -> int:
    """Return the exit code of an error: 1 for all that has no code of its own."""
    return next((code for code, kinds in _CODES.items() if isinstance(error, kinds)), FAILED)


def outcome(state: str) -> int:
    """Return the exit code of a task at rest in ``state``; 7 for one that is not at rest."""
    return _OUTCOMES.get(state, TIMED_OUT)


def of_many(codes: Iterable[int]) -> int:
    """Return the code of a command that did several things: the highest of 4, 5 and 6 met, else the highest.

    >>> of_many([0, 5, 4, 7]), of_many([0, 3]), of_many([])
    (5, 3, 0)
    """
    numbers = list(codes)
    return max(
        (code for code in numbers if code in (REFUSED, UNDONE, IN_ERROR)), default=max(numbers, default=DONE)
    )
