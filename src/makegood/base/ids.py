"""Names and keys.

A task's id is a 63-bit integer: milliseconds since 2024 in the upper 41 bits, 22 random bits below, rising
within one process. It is small and in order of time, which keeps both stores' indexes short. People see it as
13 letters and digits (Crockford's base 32). Two processes may by chance draw the same id; the store's primary
key detects that, and the submitter draws again.

The *key* that a remote service sees must never be shared by two tasks, not even of two stores. So it begins
with the store's own random id: ``store-task/step/round/direction``.
"""

import random
import re
import uuid
from functools import lru_cache

from makegood.base.clock import Clock
from makegood.errors import ConfigError, DefinitionError, TaskNotFoundError


@lru_cache(maxsize=1000)  # called several times for each step, and used as a key: the same text, hashed once
def address(app: str, agent: str) -> str:
    """Return an agent's address, under which its requests wait: agents of two apps may share a name."""
    return f"{app}/{agent}"


ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
VALUES = {letter: n for n, letter in enumerate(ALPHABET)}
_EPOCH_2024 = 1_704_067_200.0
_RANDOM_BITS = 22
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}", re.ASCII)
_QUEUE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", re.ASCII)
_SHOWN_LENGTH = 13
_MOST = 1 << 63
"""No id is so large: databases keep ids in 63 bits."""


class TaskIdSource:
    """Draws task ids. One per client; ``draw()`` never returns the same id twice.

    >>> from makegood.base.clock import SystemClock
    >>> ids = TaskIdSource(SystemClock(), random.Random(1))
    >>> ids.draw() < ids.draw()
    True
    """

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self._last = 0

    def draw(self) -> int:
        """Return a new id, above every id drawn here before."""
        now = int((self._clock.wall() - _EPOCH_2024) * 1000) << _RANDOM_BITS
        number = (now | self._rng.getrandbits(_RANDOM_BITS)) & (2**63 - 1)
        self._last = number if number > self._last else self._last + 1
        return self._last


def random_uuid(rng: random.Random) -> str:
    """Draw a random UUID, as text.

    >>> random_uuid(random.Random(1))
    'cd613e30-d8f1-4adf-91b7-584a2265b1f5'
    """
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def show(task_id: int) -> str:
    """Return a task id as people see it: 13 letters and digits."""
    letters = []
    for _ in range(_SHOWN_LENGTH):
        letters.append(ALPHABET[task_id & 31])
        task_id >>= 5
    return "".join(reversed(letters))


def draw_time(task_id: int) -> float:
    """Return when a task id was drawn, to the millisecond: seconds since 1970 by its submitter's wall
    clock.
    """
    return (task_id >> _RANDOM_BITS) / 1000 + _EPOCH_2024


def first_of(moment: float) -> int:
    """Return the lowest id that can be drawn at a moment (seconds since 1970) or later.

    >>> draw_time(first_of(1_800_000_000.0))
    1800000000.0
    """
    return round((moment - _EPOCH_2024) * 1000) << _RANDOM_BITS


def parse(text: str) -> int:
    """Return the task id that ``show`` wrote as ``text``; a plain decimal of 14 or more digits is accepted
    too.

    Raises ``TaskNotFoundError`` if the text cannot be a task id.
    """
    word = text.strip().lower()
    number = _MOST
    if len(word) == _SHOWN_LENGTH and set(word) <= VALUES.keys():
        number = 0
        for letter in word:
            number = number << 5 | VALUES[letter]
    elif _SHOWN_LENGTH < len(word) <= len(str(_MOST)) and word.isdecimal():
        number = int(word)
    if number >= _MOST:
        raise TaskNotFoundError(
            f"{text!r} is not a task id: one has 13 letters and digits; `makegood task list` shows them, `makegood task show KEY` "
            "finds a task by its key",
            task_id=text,
        )
    return number


def checked_id(number: int) -> int:
    """Return a task's number; raises ``TaskNotFoundError`` for one that no task can have."""
    if not 0 <= number < _MOST:
        raise TaskNotFoundError(f"{number} is not the number of a task: they are from 0 to 2**63 - 1")
    return number


def key(store_id: str, task_id: int, step: str, round_: int, direction: str) -> str:
    """Return the idempotency key of a step: the same for every attempt of that step in that round."""
    return f"{store_id}-{show(task_id)}/{step}/{round_}/{direction}"


def scope(store_id: str, task_id: int, step: str) -> str:
    """Return the scope within which a step's fencing tokens are compared: one per step, over all rounds."""
    return f"{store_id}-{show(task_id)}/{step}"


def checked_name(name: str, subject: str) -> str:
    """Return ``name`` if it may name an app, agent, action or workflow; else raise ``DefinitionError``.

    Names travel in keys and HTTP headers, so they are ASCII: a letter or underscore, then letters, digits,
    ``_ . -``.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DefinitionError(
            f"{subject} name {name!r} is not allowed: up to 100 ASCII letters, digits, '_', '.', '-', not beginning with a digit; "
            'pass name="..."'
        )
    return name


def checked_bulk(name: str) -> str:
    """Return ``name`` if it may name a command on many tasks; else raise ``ConfigError``.

    It is a part of an address, and the part before the slash in the names of its commands.
    """
    if not isinstance(name, str) or not _QUEUE.fullmatch(name):
        raise ConfigError(
            f"id={name!r:.60}: up to 100 ASCII letters, digits, '_', '.', '-', beginning with a letter, a digit or '_'"
        )
    return name


def checked_queue(name: str) -> str:
    """Return ``name`` if it may name a queue; else raise ``DefinitionError``.

    It may begin with a digit, as a host's name may.
    """
    if not isinstance(name, str) or not _QUEUE.fullmatch(name):
        raise DefinitionError(
            f"queue name {name!r} is not allowed: up to 100 ASCII letters, digits, '_', '.', '-', beginning with a letter, a digit or '_'"
        )
    return name
