"""Finds misuse of promises in a workflow function's source that goes unnoticed at run time.

``promise is None`` and ``isinstance(promise, X)`` are False, ``match promise`` falls through,
``type(promise)`` is not the user's type: silently, whatever the result will be. The check reads the function
once, when it is decorated. It raises only when it is *sure* that a promise is meant: every assignment to the
name in that function, nested functions included, makes it a promise. Where there is no source (a prompt,
``exec``), there is no check.
"""

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from makegood.declare.action import Action
from makegood.errors import PromiseError

_OURS = __name__.partition(".")[0]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
REMEDY = (
    "decide with mg.when(promise == x, then=..., otherwise=...), or do it in an action, which gets the value"
)


def check_source(fn: Callable[..., object], makers: Mapping[object, str], where: str) -> None:
    """Raise ``PromiseError``, naming the line, if the function surely asks what a promise cannot answer.

    ``makers`` names ``mg.when``, ``mg.each`` and ``mg.parallel`` by the objects themselves.
    """
    fn = inspect.unwrap(fn)
    try:
        lines, first = inspect.getsourcelines(fn)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError, ValueError):  # no source, or not one statement of its own
        return
    found = next((node for node in ast.walk(tree) if isinstance(node, FUNCTIONS[:2])), None)
    if found is None:
        return
    reader = _Reader(found, _outer_names(fn), makers)
    for line, what in reader.misuses():
        file = inspect.getsourcefile(fn) or "the source"
        raise PromiseError(
            f"{where} ({file}, line {first + line - 1}): {what} asks about a promise, not about the result, which is not known yet: "
            f"{REMEDY}"
        )


