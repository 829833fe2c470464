"""The attempts under way in a process: they begin, get more time, hear that nobody needs them, are halted at
their deadline, and end.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from makegood.agent.attempt_runner import AttemptRunner, gave_up, not_begun, not_needed, not_sent
from makegood.agent.begin_spacing import BeginSpacing
from makegood.agent.circuit_watch import CircuitWatch
from makegood.agent.intake import Intake
from makegood.agent.reports import Reports
from makegood.agent.sealed_calls import SealedCalls
from makegood.agent.slots import Slots
from makegood.base.clock import Clock
from makegood.base.contexts import HomeLoop
from makegood.base.daemon_threads import DaemonThreads
from makegood.base.deadline_timer import Alarm
from makegood.base.durations import short_duration
from makegood.base.ids import address, show
from makegood.channels.protocol import Channel
from makegood.declare.call import Call, enter, margin
from makegood.declare.terms import EXTEND_MOST
from makegood.errors import StoreUnavailableError
from makegood.model.attempt import Attempt
from makegood.model.messages import Request, TaskMessage
from makegood.model.task import about
from makegood.store.records import Identity
from makegood.telemetry.hooks import Answering

log = logging.getLogger("makegood.agent")


class Attempts:
    """Runs attempts. ``setups``: those that are open, by name. ``identity``: the store's. ``on_answer``:
    called with each answer and its moment. ``on_note``: called with each note, before the answer.
    """

    def __init__(
        self,
        channel: Channel,
        slots: Mapping[str, Slots],
        intake: Intake,
        circuits: CircuitWatch,
        *,
        setups: Mapping[str, Any],
        identity: Callable[[], Identity],
        on_answer: Callable[[Attempt, TaskMessage, float], None],
        on_note: Callable[[Attempt, TaskMessage], None],
        observe: Callable[[Answering], Answering] | None,
        clock: Clock,
        rng: random.Random,
        sealed_calls: SealedCalls,
    ) -> None:
        self.running: dict[Attempt, None] = {}
        """In the order in which they began."""
        self._channel = channel
        self._slots = slots
        self._intake = intake
        self._circuits = circuits
        self._identity = identity
        self.clock = clock
        self._alarm = Alarm(clock, self.halt)
        self._threads = DaemonThreads(max(1, sum(s.size for s in slots.values())), "action")
        self._home = HomeLoop("these agents")
        self._reports = Reports(on_note, on_answer, clock, self._home)
        for each in slots.values():
            each.spacing = None if each.rate is None else BeginSpacing(each.rate, clock)
        runner = AttemptRunner(
            clock,
            rng,
            self._threads,
            turn=self._turn,
            apart=self._home.apart,
            setups=setups,
            sealed_calls=sealed_calls,
        )
        self.runner: Answering = runner if observe is None else observe(runner)

    def begin(self, request: Request, node: int, began: float, handed_at: float = 0.0) -> None:
        """Begin a request whose slot is set aside. ``node`` took it, ``began`` is a moment before that.

        ``handed_at``: as in ``Decision``, unless it was taken from the store.
        """
        within, taken_at = request.within, handed_at or request.taken_at
        attempt = Attempt(
            request, node, began + within, began, self, request.first_sent or taken_at,
        )  # fmt: skip
        if request.keeps and request.doing != "probe":
            attempt.keep_key(began + request.keeps, taken_at)
        self.running[attempt] = None
        slots = self._slots[address(request.app, request.agent)]
        slots.running += 1
        if slots.circuit is not None:
            now = self.clock.monotonic()
            attempt.ticket = slots.circuit.began(now)
            if request.attempt > 1:
                attempt.since = slots.latest_failure_bound(request, now)
        self._alarm.set(attempt.deadline)
        home = self._home
        work = self._run(attempt, slots, home.loop)
        attempt.work = home.loop.create_task(work, context=home.context.copy())

    async def _run(self, attempt: Attempt, slots: Slots, loop: asyncio.AbstractEventLoop) -> None:
        request = attempt.request
        message: TaskMessage | None = None
        spacing, reports = slots.spacing, self._reports
        try:
            if request.delay or attempt.since is not None or spacing is not None:
                await self._due(attempt, slots, spacing)
            now = self.clock.monotonic()
            if attempt.cancelled_at is not None or attempt.repeats or now >= attempt.deadline:
                message = _obstacle(attempt, now)
            if message is None:
                action, store = slots.actions[request.action], self._identity()
                terms = action.terms
                enter(
                    Call(
                        request, store.store_id, store.generation, attempt, self.clock, loop, action._decode,
                        terms.keys, terms.tries,
                    )
                )  # fmt: skip
                message = await self.runner.answer(attempt, action)
                if attempt in reports.paces:
                    await reports.settle(attempt)
        except asyncio.CancelledError:
            log.debug(
                "step %s of task %s: halted at its deadline",
                request.step, show(request.task), extra=_about(request),
            )  # fmt: skip
        except Exception as defect:
            message = gave_up(attempt, defect)
            log.exception(
                "this is a defect, please report it", exc_info=None if attempt.withholds else defect
            )
        finally:
            now = self.clock.monotonic()
            if spacing is not None:
                spacing.leave(attempt)
            del self.running[attempt]
            slots.count_end(attempt, message, now)
            if attempt.ticket is not None:
                counts = self._circuits.judge(slots, attempt, message, self.running)
                if not counts and message is not None:
                    message = replace(message, excused=True)
            if message is not None and (message.kind != "done" or attempt.cancelled_at is not None):
                message = _with_times(message, attempt, now)
            attempt.end()
            if not self.running:
                self._intake.idle()
            if slots.backlog or slots.needs_look:
                self._intake.note_free_slot(slots)
        if attempt in reports.paces:
            reports.end(attempt, message, now)
        elif message is not None:
            reports.on_answer(attempt, message, now)

    async def _due(self, attempt: Attempt, slots: Slots, spacing: BeginSpacing | None) -> None:
        """Wait until the function of an attempt may begin."""
        if attempt.request.delay:
            await attempt.rest(attempt.request.delay)
            attempt.began = self.clock.monotonic()
        if attempt.since is not None:
            await self._circuits.inform(slots, attempt.request)
        if spacing is not None and not attempt.cancelled:
            attempt.begins = partial(self._note_begin, spacing, attempt)
            await spacing.wait(attempt)
            attempt.began = self.clock.monotonic()

    async def _turn(self, attempt: Attempt) -> bool:
        """Wait until the rate of an attempt's agent lets it try again; False: not in time, or the store is
        away.
        """
        request = attempt.request
        slots = self._slots[address(request.app, request.agent)]
        if slots.rate is None:
            return True
        left = attempt.tries_until(margin(request.within)) - self.clock.monotonic()
        try:
            wait = await self._channel.turn(slots.address, slots.rate, left)
        except StoreUnavailableError as away:
            log.info("step %s of task %s is not tried again: %s", request.step, show(request.task), away)
            return False
        if wait is None:
            return False
        await attempt.rest(wait)
        if attempt.cancelled:
            return False
        if (spacing := slots.spacing) is None:
            return True
        await spacing.wait(attempt)
        if not attempt.cancelled and self.clock.monotonic() < attempt.tries_until(margin(request.within)):
            return True
        spacing.leave(attempt)
        return False

    def _note_begin(self, spacing: BeginSpacing, attempt: Attempt) -> None:
        """Note that a function begins, in whichever thread."""
        with contextlib.suppress(RuntimeError):  # the event loop has ended: nothing else begins
            self._home.loop.call_soon_threadsafe(spacing.note_begin, attempt, self.clock.monotonic())

    def halt(self) -> None:
        """Halt the attempts whose complete-by has passed, and log those that still run a while later."""
        now = self.clock.monotonic()
        for attempt in list(self.running):
            if attempt.deadline > now:
                continue
            if attempt.ticket is not None:  # silence tells at once, also of a call that cannot be stopped
                request = attempt.request
                slots = self._slots[address(request.app, request.agent)]
                self._circuits.judge(slots, attempt, None, self.running)
            if attempt.pass_deadline(now):
                self._overdue(attempt, now)
        looks = [look for attempt in self.running if (look := attempt.look_at(now)) is not None]
        if looks:
            self._alarm.set(min(looks))

    def _overdue(self, attempt: Attempt, now: float) -> None:
        """Log, once, a function that keeps its slot although nobody will hear its answer."""
        request = attempt.request
        self._slots[address(request.app, request.agent)].overdue += 1
        log.warning(
            "%s still runs %.1f s after its deadline%s: it keeps its slot until it returns; "
            "give what it waits for a timeout (mg.current_call().remaining(), which is for one request: switch off an SDK's own "
            "repetitions)",
            _description(request), now - attempt.deadline,
            ", and ignores its cancellation" if attempt.cancellable else "", extra=_about(request),
        )  # fmt: skip

    def cancel(self, requests: Collection[tuple[int, int, int]], node: int) -> None:
        """Let the attempts at these requests (task, idx, attempt) of ``node`` hear that nobody needs them."""
        now = self.clock.monotonic()
        for attempt in list(self.running):
            request = attempt.request
            if attempt.node == node and (request.task, request.idx, request.attempt) in requests:
                attempt.hear(now)

    async def extend(self, attempt: Attempt, more: float) -> bool:
        """Ask the store for this many seconds from now on; return whether it agreed."""
        request = attempt.request
        terms = self._slots[address(request.app, request.agent)].actions[request.action].terms
        now, longest = self.clock.monotonic(), terms.longest(request.within)
        deadline = min(now + more, attempt.began + longest)
        left = deadline - now
        if left <= 0 or not await self._channel.extend(
            attempt.node, request.task, request.idx, request.attempt, left
        ):
            return False
        attempt.deadline = max(attempt.deadline, deadline)
        if deadline < now + more and not attempt.has_all_time:
            attempt.has_all_time = True
            limit = f"{EXTEND_MOST} times complete_within; extend_up_to= allows more"
            text = f"its deadline moves no further: an attempt takes at most {short_duration(longest)} ({'extend_up_to' if terms.extend_up_to else limit})"
            self._reports.note(attempt, text, overtakes=False)
        return True

    def let_follow(self, task: int, note: TaskMessage) -> None:
        """Let the reply of the attempt that wrote a note follow it through the store."""
        for attempt in self.running:
            request = attempt.request
            if (request.task, request.idx, request.attempt) == (task, note.idx, note.attempt):
                attempt.by_store = True

    def note(self, attempt: Attempt, value: Any) -> None:
        """Take a note of an attempt; it is sent as often as notes are kept."""
        self._reports.note(attempt, value)

    def name_what_runs(self, limit: float) -> None:
        """Log the attempts that a drain of ``limit`` seconds did not wait for: nothing else will report
        them.
        """
        for attempt in self.running:
            request = attempt.request
            log.warning(
                "step %s of task %s: still running after the drain's %g s, so nobody will hear its answer: "
                "it is in doubt once its deadline has passed (setting `drain`)",
                request.step, show(request.task), limit, extra=_about(request),
            )  # fmt: skip

    def stop(self) -> None:
        """Cancel what runs, as the process ends."""
        self._alarm.stop()
        for attempt in list(self.running):
            if attempt.work is not None:
                attempt.work.set_name(_description(attempt.request))
                attempt.work.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)


def _description(request: Request) -> str:
    """Return what an attempt does, for people."""
    where = address(request.app, request.agent)
    what = about(request.doing, f"{where}/{request.action}")
    return f"{what} for step {request.step} of task {show(request.task)}"


def _obstacle(attempt: Attempt, now: float) -> TaskMessage | None:
    """Return the answer of an attempt that must not begin; None: it may."""
    request = attempt.request
    if attempt.cancelled:
        return not_begun(request, not_needed(request))
    if attempt.repeats and (left := attempt.key_until - now) <= margin(request.within):
        return not_sent(request, left)  # the service has forgotten its key, or will before it answers
    if now >= attempt.deadline:  # the process stood still, or the store was away
        return not_begun(request, f"its {short_duration(request.within)} were over before it could be")
    return None


def _with_times(message: TaskMessage, attempt: Attempt, now: float) -> TaskMessage:
    """Return an answer that says when its request was first sent, and for how long its attempt knew that
    nobody needs it: then it is no failure.
    """
    message = replace(message, first_sent=0.0 if message.kind == "done" else attempt.first_sent)
    if attempt.cancelled_at is None:
        return message
    gave_way = message.kind == "gave_up"
    return replace(
        message, since_cancel=round(now - attempt.cancelled_at, 6), excused=message.excused or gave_way
    )


def _about(request: Request) -> dict[str, object]:
    """Return what log lines about an attempt carry for machines."""
    return {"task": show(request.task), "step": request.step, "attempt": request.attempt}
