"""Public names that were changed. The old ones work until version 0.2, and the log reports each of them once.

``OLD`` is the only list of them. Names of options and files, of the environment and the command line are
looked up in it; ``keeps_old_names`` accepts those of a class.
"""

import functools
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

from makegood.errors import ConfigError

C = TypeVar("C", bound=type[Any])

SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "every": "supervise_every",
        "grace": "late_after",
        "starve": "starved_after",
        "life": "dead_after",
        "tell": "alerts_every",
        "leaderless": "leaderless_after",
        "poll": "poll_every",
        "hold": "max_tasks",
        "claim": "claim_batch",
        "keep": "retention",
        "sweep": "cleanup_every",
    }
)

OLD: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "Options": SETTINGS,
        "Client": {"poll": "poll_every"},
        "SyncClient": {"poll": "poll_every"},
        "action": {"settle": "remembers"},
        "Queue": {"hold": "extend"},
        "SyncQueue": {"hold": "extend"},
        "World": {"settle": "run_to_rest"},
        "Election": {"grace": "wind_down"},
        "Settings": {"grace": "wind_down"},
        "makegood": {
            "--every": "--supervise-every",
            "--grace": "--wind-down",
            "--hold": "--keep-lease",
            "--why": "--reason",
        },
    }
)
"""What has another name now: parameters, attributes and methods by their class or function, and options of
the command line.
"""

log = logging.getLogger("makegood")


@functools.cache
def report(old: str, new: str) -> None:
    """Log, once in a process, that an old name was used."""
    log.warning("%s is called %s now; the old name works until makegood 0.2", old, new)


def translated(where: str, names: Mapping[str, str], given: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return arguments under their present names; raises ``ConfigError`` for one given under both names."""
    values = dict(given)
    for old in names.keys() & values.keys():
        new = names[old]
        report(f"{where}({old}=)", f"{new}=")
        if new in values:
            raise ConfigError(f"{where}({old}=, {new}=): {old} is the old name of {new}: pass {new} only")
        values[new] = values.pop(old)
    return values


class _Former:
    """An attribute or a method under its old name."""

    def __init__(self, where: str, old: str, new: str) -> None:
        self._old, self._new = f"{where}.{old}", new

    def __get__(self, one: object, owner: type) -> Any:
        report(self._old, self._new)
        return getattr(owner if one is None else one, self._new)


def keeps_old_names(cls: C) -> C:
    """Let a class accept the old names of its parameters, attributes and methods."""
    where = cls.__name__
    names = OLD[where]
    made: Callable[..., None] = cls.__init__
    if not set(inspect.signature(made).parameters).isdisjoint(names.values()):

        @functools.wraps(made)
        def init(self: object, *args: Any, **kwargs: Any) -> None:
            made(self, *args, **translated(where, names, kwargs.items()))

        setattr(cls, "__init__", init)  # noqa: B010 - a type checker refuses the plain assignment
    for old, new in names.items():
        if hasattr(cls, new):
            setattr(cls, old, _Former(where, old, new))
    return cls
