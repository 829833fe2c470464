"""Apps, workflows, and what a workflow function may call besides actions.

``App`` is a value that users hold; it knows its agents, actions and workflows. A workflow is an ordinary
``def``. It runs once, with real inputs, when a task is submitted, and yields a ``Plan``. Nothing is replayed
later.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from types import CoroutineType
from typing import Any, Generic, ParamSpec, TypeVar

import msgspec

from makegood.base.durations import short_duration
from makegood.base.function_layers import layers
from makegood.declare.action import RECORDER, Action, Shared
from makegood.declare.parameters import names_around
from makegood.errors import DefinitionError, PayloadError, PromiseError
from makegood.model.plan import INPUTS, UNTIL, OnFailure, Plan, StepPlan
from makegood.model.schedule import SchedulePlan
from makegood.payload.annotations import may_fit
from makegood.payload.codec import annotation_text as shown_type
from makegood.payload.codec import check_fits, encode, objects_in
from makegood.saga import waits
from makegood.workflow.inputs import InputsByValue, WorkflowInputs
from makegood.workflow.lane_of import NO_LANE, LaneOf
from makegood.workflow.misuse import add_place, check_source, say_where
from makegood.workflow.plan_cache import NO_TRAIL, CachedPlan, FunctionCode
from makegood.workflow.plan_run import Planning
from makegood.workflow.promise import MOMENT, Promise, content_of
from makegood.workflow.provenance import Mark, Sites, own_copies
from makegood.workflow.sealed_plans import PlanSealing
from makegood.workflow.signal_waits import check_timeouts, wait_for
from makegood.workflow.verbs import _MAKERS

P = ParamSpec("P")
R = TypeVar("R")

_TRAILS = 32
"""Most trails of one workflow: one for each combination of types, and of inputs that are ambiguous."""

_SAMPLE = datetime(2000, 1, 1, tzinfo=UTC)
"""A moment, to see whether a parameter takes one."""

_IMMUTABLE = (str, int, float, bool, bytes, type(None))


# -- workflows -----------------------------------------------------------------------------------------------


class Workflow(Generic[P, R]):
    """A workflow of an app: see ``App.workflow``. Submit it with ``client.submit(workflow, *inputs)``."""

    def __init__(
        self,
        fn: Callable[P, R],
        registry: Shared,
        *,
        name: str,
        formerly: tuple[str, ...],
        within: float | None,
        undo_within: float | None,
        on_failure: OnFailure,
        lane_of: LaneOf = NO_LANE,
    ) -> None:
        self.name = name
        self._registry = registry
        self.formerly = formerly
        self.within = within
        self.undo_within = undo_within
        self.on_failure: OnFailure = on_failure
        self._lane_of = lane_of
        self._fn = fn
        self._trails: dict[tuple[Mark, ...], CachedPlan] = {}
        self._inputs = WorkflowInputs(
            fn, name, self.address, limit=registry.payload_limit, names=names_around()
        )
        lane_of.check(self.address, self._inputs.signature)
        if any(map(inspect.iscoroutinefunction, layers(fn))):
            raise DefinitionError(
                f"{self.address} is an async def: a workflow function is a plain def; it calls actions without await, and its inputs "
                f"are fetched before it is submitted"
            )
        passings = check_source(fn, {**_MAKERS, wait_for: "wait_for"}, self.address)
        self._by_value = InputsByValue(msgspec.json.encode([registry.app, name]), self._inputs)
        self._code = FunctionCode(fn, Sites(fn, passings, self._inputs.names))
        functools.update_wrapper(self, fn, updated=())

    def __repr__(self) -> str:
        return f"<workflow {self.address}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Inside another workflow: record the steps there, under that workflow's options.

        Anywhere else: raise ``DefinitionError``.
        """
        planning = RECORDER.get()
        if not isinstance(planning, Planning):
            raise DefinitionError(
                f"{self.address} was called outside a workflow: submit it with client.submit({self.name}, ...), or look at its steps "
                f"with {self.name}.plan(...)"
            )
        planning.enter(self.address)
        return self._fn(*args, **kwargs)

    @functools.cached_property
    def address(self) -> str:
        """The names of its app and its own."""
        return f"{self._registry.app}.{self.name}"

    @property
    def app(self) -> str:
        """The name of its app."""
        return self._registry.app

    @property
    def fn(self) -> Callable[P, R]:
        """The function that was decorated."""
        return self._fn

    def plan(self, *args: P.args, **kwargs: P.kwargs) -> Plan[R]:
        """Run the workflow function with these inputs and return its plan; nothing is submitted.

        Raises ``DefinitionError`` or ``PromiseError`` for what a plan cannot hold, ``PayloadError`` for
        inputs that cannot be kept or are too large, and whatever the function itself raises.
        """
        __tracebackhide__ = True  # pytest shows the line that called it, which is the one to mend
        by_name: dict[str, Any] = {}
        try:
            if kwargs or len(args) != self._inputs.plain:
                args, by_name = self._inputs.bind(args, kwargs)  # type: ignore[assignment]  # as its function takes them
            inputs = [*args, *by_name.values()]
            inputs_json = tuple(map(self._inputs.encode, range(len(inputs)), inputs))
        except (DefinitionError, PayloadError) as wrong:
            say_where(wrong, self._fn, self.address)
            raise
        copies, marks = own_copies(inputs, self._code.literals)
        before = self._trails.get(marks, NO_TRAIL)
        planning = Planning(self._registry, self.address, copies, marks, trail=before, code=self._code)
        run: Callable[..., R] = self._fn
        reset = RECORDER.set(planning)
        self._registry.plans.add(planning)
        try:
            if by_name:
                value = run(*copies[: len(args)], **dict(zip(by_name, copies[len(args) :], strict=True)))
            else:
                value = run(*copies)
            if isinstance(value, CoroutineType):
                value.close()
                raise DefinitionError(
                    f"{self.address} returned a coroutine: a workflow function is a plain def, without await"
                )
            trail = planning.trail(value, self._inputs.constraint)
            if planning.results:
                self._check_results(planning.results)
            if trail.signals:
                check_timeouts(trail.steps, self.within, self.address)
            if trail is not before:
                self._check_sleeps(trail.steps, inputs_json)
                if self._sealing is not None:
                    self._sealing.check(trail.steps, self.address)
                self._trails = {**dict([*self._trails.items()][1 - _TRAILS :]), marks: trail}
        except PromiseError as wrong:
            add_place(wrong)
            raise
        finally:
            planning.close()
            self._registry.plans.discard(planning)
            RECORDER.reset(reset)
        for demand in trail.demands:
            check_fits(inputs_json[demand.place], demand.annotation, inputs[demand.place], demand.subject)
        for n in trail.input_places:
            if type(copies[n]) not in _IMMUTABLE and self._inputs.encode(n, copies[n]) != inputs_json[n]:
                raise DefinitionError(
                    f"{self.address} changed its input {self._inputs.describe(n)[0]} and passed it on: make a copy and pass that, inputs are "
                    f"kept as they were submitted"
                )
        return Plan(
            self._registry.app, self.name, trail.steps, inputs_json, trail.returns, self._by_value, self.within, self.undo_within, self.on_failure,
            returns_type=self._returns, names=self._inputs.names or self._inputs.names_of(len(args), by_name),
            signals=trail.signals, lanes=self._lane_of.lanes(self.address, args, by_name), sealing=self._sealing,
        )  # fmt: skip

    def _check_results(self, values: Sequence[object]) -> None:
        """Raise ``PayloadError`` for a value of ``mg.done`` that the workflow does not return."""
        for value in values:
            subject = f"the result of mg.done in {self.address}"
            if isinstance(value, Promise):
                result = content_of(value).annotation
                if Any not in (result, self._returns) and not may_fit(self._returns, result):
                    raise PayloadError(
                        f"{subject} is {shown_type(result)}, and the workflow returns {shown_type(self._returns)}: {content_of(value)} "
                        f"returns {shown_type(result)}"
                    )
            elif not any(isinstance(part, Promise) for part in objects_in(value)):
                data = encode(value, self._registry.payload_limit, subject)
                check_fits(data, self._returns, value, subject)

    def _check_sleeps(self, steps: Sequence[StepPlan], inputs: Sequence[bytes]) -> None:
        """Raise ``DefinitionError`` if the task's deadline ends a sleep that all of its tasks come to."""
        within = self.within
        for step in steps if within is not None else ():
            args = step.args
            if step.kind != "sleep" or step.action == UNTIL or step.guards or args is None:
                continue
            ref = args.refs[0] if args.refs else None
            if ref is not None and ref.of not in INPUTS:
                continue
            length = waits.length(args.parts[0].encode() if ref is None else inputs[ref.index])
            if within is not None and length >= within:
                raise DefinitionError(
                    f'{self.address}: {step.name} sleeps {short_duration(length)}, and complete_within="{short_duration(within)}" ends it before: '
                    f"raise complete_within, or leave it out"
                )

    def _sketch(self, *inputs: Any) -> SchedulePlan:
        """Run the workflow function once with a promise in place of each ``mg.MOMENT``, and return its plan
        as data: it becomes a task at any moment without the function.

        Raises what ``plan`` raises, and ``PromiseError`` for a function that needs to know the moment.
        """
        try:
            args, by_name = self._inputs.bind(inputs, {})
        except DefinitionError as wrong:
            if len(inputs) >= len(self._inputs.names) or any(value is MOMENT for value in inputs):
                raise
            raise DefinitionError(f"{wrong}; mg.MOMENT stands for the moment of the schedule") from None
        values = [*args, *by_name.values()]
        places = tuple(n for n, value in enumerate(values) if value is MOMENT)
        samples = [_SAMPLE if n in places else value for n, value in enumerate(values)]
        try:
            inputs_json = tuple(map(self._inputs.encode, range(len(samples)), samples))
        except (DefinitionError, PayloadError) as wrong:
            say_where(wrong, self._fn, self.address)
            raise
        copies, marks = own_copies(values, self._code.literals)
        planning = Planning(self._registry, self.address, copies, marks, trail=NO_TRAIL, code=self._code)
        reset = RECORDER.set(planning)
        self._registry.plans.add(planning)
        try:
            recording = planning.recording(self.address)
            for n in places:
                name = self._inputs.describe(n)[0]
                copies[n] = recording.input_promise(n, name, self._inputs.annotation(name))
            run: Callable[..., R] = self._fn
            value = run(*copies[: len(args)], **dict(zip(by_name, copies[len(args) :], strict=True)))
            trail = planning.trail(value, self._inputs.constraint)
            self._check_results(planning.results)
        except PromiseError as wrong:
            add_place(wrong)
            if places:
                wrong.add_note(
                    f"{self.address} is planned once for all moments of its schedule: let an action decide on the moment, "
                    f"and mg.when on its result"
                )
            raise
        finally:
            planning.close()
            self._registry.plans.discard(planning)
            RECORDER.reset(reset)
        for demand in trail.demands:
            if demand.place not in places:
                check_fits(inputs_json[demand.place], demand.annotation, values[demand.place], demand.subject)
        if trail.signals:
            check_timeouts(trail.steps, self.within, self.address)
        self._check_sleeps(trail.steps, inputs_json)
        if self._sealing is not None:
            self._sealing.check(trail.steps, self.address, places)
        null = msgspec.Raw(b"null")
        return SchedulePlan(
            self.name, tuple(trail.steps),
            tuple(null if n in places else msgspec.Raw(data) for n, data in enumerate(inputs_json)), places, trail.returns,
            self._inputs.names or self._inputs.names_of(len(args), by_name), self.within, self.undo_within, self.on_failure,
            trail.signals, self._lane_of.lanes(self.address, copies[: len(args)], dict(zip(by_name, copies[len(args) :], strict=True))),
        )  # fmt: skip

    def _moment_inputs(self, name: str) -> tuple[Any, ...]:
        """Return the inputs of a schedule that passes none itself. Raises ``DefinitionError``."""
        if self._inputs.plain in (0, 1):
            return (MOMENT,) * self._inputs.plain
        raise DefinitionError(
            f"{self.address} takes more than the moment: write app.schedule({name!r}, {self.name}, ..., mg.MOMENT) with its inputs"
        )

    def _plan_from(self, inputs: Sequence[Any]) -> Plan[R]:
        """Return the plan for all inputs in order, as JSON (``task show --json`` lists those of a task).

        Each input is decoded to its annotation. Raises ``PayloadError`` for inputs that do not fit, and
        whatever ``plan`` raises.
        """
        args, by_name = self._inputs.in_order(inputs)
        make: Callable[..., Plan[R]] = self.plan
        return make(*args, **by_name)

    def _prepare(self) -> None:
        """Raise ``DefinitionError`` for annotations that cannot be evaluated, or promise too much."""
        self._returns  # noqa: B018 - it is kept once it could be evaluated

    @functools.cached_property
    def _sealing(self) -> PlanSealing | None:
        """Encodes its plans; None: its app has no codec."""
        codec = self._registry.codec
        return None if codec is None else PlanSealing(self._registry, codec)

    @functools.cached_property
    def _returns(self) -> Any:
        return self._inputs.annotation("return")

    def _check_inputs(self, inputs: Sequence[Any]) -> None:
        """Raise ``PayloadError`` for inputs in order, values or JSON, that the function does not take."""
        self._inputs.in_order(inputs)

    def _find_action(self, agent: str, name: str) -> Action[..., Any] | None:
        """Return the action of its app that has or had this name, None when there is none."""
        return self._registry.find(agent, name)
