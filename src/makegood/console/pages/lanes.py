"""Lanes: who holds each, who waits for it and in which order, and which one does an operator have to free?"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from makegood.base.counts import quantity
from makegood.base.text import refuse_unstorable
from makegood.console.pages.wording import PageVerdict, behind
from makegood.console.reads import Reads
from makegood.errors import ConfigError
from makegood.store.filters import text_of
from makegood.store.lane_views import COUNTED, LaneView
from makegood.store.views import Exact, Filter
from makegood.story.lanes import amount, in_error
from makegood.story.steps import join_names

PAGE: Final = 50
"""Lanes on a page."""


class LaneRow(msgspec.Struct, frozen=True):
    """A lane, as the page shows it."""

    view: LaneView
    need: bool
    """Whether a task in error holds it and others wait."""
    waiting: str
    more: str
    """Tasks that wait and are not listed."""


def row(view: LaneView) -> LaneRow:
    """Return a lane as the page shows it."""
    return LaneRow(
        view,
        need=bool(view.waiters and in_error(view.holders)),
        waiting=_cap(view.waiting),
        more=amount(view.waiting - len(view.waiters), COUNTED - len(view.waiters))
        if view.waiting > len(view.waiters)
        else "",
    )


def _cap(count: int) -> str:
    return f"{min(count, COUNTED):,}{'+' if count > COUNTED else ''}"


async def context(reads: Reads, query: Mapping[str, str]) -> Any:
    """Return what the page of all lanes shows. Raises ``ConfigError``."""
    after = behind(query.get("after", ""))
    views = await reads.share(("lanes", after), lambda: reads.store.lanes.lanes(limit=PAGE, after=after))
    now = await reads.now()

    def shape() -> dict[str, Any]:
        rows = [row(view) for view in views]
        return {
            "verdict": verdict(rows),
            "rows": rows,
            "first": not any(after),
            "next": f"{views[-1].app}/{views[-1].name}" if len(views) == PAGE else None,
            "now": now,
        }

    return shape


async def lane(reads: Reads, query: Mapping[str, str]) -> Any:
    """Return what the page of one lane shows. Raises ``ConfigError``."""
    app, name = query.get("app", ""), query.get("name", "")
    refuse_unstorable(ConfigError, app=app, name=name)
    views = await reads.share(("lane", app, name), lambda: reads.store.lanes.lanes(app, name))
    now = await reads.now()
    rows = [row(view) for view in views] or [row(LaneView(app, name))]
    condition = text_of(Filter(app=app, lane=Exact(name)))
    return {"verdict": verdict_of(rows[0]), "row": rows[0], "find": condition, "now": now}


def verdict(rows: Sequence[LaneRow]) -> PageVerdict:
    """Return the sentence that answers the page of all lanes."""
    if not rows:
        return PageVerdict("idle", "lock", "No task holds a lane, or waits for one")
    blocked = [each.view.name for each in rows if each.need]
    if blocked:
        title = f"{quantity(len(blocked), 'lane')} held by a task in error: {join_names(blocked)}"
        return PageVerdict("need", "error", title, "Others wait until somebody deals with that task.")
    waits = sum(each.view.waiting > 0 for each in rows)
    text = f"{quantity(waits, 'of them has', 'of them have')} tasks that wait." if waits else "Nobody waits."
    return PageVerdict("ok", "lock", f"{quantity(len(rows), 'lane')} on this page", text)


def verdict_of(shown: LaneRow) -> PageVerdict:
    """Return the sentence that answers the page of one lane."""
    view = shown.view
    waits = f"{amount(view.waiting)} {'waits' if view.waiting == 1 else 'wait'}"
    if shown.need:
        title = f"A task in error holds {view.name}, and {waits}"
        return PageVerdict("need", "error", title, "Deal with it, or let the others continue before that.")
    if not view.holders and not view.waiters:
        return PageVerdict("idle", "lock", f"No task holds {view.name}, or waits for it")
    if not view.waiters:
        return PageVerdict("ok", "lock", f"{view.name} is held, and nobody waits")
    if not view.holders:
        return PageVerdict(
            "run", "lock", f"{view.name} is free: the next Scheduler takes the first task, {waits}"
        )
    return PageVerdict("run", "lock", f"{view.name} is held, and {waits}")
