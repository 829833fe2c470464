"""The ladder's layout: a plan as rungs, branches side by side, and how far both rails are climbed.

Pure functions from steps to rows; the templates walk over ``LadderRow`` and ``LadderCell``, and decide
nothing. The plans that ``mg.parallel``, ``branches``, ``each`` and ``when`` make are series and parallels of
each other: they come out as forks and joins. Any other plan falls back to one row per rank.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter

from makegood.saga.rules import SETTLED
from makegood.story.steps import QUIET

MOST_LANES = 3
"""Lanes side by side at most; a wider fork is stacked."""

MOST_RUNGS = 24
"""A ladder of more rungs is folded."""

LEAST_FOLDED = 4
"""Rungs of one quiet state in a row that are folded into a line."""


@dataclass(frozen=True, slots=True)
class OddItem:
    """An item of an ``each`` that deserves a line."""

    state: str
    words: str
    idx: int


@dataclass(slots=True, kw_only=True)
class LadderStep:
    """A rung: a step beside its undo, in words and marks."""

    idx: int
    """Its position among the steps of the ladder."""
    name: str
    anchor: str = ""
    """Names its attempts on the page."""
    agent: str = ""
    state: str = "waiting"
    after: tuple[int, ...] = ()
    kind: str = "action"
    """action, when, each or first."""
    forward: str = ""
    """How it went forward, if ``state`` is that of its undo."""
    undoable: bool = True
    no_return: bool = False
    ticks: tuple[str, ...] = ()
    undo_ticks: tuple[str, ...] = ()
    took: str = ""
    undo_took: str = ""
    note: str = ""
    undo_note: str = ""
    turn: str = ""
    round: int = 1
    now: str = ""
    """"", doubt, run, undo, need: the rung to look at."""
    count: int | None = None
    """Items of an ``each``; None for a single step."""
    items: tuple[tuple[str, int], ...] = ()
    """(state, idx) of an ``each``'s items, as they went forward."""
    undo_items: tuple[str, ...] = ()
    """The states of their undos; "ghost": not begun."""
    odd: tuple[OddItem, ...] = ()
    more_odd: int = 0
    text: str = ""
    """Replaces the word of its state."""
    undo_text: str = ""
    waits_for: str = ""
    loser: bool = False
    """It is of a branch of a ``first`` that has lost."""


@dataclass(slots=True, kw_only=True, eq=False)
class LadderCell:
    """A step in its lane."""

    step: LadderStep | None
    """None: the branch only passes here."""
    lane: int = 1
    lanes: int = 1
    span: int = 1
    fork: int = 0
    """The left rail begins here, off the one so many lanes to the left; 0: it continues."""
    join: int = 0
    """The left rail ends here."""
    fork_r: int = 0
    """The right rail begins here, off the one so many lanes to the right."""
    join_r: int = 0
    ahead: bool = False
    """Of a passing lane: the task has not come so far."""
    label: str = ""
    """Of a stacked branch: a, b, c ..."""
    up: str = ""
    """The right rail behind it: "" solid, half, ahead (dotted)."""


@dataclass(slots=True, kw_only=True, eq=False)
class LadderRow:
    """A line of the ladder."""

    kind: str
    """steps, turn, noreturn, beyond, stackhead, fold, block."""
    cells: list[LadderCell] = field(default_factory=list)
    names: tuple[str, ...] = ()
    """Of beyond and fold: the steps that it stands for; of block: the first and the last one."""
    passed: bool = False
    """Of noreturn: whether the task is past it."""
    count: int = 0
    """Of stackhead: the branches; of block: its steps."""
    state: str = ""
    """Of fold: the state that its steps share."""
    rows: "list[LadderRow]" = field(default_factory=list)
    """Of fold: what is folded."""
    up: str = ""
    said: str = ""
    """Of block: how many of its steps are in which state."""
    first: int = 0
    """Of block: the index of its first step."""

    @property
    def steps(self) -> list[LadderStep]:
        """Return the steps of the row."""
        return [cell.step for cell in self.cells if cell.step is not None]

    @property
    def now(self) -> str:
        """Return why this is the rung to look at, "" if it is not."""
        return next((step.now for step in self.steps if step.now), "")

    @property
    def forks(self) -> bool:
        """Whether a branch begins here."""
        return any(cell.fork or cell.fork_r for cell in self.cells)

    @property
    def joins(self) -> bool:
        """Whether a branch ends here."""
        return any(cell.join or cell.join_r for cell in self.cells)

    @property
    def turns(self) -> str:
        """Return the numbers of the turns in which the row is undone."""
        return "·".join(dict.fromkeys(step.turn for step in self.steps if step.turn))


# -- series and parallels ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Branches:
    """Parts that do not wait for each other: each branch is a series."""

    series: "list[list[Part]]"


@dataclass(slots=True)
class Tangle:
    """Steps that are neither a series nor branches: one row per rank."""

    ranks: list[list[LadderStep]]


Part = LadderStep | Branches | Tangle


