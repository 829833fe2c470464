"""The operator console: pages over a store, and the acts of operators, as an application to mount or to
serve.

    app.mount("/ops", makegood.console.create_app("sqlite:///shop.db", users=users))

It needs the extra ``makegood[console]``. The modules without a web framework, such as the drawings, import
without it.
"""

from importlib import import_module
from typing import Any

from makegood.errors import ConfigError

_HOMES = {"ConsoleApp": "app", "ConsoleOptions": "options", "User": "users", "create_app": "app"}
__all__ = ["ConsoleApp", "ConsoleOptions", "User", "create_app"]


def __getattr__(name: str) -> Any:
    """Load a public name at its first use. Raises ``ConfigError`` if the extra is not installed."""
    if (home := _HOMES.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_part(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    """Return the names of this package, those that are not loaded yet included."""
    return sorted({*globals(), *__all__})


def import_part(module: str) -> Any:
    """Import a module of the console that needs the extra. Raises ``ConfigError`` if the extra is not
    installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in ("starlette", "jinja2", "uvicorn", "anyio", "markupsafe"):
            raise
        raise ConfigError(
            f"the console needs {package}: `pip install 'makegood[console]'` (in a checkout `pip install '.[console]'`)"
        ) from missing
