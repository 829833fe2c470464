"""The inputs of a workflow: the values of a call become JSON that must fit the function's annotations."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from makegood.declare.parameters import signature
from makegood.errors import DefinitionError, PayloadError, PromiseError
from makegood.payload.annotations import certain, hints
from makegood.payload.codec import check_fits, decode, encode
from makegood.payload.pydantic_models import refuse_hidden
from makegood.workflow.promise import Promise


class WorkflowInputs:
    """What a workflow's function takes and returns.

    ``names``: for annotations that name something local. Raises ``DefinitionError`` for annotations whose
    JSON does not keep what they hold, as far as they can be evaluated by now.
    """

    def __init__(
        self, fn: Callable[..., Any], name: str, address: str, *, limit: int, names: Mapping[str, Any]
    ) -> None:
        self._fn = fn
        self._name = name
        self._address = address
        self._limit = limit
        self._names = names
        self._signature = signature(fn, address)
        found = self._signature.parameters.values()
        self.plain = len(found) if all(p.kind is p.POSITIONAL_OR_KEYWORD for p in found) else -1
        """How many arguments a call passes that needs no binding; -1: each needs it."""
        self._named_all = not any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in found)
        self._inputs = tuple((p.name, f"the input {p.name} of {address}") for p in found)
        self._hints: dict[str, Any] | None = None
        self._sure: dict[tuple[int, type], bool] = {}
        self._refuse_unkept()

    def bound(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the inputs by position and by name, defaults filled in."""
        __tracebackhide__ = True
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as wrong:
            named = [p.name for p in self._signature.parameters.values() if p.kind is p.KEYWORD_ONLY]
            how = (
                f"; what is after the * goes by name: submit({self._name}.plan({named[0]}=...))"
                if named
                else ""
            )
            raise DefinitionError(f"{self._address}{self._signature}: {wrong}{how}") from None
        bound.apply_defaults()
        return bound.args, bound.kwargs

    def encoded(self, n: int, value: object) -> bytes:
        """Return an input as JSON. Raises ``PayloadError`` for a value that does not fit, or is too large."""
        __tracebackhide__ = True
        if isinstance(value, Promise):
            raise PromiseError(
                f"{self.describe(n)[1]} is a promise: call {self._name}(...) itself to make its steps part of this plan"
            )
        name, what = self.describe(n)
        data = encode(value, limit=self._limit, what=what)
        # Of *args nobody knows which is which.
        sure = self._sure.get((n, type(value))) if self._named_all else True
        if sure is None:
            sure = self._sure[n, type(value)] = certain(self.annotation(name), type(value))
        if not sure:
            check_fits(data, self.annotation(name), value, what)
        return data

    def in_order(self, inputs: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Decode all inputs in order; returns those by position and those by name.

        Raises ``PayloadError``.
        """
        found = self._signature.parameters.values()
        if any(p.kind is p.VAR_KEYWORD for p in found):
            raise DefinitionError(
                f"{self._address}{self._signature} takes any names, and a task keeps its inputs without them: write each parameter out"
            )
        many = [p.name for p in found if p.kind is p.VAR_POSITIONAL]
        last = [p.name for p in found if p.kind is p.KEYWORD_ONLY]
        names = [p.name for p in found if p.name not in (*many, *last)]
        left = len(inputs) - len(names) - len(last)
        whole = [*names, *(many * left), *last]
        values = [self._decoded(name, value) for name, value in zip(whole, inputs, strict=False)]
        if len(whole) != len(inputs):
            least = len(names) + len(last)
            few = f"{least} input{'' if least == 1 else 's'}{' or more' if many else ''}"
            raise PayloadError(f"{self._address}{self._signature} takes {few}, not {len(inputs)}")
        cut = len(values) - len(last)
        return values[:cut], dict(zip(last, values[cut:], strict=True))

    def held(self, n: int) -> Any:
        """Return what an input has been held to."""
        return self.annotation(self.describe(n)[0]) if self._named_all else Any

    def describe(self, n: int) -> tuple[str, str]:
        """Return an input's name, and what it is called in messages."""
        return self._inputs[n] if n < len(self._inputs) else (str(n), f"the input {n} of {self._address}")

    def annotation(self, name: str) -> Any:
        """Return the annotation of an input or of the result ("return"), ``Any`` without one."""
        if self._hints is None:
            self._hints = hints(self._fn, self._names, self._address)
            self._names = {}
        return self._hints.get(name, Any)

    def _refuse_unkept(self) -> None:
        """Raise ``DefinitionError`` for an annotation whose JSON does not keep what it holds."""
        try:
            self.annotation("return")
        except DefinitionError:  # it names what is defined further down: values decide
            return
        for name, annotation in (self._hints or {}).items():
            refuse_hidden(
                annotation, f"the {'result' if name == 'return' else f'input {name}'} of {self._address}"
            )

    def _decoded(self, name: str, value: object) -> Any:
        what = f"the input {name}"
        return decode(encode(value, limit=self._limit, what=what), self.annotation(name), what)
