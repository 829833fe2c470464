"""The store: which one it is, what it holds, and what the doctor finds."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from makegood.console.pages.wording import PageVerdict, counted, tallied
from makegood.console.reads import Reads
from makegood.store.views import Finding

ORPHANS: Final = 20
"""Tasks that nothing will advance, looked for at most."""
HOLDS: Final[Mapping[str, str]] = {
    "task": "tasks", "step": "their steps", "request": "requests in flight, and timers", "inbox": "undecided messages to tasks",
    "event": "history, a row for each commit of a task", "alert": "alerts", "audit": "operator commands", "message": "messages in queues",
    "listener": "submitters to notify", "notice": "notifications", "node": "processes, past ones included", "lease_term": "past terms of leaders",
}  # fmt: skip
"""What each table holds."""

LOOKS: Final[Mapping[str, tuple[str, str]]] = {
    "ok": ("done", "ok"), "note": ("ready", "note"), "warning": ("in_doubt", "warning"), "error": ("error", "error"),
}  # fmt: skip


def verdict(findings: Sequence[Finding], orphans: int) -> PageVerdict:
    """Return the sentence that answers the page."""
    bad = [finding for finding in findings if finding.severity == "error"]
    shaky = [finding for finding in findings if finding.severity == "warning"]
    if bad or orphans:
        title = f"{counted(len(bad) + bool(orphans), 'finding')} need{'s' if len(bad) + bool(orphans) == 1 else ''} you"
        return PageVerdict(
            "need", "error", title, bad[0].what if bad else "Tasks under way that nothing advances."
        )
    if shaky:
        return PageVerdict(
            "doubt", "doubt", f"It works, with {counted(len(shaky), 'warning')}", shaky[0].what
        )
    return PageVerdict("ok", "done", "The store is sound", "Durability and schema are as they should be.")


async def context(reads: Reads, query: Mapping[str, str]) -> dict[str, Any]:  # noqa: ARG001 - every page's signature
    """Return what the page shows."""
    findings = await reads.shared("examine", reads.store.admin.examine)
    orphans = await reads.shared("orphans", lambda: reads.store.admin.orphans(ORPHANS))
    sizes = await reads.shared("sizes", reads.store.admin.sizes)
    order = ("error", "warning", "note", "ok")
    return {
        "verdict": verdict(findings, len(orphans)),
        "identity": reads.store.identity,
        "findings": [
            (finding, *LOOKS[finding.severity])
            for finding in sorted(findings, key=lambda f: order.index(f.severity))
        ],
        "orphans": orphans,
        "more": len(orphans) == ORPHANS,
        "tables": [(table, tallied(tally), HOLDS.get(table, "")) for table, tally in sizes.items()],
    }
