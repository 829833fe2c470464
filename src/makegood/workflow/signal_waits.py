"""``mg.wait_for``: a workflow waits for a signal, and its task uses nobody's time meanwhile."""

from collections.abc import Sequence
from typing import Any, Final, TypeVar, overload

from makegood.base.arguments import judge_calls
from makegood.base.durations import Duration, seconds, short_duration
from makegood.declare.action import RECORDER
from makegood.declare.call import _CALL
from makegood.declare.signal import Signal
from makegood.errors import ConfigError, DefinitionError
from makegood.model.plan import MOST_DELAY, StepPlan
from makegood.workflow.plan_run import Planning
from makegood.workflow.promise import Promise
from makegood.workflow.recorder import NO_VALUE

T = TypeVar("T")
U = TypeVar("U")

_UNTYPED: Final = object()


@overload
def wait_for(signal: Signal[T], /, *, timeout: Duration | None = None) -> T: ...
@overload
def wait_for(signal: Signal[T], /, *, timeout: Duration, otherwise: U) -> T | U: ...
@overload
def wait_for(name: str, of: type[T], /, *, timeout: Duration | None = None) -> T: ...
@overload
def wait_for(name: str, of: type[T], /, *, timeout: Duration, otherwise: U) -> T | U: ...
@judge_calls(DefinitionError)
def wait_for(
    signal: Any,
    of: Any = _UNTYPED,
    /,
    *,
    timeout: Duration | None = None,
    otherwise: Any = NO_VALUE,
) -> Any:
    """Wait for a signal: ``answer = mg.wait_for(approval, timeout="7d")``. Returns the promise of its value.

    ``signal``: what ``app.signal`` returned, or a name and the type of its values. One signal ends one wait.
    A signal that came before the step began, and that no step has used, ends the wait at once; of several,
    the one that came first. ``timeout``: from the moment at which the step begins. After it the step's result
    is ``otherwise``, a value or a promise; without ``otherwise`` the step has failed, and the task is undone,
    or held. Raises ``DefinitionError`` for a wait that makes no sense, and outside a workflow function.
    """
    planning = _planning()
    if not isinstance(signal, Signal):
        if not isinstance(signal, str) or of is _UNTYPED:
            raise DefinitionError(
                f"mg.wait_for takes a signal, as app.signal(name, type) returns it, or a name and a type, not {signal!r:.80}: "
                f'write approval = {planning.app}.signal("approval", bool), and mg.wait_for(approval)'
            )
        signal = planning.signal(signal, of)
    elif of is not _UNTYPED:
        raise DefinitionError(
            f"mg.wait_for({signal.name}, ...): the signal has its type, so leave out the second argument"
        )
    return planning.recording("mg.wait_for").wait_for(
        signal, _timeout(signal.name, timeout, otherwise), otherwise
    )


def _planning() -> Planning:
    planning = RECORDER.get()
    if isinstance(planning, Planning):
        return planning
    if _CALL.get() is not None:
        raise DefinitionError(
            'mg.wait_for belongs in the workflow function: an action keeps a slot for as long as it runs. Raise mg.Later("3d") to have the '
            "action called again, or wait in the workflow"
        )
    raise DefinitionError(
        "mg.wait_for belongs in a @app.workflow function, which runs when a task is submitted: no plan is being built here"
    )


def _timeout(name: str, timeout: Duration | None, otherwise: object) -> float | None:
    if timeout is None:
        if otherwise is not NO_VALUE:
            raise DefinitionError(
                f"mg.wait_for({name}, otherwise=...): without timeout= the wait never ends without a signal, so pass timeout= as well"
            )
        return None
    if isinstance(timeout, Promise):
        raise DefinitionError(
            f'mg.wait_for({name}, timeout=...): the length is known when the task is submitted: write a duration, such as "7d"'
        )
    try:
        length = seconds(timeout, name="timeout")
    except ConfigError as wrong:
        raise DefinitionError(f"mg.wait_for({name}): {wrong}") from None
    if length > MOST_DELAY:
        raise DefinitionError(
            f"mg.wait_for({name}, timeout={timeout!r}): longer than ten years, which is the most"
        )
    return length


def check_timeouts(steps: Sequence[StepPlan], within: float | None, where: str) -> None:
    """Raise ``DefinitionError`` for a wait that always begins and that the workflow's deadline always cuts
    off.
    """
    for step in steps if within is not None else ():
        if step.kind != "wait_for" or step.guards or step.args is None:
            continue
        timeout = float(step.args.parts[0])
        if within is not None and timeout >= within:
            raise DefinitionError(
                f"{step.name} of {where} waits for up to {short_duration(timeout)}, and complete_within={short_duration(within)!r} ends the task before: raise "
                f"complete_within, leave it out, or wait less"
            )
