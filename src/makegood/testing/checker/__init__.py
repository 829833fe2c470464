"""The checker: takes a recorded history and reports which invariants it breaks.

``check`` reads one history, ``RunCounts`` many (a batch in which something never happened proves nothing),
``timeline`` shows a history to people, and ``linearizable`` checks the answers of concurrent callers of a
store. All of it is pure.
"""

from collections.abc import Sequence

from makegood.testing.checker.batch import RunCounts
from makegood.testing.checker.circuits import OpenMeansShut
from makegood.testing.checker.effects import CallsInTime, KeysAndTokens, OnceOrNotAtAll
from makegood.testing.checker.ends import (
    EffectsAsRecorded,
    EverythingEnds,
    FewCommits,
    NothingLeftOver,
    NothingLost,
    SilentLogs,
)
from makegood.testing.checker.messages import OneTaskPerMessage
from makegood.testing.checker.order import ForwardInOrder, UndoInOrder
from makegood.testing.checker.owners import CountedOnce, OneOwner, OnlyTheTerm
from makegood.testing.checker.reading import Final, HistoryState, in_order
from makegood.testing.checker.register import RecordedCall, linearizable
from makegood.testing.checker.replies import InTime, OneCompletion, RefusedChangesNothing
from makegood.testing.checker.report import INVARIANTS, PARTS, Report, Violation
from makegood.testing.checker.retention import OnlyWhatIsOver
from makegood.testing.checker.rule import Rule
from makegood.testing.checker.states import FinalStates, Folding
from makegood.testing.checker.telling import EachEndIsTold
from makegood.testing.checker.timeline import timeline
from makegood.testing.history import History

__all__ = [
    "INVARIANTS",
    "RULES",
    "Final",
    "RecordedCall",
    "Report",
    "RunCounts",
    "Violation",
    "check",
    "linearizable",
    "timeline",
]

RULES: Sequence[type[Rule]] = (
    FinalStates, OneCompletion, InTime, OnceOrNotAtAll, KeysAndTokens, OneOwner, OnlyTheTerm, CountedOnce, UndoInOrder,
    ForwardInOrder, CallsInTime, NothingLost, RefusedChangesNothing, SilentLogs, Folding, EverythingEnds,
    EffectsAsRecorded, EachEndIsTold, NothingLeftOver, FewCommits,
    OneTaskPerMessage, OnlyWhatIsOver, OpenMeansShut,
)  # fmt: skip
"""One rule per invariant."""


def check(history: History, final: Final | None = None) -> Report:
    """Return what a history violates and how often each invariant was checked.

    ``final``: what is known beside it. Without the tasks' rows, I10 and the order in I9 are not checked, and
    I8 knows no threshold.
    """
    kinds = {event.kind for event in history.events}
    report = Report(excused={name: why for name, (kind, why) in PARTS.items() if kind not in kinds})
    world = HistoryState(final or Final())
    rules = [make(report) for make in RULES]
    wanting: dict[str, list[Rule]] = {}
    for rule in rules:
        for kind in rule.kinds:
            wanting.setdefault(kind, []).append(rule)
    for event in in_order(history):
        interested = wanting.get(event.kind, ())
        for rule in interested:
            rule.before(event, world)
        world.take(event)
        for rule in interested:
            rule.after(event, world)
    for rule in rules:
        rule.end(world)
    return report
