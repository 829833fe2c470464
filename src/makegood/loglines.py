"""The former home of ``makegood.telemetry.JsonLines`` and its like; this module goes with 0.2."""

from makegood.telemetry.log_lines import CallFields, JsonLines, TextLines, fields

__all__ = ["CallFields", "JsonLines", "TextLines", "fields"]
