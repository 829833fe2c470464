"""Brokers: what waits at each source that orders come from, and for each that notices go to?"""

from collections.abc import Mapping, Sequence
from typing import Any

from makegood.base.counts import quantity
from makegood.base.durations import short_duration
from makegood.console.pages.wording import PageVerdict
from makegood.console.reads import Reads
from makegood.store.notice_records import COUNTED
from makegood.story.brokers import BrokersView, brokers_of
from makegood.story.lanes import amount
from makegood.story.steps import join_names


async def context(reads: Reads, query: Mapping[str, str]) -> Any:  # noqa: ARG001 - as every page
    """Return what the page shows."""
    nodes = await reads.share(("nodes",), reads.store.nodes.views)
    backlogs = await reads.share(("backlogs",), reads.store.notices.backlogs)

    def shape() -> dict[str, Any]:
        view = brokers_of(nodes, backlogs)
        return {
            "verdict": verdict(view),
            "sources": view.sources,
            "receivers": view.receivers,
            "amount": lambda count: amount(count, COUNTED),
            "length": lambda seconds: "–" if seconds is None else short_duration(seconds),
        }

    return shape


def verdict(view: BrokersView) -> PageVerdict:
    """Return the sentence that answers the page."""
    away = [each.address for each in view.sources if each.away is not None]
    if away:
        title = f"{quantity(len(away), 'source')} away: {join_names(away)}"
        return PageVerdict("need", "error", title, "What waits there stays there until the broker answers.")
    away = [each.broker for each in view.receivers if each.away is not None]
    if away:
        title = f"{quantity(len(away), 'receiver')} away: {join_names(away)}"
        return PageVerdict("need", "error", title, "Notices to it wait, and go when it answers again.")
    dead = sum(each.dead for each in view.receivers)
    if dead:
        title = f"The notices of {amount(dead, COUNTED)} to brokers were given up"
        return PageVerdict(
            "need", "error", title, "See the alerts; `makegood notices retry` sends them again."
        )
    stuck = [each for each in view.receivers if each.waiting and each.error]
    if stuck:
        title = f"Notices to {join_names([each.broker for each in stuck])} wait: the last try failed"
        return PageVerdict("need", "send", title, stuck[0].error)
    if not view.sources and not view.receivers:
        return PageVerdict("idle", "send", "No order comes from a broker, and no notice goes to one")
    refused = sum(each.refused for each in view.sources)
    text = (
        f"{quantity(refused, 'message')} could not be taken: they are dead letters."
        if refused
        else _quiet(view.sources)
    )
    ends = [quantity(len(view.sources), "source"), quantity(len(view.receivers), "receiver")]
    return PageVerdict("ok", "send", f"{' and '.join(ends)}: all answer", text)


def _quiet(sources: Sequence[Any]) -> str:
    waiting = sum(each.waiting or 0 for each in sources)
    return (
        f"{quantity(waiting, 'message')} waiting at the brokers."
        if waiting
        else "Nothing waits at the brokers."
    )
