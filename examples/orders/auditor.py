"""The auditor: do the services' books and what the shop was told tell the same story?

It reads the remote services' own books and the list of outcomes, and nothing else: never makegood's store, and it
shares no code with either. For every order that was processed all effects must stand once; for one that was undone
none, but for harmless ones that were listed; for one in error none that was not listed. A large order ships only with a yes,
and a settlement pays out what the bank owed at that moment.

``python -m orders.auditor --books books.db --outcomes told.jsonl``

*told.jsonl* holds a JSON object per line, and later lines of an order add to earlier ones::

    {"order": "o-1", "cents": 1999}                                 submitted, and acknowledged
    {"order": "o-1", "outcome": "undone", "standing": ["email"]}    how it ended: processed, undone or error
    {"order": "o-1", "outcome": "under way"}                        an operator had it taken up again
    {"order": "o-2", "approved_by": "desk"}                         somebody's yes; "refused_by": a no

Exit code: 0 the books balance, 1 they do not, 2 they could not be read.
"""

import argparse
import json
import sqlite3
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

EFFECTS: Final = ("reserve", "charge", "book", "pack", "email", "ship")
"""What a processed order must have standing, each once."""
HARMLESS: Final = frozenset({"email"})
"""May stand after an undo, if listed."""
SETTLEMENT: Final = "settle"
"""The effect of paying out; what has it is not an order."""
LIMIT: Final = 30_000
"""Cents above which an order ships only with somebody's yes."""
OUTCOMES: Final = ("processed", "undone", "error")
OPEN_AGAIN: Final = "under way"
"""Told of an order that had an outcome and was taken up again by an operator: until the next outcome it has none."""


class Kind(StrEnum):
    """The kinds of findings."""

    CHARGED_TWICE = "charged twice"
    DONE_TWICE = "done twice"
    CHARGED_THOUGH_UNDONE = "charged, though undone"
    STANDING_THOUGH_UNDONE = "in place, though undone"
    MISSING = "missing, though processed"
    NOT_LISTED = "in place, but not listed"
    UNDONE_TOO_OFTEN = "taken back more often than done"
    WRONG_AMOUNT = "wrong amount"
    NOT_APPROVED = "shipped without approval"
    WRONG_SETTLEMENT = "settled wrongly"
    LOST = "lost: submitted, and no outcome"
    UNKNOWN_ORDER = "effects of an unknown order"


