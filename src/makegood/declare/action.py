"""Agents and their actions, and how each action is made good.

An action is a function with terms: how long an attempt may take, how often it is tried, what undoes it
(``undo``), how to find out whether it happened (``probe``). Calling it inside a workflow function records a
step. Anywhere else the call is refused, so that nobody charges a card by accident: ``action.fn`` is the
function itself.

Misuse is refused where it is written, as far as it can be detected there. Annotations may name classes
defined further down in the module; they are checked again when the action is first needed.
"""

import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from makegood.base.arguments import judge_calls
from makegood.base.durations import Duration, seconds
from makegood.base.function_layers import is_async
from makegood.base.ids import checked_name
from makegood.base.service_keys import checked_form
from makegood.base.sizes import PAYLOAD_LIMIT
from makegood.declare.around import Around
from makegood.declare.functions import Fitted, Fitting
from makegood.declare.outcomes import Happened, NotHappened, Nothing
from makegood.declare.parameters import Parameters, names_around, signature
from makegood.declare.setup import Setup, Setups, place_of, setups_in
from makegood.declare.signal import Signal
from makegood.declare.terms import (
    Declared,
    Terms,
    check_key_length,
    check_options,
    check_within,
    former_names,
)
from makegood.errors import DefinitionError, DuplicateNameError, PayloadError
from makegood.keys import Preset
from makegood.model.breaker import Breaker
from makegood.model.messages import Request
from makegood.model.plan import Ref, Template
from makegood.model.policy import Policy, Recover, Retry
from makegood.model.rates import per_second
from makegood.model.task import about
from makegood.payload.codec import annotation_text, check_fits, encode, misfit, with_defaults
from makegood.payload.envelopes import Codec, withholds

P = ParamSpec("P")
R = TypeVar("R")


# -- what the declarations of one app share ------------------------------------------------------------------


