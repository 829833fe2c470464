"""Apps, workflows, and what a workflow function may call besides actions.

``App`` is a value that users hold; it knows its agents, actions and workflows. A workflow is an ordinary ``def`` that is run
once, with real inputs, when a task is submitted: it yields a ``Plan``. Nothing is replayed later.
"""

import functools
import hashlib
import inspect
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

import msgspec

from makegood.declare.action import RECORDER, Action, Shared
from makegood.declare.parameters import names_around, signature
from makegood.errors import (
    DefinitionError,
    PayloadError,
    PromiseError,
)
from makegood.model.plan import OnFailure, Plan
from makegood.payload.annotations import certain, hints
from makegood.payload.codec import canonical, check_fits, decode, encode
from makegood.payload.pydantic_models import refuse_hidden
from makegood.workflow.misuse import check_source, say_where
from makegood.workflow.plan_cache import NO_TRAIL, literals
from makegood.workflow.plan_run import Planning
from makegood.workflow.promise import Promise
from makegood.workflow.verbs import _MAKERS

P = ParamSpec("P")
R = TypeVar("R")

_IMMUTABLE = (str, int, float, bool, bytes, type(None))
_ORDERED = frozenset(_IMMUTABLE)
"""Types whose JSON is the same however often it is written: it needs no sorting."""


# -- workflows -----------------------------------------------------------------------------------------------


