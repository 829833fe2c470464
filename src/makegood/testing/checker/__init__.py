"""The checker: takes a recorded history and reports which invariants it breaks.

``check`` reads a history, and ``timeline`` shows it to people. Both are pure. ``RULES`` judges what a user's
workflow and services are part of; the rules that judge the engine alone are not part of the package.
"""

from collections.abc import Sequence

from makegood.testing.checker.effects import CallsInTime, KeysAndTokens, KeysNotForgotten, OnceOrNotAtAll
from makegood.testing.checker.ends import (
    EffectsAsRecorded,
    EverythingEnds,
    FewCommits,
    NothingLeftOver,
    NothingLost,
    SleepsInTime,
)
from makegood.testing.checker.reading import Final, HistoryState, in_order
from makegood.testing.checker.report import Report, Violation
from makegood.testing.checker.rule import Rule
from makegood.testing.checker.timeline import timeline
from makegood.testing.checker.waiting import LetGoAtRest, NothingLingers, WokenInTime
from makegood.testing.history import History

__all__ = ["RULES", "Final", "Report", "Violation", "check", "timeline"]

RULES: Sequence[type[Rule]] = (
    OnceOrNotAtAll, KeysAndTokens, CallsInTime, NothingLost, KeysNotForgotten, LetGoAtRest, SleepsInTime, EverythingEnds,
    EffectsAsRecorded, NothingLeftOver, FewCommits, WokenInTime, NothingLingers,
)  # fmt: skip
"""One rule per invariant."""


def check(history: History, final: Final | None = None, *, rules: Sequence[type[Rule]] = RULES) -> Report:
    """Return what a history violates and how often each invariant was checked.

    ``final``: what is known beside it. Without the tasks' rows, rules that need the plans check nothing.
    """
    kinds = {event.kind for event in history.events}
    report = Report({rule.name: rule.says for rule in rules})
    world = HistoryState(final or Final())
    judges = [make(report) for make in rules]
    rules_by_kind: dict[str, list[Rule]] = {}
    for rule in judges:
        if rule.part is not None and rule.part[0] not in kinds:
            report.excuses[rule.name] = rule.part[1]
        for kind in rule.kinds:
            rules_by_kind.setdefault(kind, []).append(rule)
    for event in in_order(history):
        subscribers = rules_by_kind.get(event.kind, ())
        for rule in subscribers:
            rule.event = event
            rule.before(event, world)
        world.take(event)
        for rule in subscribers:
            rule.after(event, world)
    for rule in judges:
        rule.event = None
        rule.end(world)
    return report
