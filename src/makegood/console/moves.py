"""The history of a task as a table: what moved when, who wrote it, and why, with operators' acts between."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from types import MappingProxyType

from makegood.store.views import AuditView, EventView, PastTerm

MOST_ROWS = 400
"""Rows of a page, at most: the latest."""
CALM = frozenset(
    {"reply", "dispatched", "predecessors done or skipped", "decided", "its branch is not taken"}
)
"""Reasons of moves that nobody has to decide."""
_REMARK = re.compile(
    r"(?P<kind>\w+) came too late for the (?P<doing>\w+) of step (?P<idx>\d+), attempt (?P<attempt>\d+)|\w+ changed nothing|its lock was freed: .*"
)
_ITEM = re.compile(r"(.+)\[(\d+)\]$")


@dataclass(slots=True, kw_only=True)
class HistoryRow:
    """One line of the table."""

    at: float
    begins: bool = False
    """Whether it is the first of its commit."""
    who: str = ""
    what: str = ""
    before: str = ""
    after: str = ""
    why: str = ""
    says: bool = False
    """Whether it is a remark: an act, a late reply."""
    kind: str = "move"
    """move, decision, act, late."""


def history_rows(
    events: Sequence[EventView],
    audits: Sequence[AuditView],
    *,
    nodes: Mapping[int, str],
    terms: Sequence[PastTerm] = (),
    steps: Mapping[int, str] = MappingProxyType({}),
    show: str = "all",
) -> list[HistoryRow]:
    """Return the table, oldest first; at most ``MOST_ROWS``. ``steps``: their names; ``show``: all, decisions
    or acts.
    """
    rows: list[HistoryRow] = []
    acts = sorted(audits, key=lambda audit: audit.at)
    for event in events:
        while acts and acts[0].at <= event.at:
            rows.append(_act(acts.pop(0)))
        rows += _event(event, nodes, terms, steps)
    rows += map(_act, acts)
    if show == "acts":
        rows = [row for row in rows if row.kind == "act"]
    elif show == "decisions":
        rows = [row for row in rows if row.kind in ("act", "decision", "late")]
    for n, row in enumerate(rows):
        row.begins = n == 0 or rows[n - 1].at != row.at or row.says or rows[n - 1].says
    return rows[-MOST_ROWS:]


def _act(audit: AuditView) -> HistoryRow:
    why = f": “{audit.why}”" if audit.why else ""
    login = f" · database login {audit.db_user}" if audit.db_user else ""
    what = audit.kind[:1].upper() + audit.kind[1:]
    return HistoryRow(
        at=audit.at,
        who=audit.who,
        what=f"{what} asked for{why}",
        why=f"act, {audit.verdict}: {audit.outcome}{login}",
        says=True,
        kind="act",
    )


def _event(
    event: EventView, nodes: Mapping[int, str], terms: Sequence[PastTerm], steps: Mapping[int, str]
) -> list[HistoryRow]:
    who = _leader(event, terms) if event.node is None else nodes.get(event.node, f"node {event.node}")
    rows = [
        HistoryRow(
            at=event.at, who=who, what=what, before=before, after=after.replace("_", " "), why=why.replace("_", " "),
            kind="move" if why in CALM and what != "task" else "decision",
        )
        for what, before, after, why in _together(event)
    ]  # fmt: skip
    remarks = list(
        takewhile(_REMARK.fullmatch, event.note.split("; "))
    )  # behind them are operators' own words
    return rows + [
        HistoryRow(
            at=event.at,
            who=who,
            what=_remarked(part, steps),
            why="late reply" if "lock" not in part else "Supervisor",
            says=True,
            kind="late",
        )
        for part in remarks
    ]


def _remarked(part: str, steps: Mapping[int, str]) -> str:
    found = _REMARK.fullmatch(part)
    if found is None or found["kind"] is None:
        return part[:1].upper() + part[1:]
    step = steps.get(int(found["idx"]), f"step {found['idx']}")
    asked = {"do": step}.get(found["doing"], f"the {found['doing']} of {step}")
    kind = found["kind"].replace("_", " ")
    return f"The answer “{kind}” to {asked}, attempt {found['attempt']}, came too late: kept, changes nothing"


def _leader(event: EventView, terms: Sequence[PastTerm]) -> str:
    """Return who wrote an event that no Scheduler wrote: the Supervisor that led."""
    for term in terms:
        if term.began <= event.at and (term.ended is None or event.at <= term.ended):
            return f"{term.holder}, leads"
    return "the Supervisor"


def _together(event: EventView) -> list[tuple[str, str, str, str]]:
    """Return the moves of a commit, a step's chained moves as one, and those that are alike as one."""
    chained: list[tuple[str, str, str, str]] = []
    last: dict[str, int] = {}
    for name, before, after, why in event.moves:
        known = last.get(name)
        if known is not None and chained[known][2] == before and before == "ready":
            chained[known] = name, chained[known][1], after, why
        else:
            last[name] = len(chained)
            chained.append((name, before, after, why))
    alike: dict[tuple[str, str, str], list[str]] = {}
    for name, before, after, why in chained:
        alike.setdefault(
            (before.replace("_", " "), after, why) if name != "task" else (before, after, f"{why}\0"), []
        ).append(name)
    return [
        (_joined(names), before, after, why.rstrip("\0")) for (before, after, why), names in alike.items()
    ]


def _joined(names: Sequence[str]) -> str:
    """Join the names of steps; many items of one ``each`` are one name with their range.

    >>> _joined(["book", "pack"]), _joined(["hold[0]", "hold[1]", "hold[2]"])
    ('book, pack', 'hold[0] to [2]')
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        found = _ITEM.match(name)
        groups.setdefault(found[1] if found else name, []).append(found[2] if found else "")
    made = []
    for stem, items in groups.items():
        if items == [""]:
            made.append(stem)
        elif len(items) == 1:
            made.append(f"{stem}[{items[0]}]")
        else:
            numbers = sorted(int(item or 0) for item in items)
            whole = numbers[-1] - numbers[0] + 1 == len(numbers)
            made.append(
                f"{stem}[{numbers[0]}] to [{numbers[-1]}]" + ("" if whole else f" ({len(numbers)} of them)")
            )
    return ", ".join(made) if len(made) <= 6 else f"{', '.join(made[:5])} and {len(made) - 5} more"