class AuditError(Exception):
    """The books or the outcomes cannot be read. The message says where and why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the services' books: ``change`` is +1 for done, -1 for taken back."""

    effect: str
    change: int
    key: str
    order: str
    cents: int
    approved_by: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """What the shop was told of an order. ``cents`` is None where the shop did not say; ``outcome`` empty till then;
    ``approvers`` and ``refusers`` are those whose yes or no the shop has noted.
    """

    order: str
    outcome: str = ""
    standing: frozenset[str] = frozenset()
    cents: int | None = None
    approvers: frozenset[str] = frozenset()
    refusers: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that does not balance."""

    kind: Kind
    order: str
    detail: str

    def __str__(self) -> str:
        return f"order {self.order}: {self.kind}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Report:
    """What an audit found, and the totals: orders by outcome, effects done / taken back / standing, and money."""

    findings: tuple[Finding, ...]
    orders: Mapping[str, int]
    effects: Mapping[str, tuple[int, int, int]]
    money: Mapping[str, int]

    @property
    def balanced(self) -> bool:
        """True when there is no finding."""
        return not self.findings

    def lines(self) -> list[str]:
        """The report for a terminal, findings last."""
        orders = ", ".join(f"{count} {name}" for name, count in self.orders.items())
        lines = [f"orders: {orders}", f"{'effect':<10}{'done':>8}{'undone':>8}{'in place':>10}"]
        lines += [
            f"{name:<10}{forward:>8}{backward:>8}{stands:>10}"
            for name, (forward, backward, stands) in self.effects.items()
        ]
        lines.append("money: " + ", ".join(f"{name} {cents / 100:.2f}" for name, cents in self.money.items()))
        lines += [f"FINDING  {finding}" for finding in self.findings]
        return [*lines, "the books balance" if self.balanced else f"{len(self.findings)} findings"]

    def as_json(self) -> dict[str, Any]:
        """The report for a machine."""
        return {
            "balanced": self.balanced,
            "findings": [{"kind": str(f.kind), "order": f.order, "detail": f.detail} for f in self.findings],
            "orders": dict(self.orders),
            "effects": {
                name: dict(zip(("done", "undone", "standing"), counts, strict=True))
                for name, counts in self.effects.items()
            },
            "money": dict(self.money),
        }


def audit(books: Path, outcomes: Iterable[Told | Mapping[str, Any]], *, final: bool = True) -> Report:
    """Compare the books with what the shop was told.

    ``outcomes`` are ``Told`` or what ``read_told`` reads a line as. With ``final=False`` orders may still be under way:
    no order is lost yet, and one without an outcome is only held to what must be true at all times. Raises
    ``AuditError``.
    """
    entries = read_books(books)
    by_name = merge(outcomes)
    by_order: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_order[entry.order].append(entry)
    settlements = {entry.order for entry in entries if entry.effect == SETTLEMENT}
    keepers = frozenset[str]().union(*(outcome.approvers | outcome.refusers for outcome in by_name.values()))
    findings = _check_settlements(entries)
    for order in sorted(by_name.keys() | by_order.keys()):
        findings += _always(order, by_order[order])
        if order in by_name:
            findings += _check_approval(by_name[order], by_order[order], keepers)
            findings += _at_the_end(by_name[order], by_order[order], final=final)
        elif final and order not in settlements:
            names = ", ".join(sorted({entry.effect for entry in by_order[order]}))
            findings.append(
                Finding(Kind.UNKNOWN_ORDER, order, f"{names}, and the shop knows of no such order")
            )
    return Report(tuple(findings), _count_orders(by_name), _count_effects(entries), _count_money(entries))


def read_books(books: Path) -> list[Entry]:
    """Read all entries, oldest first, without writing or creating anything. Raises ``AuditError``."""
    try:
        with closing(sqlite3.connect(f"{books.resolve().as_uri()}?mode=ro", uri=True, timeout=10.0)) as db:
            rows = db.execute(
                "SELECT effect, change, key, order_id, cents, approved_by FROM entry ORDER BY id"
            ).fetchall()
    except sqlite3.Error as error:
        raise AuditError(f"the books {books} cannot be read: {error}") from error
    return [Entry(*row) for row in rows]


def read_told(lines: Iterable[str]) -> list[Told]:
    """Read outcomes, a JSON object per line; empty lines are skipped. Raises ``AuditError`` naming the line."""
    outcomes = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                outcomes.append(_told(json.loads(line)))
            except (ValueError, AuditError) as error:
                raise AuditError(f"outcomes, line {number}: {error}") from error
    return outcomes


def merge(outcomes: Iterable[Told | Mapping[str, Any]]) -> dict[str, Told]:
    """Put together what was told of each order: the last outcome counts, with its own list of what stands."""
    latest_by_order: dict[str, Told] = {}
    for item in outcomes:
        new = item if isinstance(item, Told) else _told(item)
        old = latest_by_order.get(new.order, new)
        cents = old.cents if new.cents is None else new.cents
        reopen = new.outcome == OPEN_AGAIN
        latest = Told(new.order) if reopen else new if new.outcome else old
        approvers, refusers = old.approvers | new.approvers, old.refusers | new.refusers
        latest_by_order[new.order] = replace(latest, cents=cents, approvers=approvers, refusers=refusers)
    return latest_by_order


def _told(line: Any) -> Told:
    if not isinstance(line, Mapping) or not isinstance(line.get("order"), str):
        raise AuditError(f"a JSON object with an order is wanted, not {line!r}")
    outcome, standing, cents = line.get("outcome") or "", line.get("standing") or (), line.get("cents")
    if outcome and outcome not in (*OUTCOMES, OPEN_AGAIN):
        raise AuditError(f"outcome is one of {', '.join((*OUTCOMES, OPEN_AGAIN))}, not {outcome!r}")
    if isinstance(standing, str) or not all(isinstance(name, str) for name in standing):
        raise AuditError(f"standing={standing!r}: a list of names")
    if cents is not None and (isinstance(cents, bool) or not isinstance(cents, int)):
        raise AuditError(f"cents is a whole number, not {cents!r}")
    return Told(
        line["order"], outcome, frozenset(map(_action, standing)), cents, _names(line, "approved_by"), _names(line, "refused_by")
    )  # fmt: skip


def _names(line: Mapping[str, Any], answer: str) -> frozenset[str]:
    """The names of those who gave this answer: a line has one name, or a list."""
    names = line.get(answer) or ()
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise AuditError(f"{answer}={names!r}: a name, or a list of names")
    return frozenset(names)


def _action(step: str) -> str:
    """The action that a listed step is about: the first word that is an effect's name, or the step as it was told."""
    words = step.replace(".", " ").replace("/", " ").replace(":", " ").split()
    return next((word for word in words if word in EFFECTS), step)


