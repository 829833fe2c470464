"""What counts as a verdict: decided here, once, for actions, undos, probes and the functions of inboxes.

- **What is raised counts.** An error that was raised ``from`` a verdict, or while one was handled, is another
  error: it is transient, and the call may have happened. A refusal with a class of its own is a subclass of
  ``Permanent``.
- **Carriers are opened**: an ``ExceptionGroup``, at any depth, and the error by which a retry library reports
  that its tries have failed. (Pools of threads and processes, and ``asyncio.gather``, raise the verdict
  itself.)
- A carrier of verdicts of one kind is that verdict: of several ``Later``, the longest wait. ``Permanent``
  beside ``Refused`` is ``Permanent``, which claims less. ``CompleteByPassed`` beside other verdicts wins: the
  deadline has passed, so no answer counts. After it ``CallCancelled`` wins, which claims nothing.
- A carrier that holds any other error, a cancellation too, is no verdict, since that other call may have
  happened. Nor is one that holds ``Later`` beside a refusal.
- A refusal after a retry library's earlier tries is not certain: they are unanswered.
"""

from typing import NamedTuple

from makegood.base.durations import retry_after
from makegood.base.wrapped_errors import leaves
from makegood.errors import CallCancelled, CompleteByPassed, Later, Permanent, Refused, Verdict

_KINDS = (CompleteByPassed, CallCancelled, Permanent, Refused, Later)


class RaisedVerdict(NamedTuple):
    """A verdict that was raised, alone or in a carrier."""

    verdict: Verdict
    unclear: bool
    """Whether an earlier try of a retry library may be unanswered."""


def verdict_in(error: BaseException, now: float) -> RaisedVerdict | None:
    """Return the verdict that an exception is or carries; None for any other error.

    ``now``: seconds since 1970, by which waits until a date are compared.
    """
    verdicts: list[Verdict] = []
    unclear = False
    for one, tried_before in leaves(error):
        if not isinstance(one, _KINDS):
            return None
        verdicts.append(one)
        unclear = unclear or tried_before
    kind = next(kind for kind in _KINDS if any(isinstance(one, kind) for one in verdicts))
    if kind in (Permanent, Refused) and any(isinstance(one, Later) for one in verdicts):
        return None
    same = [one for one in verdicts if isinstance(one, kind)]
    return RaisedVerdict(max(same, key=lambda one: _wait(one, now)), unclear)


def _wait(verdict: Verdict, now: float) -> float:
    return retry_after(verdict.wait, now) if isinstance(verdict, Later) else 0.0
