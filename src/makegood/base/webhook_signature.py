"""Signatures as in Standard Webhooks, and the addresses of webhooks. Needs only the standard library's
hashes.

``webhook-id`` names the message (the same at every try: receivers drop repeats by it). ``webhook-timestamp``
says when it was sent. ``webhook-signature`` holds one HMAC-SHA256 over "id.timestamp.body" per secret, so
that secrets can be changed one side at a time.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

from makegood.base.text import is_storable
from makegood.errors import ConfigError

TIMEOUT: Final = 10.0
"""Seconds that a receiver has to answer."""

TOLERANCE: Final = 300.0
"""Seconds by which a message's timestamp may differ from the receiver's clock."""

PORTS: Final = MappingProxyType({"https": 443, "http": 80})
"""The default port of each scheme."""

_PREFIX: Final = "whsec_"


MAKE: Final = "`python -c \"import base64, os; print('whsec_' + base64.b64encode(os.urandom(32)).decode())\"`"
"""The command that makes a secret."""

_LEAST, _MOST = 24, 64
_MOST_DIGITS: Final = 12
"""The longest timestamp that is read, in digits: enough for 30,000 years."""


def key_of(secret: str, subject: str = "a webhook secret") -> bytes:
    """Return the key of a secret: 24 to 64 bytes, written as ``whsec_`` and base64.

    >>> key_of("whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0")
    b'secretsecretsecretsecret'

    Raises ``ConfigError``, naming ``subject``, for any other text, without showing it: receivers would read
    it differently, or guess it.
    """
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except ValueError:  # binascii.Error is one
        key = b""
    if not secret.startswith(_PREFIX) or not _LEAST <= len(key) <= _MOST:
        raise ConfigError(
            f"{subject}: write whsec_ and {_LEAST} to {_MOST} bytes in base64, as {MAKE} makes one"
        )
    return key


def signature(secrets: Sequence[str], message_id: str, timestamp: int, body: bytes) -> str:
    """Return the ``webhook-signature`` header: one ``v1,...`` per secret, with spaces between."""
    content = f"{message_id}.{timestamp}.".encode() + body
    digests = (hmac.new(key_of(secret), content, hashlib.sha256).digest() for secret in secrets)
    return " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)


def verified(secret: str, headers: Mapping[str, str], body: bytes, *, now: float) -> bool:
    """Return whether the sender of a message knows ``secret``, and sent it within five minutes of ``now``:
    for receivers.

    ``headers`` has names in lower case; ``now``: seconds since 1970. Headers come from strangers: whatever
    they hold, text or not, the answer is False unless they are right.

    >>> ours, other = "whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "whsec_b3RoZXIub3RoZXIub3RoZXIub3RoZXIu"
    >>> body, signed = b"{}", signature([ours], "m-1", 1000, b"{}")
    >>> headers = {"webhook-id": "m-1", "webhook-timestamp": "1000", "webhook-signature": signed}
    >>> verified(ours, headers, body, now=1010), verified(other, headers, body, now=1010)
    (True, False)
    """
    values = [headers.get(f"webhook-{name}") for name in ("id", "timestamp", "signature")]
    texts = [value for value in values if isinstance(value, str) and is_storable(value)]
    if len(texts) < len(values):
        return False
    message_id, sent_at, signatures = texts
    if not (sent_at.isascii() and sent_at.isdecimal() and len(sent_at) <= _MOST_DIGITS):
        return False
    if not abs(now - int(sent_at)) <= TOLERANCE:  # a NaN is not near
        return False
    right_signature = signature([secret], message_id, int(sent_at), body).encode()
    return any(hmac.compare_digest(right_signature, digest) for digest in signatures.encode().split())


@dataclass(frozen=True, slots=True)
class WebhookAddress:
    """Where a webhook goes."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def netloc(self) -> str:
        """Host and port as in the header ``Host``: without the scheme's default port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """The address without its path and query, which may hold secrets: for logs."""
        return f"{self.scheme}://{self.netloc}"


def address(url: str, subject: str = "the webhook's address") -> WebhookAddress:
    """Return the parts of an http or https URL; raises ``ConfigError``, naming ``subject``, for any other."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # its text may show all of the URL
        raise ConfigError(f"{subject} cannot be read: write https://host/path, percent-encoded") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{subject}: write https://host/path")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            f"{subject}: a name and password in it would end in logs; the signature says who sends"
        )
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError(f"{subject}: write it in ASCII: percent-encode the path, punycode the host")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return WebhookAddress(parts.scheme, parts.hostname, port or PORTS[parts.scheme], path)
