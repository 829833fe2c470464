"""Agents: is it makegood or the service, and who takes nothing?"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from makegood.base.counts import quantity
from makegood.base.terminal_text import command
from makegood.console.pages.wording import PageVerdict, duration_text, share
from makegood.console.reads import Reads
from makegood.store.views import AgentInfo, NodeView
from makegood.story.steps import join_names

COMING_BACK: Final = "coming back"
"""The state of a service that answers again."""
_WORST = ("open", "half-open", "release", "closed", "")
"""States of a circuit, the one to show of several processes first."""


class AgentRow(msgspec.Struct, frozen=True):
    """An agent over all its processes."""

    agent: str
    name: str
    app: str
    state: str
    """What its badge says."""
    tone: str
    icon: str
    why: str
    waiting: int
    oldest: str
    used: int
    slots: int
    full: float
    """The share of slots in use, in percent."""
    success: str
    mean: str
    rate: str
    processes: int
    need: bool


class ProcessRow(msgspec.Struct, frozen=True):
    """A process and the agents that it runs."""

    name: str
    runs: str
    beat: str
    light: str
    """How its heartbeat looks: "" (alive), late, dead or gone (stopped)."""
    used: str
    calls: int
    failed: int
    mean: str
    note: str


def heartbeat(node: NodeView) -> tuple[str, str]:
    """Return whether a process is heard, in words, and how its light looks.

    A page that showed the age of each heartbeat would change with each of them.
    """
    if node.state == "stopped":
        return "stopped", "gone"
    if node.state == "dead":
        return f"dead for {duration_text(-min(0.0, node.remaining))}", "dead"
    if node.silent <= node.info.ttl / 2:
        return "alive", ""
    return f"late: silent for {duration_text(node.silent)}", "late"


def agent_rows(nodes: Sequence[NodeView], waiting: Mapping[str, tuple[int, float]]) -> list[AgentRow]:
    """Return a row for each agent, those first that need somebody."""
    infos: dict[str, list[AgentInfo]] = {agent: [] for agent in waiting}
    for node in nodes:
        for info in node.info.agents if node.state == "alive" else ():
            infos.setdefault(info.agent, []).append(info)
    rows = [_agent(agent, own_infos, *waiting.get(agent, (0, 0.0))) for agent, own_infos in infos.items()]
    order = {"need": 0, "doubt": 1, "ok": 2}
    return sorted(rows, key=lambda row: (order[row.tone], row.agent))


def _agent(agent: str, infos: Sequence[AgentInfo], waiting: int, oldest: float) -> AgentRow:
    app, _, name = agent.partition("/")
    state, tone, icon, reason = _state(infos)
    measures = [info for info in infos if info.success is not None]
    slots, busy = sum(info.slots for info in infos), sum(info.used for info in infos)
    rate = next((info.rate for info in infos if info.rate is not None), None)
    return AgentRow(
        agent=agent,
        name=name,
        app=app,
        state=state,
        tone=tone,
        icon=icon,
        why=reason,
        waiting=waiting,
        oldest=duration_text(oldest) if waiting else "",
        used=busy,
        slots=slots,
        full=share(busy, slots),
        success=f"{sum(info.success or 0.0 for info in measures) / len(measures):.0%}" if measures else "–",
        mean=_mean(infos),
        rate="–" if rate is None else f"{rate:g}/s",
        processes=len(infos),
        need=tone == "need",
    )


def _state(infos: Sequence[AgentInfo]) -> tuple[str, str, str, str]:
    """Return the state of an agent's service: badge, tone, icon and reason."""
    if not infos:
        return "no process", "need", "error", "no live process runs it"
    worst = min(infos, key=lambda info: _WORST.index(info.circuit) if info.circuit in _WORST else 3)
    late = sum(info.overdue for info in infos)
    if worst.circuit == "open":
        return "circuit open", "doubt", "waiting", f"one call asks again in {duration_text(worst.reset)}"
    if worst.circuit == "half-open":
        return "half-open", "doubt", "waiting", "one call asks whether the service answers"
    if worst.circuit == "release":
        return COMING_BACK, "doubt", "waiting", f"at most {worst.most} calls at once" if worst.most else ""
    return "well", "ok", "done", f"{quantity(late, 'call')} past the deadline" if late else ""