class Workflow(Generic[P, R]):
    """A workflow of an app: see ``App.workflow``. Submit it with ``client.submit(workflow, *inputs)``."""

    def __init__(
        self,
        fn: Callable[P, R],
        shared: Shared,
        *,
        name: str,
        formerly: tuple[str, ...],
        within: float | None,
        undo_within: float | None,
        on_failure: OnFailure,
    ) -> None:
        self.name = name
        self.formerly = formerly
        self.address = f"{shared.app}.{name}"
        self.within = within
        self.undo_within = undo_within
        self.on_failure: OnFailure = on_failure
        self._fn = fn
        self._shared = shared
        self._named = msgspec.json.encode([shared.app, name])
        self._signature = signature(fn, self.address)
        found = self._signature.parameters.values()
        self._plain = len(found) if all(p.kind is p.POSITIONAL_OR_KEYWORD for p in found) else -1
        self._named_all = not any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in found)
        self._inputs = tuple((p.name, f"the input {p.name} of {self.address}") for p in found)
        self._trail = NO_TRAIL
        if inspect.iscoroutinefunction(fn):
            raise DefinitionError(
                f"{self.address} is an async def: a workflow function is a plain def; it calls actions without await, and its inputs "
                f"are fetched before it is submitted"
            )
        check_source(fn, _MAKERS, self.address)
        self._names = names_around()
        self._hints: dict[str, Any] | None = None
        self._refuse_unkept()
        self._sure: dict[tuple[int, type], bool] = {}
        functools.update_wrapper(self, fn, updated=())

    def __repr__(self) -> str:
        return f"<workflow {self.address}>"

    def _refuse_unkept(self) -> None:
        """Raise ``DefinitionError`` for annotations whose JSON does not keep what they hold, as far as they can be evaluated by now."""
        try:
            self._annotation("return")
        except DefinitionError:  # it names what is defined further down: values decide
            return
        for name, annotation in (self._hints or {}).items():
            refuse_hidden(
                annotation, f"the {'result' if name == 'return' else f'input {name}'} of {self.address}"
            )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Inside another workflow: record its steps there, under that one's options. Anywhere else: raise ``DefinitionError``."""
        planning = RECORDER.get()
        if not isinstance(planning, Planning):
            raise DefinitionError(
                f"{self.address} was called outside a workflow: submit it with client.submit({self.name}, ...), or look at its steps "
                f"with {self.name}.plan(...)"
            )
        planning.enter(self.address)
        return self._fn(*args, **kwargs)

    @property
    def fn(self) -> Callable[P, R]:
        """The function that was decorated."""
        return self._fn

    def plan(self, *args: P.args, **kwargs: P.kwargs) -> Plan[R]:
        """Run the workflow function with these inputs and return its plan; nothing is submitted.

        Raises ``DefinitionError`` or ``PromiseError`` for what a plan cannot hold, ``PayloadError`` for inputs that cannot be kept
        or are too large, and whatever the function itself raises.
        """
        __tracebackhide__ = True  # pytest shows the line that called it, which is the one to mend
        by_name: dict[str, Any] = {}
        try:
            if kwargs or len(args) != self._plain:
                args, by_name = self._bound(args, kwargs)  # type: ignore[assignment]  # as its function takes them
            inputs = [*args, *by_name.values()]
            encoded = tuple(map(self._encoded, range(len(inputs)), inputs))
        except (DefinitionError, PayloadError) as wrong:
            say_where(wrong, self._fn, self.address)
            raise
        fingerprint = self._fingerprint(inputs, encoded)
        planning = Planning(self._shared, self.address, inputs, self._trail, self._literals)
        reset = RECORDER.set(planning)
        self._shared.plans.add(planning)
        try:
            value = self._fn(*args, **by_name)
            if inspect.iscoroutine(value):
                value.close()
                raise DefinitionError(
                    f"{self.address} returned a coroutine: a workflow function is a plain def, without await"
                )
            returns = planning.returned(value)
            trail = self._trail = planning.trail(returns, self._held)
        finally:
            planning.close()
            self._shared.plans.discard(planning)
            RECORDER.reset(reset)
        for demand in trail.demands:
            check_fits(encoded[demand.place], demand.annotation, inputs[demand.place], demand.what)
        for n in planning.referred():
            if type(inputs[n]) not in _IMMUTABLE and self._encoded(n, inputs[n]) != encoded[n]:
                raise DefinitionError(
                    f"{self.address} changed its input {self._input(n)[0]} and passed it on: make a copy and pass that, inputs are "
                    f"kept as they were submitted"
                )
        return Plan(
            self._shared.app, self.name, trail.steps, encoded, returns, fingerprint, self.within, self.undo_within, self.on_failure,
            returns_type=self._returned(),
        )  # fmt: skip

    def plan_from(self, inputs: Sequence[Any]) -> Plan[R]:
        """Return the plan for all inputs in order, as JSON has them (``task show --json`` lists those of a task): each is decoded to
        its annotation.

        Raises ``PayloadError`` for inputs that do not fit, and what ``plan`` raises.
        """
        found = self._signature.parameters.values()
        if any(p.kind is p.VAR_KEYWORD for p in found):
            raise DefinitionError(
                f"{self.address}{self._signature} takes any names, and a task keeps its inputs without them: write each parameter out"
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
            raise PayloadError(f"{self.address}{self._signature} takes {few}, not {len(inputs)}")
        cut = len(values) - len(last)
        make: Callable[..., Plan[R]] = self.plan
        return make(*values[:cut], **dict(zip(last, values[cut:], strict=True)))

    def _decoded(self, name: str, value: object) -> Any:
        what = f"the input {name}"
        return decode(
            encode(value, limit=self._shared.payload_limit, what=what), self._annotation(name), what
        )

    def find_action(self, agent: str, name: str) -> Action[..., Any] | None:
        """Return the action of its app that has or had this name, None when there is none."""
        return self._shared.find(agent, name)

    @functools.cached_property
    def _literals(self) -> Container[int]:
        return literals(self._fn)

    def _bound(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the inputs by position and by name, defaults filled in."""
        __tracebackhide__ = True
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as wrong:
            named = [p.name for p in self._signature.parameters.values() if p.kind is p.KEYWORD_ONLY]
            how = (
                f"; what is after the * goes by name: submit({self.name}.plan({named[0]}=...))"
                if named
                else ""
            )
            raise DefinitionError(f"{self.address}{self._signature}: {wrong}{how}") from None
        bound.apply_defaults()
        return bound.args, bound.kwargs

    def _encoded(self, n: int, value: object) -> bytes:
        __tracebackhide__ = True
        if isinstance(value, Promise):
            raise PromiseError(
                f"{self._input(n)[1]} is a promise: call {self.name}(...) itself to make its steps part of this plan"
            )
        name, what = self._input(n)
        data = encode(value, limit=self._shared.payload_limit, what=what)
        sure = (
            self._sure.get((n, type(value))) if self._named_all else True
        )  # of *args nobody knows which is which
        if sure is None:
            sure = self._sure[n, type(value)] = certain(self._annotation(name), type(value))
        if not sure:
            check_fits(data, self._annotation(name), value, what)
        return data

    def _held(self, n: int) -> Any:
        """Return what an input has been held to."""
        return self._annotation(self._input(n)[0]) if self._named_all else Any

    def _input(self, n: int) -> tuple[str, str]:
        """Return an input's name, and what it is called in messages."""
        return self._inputs[n] if n < len(self._inputs) else (str(n), f"the input {n} of {self.address}")

    def _fingerprint(self, inputs: list[object], encoded: tuple[bytes, ...]) -> bytes:
        """Return what stands for the workflow and its inputs, whatever the order of dicts and sets in them."""
        parts = [self._named]
        for n, data in enumerate(encoded):
            parts.append(data if type(inputs[n]) in _ORDERED else canonical(inputs[n]))
        return hashlib.blake2b(b",".join(parts), digest_size=16).digest()

    def _returned(self) -> Any:
        """Return the annotation that the result is decoded to, ``Any`` without one."""
        return self._annotation("return")

    def _annotation(self, name: str) -> Any:
        """Return the annotation of an input or of the result ("return"), ``Any`` without one."""
        if self._hints is None:
            self._hints = hints(self._fn, self._names, self.address)
            self._names = {}
        return self._hints.get(name, Any)
