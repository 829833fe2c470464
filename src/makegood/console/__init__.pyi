from typing import Any

from makegood.console.app import ConsoleApp, create_app
from makegood.console.options import ConsoleOptions
from makegood.console.users import User

__all__ = ["ConsoleApp", "ConsoleOptions", "User", "create_app"]

def import_part(module: str) -> Any: ...
