"""What people see of payloads: values whose names say that they are secret are covered, for all but
administrators.

The name is that of a field, of the parameter that an input was given as, or the first of a pair:
``["Authorization", "…"]`` in a list of such, ``{"name": "authorization", "value": "…"}``. Texts that show a
secret in one of the usual forms lose it. ``base.secret_names`` holds the rule.

A payload is JSON as bytes. What cannot be read as JSON is shown as its length only; what a codec encoded, as
what can be said of it without the codec: "encrypted (key k1, 312 bytes)".
"""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec.structs import replace

from makegood.base.secret_names import COVER, is_secret, last_word, without_secrets
from makegood.base.terminal_text import visible
from makegood.payload.envelopes import describe
from makegood.store.views import EventView, TaskDetail, TaskView

MOST: Final = 20_000
"""The most characters of a payload that a page shows."""

_MOST_SEARCHED: Final = 10_000
"""Characters of a text; a longer one is not searched for secrets."""
_NAMES: Final = frozenset({
    "name", "key", "header", "field", "param", "parameter", "attribute", "attr", "property", "label", "id", "k", "n", "variable", "var",
    "option", "setting", "title", "type", "kind", "path",
})  # fmt: skip
"""Last words of fields that hold the name of the value beside them."""
_VALUES: Final = frozenset({
    "value", "values", "val", "content", "data", "text", "v", "string", "raw", "default", "current", "old", "new", "was", "now", "before",
    "after", "from", "to",
})  # fmt: skip
"""Last words of fields that hold such a value."""
_FLAT: Final = frozenset({"header", "headers", "pair", "param", "params", "query"})
"""Last words of fields that hold a list of names and values by turns."""

Redact = Callable[[str, Any], Any]
"""A hook: the path of a field ("order.card.number") and its value; returns what to show instead, or the
value itself.
"""


class Redaction:
    """Turns payloads into text. ``hook``: the application's own rule, applied after the default one."""

    def __init__(self, hook: Redact | None = None) -> None:
        self._hook = hook

    @property
    def has_hook(self) -> bool:
        """Whether the application has a rule of its own."""
        return self._hook is not None

    def text(self, payload: bytes | None, name: str = "", *, whole: bool = False) -> str:
        """Return a payload as text.

        ``name``: of the parameter that it was given as. ``whole``: uncovered, for an administrator whose look
        is audited.
        """
        if payload is None:
            return ""
        try:
            value = _decode(payload)
            text, length = [], 0
            for line in _lines(value if whole else self._mask_named(name, value)):
                text.append(visible(line[:MOST]))
                length += len(text[-1]) + 1
                if length > MOST + 1:
                    break
            excerpt = "\n".join(text)
        except ValueError:
            return f"{len(payload):,} bytes that are not JSON"
        except RecursionError:
            return f"{len(payload):,} bytes of deeply nested JSON"
        return excerpt if length <= MOST + 1 else f"{excerpt[:MOST]}… ({len(payload):,} bytes in all)"

    def raw(self, payload: bytes | None, name: str = "") -> bytes | None:
        """Return a payload as JSON with its secrets covered; the length of what is not JSON, as a text.

        ``name``: of the parameter that it was given as.
        """
        return None if payload is None else _as_json(payload, lambda value: self._mask_named(name, value))

    def change(self, change: bytes | None) -> bytes | None:
        """Return what a correction changed, covered as by ``raw``; the inputs of a task have names there."""
        return None if change is None else _as_json(change, lambda value: self._mask(by_name(value), ""))

    def task(self, detail: TaskDetail) -> TaskDetail:
        """Return a task whose inputs and results are covered as by ``raw``."""
        return replace(
            detail,
            task=self.view(detail.task),
            steps=[replace(step, result=self.raw(step.result)) for step in detail.steps],
            inputs=tuple(self.raw(value, name) or b"" for name, value in detail.named_inputs),
        )

    def event(self, event: EventView) -> EventView:
        """Return a row of a task's history whose notes are covered as by ``raw``."""
        if not event.notes:
            return event
        notes = [replace(note, value=self._mask(note.value, "")) for note in event.notes]
        return replace(event, notes=tuple(notes))

    def view(self, view: TaskView) -> TaskView:
        """Return a task whose result is covered as by ``raw``."""
        return replace(view, result=self.raw(view.result))

    def _mask_named(self, name: str, value: Any) -> Any:
        return self._field(name, value, name) if name else self._mask(value, "")

    def _mask(self, value: Any, path: str) -> Any:
        if (
            isinstance(value, dict)
            and type(envelope := value.get("mg")) is str
            and envelope.startswith("mg1:")
        ):
            return describe(envelope)  # a template and what fills it
        if isinstance(value, dict):
            has_name = any(
                isinstance(part, str) and last_word(name) in _NAMES and is_secret(part)
                for name, part in value.items()
            )
            return {
                name: COVER
                if has_name and last_word(name) in _VALUES
                else self._field(name, part, f"{path}.{name}".lstrip("."))
                for name, part in value.items()
            }
        if isinstance(value, list):
            return [
                [part[0], COVER, *part[2:]] if _is_secret_pair(part) else self._mask(part, f"{path}[]")
                for part in value
            ]
        if type(value) is str and value.startswith("mg1:"):
            return describe(value)
        if type(value) is str and len(value) <= _MOST_SEARCHED:
            return without_secrets(value)
        return value

    def _field(self, name: str, value: Any, path: str) -> Any:
        if is_secret(name):
            return COVER
        if isinstance(value, list) and last_word(name) in _FLAT:
            value = [
                COVER if n and isinstance(before := value[n - 1], str) and is_secret(before) else part
                for n, part in enumerate(value)
            ]
        if self._hook is not None:
            value = self._hook(path, value)
        return self._mask(value, path)