class PlanRecorder(Protocol):
    """A plan under construction, as far as an action knows it."""

    def action(
        self, action: "Action[..., Any]", args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> object:
        """Record a step and return the promise of its result."""

    def stray(self, name: str) -> None:
        """Record that an action was called outside any plan while this one is being built: it may be
        incomplete.
        """


_TEMPLATES = 100

RECORDER: ContextVar[PlanRecorder | None] = ContextVar("makegood_plan", default=None)
"""The plan that the workflow function running here is building."""


class Shared:
    """What the declarations of one app share: its name, its limits, its agents, and the plans being built
    now.
    """

    def __init__(
        self,
        app: str,
        *,
        payload_limit: int = PAYLOAD_LIMIT,
        step_limit: int = 10_000,
        codec: Codec | None = None,
    ) -> None:
        self.app = app
        self.codec = codec
        self.withholds = withholds(codec)
        """Whether texts of errors are encoded."""
        self.payload_limit = payload_limit
        self.step_limit = step_limit
        self.plans: set[PlanRecorder] = set()
        self.agents: dict[str, Agent] = {}
        self.signals: dict[str, Signal[Any]] = {}
        self.around = Around()
        self.setups = Setups(app, withholds=self.withholds)

    def find(self, agent: str, name: str) -> "Action[..., Any] | None":
        """Return the action that has or had this name; None if there is none."""
        owner = self.agents.get(agent)
        return None if owner is None else owner._find(name)

    def signal(self, name: str, annotation: Any, *, readable: bool | None = None) -> Signal[Any]:
        """Return the signal of this name, declared if it is not. Raises ``DefinitionError`` and its kind.

        ``readable``: as ``App.signal`` has it; None: as it is declared.
        """
        signal = self.signals.get(name)
        if signal is None:
            signal = self.signals[name] = Signal(
                name, annotation, self.app, self.codec, readable=bool(readable)
            )
        elif readable not in (None, signal.readable):
            raise DuplicateNameError(
                f"app {self.app} has a signal {name!r} with readable={signal.readable}, and here with readable={readable}: declare it once"
            )
        elif signal.type != annotation:
            raise DuplicateNameError(
                f"app {self.app} has a signal {name!r} of {annotation_text(signal.type)}, and here it is of {annotation_text(annotation)}: a signal has one "
                f"type, so name this one otherwise"
            )
        return signal

    def outside(self, name: str) -> None:
        """Report a call outside a plan to the plans that other threads are building: it may belong to one of
        them.
        """
        for plan in tuple(self.plans):
            plan.stray(name)


# a ParamSpec cannot express `*, result` beside some of P: the declaration checks that
UF = TypeVar("UF", bound=Callable[..., Any])


class ProbeDecorator(Protocol[P, R]):
    """What ``@action.probe(...)`` with options returns."""

    @overload
    def __call__(
        self, fn: Callable[P, Coroutine[Any, Any, Happened[R] | NotHappened]], /
    ) -> Callable[P, Coroutine[Any, Any, Happened[R] | NotHappened]]: ...
    @overload
    def __call__(
        self, fn: Callable[P, Happened[R] | NotHappened], /
    ) -> Callable[P, Happened[R] | NotHappened]: ...


class Action(Generic[P, R]):
    """An action of an agent: see ``Agent.action``. Called inside a workflow function it records a step.

    ``agent``, ``name`` and ``formerly`` say where and under which names its requests arrive.
    """

    def __init__(
        self, fn: Callable[P, Any], agent: "Agent", terms: Terms, *, name: str, formerly: tuple[str, ...]
    ) -> None:
        self.agent = agent
        self.name = name
        self.formerly = formerly
        self.address = f"{agent.registry.app}/{agent.name}/{name}"
        self._result = f"the result of {self.address}"
        self.terms = terms
        self.retry = terms.retry
        """Tries within one attempt."""
        self.parameters = Parameters(fn, self.address)
        if "result" in self.parameters.names:
            raise DefinitionError(
                f"{self.address} has a parameter named result, which is reserved for the value passed to its undo: rename it"
            )
        self._fn = fn
        self._functions = Fitting(fn, self.parameters, where=self.address, name=name)
        self._undo_terms: tuple[float, Recover] = (terms.within, terms.recover)
        check_key_length(self.address, name, "do", terms.keys)
        self._fences = False
        self._kept_policy: Policy | None = None
        self._kept_fitted: Fitted | None = None
        self._templates: OrderedDict[tuple[Ref, ...], Template] = OrderedDict()
        functools.update_wrapper(self, fn, updated=())
        self._refit()

    def __repr__(self) -> str:
        return f"<action {self.address}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Record a step in the plan that is being built; raises ``DefinitionError`` if there is none."""
        recorder = RECORDER.get()
        if recorder is None:
            self.agent.registry.outside(self.address)
            raise DefinitionError(
                f"{self.address} was called outside a workflow, or in a thread of its own: inside a @app.workflow function calling "
                f"it records a step; to run the function itself, as in a unit test, call {self.name}.fn(...)"
            )
        return recorder.action(self, args, kwargs)  # type: ignore[return-value]  # type checkers see the result's type

    @property
    def fn(self) -> Callable[P, R]:
        """The decorated function, for unit tests."""
        return self._fn

    # -- what is declared ------------------------------------------------------------------------------------

    @overload
    def undo(self, fn: UF, /) -> UF: ...
    @overload
    def undo(
        self, /, *, complete_within: Duration | None = None, recover: Recover | None = None
    ) -> Callable[[UF], UF]: ...
    @judge_calls(DefinitionError)
    def undo(
        self, fn: Any = None, /, *, complete_within: Duration | None = None, recover: Recover | None = None
    ) -> Any:
        """Declare what undoes the action: ``@charge.undo``, or ``@charge.undo(complete_within="1m")``.

        The function takes any of the action's parameters, by name, and ``*, result``, which is None when in
        doubt. ``complete_within`` and ``recover`` default to the action's. Returns the function unchanged.
        Raises ``DefinitionError`` if it does not fit.
        """
        where = f"the undo of {self.address}"
        if self.terms.nothing or self.terms.no_return:
            option = "undo=mg.NOTHING" if self.terms.nothing else "no_return=True"
            raise DefinitionError(
                f"{self.address} says {option}, so it cannot have an undo: remove one of the two"
            )
        least = self.terms.within if complete_within is None else check_within(complete_within, where)
        if recover is not None and not isinstance(recover, Recover):
            raise DefinitionError(f"{where}: recover={recover!r}: pass mg.Recover(...)")
        if recover is not None and recover.resume == "dead":
            raise DefinitionError(
                f'{where}: Recover(resume="dead"): an undo always waits for the deadline of the attempt before it: drop resume='
            )

        def declare(undo: Any) -> Any:
            if self._functions.undo is not None:
                raise DuplicateNameError(f"{self.address} already has an undo: an action can have only one")
            self._fits(undo, where, undoes=True)
            check_key_length(where, self.name, "undo", self.terms.keys)
            policy = recover or (self.terms.recover if self.terms.has_recover else None)
            self._functions.undo = undo
            self._undo_terms = (least, self.terms.fitting(where, policy, least))
            self._refit()
            return undo

        return declare if fn is None else declare(fn)

    @overload
    def probe(
        self, fn: Callable[P, Coroutine[Any, Any, Happened[R] | NotHappened]], /
    ) -> Callable[P, Coroutine[Any, Any, Happened[R] | NotHappened]]: ...
    @overload
    def probe(
        self, fn: Callable[P, Happened[R] | NotHappened], /
    ) -> Callable[P, Happened[R] | NotHappened]: ...
    @overload
    def probe(self, /, *, fences: bool = False) -> ProbeDecorator[P, R]: ...
    @judge_calls(DefinitionError)
    def probe(self, fn: Any = None, /, *, fences: bool = False) -> Any:
        """Declare how to find out whether the action happened: ``@charge.probe``, or
        ``@charge.probe(fences=True)``.

        The function has the action's parameters and returns ``mg.Happened(result)`` or ``mg.NOT_HAPPENED``.
        ``fences``: after a probe the service refuses every older token, so that "not happened" is final.
        Returns the function unchanged.
        """
        where = f"the probe of {self.address}"

        def declare(probe: Any) -> Any:
            if self._functions.probe is not None:
                raise DuplicateNameError(f"{self.address} already has a probe: an action can have only one")
            self._fits(probe, where, undoes=False)
            self._functions.probe, self._fences = probe, fences
            self._refit()
            return probe

        return declare if fn is None else declare(fn)

    def _fits(self, fn: Callable[..., Any], where: str, *, undoes: bool) -> None:
        """Raise ``DefinitionError`` if the parameters of an undo or a probe are not among the action's."""
        parameters = signature(fn, where).parameters
        setups = setups_in(parameters.values(), where)
        for name, p in parameters.items():
            if name in setups:
                continue
            if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY):
                raise DefinitionError(
                    f"{where}: {p} is not passed by name: write out the parameters it wants; a decorator that hides them needs functools.wraps"
                )
            if name not in self.parameters.names and not (undoes and name == "result"):
                names = ", ".join(self.parameters.names) or "none"
                raise DefinitionError(
                    f"{where} takes {name}, which {self.name} does not have: it may take {names}"
                )
        if undoes and (
            "result" not in parameters or parameters["result"].kind is not inspect.Parameter.KEYWORD_ONLY
        ):
            raise DefinitionError(
                f"{where} must take the result by keyword: add `*, result`, which is None when it is in doubt whether the action "
                f"happened (mg.current_call().in_doubt)"
            )

    def _refit(self) -> None:
        """Fit the functions together, or do so at first use if an annotation names something not defined
        yet.
        """
        self._kept_policy = self._kept_fitted = None
        names = names_around()
        if self._functions.evaluates(names):
            self._kept_fitted = self._functions.fit(names)

    # -- what plans and agents need --------------------------------------------------------------------------

    @property
    def _is_made_good(self) -> bool:
        """Whether the action declares how it is made good."""
        terms = self.terms
        return terms.nothing or terms.no_return or self._functions.undo is not None

    @property
    def _undo_fn(self) -> Callable[..., Any] | None:
        """The undo's function; None without one."""
        return self._functions.undo

    @property
    def _probe_fn(self) -> Callable[..., Any] | None:
        """The probe's function; None without one."""
        return self._functions.probe

    @property
    def _policy(self) -> Policy:
        """The action's policy for the rules; written into each step."""
        if self._kept_policy is None:
            terms, recover = self.terms, self.terms.recover
            undo_within, undo_recover = self._undo_terms
            self._kept_policy = Policy(
                within=terms.within,
                threshold=recover.threshold,
                wait=seconds(recover.wait),
                extended=seconds(recover.extended),
                then=recover.then,
                undoable=self._functions.undo is not None,
                undo_within=undo_within,
                undo_threshold=undo_recover.threshold,
                undo_wait=seconds(undo_recover.wait),
                undo_extended=seconds(undo_recover.extended),
                no_return=terms.no_return,
                remembers=terms.remembers,
                never=terms.retry.never,
                probe=self._functions.probe is not None,
                fences=self._fences,
                key_form=checked_form(terms.keys.form, self.address),
                key_limit=terms.keys.limit or 0,
                keeps=0.0 if terms.keys.keeps is None else seconds(terms.keys.keeps),
                resumes=terms.resumes,
            )
        return self._kept_policy

    def _template(self, refs: tuple[Ref, ...]) -> Template:
        """Return the arguments of a step that are all inputs or results: ``refs`` in the order of the
        parameters.

        The last hundred are kept: the same call in task after task gives the same record.
        """
        template = self._templates.get(refs)
        if template is None:
            names = [f'"{name}":' for name in self.parameters.names]
            parts = ["{" + names[0], *[f",{name}" for name in names[1:]], "}"] if names else ["{}"]
            template = self._templates[refs] = Template(tuple(parts), refs)
            if len(self._templates) > _TEMPLATES:
                self._templates.popitem(last=False)
        return template

    def _setups(self) -> list[Setup]:
        """Return the setups that its functions need, in the order in which to open them.

        Raises ``DefinitionError`` for one that the app does not declare.
        """
        setups: dict[str, Setup] = {}
        functions = {"do": self._fn, "undo": self._functions.undo, "probe": self._functions.probe}
        for doing, names in self._fit().setups.items():
            fn = functions[doing] or self._fn
            where = f"{about(doing, self.address)} ({place_of(fn)})"
            setups |= {setup.name: setup for setup in self.agent.registry.setups.in_order(names, where)}
        return list(setups.values())

    def _fit(self) -> Fitted:
        """Return what is needed to run the action; raises ``DefinitionError`` for annotations that cannot be
        used.
        """
        if self._kept_fitted is None:
            self._kept_fitted = self._functions.fit()
        return self._kept_fitted

    def _prepare(self, request: Request) -> tuple[Callable[..., Any], dict[str, Any]]:
        """Return the function that a request asks for (action, undo or probe) and its arguments, decoded.

        Raises ``PayloadError`` if they do not fit the present declaration, or if it has no such function any
        more.
        """
        functions = self._functions
        try:
            decoders = self._kept_fitted or self._fit()
            if request.doing == "do":
                return functions.fn, decoders.args(request.args)
            if request.doing == "undo" and functions.undo is not None and decoders.undo is not None:
                kwargs = decoders.undo(request.args)
                result = None if request.result == b"null" else request.result  # null: settled by hand
                kwargs["result"] = None if result is None else decoders.result(result)
                return functions.undo, kwargs
            if request.doing == "probe" and functions.probe is not None and decoders.probe is not None:
                return functions.probe, decoders.probe(request.args)
        except DefinitionError as wrong:
            raise PayloadError(f"{about(request.doing, self.address)}: {wrong}") from wrong
        except Exception as wrong:  # the constructors of the user's classes may raise anything
            raise PayloadError(f"{about(request.doing, self.address)}: {misfit(wrong)}") from wrong
        raise PayloadError(f"{self.address} no longer declares its {request.doing}: declare it again")

    def _encode(self, value: object) -> bytes:
        """Return a result as JSON; raises ``PayloadError``, with size and limit if it is too large."""
        try:
            data = encode(value, self.agent.registry.payload_limit, self._result)
        except PayloadError:
            if inspect.iscoroutine(value):
                value.close()
                raise PayloadError(
                    f"{self.address} returned a coroutine: write async def, or await it"
                ) from None
            raise
        decoders = self._kept_fitted or self._fit()
        if not decoders.always("return", type(value)):
            check_fits(data, decoders.returns, value, self._result)
            data = with_defaults(
                data, decoders.returns, value, self._result, self.agent.registry.payload_limit
            )
        return data

    def _decode(self, value: bytes) -> Any:
        """Return a result of this action from its JSON; raises ``PayloadError`` if it does not fit."""
        decoders = self._kept_fitted or self._fit()
        try:
            return decoders.result(value)
        except Exception as wrong:  # see ``prepared``
            raise PayloadError(f"{self._result}: {misfit(wrong)}") from wrong


