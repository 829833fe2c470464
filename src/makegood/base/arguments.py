"""What is wrong with a call of makegood's functions: names that they do not have, and values of a wrong type.

Python reports one mistake of a call at a time, as a TypeError, and does not know what was meant. A wrong
value goes as deep as it can, and fails where nobody recognises it. ``judge_calls`` refuses both at the call,
with an error of makegood's.
"""

import collections.abc
import inspect
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cached_property, wraps
from importlib import import_module
from typing import Any, Final, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from makegood.base.did_you_mean import did_you_mean
from makegood.errors import ConfigError, MakegoodError

T = TypeVar("T", bound=Callable[..., Any])

_WORDS: Final[Mapping[Any, str]] = types.MappingProxyType(
    {str: "a text", int: "a whole number", float: "a number", bool: "True or False", type(None): "None", timedelta: "a timedelta", tuple: "a tuple",
     collections.abc.Mapping: "a mapping", collections.abc.Sequence: "a list or tuple", collections.abc.Callable: "a function"}
)  # fmt: skip
_MOST: Final = 2**63
_ALLOWED: Final[Mapping[Any, tuple[type, ...]]] = types.MappingProxyType(
    {float: (float, int), tuple: (tuple, list)}
)
"""What else a type allows."""
_SHAPES: Final = 64
"""Calls of one function that are remembered as fitting."""


def misfit(
    signature: inspect.Signature, args: Sequence[object], kwargs: Mapping[str, object], *, noun: str
) -> str:
    """Return what is wrong with the names and the number of a call's arguments, all of it; "" for a call that
    fits. ``noun``: what the message calls an argument.

    >>> misfit(inspect.signature(lambda order, hold: None), [1], {"hld": 2}, noun="parameter")
    "there is no parameter 'hld' (did you mean 'hold'?); hold is missing; there are order, hold"
    """
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return "; ".join(_mistakes(signature, args, kwargs, noun))
    return ""


def unknown(names: Iterable[str], vocabulary: Sequence[str], noun: str) -> Iterator[str]:
    """Yield a sentence for each name that is not a known one.

    >>> list(unknown(["trys"], ["tries", "wait"], "option"))
    ["there is no option 'trys' (did you mean 'tries'?)"]
    """
    for name in names:
        if name not in vocabulary:
            hint = did_you_mean(name, vocabulary)
            yield f"there is no {noun} {name!r}{f' ({hint})' if hint else ''}"


def _mistakes(
    signature: inspect.Signature, args: Sequence[object], kwargs: Mapping[str, object], noun: str
) -> Iterator[str]:
    parameters = signature.parameters.values()
    by_place = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    by_name = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    kinds = {p.kind for p in parameters}
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        yield from unknown(kwargs, by_name, noun)
    noun_form = noun if len(by_place) == 1 else f"{noun}s"
    if len(args) > len(by_place) and inspect.Parameter.VAR_POSITIONAL not in kinds:
        yield f"it takes {len(by_place) or 'no'} {noun_form} by position, not {len(args)}"
    positional = by_place[: len(args)]
    for name in positional:
        if name in kwargs and name in by_name:
            yield f"{name} is passed twice, by position and by name"
    mandatory = [p.name for p in parameters if p.name in (*by_place, *by_name) and p.default is p.empty]
    missing = [name for name in mandatory if name not in positional and name not in kwargs]
    if missing:
        yield f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
    yield f"there {'is' if len(by_name) == 1 else 'are'} {', '.join(by_name) or f'no {noun}s'}"


def checked_count(value: object, name: str = "limit") -> None:
    """Raise ``ConfigError`` for what is not a whole number from 0 that a store can keep; for the message,
    ``name`` names it.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MOST:
        raise ConfigError(f"{name}={value!r:.60}: a whole number from 0, below 2**63")


def judge_calls(
    error: type[MakegoodError],
    *,
    values: bool = False,
    called: str = "",
    own: Collection[str] = (),
    constructor: bool = True,
) -> Callable[[T], T]:
    """Return a decorator of a function, or of a class and all its public methods: calls that do not fit their
    parameters raise ``error``, and with ``values`` those whose values are not of the annotated types.

    ``called``: what messages call the class instead of its name. ``own``: methods that judge their values
    themselves. ``constructor``: whether others than makegood make objects of the class.
    """

    def decorate(target: Any) -> Any:
        if not isinstance(target, type):
            return _wrapper(target, target.__qualname__.rpartition(".")[2], error, values=values)
        for name, member in list(vars(target).items()):
            if isinstance(member, types.FunctionType) and (
                constructor if name == "__init__" else name[0] != "_"
            ):
                label = (called or target.__name__) if name == "__init__" else name
                setattr(target, name, _wrapper(member, label, error, values=values and name not in own))
        return target

    return decorate


def _wrapper(fn: Callable[..., Any], title: str, error: type[MakegoodError], *, values: bool) -> Any:
    judge = Judge(fn, title, error)
    check = judge.check if values else None
    own = int(fn.__code__.co_varnames[:1] == ("self",))  # which needs no check

    @wraps(fn)
    def calling(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if check is not None and (kwargs or len(args) > own):
            check(args, kwargs)
        try:
            return fn(*args, **kwargs)
        except TypeError:
            judge.refuse_misfit(args, kwargs)
            raise

    return _mark_coroutine_function(calling) if inspect.iscoroutinefunction(fn) else calling


def _mark_coroutine_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function that returns a coroutine as a coroutine function: a second coroutine around the first
    would cost as much as all else that is done here.
    """
    mark = getattr(inspect, "markcoroutinefunction", None)
    if mark is not None:  # from Python 3.12 on
        return mark(fn)  # type: ignore[no-any-return]
    name = "_is_coroutine"  # its older name
    setattr(fn, name, vars(import_module("asyncio.coroutines"))[name])
    return fn