def say_where(wrong: BaseException, fn: Callable[..., object], where: str) -> None:
    """Add to an error about a call of ``fn`` its declaration and the line that called it.

    The traceback shows only makegood's own lines. ``where`` names the function. If the call is awaited in an
    asyncio task of its own, the calling line is not visible from here: then only the traceback shows it.
    """
    code = getattr(inspect.unwrap(fn), "__code__", None)
    told = [] if code is None else [f"{where} is declared in {code.co_filename}, line {code.co_firstlineno}"]
    frame = inspect.currentframe()
    while frame is not None and _package(frame) == _OURS:
        frame = frame.f_back
    if frame is not None and _package(frame) != "asyncio":
        told.append(f"it was called in {frame.f_code.co_filename}, line {frame.f_lineno}")
    wrong.add_note("; ".join(told))


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def _outer_names(fn: Callable[..., object]) -> dict[str, object]:
    """Return what names mean in a function that does not bind them itself."""
    code = getattr(fn, "__code__", None)
    seen: dict[str, object] = {**vars(builtins), **getattr(fn, "__globals__", {})}
    for name, cell in zip(
        getattr(code, "co_freevars", ()), getattr(fn, "__closure__", None) or (), strict=False
    ):
        try:
            seen[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            seen.pop(name, None)
    return seen


class _Reader:
    """Reads one workflow function."""

    def __init__(
        self,
        function: ast.FunctionDef | ast.AsyncFunctionDef | Any,
        seen: Mapping[str, object],
        makers: Mapping[object, str],
    ) -> None:
        self._function = function
        self._seen = seen
        self._makers = makers
        self._bound: dict[str, list[ast.expr | None]] = {}  # None: bound to something that may be anything
        for node in ast.walk(function):
            if node is not function:
                self._bind(node)
        for name in _parameters(function.args):
            self._other(name)

    # -- what names are bound to -----------------------------------------------------------------------------

    def _bind(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
            if node.value is not None:
                self._assign(node.target, node.value)
        elif isinstance(node, FUNCTIONS):
            for name in _parameters(node.args):
                self._other(name)
            if not isinstance(node, ast.Lambda):
                self._other(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del):
            self._other(node.id)
        else:
            self._bind_otherwise(node)

    def _bind_otherwise(self, node: ast.AST) -> None:
        targets: list[ast.expr | None] = []
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension | ast.AugAssign):
            targets = [node.target]
        elif isinstance(node, ast.With | ast.AsyncWith):
            targets = [item.optional_vars for item in node.items]
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar | ast.ClassDef) and node.name:
            self._other(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            self._other(node.rest)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                self._other((alias.asname or alias.name).split(".")[0])
        elif isinstance(node, ast.Global | ast.Nonlocal):
            for name in node.names:
                self._other(name)
        for target in targets:
            if target is not None:
                self._others(target)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._bound.setdefault(target.id, []).append(value)
        elif isinstance(target, ast.Tuple | ast.List):
            parts = self._parts(value, len(target.elts))
            for n, element in enumerate(target.elts):
                if isinstance(element, ast.Name):
                    self._bound.setdefault(element.id, []).append(parts[n] if parts else None)
                else:
                    self._others(element)

    def _parts(self, value: ast.expr, count: int) -> list[ast.expr] | None:
        """Return the expressions that a tuple is unpacked from: ``a, b = mg.parallel(x(), y())``, ``a, b =
        x(), y()``.
        """
        found: list[ast.expr] = []
        if isinstance(value, ast.Tuple):
            found = value.elts
        elif isinstance(value, ast.Call) and self._maker(value) == "parallel" and not value.keywords:
            found = value.args
        starred = any(isinstance(part, ast.Starred) for part in found)
        return found if len(found) == count and not starred else None

    def _others(self, target: ast.expr) -> None:
        for inner in ast.walk(target):
            if isinstance(inner, ast.Name):
                self._other(inner.id)

    def _other(self, name: str) -> None:
        self._bound.setdefault(name, []).append(None)

    # -- what is surely a promise ----------------------------------------------------------------------------

    def _meant(self, node: ast.expr) -> object:
        """Return the object that a name, or a name with attributes, means outside the function; None if
        unknown.
        """
        if isinstance(node, ast.Name):
            return None if node.id in self._bound else self._seen.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self._meant(node.value)
            return inspect.getattr_static(owner, node.attr, None) if inspect.ismodule(owner) else None
        return None

    def _maker(self, call: ast.Call) -> str | None:
        meant = self._meant(call.func)
        return next((name for maker, name in self._makers.items() if maker is meant), None)

    def _is_promise(self, node: ast.expr, looking: frozenset[str] = frozenset()) -> bool:
        """Return whether an expression is surely a promise; ``looking``: names whose assignments are being
        checked.
        """
        if isinstance(node, ast.Name):
            values = self._bound.get(node.id)
            if not values or node.id in looking:
                return False
            return all(v is not None and self._is_promise(v, looking | {node.id}) for v in values)
        if isinstance(node, ast.Attribute | ast.Subscript | ast.NamedExpr):
            return self._is_promise(node.value, looking)
        if isinstance(node, ast.IfExp):
            return self._is_promise(node.body, looking) and self._is_promise(node.orelse, looking)
        if not isinstance(node, ast.Call):
            return False
        if isinstance(self._meant(node.func), Action):
            return True
        maker = self._maker(node)
        if not node.args or maker not in ("when", "each"):
            return False
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
        found = []
        for node in ast.walk(self._function):
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
                for n, op in enumerate(node.ops):
                    if isinstance(op, ast.Is | ast.IsNot) and any(map(self._is_promise, sides[n : n + 2])):
                        found.append((node.lineno, ast.unparse(node)))
            elif isinstance(node, ast.Call) and node.args and self._is_promise(node.args[0]):
                if self._meant(node.func) in (isinstance, type, callable):
                    found.append((node.lineno, ast.unparse(node)))
            elif isinstance(node, ast.Match):
                subjects = node.subject.elts if isinstance(node.subject, ast.Tuple) else [node.subject]
                if any(map(self._is_promise, subjects)):
                    found.append((node.lineno, f"match {ast.unparse(node.subject)}"))
        return sorted(found)


def _parameters(args: ast.arguments) -> list[str]:
    plain = [*args.posonlyargs, *args.args, *args.kwonlyargs]
    return [a.arg for a in (*plain, args.vararg, args.kwarg) if a is not None]
