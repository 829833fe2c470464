"""The parameters of a function that users declare: their names and defaults, and how arguments are bound."""

import functools
import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

from makegood.base.arguments import misfit
from makegood.base.function_layers import layers
from makegood.declare.setup import setups_in
from makegood.errors import DefinitionError
from makegood.payload.unchecked_rules import refuse_default

EMPTY = inspect.Parameter.empty
_CACHE = ("cache_key", "cache_lock")
"""What a function has that ``cachetools`` caches."""
_MOCK = "unittest.mock.NonCallableMock"
_METHOD = "declare the method of an object, `agent.action(...)(shop.charge)`, or a staticmethod, or a function of the module"
_OURS = ("makegood.base.", "makegood.declare.", "makegood.workflow.")
"""Rooms whose frames are between a decorator and the user's code."""


class Parameters:
    """The parameters of a function that the steps fill, for binding calls of it fast."""

    __slots__ = ("_signature", "defaults", "names", "positional", "where")

    def __init__(self, fn: Callable[..., object], where: str) -> None:
        self.where = where
        """Names the function in messages."""
        whole = signature(fn, where)
        setups = setups_in(whole.parameters.values(), where)
        self._signature = whole.replace(
            parameters=[p for p in whole.parameters.values() if p.name not in setups]
        )
        parameters = self._signature.parameters.values()
        for p in parameters:
            _refuse_kind(p, where)
        self.names = tuple(p.name for p in parameters)
        """In order."""
        self.positional = sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
        """The number of parameters, from the first, that may be passed by position."""
        self.defaults: Mapping[str, object] = {
            p.name: p.default for p in parameters if p.default is not EMPTY
        }
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
            arguments = self._signature.bind(*args, **kwargs)
        except TypeError:
            wrong = misfit(self._signature, args, kwargs, noun="parameter")
            raise DefinitionError(f"{self.where}{self._signature}: {wrong}") from None
        arguments.apply_defaults()
        return arguments.arguments

    def names_left_out(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Collection[str]:
        """Return the parameters that a fitting call leaves to their defaults."""
        if len(args) + len(kwargs) == len(self.names):
            return ()
        return {*self.names[len(args) :]} - kwargs.keys()


if sys.version_info >= (
    3,
    14,
):  # annotations are evaluated when asked for, and may name what is not there yet
    from annotationlib import Format

    _signature = functools.partial(inspect.signature, annotation_format=Format.FORWARDREF)
else:
    _signature = inspect.signature


def signature(fn: Callable[..., object], where: str, *, by_name: bool = True) -> inspect.Signature:
    """Return a function's signature.

    ``by_name``: makegood calls it with arguments by name, else by position. Raises ``DefinitionError`` for
    what could only fail, or do nothing, when a task runs, and for a default that stands for a rule.
    """
    if isinstance(fn, classmethod | functools.partialmethod):
        raise DefinitionError(f"{where} is declared with {fn!r}, which no call reaches: {_METHOD}")
    if isinstance(fn, type) or not callable(fn):
        raise DefinitionError(f"{where} is declared with {fn!r}: decorate a function, def or async def")
    for layer in layers(fn):
        _refuse_layer(layer, where)
    fn = fn.__func__ if isinstance(fn, staticmethod) else fn
    try:
        outer = _signature(fn)
        own = _signature(fn, follow_wrapped=False)
    except (TypeError, ValueError) as wrong:
        raise DefinitionError(f"{where}: its parameters cannot be read ({wrong}): wrap it in a def") from None
    _refuse_unbound(fn, outer, where)
    if own != outer:
        _refuse_uncallable(own, outer, where, by_name=by_name)
    for p in outer.parameters.values():
        try:
            refuse_default(p.default, f"its parameter {p.name}")
        except TypeError as wrong:
            raise DefinitionError(f"{where}: {wrong}") from None
    if not by_name and (setups := setups_in(outer.parameters.values(), where)):
        raise DefinitionError(
            f"{where} takes {setups[0]}=mg.SETUP, which only actions, undos, probes and other setups may"
        )
    return outer


def _refuse_layer(layer: Any, where: str) -> None:
    """Refuse mocks, generators and caches, also inside decorators."""
    if any(f"{kind.__module__}.{kind.__name__}" == _MOCK for kind in type(layer).__mro__):
        raise DefinitionError(
            f"{where} is declared with a mock, whose parameters and results are unknown: declare a def, and let that call the mock"
        )
    if inspect.isgeneratorfunction(layer) or inspect.isasyncgenfunction(layer):
        raise DefinitionError(
            f"{where} has a yield in it: return the result, it is kept as a whole; what wraps the generator {getattr(layer, '__name__', '')}, such as "
            f"a context manager, is used inside a def of its own"
        )
    if isinstance(layer, functools._lru_cache_wrapper) or all(hasattr(layer, name) for name in _CACHE):  # noqa: SLF001 - its only name
        raise DefinitionError(
            f"{where} is cached ({type(layer).__name__}): for equal arguments it would not be called again, so nothing would happen for the "
            f"next task; take the cache away, or put it around what this function only reads"
        )
    if isinstance(getattr(layer, "registry", None), Mapping) and callable(getattr(layer, "dispatch", None)):
        raise DefinitionError(
            f"{where} is a singledispatch function, which chooses by position, while arguments are passed by name: write a def "
            f"that calls it"
        )


def _refuse_unbound(fn: Callable[..., object], own_signature: inspect.Signature, where: str) -> None:
    """Refuse a function of a class that lacks its object."""
    outer = getattr(fn, "__qualname__", "").rpartition(".")[0]
    if (
        outer
        and not outer.endswith("<locals>")
        and next(iter(own_signature.parameters), "") in ("self", "cls")
    ):
        raise DefinitionError(
            f"{where} is a method of {outer}, and nobody passes its {next(iter(own_signature.parameters))}: {_METHOD}"
        )


def _refuse_uncallable(
    own: inspect.Signature, outer: inspect.Signature, where: str, *, by_name: bool
) -> None:
    """Refuse a decorator that shows the parameters of what it wraps but does not take them."""
    try:
        if by_name:
            own.bind(**dict.fromkeys(outer.parameters))
        else:
            own.bind(*[None] * min(2, len(outer.parameters)))
    except TypeError as wrong:
        how = "by name: let it take **kwargs" if by_name else "by position: let it take *args"
        raise DefinitionError(
            f"{where}: its decorator shows the parameters {outer}, but takes {own} ({wrong}); makegood passes arguments {how}, and pass them on"
        ) from None


def _refuse_kind(p: inspect.Parameter, where: str) -> None:
    if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
        raise DefinitionError(
            f"{where} takes {'*' if p.kind is p.VAR_POSITIONAL else '**'}{p.name}: arguments are kept by name, so write each "
            f"parameter out; for many values take one list or dict; a decorator that hides them needs functools.wraps"
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
