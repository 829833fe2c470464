"""Log lines with fields for people and machines: the task, step and attempt of each line, and its trace if
there is one.

A line written inside an action, an undo or a probe gets the task, step and attempt of that call, whether the
line is ours, the user's or a library's. ``CallFields`` takes them from ``current_call()``, at the time and in
the thread in which the line is written. The engine's own lines about a task set the field themselves. Our
lines never contain payloads (inputs, arguments, results); users decide on the content of their own lines.

    stream = logging.StreamHandler()
    stream.addFilter(CallFields())
    stream.setFormatter(JsonLines())
"""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from makegood.base.terminal_text import visible
from makegood.base.text import storable_text
from makegood.declare.call import known_call

FIELDS: Final = ("task", "step", "attempt")
"""The subject of a line, as people write it: the task's id, the step's name, the attempt's number."""

_PLAIN: Final = frozenset(
    [*vars(logging.makeLogRecord({})), "message", "asctime", "color_message", "taskName"]
)
"""Attributes that every record has. All others are fields."""


class CallFields(logging.Filter):
    """Adds the task, step and attempt of the current call to records. It drops no record."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields that the record does not have yet."""
        call = known_call()
        if call is not None:
            for name, value in zip(FIELDS, (call.task_id, call.step, call.attempt), strict=True):
                if getattr(record, name, None) is None:
                    setattr(record, name, value)
            record.trace_id = call.trace_id
        return True


class JsonLines(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, message, then the fields, and ``exception`` with its
    traceback.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as JSON."""
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **fields(record),
        }
        if record.exc_info:
            line["exception"] = record.exc_text or self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        try:
            return msgspec.json.encode(line, enc_hook=_text).decode()
        except UnicodeEncodeError:  # a text that UTF-8 cannot encode
            return msgspec.json.encode(_writable(line), enc_hook=_text).decode()


class TextLines(logging.Formatter):
    """A line for people. Lines that are not makegood's own end with the call in which they were written."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as text."""
        text = super().format(record)
        if _ours(record):
            return "\n".join(map(visible, text.split("\n")))
        about = _about(record)
        if not about:
            return text
        first, newline, rest = text.partition("\n")  # a traceback follows the line that it belongs to
        return f"{first} [{' '.join(f'{name}={value}' for name, value in about.items())}]{newline}{rest}"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return a record's line. Foreign text that our messages quote cannot start a new line."""
        if _ours(record):
            record.message = visible(record.message)
        return super().formatMessage(record)


def _ours(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] == "makegood"


def _text(value: object) -> str:
    return storable_text(str(value))


def _writable(value: Any) -> Any:
    if isinstance(value, dict):
        return {_text(name): _writable(part) for name, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_writable(part) for part in value]
    return storable_text(value) if isinstance(value, str) else value


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return a record's fields besides its message: task, step and attempt first.

    Unknown ones are left out.
    """
    extras = {
        name: value
        for name, value in record.__dict__.items()
        if name not in _PLAIN and name not in FIELDS and value is not None
    }
    return {**_about(record), **extras}


def _about(record: logging.LogRecord) -> Mapping[str, Any]:
    fields = {name: getattr(record, name, None) for name in FIELDS}
    return {name: value for name, value in fields.items() if value is not None}
