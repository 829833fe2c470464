"""Forms that pause, resume, trigger and backfill schedules. A form names app and schedule in its fields."""

from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlencode

from starlette.responses import Response

from makegood.base.counts import quantity
from makegood.client.schedules import ScheduleHandle
from makegood.console.acts import who_of, why_of
from makegood.console.outcomes import ActOutcome, Outcomes
from makegood.console.pages.backfill import BackfillRange
from makegood.console.visits import Route, Visit, act
from makegood.model.schedule import ATTRIBUTE
from makegood.store.filters import text_of
from makegood.store.views import Exact, Filter

BACK: Final = "/schedules"

Do = Callable[[ScheduleHandle, Visit], Awaitable[ActOutcome]]


class ScheduleForms:
    """The acts on schedules."""

    def __init__(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes

    def routes(self) -> tuple[Route, ...]:
        """Return their routes."""
        forms = {"pause": _pause, "resume": _resume, "trigger": _trigger, "backfill": _backfill}
        return tuple(act(f"/schedules/{name}", self._carrying_out(do)) for name, do in forms.items())

    def _carrying_out(self, do: Do) -> Callable[[Visit], Awaitable[Response]]:
        async def respond(visit: Visit) -> Response:
            schedule = await visit.client.find_schedule(visit.form.get("name", ""), app=visit.form.get("app"))
            return self._outcomes.respond(visit, await do(schedule, visit))

        return respond


async def _pause(schedule: ScheduleHandle, visit: Visit) -> ActOutcome:
    await schedule.pause(visit.field("for") or None, why=why_of(visit), who=who_of(visit))
    text = "The moments of the pause are skipped for good."
    return ActOutcome("ok", f"Paused: {schedule.name}", text, BACK)


async def _resume(schedule: ScheduleHandle, visit: Visit) -> ActOutcome:
    if await schedule.resume(why=why_of(visit), who=who_of(visit)):
        return ActOutcome("ok", f"Resumed: {schedule.name}", "It fires from its next moment on.", BACK)
    return ActOutcome("doubt", f"Nothing to do: {schedule.name}", "It was not paused.", BACK)


async def _backfill(schedule: ScheduleHandle, visit: Visit) -> ActOutcome:
    wanted = BackfillRange.read(visit.form, schedule.view.timezone)
    tasks = await schedule.backfill(
        wanted.since, wanted.until, limit=wanted.limit, why=why_of(visit), who=who_of(visit)
    )
    new = sum(task.created for task in tasks)
    others = f" {quantity(len(tasks) - new, 'moment')} had a task already." if len(tasks) > new else ""
    if not new:
        return ActOutcome(
            "doubt", f"Nothing to do: {schedule.name}", others.strip() or "No moment is in this range.", BACK
        )
    text = f"{quantity(new, 'task')} {'is' if new == 1 else 'are'} submitted.{others}"
    condition = Filter(app=schedule.app, attributes={ATTRIBUTE: Exact(schedule.name)})
    return ActOutcome(
        "ok", f"Backfilled: {schedule.name}", text, f"/tasks?{urlencode({'q': text_of(condition)})}"
    )


async def _trigger(schedule: ScheduleHandle, visit: Visit) -> ActOutcome:
    task = await schedule.trigger(why=why_of(visit), who=who_of(visit))
    return ActOutcome(
        "ok", f"Triggered: {schedule.name}", f"Task {task.id} is submitted.", f"/tasks/{task.id}"
    )
