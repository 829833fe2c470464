"""The inputs of a workflow: the values of a call become JSON that must fit the function's annotations."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from makegood.base.arguments import misfit
from makegood.declare.parameters import signature
from makegood.errors import DefinitionError, PayloadError, PromiseError
from makegood.payload.annotations import certain, hints
from makegood.payload.by_value import ByValue, join_differences
from makegood.payload.codec import check_fits, decode, encode
from makegood.payload.unchecked_rules import refuse_unkept
from makegood.payload.unknown_fields import refuse_unknown
from makegood.workflow.promise import MOMENT, Promise


class WorkflowInputs:
    """What a workflow's function takes and returns.

    ``names``: for annotations that name something local. Raises ``DefinitionError`` for annotations that
    promise too much (``refuse_unkept``), as far as they can be evaluated by now.
    """

    def __init__(
        self, fn: Callable[..., Any], name: str, address: str, *, limit: int, names: Mapping[str, Any]
    ) -> None:
        self._fn = fn
        self._name = name
        self._address = address
        self._limit = limit
        self._names = names
        self.signature = signature(fn, address, by_name=False)
        parameters = self.signature.parameters.values()
        self.plain = len(parameters) if all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters) else -1
        """How many arguments a call passes that needs no binding; -1: each needs it."""
        self._named_all = not any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)
        self.names = tuple(p.name for p in parameters) if self._named_all else ()
        """Of all inputs, in order; empty if a call decides how many there are."""
        self._inputs = tuple((p.name, f"the input {p.name} of {address}") for p in parameters)
        self._hints: dict[str, Any] | None = None
        self._sure: dict[tuple[int, type], bool] = {}
        try:
            hints(fn, names, address)
        except DefinitionError:  # it names what is defined further down: ``annotation`` decides, at first use
            return
        self.annotation("return")

    def bind(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the inputs by position and by name, defaults filled in."""
        __tracebackhide__ = True
        try:
            arguments = self.signature.bind(*args, **kwargs)
        except TypeError:
            keyword_only = [p.name for p in self.signature.parameters.values() if p.kind is p.KEYWORD_ONLY]
            how = (
                f"; what is after the * goes by name: submit({self._name}.plan({keyword_only[0]}=...))"
                if keyword_only
                else ""
            )
            wrong = misfit(self.signature, args, kwargs, noun="parameter")
            raise DefinitionError(f"{self._address}{self.signature}: {wrong}{how}") from None
        arguments.apply_defaults()
        return arguments.args, arguments.kwargs

    def names_of(self, by_position: int, by_name: Iterable[str]) -> tuple[str, ...]:
        """Return the names of a call's inputs in order; of ``*args`` each has the name of them all."""
        if self._named_all:
            return self.names
        parameters = self.signature.parameters.values()
        positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        many = [p.name for p in parameters if p.kind is p.VAR_POSITIONAL]
        return (*positional[:by_position], *many * (by_position - len(positional)), *by_name)

    def encode(self, n: int, value: object) -> bytes:
        """Return an input as JSON. Raises ``PayloadError`` for a value that does not fit, or is too large."""
        __tracebackhide__ = True
        if isinstance(value, Promise):
            raise PromiseError(
                f"{self.describe(n)[1]} is a promise: call {self._name}(...) itself to make its steps part of this plan"
            )
        name, subject = self.describe(n)
        try:
            data = encode(value, self._limit, subject)
        except PayloadError:
            if value is MOMENT:
                raise PromiseError(
                    f"{subject} is mg.MOMENT, which stands for the moment of a schedule: pass a datetime"
                ) from None
            raise
        # Of *args nobody knows which is which.
        sure = self._sure.get((n, type(value))) if self._named_all else True
        if sure is None:
            sure = self._sure[n, type(value)] = certain(self.annotation(name), type(value))
        if not sure:
            check_fits(data, self.annotation(name), value, subject)
        return data

    def in_order(self, inputs: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Decode all inputs in order; returns those by position and those by name.

        Raises ``PayloadError``.
        """
        parameters = self.signature.parameters.values()
        if any(p.kind is p.VAR_KEYWORD for p in parameters):
            raise DefinitionError(
                f"{self._address}{self.signature} takes any names, and a task keeps its inputs without them: write each parameter out"
            )
        many = [p.name for p in parameters if p.kind is p.VAR_POSITIONAL]
        last = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
        names = [p.name for p in parameters if p.name not in (*many, *last)]
        left = len(inputs) - len(names) - len(last)
        whole = [*names, *(many * left), *last]
        values = [self._decode(name, value) for name, value in zip(whole, inputs, strict=False)]
        if len(whole) != len(inputs):
            least = len(names) + len(last)
            few = f"{least} input{'' if least == 1 else 's'}{' or more' if many else ''}"
            raise PayloadError(f"{self._address}{self.signature} takes {few}, not {len(inputs)}")
        cut = len(values) - len(last)
        return values[:cut], dict(zip(last, values[cut:], strict=True))

    def defaults(self, first: int, end: int) -> list[bytes]:
        """Return as JSON what inputs are that a call does not pass, as long as each has a default."""
        values: list[bytes] = []
        for p in [*self.signature.parameters.values()][first:end] if self._named_all else ():
            if p.default is p.empty:
                break
            values.append(encode(p.default, limit=self._limit, subject=self.describe(first + len(values))[1]))
        return values

    def constraint(self, n: int) -> Any:
        """Return what an input has been held to."""
        return self.annotation(self.describe(n)[0]) if self._named_all else Any

    def describe(self, n: int) -> tuple[str, str]:
        """Return an input's name, and what it is called in messages."""
        return self._inputs[n] if n < len(self._inputs) else (str(n), f"the input {n} of {self._address}")

    def annotation(self, name: str) -> Any:
        """Return the annotation of an input or of the result ("return"), ``Any`` without one.

        Raises ``DefinitionError`` for annotations that cannot be evaluated (yet), or promise too much.
        """
        if self._hints is None:
            annotations = hints(self._fn, self._names, self._address)
            for each, annotation in annotations.items():
                subject = "result" if each == "return" else f"input {each}"
                refuse_unkept(annotation, f"the {subject} of {self._address}")
            self._hints, self._names = annotations, {}
        return self._hints.get(name, Any)

    def _decode(self, name: str, value: object) -> Any:
        subject = f"the input {name}"
        refuse_unknown(value, self.annotation(name), subject)
        return decode(encode(value, limit=self._limit, subject=subject), self.annotation(name), subject)


class InputsByValue:
    """Compares the inputs of two tasks as their annotations decode them. ``identity`` names the workflow."""

    def __init__(self, identity: bytes, inputs: WorkflowInputs) -> None:
        self._identity = identity
        self._inputs = inputs
        self._each: dict[int, ByValue] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InputsByValue) and other._identity == self._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def fingerprint(self, inputs: Sequence[bytes]) -> bytes:
        """See ``model.plan.Comparison``."""
        parts = [self._identity, *(self._of(n).text(data) for n, data in enumerate(inputs))]
        return hashlib.blake2b(b",".join(parts), digest_size=16).digest()

    def differences(self, was: Sequence[bytes], now: Sequence[bytes]) -> str:
        """See ``model.plan.Comparison``."""
        if was:  # parameters that the workflow has got since
            was = (*was, *self._inputs.defaults(len(was), len(now)))
        if len(was) != len(now):
            return f"{len(was)} inputs were submitted, now {len(now)}"
        pairs = enumerate(zip(was, now, strict=True))
        each = (self._of(n).differences(self._inputs.describe(n)[0], *pair) for n, pair in pairs)
        return join_differences(difference for some in each for difference in some)

    def _of(self, n: int) -> ByValue:
        comparison = self._each.get(n)
        if comparison is None:
            comparison = self._each[n] = ByValue(self._inputs.constraint(n), self._inputs.describe(n)[1])
        return comparison
