"""Reads a workflow function's source once, when it is decorated.

It finds misuse of promises that goes unnoticed at run time.

``promise is None`` and ``isinstance(promise, X)`` are False, ``match promise`` falls through,
``type(promise)`` is not the user's type: silently, whatever the result will be. The check raises only when it
is *sure* that a promise is meant: every assignment to the name in that function, nested functions included,
makes it a promise.

It finds calls of ``time.sleep`` and ``asyncio.sleep``: the function runs at submission.

It finds the arguments of actions that are parameters of the workflow function, as they are: names that
nothing in it binds again. Where there is no source (a prompt, ``exec``), it finds none of these.
"""

import ast
import asyncio
import builtins
import inspect
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any, NamedTuple

from makegood.base.function_layers import definition
from makegood.declare.action import Action
from makegood.errors import DefinitionError, PromiseError

_OURS = __name__.partition(".")[0]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
REMEDY = (
    "decide with mg.when(promise == x, then=..., otherwise=...), or do it in an action, which gets the value"
)


Position = tuple[int, int]
"""The line in the file, and the byte in the line, where an expression ends."""


class Passing(NamedTuple):
    """A call of an action: for each argument, the parameter of the workflow function that it is, as it is."""

    action: object
    by_position: tuple[str | None, ...]
    by_name: Mapping[str, str]


def check_source(
    fn: Callable[..., object], makers: Mapping[object, str], where: str
) -> Mapping[Position, Passing]:
    """Return the calls of actions in the function, by where they end.

    Raises ``PromiseError``, naming the line, if the function surely asks what a promise cannot answer, and
    ``DefinitionError`` if it calls ``time.sleep`` or ``asyncio.sleep``.
    ``makers`` names ``mg.when``, ``mg.each``, ``mg.parallel`` and so on by the objects themselves.
    """
    fn = definition(fn)
    try:
        lines, first = inspect.getsourcelines(fn)
        text = "".join(lines)
        tree = ast.parse(source := textwrap.dedent(text))
    except (OSError, TypeError, SyntaxError, ValueError):  # no source, or not one statement of its own
        return {}
    function = next((node for node in ast.walk(tree) if isinstance(node, FUNCTIONS[:2])), None)
    if function is None:
        return {}
    reader = _Reader(function, outer_names(fn), makers)
    for line, subject in reader.misuses():
        file = inspect.getsourcefile(fn) or "the source"
        raise PromiseError(
            f"{where} ({file}, line {first + line - 1}): {subject} asks about a promise, not about the result, which is not known yet: "
            f"{REMEDY}"
        )
    for line, name in reader.naps():
        file = inspect.getsourcefile(fn) or "the source"
        raise DefinitionError(
            f"{where} ({file}, line {first + line - 1}): {name} runs at submission and makes the submitter wait: write mg.sleep(...)"
        )
    margin = len(lines[0]) - len(source.partition("\n")[0]) - 1
    return {(first + line - 1, margin + column): passing for (line, column), passing in reader.passings()}


def say_where(wrong: BaseException, fn: Callable[..., object], where: str) -> None:
    """Add to an error about a call of ``fn`` its declaration and the line that called it.

    The traceback shows only makegood's own lines. ``where`` names the function. If the call is awaited in an
    asyncio task of its own, the calling line is not visible from here: then only the traceback shows it.
    """
    code = getattr(definition(fn), "__code__", None)
    notes = [] if code is None else [f"{where} is declared in {code.co_filename}, line {code.co_firstlineno}"]
    frame = inspect.currentframe()
    while frame is not None and _package(frame) == _OURS:
        frame = frame.f_back
    if frame is not None and _package(frame) != "asyncio":
        notes.append(f"it was called in {frame.f_code.co_filename}, line {frame.f_lineno}")
    wrong.add_note("; ".join(notes))


def add_place(wrong: PromiseError) -> None:
    """Add to an error the file and the line of the user's code that raised it: its innermost line."""
    place = ""
    step = wrong.__traceback__
    while step is not None:
        if _package(step.tb_frame) != _OURS:
            place = f"{step.tb_frame.f_code.co_filename}, line {step.tb_lineno}"
        step = step.tb_next
    if place:
        wrong.args = (f"{wrong} ({place})",)


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def outer_names(fn: Callable[..., object]) -> dict[str, object]:
    """Return what names mean in a function that does not bind them itself."""
    code = getattr(fn, "__code__", None)
    names: dict[str, object] = {**vars(builtins), **getattr(fn, "__globals__", {})}
    for name, cell in zip(
        getattr(code, "co_freevars", ()), getattr(fn, "__closure__", None) or (), strict=False
    ):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            names.pop(name, None)
    return names


