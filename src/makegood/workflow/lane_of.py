"""The lanes of a workflow's tasks: what ``lane=`` of a workflow makes of its inputs."""

import inspect
from collections.abc import Mapping, Sequence
from types import CoroutineType
from typing import Any

from makegood.base.arguments import misfit
from makegood.base.function_layers import is_async
from makegood.errors import ConfigError, DefinitionError, MakegoodError, PromiseError
from makegood.model.lane import Lanes, WhenTaken, lane_names

_PLAIN = "it runs at submission, when the workflow is planned, so write a plain def or a lambda"


class LaneOf:
    """Names the lanes of each task of a workflow.

    Raises ``ConfigError`` for a key that cannot be one, and for an async function.
    """

    def __init__(self, lane: Any, at_once: int, when_taken: WhenTaken) -> None:
        if is_async(lane):
            raise ConfigError(f"lane= is an async function: {_PLAIN}")
        self._lane = lane
        names = () if callable(lane) else lane_names(lane)
        self._terms = Lanes(names, at_once, when_taken)

    def check(self, address: str, inputs: inspect.Signature) -> None:
        """Raise ``DefinitionError`` for a function that does not take a workflow's ``inputs``, as far as that
        can be known before it is called.
        """
        parameters = inputs.parameters.values()
        if not callable(self._lane) or any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
            return
        try:
            signature = inspect.signature(self._lane)
        except (TypeError, ValueError):  # of a function in C
            return
        args = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
        by_name = {p.name: p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
        if wrong := misfit(signature, args, by_name, noun="parameter"):
            raise DefinitionError(
                f"{address}: the function lane= takes {signature}, and is called with all inputs of the workflow, {inputs.replace(return_annotation=inputs.empty)}: "
                f"{wrong}"
            )

    def lanes(self, address: str, args: Sequence[Any], by_name: Mapping[str, Any]) -> Lanes:
        """Return the lanes of a task with these inputs. ``address``: names the workflow in errors.

        Raises ``DefinitionError`` for a function that raises, or does not return keys.
        """
        if not callable(self._lane):
            return self._terms
        try:
            names = lane_names(_no_coroutine(self._lane(*args, **by_name), address))
        except ConfigError as wrong:
            raise DefinitionError(
                f"{address}: the function lane= returned what is not a lane: {wrong}"
            ) from None
        except PromiseError as wrong:
            raise DefinitionError(
                f"{address}: the function lane= needs the moment of the schedule, which is not known yet: {wrong}"
            ) from None
        except MakegoodError:
            raise
        except Exception as fault:
            raise DefinitionError(
                f"{address}: the function lane= raised {type(fault).__name__}: {fault}; nothing was submitted"
            ) from fault
        return Lanes(names, self._terms.at_once, self._terms.when_taken)


def _no_coroutine(keys: Any, address: str) -> Any:
    if isinstance(keys, CoroutineType):
        keys.close()
        raise DefinitionError(f"{address}: the function lane= returned a coroutine: {_PLAIN}")
    return keys


NO_LANE = LaneOf(None, 1, "wait")
