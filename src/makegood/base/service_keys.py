"""Idempotency keys in the forms that services take, and back.

A key as we write it, ``store-task/step/round/direction``, is readable; but most services take a UUID only, or
fewer characters. The other forms are the same four values as a number, put through a permutation of all the
bits that the form has: so each form of a key is as good as a random one to others, has the same length in
both directions, and can be turned back into the step that it is of, without a row or an index. The values
take 100 bits. Those that a form has beyond are zero before the permutation, which tells the keys of this
store from other values.

The permutation is a Feistel network with BLAKE2b, keyed by the store's id. What it makes of a key must never
change: a service would take the retry of a request for a new one. ``VERSION`` is part of every round; a test
keeps values of it.
"""

import re
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from makegood.base.ids import ALPHABET, VALUES, key, parse
from makegood.errors import ConfigError

VERSION: Final = b"makegood-key-1"

MOST_STEPS: Final = 1 << 20
"""The most steps of a task."""
MOST_ROUNDS: Final = (1 << 16) - 1
SHORTEST, LONGEST = 20, 64
"""The characters that a form with a length may have."""

_BITS, _UUID_BITS, _LETTER_BITS = 100, 122, 5
_ROUNDS = 8
_VERSIONS = {"uuid": 5, "uuid4": 4, "quoted": 5}
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[45][0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}")
_LENGTH = re.compile(r"length=(\d+)", re.ASCII)
_READABLE = re.compile(r"([0-9a-f]{16})-([0-9a-z]{13})/.+/\d+/(?:do|undo)", re.ASCII)


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """What a key stands for: a direction of a round of a step."""

    task: int
    idx: int
    """The step's position in the task, which is its own for as long as the task lives."""
    round: int
    undo: bool


def checked_form(form: object, where: str) -> str:
    """Return a form as it is stored, "" for the readable one; raises ``ConfigError`` for one that does not
    exist.

    >>> checked_form("uuid", "key"), checked_form("plain", "key"), checked_form("length=28", "key")
    ('uuid', '', 'length=28')
    """
    if form == "plain":
        return ""
    if isinstance(form, str):
        if form in _VERSIONS:
            return form
        if (match := _LENGTH.fullmatch(form)) is not None:
            return form_of_length(int(match[1]), where)
    raise ConfigError(
        f'{where}: {form!r} is not the form of a key: there are "uuid", "uuid4", "quoted", "length=28" (from {SHORTEST} to '
        f'{LONGEST} characters) and "plain"'
    )


def form_of_length(length: object, where: str) -> str:
    """Return the form with this many characters; raises ``ConfigError`` for too few, or too many."""
    if not isinstance(length, int) or isinstance(length, bool):
        raise ConfigError(f"{where}: length={length!r}: a whole number of characters")
    if length < SHORTEST:
        raise ConfigError(
            f"{where}: length={length}: at least {SHORTEST}; with fewer characters two steps would share a key"
        )
    if length > LONGEST:
        raise ConfigError(f"{where}: length={length}: at most {LONGEST}; more characters make a key no safer")
    return f"length={length}"


def length_of(form: str) -> int:
    """Return how many characters the keys of a form have; 0 for the readable one, where they differ.

    >>> length_of("uuid"), length_of("quoted"), length_of("length=28"), length_of("")
    (36, 38, 28, 0)
    """
    if not form:
        return 0
    return {"quoted": 38}.get(form, 36) if form in _VERSIONS else int(form.partition("=")[2])


def longest_key(step: str, direction: str, round_: int = 1) -> int:
    """Return how many characters the readable key of a step has.

    >>> longest_key("charge", "do"), longest_key("charge", "undo")
    (42, 44)
    """
    return len(key("0" * 16, 0, step, round_, direction))


def in_form(store_id: str, request: KeyedRequest, form: str) -> str:
    """Return a key in a form other than the readable one. Raises ``ConfigError`` if a number is too large."""
    if request.idx >= MOST_STEPS or request.round > MOST_ROUNDS:
        raise ConfigError(
            f"step {request.idx} in round {request.round} has no key of the form {form}: there are {MOST_STEPS:,} steps and "
            f"{MOST_ROUNDS:,} rounds at most"
        )
    value = ((request.task << 20 | request.idx) << 16 | request.round) << 1 | request.undo
    version = _VERSIONS.get(form)
    if version is None:
        length = length_of(form)
        value = _permute(store_id, value, length * _LETTER_BITS)
        return "".join(ALPHABET[value >> at * _LETTER_BITS & 31] for at in reversed(range(length)))
    value = _permute(store_id, value, _UUID_BITS)
    high, middle, low = value >> 74, value >> 62 & 0xFFF, value & (1 << 62) - 1
    text = f"{high << 80 | version << 76 | middle << 64 | 2 << 62 | low:032x}"
    text = "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
    return f'"{text}"' if form == "quoted" else text


def request_of(store_id: str, text: str) -> KeyedRequest | None:
    """Return what a key stands for that has another form than the readable one; None for any other text.

    Quotes around it, missing hyphens and capital letters do not matter.
    """
    bare = text.strip().strip("\"'{}").lower()
    if _UUID.fullmatch(bare):
        number = int(bare.replace("-", ""), 16)
        value = (number >> 80) << 74 | (number >> 64 & 0xFFF) << 62 | number & (1 << 62) - 1
        if (request := _request_of(_permute(store_id, value, _UUID_BITS, back=True))) is not None:
            return request
    if not SHORTEST <= len(bare) <= LONGEST or not VALUES.keys() >= set(bare):
        return None
    value = 0
    for letter in bare:
        value = value << _LETTER_BITS | VALUES[letter]
    return _request_of(_permute(store_id, value, len(bare) * _LETTER_BITS, back=True))


def task_of(store_id: str, text: str) -> int | None:
    """Return the task of whose step a text is a key, in whichever form; None if it is none of this store.

    >>> task_of("674203e9d29c1b4e", "674203e9d29c1b4e-0000006gks600/charge/1/undo")
    7000070144
    """
    match = _READABLE.fullmatch(text.strip().strip("\"'"))
    if match is not None:
        return parse(match[2]) if match[1] == store_id else None
    request = request_of(store_id, text)
    return None if request is None else request.task


def _request_of(value: int) -> KeyedRequest | None:
    if value >> _BITS:
        return None
    return KeyedRequest(value >> 37, value >> 17 & MOST_STEPS - 1, value >> 1 & MOST_ROUNDS, bool(value & 1))


def _permute(store_id: str, value: int, width: int, *, back: bool = False) -> int:
    """Return the image of a number of ``width`` bits, or with ``back`` the number that has this image."""
    size = width // 2
    halves = [value >> size, value & (1 << size) - 1]
    masks = ((1 << width - size) - 1, (1 << size) - 1)
    secret = store_id.encode()[:64]
    for n in reversed(range(_ROUNDS)) if back else range(_ROUNDS):
        side = n & 1
        data = bytes((n, width & 255, width >> 8)) + halves[1 - side].to_bytes(20, "big")
        digest = blake2b(data, digest_size=20, key=secret, person=VERSION).digest()
        halves[side] ^= int.from_bytes(digest, "big") & masks[side]
    return halves[0] << size | halves[1]
