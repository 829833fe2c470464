"""The history of a task as a table: what moved when, who wrote it, and why, with operators' acts between."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec.structs import replace

from makegood.model.attempt_end import AttemptEnd
from makegood.model.note import Note
from makegood.model.states import Move
from makegood.model.task import about
from makegood.store.views import AuditView, EventView, PastTerm

MOST_ROWS = 400
"""Rows of a page, at most: the latest."""
CALM: Final[frozenset[str]] = frozenset({"reply", "dispatched", "preceded", "decided", "branch_not_taken"})
"""Reasons of moves that nobody has to decide."""
_ITEM = re.compile(r"(.+)\[(\d+)\]$")


@dataclass(slots=True)
class HistoryRow:
    """One line of the table."""

    at: float
    who: str
    what: str
    kind: str
    """move, decision, act, late, note."""
    why: str = ""
    before: str = ""
    after: str = ""
    begins: bool = False
    """Whether it is the first of its commit."""
    says: bool = False
    """Whether it is a remark: an act, a late reply, a note."""
    payload: bytes | None = None
    """JSON that follows ``what``: a note's."""
    after_seq: int | None = None
    """Of moves that were left out: they come after this sequence."""


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
    reason = f": “{audit.why}”" if audit.why else ""
    login = f" · database login {audit.db_user}" if audit.db_user else ""
    what = f"{audit.kind[:1].upper()}{audit.kind[1:]} asked for{reason}"
    outcome = f"act, {audit.verdict}: {audit.outcome}{login}"
    return HistoryRow(audit.at, audit.who, what, "act", outcome, says=True)


def _event(
    event: EventView, nodes: Mapping[int, str], terms: Sequence[PastTerm], steps: Mapping[int, str]
) -> list[HistoryRow]:
    author = _leader(event, terms) if event.node is None else nodes.get(event.node, f"node {event.node}")
    if event.octets:
        text = f"{event.octets:,} bytes of moves in one commit"
        return [HistoryRow(event.at, author, text, "decision", says=True, after_seq=event.seq - 1)]
    rows = []
    for names, move in _together(event):
        kind = "move" if move.reason in CALM and not move.of_task else "decision"
        before, after = (state.replace("_", " ") for state in (move.before, move.after))
        rows.append(HistoryRow(event.at, author, names, kind, move.why, before, after))
    notes = [_note(event.at, author, note, steps) for note in event.notes]
    return (
        notes
        + rows
        + [
            HistoryRow(event.at, author, _late(end, steps), "late", "late reply", says=True)
            for end in event.attempts
            if end.late
        ]
    )


def _note(at: float, author: str, note: Note, steps: Mapping[int, str]) -> HistoryRow:
    request = about(note.doing, steps.get(note.idx, f"step {note.idx}"))
    facts = f" ({note.facts})" if note.facts else ""
    value = msgspec.json.encode(note.value)
    return HistoryRow(
        at, author, request, "note", f"note of attempt {note.attempt}{facts}", says=True, payload=value
    )


def _late(end: AttemptEnd, steps: Mapping[int, str]) -> str:
    request = about(end.doing, steps.get(end.idx, f"step {end.idx}"))
    kind = end.kind.replace("_", " ")
    return f"The answer “{kind}” to {request}, attempt {end.attempt}, came too late: kept, changes nothing"


def _leader(event: EventView, terms: Sequence[PastTerm]) -> str:
    """Return who wrote an event that no Scheduler wrote: the Supervisor that led."""
    for term in terms:
        if term.began <= event.at and (term.ended is None or event.at <= term.ended):
            return f"{term.holder}, leads"
    return "the Supervisor"


def _together(event: EventView) -> list[tuple[str, Move]]:
    """Return the moves of a commit with the names of what moved: a step's chained moves as one, and steps
    that moved alike as one.
    """
    moves: list[Move] = []
    last: dict[str, int] = {}
    for move in event.moves:
        place = last.get(move.name)
        if place is not None and moves[place].after == move.before == "ready":
            moves[place] = replace(move, before=moves[place].before)
        else:
            last[move.name] = len(moves)
            moves.append(move)
    alike: dict[Move, list[str]] = {}
    for move in moves:
        alike.setdefault(move if move.of_task else replace(move, name=""), []).append(move.name)
    return [(_join_names(names), move) for move, names in alike.items()]


def _join_names(names: Sequence[str]) -> str:
    """Join the names of steps; many items of one ``each`` are one name with their range.

    >>> _join_names(["book", "pack"]), _join_names(["hold[0]", "hold[1]", "hold[2]"])
    ('book, pack', 'hold[0] to [2]')
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        match = _ITEM.match(name)
        groups.setdefault(match[1] if match else name, []).append(match[2] if match else "")
    texts = []
    for stem, items in groups.items():
        if items == [""]:
            texts.append(stem)
        elif len(items) == 1:
            texts.append(f"{stem}[{items[0]}]")
        else:
            numbers = sorted(int(item or 0) for item in items)
            whole = numbers[-1] - numbers[0] + 1 == len(numbers)
            texts.append(
                f"{stem}[{numbers[0]}] to [{numbers[-1]}]" + ("" if whole else f" ({len(numbers)} of them)")
            )
    return ", ".join(texts) if len(texts) <= 6 else f"{', '.join(texts[:5])} and {len(texts) - 5} more"
