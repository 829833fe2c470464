"""Which lanes a task holds or waits for, in words."""

from collections.abc import Iterable, Sequence

from makegood.base import ids
from makegood.base.counts import quantity
from makegood.store.lane_views import COUNTED, LanePlace, LaneView, TaskLane

FREE = "waits for a Scheduler"
"""What a queued task waits for whose lanes have room."""


def amount(count: int, most: int = COUNTED) -> str:
    """Return how many tasks there are, if they were counted up to ``most``.

    >>> amount(1), amount(12), amount(1001)
    ('1 task', '12 tasks', 'more than 1,000 tasks')
    """
    return f"more than {quantity(most, 'task')}" if count > most else quantity(count, "task")


def place_text(place: TaskLane, most: int = COUNTED) -> str:
    """Return the place of a task in a lane. ``most``: up to which number others were counted.

    >>> waiting = TaskLane(9, "shop", "ada", "waiting", at_once=1, before=3, held_by=(7,))
    >>> place_text(waiting)
    'waits for lane ada, held by 0000000000007, behind 3 tasks'
    >>> place_text(TaskLane(7, "shop", "ada", "held", at_once=1, behind=4))
    'holds lane ada; 4 tasks wait for it'
    """
    if place.place == "held":
        wait = "waits" if place.behind == 1 else "wait"
        return f"holds lane {place.name}" + (
            f"; {amount(place.behind, most)} {wait} for it" if place.behind else ""
        )
    if place.place != "waiting":
        return f"had lane {place.name}"
    holder = f", held by {_names(place.held_by)}" if place.held_by else ""
    before = f", behind {amount(place.before, most)}" if place.before else ""
    return f"waits for lane {place.name}{holder}{before}"


def queue_text(places: Sequence[TaskLane], most: int = COUNTED) -> str:
    """Return why a queued task waits: the first lane without room, and how many more there are.

    >>> queue_text([TaskLane(9, "shop", "ada", "waiting", at_once=1)])
    'waits for a Scheduler'
    """
    blocking = [place for place in places if place.blocks]
    if not blocking:
        return FREE
    more = f", and for {quantity(len(blocking) - 1, 'more lane', 'more lanes')}" if len(blocking) > 1 else ""
    return place_text(blocking[0], most) + more


def _names(tasks: Sequence[int], count: int = 2) -> str:
    names = ", ".join(ids.show(task) for task in tasks[:count])
    return f"{names} and {len(tasks) - count} more" if len(tasks) > count else names


def holder_text(view: LaneView) -> str:
    """Return who holds a lane.

    >>> holder_text(LaneView("shop", "ada", 1, 0, (LanePlace(7, "order", "o-7", "error", 1, 0.0),)))
    '0000000000007 (error)'
    """
    names = ", ".join(f"{ids.show(member.task)} ({member.state})" for member in view.holders[:3])
    more = view.held - len(view.holders[:3])
    return f"{names} and {more:,} more" if more > 0 else names


def in_error(members: Iterable[LanePlace]) -> list[LanePlace]:
    """Return those of a lane's tasks that are in error: an operator may release their lanes."""
    return [member for member in members if member.state == "error"]