class AsyncAction(Action[P, R]):
    """An action declared with ``async def``; in a workflow it is called like any other, without await."""

    @property
    def fn(self) -> Callable[P, Coroutine[Any, Any, R]]:  # type: ignore[override]  # awaitable, unlike that of a plain one
        """The decorated function, for unit tests: ``await action.fn(...)``."""
        return self._fn


class ActionDecorator(Protocol):
    """What ``agent.action(...)`` returns."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncAction[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Action[P, R]: ...


class Agent:
    """Wraps one remote service: its actions run in any process that runs this agent. See ``App.agent``."""

    def __init__(
        self,
        name: str,
        registry: Shared,
        *,
        concurrency: int = 10,
        rate: object = None,
        breaker: Breaker | None = None,
    ) -> None:
        self.name = checked_name(name, "agent")
        self.registry = registry
        if not isinstance(concurrency, int) or isinstance(concurrency, bool) or concurrency < 1:
            raise DefinitionError(
                f"agent {name}: concurrency={concurrency!r}: pass a whole number, at least 1: how many calls run at once in one process"
            )
        if breaker is not None and not isinstance(breaker, Breaker):
            raise DefinitionError(
                f'agent {name}: breaker={breaker!r}: write mg.Breaker(failures=5, reset="30s")'
            )
        self.concurrency = concurrency
        self.rate = None if rate is None else per_second(rate, name=f"agent {name}: rate")
        self.breaker = breaker
        self.actions: dict[str, Action[..., Any]] = {}

    def __repr__(self) -> str:
        return f"<agent {self.registry.app}/{self.name}>"

    @overload
    def action(
        self,
        *,
        complete_within: Duration,
        extend_up_to: Duration | None = None,
        cancellable: bool = False,
        undo: Nothing,
        retry: Retry | None = None,
        recover: Recover | None = None,
        remembers: bool | None = None,
        key: str | Preset | None = None,
        key_limit: int | None = None,
        keeps: Duration | None = None,
        name: str | None = None,
        formerly: Iterable[str] = (),
        readable: bool = False,
    ) -> ActionDecorator: ...
    @overload
    def action(
        self,
        *,
        complete_within: Duration,
        extend_up_to: Duration | None = None,
        cancellable: bool = False,
        no_return: bool = False,
        retry: Retry | None = None,
        recover: Recover | None = None,
        remembers: bool | None = None,
        key: str | Preset | None = None,
        key_limit: int | None = None,
        keeps: Duration | None = None,
        name: str | None = None,
        formerly: Iterable[str] = (),
        readable: bool = False,
    ) -> ActionDecorator: ...
    def action(self, *positional: Any, complete_within: Any = None, **options: Any) -> Any:
        """Declare an action: ``@payments.action(complete_within="30s")`` above a ``def`` or an ``async def``.

        - ``complete_within``: how long one attempt may take, including retries within it; after that the
          agent counts as silent.
        - ``extend_up_to``: how long an attempt of the action, its undo or its probe may take at most if it
          asks for more time with ``call.extend()``; None: ten times its ``complete_within``.
        - ``cancellable``: cancel the ``async def`` action (``CancelledError`` inside) once nobody needs it,
          since its task is being undone; then the step is in doubt. Without it, and in a ``def``, the action
          sees it in ``call.cancelled``.
        - ``retry``: tries within one attempt (``mg.Retry``; ``mg.NEVER`` for services without keys: one try,
          never again).
        - ``recover``: what follows an attempt without an answer (``mg.Recover``: threshold, waits, verdict).
        - how it is undone: ``@the_action.undo``, or ``undo=mg.NOTHING`` (a read, a harmless effect), or
          ``no_return=True`` (there is no way back: from there on failures are held for an operator).
        - ``remembers``: the service remembers its answer per key but knows no tokens: in doubt, ask again
          before undoing.
        - ``key``: the form in which the service takes keys ("uuid", "uuid4", "quoted", "length=28"), or all
          that is known of it (``mg.keys.SQUARE``). ``key_limit``: the most characters that it takes; the
          longest key that the action can have is checked here and when a plan is made. ``keeps``: how long
          it remembers a key, from the first request on: past that makegood does not send the request again,
          and ``recover`` must end before it. These two replace what a preset says.
        - ``name``: replaces the function's name; ``formerly``: names it had, so that waiting steps find it
          after a deploy.
        - ``readable``: where the app has a codec, its result is not encoded, so that ``mg.when`` may compare
          it and ``mg.each`` may go through it.

        Raises ``DefinitionError`` or ``DuplicateNameError`` that says what to write instead.
        """
        if positional:
            raise DefinitionError(
                f'@{self.name}.action needs its options: write @{self.name}.action(complete_within="30s", ...) above the function'
            )
        declaration = Declared(
            complete_within=complete_within, **check_options(options, f"an action of agent {self.name}")
        )

        def declare(fn: Any) -> Any:
            if isinstance(fn, Action):
                raise DefinitionError(
                    f"{fn.address} is declared already: one function is one action of one agent"
                )
            name = declaration.name if declaration.name is not None else getattr(fn, "__name__", "")
            terms = declaration.terms(f"{self.registry.app}/{self.name}/{name}")
            kind: type[Action[..., Any]] = AsyncAction if is_async(fn) else Action
            if terms.cancellable and kind is Action:
                raise DefinitionError(
                    f"{self.registry.app}/{self.name}/{name} is a def with cancellable=True: nobody can stop a thread from outside. Write "
                    f"async def, or let it call mg.current_call().check() now and then"
                )
            action = kind(
                fn,
                self,
                terms,
                name=checked_name(name, "action"),
                formerly=former_names(declaration.formerly),
            )
            self._add(action)
            return action

        return declare

    def _find(self, name: str) -> Action[..., Any] | None:
        """Return the action that has or had this name; None if there is none."""
        action = self.actions.get(name)
        return action or next((a for a in self.actions.values() if name in a.formerly), None)

    def _add(self, action: Action[..., Any]) -> None:
        for name in (action.name, *action.formerly):
            if (other := self._find(name)) is not None:
                raise DuplicateNameError(
                    f"agent {self.name} has two actions named {name!r}: {place_of(other.fn)} and {place_of(action.fn)}; rename one, or pass "
                    f'name="..."'
                )
        self.actions[action.name] = action
