"""Seals the plans of an app that has a codec, and refuses plans that a Scheduler could not carry out.

``declare.sealed_values`` has the form of what is sealed. What Schedulers read stays plain: the conditions of
``mg.when``, the lists of ``mg.each``, the lengths of sleeps. These use only results of actions and values of
signals that are declared ``readable``; anything else is refused when the workflow function has run.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from makegood.declare.action import Shared
from makegood.declare.sealed_values import (
    RESULT,
    SealedHole,
    arguments_field,
    input_field,
    result_field,
    schedule_subject,
    seal,
)
from makegood.errors import DefinitionError
from makegood.model.plan import INPUTS, Condition, Plan, Ref, StepPlan, Template, place
from makegood.model.schedule import SchedulePlan
from makegood.payload import envelopes
from makegood.payload.envelopes import Codec, Context

_GROWTH: Final = 2
"""How much larger than its value an envelope may be."""
_PLAIN: Final = SealedHole("plain")
_READ: Final = {"when": "mg.when compares", "each": "mg.each goes through", "sleep": "mg.sleep waits for"}

Bodies = tuple[Sequence[StepPlan], ...]
"""The steps of a plan, then those of each body around a step, outermost first."""


class PlanSealing:
    """Seals the plans of one app; see ``model.plan.Sealing``."""

    def __init__(self, registry: Shared, codec: Codec) -> None:
        self.codec = codec
        self._registry = registry

    async def seal(self, plan: Plan[Any], task: str) -> Plan[Any]:
        """Return a plan as it is stored for a task. Raises ``CodecError`` if the codec raises."""
        sealer = _Sealer(self._registry, self.codec, task)
        inputs = [await sealer.value(data, input_field(n)) for n, data in enumerate(plan.inputs)]
        steps = [await sealer.step(step, (plan.steps,)) for step in plan.steps]
        returns = await sealer.template(plan.returns, RESULT, (plan.steps,))
        return replace(plan, steps=tuple(steps), inputs=tuple(inputs), returns=returns)

    async def seal_schedule(self, plan: SchedulePlan, app: str, name: str) -> SchedulePlan:
        """Return the plan of a schedule as it is stored. Raises ``CodecError`` if the codec raises."""
        sealer = _Sealer(self._registry, self.codec, schedule_subject(app, name), plan.moments)
        inputs = [
            raw if n in plan.moments else msgspec.Raw(await sealer.value(bytes(raw), input_field(n)))
            for n, raw in enumerate(plan.inputs)
        ]
        steps = [await sealer.step(step, (plan.steps,)) for step in plan.steps]
        returns = await sealer.template(plan.returns, RESULT, (plan.steps,))
        return replace(plan, steps=tuple(steps), inputs=tuple(inputs), returns=returns)

    def check(self, steps: Sequence[StepPlan], where: str, moments: Sequence[int] = ()) -> None:
        """Raise ``DefinitionError`` for a step that needs a Scheduler to read an encoded value."""
        self._check(_Holes(self._registry, moments), steps, (steps,), where)

    def _check(self, holes: "_Holes", steps: Sequence[StepPlan], bodies: Bodies, where: str) -> None:
        for step in steps:
            for template in _read_by_schedulers(step, self._registry):
                for ref in template.refs:
                    if (hole := holes.of(ref, bodies)).kind != "plain":
                        raise DefinitionError(_refusal(step, hole, where))
            if step.kind == "fail" and step.args is not None:
                for ref in step.args.refs:
                    hole = holes.of(ref, bodies)
                    if hole.kind not in ("plain", "value") or (hole.path and hole.kind == "value"):
                        raise DefinitionError(
                            f"{where}: the reason of {step.name} is part of an encoded value: let an action return the reason alone"
                        )
            if step.body:
                self._check(holes, step.body, (*bodies, step.body), where)


def _refusal(step: StepPlan, hole: SealedHole, where: str) -> str:
    doing = _READ.get(step.kind, "a readable signal may become")
    if hole.kind == "value" and hole.name.startswith("result of "):
        remedy = "declare that action readable, @agent.action(..., readable=True), and let it return no more than is needed"
    elif hole.kind == "signal":
        remedy = "declare that signal readable, app.signal(..., readable=True), or let an action look at it"
    else:
        remedy = "let an action that is declared readable=True return what is needed of it"
    return f"{where}: {doing} the {hole.name} in {step.name}, and App(codec=...) encodes it, so that no Scheduler can read it: {remedy}"


def _read_by_schedulers(step: StepPlan, registry: Shared) -> Iterator[Template]:
    if step.kind == "when" and step.condition is not None:
        yield from _sides(step.condition)
    elif step.kind in ("each", "sleep") and step.args is not None:
        yield step.args
    elif step.kind == "wait_for" and _is_readable_signal(registry, step.action):
        yield from step.sides


def _sides(condition: Condition) -> Iterator[Template]:
    for side in (condition.left, condition.right):
        if side is not None:
            yield side
    for part in condition.parts:
        yield from _sides(part)


def _is_readable_signal(registry: Shared, name: str) -> bool:
    signal = registry.signals.get(name)
    return signal is not None and signal.readable


class _Holes:
    """Says where the values of a plan's holes come from. ``moments``: the places of inputs that are a
    schedule's moment.
    """

    def __init__(self, registry: Shared, moments: Sequence[int] = ()) -> None:
        self.registry = registry
        self._moments = moments

    def of(self, ref: Ref, bodies: Bodies) -> SealedHole:
        """Return where the value of a ref comes from."""
        if ref.of == "item":
            return _PLAIN  # part of the list of an each
        if ref.of in INPUTS:
            return (
                _PLAIN
                if ref.index in self._moments
                else SealedHole("value", input_field(ref.index), path=ref.path)
            )
        step, depth = self.step(ref.index, bodies)
        match step.kind:
            case "action" if not self.is_readable(step):
                return SealedHole("value", result_field(step.name), depth, ref.path)
            case "merge" | "first":
                return SealedHole("template", f"value of {step.name}", depth, ref.path)
            case "gather":
                return SealedHole("list", f"item of {step.name}", depth, ref.path)
            case "wait_for" if not _is_readable_signal(self.registry, step.action):
                return SealedHole("signal", step.action, depth, ref.path, f"otherwise of {step.name}")
        return _PLAIN

    def step(self, index: int, bodies: Bodies) -> tuple[StepPlan, int]:
        """Return the step that an index names, and how many bodies are around it."""
        if index >= 0:
            return bodies[0][index], 0
        position, level = place(index)
        depth = len(bodies) - 1 - level
        return bodies[depth][position], depth

    def is_readable(self, step: StepPlan) -> bool:
        """Whether the result of an action stays plain."""
        action = self.registry.find(step.agent, step.action)
        return action is not None and action.terms.readable


class _Sealer:
    """Seals one plan. ``subject``: its task, or with ``moments`` its schedule."""

    def __init__(
        self, registry: Shared, codec: Codec, subject: str, moments: Sequence[int] | None = None
    ) -> None:
        self._holes = _Holes(registry, moments or ())
        self._codec = codec
        self._subject = subject
        self._names_subject = moments is not None

    async def value(self, data: bytes, field: str) -> bytes:
        """Return a value encoded."""
        return await envelopes.encode(
            self._codec, data, Context(self._subject, field), names_subject=self._names_subject
        )

    async def template(
        self, template: Template, field: str, bodies: Bodies, *, readable: bool = False
    ) -> Template:
        """Return a template sealed."""
        holes = [self._holes.of(ref, bodies) for ref in template.refs]
        context = Context(self._subject, field)
        return await seal(
            self._codec, template, holes, context, names_subject=self._names_subject, readable=readable
        )

    async def step(self, step: StepPlan, bodies: Bodies) -> StepPlan:
        """Return a step sealed, with all steps of its body."""
        args, sides, scope, field = step.args, step.sides, bodies, ""
        match step.kind:
            case "action":
                readable = self._holes.is_readable(step)
                whole = Template(("{}",)) if args is None else args
                args = await self.template(
                    whole, arguments_field(step.name, readable=readable), bodies, readable=readable
                )
            case "fail" if args is not None and not args.refs and envelopes.withholds(self._codec):
                text = await self.value(args.parts[0].encode(), f"reason of {step.name}")
                args = Template((text.decode(),))
            case "done" if args is not None:
                args = await self.template(args, RESULT, bodies)
            case "merge" | "first":
                field = f"value of {step.name}"
            case "gather":
                each, _ = self._holes.step(step.of, bodies)
                field, scope = f"item of {step.name}", (*bodies, each.body)
            case "wait_for" if not _is_readable_signal(self._holes.registry, step.action):
                field = f"otherwise of {step.name}"
        if field:
            sides = tuple([await self.template(side, field, scope) for side in sides])
        body = tuple([await self.step(inner, (*bodies, step.body)) for inner in step.body])
        return replace(step, args=args, sides=sides, body=body, payload_limit=step.payload_limit * _GROWTH)
