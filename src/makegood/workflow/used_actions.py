"""Which actions a workflow function uses, as far as its code shows without running it."""

import inspect
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from makegood.declare.action import Action
from makegood.workflow.misuse import outer_names
from makegood.workflow.workflow import Workflow


def used_actions(workflow: Workflow[..., Any]) -> list[Action[..., Any]]:
    """Return the actions that a workflow's function names, or a function of its package that it calls.

    Names of modules and their parts, closures, lists and dictionaries of actions are followed. An action that
    is reached otherwise, such as by ``getattr`` with a text, is not found.
    """
    actions: dict[Action[..., Any], None] = {}
    functions = [inspect.unwrap(workflow.fn)]
    package = _package(functions[0])
    for fn in functions:  # the list grows meanwhile
        for value in _named_values(fn):
            if isinstance(value, Action):
                actions[value] = None
                continue
            function = inspect.unwrap(value.fn if isinstance(value, Workflow) else value)
            if (
                isinstance(function, FunctionType)
                and function not in functions
                and _package(function) == package
            ):
                functions.append(function)
    return list(actions)


def _package(fn: Callable[..., object]) -> str:
    return (fn.__module__ or "").partition(".")[0]


def _named_values(fn: Callable[..., Any]) -> Iterator[Any]:
    """Yield the functions, actions and workflows that a function's code names."""
    code = getattr(fn, "__code__", None)
    if code is None:
        return
    scope = outer_names(fn)
    names = list(dict.fromkeys(_names(code)))
    values = [scope[name] for name in names if name in scope]
    for value in values:
        if isinstance(value, ModuleType):  # payments.charge(...)
            values += [vars(value)[name] for name in names if name in vars(value)]
        elif isinstance(value, dict):
            yield from filter(callable, value.values())
        elif isinstance(value, list | tuple | set | frozenset):
            yield from filter(callable, value)
        elif callable(value):
            yield value


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names in a function's code, and in the functions inside it."""
    yield from (*code.co_names, *code.co_freevars)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
