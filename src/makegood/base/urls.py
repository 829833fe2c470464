"""URLs of stores, leases, outboxes and webhooks: read strictly, and shown without their secrets.

A password that is not percent-encoded moves parts of itself to other places of a URL: to the port, the
database, the query. So ``parts_of`` refuses every ambiguous URL before anybody shows a part of it; ``masked``
shows only what is known to be harmless; and ``scrubbed`` removes the rest from a driver's message.
"""

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from makegood.base.host_port import HIGHEST_PORT, port_in
from makegood.base.secret_names import COVER
from makegood.errors import ConfigError

SERVERS: Final = frozenset(
    {
        "postgresql", "postgres", "azure-blob", "etcd", "etcd+https", "kubernetes", "nats", "tls", "redis", "rediss",
        "zookeeper", "amqp", "amqps", "kafka", "kafka+tls", "servicebus", "azure-queue", "sqs",
    }
)  # fmt: skip
"""Schemes of the servers that makegood connects to."""

ENCODE: Final = (
    "percent-encode user and password (/ is %2F, ? is %3F, # is %23, @ is %40, : is %3A, & is %26, % is %25)"
)
"""What to do about a URL that cannot be read."""

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30})://")
_SQLITE_FILE: Final = re.compile(r"[\w./-]+\.(?:db3?|sqlite3?)")
_BAD_ESCAPE: Final = re.compile(r"%(?:00|(?![0-9A-Fa-f]{2}))")
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f]")
SQLITE_PARAMETER: Final = re.compile(r"\?\w+=")
"""The start of a parameter, which no SQLite URL has."""
_SHOWN: Final = frozenset(
    {
        "host", "port", "dbname", "database", "user", "sslmode", "sslrootcert", "sslcert", "target_session_attrs",
        "connect_timeout", "command_timeout", "replicas", "db", "username", "ssl_cert_reqs", "ssl_check_hostname",
        "service", "servicefile", "hostaddr", "client_encoding", "keepalives", "keepalives_idle",
        "keepalives_interval", "keepalives_count", "tcp_user_timeout", "sslnegotiation", "sslcompression", "sslcertmode", "sslkey", "sslcrl",
        "sslcrldir", "sslsni", "sslkeylogfile", "ssl_min_protocol_version", "ssl_max_protocol_version", "min_protocol_version",
        "max_protocol_version", "requirepeer", "require_auth", "channel_binding", "gssencmode", "krbsrvname", "gsslib", "gssdelegation",
        "replication", "load_balance_hosts", "cafile", "certfile", "keyfile", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "maxlen",
        "sasl", "session",
    }
)  # fmt: skip
"""Parameters whose values are not secret."""
_URL_PARAMETERS: Final = frozenset({"management", "endpoint"})
"""Parameters that are URLs. Their logins are secret; their hosts are not, as messages name them."""
_FREE_TEXT: Final = frozenset({"application_name", "fallback_application_name", "options"})
"""Parameters that may hold any text. Their values are not shown; messages keep their usual words."""
_SECRET_WORDS: Final = ("pass", "pwd", "token", "secret", "key", "sig", "cred", "auth")
"""A parameter with one of these in its name is taken for a secret."""
_TOKEN_SCHEMES: Final = ("nats", "tls")
"""Schemes whose user without a password is a token."""

_MIN_SECRET: Final = 4
"""Characters of a secret in a row that ``scrubbed`` removes from a message; fewer appear in any text."""


def scheme_of(url: str) -> str:
    """Return a URL's scheme in lower case; "" for a text that does not begin with one.

    >>> scheme_of("PostgreSQL://db/shop"), scheme_of("shop:hunter2@db/shop")
    ('postgresql', '')
    """
    match = _SCHEME.match(url)
    return match[1].lower() if match else ""


def scheme_hint(scheme: str) -> str:
    """Return a hint about a scheme that was written for another tool; "" for others.

    >>> scheme_hint("postgresql+asyncpg"), scheme_hint("mysql")
    ('; +asyncpg is for SQLAlchemy, leave it out', '')
    """
    plain, plus, driver = scheme.partition("+")
    is_database = plus and plain in ("postgresql", "postgres", "sqlite")
    return f"; +{driver} is for SQLAlchemy, leave it out" if is_database else ""