def _always(order: str, entries: Sequence[Entry]) -> list[Finding]:
    """What must hold at every moment, whatever becomes of the order: entry by entry, oldest first."""
    findings = []
    standing: Counter[str] = Counter()
    charges: dict[str, int] = {}
    keys: set[str] = set()
    for entry in entries:
        effect, twice = entry.effect, Kind.CHARGED_TWICE if entry.effect == "charge" else Kind.DONE_TWICE
        standing[effect] += entry.change
        if entry.change > 0:
            if f"{effect} {entry.key}" in keys:
                findings.append(Finding(twice, order, f"{effect} twice under the one key {entry.key}"))
            elif standing[effect] > 1 and effect not in HARMLESS:
                findings.append(
                    Finding(twice, order, f"{effect} again, under key {entry.key}, while one is in place")
                )
            keys.add(f"{effect} {entry.key}")
            charges[entry.key] = entry.cents
        elif standing[effect] < 0 or f"{effect} {entry.key}" not in keys:
            findings.append(Finding(Kind.UNDONE_TOO_OFTEN, order, f"{effect}, under key {entry.key}"))
        elif charges.get(entry.key, entry.cents) != entry.cents:
            detail = f"{charges[entry.key]} cents done, {entry.cents} taken back, under key {entry.key}"
            findings.append(Finding(Kind.WRONG_AMOUNT, order, detail))
    return findings


def _check_settlements(entries: Sequence[Entry]) -> list[Finding]:
    """What is wrong with settlements: each pays out what the bank took and has not paid out, refunds deducted."""
    findings, balance = [], 0
    for entry in entries:
        if entry.effect == SETTLEMENT:
            if entry.change > 0 and entry.cents != balance:
                detail = f"{entry.cents} cents paid out, {balance} owed, under key {entry.key}"
                findings.append(Finding(Kind.WRONG_SETTLEMENT, entry.order, detail))
            balance -= entry.change * entry.cents
        elif entry.effect == "charge":
            balance += entry.change * entry.cents
    return findings


def _check_approval(outcome: Told, entries: Sequence[Entry], keepers: frozenset[str]) -> list[Finding]:
    """What is wrong with the approval of a large order that was shipped: its papers name nobody, or somebody who notes each
    answer (``keepers``), and noted no yes.
    """
    findings = []
    for entry in entries:
        by = entry.approved_by
        if entry.effect != "ship" or entry.change < 0 or entry.cents <= LIMIT or by in outcome.approvers:
            continue
        if not by or by in keepers:
            detail = f"{by} has not said yes" if by else "its papers name nobody"
            findings.append(Finding(Kind.NOT_APPROVED, outcome.order, detail))
    return findings


