"""Forms that pause, resume and trigger schedules. A form names app and schedule in its fields."""

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.responses import Response

from makegood.client.schedules import ScheduleHandle
from makegood.console.acts import who_of, why_of
from makegood.console.outcomes import ActOutcome, Outcomes
from makegood.console.visits import Route, Visit, act

BACK: Final = "/schedules"

Do = Callable[[ScheduleHandle, Visit], Awaitable[ActOutcome]]


class ScheduleForms:
    """The acts on schedules."""

    def __init__(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes

    def routes(self) -> tuple[Route, ...]:
        """Return their routes."""
        forms = {"pause": _pause, "resume": _resume, "trigger": _trigger}
        return tuple(act(f"/schedules/{name}", self._carrying_out(do)) for name, do in forms.items())

    def _carrying_out(self, do: Do) -> Callable[[Visit], Awaitable[Response]]:
        async def respond(visit: Visit) -> Response:
            schedule = await visit.client.find_schedule(visit.form.get("name", ""), app=visit.form.get("app"))
            try:
                return self._outcomes.respond(visit, await do(schedule, visit))
            finally:
                visit.reads.forget()

        return respond


async def _pause(schedule: ScheduleHandle, visit: Visit) -> ActOutcome:
    await schedule.pause(visit.field("for") or None, why=why_of(visit), who=who_of(visit))
    text = "The moments of the pause are skipped for good."
    return ActOutcome("ok", f"Paused: {schedule.name}", text, BACK)


async def _resume(schedule: ScheduleHandle, visit: Visit) -> ActOutcome:
    if await schedule.resume(why=why_of(visit), who=who_of(visit)):
        return ActOutcome("ok", f"Resumed: {schedule.name}", "It fires from its next moment on.", BACK)
    return ActOutcome("doubt", f"Nothing to do: {schedule.name}", "It was not paused.", BACK)


async def _trigger(schedule: ScheduleHandle, visit: Visit) -> ActOutcome:
    task = await schedule.trigger(why=why_of(visit), who=who_of(visit))
    return ActOutcome(
        "ok", f"Triggered: {schedule.name}", f"Task {task.id} is submitted.", f"/tasks/{task.id}"
    )