def path_hint(text: str) -> str:
    """Return a hint about a path that was written without a scheme; "" for a text that may hold a secret.

    >>> path_hint("data/bill.db"), path_hint("me:hunter2@db")
    ('; did you mean sqlite:///data/bill.db?', '')
    """
    return f"; did you mean sqlite:///{text}?" if _SQLITE_FILE.fullmatch(text) else ""


def parts_of(url: str, subject: str = "the store's URL") -> SplitResult:
    """Return the parts of a server's URL.

    Raises ``ConfigError``, naming ``subject``, for an ambiguous URL; the error shows nothing of the URL
    except its scheme.

    >>> parts_of("postgresql://me:hun%2Fter2@db/shop").hostname
    'db'
    """
    if not scheme_of(url):
        raise ConfigError(f"{subject} does not begin with a scheme, such as postgresql://user@host/database")
    if _CONTROLS.search(url):
        raise ConfigError(f"{subject} contains a control character, such as a line break: {ENCODE}")
    after_scheme = url.partition("://")[2]
    if any(server.count("@") > 1 for server in re.split("[/?#]", after_scheme, maxsplit=1)[0].split(",")):
        raise ConfigError(f"{subject} has more than one @ before its database: {ENCODE}")
    if "@" in re.split("[/?#]", after_scheme, maxsplit=1)[-1] and re.search("[/?#]", after_scheme):
        raise ConfigError(f"{subject} has an @ after its first /, ? or #: {ENCODE}")
    if escape := _BAD_ESCAPE.search(after_scheme):
        wrong = "%00" if escape[0] == "%00" else "a % without two hexadecimal digits after it"
        raise ConfigError(
            f"{subject} has {wrong} in {_part_at(after_scheme, escape.start())}: write %25 for a % itself"
        )
    try:
        parts = urlsplit(url)
    except ValueError:  # its text may show all of the URL
        raise ConfigError(f"{subject} cannot be read: {ENCODE}") from None
    if parts.fragment or after_scheme.endswith("#"):
        raise ConfigError(f"{subject} has a part after #, which no server takes: {ENCODE}")
    if not all(map(_is_place, parts.netloc.rpartition("@")[2].split(","))):
        raise ConfigError(
            f"{subject}: after the last colon of its host there must be a port, a number up to {HIGHEST_PORT}. Is there an @ between "
            f"password and host? Otherwise {ENCODE}"
        )
    if not all("=" in field for field in parts.query.split("&") if field):
        raise ConfigError(
            f"{subject}: after the ? there must be name=value, with & between two of them; {ENCODE}"
        )
    return parts


def _part_at(after_scheme: str, at: int) -> str:
    """Return in which part of a URL the position ``at`` after its scheme is; shows names of parameters only.

    >>> _part_at("me:a%b@db/shop", 4), _part_at("db/shop?sslmode=%zz", 16)
    ('its password', 'its parameter sslmode')
    """
    place = re.split("[/?]", after_scheme, maxsplit=1)[0]
    login = place.rpartition("@")[0]
    if at < len(login):
        return "its password" if ":" in login[:at] else "its user"
    if at < len(place):
        return "its host"
    query = after_scheme.find("?")
    if not 0 <= query < at:
        return "its database or path"
    name = after_scheme[max(query, after_scheme.rfind("&", 0, at)) + 1 :].partition("&")[0].partition("=")[0]
    return f"its parameter {name}" if unquote(name).lower() in _SHOWN else "one of its parameters"


def _is_place(place: str) -> bool:
    """Return whether a text is HOST, HOST:PORT, [ADDRESS] or [ADDRESS]:PORT, as far as a password could hide
    there.
    """
    host, colon, port = ("", "", place) if place.endswith("]") else place.rpartition(":")
    if colon and port and port_in(port) is None:
        return False
    return ":" not in host or host.startswith("[")