def _as_json(payload: bytes, cover: Callable[[Any], Any]) -> bytes:
    try:
        value = cover(_decode(payload))
        return "".join(line.lstrip() for line in _lines(value)).encode(
            errors="backslashreplace"
        )  # half of a surrogate pair: an escape in JSON, too
    except (ValueError, RecursionError):
        return f'"{len(payload):,} bytes that cannot be shown"'.encode()


def by_name(change: Any) -> Any:
    """Return a correction whose inputs are covered by the names that it lists."""
    if not (isinstance(change, dict) and isinstance(names := change.get("names"), list)):
        return change
    sides = {
        side: [
            COVER if is_secret(str(name)) else value for name, value in zip(names, change[side], strict=False)
        ]
        for side in ("was", "now")
        if isinstance(change.get(side), list)
    }
    return change | sides


def _is_secret_pair(part: Any) -> bool:
    return isinstance(part, list) and len(part) in (2, 3) and isinstance(part[0], str) and is_secret(part[0])


class _Number(str):
    """A number as it was written: 9007199254740993 and 1.10 keep their digits."""

    __slots__ = ()


def _decode(payload: bytes) -> Any:
    """Return a payload's value. Equal numbers are one object: a value takes a few times its text's memory."""
    numbers: dict[str, _Number] = {}

    def number(text: str) -> _Number:
        value = numbers.get(text)
        if value is None:
            value = numbers[text] = _Number(text)
        return value

    return json.loads(payload, parse_float=number, parse_int=number)


def _lines(value: Any, before: str = "", after: str = "", indent: str = "") -> Iterator[str]:
    """Yield the lines of a value as JSON: ``before`` stands before its first line, ``after`` behind its
    last.
    """
    inner = f"{indent}  "
    if isinstance(value, dict) and value:
        yield f"{indent}{before}{{"
        for n, (name, part) in enumerate(value.items(), 1):
            yield from _lines(part, f"{_quote(name)}: ", "," if n < len(value) else "", inner)
        yield f"{indent}}}{after}"
    elif isinstance(value, list) and value:
        yield f"{indent}{before}["
        for n, part in enumerate(value, 1):
            yield from _lines(part, "", "," if n < len(value) else "", inner)
        yield f"{indent}]{after}"
    else:
        yield f"{indent}{before}{value if isinstance(value, _Number) else _quote(value)}{after}"


def _quote(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
