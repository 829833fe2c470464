"""A form that was refused, shown again: with all that a person typed, and beside its field what is wrong."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

_LABELS: Final[Mapping[str, str]] = {
    "input": "Arguments", "value": "Result", "signal": "Signal", "for": "For", "more": "More time", "since": "Since",
    "until": "Until", "limit": "At most", "reason": "Reason",
}  # fmt: skip
"""The fields that people type into, beside those of a signal's value."""
_VALUE: Final = re.compile(r"value-\d+")
_LABEL: Final = "label-"
"""With the name of a field: the hidden field that holds its label."""
_HIDDEN_WITH: Final = {"signal": {"id", "schema"}}
"""A field is hidden in forms that have one of these."""


class RefusedField(NamedTuple):
    """A field with what was typed in it."""

    name: str
    label: str
    text: str
    is_long: bool
    wrong: str
    """What is wrong with it; "" if nothing is, or if it is not known to be this field."""


class RefusedForm(NamedTuple):
    """A form that was refused."""

    fields: tuple[RefusedField, ...]
    hidden: Mapping[str, str]
    wrong: str
    """The name of the field that is wrong, "" if it is not known."""


def refused_form(form: Mapping[str, str], text: str, field: str = "") -> RefusedForm | None:
    """Return a form as it was typed, None if nothing was. ``text``: what is wrong; ``field``: with which
    field, "" to find that out.

    >>> form = {"csrf": "t", "for": "soon", "reason": "a move"}
    >>> [(each.label, each.text, each.wrong) for each in refused_form(form, "for='soon' is no length").fields]
    [('For', 'soon', "for='soon' is no length"), ('Reason', 'a move', '')]
    """
    names = [name for name in form if is_typed(name, form)]
    if not any(form[name].strip() for name in names):
        return None
    field = field or next((name for name in names if re.match(rf"{name}_?=|--{name}\b", text)), "")
    fields = tuple(
        RefusedField(
            name,
            form.get(_LABEL + name) or _LABELS.get(name, "Value"),
            form[name],
            name in ("input", "value") or _VALUE.fullmatch(name) is not None,
            text if name == field else "",
        )
        for name in names
    )
    return RefusedForm(fields, {name: value for name, value in form.items() if name not in names}, field)


def is_typed(name: str, form: Mapping[str, str]) -> bool:
    """Whether a person types into a field of a form."""
    if _HIDDEN_WITH.get(name, frozenset()) & form.keys():
        return False
    return name in _LABELS or _VALUE.fullmatch(name) is not None
