"""The results as a table in plain text, which is Markdown at the same time."""

from collections.abc import Callable, Mapping, Sequence

from benchmarks.figures import Result, ratio
from benchmarks.plan import WORKLOADS, Entry, Row

_COLUMNS: dict[str, Callable[[float], str]] = {
    "tasks_per_second": lambda v: f"{v:,.0f}" if v >= 10 else f"{v:.2g}",
    "steps_per_second": lambda v: f"{v:,.0f}" if v >= 10 else f"{v:.2g}",
    "p50_ms": lambda v: f"{v:.2f}",
    "p99_ms": lambda v: f"{v:.2f}",
    "commits_per_task": lambda v: f"{v:.2f}",
    "statements_per_task": lambda v: f"{v:.1f}",
    "cpu_us_per_step": lambda v: f"{v:,.1f}",
    "all_cpu_us_per_step": lambda v: f"{v:,.1f}",
    "memory_mib": lambda v: f"{v:,.0f}",
    "bytes_per_task": lambda v: f"{v:,.0f}",
    "slower_by": lambda v: f"{v:.2f}×",
    "takeover_seconds": lambda v: f"{v:.2f}",
    "after_lease_seconds": lambda v: f"{v:.2f}",
    "ended_seconds": lambda v: f"{v:.2f}",
    "spread": lambda v: f"{v:.0%}",
    "foreign_cores": lambda v: f"{v:.2f}",
}
_TITLES = {
    "tasks_per_second": "tasks/s", "steps_per_second": "steps/s", "p50_ms": "p50 ms", "p99_ms": "p99 ms",
    "commits_per_task": "commits/task", "statements_per_task": "statements/task", "cpu_us_per_step": "CPU µs/step",
    "all_cpu_us_per_step": "all CPU µs/step", "memory_mib": "MiB", "bytes_per_task": "bytes/task", "slower_by": "slower by",
    "takeover_seconds": "taken over s", "after_lease_seconds": "after the lease s", "ended_seconds": "all ended s",
    "spread": "spread", "foreign_cores": "foreign cores",
}  # fmt: skip


def lines(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """Return a Markdown table whose columns stand below each other: the first to the left, the others to the right.

    >>> lines(["a", "b"], [["xy", "1"]])
    ['| a  | b |', '|----|--:|', '| xy | 1 |']
    """
    widths = [max(len(row[n]) for row in [head, *body]) for n in range(len(head))]
    text_lines = [
        "| "
        + " | ".join(
            cell.ljust(width) if n == 0 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        + " |"
        for row in [head, *body]
    ]
    rule = (
        "|" + "|".join("-" * (w + 2) if n == 0 else "-" * (w + 1) + ":" for n, w in enumerate(widths)) + "|"
    )
    return [text_lines[0], rule, *text_lines[1:]]


def of_row(row: Row, results: Sequence[Result]) -> list[str]:
    """Return the table of one cell; who was not measured stands in it with the reason."""
    mine = [r for r in results if r.row == row]
    names = [name for name in _COLUMNS if any(name in r.figures for r in mine)]
    body = [[r.entry.title, *(_shown(r.figures, name) for name in names)] for r in mine if r.rounds]
    out = [f"**{row.title}** ({WORKLOADS[row.workload]})", ""]
    if body:
        out += [*lines(["", *(_TITLES[name] for name in names)], body), ""]
    gaps = [
        f"- {r.entry.title} {'NOT MEASURED' if not r.rounds else 'only in part'}: {r.why}"
        for r in mine
        if r.why
    ]
    return [*out, *gaps, *([""] if gaps else [])]


def _shown(figures: Mapping[str, float], name: str) -> str:
    return _COLUMNS[name](figures[name]) if name in figures else "–"


def ratios(results: Sequence[Result]) -> list[str]:
    """Return the table of makegood's rates against the floor's, as a share, and against each peer's best, as a multiple."""
    measurements = [r for r in results if r.entry.peer == "makegood" and "tasks_per_second" in r.figures]
    peers = list(dict.fromkeys(r.entry.peer.split("-")[0] for r in results if r.entry.peer != "makegood"))
    body = []
    for result in measurements:
        cells = []
        for peer in peers:
            value = ratio(results, result.row, result.entry, peer)
            cells.append("–" if value is None else f"{value:.0%}" if peer == "floor" else f"{value:,.1f}×")
        body.append([f"{result.row.title}, {result.entry.store}", *cells])
    if not body or not peers:
        return []
    heads = ["of the floor" if peer == "floor" else f"to {peer}" for peer in peers]
    return [
        "**makegood's rate, as a share of the bare floor's and as a multiple of each peer's best**",
        "",
        *lines(["", *heads], body),
        "",
    ]


def whole(results: Sequence[Result]) -> str:
    """Return everything as text."""
    rows = list(dict.fromkeys(r.row for r in results))
    out = [line for row in rows for line in of_row(row, results)]
    out += ratios(results)
    notes = {r.entry.peer: str(r.rounds[0].get("durable", "")) for r in results if r.rounds}
    versions = {r.entry.peer: str(r.rounds[0].get("version", "")) for r in results if r.rounds}
    out += [f"- {peer} {versions[peer]}: {note}" for peer, note in notes.items()]
    return "\n".join(out) + "\n"


def entries_of(results: Sequence[Result]) -> list[Entry]:
    """Return who is in the results, each once, in order."""
    return list(dict.fromkeys(r.entry for r in results))