def mask_url(url: str) -> str:
    """Return a URL that is safe to show: without passwords, tokens and parameters that may be secret.

    Of a webhook only the server is shown; of a URL that is unreadable, or has an unknown scheme, only the
    scheme.

    >>> mask_url("postgresql://me:secret@db/shop?sslmode=require&sslpassword=hunter2")
    'postgresql://me:•••@db/shop?sslmode=require&sslpassword=•••'
    >>> mask_url("amqp://me:secret@mq/shop?management=http%3A%2F%2Fme:secret%40mq%3A15672")
    'amqp://me:•••@mq/shop?management=http://mq:15672'
    >>> mask_url("https://hooks.example/T0/secret"), mask_url("mysql://me:secret@db/shop")
    ('https://hooks.example', 'mysql://•••')
    >>> mask_url("me:secret@db/shop")
    '•••'
    """
    scheme = scheme_of(url)
    if url.startswith("memory:"):
        return "memory:"
    if url.startswith("sqlite:///") or url == "sqlite://":
        match = SQLITE_PARAMETER.search(url)
        return f"{url[: match.start()]}?{COVER}" if match else url
    if scheme not in SERVERS and scheme not in ("http", "https"):
        return f"{scheme}://{COVER}" if scheme else COVER
    try:
        parts = parts_of(url)
    except ConfigError:
        return f"{scheme}://{COVER}"
    login, at, place = parts.netloc.rpartition("@")
    if scheme not in SERVERS:
        return f"{scheme}://{place}"
    user, colon, _ = login.partition(":")
    if colon:
        login = f"{user}:{COVER}"
    elif login and scheme in _TOKEN_SCHEMES:
        login = COVER
    query = "&".join(text for text, _ in _fields(parts))
    return f"{scheme}://{login}{at}{place}{parts.path}{'?' if query else ''}{query}"


def _fields(parts: SplitResult) -> Iterator[tuple[str, str]]:
    """Yield each parameter of a URL as it may be shown, and its secret part.

    An unknown parameter after a secret may be a part of it, name and all.
    """
    if not parts.query:
        return
    if parts.scheme == "azure-blob":  # a shared access signature
        yield COVER, parts.query
        return
    is_after_secret = False
    for field in parts.query.split("&"):
        name, _, value = field.partition("=")
        key = unquote(name).lower()
        if key in _SHOWN:
            yield field, ""
        elif key in _URL_PARAMETERS:
            url = unquote(value)
            is_readable = scheme_of(url) in ("http", "https")
            login = url.partition("://")[2].partition("/")[0].rpartition("@")[0]
            yield f"{name}={mask_url(url)}", login if is_readable else value
        elif key in _FREE_TEXT:
            yield f"{name}={COVER}", ""
        elif is_after_secret:
            yield COVER, field
        else:
            yield f"{name}={COVER}", value
        is_after_secret = is_after_secret or any(word in key for word in _SECRET_WORDS)


def scrub(text: str, url: str) -> str:
    """Return a foreign text about a URL, such as a driver's message, without the URL's secrets.

    >>> scrub("bad field: 'hunter2'", "postgresql://db/shop?password=x%26hunter2")
    "bad field: '•••'"
    """
    secrets = _secrets(url)
    at, result = 0, ""
    while at < len(text):
        end = at
        while end < len(text) and any(text[at : end + 1].casefold() in secret for secret in secrets):
            end += 1
        is_secret = end - at >= _MIN_SECRET
        result += COVER if is_secret else text[at]
        at = end if is_secret else at + 1
    return result


def _secrets(url: str) -> list[str]:
    """Return what ``masked`` leaves out of a URL; if the URL cannot be read, everything after the scheme."""
    try:
        parts = parts_of(url)
    except ConfigError:
        secrets = [url.partition("://")[2] or url]
    else:
        login = parts.netloc.rpartition("@")[0]
        user, colon, password = login.partition(":")
        token = user if parts.scheme in _TOKEN_SCHEMES and not colon else ""
        secrets = [password, token, *(secret for _, secret in _fields(parts))]
    return list(
        dict.fromkeys(form.casefold() for secret in secrets for form in (secret, unquote(secret)) if form)
    )