def agents_of(node: NodeView) -> str:
    """Return the names of the agents that a process runs, without their applications."""
    return ", ".join(info.agent.partition("/")[2] for info in node.info.agents)


def process_row(node: NodeView) -> ProcessRow:
    """Return the row of a process that runs agents."""
    infos = node.info.agents
    late, used, slots = (sum(getattr(i, name) for i in infos) for name in ("overdue", "used", "slots"))
    return ProcessRow(
        node.info.name,
        agents_of(node),
        *heartbeat(node),
        used=f"{used} of {slots}" if node.state == "alive" else "–",
        calls=sum(info.calls for info in infos),
        failed=sum(info.failed for info in infos),
        mean=_mean(infos),
        note=f"{quantity(late, 'call')} still run past their deadline" if late else "",
    )


def _mean(infos: Sequence[AgentInfo]) -> str:
    """Return how long calls took on average."""
    calls = sum(info.calls for info in infos)
    return duration_text(sum(info.seconds * info.calls for info in infos) / calls) if calls else "–"


def verdict(rows: Sequence[AgentRow]) -> PageVerdict:
    """Return the sentence that answers the page."""
    orphans = [row for row in rows if row.need and row.waiting]
    doubtful = [row for row in rows if row.tone == "doubt"]
    names, is_one = join_names([row.name for row in orphans or doubtful]), len(orphans or doubtful) == 1
    if orphans:
        texts = [
            f"{quantity(row.waiting, 'request')} wait for {row.name}, the oldest for {row.oldest}"
            for row in orphans[:3]
        ]
        title = f"{names} {'has' if is_one else 'have'} no process"
        return PageVerdict("need", "error", title, f"{'; '.join(texts)}.")
    if doubtful and all(row.state == COMING_BACK and not row.waiting for row in doubtful):
        text = "Nothing waits; each answer lets one more call be in flight."
        return PageVerdict("ok", "done", f"{names} {'answers' if is_one else 'answer'} again", text)
    if doubtful:
        wait = "Tasks wait; makegood" if any(row.waiting for row in doubtful) else "makegood"
        text = f"{wait} asks again by itself, and an outage undoes no task."
        title = f"{names} {'does' if is_one else 'do'} not answer well"
        return PageVerdict("doubt", "waiting", title, text)
    if not rows:
        return PageVerdict("idle", "agents", "No agent runs", "No request waits for one either.")
    all_well = f"All {quantity(len(rows), 'agent')} are well" if len(rows) > 1 else f"{rows[0].name} is well"
    return PageVerdict("ok", "done", all_well)


async def waiting(reads: Reads) -> Mapping[str, tuple[int, float]]:
    """Return how many requests wait for each agent, and the seconds that the oldest has waited."""
    return await reads.share("waiting", reads.store.nodes.waiting)


async def context(reads: Reads, query: Mapping[str, str]) -> dict[str, Any]:  # noqa: ARG001 - every page's signature
    """Return what the page shows."""
    nodes = await reads.nodes()
    rows = agent_rows(nodes, await waiting(reads))
    orphan = next((row for row in rows if row.need and row.waiting), None)
    return {
        "verdict": verdict(rows),
        "agents": rows,
        "processes": [process_row(node) for node in nodes if node.info.agents and node.state == "alive"],
        "ended": [process_row(node) for node in nodes if node.info.agents and node.state != "alive"],
        "start": "" if orphan is None else command(["agent"], [f"MODULE:{orphan.app}", orphan.name]),
    }
