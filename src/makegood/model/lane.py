"""Lanes: a task that names keys waits until each of them is free, as a holder of a lock does.

A lane is named within an app, so tasks of all its workflows share it. A task takes all of its lanes or none,
in the claim, and has them until it has ended. A task that waits for a lane is ``queued``::

    submitted ─► queued ── claimed, with all its lanes ──► processing, undoing ─► processed, undone
                   ▲ │                                       │                    its lanes are free
                   │ └─ cancelled, or refused ─► undone      └─► error: it keeps them
                   └──────────── resubmitted, or an undo of a task that has ended
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final, Literal, get_args

import msgspec

from makegood.base.text import refuse_unstorable, short_repr
from makegood.errors import ConfigError

WhenTaken = Literal["wait", "refuse", "cancel"]
"""What a task does whose lane is taken: it waits, ends untouched, or asks the tasks before it to cancel."""

LaneState = Literal["waiting", "held", "out"]
"""The state of a task's place in a lane."""

LANE: Final = "lane"
"""What a Scheduler that knows lanes publishes among the kinds of steps that it knows."""

MOST_LANES: Final = 10
"""Lanes of a task, at most."""
LONGEST_LANE: Final = 200
"""Characters of a lane's name, at most."""
MOST_AT_ONCE: Final = 10_000
"""Tasks that go at a time in a lane, at most."""


Lane = str | int | Iterable[str | int]
"""What users say of a task's lanes: one key, or several."""


class Lanes(msgspec.Struct, frozen=True, array_like=True):
    """The lanes of a task."""

    names: tuple[str, ...]
    """Sorted, each once."""
    at_once: int = 1
    """Tasks of each lane that may go at a time, as this one sees it."""
    when_taken: WhenTaken = "wait"


NO_LANES: Final = Lanes(())


def lane_names(lane: Any, what: str = "lane") -> tuple[str, ...]:
    """Return the names of a task's lanes, of what an option or a function says: one key or several; none for
    None. ``what``: names it in errors.

    >>> lane_names(["lea", "ada", "lea"]), lane_names(7), lane_names(None)
    (('ada', 'lea'), ('7',), ())

    Raises ``ConfigError``.
    """
    if lane is None:
        return ()
    if not isinstance(lane, str | int | Iterable) or isinstance(
        lane, Mapping | bytes | bytearray | memoryview
    ):
        raise ConfigError(f"{what}={lane!r:.60}: a lane is a text or a whole number, or a list of these")
    keys = [lane] if isinstance(lane, str | int) else list(lane)
    for key in keys:
        is_key = isinstance(key, str | int) and not isinstance(key, bool)
        if not is_key or not 0 < len(str(key)) <= LONGEST_LANE:
            length = f"; this one has {len(str(key)):,}" if is_key else ""
            raise ConfigError(
                f"{what}={short_repr(key)}: a lane is a text of 1 to {LONGEST_LANE} characters, or a whole number{length}"
            )
    names = tuple(sorted({str(key.value) if isinstance(key, Enum) else str(key) for key in keys}))
    if len(names) > MOST_LANES:
        raise ConfigError(f"{what}={lane!r:.60}: {len(names)} lanes, and a task has at most {MOST_LANES}")
    refuse_unstorable(ConfigError, lane="".join(names))
    return names


def check_terms(at_once: Any, when_taken: Any, where: str) -> None:
    """Raise ``ConfigError`` for options of a lane that make no sense. ``where``: names them in errors."""
    if isinstance(at_once, bool) or not isinstance(at_once, int) or not 1 <= at_once <= MOST_AT_ONCE:
        raise ConfigError(f"{where}: at_once={at_once!r:.40}: a whole number from 1 to {MOST_AT_ONCE:,}")
    if when_taken not in get_args(WhenTaken):
        raise ConfigError(f'{where}: when_taken={when_taken!r:.40}: "wait", "refuse" or "cancel"')
