"""A plan under construction: what calls of actions, ``parallel``, ``branches``, ``first``, ``when`` and
``each`` record.

The workflow function runs once, from top to bottom, and each step is recorded after the one before: a
*sequence*, whose *frontier* is the steps that the next step waits for. ``when`` and ``branches`` run each of
their functions as a sequence of its own and join the frontiers. ``each`` runs its body once, into a list of
steps of its own (a *body*), which is a template for every item.

``parallel`` finds its steps already recorded, one after the other, and must put them side by side afterwards.
Therefore a sequence is remembered as *units* (an action; a ``when`` with everything in it; ...), each with
the steps that wait for the frontier before it (``heads``), the frontier after it (``ends``) and the steps
whose results it uses (``needs``).
"""

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from types import FunctionType, NoneType
from typing import Any, Final, Never

from makegood.base.durations import seconds
from makegood.base.wall_times import moment_text
from makegood.declare.action import Action, Shared
from makegood.declare.signal import Signal
from makegood.errors import ConfigError, DefinitionError, MissingUndoError, PayloadError, PromiseError
from makegood.model.plan import INPUTS, MOST_DELAY, UNTIL, Kind, Ref, Template
from makegood.model.shape import Shape
from makegood.payload.codec import annotation_text, objects_in
from makegood.workflow import annotation_paths
from makegood.workflow.plan_cache import (
    CONSTANTS,
    NOTHING,
    CachedPlan,
    Called,
    Demand,
    FunctionCode,
    ParallelGroup,
    places,
)
from makegood.workflow.promise import Origin, Promise, Promised, Scope, as_condition, content_of, settle
from makegood.workflow.provenance import Mark, Origins
from makegood.workflow.step_drafts import (
    Flow,
    StepDraft,
    Unit,
    annotation_of,
    check_key_lengths,
    check_part,
    check_race_branch,
    either,
    of_functions,
    step_plan,
)
from makegood.workflow.templates import Templates

NO_VALUE: Final = object()
"""In place of a value that was not given: None is one."""


