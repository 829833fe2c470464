"""A deterministic event loop: one thread, virtual time, and processes that can be killed or stopped.

It is asyncio's ``BaseEventLoop`` with another core: no selector, no thread and no wall clock. If nothing is
ready, time jumps to the next timer. If nothing can ever happen again, it raises ``DeadlockError``. The seed
picks one of the processes that have something ready; within a process callbacks run in order, as asyncio
promises. The loop refuses asyncio's other features (``refused_calls``). Ctrl-C is raised between two
callbacks if it is held back until then (``ctrl_c``).

A process is a value in each task's context. Before a callback runs, the loop checks its process. A callback
of a *killed* process is dropped, so no ``finally`` and no ``except`` runs, as with SIGKILL. A callback of a
*stopped* one is parked until the process resumes, as with SIGSTOP. What belongs to the world (a message under
way) runs in an empty context and outlives its sender.

A storm takes thousands of steps, so the code of each step is direct: callbacks are queued and run here, and
the heap holds timers behind their times, which compare without a call.

It relies on a few private names of asyncio: ``_run_once``, ``_ready``, ``_scheduled``, ``_stopping``,
``_timer_cancelled_count``, and the attributes of handles. They are the same in Python 3.11 to 3.13.
"""

import asyncio
import heapq
import math
import random
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import Any, TypeVar

from makegood.testing.simulator import ctrl_c
from makegood.testing.simulator.callback_owner import whose
from makegood.testing.simulator.refused_calls import LackingLoop

T = TypeVar("T")

_MOST_CANCELLED = 100
_MOST_KEPT = 200
_THREAD_DELAY = 0.002
_MOST_STEPS = 200_000  # At one moment. More means that something waits in a circle, without time passing.


class DeadlockError(RuntimeError):
    """Nothing is ready, no timer is set, and the world has not ended; or something runs forever at one
    moment.
    """


class KilledError(BaseException):
    """Unwinds a plain function whose process was killed midway; the rest of the function never happens."""


class SimulatedProcess:
    """A simulated operating system process.

    ``tasks`` keeps all that runs in it, so that nothing is torn down by chance; ``signals``: its signal
    handlers; ``end_request_at``: when it was first asked to end; ``resumptions``: how often it was resumed.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.is_stopped = False
        self.resumptions = 0
        self.end_request_at: float | None = None
        self.tasks: list[asyncio.Task[Any]] = []
        self.signals: dict[int, Callable[[], object]] = {}
        self.context = Context()
        self.context.run(PROCESS.set, self)

    def __repr__(self) -> str:
        return f"<process {self.name}{' dead' if self.dead else ' stopped' if self.is_stopped else ''}>"


PROCESS: ContextVar[SimulatedProcess | None] = ContextVar("makegood_process", default=None)
"""The simulated process that the running code belongs to; None: the world."""


def current_process() -> SimulatedProcess | None:
    """Return the simulated process that the calling code belongs to; None in the world's own code."""
    return PROCESS.get()


def _fill(
    handle: Any,
    callback: Callable[..., object],
    args: tuple[Any, ...],
    loop: "WorldLoop",
    context: Context | None,
) -> None:
    handle._callback = callback
    handle._args = args
    handle._loop = loop
    handle._context = copy_context() if context is None else context
    handle._cancelled = False
    handle._repr = handle._source_traceback = None


class _Handle(asyncio.Handle):
    """Asyncio's handle, created without asking for the debug mode."""

    __slots__ = ()
    __init__ = _fill


class _Timer(asyncio.TimerHandle):
    """A timer handle, created in the same way; it is in the heap from the start."""

    __slots__ = ()
    __init__ = _fill


