"""Logins: a signed cookie names the user until it expires, and failed attempts are limited.

The cookie holds no role: a user who is removed from the settings, or loses a role, loses it at once. It is
signed with the hash of the user's password as well, so a change of password ends all logins with the old one.
"""

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from makegood.base.clock import Clock
from makegood.console.private_state import EndedLogins
from makegood.console.users import User, base64_bytes, base64_text

LASTS: Final = 12 * 3600.0
"""Seconds until a login expires."""
COOKIE: Final = "makegood_login"

WINDOW: Final = 300.0
"""Seconds over which failed logins count."""
MOST_OF_PAIR: Final = 5
"""Failures of one name from one address."""
MOST_OF_ADDRESS: Final = 20
"""Failures of all names from one address."""
MOST_OF_NAME: Final = 50
"""Failures of one name from all addresses; high, so that a stranger cannot lock a user out with ease."""
MOST_KEPT: Final = 10_000
PROVEN: Final = 60.0
"""Seconds for which a password that a program sends with each request counts as proven."""


class Login(NamedTuple):
    """What a cookie says."""

    user: str
    expires: float
    nonce: str


class Logins:
    """Signs and verifies cookies and tokens with one secret. Processes that share logins share the secret."""

    def __init__(self, clock: Clock, secret: str | None = None, ended_file: Path | None = None) -> None:
        """``ended_file``: the file in which logouts outlive the process, as logins do with a ``secret``."""
        self._clock = clock
        self._key = hashlib.sha256((secret or secrets.token_hex(32)).encode()).digest()
        self._ended = EndedLogins(ended_file)

    def cookie(self, user: str, proof: str) -> str:
        """Return a new cookie for a user who has logged in. ``proof``: the hash of what they know."""
        login = Login(user, self._clock.wall() + LASTS, secrets.token_urlsafe(16))
        return self.sign(f"login {proof}", msgspec.json.encode(login))

    def read(self, cookie: str, proof: Callable[[str], str]) -> Login | None:
        """Return what a cookie says; None for one that is forged, has expired or was logged out.

        ``proof``: of a user by name, "" for somebody who cannot log in.
        """
        try:
            login = msgspec.json.decode(base64_bytes(cookie.partition(".")[0]), type=Login)
        except (ValueError, msgspec.MsgspecError):
            return None
        fingerprint = proof(login.user)
        if not fingerprint or self.verify(f"login {fingerprint}", cookie) is None:
            return None
        return None if login.expires <= self._clock.wall() or login.nonce in self._ended else login

    def end(self, login: Login) -> None:
        """Let a cookie be valid no longer."""
        self._ended.end(login.nonce, login.expires, self._clock.wall())

    def sign(self, purpose: str, body: bytes) -> str:
        """Return a body with its signature, as a cookie holds it."""
        text = base64_text(body)
        return f"{text}.{self._sign(purpose, text)}"

    def verify(self, purpose: str, cookie: str) -> bytes | None:
        """Return the body of what was signed for this purpose; None for anything else."""
        text, _, signature = cookie.partition(".")
        is_valid = hmac.compare_digest(
            signature.encode("utf-8", "surrogatepass"), self._sign(purpose, text).encode()
        )
        return base64_bytes(text) if is_valid else None

    def token(self, subject: str) -> str:
        """Return the token that a login's forms carry. ``subject``: what distinguishes the login."""
        return self._sign("form", subject)

    def _sign(self, purpose: str, text: str) -> str:
        return base64_text(
            hmac.digest(self._key, f"{purpose}\0{text}".encode("utf-8", "surrogatepass"), "sha256")
        )


class LoginLimits:
    """Counts failed logins by name and address, in bounded memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failed: OrderedDict[tuple[str, str], list[float]] = OrderedDict()

    def wait(self, name: str, address: str) -> float:
        """Return the seconds until another attempt may be made, 0 for now."""
        now = self._clock.monotonic()
        return max(self._seconds_left(key, limit, now) for key, limit in _keys(name, address))

    def count_failure(self, name: str, address: str) -> None:
        """Count a failed attempt."""
        now = self._clock.monotonic()
        for key, limit in _keys(name, address):
            times = [at for at in self._failed.pop(key, []) if at > now - WINDOW]
            self._failed[key] = [*times, now][-limit:]
        while len(self._failed) > MOST_KEPT:
            self._failed.popitem(last=False)

    def forget_failures(self, name: str, address: str) -> None:
        """Forget the failures of a name from an address: its user has logged in."""
        self._failed.pop((name, address), None)

    def _seconds_left(self, key: tuple[str, str], limit: int, now: float) -> float:
        times = [at for at in self._failed.get(key, ()) if at > now - WINDOW]
        return times[-limit] + WINDOW - now if len(times) >= limit else 0.0


def _keys(name: str, address: str) -> tuple[tuple[tuple[str, str], int], ...]:
    name = name[:200]
    return ((name, address), MOST_OF_PAIR), (("", address), MOST_OF_ADDRESS), ((name, ""), MOST_OF_NAME)


class ProvenPasswords:
    """Passwords that were right a moment ago, so that a program's next request need not wait for scrypt.

    It holds no password, but a keyed hash of name, stored hash and password: a user whose password has
    changed must prove the new one.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._until: OrderedDict[bytes, float] = OrderedDict()

    def holds(self, user: User, password: str) -> bool:
        """Return whether this password of a user was proven less than ``PROVEN`` seconds ago."""
        return self._until.get(self._mark(user, password), 0.0) > self._clock.monotonic()

    def add(self, user: User, password: str) -> None:
        """Record that a password was right."""
        now, mark = self._clock.monotonic(), self._mark(user, password)
        self._until.pop(mark, None)
        while self._until and (len(self._until) >= MOST_KEPT or next(iter(self._until.values())) <= now):
            self._until.popitem(last=False)
        self._until[mark] = now + PROVEN

    def _mark(self, user: User, password: str) -> bytes:
        text = f"{user.name}\0{user.password}\0{password}"
        return hmac.digest(self._key, text.encode("utf-8", "surrogatepass"), "sha256")
