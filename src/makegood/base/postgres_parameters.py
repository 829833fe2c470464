"""libpq's connection parameters: which values makegood honours, and what to write instead of others.

People write a store's URL as psql takes it, or leave parts of it to a service file or to the PG* environment.
The driver knows about half of the parameters, and sends those that it does not know to the server. So each
one is listed here: makegood carries it out, or refuses it by name. None is dropped.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from makegood.base.did_you_mean import did_you_mean
from makegood.errors import ConfigError


@dataclass(frozen=True, slots=True)
class PostgresParameter:
    """One parameter.

    ``env``: the variable that stands for it when neither URL nor service sets it. ``values``: those that can
    be honoured; None: any, and an empty one counts as not given. ``remedy``: what to do about any other.
    """

    env: str = ""
    values: tuple[str, ...] | None = None
    remedy: str = ""
    number: bool = False
    secret: bool = False


_TLS: Final = ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
_LOGIN: Final = "makegood cannot choose how it logs in: leave it out, and let the server's pg_hba.conf allow only what is safe, with sslmode=verify-full"
_OAUTH: Final = PostgresParameter(
    "", (), "makegood's driver cannot log in by OAuth: use a password or a certificate", secret=True
)
_SCRAM: Final = PostgresParameter("", (), "makegood's driver takes a password, not its keys", secret=True)
_PROTOCOL: Final = "makegood speaks version 3.0 of the protocol: leave it out"
_SECONDS: Final = "write a whole number"

PARAMETERS: Final[Mapping[str, PostgresParameter]] = {
    "host": PostgresParameter("PGHOST"),
    "hostaddr": PostgresParameter("PGHOSTADDR", (), "write the address as the host; sslmode=verify-full needs it in the certificate"),
    "port": PostgresParameter("PGPORT"),
    "dbname": PostgresParameter("PGDATABASE"),
    "user": PostgresParameter("PGUSER"),
    "password": PostgresParameter("PGPASSWORD", secret=True),
    "passfile": PostgresParameter("PGPASSFILE"),
    "service": PostgresParameter("PGSERVICE"),
    "servicefile": PostgresParameter("PGSERVICEFILE"),
    "options": PostgresParameter("PGOPTIONS"),
    "application_name": PostgresParameter("PGAPPNAME"),
    "fallback_application_name": PostgresParameter(),
    "connect_timeout": PostgresParameter("PGCONNECT_TIMEOUT", remedy="write seconds, a whole number from 1 on, or leave it out", number=True),
    "client_encoding": PostgresParameter("", ("utf8", "UTF8", "utf-8", "UTF-8", "auto"), "makegood exchanges all text as UTF-8: leave it out"),
    "keepalives": PostgresParameter("", ("0", "1"), "write 1 (on) or 0 (off)"),
    "keepalives_idle": PostgresParameter(remedy=_SECONDS, number=True),
    "keepalives_interval": PostgresParameter(remedy=_SECONDS, number=True),
    "keepalives_count": PostgresParameter(remedy=_SECONDS, number=True),
    "tcp_user_timeout": PostgresParameter(remedy=_SECONDS, number=True),
    "sslmode": PostgresParameter("PGSSLMODE", ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"), "write sslmode=verify-full"),
    "sslnegotiation": PostgresParameter("PGSSLNEGOTIATION", ("postgres", "direct"), "write postgres or direct"),
    "sslcompression": PostgresParameter("PGSSLCOMPRESSION", ("0",), "makegood's driver does not compress: leave it out"),
    "sslcert": PostgresParameter("PGSSLCERT"),
    "sslkey": PostgresParameter("PGSSLKEY"),
    "sslpassword": PostgresParameter(secret=True),
    "sslcertmode": PostgresParameter("PGSSLCERTMODE", ("allow",), "makegood sends a certificate if it has one and the server asks: leave it out"),
    "sslrootcert": PostgresParameter("PGSSLROOTCERT"),
    "sslcrl": PostgresParameter("PGSSLCRL"),
    "sslcrldir": PostgresParameter("PGSSLCRLDIR", (), "name the list's file with sslcrl"),
    "sslsni": PostgresParameter("PGSSLSNI", ("1",), "makegood's driver always sends the host's name: leave it out"),
    "sslkeylogfile": PostgresParameter("", (), "set SSLKEYLOGFILE in the environment instead"),
    "ssl_min_protocol_version": PostgresParameter("PGSSLMINPROTOCOLVERSION", _TLS, "write TLSv1.2 or TLSv1.3"),
    "ssl_max_protocol_version": PostgresParameter("PGSSLMAXPROTOCOLVERSION", _TLS, "write TLSv1.2 or TLSv1.3"),
    "min_protocol_version": PostgresParameter("PGMINPROTOCOLVERSION", ("3.0",), _PROTOCOL),
    "max_protocol_version": PostgresParameter("PGMAXPROTOCOLVERSION", ("3.0", "3.2", "latest"), _PROTOCOL),
    "requirepeer": PostgresParameter("PGREQUIREPEER", (), "makegood cannot check the server's user: restrict who may create the socket, or use sslmode=verify-full"),
    "require_auth": PostgresParameter("PGREQUIREAUTH", (), _LOGIN),
    "channel_binding": PostgresParameter("PGCHANNELBINDING", ("disable", "prefer"), "makegood's driver cannot bind a login to its TLS channel: leave it out, and use sslmode=verify-full"),
    "gssencmode": PostgresParameter("PGGSSENCMODE", ("disable", "prefer"), "makegood's driver encrypts by TLS only: use sslmode=verify-full"),
    "krbsrvname": PostgresParameter("PGKRBSRVNAME"),
    "gsslib": PostgresParameter("PGGSSLIB", ("gssapi", "sspi"), "write gssapi or sspi"),
    "gssdelegation": PostgresParameter("PGGSSDELEGATION", ("0",), "makegood delegates no credentials: leave it out"),
    "replication": PostgresParameter("", ("false", "off", "no", "0"), "makegood does not replicate: leave it out"),
    "target_session_attrs": PostgresParameter("PGTARGETSESSIONATTRS", ("any", "read-write", "primary"), "makegood writes, so it searches for the server that accepts writes: leave it out"),
    "load_balance_hosts": PostgresParameter("PGLOADBALANCEHOSTS", ("disable",), "makegood works with the one server that accepts writes, and tries the hosts in their order: leave it out"),
    "scram_client_key": _SCRAM,
    "scram_server_key": _SCRAM,
    "oauth_issuer": _OAUTH,
    "oauth_client_id": _OAUTH,
    "oauth_client_secret": _OAUTH,
    "oauth_scope": _OAUTH,
}  # fmt: skip
"""libpq's parameters as of PostgreSQL 18. ``client_encoding`` has no variable here: whatever PGCLIENTENCODING
says, makegood's texts are the same."""

