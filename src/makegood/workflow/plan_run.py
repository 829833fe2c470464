"""One run of a workflow function, and the resulting plan.

As long as the run makes the same calls as an earlier run, it follows the *trail* of that one (see
``plan_cache``): calls are compared, nothing is recorded, and its promises are not asked what they stand for.
Where it leaves the trail (another call, other arguments, ``mg.when`` and its like, a part of a result taken
in the workflow function's own thread), the steps so far are recorded as if there had been no trail, and the
rest as usual.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import is_
from sys import _getframe
from threading import get_ident
from typing import Any

from makegood.declare.action import Action, Shared
from makegood.declare.signal import Signal
from makegood.errors import DefinitionError, PromiseError
from makegood.workflow.plan_cache import (
    NOTHING,
    CachedPlan,
    Called,
    FunctionCode,
    ParallelGroup,
)
from makegood.workflow.promise import Origin, Promise, Promised, Scope, content_of, number_of, promise_of
from makegood.workflow.provenance import Mark
from makegood.workflow.recorder import Recording


class Planning:
    """The plan that one run of a workflow function makes.

    ``where`` names the workflow, ``copies`` and ``marks`` are those of its inputs (``own_copies``);
    ``trail``: what an earlier run recorded with the same marks; ``code``: what is known of its function.
    """

    __slots__ = (
        "_calls",
        "_code",
        "_copies",
        "_marks",
        "_position",
        "_recording",
        "_registry",
        "_strays",
        "_thread",
        "_trail",
        "_values",
        "_where",
    )  # fmt: skip

    def __init__(
        self,
        registry: Shared,
        where: str,
        copies: Sequence[object],
        marks: Sequence[Mark],
        *,
        trail: CachedPlan,
        code: FunctionCode,
    ) -> None:
        self._registry = registry
        self._code = code
        self._where = where
        self._copies = copies
        self._marks = marks
        self._trail = trail
        self._calls = trail.calls
        self._position = 0
        self._values: list[Any] = [*copies]  # the promises given out follow
        self._recording = None if self._calls else Recording(registry, where, copies, marks, code)
        self._strays: list[str] = []
        self._thread = get_ident()  # 0 once the run is over: no thread has it

    # -- what the workflow function calls --------------------------------------------------------------------

    def action(
        self, action: Action[..., Any], args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> Promise:
        """Plan a step; return the promise of its result. Raises ``DefinitionError`` and its kind,
        ``PayloadError``.
        """
        if self._thread != get_ident():
            self.enter(action.address)
        step_count, calls = self._position, self._calls
        if step_count < len(calls):
            call, values = calls[step_count], self._values
            arguments, names = ((*args, *kwargs.values()), tuple(kwargs)) if kwargs else (args, ())
            if (
                type(call) is Called
                and call.action is action
                and len(arguments) == len(call.places)
                and call.names == names
                and (
                    call.site is None  # otherwise: where the workflow itself is
                    or ((frame := _getframe(2)).f_code, frame.f_lasti) == call.site
                )
                and all(
                    map(
                        is_,
                        arguments,
                        _trail_arguments(call, values)
                        if call.constants
                        else map(values.__getitem__, call.places),
                    )
                )
            ):
                promise = promise_of(self, call.serial)
                values.append(promise)
                self._position = step_count + 1
                return promise
        return self._leave_trail().action(action, args, kwargs)

    def parallel(self, steps: Sequence[object]) -> None:
        """Put steps side by side; see ``Recording.parallel``."""
        self.enter("mg.parallel")
        if self._position < len(self._calls):
            call = self._calls[self._position]
            numbers = [number_of(step, self) if type(step) is Promise else -1 for step in steps]
            if type(call) is ParallelGroup and call.serials == tuple(numbers):
                self._position += 1
                return
        self._leave_trail().parallel(steps)

    def recording(self, subject: str) -> Recording:
        """Return the recording for ``subject``, which leaves no trail."""
        self.enter(subject)
        return self._leave_trail()

    def signal(self, name: str, annotation: Any) -> Signal[Any]:
        """Return the app's signal of this name, declared if it is not. Raises ``DefinitionError``."""
        return self._registry.signal(name, annotation)

    @property
    def results(self) -> Sequence[object]:
        """What ``mg.done`` gives as the task's result, wherever it is recorded."""
        return () if self._recording is None else self._recording.results

    @property
    def app(self) -> str:
        """The name of the app."""
        return self._registry.app

    def enter(self, subject: str) -> None:
        """Check that the workflow function itself calls ``subject``, while it runs."""
        if self._thread == get_ident():
            return
        self.stray(subject)
        raise PromiseError(
            f"{subject} was called outside of {self._where}, in another thread or after its end: a plan is made by the workflow function "
            f"alone; steps that need not wait for each other are written mg.parallel(...) or mg.branches(...)"
        )

    def stray(self, name: str) -> None:
        """See ``Recorder.stray``."""
        self._strays.append(name)

    def content_of(self, number: int) -> Promised:
        """Return what a promise stands for that was given out on the trail. Asking for it leaves the
        trail.
        """
        if self._thread == get_ident():
            self._leave_trail()
            return content_of(self._values[len(self._copies) + number])
        # Another thread asks, or too late: the promise has a name, and fits nowhere.
        call = self._trail.call(number)
        scope = Scope(f"workflow {self._where}", None)
        return Promised(Origin(self, call.step, 0, number, number), call.returns, scope)

    def _leave_trail(self) -> Recording:
        """Leave the trail, if the run is still on it."""
        recording = self._recording
        if recording is None:
            recording = self._recording = Recording(
                self._registry, self._where, self._copies, self._marks, self._code
            )
            recording.replay(self._calls[: self._position], self._values[len(self._copies) :])
            self._calls = ()  # the trail is left for good
        return recording

    # -- the end ---------------------------------------------------------------------------------------------

    def trail(self, value: object, annotation_of: Callable[[int], Any]) -> CachedPlan:
        """Return the plan, as the trail of further runs.

        ``value``: the workflow function's result; ``annotation_of``: the annotation that the input at a
        place was checked against. Raises ``DefinitionError`` if an action was called outside meanwhile: it
        may be missing.
        """
        end = NOTHING if value is None else number_of(value, self) if type(value) is Promise else -1
        if self._recording is None and self._position == len(self._calls) and end == self._trail.end:
            returns = self._trail.returns
        else:
            returns = self._leave_trail().return_template(value)
        if self._strays:
            raise DefinitionError(
                f"while {self._where} was run, {self._strays[0]} was called in another thread: such a call records no step. Call "
                f"actions in the workflow function itself; mg.parallel(...) lets steps run at the same time"
            )
        return (
            self._trail
            if self._recording is None
            else self._recording.trail(returns, self._trail, annotation_of)
        )

    def close(self) -> None:
        """End the run and release its data: promises that the workflow function left somewhere still name
        their step.
        """
        self._thread = 0
        if self._recording is not None:
            self._recording.close()
        self._values, self._copies = [], ()


def _trail_arguments(call: Called, values: Sequence[object]) -> Sequence[object]:
    """Return the arguments that a call has on the trail."""
    return [values[place] if place >= 0 else call.constants[~place] for place in call.places]
