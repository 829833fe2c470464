"""The values in a plan (arguments, conditions and results) as templates with references in them."""

from collections.abc import Callable, Mapping
from enum import Enum
from types import NoneType
from typing import Any

from makegood.declare.action import Shared
from makegood.errors import PayloadError, PromiseError
from makegood.model.plan import Condition as PlanCondition
from makegood.model.plan import Ref, Template, inside
from makegood.payload.codec import check_fits, check_size, encode, encode_with_holes, objects_in
from makegood.payload.splice import PLAN_PAYLOADS
from makegood.workflow.annotation_paths import variously_written
from makegood.workflow.promise import Promise, PromiseCondition, Promised, Scope, as_condition, content_of
from makegood.workflow.provenance import Origins
from makegood.workflow.step_drafts import Flow

_PLAIN = (str, int, bool, NoneType)


class Templates:
    """Writes values for one plan. ``where`` names the workflow, ``origins`` knows its inputs."""

    def __init__(
        self,
        registry: Shared,
        where: str,
        origins: Origins,
        is_constant: Callable[[object], bool] = lambda _: False,
    ) -> None:
        self._is_constant = is_constant
        self.registry = registry
        self.where = where
        self.input_places: set[int] = set()
        """The places of the inputs that steps were given unchanged."""
        self._origins = origins
        self._flow = Flow(Scope(f"workflow {where}", None), [])
        self._octets = 0
        self._needs: list[int] = []

    def _arguments_template(
        self, values: Mapping[str, object], refs: Mapping[str, Ref], step: str
    ) -> Template:
        """Return the arguments of a step, some of them known now, as the template of one JSON object.

        ``refs``: those that are inputs or results, by name.
        """
        parts: list[str] = []
        holes: list[Ref] = []
        text, comma = "{", ""
        for name, value in values.items():
            text += f'{comma}"{name}":'
            comma = ","
            subject = f"{name} in step {step} of {self.where}"
            ref = refs.get(name)
            template = self._literal(value, subject) if ref is None else Template(("", ""), (ref,))
            text += template.parts[0]
            for inner, part in zip(template.refs, template.parts[1:], strict=True):
                parts.append(text)
                holes.append(inner)
                text = part
        parts.append(text + "}")
        return Template(tuple(parts), tuple(holes))

    def _check_fits(self, value: object, annotation: Any, subject: str) -> None:
        """Raise ``PayloadError`` for an argument that is known now and does not fit its annotation."""
        if isinstance(value, Promise) or any(isinstance(part, Promise) for part in objects_in(value)):
            return  # its parts are known only when their steps are done
        data = encode(value, limit=self.registry.payload_limit, subject=subject)
        check_fits(data, annotation, value, subject)

    def _input(self, value: object, place: int | None = None) -> Ref | None:
        """Return the ref of a value that *is* an input of the workflow; None for any other. See
        ``Origins.ref``.
        """
        ref = self._origins.ref(value, place)
        if ref is not None:
            self.input_places.add(ref.index)
        return ref

    def _template(self, value: object, subject: str) -> Template:
        """Return any value as a template."""
        if type(value) is Promise:
            return Template(("", ""), (self._ref(content_of(value)),))
        if (ref := self._input(value)) is not None:
            return Template(("", ""), (ref,))
        return self._literal(value, subject)

    def _literal(self, value: object, subject: str) -> Template:
        """Return a value as a template; it is known now, except for promises in it."""
        if type(value) in _PLAIN:
            return Template((encode(value, limit=self.registry.payload_limit, subject=subject).decode(),))
        return Template(*encode_with_holes(value, self._hole, subject=subject))

    def _within_limit(self, template: Template, step: str) -> Template:
        """Return a template that is not too large; ``step`` "": the workflow function's result."""
        size = sum(map(len, template.parts))
        if size * 4 > self.registry.payload_limit:  # as UTF-8 it may be as much
            subject = f"step {step} of {self.where}" if step else f"what {self.where} returns"
            check_size("".join(template.parts).encode(), self.registry.payload_limit, subject)
        self._octets += size
        limit = self.registry.payload_limit * PLAN_PAYLOADS
        if self._octets > limit:
            raise PayloadError(
                f"the arguments written in {self.where} have more than {limit:,} bytes together: pass on the workflow's inputs and the "
                f"results of steps as they are, they are not stored again",
                size=self._octets,
                limit=limit,
            )
        return template

    def _hole(self, value: object) -> Ref | None:
        if isinstance(value, Promise):
            return self._ref(content_of(value))
        if isinstance(value, PromiseCondition):
            raise PromiseError(
                "a comparison of promises is not a value that you can pass on: compare in an action, or write mg.when(condition, "
                "then=lambda: True, otherwise=lambda: False)"
            )
        return None

    def _ref(self, subject: Promised) -> Ref:
        origin, scope = subject.origin, self._flow.scope
        if subject.scope is not scope or origin.plan is not self or origin.scope is not None:
            self._visible(subject, scope)
        if origin.input >= 0:
            self.input_places.add(origin.input)
            return Ref("input", origin.input, subject.path)
        self._needs.append(origin.serial)
        index = origin.position
        if origin.depth:
            index = inside(index, self._flow.depth - origin.depth)
        return Ref("item" if subject.item else "step", index, subject.path)

    def _visible(self, subject: Promised, scope: Scope) -> None:
        """Raise ``PromiseError`` if a promise may not be used in ``scope``."""
        if subject.origin.plan is not self:
            raise PromiseError(
                f"{subject} is a promise of another plan: what one task passes to another is an input, known when it is submitted"
            )
        made_in = subject.origin.scope or subject.scope
        if not scope.within(made_in):
            raise PromiseError(
                f"{subject} was made in {made_in.name}, and promises do not leave their branch: return it from there, and use what "
                f"mg.when, mg.each, mg.branches or mg.first returns"
            )

    def _condition(self, condition: object) -> PlanCondition:
        """Return a condition as the plan keeps it."""
        if not isinstance(condition, PromiseCondition):
            condition = as_condition(condition, "mg.when")
            # all_of and any_of have left out what is known now.
            assert isinstance(condition, PromiseCondition)
        if condition.op in ("all", "any", "not"):
            return PlanCondition(condition.op, parts=tuple(map(self._condition, condition.values)))
        if condition.op != "true":
            self._comparable(condition)
            if self.registry.codec is not None:
                self._storable(condition)
        left, *right = [self._template(value, "a side of a condition") for value in condition.values]
        return PlanCondition(condition.op, left, right[0] if right else None)

    def _storable(self, condition: PromiseCondition) -> None:
        """Raise ``PromiseError`` for a comparison with a value that is not in the code: it is kept plain."""
        for value in condition.values:
            is_code = value is None or isinstance(value, bool | Enum | Promise) or self._is_constant(value)
            if not is_code:
                raise PromiseError(
                    f"a comparison in {self.where} is with a value that the workflow function was given or made, and the plan would keep it unencoded "
                    f"(App(codec=...)): compare with a constant written in the function, or in an action that is declared readable=True and returns a bool"
                )

    def _comparable(self, condition: PromiseCondition) -> None:
        """Raise ``PromiseError`` for a comparison that Python would answer otherwise: values are compared as
        JSON.

        None is always written the same way.
        """
        if any(value is None for value in condition.values):
            return
        for value in condition.values:
            kind = content_of(value).annotation if isinstance(value, Promise) else type(value)
            if kind not in _PLAIN and (various := variously_written(kind)) is not None:
                raise PromiseError(
                    f"a comparison in {self.where} is one of JSON texts, and equal values of {various.__name__} may have different ones: "
                    f"compare in an action that returns a bool, and decide on that with mg.when"
                )
