"""What is inside an exception: the errors that a group holds, the last error of a retry library's tries, and
what an error was raised from.

An exception *carries* others if it has no meaning of its own: an ``ExceptionGroup``, and the error by which a
retry library reports that its tries have failed. An error that was raised ``from`` another one is an error of
its own, whatever came before it.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from makegood.errors import MakegoodError, Verdict

_MOST_READ: Final = 10_000
"""Errors that are read of one exception for its text."""


def carried_errors(error: BaseException) -> tuple[BaseException, ...]:
    """Return the errors that an exception carries; none if it has a meaning of its own.

    >>> carried_errors(ExceptionGroup("two calls", [ValueError(1)])), carried_errors(ValueError(1))
    ((ValueError(1),), ())
    """
    if isinstance(error, MakegoodError):
        return ()
    if isinstance(error, BaseExceptionGroup):
        return tuple(error.exceptions)
    last = _last_try(error)
    return () if last is None or last is error else (last,)


def _last_try(error: BaseException) -> BaseException | None:
    """Return the error of the last try that a retry library's exception holds, as tenacity's and retrying's
    ``RetryError`` do.
    """
    try:
        attempt = getattr(error, "last_attempt", None)
        if attempt is None:
            return None
        if callable(getattr(attempt, "exception", None)):
            last = attempt.exception() if attempt.done() else None  # a future: it would wait
        else:
            last = attempt.value[1] if attempt.has_exception else None
    except Exception:  # noqa: BLE001 - an attribute of this name that means something else
        return None
    return last if isinstance(last, BaseException) else None


def tries_of(error: BaseException) -> int:
    """Return the number of tries that a retry library's exception reports; 0 for any other one."""
    number = 0 if _last_try(error) is None else getattr(error.last_attempt, "attempt_number", 0)  # type: ignore[attr-defined]  # it has one
    return number if isinstance(number, int) else 0


def leaves(error: BaseException) -> Iterator[tuple[BaseException, bool]]:
    """Yield every error that an exception carries, at any depth, or itself if it carries none.

    With each: whether a retry library may have tried before. Carriers themselves are left out.
    """
    below: list[tuple[BaseException, bool]] = [(error, False)]
    ids: set[int] = set()
    while below:
        leaf, again = below.pop()
        inner = carried_errors(leaf)
        if not inner:
            yield leaf, again
        elif id(leaf) not in ids:
            ids.add(id(leaf))
            again = again or (not isinstance(leaf, BaseExceptionGroup) and tries_of(leaf) != 1)
            below += [(member_error, again) for member_error in reversed(inner)]


def process_end(error: BaseException) -> BaseException | None:
    """Return the interrupt of this very process that an exception is or carries; None without one."""
    ends = (leaf for leaf, _ in leaves(error) if isinstance(leaf, KeyboardInterrupt | GeneratorExit))
    return next(ends, None)


def inside(error: BaseException) -> list[BaseException]:
    """Return the errors inside an exception that say something which it does not say itself, verdicts first.

    Those are the errors that it carries and what they were raised from. Of what was merely being handled
    when it was raised, only verdicts are returned: what the service had answered. Our own errors say it all.
    """
    errors = [cause for cause in islice(_below(error), _MOST_READ) if cause is not error]
    return sorted(errors, key=lambda cause: not isinstance(cause, Verdict))


def _below(error: BaseException) -> Iterator[BaseException]:
    below: list[tuple[BaseException, bool, bool]] = [(error, True, False)]
    ids: set[int] = set()
    while below:
        cause, member, in_handler = below.pop()
        if id(cause) in ids:
            continue
        ids.add(id(cause))
        inner = carried_errors(cause)
        # What was handled says something only if it is a verdict, a cause only if it has a text.
        says = isinstance(cause, Verdict) or (not in_handler and (member or bool(cause.args)))
        if not inner and says and not type(cause).__name__.endswith("RemoteTraceback"):
            yield cause
        if isinstance(cause, MakegoodError):
            continue
        if cause.__cause__ is not None:
            below.append((cause.__cause__, False, in_handler))
        elif cause.__context__ is not None and not cause.__suppress_context__:
            below.append((cause.__context__, False, True))
        below += [(member_error, not in_handler, in_handler) for member_error in reversed(inner)]
