"""Functions are named with a verb, or with the noun that they return: how many say only what was done may only fall.

A reader of ``_said(error)`` or ``carried_out(cli, work)`` cannot know whether it acts, asks or returns. Before a noun a participle
is an adjective, and fine: ``stored_result``, ``allowed_acts``.
"""

import ast
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.house import tidy
from tests.house.test_names import IRREGULAR, PACKAGE, is_participle, rooms

PARTICLES: Final = frozenset({"again", "apart", "at", "away", "back", "by", "down", "for", "from", "in", "into", "of", "off", "on", "out", "to", "up"})  # fmt: skip
"""Words after which a participle is still no adjective: ``carried_out``, ``made_by``."""
NATURAL: Final = frozenset({"sorted_as", "heed", "asked_to_step_down"})
PROTOCOLS: Final = frozenset({"cancelled", "closed", "decided", "seen", "sent", "submitted", "watched"})
"""Properties of public objects, and what a documented protocol calls: telemetry, preferences of leaders, asyncio's futures."""
VERBS: Final = frozenset({"done"})
"""``mg.done``, with ``mg.fail`` and ``mg.sleep`` a word of workflows."""
MOST: Final = {
    "actor": 0.0,
    "agent": 0.0,
    "base": 5.8,
    "brokers": 2.1,
    "channels": 0.0,
    "cli": 4.7,
    "client": 0.0,
    "console": 0.0,
    "declare": 5.4,
    "election": 6.4,
    "messaging": 0.0,
    "model": 0.0,
    "moments": 0.0,
    "node": 0.0,
    "payload": 0.0,
    "saga": 0.0,
    "scheduler": 0.0,
    "store": 6.0,
    "story": 0.0,
    "supervisor": 0.0,
    "telemetry": 0.0,
    "testing": 0.0,
    "the package": 2.4,
    "transactions": 0.0,
    "workflow": 0.0,
}
"""Functions in a thousand, at most; nobody raises a number."""


def says_only_what_was_done(name: str) -> bool:
    """Whether a function's name is a participle, alone or with the small words after it."""
    first, *others = name.strip("_").split("_")
    if name in NATURAL | PROTOCOLS | VERBS or not set(others) <= PARTICLES:
        return False
    return first == "left" or is_participle(first) or first in IRREGULAR


@cache
def names_of(file: Path) -> tuple[str, ...]:
    """Return the names of all functions of a file, methods and nested ones too."""
    return tuple(node.name for node in tidy.functions(ast.parse(file.read_text(encoding="utf-8"))))


def parts() -> dict[str, list[Path]]:
    """Return the files of each room of the package, and of all of it."""
    return {
        room: files for room, files in rooms().items() if all(file.is_relative_to(PACKAGE) for file in files)
    }


@pytest.mark.parametrize("room", sorted(parts()))
def test_fewer_functions_say_only_what_was_done(room: str) -> None:
    names = [name for file in parts()[room] for name in names_of(file)]
    wrong = [name for name in names if says_only_what_was_done(name)]
    rate = 1000 * len(wrong) / len(names)
    assert rate <= MOST[room] + 0.05, (
        f"{room}: {rate:.1f} of 1,000 functions, {MOST[room]} were allowed: {sorted(set(wrong))}"
    )
    assert rate > MOST[room] - 5, f"{room}: {rate:.1f} of 1,000 functions: write it into MOST"


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("_said", True),
        ("carried_out", True),
        ("left", True),
        ("stored_result", False),
        ("is_held", False),
        ("_describe", False),
    ],
)
def test_what_a_name_says(name: str, wrong: bool) -> None:
    assert says_only_what_was_done(name) is wrong
