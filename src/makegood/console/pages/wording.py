"""Words and small figures that several pages share, and the sentence that each page begins with."""

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from makegood.base import ids
from makegood.base.durations import brief
from makegood.base.text import refuse_unstorable
from makegood.errors import ConfigError
from makegood.store.views import NodeView, Tally, TaskView

Tone = Literal["idle", "run", "ok", "undo", "doubt", "fail", "need"]

MOST_COUNTED: Final = 10_000
"""Where counts end: above it, pages say "10,000+"."""


class PageVerdict(msgspec.Struct, frozen=True):
    """The sentence that answers a page."""

    tone: Tone
    icon: str
    title: str
    more: str = ""


def behind(text: str) -> tuple[str, str]:
    """Return the app and the name after which a page begins, from APP/NAME. Raises ``ConfigError``."""
    refuse_unstorable(ConfigError, after=text)
    app, _, name = text.partition("/")
    return app, name


class Tab(msgspec.Struct, frozen=True):
    """A filter that is often asked for."""

    label: str
    query: str
    count: str = ""
    need: bool = False


def count_text(count: int, *, more: bool = False) -> str:
    """Return a count as pages show it.

    >>> count_text(1200), count_text(9000, more=True), count_text(10_000, more=True)
    ('1,200', '9,000+', '10,000+')
    """
    return f"{min(count, MOST_COUNTED):,}{'+' if more or count > MOST_COUNTED else ''}"


def tally_text(tally: Tally) -> str:
    """Return a tally as pages show it."""
    return count_text(tally.count, more=tally.more)


def title_of(kind: str) -> str:
    """Return a kind as a title: by its own name, which is the same in the code, in commands and on pages.

    >>> title_of("late_boat")
    'Late boat'
    """
    return kind.replace("_", " ").capitalize()


def name_of(task: TaskView) -> str:
    """Return what people call a task: its key, or else its id.

    A key with spaces that a page would not show is quoted.
    """
    key = task.key or ids.show(task.id)
    return key if key == key.strip() and "  " not in key else f"“{key}”"


def names_of(nodes: Iterable[NodeView]) -> Mapping[int, str]:
    """Return the names of processes by their numbers."""
    return {node.id: node.info.name for node in nodes}


def share(part: float, whole: float) -> float:
    """Return a part of a whole in percent, from 0 to 100.

    >>> share(1, 4), share(5, 4), share(1, 0)
    (25.0, 100.0, 0.0)
    """
    return round(max(0.0, min(100.0, 100.0 * part / whole)), 2) if whole > 0 else 0.0


def duration_text(seconds: float | None) -> str:
    """Return a length of time, "" for None."""
    return "" if seconds is None else brief(max(0.0, seconds))
