"""Attributes: what submitters say of a task so that people find it, as pairs of texts."""

from collections.abc import Mapping
from typing import Final

from makegood.base.text import refuse_unstorable, short_repr
from makegood.errors import ConfigError

Attribute = str | int | bool
"""What the value of an attribute may be. The store keeps its text."""
Attributes = tuple[tuple[str, str], ...]
"""Names and values, by name."""

LONGEST_INDEXED: Final = 500
"""Characters of a text by which tasks are found: PostgreSQL's index cannot take a longer one, whatever the
characters are.
"""
MOST: Final = 16
"""Attributes of a task, at most."""
LONGEST_NAME: Final = 100
LONGEST_VALUE: Final = 200
OURS: Final = "makegood."
"""Names that begin so are makegood's own."""


def text_of(value: Attribute) -> str:
    """Return the value of an attribute as the store keeps it.

    >>> text_of("ada"), text_of(3), text_of(True)
    ('ada', '3', 'true')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def pairs(attributes: Mapping[str, Attribute]) -> Attributes:
    """Return the attributes of a task as the store keeps them.

    >>> pairs({"customer": "ada", "attempt": 2})
    (('attempt', '2'), ('customer', 'ada'))

    Raises ``ConfigError`` that names the one at fault.
    """
    if not isinstance(attributes, Mapping):
        raise ConfigError(f"attributes={attributes!r:.60}: pass a mapping of names to values, or None")
    if len(attributes) > MOST:
        raise ConfigError(f"attributes={{...}} has {len(attributes):,} names: at most {MOST} are allowed")
    for name, value in attributes.items():
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or "=" in name:
            raise ConfigError(
                f"attributes={{{short_repr(name)}: ...}}: a name is a text of 1 to {LONGEST_NAME} characters, without ="
            )
        if name.startswith(OURS):
            raise ConfigError(
                f"attributes={{{name!r}: ...}}: names that begin with {OURS} are makegood's own"
            )
        if not isinstance(value, str | int) or (isinstance(value, int) and abs(value) >= 2**63):
            raise ConfigError(
                f"attributes={{{name!r}: {short_repr(value)}}}: a value is a text, a whole number of 64 bits, True or False"
            )
        if len(text := text_of(value)) > LONGEST_VALUE:
            raise ConfigError(
                f"attributes={{{name!r}: {short_repr(text)}}} has {len(text):,} characters: a value has at most {LONGEST_VALUE}"
            )
        refuse_unstorable(ConfigError, attributes=f"{name}{text}")
    return tuple(sorted((name, text_of(value)) for name, value in attributes.items()))
