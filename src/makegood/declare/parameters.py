"""The parameters of a function that users declare: their names and defaults, and how arguments are bound."""

import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

from makegood.errors import DefinitionError

EMPTY = inspect.Parameter.empty
_OURS = ("makegood.declare.", "makegood.workflow.")
"""Rooms whose frames are between a decorator and the user's code."""


class Parameters:
    """The parameters of a function, for binding calls of it fast."""

    __slots__ = ("_signature", "defaults", "names", "positional", "where")

    def __init__(self, fn: Callable[..., object], where: str) -> None:
        self.where = where
        """Names the function in messages."""
        self._signature = signature(fn, where)
        found = self._signature.parameters.values()
        for p in found:
            _refuse_kind(p, where)
        self.names = tuple(p.name for p in found)
        """In order."""
        self.positional = sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in found)
        """The number of parameters, from the first, that may be passed by position."""
        self.defaults: Mapping[str, object] = {p.name: p.default for p in found if p.default is not EMPTY}
        """By name."""

    def __str__(self) -> str:
        return str(self._signature)

    def bind(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        """Return the arguments of a call by name, defaults filled in, in the order of the parameters.

        Raises ``DefinitionError`` for a call that does not fit.
        """
        if not kwargs and len(args) == len(self.names) == self.positional:
            return dict(zip(self.names, args, strict=True))
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as wrong:
            raise DefinitionError(f"{self.where}{self._signature}: {wrong}") from None
        bound.apply_defaults()
        return bound.arguments

    def left(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Collection[str]:
        """Return the parameters that a fitting call leaves to their defaults."""
        if len(args) + len(kwargs) == len(self.names):
            return ()
        return {*self.names[len(args) :]} - kwargs.keys()


def signature(fn: Callable[..., object], where: str) -> inspect.Signature:
    """Return a function's signature; raises ``DefinitionError`` if it is not a function, or is a
    generator.
    """
    if isinstance(fn, type) or not callable(fn):
        raise DefinitionError(f"{where} is declared with {fn!r}: decorate a function, def or async def")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise DefinitionError(f"{where} has a yield in it: return the result, it is kept as a whole")
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError) as wrong:
        raise DefinitionError(f"{where}: its parameters cannot be read ({wrong}): wrap it in a def") from None


def _refuse_kind(p: inspect.Parameter, where: str) -> None:
    if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
        raise DefinitionError(
            f"{where} takes {'*' if p.kind is p.VAR_POSITIONAL else '**'}{p.name}: arguments are kept by name, so write each "
            f"parameter out; for many values take one list or dict"
        )
    if p.kind is p.POSITIONAL_ONLY:
        raise DefinitionError(
            f"{where}: {p.name} can be passed by position only, but arguments are kept by name: remove the '/'"
        )


def names_around() -> Mapping[str, Any]:
    """Return the names visible to the user's code where it called us: they include classes local to a
    function.
    """
    frame = sys._getframe(1)  # noqa: SLF001 - CPython's documented way to see where a decorator is applied
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_OURS):
        frame = frame.f_back
    return frame.f_locals