def _at_the_end(outcome: Told, entries: Sequence[Entry], *, final: bool) -> list[Finding]:
    """What must hold once the shop was told how the order ended."""
    standing: Counter[str] = Counter()
    cents = 0
    for entry in entries:
        standing[entry.effect] += entry.change
        cents += entry.change * entry.cents * (entry.effect == "charge")
    names = sorted(effect for effect, count in standing.items() if count > 0)
    order = outcome.order
    match outcome.outcome:
        case "processed":
            missing = [effect for effect in EFFECTS if standing[effect] < 1]
            findings = [Finding(Kind.MISSING, order, effect) for effect in missing]
            if outcome.cents is not None and "charge" not in missing and cents != outcome.cents:
                findings.append(
                    Finding(Kind.WRONG_AMOUNT, order, f"{outcome.cents} cents agreed, {cents} charged")
                )
            return findings
        case "undone":
            return [finding for name in names for finding in _standing_though_undone(outcome, name)]
        case "error":
            return [Finding(Kind.NOT_LISTED, order, name) for name in names if name not in outcome.standing]
        case _:
            stands = f"; in place: {', '.join(names)}" if names else ""
            return [Finding(Kind.LOST, order, f"the shop was never told{stands}")] if final else []


def _standing_though_undone(outcome: Told, name: str) -> list[Finding]:
    if name in HARMLESS:
        return [] if name in outcome.standing else [Finding(Kind.NOT_LISTED, outcome.order, name)]
    kind = Kind.CHARGED_THOUGH_UNDONE if name == "charge" else Kind.STANDING_THOUGH_UNDONE
    return [Finding(kind, outcome.order, name)]


def _count_orders(by_order: Mapping[str, Told]) -> dict[str, int]:
    outcomes = Counter(outcome.outcome or "without outcome" for outcome in by_order.values())
    return {"submitted": len(by_order), **{name: outcomes[name] for name in (*OUTCOMES, "without outcome")}}


def _count_effects(entries: Sequence[Entry]) -> dict[str, tuple[int, int, int]]:
    forward = Counter(entry.effect for entry in entries if entry.change > 0)
    backward = Counter(entry.effect for entry in entries if entry.change < 0)
    others = sorted((forward.keys() | backward.keys()) - set(EFFECTS))
    return {
        name: (forward[name], backward[name], forward[name] - backward[name]) for name in (*EFFECTS, *others)
    }


def _count_money(entries: Sequence[Entry]) -> dict[str, int]:
    charges = sum(entry.cents for entry in entries if entry.effect == "charge" and entry.change > 0)
    refunds = sum(entry.cents for entry in entries if entry.effect == "charge" and entry.change < 0)
    payouts = sum(entry.change * entry.cents for entry in entries if entry.effect == SETTLEMENT)
    return {"charged": charges, "refunded": refunds, "kept": charges - refunds, "paid out": payouts}


def watch(books: Path, outcomes: Path, report: Path, every: float = 0.7) -> int:
    """Audit while orders are under way, every so many seconds; returns when somebody asks it to end."""
    draft = report.with_name(f"{report.name}.draft")
    with suppress(KeyboardInterrupt):
        while True:
            began = time.monotonic()
            text = outcomes.read_text() if outcomes.exists() else ""
            try:
                books_report = audit(books, read_told(text[: text.rfind("\n") + 1].splitlines()), final=False)
                draft.write_text(json.dumps(books_report.as_json()))
                draft.replace(report)  # whoever reads it finds the whole of it
            except AuditError as trouble:
                print(trouble, file=sys.stderr)
            time.sleep(max(every, 4 * (time.monotonic() - began)))
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Audit from the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="orders.auditor", description="Do the services' books balance?")
    parser.add_argument("--books", type=Path, required=True, help="the services' own SQLite file")
    parser.add_argument(
        "--outcomes", type=Path, required=True, help="what the shop was told, a JSON object per line"
    )
    parser.add_argument("--json", action="store_true", help="write the report as JSON")
    parser.add_argument(
        "--live",
        type=Path,
        metavar="FILE",
        help="write the report to FILE as JSON again and again, until killed",
    )
    options = parser.parse_args(arguments)
    if options.live:
        return watch(options.books, options.outcomes, options.live)
    try:
        report = audit(options.books, read_told(options.outcomes.read_text().splitlines()))
    except (OSError, AuditError) as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(report.as_json()) if options.json else "\n".join(report.lines()))
    return 0 if report.balanced else 1


if __name__ == "__main__":
    sys.exit(main())
