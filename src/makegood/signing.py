"""Signatures after Standard Webhooks, and the addresses that webhooks go to. Needs nothing but the standard library's hashes.

``webhook-id`` names the message (the same at every try: receivers drop repeats by it), ``webhook-timestamp`` says when it was
sent, ``webhook-signature`` holds one HMAC-SHA256 over "id.timestamp.body" per secret, so that secrets can be changed one
side at a time.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from makegood.errors import ConfigError

TIMEOUT: Final = 10.0
"""Seconds that a receiver has to answer."""

TOLERANCE: Final = 300.0
"""Seconds by which a message's timestamp may differ from the receiver's clock."""

_PREFIX: Final = "whsec_"


MAKE: Final = "`python -c \"import base64, os; print('whsec_' + base64.b64encode(os.urandom(32)).decode())\"`"
"""The command that makes a secret."""

_LEAST, _MOST = 24, 64


def key_of(secret: str, what: str = "a webhook secret") -> bytes:
    """Return the key that a secret stands for: 24 to 64 bytes, written as ``whsec_`` and base64.

    >>> key_of("whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0")
    b'secretsecretsecretsecret'

    Raises ``ConfigError``, naming ``what``, for any other, without showing it: receivers would read it otherwise, or guess it.
    """
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except ValueError:  # binascii.Error is one
        key = b""
    if not secret.startswith(_PREFIX) or not _LEAST <= len(key) <= _MOST:
        raise ConfigError(
            f"{what}: write whsec_ and {_LEAST} to {_MOST} bytes in base64, as {MAKE} makes one"
        )
    return key


def signature(secrets: Sequence[str], message_id: str, timestamp: int, body: bytes) -> str:
    """Return the ``webhook-signature`` header: one ``v1,...`` per secret, with spaces between."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    digests = (hmac.new(key_of(secret), signed, hashlib.sha256).digest() for secret in secrets)
    return " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)


def verified(secret: str, headers: Mapping[str, str], body: bytes, *, now: float) -> bool:
    """Return whether a message is from somebody who knows ``secret``, and not older than five minutes: for receivers.

    ``headers`` with names in small letters; ``now``: seconds since 1970.

    >>> ours, other = "whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "whsec_b3RoZXIub3RoZXIub3RoZXIub3RoZXIu"
    >>> body, signed = b"{}", signature([ours], "m-1", 1000, b"{}")
    >>> headers = {"webhook-id": "m-1", "webhook-timestamp": "1000", "webhook-signature": signed}
    >>> verified(ours, headers, body, now=1010), verified(other, headers, body, now=1010)
    (True, False)
    """
    message_id, sent = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not sent.isdecimal() or abs(now - int(sent)) > TOLERANCE:
        return False
    wanted = signature([secret], message_id, int(sent), body)
    given = headers.get("webhook-signature", "").split()
    return any(hmac.compare_digest(wanted.encode(), one.encode()) for one in given)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a webhook goes."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def shown(self) -> str:
        """The address without its path and query, which may hold secrets: for logs."""
        return f"{self.scheme}://{self.host}:{self.port}"


def address(url: str, what: str = "the webhook's address") -> Address:
    """Return the parts of an http or https URL; raises ``ConfigError``, naming ``what``, for any other."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as wrong:
        raise ConfigError(f"{what} cannot be read: {wrong}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{what}: write https://host/path")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            f"{what}: a name and password in it would end in logs; the signature says who sends"
        )
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Address(parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80), path)
