"""Logins: a signed cookie names the user until it expires, and failed attempts are limited.

The cookie holds no role: a user who is removed from the settings, or loses a role, loses it at once.
"""

import hashlib
import hmac
import secrets
from collections import OrderedDict
from typing import Final, NamedTuple

import msgspec

from makegood.base.clock import Clock
from makegood.console.users import base64_bytes, base64_text

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


class Login(NamedTuple):
    """What a cookie says."""

    user: str
    expires: float
    nonce: str


class Logins:
    """Signs and verifies cookies and tokens with one secret. Processes that share logins share the secret."""

    def __init__(self, clock: Clock, secret: str | None = None) -> None:
        self._clock = clock
        self._key = hashlib.sha256((secret or secrets.token_hex(32)).encode()).digest()
        self._ended: OrderedDict[str, float] = OrderedDict()

    def cookie(self, user: str) -> str:
        """Return a new cookie for a user who has logged in."""
        login = Login(user, self._clock.wall() + LASTS, secrets.token_urlsafe(16))
        return self.signed("login", msgspec.json.encode(login))

    def read(self, cookie: str) -> Login | None:
        """Return what a cookie says; None for one that is forged, has expired or was logged out."""
        body = self.verified("login", cookie)
        if body is None:
            return None
        login = msgspec.json.decode(body, type=Login)
        return None if login.expires <= self._clock.wall() or login.nonce in self._ended else login

    def end(self, login: Login) -> None:
        """Let a cookie be valid no longer."""
        now = self._clock.wall()
        while self._ended and (len(self._ended) >= MOST_KEPT or next(iter(self._ended.values())) <= now):
            self._ended.popitem(last=False)
        self._ended[login.nonce] = login.expires

    def signed(self, purpose: str, body: bytes) -> str:
        """Return a body with its signature, as a cookie holds it."""
        text = base64_text(body)
        return f"{text}.{self._sign(purpose, text)}"

    def verified(self, purpose: str, cookie: str) -> bytes | None:
        """Return the body of what was signed for this purpose; None for anything else."""
        text, _, signature = cookie.partition(".")
        same = hmac.compare_digest(
            signature.encode("utf-8", "surrogatepass"), self._sign(purpose, text).encode()
        )
        return base64_bytes(text) if same else None

    def token(self, bound: str) -> str:
        """Return the token that a login's forms carry. ``bound``: what the login is told apart by."""
        return self._sign("form", bound)

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
        return max(self._left(key, most, now) for key, most in _keys(name, address))

    def failed(self, name: str, address: str) -> None:
        """Count a failed attempt."""
        now = self._clock.monotonic()
        for key, most in _keys(name, address):
            times = [at for at in self._failed.pop(key, []) if at > now - WINDOW]
            self._failed[key] = [*times, now][-most:]
        while len(self._failed) > MOST_KEPT:
            self._failed.popitem(last=False)

    def passed(self, name: str, address: str) -> None:
        """Forget the failures of a name from an address: its user has logged in."""
        self._failed.pop((name, address), None)

    def _left(self, key: tuple[str, str], most: int, now: float) -> float:
        times = [at for at in self._failed.get(key, ()) if at > now - WINDOW]
        return times[-most] + WINDOW - now if len(times) >= most else 0.0


def _keys(name: str, address: str) -> tuple[tuple[tuple[str, str], int], ...]:
    name = name[:200]
    return ((name, address), MOST_OF_PAIR), (("", address), MOST_OF_ADDRESS), ((name, ""), MOST_OF_NAME)
