"""The lanes of a workflow's tasks: what ``lane=`` of a workflow makes of its inputs."""

from collections.abc import Mapping, Sequence
from typing import Any

from makegood.errors import ConfigError, DefinitionError, PromiseError
from makegood.model.lane import Lanes, WhenTaken, lane_names


class LaneOf:
    """Names the lanes of each task of a workflow. Raises ``ConfigError`` for a key that cannot be one."""

    def __init__(self, lane: Any, at_once: int, when_taken: WhenTaken) -> None:
        self._lane = lane
        names = () if callable(lane) else lane_names(lane)
        self._terms = Lanes(names, at_once, when_taken)

    def lanes(self, address: str, args: Sequence[Any], by_name: Mapping[str, Any]) -> Lanes:
        """Return the lanes of a task with these inputs. ``address``: names the workflow in errors.

        Raises ``DefinitionError`` for a function that does not return keys, and whatever it raises.
        """
        if not callable(self._lane):
            return self._terms
        try:
            names = lane_names(self._lane(*args, **by_name))
        except ConfigError as wrong:
            raise DefinitionError(
                f"{address}: the function lane= returned what is not a lane: {wrong}"
            ) from None
        except PromiseError as wrong:
            raise DefinitionError(
                f"{address}: the function lane= needs the moment of the schedule, which is not known yet: {wrong}"
            ) from None
        return Lanes(names, self._terms.at_once, self._terms.when_taken)


NO_LANE = LaneOf(None, 1, "wait")
