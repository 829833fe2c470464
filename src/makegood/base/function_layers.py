"""What a callable is made of: decorators, ``functools.partial``, methods and callable objects around a
function.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType
from typing import Any


def layers(fn: object) -> Iterator[Any]:
    """Yield a callable and all that it wraps, from the outermost to the function that was written with
    ``def``.

    >>> [layer is pow for layer in layers(functools.partial(pow, 2))]
    [False, True]
    """
    ids: set[int] = set()
    layer: Any = fn
    while layer is not None and id(layer) not in ids:
        ids.add(id(layer))
        yield layer
        layer = _below(layer, transparent=False)


def definition(fn: Callable[..., object]) -> Any:
    """Return the innermost layer: the function whose annotations and source count."""
    *_, innermost = layers(fn)
    return innermost


def is_async(fn: object) -> bool:
    """Whether a call surely returns a coroutine; False for a ``def``, whatever it returns.

    A decorator counts as what it is itself, since it may await the function that it wraps.
    """
    layer: Any = fn
    while layer is not None:
        try:
            if inspect.iscoroutinefunction(layer):
                return True
        except TypeError:  # a mock with the look of a function
            return False
        layer = _below(layer, transparent=True)
    return False


def _below(layer: Any, *, transparent: bool) -> Any:
    """Return the next layer; None below the innermost. ``transparent``: only a layer whose result is that of
    the one below.
    """
    if isinstance(layer, functools.partial):
        return layer.func
    if isinstance(layer, MethodType | staticmethod | classmethod):
        return layer.__func__
    inner = getattr(layer, "__wrapped__", None)
    if inner is not None and callable(inner):
        return None if transparent else inner
    call = getattr(type(layer), "__call__", None)  # noqa: B004 - the function itself, not whether there is one
    return call if isinstance(call, FunctionType) and not isinstance(layer, FunctionType) else None
