"""What people see of payloads: fields whose names say that they are secret are covered, for all but
administrators.

A payload is JSON as bytes. What cannot be read as JSON, such as an encrypted payload, is shown as its length
only.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from makegood.base.terminal_text import visible

SECRET: Final = re.compile(
    r"pass(word|wd|phrase|code)?$|passw|secret|token|api_?key|private_?key|authori[sz]ation|^auth$|credential|cookie|session|"
    r"^(card|pan)$|card_?(no|num|number|code)|cvc|cvv|iban|^pin$|ssn|social_?security|bearer|signature",
    re.IGNORECASE,
)
"""The names of fields that are covered by default."""
COVER: Final = "•••"
MOST: Final = 20_000
"""The most characters of a payload that a page shows."""

Redact = Callable[[str, Any], Any]
"""A hook: the path of a field ("order.card.number") and its value; returns what to show instead, or the
value itself.
"""


class Redaction:
    """Turns payloads into text. ``hook``: the application's own rule, applied after the default one."""

    def __init__(self, hook: Redact | None = None, pattern: re.Pattern[str] = SECRET) -> None:
        self._hook = hook
        self._pattern = pattern

    def text(self, payload: bytes | None, *, whole: bool = False) -> str:
        """Return a payload as text. ``whole``: uncovered, for an administrator whose look is audited."""
        if payload is None:
            return ""
        try:
            value = json.loads(payload, parse_float=_Number, parse_int=_Number)
            shown = "\n".join(map(visible, _lines(value if whole else self._covered(value, ""))))
        except ValueError:
            return f"{len(payload):,} bytes that are not JSON"
        except RecursionError:
            return f"{len(payload):,} bytes of deeply nested JSON"
        return shown if len(shown) <= MOST else f"{shown[:MOST]}… ({len(shown):,} characters)"

    def raw(self, payload: bytes | None) -> bytes | None:
        """Return a payload as JSON with its secrets covered; the length of what is not JSON, as a text."""
        if payload is None:
            return None
        try:
            value = self._covered(json.loads(payload, parse_float=_Number, parse_int=_Number), "")
            return "".join(line.lstrip() for line in _lines(value)).encode("utf-8", "surrogatepass")
        except (ValueError, RecursionError):
            return f'"{len(payload):,} bytes that cannot be shown"'.encode()

    def _covered(self, value: Any, path: str) -> Any:
        if isinstance(value, dict):
            return {
                name: self._field(name, part, f"{path}.{name}".lstrip(".")) for name, part in value.items()
            }
        if isinstance(value, list):
            return [self._covered(part, f"{path}[]") for part in value]
        return value

    def _field(self, name: str, value: Any, path: str) -> Any:
        if self._pattern.search(name):
            return COVER
        if self._hook is not None:
            value = self._hook(path, value)
        return self._covered(value, path)


class _Number(str):
    """A number as it was written: 9007199254740993 and 1.10 keep their digits."""

    __slots__ = ()


def _lines(value: Any, before: str = "", after: str = "", indent: str = "") -> Iterator[str]:
    """Yield the lines of a value as JSON: ``before`` stands before its first line, ``after`` behind its
    last.
    """
    inner = f"{indent}  "
    if isinstance(value, dict) and value:
        yield f"{indent}{before}{{"
        for n, (name, part) in enumerate(value.items(), 1):
            yield from _lines(part, f"{_quoted(name)}: ", "," if n < len(value) else "", inner)
        yield f"{indent}}}{after}"
    elif isinstance(value, list) and value:
        yield f"{indent}{before}["
        for n, part in enumerate(value, 1):
            yield from _lines(part, "", "," if n < len(value) else "", inner)
        yield f"{indent}]{after}"
    else:
        yield f"{indent}{before}{value if isinstance(value, _Number) else _quoted(value)}{after}"


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