class WorldLoop(LackingLoop):
    """The event loop of a world.

    ``rng`` decides between processes; ``now`` is the world's true time, in seconds; ``defects``: exceptions
    of the world's own callbacks, which nobody else would notice; ``resuming``: called before each step of a
    process, that is wherever it continues after an await; it may stop the process there.
    """

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.now = 0.0
        self.steps = self._steps_at_jump = 0
        self._rng = rng
        self._backlog: list[asyncio.Handle] = []
        self._processes: dict[SimulatedProcess, None] = {}
        self._own = SimulatedProcess("")
        self.defects: list[str] = []
        self.resuming: Callable[[SimulatedProcess], object] | None = None
        self.set_exception_handler(self._note_defect)

    def _note_defect(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Note an exception in a callback of the world's own; one in a simulated process is that process's
        affair.
        """
        handle = context.get("handle")
        if handle is not None and handle._context.get(PROCESS) is None:
            self.defects.append(f"{context['message']}: {context.get('exception')!r}")

    def in_process(self) -> bool:
        """Whether the running code belongs to a simulated process."""
        return PROCESS.get() is not None

    # -- what asyncio asks of a loop ---------------------------------------------------------------

    def time(self) -> float:
        """Return virtual time."""
        return self.now

    def call_soon(  # type: ignore[override]  # the same with a simpler signature
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Run a callback soon."""
        handle: asyncio.Handle = _Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_later(  # type: ignore[override]  # the same with a simpler signature
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run a callback after ``delay`` virtual seconds."""
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]  # the same with a simpler signature
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run a callback at a virtual time."""
        timer: Any = _Timer(callback, args, self, context)
        timer._when = when
        timer._scheduled = True
        heapq.heappush(self._scheduled, (when, timer))  # type: ignore[attr-defined]
        return timer  # type: ignore[no-any-return]

    def call_soon_threadsafe(  # type: ignore[override]  # the same with a simpler signature
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Run a callback soon; there is no other thread."""
        return self.call_soon(callback, *args, context=context)

    def run_forever(self) -> None:
        """Run until the loop is stopped; raises a Ctrl-C that was held back meanwhile."""
        ctrl_c.give_in()
        super().run_forever()
        ctrl_c.give_in()

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> "asyncio.Future[T]":  # type: ignore[override]  # noqa: ARG002
        """Run ``func`` here, after a short virtual delay; it belongs to the calling process."""
        future: asyncio.Future[T] = self.create_future()

        def run() -> None:
            if future.done():
                return
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - it belongs to the caller
                future.set_exception(error)
            else:
                future.set_result(result)

        self.call_later(self._rng.random() * _THREAD_DELAY, run)
        return future

    def create_task(  # type: ignore[override]  # the same with a simpler signature
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
        **_: Any,
    ) -> "asyncio.Task[T]":
        """Start a task. Its process keeps it, so that the garbage collector does not close a dead process's
        coroutines.
        """
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=name, context=context)
        process = (PROCESS.get() if context is None else context.get(PROCESS)) or self._own
        self._processes[process] = None
        process.tasks.append(task)
        if len(process.tasks) > _MOST_KEPT:
            process.tasks = [child for child in process.tasks if not child.done()]
        return task

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]  # the same with a simpler signature
        """Register the calling process's handler for a signal; the world sends one with ``signal``."""
        process = PROCESS.get()
        if process is not None:
            process.signals[sig] = partial(callback, *args)

    def remove_signal_handler(self, sig: int) -> bool:
        """Restore a signal's default action."""
        process = PROCESS.get()
        return process is not None and process.signals.pop(sig, None) is not None

    def signal(self, process: SimulatedProcess, sig: int) -> bool:
        """Send a signal to a process; False if it has no handler for it."""
        handler = process.signals.get(sig)
        if handler is not None:
            self.call_soon(handler, context=process.context)
        return handler is not None

    def _process_events(self, _events: Any) -> None:
        """There is no selector."""

    def _write_to_self(self) -> None:
        """There is no other thread to wake."""

    # -- one step ----------------------------------------------------------------------------------

    def _run_once(self) -> None:
        """Take one step after another until the loop is stopped."""
        ready, timers = self._ready, self._scheduled  # type: ignore[attr-defined]
        while True:
            if not ready:
                self._jump(timers)
            now = self.now
            while timers and timers[0][0] <= now:
                timer = heapq.heappop(timers)[1]
                timer._scheduled = False
                ready.append(timer)
            if ready:
                self._step(self._pick(ready))
            if self._stopping:  # type: ignore[attr-defined]
                return

    def _step(self, handle: Any) -> None:
        """Run a callback, unless it was cancelled or its process cannot run."""
        if handle._cancelled:
            return
        context = handle._context
        process = context.get(PROCESS)
        if process is not None:
            if process.dead:
                return
            if self.resuming is not None and not process.is_stopped:
                self.resuming(process)
            if process.is_stopped:
                self._backlog.append(handle)
                return
        self.steps += 1
        if self.steps - self._steps_at_jump > _MOST_STEPS:
            raise DeadlockError(
                f"at {self.now:.3f} s: {_MOST_STEPS:,} steps, and no time has passed; {whose(handle)} goes round without "
                "waiting: does it poll with `await asyncio.sleep(0)`? Wait for something, or for some milliseconds"
            )
        try:
            context.run(handle._callback, *handle._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - the task's owner handles it
            message = f"Exception in callback {handle._callback!r}"
            self.call_exception_handler({"message": message, "exception": error, "handle": handle})

    def _jump(self, timers: list[Any]) -> None:
        """Let time pass until the next timer that was not cancelled."""
        count = self._timer_cancelled_count  # type: ignore[has-type]
        if count > _MOST_CANCELLED and count * 2 > len(timers):
            for _, timer in timers:
                timer._scheduled = timer._scheduled and not timer._cancelled
            timers[:] = [(due, timer) for due, timer in timers if not timer._cancelled]
            heapq.heapify(timers)
            self._timer_cancelled_count = 0
        while timers and timers[0][1]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(timers)[1]._scheduled = False
        if timers:
            if timers[0][0] > self.now:
                self.now, self._steps_at_jump = timers[0][0], self.steps
        elif not self._stopping:  # type: ignore[attr-defined]
            raise DeadlockError(
                f"at {self.now:.3f} s: nothing is ready, no timer is set, and nobody has ended the world"
            )

    def _pick(self, ready: Any) -> Any:
        """Take the first handle of a process that the seed picks, in proportion to the number that each has
        ready.
        """
        count = len(ready)
        if count == 1:
            return ready.popleft()
        index = int(self._rng.random() * count)
        process = ready[index]._context.get(PROCESS)
        for position in range(index):
            if ready[position]._context.get(PROCESS) is process:
                index = position
                break
        if index == 0:
            return ready.popleft()
        handle = ready[index]
        del ready[index]
        return handle

    # -- processes ---------------------------------------------------------------------------------

    def resume(self, process: SimulatedProcess) -> None:
        """Resume a stopped process: everything that fell due meanwhile is ready now."""
        process.is_stopped = False
        process.resumptions += 1
        handles, self._backlog = self._backlog, []
        for handle in handles:
            mine = handle._context.get(PROCESS) is process  # type: ignore[attr-defined]
            (self._ready if mine else self._backlog).append(handle)  # type: ignore[attr-defined]

    def postpone(self, process: SimulatedProcess, seconds: float) -> None:
        """Delay a process's timers by ``seconds``, as on a suspended machine."""
        timers: list[Any] = self._scheduled  # type: ignore[attr-defined]
        for n, (due, timer) in enumerate(timers):
            if timer._context.get(PROCESS) is process:
                timer._when = due + seconds
                timers[n] = (timer._when, timer)
        heapq.heapify(timers)

    def seconds_to_own_timer(self, ticker: object) -> float:
        """Return the seconds until the first timer of the world's own, ``ticker`` aside."""
        timers: list[Any] = self._scheduled  # type: ignore[attr-defined]
        dues = [
            due
            for due, timer in timers
            if not timer._cancelled and timer is not ticker and timer._context.get(PROCESS) is None
        ]
        return min(dues, default=math.inf) - self.now

    def leap(self, seconds: float) -> None:
        """Let ``seconds`` pass at once, of which no process notices anything: its timers are as far off as
        before.
        """
        for process in self._processes:
            if process is not self._own:
                self.postpone(process, seconds)
        self.now += seconds

    def dispose(self) -> None:
        """Throw the world away: nothing that is still under way runs again, and nothing is logged about
        it.
        """
        for process in self._processes:
            process.dead = True
        asyncio._set_running_loop(self)  # Closing may run code, which may even start further tasks.
        try:
            while left := [task for process in self._processes for task in process.tasks]:
                for process in self._processes:
                    process.tasks = []
                for task in left:
                    if not task.done():
                        task._log_destroy_pending = False  # type: ignore[attr-defined]
                        _close(task)
        finally:
            asyncio._set_running_loop(None)
        self._processes.clear()
        self._backlog.clear()
        self.refusals.clear()
        for handle in self._ready:  # type: ignore[attr-defined]
            for argument in handle._args or ():  # The end of a collected generator: nobody will await it.
                if asyncio.iscoroutine(argument):
                    argument.close()
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]
        self.close()


def _close(task: "asyncio.Task[Any]") -> None:
    """End a coroutine that nobody will ever resume, and ignore what it raises."""
    coroutine = task.get_coro()
    try:
        if coroutine is not None:
            coroutine.close()
    except BaseException:  # noqa: BLE001, S110 - "ignored GeneratorExit" and the like: its world is gone
        pass
