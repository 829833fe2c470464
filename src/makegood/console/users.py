"""The users that the settings file names: their roles, and their passwords as scrypt hashes.

A line is ``ann = "operator scrypt:15:8:1:SALT:HASH"``. A user without a hash cannot log in; a trusted proxy
may still name them. Checking a password takes as long for an unknown user as for a known one.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from makegood.errors import ConfigError

Role = Literal["viewer", "operator", "admin"]
"""viewer: sees everything, payloads redacted; operator: acts; admin: edits inputs, settles steps, sees
payloads whole.
"""

ROLES: Final[tuple[Role, ...]] = get_args(Role)
"""From the least to the most powerful."""

SHORTEST: Final = 12
"""The fewest characters of a new password."""
MOST_CHARACTERS: Final = 1024
"""Longer passwords are not even hashed."""

_COST, _BLOCK, _PARALLELISM = 15, 8, 1  # 32 MiB and about a tenth of a second
_MEMORY: Final = 128 * 1024 * 1024
_UNKNOWN: Final = f"scrypt:{_COST}:{_BLOCK}:{_PARALLELISM}:{'A' * 22}:{'A' * 43}"


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who may use the console. ``password``: a hash, as ``makegood console --hash-password`` prints
    it.
    """

    name: str
    role: Role
    password: str = ""


def users_of(table: Mapping[str, object], name: str) -> dict[str, User]:
    """Return users by their names, from a table of settings. ``name``: the table, for messages. Raises
    ``ConfigError``.
    """
    users: dict[str, User] = {}
    for user_name, line in table.items():
        words = line.split() if isinstance(line, str) else []
        if not user_name.strip() or not 1 <= len(words) <= 2:
            raise ConfigError(
                f'{name}: write NAME = "ROLE HASH", as `makegood console --hash-password NAME` prints it, not {user_name!r}'
            )
        password = words[1] if len(words) > 1 else ""
        if password and _parts(password) is None:
            raise ConfigError(
                f"{name}: the password of {user_name!r} is not a hash that `makegood console --hash-password` printed"
            )
        users[user_name] = User(user_name, role_of(words[0], f"{name}: {user_name}"), password)
    return users


def role_of(text: object, name: str) -> Role:
    """Return a role by its name. Raises ``ConfigError``."""
    match = next((role for role in ROLES if role == text), None)
    if match is None:
        raise ConfigError(f"{name}: {text!r} is not a role; one of {', '.join(ROLES)}")
    return match


def hash_password(password: str) -> str:
    """Return a salted scrypt hash of a password. Raises ``ConfigError`` for one that is too short or too
    long.
    """
    if not SHORTEST <= len(password) <= MOST_CHARACTERS:
        raise ConfigError(f"a password of the console has {SHORTEST} to {MOST_CHARACTERS} characters")
    salt = secrets.token_bytes(16)
    digest = _scrypt(password, salt, _COST, _BLOCK, _PARALLELISM)
    return f"scrypt:{_COST}:{_BLOCK}:{_PARALLELISM}:{base64_text(salt)}:{base64_text(digest)}"


def accepts(user: User | None, password: str) -> bool:
    """Return whether a password is a user's; of an unknown user, or one without a password, it never is."""
    password_hash = user.password if user is not None and user.password else _UNKNOWN
    parts = _parts(password_hash)
    if parts is None or len(password) > MOST_CHARACTERS:
        return False
    cost, block, parallelism, salt, digest = parts
    is_equal = hmac.compare_digest(_scrypt(password, salt, cost, block, parallelism), digest)
    return is_equal and password_hash is not _UNKNOWN


def _scrypt(password: str, salt: bytes, cost: int, block: int, parallelism: int) -> bytes:
    secret = password.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(secret, salt=salt, n=1 << cost, r=block, p=parallelism, maxmem=_MEMORY, dklen=32)


def _parts(text: str) -> tuple[int, int, int, bytes, bytes] | None:
    """Return the parts of a hash; None for a text that is none, or that would cost more memory than is
    given.
    """
    try:
        kind, *numbers, salt, digest = text.split(":")
        cost, block, parallelism = map(int, numbers)
        parts = cost, block, parallelism, base64_bytes(salt), base64_bytes(digest)
    except (ValueError, binascii.Error):
        return None
    fits = kind == "scrypt" and 14 <= cost <= 18 and 1 <= block <= 16 and 1 <= parallelism <= 4
    return (
        parts
        if fits and len(parts[3]) >= 16 and len(parts[4]) == 32 and (128 << cost) * block < _MEMORY
        else None
    )


def base64_text(raw: bytes) -> str:
    """Return bytes as a text for cookies and settings: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def base64_bytes(text: str) -> bytes:
    """Return the bytes of such a text. Raises ``binascii.Error``."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
