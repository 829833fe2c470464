"""Functions for a workflow function to call besides actions: ``parallel``, ``branches``, ``first``, ``when``,
``each``, ``sleep``, ``sleep_until``, ``fail``, ``done``.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, NoReturn, TypeVar, TypeVarTuple, cast, overload

from makegood.base.arguments import judge_calls
from makegood.base.durations import Duration
from makegood.declare.action import RECORDER
from makegood.declare.call import known_call
from makegood.errors import DefinitionError
from makegood.workflow.plan_run import Planning
from makegood.workflow.recorder import Recording

R = TypeVar("R")
T = TypeVar("T")
U = TypeVar("U")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
T5 = TypeVar("T5")
T6 = TypeVar("T6")
Ts = TypeVarTuple("Ts")


# -- what a workflow function may call -----------------------------------------------------------------------


def _planning(subject: str) -> Planning:
    planning = RECORDER.get()
    if not isinstance(planning, Planning):
        raise DefinitionError(
            f"{subject} belongs in a @app.workflow function, which runs when a task is submitted: no plan is being built here"
        )
    return planning


def _recording(subject: str) -> Recording:
    return _planning(subject).recording(subject)


@judge_calls(DefinitionError)
def parallel(*steps: *Ts) -> tuple[*Ts]:
    """Let steps run at the same time: ``tracking, _ = mg.parallel(ship(order), email(order))``. Returns their
    promises.

    Write the calls inside the parentheses; the steps after them wait for all of them. Calls nested in the
    first one's arguments come before all. Raises ``PromiseError`` if the steps were not just recorded, or
    need each other.
    """
    _planning("mg.parallel").parallel(steps)
    return steps


@overload
def branches(a: Callable[[], T1], b: Callable[[], T2], /) -> tuple[T1, T2]: ...
@overload
def branches(a: Callable[[], T1], b: Callable[[], T2], c: Callable[[], T3], /) -> tuple[T1, T2, T3]: ...
@overload
def branches(
    a: Callable[[], T1], b: Callable[[], T2], c: Callable[[], T3], d: Callable[[], T4], /
) -> tuple[T1, T2, T3, T4]: ...
@overload
def branches(
    a: Callable[[], T1], b: Callable[[], T2], c: Callable[[], T3], d: Callable[[], T4], e: Callable[[], T5], /
) -> tuple[T1, T2, T3, T4, T5]: ...
@overload
def branches(
    a: Callable[[], T1], b: Callable[[], T2], c: Callable[[], T3], d: Callable[[], T4], e: Callable[[], T5],
    f: Callable[[], T6], /,
) -> tuple[T1, T2, T3, T4, T5, T6]: ...  # fmt: skip
@overload
def branches(*functions: Callable[[], T]) -> tuple[T, ...]: ...
@judge_calls(DefinitionError)
def branches(*functions: Callable[[], Any]) -> tuple[Any, ...]:
    """Let sequences run at the same time: each function records one. Returns their results, in order.

    The steps after it wait for all of them, and may use any promise that was made in them. A branch may not
    use those of another one. Raises ``DefinitionError`` for anything except functions.
    """
    return _recording("mg.branches").branches(functions)


@overload
def first(a: Callable[[], T1], /) -> T1: ...
@overload
def first(a: Callable[[], T1], b: Callable[[], T2], /) -> T1 | T2: ...
@overload
def first(a: Callable[[], T1], b: Callable[[], T2], c: Callable[[], T3], /) -> T1 | T2 | T3: ...
@overload
def first(
    a: Callable[[], T1], b: Callable[[], T2], c: Callable[[], T3], d: Callable[[], T4], /
) -> T1 | T2 | T3 | T4: ...
@overload
def first(*functions: Callable[[], T]) -> T: ...
@overload
def first(a: T1, /) -> T1: ...
@overload
def first(a: T1, b: T2, /) -> T1 | T2: ...
@overload
def first(a: T1, b: T2, c: T3, /) -> T1 | T2 | T3: ...
@overload
def first(a: T1, b: T2, c: T3, d: T4, /) -> T1 | T2 | T3 | T4: ...
@overload
def first(*steps: T) -> T: ...
@judge_calls(DefinitionError)
def first(*branches: Any) -> Any:
    """Let branches run at the same time until one is done: ``mg.first(ups(order), dhl(order), post(order))``.

    Write the calls inside the parentheses, or pass functions, each of which records a sequence. Returns the
    promise of the winner's result, which the next steps use at once. If two are done at the same moment, the
    earlier one in the plan wins. The others lose: what has not begun is skipped, what runs is awaited, and
    what is done or in doubt is undone; the task ends only after that. A branch that fails loses too. If all
    fail, the step fails with all causes. Raises ``DefinitionError`` for a branch with an action declared
    ``no_return=True``, and ``PromiseError`` for steps that were not just recorded.
    """
    return _recording("mg.first").first(branches)


@overload
def when(condition: bool, *, then: Callable[[], T], otherwise: Callable[[], U]) -> T | U: ...  # noqa: FBT001
@overload
def when(condition: bool, *, then: Callable[[], T]) -> T | None: ...  # noqa: FBT001
@judge_calls(DefinitionError)
def when(
    condition: bool,  # noqa: FBT001 - a condition, not a flag
    *,
    then: Callable[[], Any],
    otherwise: Callable[[], Any] | None = None,
) -> Any:
    """Decide on a result: ``mg.when(risk == "high", then=lambda: review(order), otherwise=lambda:
    accept(order))``.

    ``condition``: ``promise == x``, ``promise != x``, a promise of a bool, or these in ``mg.all_of``,
    ``mg.any_of``, ``mg.not_``. Both functions run now and record their steps; only one side's will run.
    Returns the promise of that side's result (None without ``otherwise``), which other actions take as an
    argument. A bool that is known now decides now. Raises ``PromiseError``.
    """
    return _recording("mg.when").when(condition, then, otherwise)


@judge_calls(DefinitionError)
def each(
    items: Iterable[T], body: Callable[[T], R], *, limit: int = 1000, at_once: int | None = None
) -> list[R]:
    """Do something for every element of a result: ``mg.each(parts(order), lambda part: reserve(part))``.

    ``body`` runs once now, with a promise of an item, and records what to do with each. Returns the promise
    of the list of its results, in the order of the items. Other actions take it as an argument; it cannot be
    iterated over. Items do not wait for each other, except that at most ``at_once`` are under way. A list of
    more than ``limit`` items fails the step. For a list that is known now, ``body`` runs for each element.
    Raises ``PromiseError``.
    """
    return cast("list[R]", _recording("mg.each").each(items, body, limit, at_once))


# -- waits -----------------------------------------------------------------------------------------------


def _waiting(subject: str) -> Recording:
    """Return the plan that a wait belongs to."""
    if RECORDER.get() is None and known_call() is not None:
        raise DefinitionError(
            f'{subject} was called in an action, which holds a slot while it waits: raise mg.Later("3d"), or wait in the workflow'
        )
    return _recording(subject)


@judge_calls(DefinitionError)
def sleep(length: Duration) -> None:
    """Let the task wait here: ``mg.sleep("3d")``. The steps after it begin when the time is over.

    ``length``: seconds, a ``timedelta`` or a text with a unit, or the promise of a ``timedelta``, ``float``
    or ``int``; at most ten years. It runs on the store's clock from the end of the steps before. A task that
    sleeps holds no slot. A cancel ends the sleep. Raises ``DefinitionError`` and ``PromiseError``.
    """
    # typed as what it gives later; mg.parallel takes the promise
    return _waiting("mg.sleep").sleep(length)  # type: ignore[return-value]


@judge_calls(DefinitionError)
def sleep_until(moment: datetime) -> None:
    """Let the task wait here until a moment: ``mg.sleep_until(departs(trip))``.

    ``moment``: a ``datetime`` with a time zone, or the promise of one. If it has passed, the task does not
    wait. If the rules of its zone change meanwhile, makegood computes the moment again. A result has an
    offset and no zone. Raises ``DefinitionError`` and ``PromiseError``.
    """
    return _waiting("mg.sleep_until").sleep_until(moment)  # type: ignore[return-value]  # as above


@judge_calls(DefinitionError)
def fail(reason: str) -> NoReturn:
    """Fail the task for certain, in a side of ``mg.when``: ``otherwise=lambda: mg.fail("the boss said no")``.

    makegood undoes the task, or holds it with ``on_failure="hold"``, and ``reason`` is its cause. During
    planning it returns like any step. Raises ``DefinitionError`` outside of a side of ``mg.when``, where it
    would fail every task.
    """
    return _waiting("mg.fail").fail(reason)  # type: ignore[misc]  # see above


@judge_calls(DefinitionError)
def done(value: object = None) -> NoReturn:
    """End the workflow early, in a side of ``mg.when``: ``then=lambda: mg.done("nothing to ship")``.

    ``value``: the task's result, a value or a promise. Steps that have not begun are skipped, those that have
    begun are carried to their end, and then the task is processed. During planning it returns like any step.
    Raises ``DefinitionError`` outside of a side of ``mg.when`` and in a branch of ``mg.first``, and
    ``PayloadError`` for a value that the workflow does not return.
    """
    return _recording("mg.done").end(value)  # type: ignore[misc]  # see above


_MAKERS: Mapping[object, str] = {when: "when", each: "each", parallel: "parallel", first: "first"}
