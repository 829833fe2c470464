"""What is wrong with the ends of the orders: the services' books against what the shop says, and the shop against itself.

It reads files of a run's folder, the services' own books, ``ends.jsonl``, and for the waits ``waits.json`` and the customers'
notes, for a broker ``broker.json``, and nothing else; it can be run on them alone: ``python -m examples.chaos --audit FOLDER``.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from examples.orders.auditor import EFFECTS, HARMLESS, AuditError, audit, read_books, read_told
from examples.orders.auditor import Report as Audit

from .broker_checks import BrokerVerdict, examine_broker
from .ends import FILE
from .orders import MOMENT_PREFIX
from .wait_checks import WaitVerdict, examine_waits

BOOKS: Final = "books.db"
MUST_STAND: Final = ("done",)
MUST_NOT_STAND: Final = ("waiting", "ready", "skipped", "failed", "undone")
OPEN: Final = ("in_doubt", "undo_failed", "kept")
"""What stands of these is not known, that is why they are listed. *Kept* is also what was in doubt and cannot be undone."""
ERRORS: Final = ("held", "undo_incomplete", "poison", "unreadable")
"""Alerts that say why a task is in error."""
AT_REST: Final = (*MUST_STAND, *MUST_NOT_STAND, *OPEN)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found. ``contradictions``: the shop's own records against the books, its history and its alerts."""

    audit: Audit
    contradictions: tuple[str, ...]
    waits: WaitVerdict = field(default_factory=WaitVerdict)
    broker: BrokerVerdict = field(default_factory=BrokerVerdict)

    @property
    def findings(self) -> list[str]:
        """Everything that is wrong, in words."""
        return [
            *map(str, self.audit.findings),
            *self.contradictions,
            *self.waits.findings,
            *self.broker.findings,
        ]


def examine(folder: Path) -> Verdict:
    """Check a run's folder. Raises ``AuditError`` when its files cannot be read."""
    try:
        text = (folder / FILE).read_text(encoding="utf-8")
    except OSError as error:
        raise AuditError(f"the ends of the orders cannot be read: {error}") from error
    outcomes = read_told(text.splitlines())
    lines = [json.loads(line) for line in text.splitlines()]
    net: defaultdict[tuple[str, str], int] = defaultdict(int)
    for entry in read_books(folder / BOOKS):
        net[entry.order, entry.effect] += entry.change
    contradictions = [
        f"order {line['order']}: {text}" for line in lines for text in _contradictions(line, net)
    ]
    return Verdict(
        _of_orders(audit(folder / BOOKS, outcomes)),
        tuple(contradictions),
        examine_waits(folder, folder / BOOKS, lines),
        examine_broker(folder, lines),
    )


def _of_orders(report: Audit) -> Audit:
    """Return the audit without what the schedule's moments did, which are not orders: ``wait_checks`` judges them."""
    findings = [finding for finding in report.findings if not finding.order.startswith(MOMENT_PREFIX)]
    return replace(report, findings=tuple(findings))


def _contradictions(line: Mapping[str, Any], net: Mapping[tuple[str, str], int]) -> Iterator[str]:
    if "state" not in line:
        yield "acknowledged, and the shop knows nothing of it"
        return
    if line["locked_by"] is not None:
        yield f"is {line['state']} and still held by node {line['locked_by']}"
    yield from _history(line)
    standing = {effect for effect in EFFECTS if net.get((line["order"], effect), 0) > 0}
    if line["state"] == "error":
        yield from _in_error(line, standing)
    yield from _steps(line, standing)


def _history(line: Mapping[str, Any]) -> Iterator[str]:
    if line["told_by_history"] != line["state"]:
        yield f"is {line['state']}, and its history says {line['told_by_history']} last"
    first, outcome, acts = line["first"], line["outcome"], line["acts"]
    if not first:
        yield f"is {line['state']}, and its customer was never told an end"
    elif outcome != first and not acts:
        yield f"its customer was told {first}, it is {outcome}, and no operator had a hand in it"


def _in_error(line: Mapping[str, Any], standing: set[str]) -> Iterator[str]:
    """The list of what stands must be the truth, but for what nobody knows."""
    if not line["alerts"]:
        yield "is in error, and there is no alert of it"
    effects = {name.partition(".")[0] for name in line["standing"]} & set(EFFECTS)
    open_ = {name.partition(".")[0] for name, (state, _) in line["steps"].items() if state in OPEN}
    for name in sorted(effects - standing - open_ - HARMLESS):
        yield f"{name} is listed as in place, and is not in the books"


def _steps(line: Mapping[str, Any], standing: set[str]) -> Iterator[str]:
    for step, (state, round_) in line["steps"].items():
        name = step.partition(".")[0]
        if state not in AT_REST:
            yield f"is {line['state']} while its step {name} is {state}"
        elif name not in EFFECTS:
            continue
        elif state in MUST_STAND and name not in standing:
            yield f"its step {name} is {state}, and the books show nothing"
        elif state in MUST_NOT_STAND and name in standing and not (name in HARMLESS and round_ > 0):
            yield f"its step {name} is {state}, and the books show {name}"


def count_ends(lines: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many orders ended how; those in error also by the alert that said so last."""
    ends = {"processed": 0, "undone": 0, "error": 0, **{f"error, {kind}": 0 for kind in ERRORS}, "open": 0}
    for line in lines:
        ends[line["outcome"] or "open"] += 1
        if line["outcome"] == "error":
            kind = next((alert for alert in line["alerts"] if alert in ERRORS), "")
            if kind:
                ends[f"error, {kind}"] += 1
    return ends