class Recording(Templates):
    """The plan that one run of a workflow function makes.

    ``where`` names the workflow, ``copies`` and ``marks`` are those of its inputs (``own_copies``); ``code``:
    what is known of its function.
    """

    def __init__(
        self,
        registry: Shared,
        where: str,
        copies: Sequence[object],
        marks: Sequence[Mark],
        code: FunctionCode,
    ) -> None:
        super().__init__(registry, where, Origins(copies, marks, code.sites), code.is_constant)
        self._literals = code.literals
        self._inputs = len(copies)
        self._calls: list[Called | ParallelGroup] | None = []
        self._count = 0
        self._end = -1
        self._names: dict[str, int] = {}
        self._demands: list[Demand] = []
        self.signals: dict[str, Signal[Any]] = {}
        """The signals that its steps wait for, by name."""
        self.results: list[object] = []
        """What ``done`` gives as the task's result."""

    # -- what is recorded ------------------------------------------------------------------------------------

    def input_promise(self, place: int, name: str, annotation: Any) -> Promise:
        """Return the promise of an input that is not known yet; the plan leaves no trail."""
        self._calls = None
        return Promise(Promised(Origin(self, name, 0, 0, -1, place), annotation, self._flow.scope))

    def action(
        self, action: Action[..., Any], args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> Promise:
        """Record a step; return the promise of its result. Raises ``DefinitionError`` and its kind,
        ``PayloadError``.
        """
        if action.agent.registry is not self.registry:
            raise DefinitionError(
                f"{self.where} calls {action.address}, an action of another app: a task is of one app; submit a task of that app "
                f"from an action, or declare the agent on {self.registry.app}"
            )
        if not action._is_made_good:
            raise MissingUndoError(
                f"{action.address} does not declare how it is undone: add @{action.name}.undo, or undo=mg.NOTHING (it only reads, or is "
                f"harmless), or no_return=True (nobody can undo it)"
            )
        needs, calls, self._calls = len(self._needs), self._calls, None  # a call that fails leaves no trail
        name = self._name(action.name)
        signatures = action._fit()
        values = action.parameters.bind(args, kwargs)
        left = action.parameters.names_left_out(args, kwargs)
        before = len(self._demands)
        refs, replayable = self._arguments(action, name, values, left)
        whole = len(refs) == len(values)
        template = (
            action._template(tuple(refs.values())) if whole else self._arguments_template(values, refs, name)
        )
        draft = self._draft("action", name)
        draft.action, draft.args = action, self._within_limit(template, name)
        self._unit(draft, self._count - 1, needs)
        arguments = {**dict(zip(action.parameters.names, args, strict=False)), **kwargs}
        if (
            calls is not None
            and replayable
            and (known_places := places(self, refs, self._inputs, self._literals, arguments))
        ):
            needs_of_step, demands = tuple(self._needs[needs:]), tuple(self._demands[before:])
            serial, returns = self._count - 1, signatures.returns
            calls.append(
                Called(
                    action,
                    known_places[0],
                    tuple(kwargs),
                    serial,
                    name,
                    template,
                    returns,
                    needs_of_step,
                    known_places[1],
                    demands,
                    self._origins.site(),
                )
            )
            self._calls = calls
        return Promise(Promised(draft, signatures.returns, self._flow.scope))

    def _arguments(
        self, action: Action[..., Any], step: str, values: Mapping[str, object], left: Collection[str]
    ) -> tuple[dict[str, Ref], bool]:
        """Check the arguments of a step, promises by their annotations.

        Returns the refs of those that are results or inputs, and whether a trail may be made of them.
        """
        signatures, replayable = action._fit(), True
        refs: dict[str, Ref] = {}
        from_source = self._origins.places_passed(action)
        for parameter, value in values.items():
            if type(value) is Promise:  # nearly always this, or an input
                promise = content_of(value)
                refs[parameter] = self._ref(promise)
                if not signatures.may_take(parameter, promise.annotation):
                    raise PayloadError(
                        f"{parameter} in step {step} of {self.where} is {annotation_text(promise.annotation)}, its annotation says "
                        f"{annotation_text(signatures.annotations[parameter])}: {promise} returns {annotation_text(promise.annotation)}"
                    )
                continue
            ref = None if parameter in left else self._input(value, from_source.get(parameter))
            fits, always = (
                signatures.surely(parameter, type(value)),
                signatures.always(parameter, type(value)),
            )
            subject = f"{parameter} in step {step} of {self.where}"
            if not fits or (ref is None and not always):
                self._check_fits(value, signatures.annotations[parameter], subject)
            if ref is not None:
                refs[parameter] = ref
                replayable = replayable and fits  # another input of this type may not fit
                if not always:
                    self._demands.append(Demand(ref.index, signatures.annotations[parameter], subject))
            elif type(value) not in CONSTANTS:
                replayable = False
        return refs, replayable

    def replay(self, calls: Sequence[Called | ParallelGroup], promises: Sequence[Promise]) -> None:
        """Record calls that were only followed so far, as if each had been recorded; ``promises`` are those
        given out for them.
        """
        for call in calls:
            if isinstance(call, ParallelGroup):
                self._put_together([promises[serial] for serial in call.serials])
                continue
            needs, serial = len(self._needs), self._count
            self._name(call.action.name)
            draft = StepDraft(self, call.step, 0, serial, serial)
            self._add(draft, "action")
            draft.action, draft.args = call.action, self._within_limit(call.template, call.step)
            self._needs += call.needs
            self._demands += call.demands
            self.input_places.update(place for place in call.places if 0 <= place < self._inputs)
            self._unit(draft, serial, needs)
            settle(promises[serial], Promised(draft, call.returns, self._flow.scope))
        self._calls = list(calls)

    def when(self, condition: object, then: Callable[[], Any], otherwise: Callable[[], Any] | None) -> object:
        """Record a decision and both its sides; return the promise of the result of the side that is
        taken.
        """
        self._calls = None
        for fn in (then, otherwise):
            if fn is not None:
                _check_function(fn, "mg.when(condition, then=..., otherwise=...)")
        decision = as_condition(condition, "mg.when")
        if isinstance(decision, bool):
            branch = then if decision else otherwise
            return None if branch is None else self._side(branch)
        flow, first, needs = self._flow, self._count, len(self._needs)
        start, guard = flow.frontier, self._condition(decision)
        when = self._draft("when", self._name("when"))
        when.condition = guard
        ends: tuple[StepDraft, ...] = ()
        kinds: list[Any] = []
        sides: list[Template] = []
        for side, fn in ((True, then), (False, otherwise)):
            name = f"{'then' if side else 'otherwise'} of {when.name}"
            guards = (*flow.guards, (when, side))
            scope = Scope(f"the {name}", flow.scope)
            inside = Flow(scope, flow.body, flow.depth, guards, (when,), is_side=True, is_lane=flow.is_lane)
            with self._inside(inside) as inner:
                value = None if fn is None else fn()
                sides.append(self._template(value, f"what {name} returns"))
            ends += tuple(end for end in inner.frontier if end is not when)
            kinds.append(annotation_of(value))
        flow.frontier = ends or (when,)
        merge = self._draft("merge", self._name("merge"))
        merge.of, merge.sides = when, tuple(sides)
        self._unit(merge, first, needs, start=start, heads=(when,))
        return Promise(Promised(merge, either(*kinds), flow.scope))

    def _side(self, branch: Callable[[], Any]) -> object:
        """Record the side of a ``when`` whose condition is known now."""
        flow, before = self._flow, self._flow.is_side
        flow.is_side = True
        try:
            return branch()
        finally:
            flow.is_side = before

    def sleep(self, length: Any) -> Promise:
        """Record a wait for a length of time; return the promise of None."""
        subject = f"mg.sleep in {self.where}"
        if type(length) is Promise:
            self._time(content_of(length), subject, (timedelta, float, int), "return a timedelta, or seconds")
            return self._wait("sleep", self._template(length, subject))
        try:
            length_s = seconds(length, name="length")
        except ConfigError as wrong:
            raise DefinitionError(f"{subject}: {wrong}") from None
        if length_s > MOST_DELAY:
            raise DefinitionError(f"{subject}: {length!r:.60} is longer than ten years, which is the most")
        # the steps of tasks that differ in their inputs alone are the same
        is_input = (
            isinstance(length, timedelta | float) and self.registry.codec is None
        )  # encoded, it is unreadable
        ref = self._input(length) if is_input else None
        return self._wait(
            "sleep", self._literal(length_s, subject) if ref is None else Template(("", ""), (ref,))
        )

    def sleep_until(self, at: Any) -> Promise:
        """Record a wait for a moment; return the promise of None."""
        subject = f"mg.sleep_until in {self.where}"
        if type(at) is Promise:
            self._time(content_of(at), subject, (datetime,), "return a datetime with a time zone")
            return self._wait("sleep", self._template(at, subject), UNTIL)
        try:
            text = moment_text(at, name="moment")
        except ConfigError as wrong:
            raise DefinitionError(f"{subject}: {wrong}") from None
        # the JSON of an input has no zone
        ref = None if "[" in text or self.registry.codec is not None else self._input(at)
        args = self._literal(text, subject) if ref is None else Template(("", ""), (ref,))
        return self._wait("sleep", args, UNTIL)

    def fail(self, reason: object) -> Promise:
        """Record a step that fails the task; return a promise that nothing can be done with."""
        if not self._flow.is_side:
            raise DefinitionError(
                f"mg.fail in {self.where} fails every task: put it in a side of mg.when, "
                f'mg.when(promise == x, then=lambda: mg.fail("..."))'
            )
        is_text = isinstance(reason, str) and reason.strip()
        if type(reason) is Promise:
            self._time(content_of(reason), f"mg.fail in {self.where}", (str,), "return a text")
        elif not is_text:
            raise DefinitionError(f"mg.fail in {self.where}: {reason!r:.60} does not say why: pass a text")
        return self._wait("fail", self._template(reason, f"the reason of mg.fail in {self.where}"), of=Never)

    def end(self, value: object) -> Promise:
        """Record a step that ends the task with a result; return a promise that nothing can be done with."""
        if not self._flow.is_side:
            raise DefinitionError(
                f"mg.done in {self.where} ends every task: put it in a side of mg.when, mg.when(promise == x, then=lambda: mg.done(...)), "
                f"or return the value"
            )
        if self._flow.is_lane:
            raise DefinitionError(
                f"mg.done in {self.where} would end the task while other branches of mg.first run: return the value from its branch"
            )
        self.results.append(value)
        return self._wait("done", self._template(value, f"the result of mg.done in {self.where}"), of=Never)

    def _time(self, subject: Promised, where: str, kinds: tuple[type, ...], remedy: str) -> None:
        """Raise ``PromiseError`` for a promise that will be of none of these kinds."""
        if not annotation_paths.maybe(subject.annotation, kinds):
            raise PromiseError(f"{where}: {subject} will be {annotation_text(subject.annotation)}: {remedy}")

    def _wait(self, kind: Kind, args: Template, label: str = "", *, of: Any = NoneType) -> Promise:
        """Record a control step that has arguments and no effect; ``of``: the annotation of its result."""
        self._calls = None
        needs = len(self._needs) - len([ref for ref in args.refs if ref.of not in INPUTS])
        draft = self._draft(kind, self._name(kind))
        draft.args, draft.label = self._within_limit(args, draft.name), label
        self._unit(draft, self._count - 1, needs)
        return Promise(Promised(draft, of, self._flow.scope))

    def each(self, items: object, body: Callable[[Any], Any], limit: int, at_once: int | None) -> object:
        """Record a body for every item of a list; return the promise of the list of its results.

        If the items are known now, returns the list itself.
        """
        self._calls = None
        for name, value in (("limit", limit), ("at_once", 1 if at_once is None else at_once)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise DefinitionError(f"mg.each({name}={value!r}): a whole number from 1")
        _check_function(body, "mg.each(items, body)", 1)
        if not isinstance(items, Promise):
            return self._each_now(items, body, limit, at_once)
        subject = content_of(items)
        element = annotation_paths.elements(subject.annotation)
        if element is None:
            raise PromiseError(f"mg.each({subject}, ...): it will be no list; pass the promise of a list")
        flow, first, needs, start = self._flow, self._count, len(self._needs), self._flow.frontier
        args = self._template(items, "the items")
        each = self._draft("each", self._name("each"))
        each.args, each.limit, each.at_once = args, limit, at_once or 0
        each.step_limit = self.registry.step_limit
        scope = Scope(f"the body of {each.name}", flow.scope)
        body_steps: list[StepDraft] = []
        inside = Flow(scope, body_steps, flow.depth + 1, is_side=flow.is_side, is_lane=flow.is_lane)
        with self._inside(inside):
            value = body(Promise(Promised(each, element, scope, item=True)))
            side = self._template(value, f"what the body of {each.name} returns")
        each.body = body_steps
        flow.frontier = (each,)
        gather = self._draft("gather", self._name("gather"))
        gather.of, gather.sides = each, (side,)
        self._unit(gather, first, needs, start=start, heads=(each,))
        return Promise(Promised(gather, list[annotation_of(value)], flow.scope))  # type: ignore[misc]  # made at run time

    def _each_now(self, items: Any, body: Callable[[Any], Any], limit: int, at_once: int | None) -> list[Any]:
        values = list(items)
        if len(values) > limit:
            raise DefinitionError(
                f"mg.each: the list has {len(values)} items, the limit is {limit}: raise mg.each(limit=...)"
            )
        calls = [(f"item {n} of mg.each", lambda value=value: body(value)) for n, value in enumerate(values)]
        return self._side_by_side(calls, at_once or len(values))

    def wait_for(self, signal: Signal[Any], timeout: float | None, otherwise: object) -> Promise:
        """Record a wait for a signal; return the promise of its value. ``timeout``: in seconds;
        ``otherwise``: its result after that, ``NO_VALUE`` for none.
        """
        self._calls = None
        if signal.app != self.registry.app:
            raise DefinitionError(
                f"{self.where} waits for {signal!r}: a task is of one app, so declare the signal on {self.registry.app} as well"
            )
        needs, kinds = len(self._needs), [signal.type]
        step = self._name(signal.name)
        sides: tuple[Template, ...] = ()
        if otherwise is not NO_VALUE:
            sides = (self._within_limit(self._template(otherwise, f"otherwise of {step}"), step),)
            kinds.append(annotation_of(otherwise))
        draft = self._draft("wait_for", step)
        draft.label, draft.sides = signal.name, sides
        draft.args = None if timeout is None else Template((repr(timeout),))
        self.signals[signal.name] = signal
        self._unit(draft, self._count - 1, needs)
        return Promise(Promised(draft, either(*kinds) if sides else signal.type, self._flow.scope))

    def branches(self, functions: Sequence[Callable[[], Any]]) -> tuple[Any, ...]:
        """Record each function as a sequence of its own, side by side; return their results."""
        self._calls = None
        for fn in functions:
            _check_function(fn, "mg.branches(fn, fn, ...)")
        calls = [(f"branch {n} of mg.branches", fn) for n, fn in enumerate(functions, 1)]
        return tuple(self._side_by_side(calls, len(calls)))

    def _side_by_side(self, calls: Sequence[tuple[str, Callable[[], Any]]], at_once: int) -> list[Any]:
        """Record sequences side by side, at most ``at_once`` at once: further ones wait for one before."""
        flow, first, needs, start = self._flow, self._count, len(self._needs), self._flow.frontier
        fronts = [start] * max(1, at_once)
        heads: tuple[StepDraft, ...] = ()
        values: list[Any] = []
        scopes = [Scope(name, flow.scope) for name, _ in calls]
        for n, (scope, (_, fn)) in enumerate(zip(scopes, calls, strict=True)):
            front = fronts[n % len(fronts)]
            inside = Flow(
                scope, flow.body, flow.depth, flow.guards, front, is_side=flow.is_side, is_lane=flow.is_lane
            )
            with self._inside(inside) as inner:
                values.append(self._visible_outside(fn(), scope, flow.scope))
            if inner.units and front is start:
                heads += inner.units[0].heads
            fronts[n % len(fronts)] = inner.frontier
        ends = tuple(dict.fromkeys(end for front in fronts if front is not start for end in front))
        if ends:
            flow.units.append(Unit(first, self._count - 1, start, heads, ends, self._needs[needs:], None))
            flow.frontier = ends
        for scope in scopes:
            scope.is_open = True
        return values

    def first(self, branches: Sequence[object]) -> Promise:
        """Record branches of which the first that is done wins; return the promise of its result.

        Each is a function, or a step that was just recorded.
        """
        self._calls = None
        if not branches:
            raise DefinitionError(f"mg.first in {self.where} has no branch: write mg.first(a(...), b(...))")
        are_functions = [not isinstance(branch, Promise) and callable(branch) for branch in branches]
        if any(are_functions) and not all(are_functions):
            raise DefinitionError(
                f"mg.first in {self.where} takes steps or functions, not both: write lambda: in front of each step"
            )
        return self._first_of_functions(branches) if all(are_functions) else self._first_of_steps(branches)

    def _first_of_functions(self, functions: Sequence[Any]) -> Promise:
        flow, first, needs, start = self._flow, self._count, len(self._needs), self._flow.frontier
        heads: tuple[StepDraft, ...] = ()
        ends: tuple[StepDraft, ...] = ()
        branches: list[StepDraft] = []
        sides: list[Template] = []
        kinds: list[Any] = []
        for fn in functions:
            _check_function(fn, "mg.first(fn, fn, ...)")
        for n, fn in enumerate(functions, 1):
            scope, position = Scope(f"branch {n} of mg.first", flow.scope), len(flow.body)
            inside = Flow(
                scope, flow.body, flow.depth, flow.guards, start, is_side=flow.is_side, is_lane=True
            )
            with self._inside(inside) as inner:
                value = fn()
                sides.append(self._template(value, f"what branch {n} of mg.first returns"))
            if not inner.units:
                raise DefinitionError(
                    f"branch {n} of mg.first in {self.where} has no step, so it would always be the first: leave the others out"
                )
            heads += inner.units[0].heads
            ends += inner.frontier
            branches.append(flow.body[position])
            kinds.append(annotation_of(value))
        flow.frontier = ends
        return self._first(
            branches, sides, kinds, Unit(first, 0, start, heads, ends, self._needs[needs:], None)
        )

    def _first_of_steps(self, steps: Sequence[object]) -> Promise:
        if any(self._is_known(step, "mg.first") for step in steps):
            raise PromiseError(
                f"mg.first in {self.where} was given a value that is known now, so it would always be the first: leave the others out"
            )
        group, segments = self._side_by_side_now(steps, "mg.first")
        flow = self._flow
        sides = [self._template(step, "a branch of mg.first") for step in steps]
        kinds = [annotation_of(step) for step in steps]
        branches: list[StepDraft] = []
        for n, segment in enumerate(segments, 1):
            scope = Scope(f"branch {n} of mg.first", flow.scope)
            drafts = [draft for draft in flow.body if segment[0].first <= draft.serial <= segment[-1].last]
            for draft in drafts:
                draft.scope = scope
            branches.append(drafts[0])
        flow.units.pop()
        return self._first(branches, sides, kinds, group)

    def _first(
        self, branches: list[StepDraft], sides: list[Template], kinds: list[Any], group: Unit
    ) -> Promise:
        """Record the step that decides; ``group``: its branches."""
        flow = self._flow
        check_race_branch(flow.body[branches[0].position :], self.where)
        draft = self._draft("first", self._name("first"))
        draft.branches, draft.sides = tuple(branches), tuple(sides)
        flow.frontier = (draft,)
        flow.units.append(
            Unit(group.first, self._count - 1, group.start, group.heads, flow.frontier, group.needs, draft)
        )
        kind = kinds[0]
        for other in kinds[1:]:
            kind = either(kind, other)
        return Promise(Promised(draft, kind, flow.scope))

    def _visible_outside(self, value: Any, scope: Scope, outer: Scope) -> Any:
        """Return a branch's result, and make its promises visible outside."""
        if value is None or isinstance(value, str | int | float):
            return value
        for promise in [value] if isinstance(value, Promise) else objects_in(value):
            if isinstance(promise, Promise):
                subject = content_of(promise)
                self._visible(subject, scope)
                if subject.scope is scope:
                    subject.scope = outer
        return value

    def parallel(self, steps: Sequence[object]) -> None:
        """Put steps side by side that were just recorded one after the other.

        Raises ``PromiseError`` if that would change the meaning of the workflow function.
        """
        calls, self._calls = self._calls, None
        self._put_together(steps)
        if calls is not None:
            whole = [step for step in steps if type(step) is Promise]
            serials = tuple(content_of(step).origin.serial for step in whole)
            self._calls = [*calls, ParallelGroup(serials)] if len(whole) == len(steps) else None

    def _put_together(self, steps: Sequence[object]) -> None:
        steps = [step for step in steps if not self._is_known(step, "mg.parallel")]
        if steps:
            self._side_by_side_now(steps, "mg.parallel")

    def _side_by_side_now(self, steps: Sequence[object], verb: str) -> tuple[Unit, list[list[Unit]]]:
        """Put recorded steps side by side, as one unit; return it, and the units of each step."""
        units = self._flow.units
        places: dict[Origin, int] = {
            unit.result: n for n, unit in enumerate(units) if unit.result is not None
        }
        positions = [_position(step, places, verb) for step in steps]
        if positions != sorted(set(positions)) or positions[-1] != len(units) - 1:
            raise PromiseError(
                f"{verb}: write the calls inside its parentheses, {verb}(a(...), b(...)): it takes steps in the order in "
                f"which they were recorded, each once, with no step after them"
            )
        start, lowest = units[positions[0]].start, units[positions[0]].first
        heads: tuple[StepDraft, ...] = ()
        ends: tuple[StepDraft, ...] = ()
        last = positions[0] - 1
        segments: list[list[Unit]] = []
        for position in positions:
            segment = units[last + 1 : position + 1]
            check_part(segment, lowest, verb)
            segments.append(segment)
            heads += segment[0].heads
            front = start
            for unit in segment:
                for head in unit.heads:
                    head.after = front
                front = unit.ends
            ends += front
            last = position
        needs = [serial for unit in units[positions[0] :] for serial in unit.needs]
        group = Unit(lowest, self._count - 1, start, heads, ends, needs, None)
        units[positions[0] :] = [group]
        self._flow.frontier = ends
        return group, segments

    def _is_known(self, step: object, verb: str) -> bool:
        """Return whether a value among the steps of ``verb`` is not a promise, as in a branch that is not
        taken.
        """
        if isinstance(step, Promise):
            return False
        if callable(step) or any(isinstance(part, Promise) for part in objects_in(step)):
            raise PromiseError(
                f"{verb} takes steps, {verb}(a(...), b(...)); for what is more than one step write {of_functions(verb)}"
            )
        return True

    # -- the parts of a step ---------------------------------------------------------------------------------

    def _name(self, base: str) -> str:
        """Return a step name that is unique in the plan: charge, charge-2, ..."""
        if base not in self._names:
            self._names[base] = 1
            return base
        count = self._names[base] + 1
        while (name := f"{base}-{count}") in self._names:
            count += 1
        self._names[base] = count
        self._names[name] = 1
        return name

    def _draft(self, kind: Kind, name: str) -> StepDraft:
        """Add a step to the sequence."""
        flow = self._flow
        if self._count >= self.registry.step_limit:
            raise DefinitionError(
                f"{self.where} has more than {self.registry.step_limit:,} steps: write mg.each(...) over the result of an action, submit "
                f"several tasks, or raise the limit with App(step_limit=...)"
            )
        draft = StepDraft(self, name, flow.depth, len(flow.body), self._count)
        self._add(draft, kind)
        return draft

    def _add(self, draft: StepDraft, kind: Kind) -> None:
        flow = self._flow
        draft.kind, draft.after, draft.guards = kind, flow.frontier, flow.guards
        self._count += 1
        flow.body.append(draft)

    def _unit(
        self,
        result: StepDraft,
        first: int,
        needs: int,
        *,
        start: tuple[StepDraft, ...] | None = None,
        heads: tuple[StepDraft, ...] | None = None,
    ) -> None:
        """End a unit of the sequence with ``result``; ``needs`` is where its needs begin."""
        flow, ends = self._flow, (result,)
        before = flow.frontier if start is None else start
        flow.units.append(
            Unit(first, self._count - 1, before, heads or ends, ends, self._needs[needs:], result)
        )
        flow.frontier = ends

    @contextmanager
    def _inside(self, flow: Flow) -> Iterator[Flow]:
        """Record into another sequence inside the ``with`` block."""
        outer, self._flow = self._flow, flow
        try:
            yield flow
        finally:
            self._flow = outer

    # -- the end ---------------------------------------------------------------------------------------------

    def return_template(self, value: object) -> Template:
        """Return the template of the workflow function's result."""
        self._end = _whole(value, self)
        return self._within_limit(self._template(value, f"what {self.where} returns"), "")

    def close(self) -> None:
        """Release what was recorded.

        Promises that the workflow function left somewhere still name their step and their plan, and keep
        nothing else alive.
        """
        flow = self._flow
        flow.body, flow.units, flow.frontier = [], [], ()
        self._calls = None

    def trail(self, returns: Template, before: CachedPlan, annotation_of: Callable[[int], Any]) -> CachedPlan:
        """Return the steps recorded, as the trail of further runs; ``returns``: the template from
        ``return_template``.

        Tasks of one shape share the steps: if they equal those of the trail ``before``, its very objects are
        used.
        """
        calls = tuple(self._calls or ()) if self._end != -1 else ()
        steps = tuple([step_plan(draft, self.registry.payload_limit) for draft in self._flow.body])
        if steps != before.steps:
            check_key_lengths(steps)
        return CachedPlan(
            calls,
            before.steps if steps == before.steps else Shape(steps),
            frozenset(self.input_places),
            self._end,
            returns,
            tuple([demand for demand in self._demands if demand.annotation != annotation_of(demand.place)]),
            tuple([(name, signal.schema) for name, signal in self.signals.items()]),
        )


def _whole(value: object, plan: Recording) -> int:
    """Return the serial of the step whose whole result this is; NOTHING for None; -1 for anything else."""
    if value is None:
        return NOTHING
    if type(value) is not Promise:
        return -1
    subject = content_of(value)
    return -1 if subject.path or subject.item or subject.origin.plan is not plan else subject.origin.serial


def _position(step: Any, places: Mapping[Origin, int], verb: str) -> int:
    """Return the index of the unit that a step of ``parallel`` or ``first`` ends."""
    position = places.get(content_of(step).origin)
    if position is None:
        raise PromiseError(
            f"{verb}: {content_of(step)} was not just recorded in this sequence: write the calls inside its parentheses, "
            f"{verb}(a(...), b(...))"
        )
    return position


def _check_function(function: object, form: str, arguments: int = 0) -> None:
    if isinstance(function, Promise) or not callable(function):
        raise DefinitionError(
            f"{form} takes functions, not {'a promise' if isinstance(function, Promise) else type(function).__name__}: write "
            f"lambda: the_action(...), so that its steps are recorded in their place"
        )
    if isinstance(function, FunctionType):  # of any other callable its call shows it
        code = function.__code__
        if code.co_flags & inspect.CO_COROUTINE:
            raise DefinitionError(
                f"{form}: {function.__name__} is an async def: it is recorded at submission, so write a plain def, which calls actions without "
                "await"
            )
        if code.co_argcount - len(function.__defaults__ or ()) > arguments:
            raise DefinitionError(
                f"{form}: {function.__name__} takes {', '.join(code.co_varnames[: code.co_argcount])}, and is called with "
                f"{'the item alone' if arguments else 'no arguments'}: use the names of the workflow function inside it"
            )
