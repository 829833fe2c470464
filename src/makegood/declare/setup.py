"""Setups: what a process opens once for its actions, such as a pool of connections, and closes at its drain.

An action asks for one by name, with a keyword-only parameter whose default is ``mg.SETUP``. Such a parameter
is no argument of the step: plans do not have it, and the store does not keep it.
"""

import inspect
from collections.abc import Callable, Iterable
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from makegood.base.function_layers import definition
from makegood.base.ids import checked_name
from makegood.errors import DefinitionError, DuplicateNameError


class _Given:
    """The type of ``mg.SETUP``."""

    def __repr__(self) -> str:
        return "mg.SETUP"


SETUP: Final[Any] = _Given()
"""The default of a parameter that a setup of the same name fills."""


class Setup:
    """One setup of an app. ``needs``: the setups that it uses itself; ``awaits``: it is opened and closed on
    the event loop, else in a thread. ``withholds``: whether texts of its errors may be in no log and no
    alert, as its app has a codec.
    """

    def __init__(self, fn: Any, app: str, *, withholds: bool) -> None:
        self.withholds = withholds
        self.make, self.awaits = _manager(fn, f"{app}.setup")
        self.name = checked_name(fn.__name__, "setup")
        self.where = f"the setup {self.name} of app {app} ({place_of(fn)})"
        parameters = inspect.signature(fn).parameters
        self.needs = setups_in(parameters.values(), self.where)
        if others := [name for name in parameters if name not in self.needs]:
            raise DefinitionError(
                f"{self.where} takes {', '.join(others)}, and is called without arguments: of other setups write `*, {others[0]}: ... = mg.SETUP`"
            )


class Setups(dict[str, Setup]):
    """The setups of an app, by name. ``app``: its name. ``withholds``: see ``Setup``."""

    def __init__(self, app: str, *, withholds: bool = False) -> None:
        super().__init__()
        self._app = app
        self._withholds = withholds

    def add(self, fn: Any) -> None:
        """Declare a setup. Raises ``DefinitionError``, also for setups that need each other."""
        setup = Setup(fn, self._app, withholds=self._withholds)
        if setup.name in self:
            raise DuplicateNameError(
                f"app {self._app} has two setups named {setup.name}: {self[setup.name].where}, and {setup.where}"
            )
        self[setup.name] = setup
        self._refuse_cycle(setup, (setup.name,))

    def _refuse_cycle(self, setup: Setup, path: tuple[str, ...]) -> None:
        for name in setup.needs:
            if name == path[0]:
                del self[name]
                raise DefinitionError(
                    f"setups of app {self._app} need each other, so none can be the first: {' -> '.join((*path, name))}"
                )
            if name in self and name not in path:
                self._refuse_cycle(self[name], (*path, name))

    def in_order(self, names: Iterable[str], where: str) -> list[Setup]:
        """Return the setups of these names and those that they need, in the order in which to open them.

        ``where`` asks for them. Raises ``DefinitionError`` for an unknown name.
        """
        by_name: dict[str, Setup] = {}
        for name in names:
            if name not in self:
                raise DefinitionError(
                    f"{where} takes {name}=mg.SETUP, and app {self._app} declares no setup {name!r}; it has {', '.join(self) or 'none'}: "
                    f"write @{self._app}.setup above a function {name}"
                )
            setup = self[name]
            by_name |= {each.name: each for each in self.in_order(setup.needs, setup.where)}
            by_name[name] = setup
        return list(by_name.values())


def setups_in(parameters: Iterable[inspect.Parameter], where: str) -> tuple[str, ...]:
    """Return the names of the parameters that setups fill. Raises ``DefinitionError`` for one before the
    ``*``.
    """
    setups = [p for p in parameters if p.default is SETUP]
    for p in setups:
        if p.kind is not p.KEYWORD_ONLY:
            raise DefinitionError(
                f"{where}: {p.name}=mg.SETUP is filled by name: write it after a `*`, `*, {p.name}: ... = mg.SETUP`"
            )
    return tuple(p.name for p in setups)


def place_of(fn: Callable[..., Any]) -> str:
    """Return the file and line of a function, or its name if it has none."""
    code = getattr(definition(fn), "__code__", None)
    name: str = getattr(fn, "__name__", repr(fn))
    return name if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def _manager(fn: Any, where: str) -> tuple[Callable[..., Any], bool]:
    """Return what makes the context manager of a setup, and whether that is awaited."""
    if inspect.isasyncgenfunction(fn):
        return asynccontextmanager(fn), True
    if inspect.isgeneratorfunction(fn):
        return contextmanager(fn), False
    body = inspect.unwrap(fn) if callable(fn) else None
    if inspect.isasyncgenfunction(body) or hasattr(body, "__aenter__"):
        return fn, True
    if inspect.isgeneratorfunction(body) or hasattr(body, "__enter__"):
        return fn, False
    raise DefinitionError(
        f"{where} takes a function that yields once, def or async def: it opens something, yields it, and closes it afterwards; or one under "
        f"@contextmanager or @asynccontextmanager; not {fn!r:.100}"
    )
