"""nats-py's client, which keeps what a URL says: with ``tls://`` nothing is sent unencrypted, and a login
may be percent-encoded.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from nats import errors
from nats.aio.client import Client

from makegood.base.extras import optional
from makegood.base.urls import ENCODE
from makegood.errors import ConfigError

_PARTS: Final = (b"BEGIN NATS USER JWT", b"BEGIN USER NKEY SEED")


class NoTLSError(errors.Error):
    """The URL says ``tls://``, and the server offers no TLS: nothing was sent."""


class NatsClient(Client):
    """A client that sends nothing unencrypted if ``must_encrypt``."""

    must_encrypt = False

    def _connect_command(self) -> bytes:
        if self.must_encrypt and not self._server_info.get("tls_required"):
            raise NoTLSError("the server offers no TLS, and the URL says tls://")
        command: bytes = super()._connect_command()
        return command


def split_login(servers: Sequence[str], subject: str) -> tuple[list[str], dict[str, Any]]:
    """Return servers without the login in front of their hosts, and that login as ``connect`` takes it.

    ``servers``: the URLs of one cluster. Raises ``ConfigError``, which begins with ``subject``, for more than
    one login, or none in front of the first host.

    >>> split_login(["nats://me:a%40b@one:4222", "nats://two:4222"], "the URL")
    (['nats://one:4222', 'nats://two:4222'], {'user': 'me', 'password': 'a@b'})
    """
    parts = [server.partition("://")[::2] for server in servers]
    places = [(scheme, *place.rpartition("@")[::2]) for scheme, place in parts]
    logins = {login for _, login, _ in places if login}
    if len(logins) > 1 or (logins and not places[0][1]):
        raise ConfigError(f"{subject} has two logins, or a comma in one: {ENCODE}, and , is %2C")
    options: dict[str, Any] = {}
    for login in logins:
        user, colon, password = login.partition(":")
        options = (
            {"user": unquote(user), "password": unquote(password)} if colon else {"token": unquote(user)}
        )
    return [f"{scheme}://{host}" for scheme, _, host in places], options


def credentials_of(file: str, subject: str) -> str:
    """Return a file of credentials as ``connect`` takes it. nats-py reads one without a JWT forever.

    Raises ``ConfigError``, which begins with ``subject``, for a file that cannot be used, or if the package
    that signs with its key is not installed.
    """
    try:
        text = Path(file).read_bytes()
    except (OSError, ValueError):
        raise ConfigError(f"{subject}: creds names a file that cannot be read: correct the path") from None
    if not all(part in text for part in _PARTS):
        raise ConfigError(
            f"{subject}: creds names a file without the JWT and the seed of a user: name one that `nsc generate creds` wrote"
        )
    optional("nkeys", "nkeys", f"{subject}: creds needs the package nkeys: `pip install nkeys`")
    return file
