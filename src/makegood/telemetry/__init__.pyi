# Where each public name lives, for type checkers and editors: `__init__.py` loads it at its first use.

from makegood.telemetry.log_lines import CallFields, JsonLines, TextLines
from makegood.telemetry.telemetry import Telemetry

__all__ = ["CallFields", "JsonLines", "Telemetry", "TextLines"]