class Judge:
    """Judges the calls of one function, which messages name ``title``."""

    def __init__(self, fn: Callable[..., Any], title: str, error: type[MakegoodError]) -> None:
        self._fn = fn
        self._called = title
        self._error = error
        self._fitting: set[object] = set()
        """Calls that fit, whatever their values: the types of these, the names of those passed by name."""

    def refuse_misfit(self, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """Raise the error for a call whose names or number of arguments do not fit."""
        signature = inspect.signature(self._fn)
        first = next(iter(signature.parameters), "")
        if first == "self":
            signature = signature.replace(parameters=list(signature.parameters.values())[1:])
            args = args[1:]
        if wrong := misfit(signature, args, kwargs, noun="option"):
            raise self._error(f"{self._called}(): {wrong}") from None

    def check(self, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """Raise the error for a value of a wrong type."""
        shape = (*map(type, args), *kwargs, *map(type, kwargs.values())) if kwargs else (*map(type, args),)
        if shape in self._fitting:
            return
        by_place, by_name, rest = self._types
        pairs = [*zip(by_place, args, strict=False), *((rest, value) for value in args[len(by_place) :])]
        pairs += [(by_name.get(name), value) for name, value in kwargs.items()]
        exact = True
        for rule, value in pairs:
            if rule is not None and type(value) not in rule.exact:
                exact = False
                if not _is(value, rule.annotation):
                    raise self._wrong(rule, value)
        if exact and len(self._fitting) < _SHAPES:
            self._fitting.add(shape)

    def _wrong(self, rule: "_ValueRule", value: object) -> MakegoodError:
        return self._error(f"{self._called}(): {rule.name}={value!r:.100}: pass {_words(rule.annotation)}")

    @cached_property
    def _parameters(self) -> Sequence[inspect.Parameter]:
        return tuple(inspect.signature(self._fn).parameters.values())

    @cached_property
    def _types(self) -> "tuple[list[_ValueRule | None], dict[str, _ValueRule], _ValueRule | None]":
        """What is judged: by position, by name, and the rest by position."""
        hints, judgements = get_type_hints(self._fn), dict[str, _ValueRule]()
        for p in self._parameters:
            annotation = _checkable(hints.get(p.name, Any))
            if annotation is not None:
                judgements[p.name] = _ValueRule(p.name, annotation, _exact(annotation))
        by_name = {
            p.name: judgements[p.name]
            for p in self._parameters
            if p.name in judgements and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        }
        by_place = [judgements.get(p.name) for p in self._parameters if p.kind <= p.POSITIONAL_OR_KEYWORD]
        rest = [
            judgements[p.name]
            for p in self._parameters
            if p.name in judgements and p.kind is p.VAR_POSITIONAL
        ]
        return by_place, by_name, rest[0] if rest else None


class _ValueRule(NamedTuple):
    """A parameter whose values are judged."""

    name: str
    annotation: Any
    exact: frozenset[type]
    """Types all of whose values fit: nearly always one of these is passed."""


def _exact(annotation: Any) -> frozenset[type]:
    parts = annotation if isinstance(annotation, tuple) else (annotation,)
    kinds = {kind for part in parts for kind in _ALLOWED.get(part, (part,))}
    return frozenset(kind for kind in kinds if isinstance(kind, type))


def _checkable(annotation: Any) -> Any:
    """Return an annotation that ``_is`` can check; None for one that allows anything, or says too little."""
    if annotation is None:
        return type(None)
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        parts = [_checkable(part) for part in get_args(annotation)]
        return None if None in parts else tuple(parts)
    if origin is Literal:
        return annotation
    kind = origin or annotation
    plain = isinstance(kind, type) and kind not in (object, Any) and not getattr(kind, "_is_protocol", False)
    return kind if plain else None


def _is(value: object, annotation: Any) -> bool:
    if isinstance(annotation, tuple):
        return any(_is(value, part) for part in annotation)
    if get_origin(annotation) is Literal:
        return any(value == choice and type(value) is type(choice) for choice in get_args(annotation))
    if isinstance(value, bool):
        return annotation is bool
    if isinstance(value, str | bytes):  # each is a sequence of others of its kind, which nobody means
        return isinstance(value, annotation) and annotation in (str, bytes)
    return isinstance(value, _ALLOWED.get(annotation, annotation))


def _words(annotation: Any) -> str:
    """Return a type in words.

    >>> _words((str, int, type(None)))
    'a text, a whole number or None'
    """
    if isinstance(annotation, tuple):
        if timedelta in annotation:
            rest = [_words(part) for part in annotation if part is type(None)]
            return " or ".join(['a duration (seconds, a timedelta, or "200ms", "20s", "5m", "2h")', *rest])
        *before, last = dict.fromkeys(map(_words, annotation))
        return f"{', '.join(before)} or {last}" if before else last
    if get_origin(annotation) is Literal:
        *before, last = map(repr, get_args(annotation))
        return f"{', '.join(before)} or {last}"
    text = _WORDS.get(annotation)
    if text is not None:
        return text
    name: str = annotation.__name__
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