def series(steps: Sequence[LadderStep]) -> list[Part]:
    """Cut steps into parts that come one after the other."""
    rank: dict[int, int] = {}
    for step in sorted(steps, key=lambda step: step.idx):  # indices rise along the plan
        rank[step.idx] = 1 + max((rank[p] for p in step.after if p in rank), default=-1)
    sequence = sorted(steps, key=lambda step: (rank[step.idx], step.idx))
    parts: list[Part] = []
    for piece in _pieces(sequence):
        if len(piece) == 1:
            parts.append(piece[0])
            continue
        branches = _components(piece)
        if len(branches) > 1:
            parts.append(Branches([series(branch) for branch in branches]))
        else:
            ranks = sorted({rank[step.idx] for step in piece})
            parts.append(Tangle([[step for step in piece if rank[step.idx] == r] for r in ranks]))
    return parts


def _pieces(sequence: Sequence[LadderStep]) -> list[list[LadderStep]]:
    """Cut where every step before the cut comes before every step behind it.

    Sets of steps are bits of a number: a plan of a thousand steps is cut in a thousand operations.
    """
    place = {step.idx: n for n, step in enumerate(sequence)}
    before = [0] * len(sequence)
    for n, step in enumerate(sequence):
        for p in step.after:
            if p in place:
                before[n] |= before[place[p]] | 1 << place[p]
    common, behind = [0] * len(sequence), -1  # what all steps from here on come after
    for n in range(len(sequence) - 1, -1, -1):
        common[n] = behind = behind & before[n]
    pieces: list[list[LadderStep]] = [[]]
    for n, step in enumerate(sequence):
        pieces[-1].append(step)
        mask = (1 << (n + 1)) - 1
        if n + 1 < len(sequence) and common[n + 1] & mask == mask:
            pieces.append([])
    return [piece for piece in pieces if piece]


def _components(steps: Sequence[LadderStep]) -> list[list[LadderStep]]:
    """Return the connected parts, ordered by their first step."""
    root = {step.idx: step.idx for step in steps}

    def find(idx: int) -> int:
        while root[idx] != idx:
            root[idx] = root[root[idx]]
            idx = root[idx]
        return idx

    for step in steps:
        for p in step.after:
            if p in root:
                root[find(step.idx)] = find(p)
    groups: dict[int, list[LadderStep]] = {}
    for step in steps:
        groups.setdefault(find(step.idx), []).append(step)
    return sorted(groups.values(), key=lambda group: min(step.idx for step in group))


def width(part: Part) -> int:
    """Return the lanes that a part takes."""
    if isinstance(part, Branches):
        return sum(_width(branch) for branch in part.series)
    return max(map(len, part.ranks)) if isinstance(part, Tangle) else 1


def _width(parts: Sequence[Part]) -> int:
    return max(map(width, parts))


# -- rows ----------------------------------------------------------------------------------------------------


def rows_of(parts: Sequence[Part]) -> list[LadderRow]:
    """Return the rows of a series."""
    rows: list[LadderRow] = []
    for part in parts:
        if isinstance(part, LadderStep):
            rows.append(LadderRow(kind="steps", cells=[LadderCell(step=part)]))
        elif width(part) > MOST_LANES:
            rows += _stack(part)
        elif isinstance(part, Branches):
            rows += _side_by_side(part)
        else:
            rows += [
                LadderRow(
                    kind="steps",
                    cells=[LadderCell(step=step, lane=n + 1, lanes=len(rank)) for n, step in enumerate(rank)],
                )
                for rank in part.ranks
            ]
    return rows


def _side_by_side(part: Branches) -> list[LadderRow]:
    """Row r holds row r of each branch; a shorter branch passes."""
    columns = [rows_of(branch) for branch in part.series]
    widths = [_width(branch) for branch in part.series]
    height = max(map(len, columns))
    rows = []
    for n in range(height):
        cells: list[LadderCell] = []
        lane = 1
        for k, (branch, wide) in enumerate(zip(columns, widths, strict=True)):
            mine = _cells_of(branch, n, lane, sum(widths), wide)
            back, on = widths[k - 1] if k else 0, widths[k + 1] if k < len(widths) - 1 else 0
            if n == 0:
                mine[0].fork, mine[-1].fork_r = mine[0].fork or back, mine[-1].fork_r or on
            if n == height - 1:
                mine[0].join, mine[-1].join_r = mine[0].join or back, mine[-1].join_r or on
            cells += mine
            lane += wide
        rows.append(LadderRow(kind="steps", cells=cells))
    return rows


def _cells_of(branch: Sequence[LadderRow], n: int, lane: int, lanes: int, wide: int) -> list[LadderCell]:
    """Return row ``n`` of a branch in its lanes, or the cell by which a shorter branch passes."""
    if n < len(branch):
        alone = len(branch[n].cells) == 1
        return [
            replace(cell, lane=lane + cell.lane - 1, lanes=lanes, span=wide if alone else cell.span)
            for cell in branch[n].cells
        ]
    end = branch[-1].cells[-1].step
    ahead = end is None or end.state in ("waiting", "ready", "running", "in_doubt")
    return [LadderCell(step=None, lane=lane, lanes=lanes, span=wide, ahead=ahead)]


