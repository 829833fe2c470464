"""Packages whose public names load at first use (PEP 562): an import costs only what its user takes from it.

A package that uses this has a stub, ``__init__.pyi``, beside its ``__init__.py``: type checkers and editors
read the stub.
"""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def names(
    package: str, homes: Mapping[str, str], packages: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` for ``package``.

    ``homes`` maps a module below the package (or below ``makegood``, if it begins with ".") to its names,
    separated by blanks. ``packages`` are packages below it that load as attributes too. An unknown name
    raises ``AttributeError``, as in any module.
    """
    home = {name: module for module, name_list in homes.items() for name in name_list.split()}
    subpackages = frozenset(packages)

    def getattr_(name: str) -> Any:
        if name in subpackages:
            return import_module(f"{package}.{name}")
        if (module := home.get(name)) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        whole = f"makegood{module}" if module.startswith(".") else f"{package}.{module}"
        value = getattr(import_module(whole), name)
        setattr(import_module(package), name, value)  # the next use finds it in the module itself
        return value

    def dir_() -> list[str]:
        return sorted({*vars(import_module(package)), *home})

    return getattr_, dir_, list(home)
