"""Log lines say which task, step and attempt they are about, as text and as JSON, whoever writes them."""

import enum
import json
import logging
from contextvars import copy_context
from typing import Any, Literal

import pytest

from makegood.declare.call import enter
from makegood.errors import PayloadError
from makegood.payload.codec import decode
from makegood.telemetry.log_lines import CallFields, JsonLines, TextLines, fields
from tests.unit.test_call import Attempt


def record(name: str = "orders", message: str = "hello", **extra: Any) -> logging.LogRecord:
    """Return a record as a logger makes it."""
    return logging.getLogger(name).makeRecord(name, logging.INFO, "f.py", 1, message, (), None, extra=extra)


def in_a_call(line: logging.LogRecord) -> logging.LogRecord:
    """Return a record as the filter leaves it inside a call."""

    def inside() -> logging.LogRecord:
        enter(Attempt().call)
        assert CallFields().filter(line)
        return line

    return copy_context().run(inside)


def test_a_line_written_inside_a_call_has_its_task_step_and_attempt() -> None:
    line = json.loads(JsonLines().format(in_a_call(record())))
    call = Attempt().call
    assert (line["task"], line["step"], line["attempt"]) == (call.task_id, call.step, call.attempt)
    assert (line["level"], line["logger"], line["message"]) == ("info", "orders", "hello")
    assert line["time"].endswith("Z")


def test_outside_of_a_call_a_line_has_what_it_names_itself() -> None:
    line = record(task="0abc", alert=7, step=None)
    assert CallFields().filter(line)
    assert fields(line) == {"task": "0abc", "alert": 7}
    assert "task" not in json.loads(JsonLines().format(record()))


def test_our_lines_stay_lines_whatever_a_service_says() -> None:
    """What would steer a terminal, or begin a line that looks like one of ours, is shown as escapes, also in a traceback; what a
    user's own line says is the user's.
    """
    text = "refused \x1b[2J\n2026-01-01 ERROR makegood: forged"
    ours = record("makegood.agent", text)
    ours.exc_info = (ValueError, ValueError("\x9b31m\u202e"), None)
    first, *rest = TextLines().format(ours).splitlines()
    assert first.endswith(r"refused \u001b[2J\n2026-01-01 ERROR makegood: forged")
    assert rest == [r"ValueError: \u009b31m\u202e"]
    assert TextLines().format(record("shop", text)).endswith(text)


def test_what_a_line_names_itself_stands() -> None:
    """The engine's lines know better than where they happen to be written."""
    line = in_a_call(record(task="0other", attempt=9))
    assert (fields(line)["task"], fields(line)["attempt"]) == ("0other", 9)


def test_as_text_lines_of_others_end_with_the_call_and_ours_name_it_themselves() -> None:
    call = Attempt().call
    about = f"[task={call.task_id} step={call.step} attempt={call.attempt}]"
    assert TextLines().format(in_a_call(record())).endswith(f"INFO    orders: hello {about}")
    assert TextLines().format(in_a_call(record("makegood.agent"))).endswith("makegood.agent: hello")
    assert TextLines().format(record()).endswith("orders: hello")
    assert TextLines().format(in_a_call(record(message="one\ntwo"))).endswith(f"orders: one {about}\ntwo")


def test_an_exception_and_odd_fields_are_json_too() -> None:
    """A traceback is one field; a field that JSON does not know is shown as text."""
    entry = record(place=object, note="a\nb")
    entry.exc_info = (ZeroDivisionError, ZeroDivisionError("by 0"), None)
    entry.stack_info = "Stack:"
    text = JsonLines().format(entry)
    assert "\n" not in text
    line = json.loads(text)
    assert line["exception"].endswith("ZeroDivisionError: by 0")
    assert (line["place"], line["note"], line["stack"]) == ("<class 'object'>", "a\nb", "Stack:")


class Card(enum.Enum):
    """A kind of card."""

    VISA = "visa"


@pytest.mark.parametrize("annotation", [Card, Literal["visa"], dict[str, Card]])
def test_what_does_not_fit_is_told_without_its_value(annotation: Any) -> None:
    data = b'{"x":"4111-1111"}' if annotation == dict[str, Card] else b'"4111-1111"'
    with pytest.raises(PayloadError, match="Invalid enum value") as error:
        decode(data, annotation)
    assert "4111" not in str(error.value)


def test_a_line_with_what_utf_8_cannot_write_is_written_with_it_escaped() -> None:
    """Such a line was lost: the name of a file, or an exception's text, in a line of the user's."""
    odd = "caf\udce9"

    class Named:
        """Shown by its text."""

        def __str__(self) -> str:
            return odd

    plain = json.loads(JsonLines().format(record(message=odd, order={odd: [odd, 7, {odd}]}, of=Named())))
    escape = "caf\\udce9"
    assert (plain["message"], plain["order"], plain["of"]) == (
        escape,
        {escape: [escape, 7, [escape]]},
        escape,
    )