def _stack(part: Part) -> list[LadderRow]:
    """Branches below each other, lettered, under a head that counts them."""
    branches: list[list[Part]]
    if isinstance(part, Branches):
        branches = part.series
    else:
        branches = [list(rank) for rank in part.ranks] if isinstance(part, Tangle) else [[part]]
    rows = [LadderRow(kind="stackhead", count=len(branches))]
    for n, branch in enumerate(branches):
        inner = rows_of(branch)
        for row in inner:
            for cell in row.cells:
                cell.label = letters(n)
        rows += inner
    return rows


def letters(n: int) -> str:
    """Return the label of a branch.

    >>> letters(0), letters(25), letters(26)
    ('a', 'z', 'aa')
    """
    return chr(ord("a") + n) if n < 26 else letters(n // 26 - 1) + chr(ord("a") + n % 26)


# -- what is drawn between the rungs -------------------------------------------------------------------------


def ladder(steps: Sequence[LadderStep], *, goal: str = "forward") -> list[LadderRow]:
    """Return the rows of a task, from the first step down."""
    rows = rows_of(series(steps))
    back = goal != "forward"
    last = max((n for n, row in enumerate(rows) if _has_begun(row)), default=-1)
    ladder_rows: list[LadderRow] = []
    for row in rows[: last + 1] if back else rows:
        ladder_rows.append(row)
        if any(step.no_return for step in row.steps):
            ladder_rows.append(LadderRow(kind="noreturn", passed=_has_begun(row)))
    _climb(ladder_rows, back=back)
    ladder_rows = fold(ladder_rows)
    if back:
        ladder_rows.append(LadderRow(kind="turn"))
        names = tuple(step.name for row in rows[last + 1 :] for step in row.steps)
        if names:
            ladder_rows.append(LadderRow(kind="beyond", names=names))
    return ladder_rows


def _has_begun(row: LadderRow) -> bool:
    return any(step.state not in ("waiting", "skipped") for step in row.steps)


def _climb(rows: Sequence[LadderRow], *, back: bool) -> None:
    """Mark how far the right rail has been climbed: from the bottom to the first rung that is not settled."""
    is_climbed, n = back, len(rows) - 1
    while n >= 0:
        block = [n]
        while _has_label(rows[n]) and n and _has_label(rows[n - 1]):
            n -= 1
            block.append(n)
        cells = [cell for k in block for cell in rows[k].cells]
        open_cells = [cell for cell in cells if cell.step is not None and _is_unsettled(cell.step)]
        for cell in cells:
            unsettled_here = cell in open_cells and not cell.label
            cell.up = "ahead" if not is_climbed else "half" if unsettled_here else ""
        rows[n].up = "" if is_climbed else "ahead"
        is_climbed = is_climbed and not open_cells
        if rows[n].kind == "stackhead":
            rows[n].up = "" if is_climbed else "ahead"
        n -= 1


def _has_label(row: LadderRow) -> bool:
    return bool(row.cells and row.cells[0].label)


def _is_unsettled(step: LadderStep) -> bool:
    return step.kind not in ("when", "first") and step.state not in SETTLED


# -- long plans ----------------------------------------------------------------------------------------------


def fold(rows: Sequence[LadderRow]) -> list[LadderRow]:
    """Fold runs of rungs of one quiet state, if the ladder is long.

    What is not quiet stays, and so do the rungs beside it.
    """
    if sum(row.kind == "steps" for row in rows) <= MOST_RUNGS:
        return list(rows)
    quiet = [_quiet(row) for row in rows]
    free = [
        state if state and all(quiet[k] for k in (n - 1, n + 1) if 0 <= k < len(rows)) else ""
        for n, state in enumerate(quiet)
    ]
    visible_rows: list[LadderRow] = []
    for state, group in groupby(zip(rows, free, strict=True), key=itemgetter(1)):
        run = [row for row, _ in group]
        if not state or len(run) < LEAST_FOLDED:
            visible_rows += run
            continue
        names = tuple(step.name for row in run for step in row.steps)
        is_climbed = not any(row.up or any(cell.up for cell in row.cells) for row in run)
        visible_rows.append(
            LadderRow(kind="fold", names=names, state=state, rows=run, up="" if is_climbed else "ahead")
        )
    return visible_rows


def _quiet(row: LadderRow) -> str:
    """Return the quiet state that a whole row shares; "" for any other row, and for one of several lanes."""
    states = {step.state for step in row.steps}
    alone = row.kind == "steps" and len(row.cells) == 1 and not row.cells[0].label
    state = states.pop() if alone and len(states) == 1 else ""
    return state if state in QUIET and not row.now and not (row.steps and row.steps[0].no_return) else ""