_MEANT: Final[Mapping[str, str]] = {
    "ssl": "write sslmode=verify-full",
    "tls": "write sslmode=verify-full",
    "search_path": "makegood's tables are in the schema makegood",
    "schema": "makegood's tables are in the schema makegood",
    "currentSchema": "makegood's tables are in the schema makegood",
    "command_timeout": "makegood has its own limit for each statement",
    "timeout": "write connect_timeout=SECONDS",
}
_OTHERWISE: Final = "a store's URL takes libpq's parameters, as psql does; write a setting of the server as options=-c%20NAME=VALUE"
_MOST: Final = 2**31 - 1


def name_of(name: str, value: str, source: str) -> tuple[str, str]:
    """Return a parameter as libpq names it, and its value. Raises ``ConfigError``, naming ``source``, for an
    unknown one.
    """
    if name == "database":  # the driver's name for it
        return "dbname", value
    if (name, value) == ("ssl", "true"):  # JDBC's, which libpq takes as well
        return "sslmode", "require"
    if name not in PARAMETERS:
        hint = "" if name in _MEANT else did_you_mean(name, PARAMETERS)
        raise ConfigError(
            f"{source}: there is no parameter {name!r}{f' ({hint})' if hint else ''}: {_MEANT.get(name, _OTHERWISE)}"
        )
    return name, value


def verify(name: str, value: str, source: str) -> None:
    """Raise ``ConfigError``, naming ``source``, for a value that makegood cannot honour."""
    parameter = PARAMETERS[name]
    setting = name if parameter.secret else f"{name}={value}"
    if parameter.values is not None and value not in parameter.values:
        choices = (
            f"; it may be {', '.join(parameter.values)}"
            if len(parameter.values) > 1 and not parameter.secret
            else ""
        )
        hint = did_you_mean(value, parameter.values)
        raise ConfigError(
            f"{source}: {setting} cannot be honoured: {parameter.remedy}{choices}{f' ({hint})' if hint else ''}"
        )
    if parameter.number:
        least = 1 if name == "connect_timeout" else 0
        digits = value.strip()
        if not (digits.isascii() and digits.isdecimal() and least <= int(digits) <= _MOST):
            raise ConfigError(f"{source}: {setting} cannot be honoured: {parameter.remedy}")
    if name == "sslrootcert" and value == "system":
        raise ConfigError(
            f"{source}: {setting} cannot be honoured: name the file of the system's authorities, such as "
            "/etc/ssl/certs/ca-certificates.crt, and write sslmode=verify-full"
        )


_OPTION: Final = re.compile(r"(?:-c\s*|--)((?:\\.|[^\s=\\])+)=((?:\\.|[^\s\\])*)")


def settings_of(options: str) -> Iterator[tuple[str, str]]:
    r"""Yield the server's settings that ``options`` names.

    >>> list(settings_of(r"-c lock_timeout=5s --work-mem=64MB -cDateStyle=ISO,\ MDY"))
    [('lock_timeout', '5s'), ('work_mem', '64MB'), ('datestyle', 'ISO, MDY')]
    """
    for match in _OPTION.finditer(options):
        name, value = (re.sub(r"\\(.)", r"\1", part) for part in match.groups())
        yield name.replace("-", "_").lower(), value


_OFF: Final = ("off", "false", "no", "0")


def verify_options(options: str, own: frozenset[str], source: str) -> None:
    """Raise ``ConfigError``, naming ``source``, for a setting of the server that makegood sets itself.

    ``own``: the settings that the connection will overwrite.
    """
    for name, value in settings_of(options):
        if name in own:
            raise ConfigError(
                f"{source}: options set {name}, which makegood sets for its own connections: take it away"
            )
        if name == "synchronous_commit" and value.lower() in _OFF and own:
            raise ConfigError(
                f"{source}: options set synchronous_commit={value}: makegood acknowledges only what is on disk; take it away"
            )