class _Reader:
    """Reads one workflow function."""

    def __init__(
        self,
        function: ast.FunctionDef | ast.AsyncFunctionDef | Any,
        scope: Mapping[str, object],
        makers: Mapping[object, str],
    ) -> None:
        self._function = function
        self._scope = scope
        self._makers = makers
        self._bindings: dict[str, list[ast.expr | None]] = {}  # None: bound to something that may be anything
        self._targets: set[ast.AST] = set()
        """Names whose binding is known already."""
        for node in ast.walk(function):  # a statement comes before the names in it
            if node is not function:
                self._bind(node)

    # -- what names are bound to -----------------------------------------------------------------------------

    def _bind(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
            if node.value is not None:
                self._assign(node.target, node.value)
            self._targets.add(node.target)
        elif node not in self._targets:
            for name in _names_bound_in(node):
                self._bindings.setdefault(name, []).append(None)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            pairs = zip(target.elts, self._parts(value, len(target.elts)) or (), strict=False)
        else:
            pairs = zip((target,), (value,), strict=True)
        for element, part in pairs:
            if isinstance(element, ast.Name):
                self._bindings.setdefault(element.id, []).append(part)
                self._targets.add(element)

    def _parts(self, value: ast.expr, count: int) -> list[ast.expr] | None:
        """Return the expressions that a tuple is unpacked from: ``a, b = mg.parallel(x(), y())``, ``a, b =
        x(), y()``.
        """
        parts: list[ast.expr] = []
        if isinstance(value, ast.Tuple):
            parts = value.elts
        elif isinstance(value, ast.Call) and self._maker(value) == "parallel" and not value.keywords:
            parts = value.args
        has_star = any(isinstance(part, ast.Starred) for part in parts)
        return parts if len(parts) == count and not has_star else None

    # -- what is surely a promise ----------------------------------------------------------------------------

    def _object_of(self, node: ast.expr) -> object:
        """Return the object that a name, or a name with attributes, means outside the function; None if
        unknown.
        """
        if isinstance(node, ast.Name):
            return None if node.id in self._bindings else self._scope.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self._object_of(node.value)
            return inspect.getattr_static(owner, node.attr, None) if inspect.ismodule(owner) else None
        return None

    def _maker(self, call: ast.Call) -> str | None:
        callee = self._object_of(call.func)
        return next((name for maker, name in self._makers.items() if maker is callee), None)

    def _is_promise(self, node: ast.expr, looking: frozenset[str] = frozenset()) -> bool:
        """Return whether an expression is surely a promise; ``looking``: names whose assignments are being
        checked.
        """
        if isinstance(node, ast.Name):
            values = self._bindings.get(node.id)
            if not values or node.id in looking:
                return False
            return all(v is not None and self._is_promise(v, looking | {node.id}) for v in values)
        if isinstance(node, ast.Attribute | ast.Subscript | ast.NamedExpr):
            return self._is_promise(node.value, looking)
        if isinstance(node, ast.IfExp):
            return self._is_promise(node.body, looking) and self._is_promise(node.orelse, looking)
        if not isinstance(node, ast.Call):
            return False
        if isinstance(self._object_of(node.func), Action):
            return True
        maker = self._maker(node)
        if not node.args or maker not in ("when", "each"):
            return maker in ("wait_for", "first")
        # mg.when of a bool and mg.each of a list that are known now return what they are given
        return self._is_promise(node.args[0], looking) or (
            maker == "when" and self._is_condition(node.args[0], looking)
        )

    def _is_condition(self, node: ast.expr, looking: frozenset[str]) -> bool:
        return (
            isinstance(node, ast.Compare)
            and len(node.ops) == 1
            and isinstance(node.ops[0], ast.Eq | ast.NotEq)
            and (self._is_promise(node.left, looking) or self._is_promise(node.comparators[0], looking))
        )

    def misuses(self) -> list[tuple[int, str]]:
        """Return (line in the function's source, expression) of each question about a promise, in order."""
        lines = []
        for node in ast.walk(self._function):
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
                for n, op in enumerate(node.ops):
                    if isinstance(op, ast.Is | ast.IsNot) and any(map(self._is_promise, sides[n : n + 2])):
                        lines.append((node.lineno, ast.unparse(node)))
            elif isinstance(node, ast.Call) and node.args and self._is_promise(node.args[0]):
                if self._object_of(node.func) in (isinstance, type, callable):
                    lines.append((node.lineno, ast.unparse(node)))
            elif isinstance(node, ast.Match):
                subjects = node.subject.elts if isinstance(node.subject, ast.Tuple) else [node.subject]
                if any(map(self._is_promise, subjects)):
                    lines.append((node.lineno, f"match {ast.unparse(node.subject)}"))
        return sorted(lines)

    def naps(self) -> list[tuple[int, str]]:
        """Return (line in the function's source, name) of each call that makes the submitter wait."""
        calls = [node for node in ast.walk(self._function) if isinstance(node, ast.Call)]
        return sorted(
            (call.lineno, ast.unparse(call.func))
            for call in calls
            if (callee := self._object_of(call.func)) is time.sleep or callee is asyncio.sleep
        )

    # -- what is passed on as it is --------------------------------------------------------------------------

    def passings(self) -> Iterator[tuple[Position, Passing]]:
        """Yield the calls of actions, with positions in the function's source."""
        args = self._function.args
        own = {a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)}
        unchanged_names = {name for name in own if len(self._bindings[name]) == 1}

        def parameter(node: ast.expr) -> str | None:
            return node.id if isinstance(node, ast.Name) and node.id in unchanged_names else None

        for node in ast.walk(self._function):
            if not isinstance(node, ast.Call) or not isinstance(action := self._object_of(node.func), Action):
                continue
            if any(isinstance(arg, ast.Starred) for arg in node.args):
                continue
            names = {k.arg: parameter(k.value) for k in node.keywords}
            by_name = {name: origin for name, origin in names.items() if name and origin}
            end = (node.end_lineno or 0, node.end_col_offset or 0)
            yield end, Passing(action, tuple(map(parameter, node.args)), by_name)


def _names_bound_in(node: ast.AST) -> list[str]:
    """Return the names that a part of the source binds itself, whatever is inside it."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return [name]
        case ast.arg(arg=name):
            return [name]
        case ast.alias(name=name, asname=other):
            return [(other or name).split(".")[0]]
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            return names
        case ast.MatchMapping(rest=str(name)):
            return [name]
        case (
            ast.FunctionDef()
            | ast.AsyncFunctionDef()
            | ast.ClassDef()
            | ast.ExceptHandler()
            | ast.MatchAs()
            | ast.MatchStar()
        ):
            return [node.name] if node.name else []
    return []
