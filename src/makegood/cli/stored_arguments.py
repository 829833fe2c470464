"""Stored arguments: can the code read what is stored for a waiting step?

The arguments are decoded as an agent would decode them. Arguments that depend on a result that is not there
yet are checked as far as they are known: the names of the parameters, the other arguments, and the annotation
of the action that will return the result.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from makegood.declare.action import Action
from makegood.declare.functions import Fitted
from makegood.errors import DefinitionError, MissingValueError, PayloadError
from makegood.model.plan import INPUTS, Ref, Template
from makegood.model.task import Doing
from makegood.payload.annotations import members, takes
from makegood.payload.codec import annotation_text, decode
from makegood.payload.splice import walk
from makegood.store.views import StepView, TaskDetail

Find = Callable[[str, str], Action[Any, Any] | None]
"""Returns the action of an agent that has or had this name."""

RESULT = "result"
_NOT_YET = ("waiting", "ready", "running", "in_doubt", "failed")
# Stands for a value that is not known; in texts that people write it does not occur.
_OPEN = b'"\\u0000makegood'


class Fault(NamedTuple):
    """An argument, or a result, that does not fit."""

    parameter: str
    """The parameter, or the action's "result"."""
    why: str
    is_absent: bool = False
    """Nothing is stored for it."""


class Stored:
    """The stored values of one task. ``find`` returns the code's actions."""

    def __init__(self, detail: TaskDetail, find: Find) -> None:
        self._inputs = detail.inputs
        self._steps: Mapping[int, StepView] = {step.idx: step for step in detail.steps}
        self._find = find

    def faults(self, action: Action[Any, Any], doing: Doing, args: Template | None) -> Iterator[Fault]:
        """Yield the arguments of a step that cannot be passed to the action, its undo or its probe."""
        fit = _fit(action)
        if fit is None:
            return
        values = self._arguments(args)
        for name, mandatory in fit.wants.get(doing, {}).items():
            annotation = fit.annotations.get(name, Any)
            value = values.get(name)
            if value is None:
                if mandatory:
                    yield Fault(name, f"there is no {name}", is_absent=True)
            elif isinstance(value, Ref):
                return_type = self._return_type(value)
                if not any(takes(annotation, member) for member in members(return_type)):
                    yield Fault(
                        name,
                        f"{name} will be {annotation_text(return_type)}, and is to be {annotation_text(annotation)}",
                    )
            elif _OPEN not in value:
                yield from _unread(value, annotation, name)

    def result_faults(self, action: Action[Any, Any], result: bytes | None) -> Iterator[Fault]:
        """Yield why an undo could not be given what the action returned."""
        fit = _fit(action)
        if fit is not None and result is not None and result != b"null":
            yield from _unread(result, fit.returns, RESULT)

    def _arguments(self, args: Template | None) -> dict[str, bytes | Ref]:
        """Return the arguments by name, each as JSON or as the Ref that is all of it.

        In the JSON ``_OPEN`` replaces unknown values.
        """
        if args is None:
            return {}
        pieces = [args.parts[0].encode()]
        for n, ref in enumerate(args.refs):
            literal = self._stored_value(ref)
            pieces += _open(n) if literal is None else literal, args.parts[n + 1].encode()
        fields = msgspec.json.decode(b"".join(pieces), type=dict[str, msgspec.Raw])
        whole = {_open(n): ref for n, ref in enumerate(args.refs)}
        return {name: whole.get(bytes(raw), bytes(raw)) for name, raw in fields.items()}

    def _stored_value(self, ref: Ref) -> bytes | None:
        """Return the value of a ref as far as it is there."""
        value: bytes | None = None
        if ref.of in INPUTS and ref.index < len(self._inputs):
            value = self._inputs[ref.index]
        elif ref.of == "step" and (step := self._steps.get(ref.index)) and step.state not in _NOT_YET:
            value = step.result or b"null"
        try:
            return None if value is None else walk(value, ref.path)
        except MissingValueError:  # the fault of the value, not of the code
            return None

    def _return_type(self, ref: Ref) -> Any:
        """Return the annotation of what an action will return.

        ``Any`` when the ref names only a part of the result, or not an action's result.
        """
        step = self._steps.get(ref.index) if ref.of == "step" and not ref.path else None
        action = None if step is None or step.kind != "action" else self._find(step.agent, step.action)
        fit = None if action is None else _fit(action)
        return Any if fit is None else fit.returns


def _fit(action: Action[Any, Any]) -> Fitted | None:
    """Return what an action takes and returns.

    None when its annotations cannot be used, which ``check`` reports by itself.
    """
    try:
        return action._fit()
    except DefinitionError:
        return None


def _open(n: int) -> bytes:
    return _OPEN + b'%d"' % n


def _unread(value: bytes, annotation: Any, name: str) -> Iterator[Fault]:
    try:
        decode(value, annotation, name)
    except PayloadError as wrong:
        yield Fault(name, str(wrong))
