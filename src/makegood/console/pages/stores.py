"""The store: which one it is, what it holds, and what the doctor finds."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from makegood.base.counts import quantity
from makegood.console.pages.agents import agent_rows, waiting
from makegood.console.pages.cluster import leading, lease_of
from makegood.console.pages.wording import PageVerdict, duration_text, tally_text
from makegood.console.reads import Reads
from makegood.store.views import Finding

ORPHANS: Final = 20
"""Tasks that nothing will advance, looked for at most."""
HOLDS: Final[Mapping[str, str]] = {
    "task": "tasks",
    "step": "their steps",
    "request": "requests in flight, and timers",
    "inbox": "undecided messages to tasks",
    "event": "history, a row for each commit of a task",
    "alert": "alerts",
    "audit": "operator commands",
    "message": "messages in queues",
    "listener": "submitters to notify",
    "notice": "notifications",
    "node": "processes, past ones included",
    "lease_term": "past terms of leaders",
}
"""What each table holds."""
LOOKS: Final[Mapping[str, tuple[str, str]]] = {
    "ok": ("done", "ok"),
    "note": ("ready", "note"),
    "warning": ("in_doubt", "warning"),
    "error": ("error", "error"),
}
ORDER: Final = ("error", "warning", "note", "ok")


def verdict(findings: Sequence[Finding]) -> PageVerdict:
    """Return the sentence that answers the page."""
    bad = [finding for finding in findings if finding.severity == "error"]
    shaky = [finding for finding in findings if finding.severity == "warning"]
    if bad:
        title = f"{quantity(len(bad), 'finding')} need{'s' if len(bad) == 1 else ''} you"
        return PageVerdict("need", "error", title, f"{bad[0].check}: {bad[0].what}.")
    if shaky:
        title = f"It works, with {quantity(len(shaky), 'warning')}"
        return PageVerdict("doubt", "doubt", title, f"{shaky[0].check}: {shaky[0].what}.")
    return PageVerdict("ok", "done", "The store is well", "Every role that is needed runs.")


async def quick_findings(reads: Reads) -> list[Finding]:
    """Return what a look shows that costs the same beside any number of tasks."""
    nodes, queues, lease = await reads.nodes(), await waiting(reads), lease_of(await leading(reads))
    roles = [role for node in nodes if node.state == "alive" for role in node.info.roles]
    role_text = ", ".join(f"{roles.count(role)} {role}" for role in dict.fromkeys(roles)) or "none"
    missing = "" if "scheduler" in roles else "`makegood scheduler`, or `makegood run MODULE:APP`"
    findings = [
        Finding("schema", "ok", "as this makegood needs it; otherwise the store would not have opened"),
        Finding("processes", "warning" if missing else "ok", f"running: {role_text}", missing),
    ]
    if lease is not None and lease.look != "gone":
        findings.append(Finding("leader", "ok", f"{lease.view.holder} leads, term {lease.view.epoch}"))
    else:
        findings.append(Finding("leader", "warning", "nobody leads", "`makegood supervisor`"))
    orphans = [row for row in agent_rows(nodes, queues) if row.need and row.waiting]
    for row in orphans:
        text = f"{quantity(row.waiting, 'request')} for {row.agent} and no process, the oldest {row.oldest}"
        findings.append(Finding("agents", "error", text))
    if not orphans:
        findings.append(Finding("agents", "ok", "every agent with waiting requests has a process"))
    return findings


async def _page(reads: Reads, findings: Sequence[Finding], *, with_examination: bool) -> dict[str, Any]:
    sizes = await reads.share("sizes", reads.store.admin.sizes)
    order = sorted(findings, key=lambda finding: ORDER.index(finding.severity))
    return {
        "verdict": verdict(findings),
        "identity": reads.store.identity,
        "findings": [(finding, *LOOKS[finding.severity]) for finding in order],
        "tables": [(table, tally_text(tally), HOLDS.get(table, "")) for table, tally in sizes.items()],
        "examined": with_examination,
    }


async def context(reads: Reads, query: Mapping[str, str]) -> dict[str, Any]:  # noqa: ARG001 - every page's signature
    """Return what the page shows."""
    return await _page(reads, await quick_findings(reads), with_examination=False)


async def all_findings(reads: Reads) -> list[Finding]:
    """Return what the look shows and what an examination finds, which reads the whole store."""
    findings = [*await quick_findings(reads), *await reads.share("examine", reads.store.admin.examine)]
    began = await reads.now()
    orphans = await reads.share("orphans", lambda: reads.store.admin.orphans(ORPHANS))
    if orphans:
        suffix = " or more" if len(orphans) == ORPHANS else ""
        text = f"{quantity(len(orphans), 'task')}{suffix} under way that nothing advances"
        return [*findings, Finding("orphans", "error", text, "`makegood doctor` names them")]
    took = duration_text(await reads.now() - began)
    text = f"every task under way has a request, a timer or a live Scheduler (looked for {took})"
    return [*findings, Finding("orphans", "ok", text)]


async def doctor(reads: Reads, query: Mapping[str, str]) -> dict[str, Any]:  # noqa: ARG001 - every page's signature
    """Return what the page shows with an examination."""
    return await _page(reads, await all_findings(reads), with_examination=True)
