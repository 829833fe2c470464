"""From "module:attribute" to the object itself: an App or a workflow.

Only here does the command line import a user's code. A name that cannot be loaded is a usage error (exit 2),
whether the name is wrong or the user's module cannot be imported; in the second case the message says where.
"""

import ast
import pkgutil
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import click

from makegood.cli.render.output import with_article
from makegood.errors import DefinitionError, MakegoodError
from makegood.payload.envelopes import Codec, is_codec
from makegood.workflow.app import App
from makegood.workflow.workflow import Workflow

T = TypeVar("T")


def load_app(text: str) -> App:
    """Return the App that ``text`` names, such as ``orders:shop``."""
    return _load(text, App, "an App")


def load_workflow(text: str) -> Workflow[..., Any]:
    """Return the workflow that ``text`` names, such as ``orders:place_order``."""
    return _load(text, Workflow, "a workflow")


def load_codec(text: str) -> Codec:
    """Return the codec that ``text`` names, such as ``orders:codec``, or that of the App it names."""
    value: Any = _load(text, object, "a codec")
    attribute: Any = value.codec if isinstance(value, App) else value
    if not is_codec(attribute):
        if value is None:
            lack = "does not exist"
        elif isinstance(value, App):
            lack = "has no codec"
        else:
            lack = "is no codec, with encode and decode, and no App"
        raise click.BadParameter(f"{text!r} {lack}")
    codec: Codec = attribute
    return codec


def _load(text: str, kind: type[T], what: str) -> T:
    name, colon, attribute = text.partition(":")
    if "/" in attribute or "@" in attribute:  # parts of a URL, which may hold a password, are not shown
        raise click.BadParameter("a URL is not a module: write module:attribute, such as orders:shop")
    if not name or (colon and not attribute) or "/" in name or name.endswith(".py"):
        hint = f"{Path(name).stem or 'module'}:{attribute or 'attribute'}"
        raise click.BadParameter(f"{text!r}: write module:attribute, such as {hint}")
    module = _module(name)
    if not colon:
        raise click.BadParameter(f"{text!r}: write module:attribute{_candidates(module, kind, name)}")
    value: object = module
    for part in attribute.split("."):
        value = getattr(value, part, None)
    if not isinstance(value, kind):
        kind_found = with_article(type(value).__name__)
        state = "does not exist" if value is None else f"is not {what} but {kind_found}"
        raise click.BadParameter(
            f"{text!r}: {attribute} {state}{_module_hint(module, attribute) or _candidates(module, kind, name)}"
        )
    return value


def _candidates(module: ModuleType, kind: type, name: str) -> str:
    names = [attribute for attribute, value in vars(module).items() if isinstance(value, kind)]
    return f"; {name} has {', '.join(f'{name}:{n}' for n in names)}" if names else ""


def _module_hint(module: ModuleType, attribute: str) -> str:
    """Return a hint: the module of a package that has ``attribute``, or that name; "" without one.

    The modules are read, not imported: one may be a program.
    """
    inner = [info for info in pkgutil.iter_modules(getattr(module, "__path__", ())) if not info.ispkg]
    modules = [info.name for info in inner if attribute in _top(info)] or [
        info.name for info in inner if info.name == attribute
    ]
    return f"; did you mean {module.__name__}.{modules[0]}:{attribute}?" if modules else ""


def _top(info: pkgutil.ModuleInfo) -> set[str]:
    """Return the names that a module's source assigns, none for a source that cannot be parsed."""
    spec = info.module_finder.find_spec(info.name, None)
    try:
        tree = ast.parse(Path(spec.origin).read_bytes()) if spec is not None and spec.origin else None
    except (OSError, SyntaxError, ValueError):
        return set()
    names: set[str] = set()
    for node in tree.body if tree is not None else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def _module(name: str) -> ModuleType:
    """Import a module, from the current folder first as ``python -m`` does."""
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name is not None and (name == missing.name or name.startswith(f"{missing.name}.")):
            raise click.BadParameter(
                f"there is no module {missing.name!r} in {folder} or among the installed packages; run makegood in the folder "
                f"that contains it, or set PYTHONPATH"
            ) from missing
        raise click.BadParameter(f"{name} cannot be imported: {missing}{_at(missing)}") from missing
    except MakegoodError as wrong:
        raise click.BadParameter(f"{name} ({place_of(wrong)}): {wrong}") from wrong
    except SystemExit as left:
        raise click.BadParameter(
            f"{name} ends the program while it is imported ({place_of(left)}): put what it runs under "
            f'`if __name__ == "__main__":`'
        ) from left
    except Exception as wrong:
        raise click.BadParameter(
            f"{name} cannot be imported: {type(wrong).__name__}: {_error_text(wrong)}{_at(wrong)}"
        ) from wrong


def _error_text(error: BaseException) -> str:
    """Return an error's words, without the place that follows them."""
    return error.msg if isinstance(error, SyntaxError) and error.filename else str(error)


def _at(error: BaseException) -> str:
    """Return the place for the end of a sentence.

    "" where only Python's import would be named: no line of the module has run.
    """
    place = place_of(error)
    return "" if place.startswith(import_module.__code__.co_filename) else f" ({place})"


@contextmanager
def naming(workflow: Workflow[..., Any], consequence: str) -> Iterator[None]:
    """Name the workflow whose function raises an error, the place in it, and what ``then`` holds."""
    try:
        yield
    except MakegoodError:
        raise
    except Exception as wrong:
        raise DefinitionError(
            f"{workflow.address} raised {type(wrong).__name__}: {wrong} ({place_of(wrong)}); {consequence}"
        ) from wrong


def place_of(error: BaseException) -> str:
    """Return file and line of the user's code that raised ``error``.

    That is the innermost frame in the current folder, if any.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    ours, here = Path(__file__).resolve().parents[1], Path.cwd()
    frames = traceback.extract_tb(error.__traceback__)
    outside = [
        f for f in frames if not f.filename.startswith("<") and not Path(f.filename).is_relative_to(ours)
    ]
    near = [f for f in outside if Path(f.filename).is_relative_to(here) and "site-packages" not in f.filename]
    frame = (near or outside or frames)[-1]
    return f"{frame.filename}, line {frame.lineno}"
