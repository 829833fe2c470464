"""The cluster: who leads until when, was there ever nobody, who died, what was refused?"""

from collections.abc import Mapping, Sequence
from math import log1p
from typing import Any, Final

import msgspec

from makegood.base.counts import quantity
from makegood.console.pages import oversight
from makegood.console.pages.agents import agents_of, heartbeat
from makegood.console.pages.wording import PageVerdict, duration_text, share
from makegood.console.reads import Reads
from makegood.election.views import TermView, with_gaps
from makegood.store.step_down import LEADER
from makegood.store.views import LeaseView, NodeInfo, NodeView

TERMS: Final = 20
"""Past terms in the table, at most."""
DRAWN: Final = 8
"""Past terms in the strip, at most."""
PASS: Final = 5.0
"""Seconds between two passes of a Supervisor, as it is set by default."""
LONG: Final = 5.0
"""Seconds without a leader from which on a gap is marked."""


class Lease(msgspec.Struct, frozen=True):
    """The lease of the leader, running down."""

    view: LeaseView
    left: float
    share: float
    look: str
    """"" , low (under a third) or gone."""


class StripPart(msgspec.Struct, frozen=True):
    """A part of the strip of terms: a term, or a gap. Places and widths are percentages."""

    x: float
    width: float
    gap: bool
    epoch: int
    text: str
    who: str
    now: bool


class MemberRow(msgspec.Struct, frozen=True):
    """A process."""

    info: NodeInfo
    roles: str
    beat: str
    light: str
    holds: str
    up: str


def lease_of(view: LeaseView | None) -> Lease | None:
    """Return the lease as it is drawn; None if nobody ever led."""
    if view is None or view.holder is None:
        return None
    left = max(0.0, view.remaining)
    look = "gone" if left == 0 else "low" if left < view.ttl / 3 else ""
    return Lease(view, left, share(left, view.ttl), look)


def strip(terms: Sequence[TermView], now: float) -> list[StripPart]:
    """Return the strip of terms (newest first), oldest at the left.

    A term is as wide as the logarithm of its length, so that a short one can be seen beside a long one. A gap
    is as wide as it lasted, up to a limit.
    """
    weights: list[tuple[TermView, float, bool]] = []
    for term in reversed(terms[:DRAWN]):
        if term.gap:
            weights.append((term, 0.08 + min(term.gap, 60.0) / 12, True))
        weights.append((term, 1.5 + log1p(max(0.0, (term.ended or now) - term.began) // 60), False))
    total, at, parts = sum(weight for _, weight, _ in weights), 0.0, []
    for term, weight, gap in weights:
        width, is_now = share(weight, total), term.ended is None and not gap
        length = term.gap if gap else (term.ended or now) - term.began
        parts.append(
            StripPart(round(at, 2), width, gap, term.epoch, duration_text(length), term.holder, is_now)
        )
        at += width
    return parts


def process_rows(nodes: Sequence[NodeView], leader: str, now: float) -> list[MemberRow]:
    """Return processes: the leader first, then by role and name."""
    rows = []
    for node in nodes:
        is_alive = node.state == "alive"
        roles = ", ".join(_role(node, role) for role in node.info.roles)
        leads = " · leads" if node.info.name == leader and is_alive else ""
        tasks = quantity(node.info.held, "task") if is_alive and "scheduler" in node.info.roles else "–"
        age = duration_text(now - node.started) if is_alive else "–"
        rows.append(MemberRow(node.info, roles + leads, *heartbeat(node), tasks, age))
    return sorted(rows, key=lambda row: ("leads" not in row.roles, row.roles, row.info.name))


def _role(node: NodeView, role: str) -> str:
    """Return a role in words, that of agents with their names."""
    names = agents_of(node) if role == "agent" else ""
    return f"{role} ({names})" if names else role


def heals(nodes: Sequence[NodeView], lease: LeaseView | None) -> float:
    """Return the seconds within which work of a process that dies now continues: its heartbeat and, if it
    leads, its lease must run out, and a pass of the next leader finds it.
    """
    ttl = max((node.info.ttl for node in nodes if node.state == "alive"), default=0.0)
    return ttl + (0.0 if lease is None else lease.ttl) + PASS


def verdict(lease: Lease | None, nodes: Sequence[NodeView], now: float, within: float) -> PageVerdict:
    """Return the sentence that answers the page."""
    dead = sum(node.state == "dead" for node in nodes)
    roles = {role for node in nodes if node.state == "alive" for role in node.info.roles}
    if not any(node.state == "alive" for node in nodes):
        return PageVerdict("need", "error", "No process runs", "Start one: `makegood run MODULE:APP`.")
    if lease is None or lease.look == "gone":
        text = "Processes that die now, and silent steps, are not found."
        if "supervisor" not in roles:
            text += " Start a Supervisor: `makegood supervisor`."
        return PageVerdict("need", "error", "Nobody leads", text)
    if "scheduler" not in roles:
        text = "No task is moved. Start one: `makegood scheduler`."
        return PageVerdict("need", "error", "No Scheduler runs", text)
    title = f"{lease.view.holder} has led for {duration_text(now - lease.view.since)}"
    if dead:
        title += f"; {quantity(dead, 'process', 'processes')} died in the last hour"
    text = f"The work of a process that dies now continues within {duration_text(within)}."
    return PageVerdict("ok", "done", title, text)


async def leading(reads: Reads) -> LeaseView | None:
    """Return who leads."""
    return await reads.lease(LEADER)


async def context(reads: Reads, query: Mapping[str, str]) -> dict[str, Any]:  # noqa: ARG001 - every page's signature
    """Return what the page shows."""
    now, nodes, view = await reads.now(), await reads.nodes(), await leading(reads)
    terms, lease = with_gaps(await reads.past_terms(LEADER, TERMS)), lease_of(view)
    within = heals(nodes, view)
    leader = (lease.view.holder or "") if lease and lease.look != "gone" else ""
    alive = [node for node in nodes if node.state == "alive"]
    followers = [n for n in alive if "supervisor" in n.info.roles and n.info.name != leader]
    return {
        "verdict": verdict(lease, nodes, now, within),
        "lease": lease,
        "leader": leader,
        "followers": [(node.info.name, *heartbeat(node)) for node in followers],
        "terms": terms,
        "strip": strip(terms, now),
        "long": LONG,
        "processes": process_rows(alive, leader, now),
        "ended": process_rows([node for node in nodes if node not in alive], leader, now),
        "alive": len(alive),
        "dead": sum(node.state == "dead" for node in nodes),
        "refusals": await oversight.refusals(reads),
        "now": now,
    }
