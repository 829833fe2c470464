"""Imports what an extra of makegood brings, and says what to install if it is not there."""

from importlib import import_module
from typing import Any

from makegood.errors import ConfigError


def optional(module: str, package: str, missing: str) -> Any:
    """Return a module that needs ``package``. Raises ``ConfigError`` with ``missing`` if it is not there."""
    try:
        return import_module(module)
    except ModuleNotFoundError as absent:
        if (absent.name or "").partition(".")[0] != package:
            raise
        raise ConfigError(missing) from absent
