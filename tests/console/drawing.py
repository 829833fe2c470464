"""Draws the page of a task as text, so that a drawing can be compared: ``python -m tests.console.drawing`` writes them all again."""

from collections import Counter
from typing import Any

from makegood.console import looks
from makegood.console.gantt import TimeChart
from makegood.console.ladder import LadderCell, LadderRow
from makegood.console.pages.task import TaskChoice, TaskPage, TaskSources, task_page
from makegood.console.redaction import Redaction
from makegood.console.render import Renderer, Shell
from makegood.console.static_files import StaticFiles
from makegood.console.users import Role
from makegood.console.visits import Visitor
from makegood.store.records import Identity
from makegood.store.views import TaskExcerpt
from tests.console.recorded_tasks import FOLDER, names, recorded

LINES = {"stuck": "═", "undone": "─", "could": "·", "stays": "▪", "none": " "}
VARIANTS: dict[str, dict[str, int | bool]] = {"round_two": {"submission": 1}, "when": {"shows_skipped": True}}
"""What is drawn besides the page as it opens."""


def page(name: str, **more: Any) -> TaskPage:
    """Return the page of a recorded task."""
    task = recorded(name)
    sources = TaskSources(
        part=TaskExcerpt(task.detail, len(task.detail.steps)), events=task.events, audits=task.audits, alerts=task.alerts, nodes=task.nodes, now=task.now,
        identity=Identity("k3x9", 1),
    )  # fmt: skip
    return task_page(sources, TaskChoice(**more))


def drawn(page: TaskPage) -> str:
    """Return a page as text: verdict, ladder, time, acts, effects, history."""
    lines = [f"{page.verdict.tone or '-'}  {page.verdict.title}"]
    lines += [f"      {text}" for text in (page.verdict.more, *page.verdict.next) if text]
    lines += ["", *(line for row in page.rows for line in _row(row, page))]
    lines += ["", *_chart(page.chart)]
    lines += [
        "",
        *(f"[{offer.label}] {offer.verb}: {offer.command}" for offer in page.offers.acts),
        *page.offers.refused,
    ]
    lines += ["", *(f"in place: {one.name} × {one.count}: {one.words}" for one in page.in_place)]
    lines += [f"undo {one.turn or '-'}: {one.name} × {one.count} {one.happens}" for one in page.preview]
    lines += [
        "",
        *(
            f"{row.what}: {row.before} → {row.after} ({row.why})" if row.before else f"{row.what} ({row.why})"
            for row in page.history
        ),
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _row(row: LadderRow, page: TaskPage) -> list[str]:
    match row.kind:
        case "steps":
            mark = LINES[looks.line(row, page.goal)]
            middle = f"{mark * 2}{row.turns or ' '}{mark * 2}"
            return [
                f"{row.now[:1] or ' '} {_left(cell):<46} {middle if n == 0 else '':<9} {_right(cell, page.goal)}"
                for n, cell in enumerate(row.cells)
            ]
        case "turn":
            turn = page.turn
            return [f"╰─ {turn.what}: {turn.why} ─╯" if turn is not None else "╰──╯"]
        case "noreturn":
            return [f"= point of no return{', passed' if row.passed else ''} ="]
        case "beyond":
            return [f"  never began: {', '.join(row.names)}"]
        case "stackhead":
            return [f"  {row.count} branches side by side {row.up}"]
        case _:
            return [f"  folded: {row.names[0]} to {row.names[-1]}, {len(row.names)} steps {row.state}"]


def _left(cell: LadderCell) -> str:
    rails = "│" * (cell.lane - 1) + ("├" if cell.fork else "╰" if cell.join else "")
    if cell.step is None:
        return f"{rails}│"
    look, step = looks.left_look(cell.step), cell.step
    items = "".join(f" {n}{state[0]}" for state, n in Counter(state for state, _ in step.items).items())
    words = [
        f"{cell.label} " if cell.label else "",
        look.word,
        *step.ticks,
        "" if not step.note else f"«{step.note}»",
    ]
    odd = "".join(f" !{one.words}" for one in step.odd)
    return f"{rails}{look.icon} {step.name}{'' if step.count is None else f' × {step.count}'} {' '.join(filter(None, words))}{items}{odd}"


def _right(cell: LadderCell, goal: str) -> str:
    if cell.step is None:
        return cell.up
    look, step = looks.right(cell.step, goal), cell.step
    if look is None:
        return "off"
    words = [
        look.icon,
        look.name,
        look.word,
        look.more,
        *step.undo_ticks,
        "" if not step.undo_note else f"«{step.undo_note}»",
    ]
    return f"({cell.up or 'solid'}) {' '.join(filter(None, words))}"


def _chart(chart: TimeChart | None) -> list[str]:
    if chart is None:
        return ["no times"]
    rows = []
    for n, name in enumerate(chart.rows):
        bars = [
            f"{bar.look}" + ("" if bar.taken is None else "/waited") + ("" if bar.late is None else "/late")
            for bar in chart.bars
            if bar.row == n
        ]
        rows.append(f"{name}: {' '.join(bars)}")
    return [
        *rows,
        f"breaks {len(chart.breaks)}{', now' if chart.now is not None else ''}{', turn' if chart.turn is not None else ''}",
    ]


def html(page: TaskPage, *, role: Role = "admin") -> str:
    """Return a page as HTML, as a visitor of a role sees it."""
    shell = Shell(
        visitor=Visitor("ann", role, "token"), store="SQLite shop.db", paths=frozenset(("/", "/tasks"))
    )
    context = {"page": page, "left_look": looks.left_look, "right_look": looks.right, "rung_line": looks.line}
    return Renderer(StaticFiles(), Redaction()).page(shell, "task.html", context)


def drawings() -> dict[str, str]:
    """Return every drawing by its name."""
    pages = {name: drawn(page(name)) for name in names()}
    pages |= {f"{name}-{next(iter(more))}": drawn(page(name, **more)) for name, more in VARIANTS.items()}
    return pages


if __name__ == "__main__":
    for name, text in drawings().items():
        (FOLDER / f"{name}.txt").write_text(text, encoding="utf-8")
