"""Which PostgreSQL server and database a URL means: read as libpq reads it, so as psql would.

What the URL leaves out comes from the service that it names (``service=``, PGSERVICE), then from the PG*
environment, then from libpq's defaults. The driver reads the same parts in another way: it takes an empty
part of a URL for a name, ignores a service that no file defines, and then connects to some other database.
So everything is settled here, before the driver is asked, and it is given only what was settled.
"""

import os
import pwd
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlencode

from makegood.base.host_port import HIGHEST_PORT, port_in
from makegood.base.postgres_parameters import PARAMETERS, name_of, settings_of, verify, verify_options
from makegood.base.public_networks import address_of
from makegood.base.tls_files import verify_tls_files
from makegood.base.urls import parts_of, scheme_of, scrub
from makegood.errors import ConfigError

_PORT: Final = 5432
_SYSTEM_FOLDERS: Final = ("/etc/postgresql-common", "/etc/sysconfig/pgsql", "/etc")
"""Where distributions keep pg_service.conf; libpq knows one of them, from its compilation."""

_VERIFIED: Final = "verify-full"
"""The only sslmode that proves to which server a password goes.

``require`` verifies nothing, ``verify-ca`` accepts the certificate of any server.
"""
_TO_DRIVER: Final = (
    "sslmode", "sslnegotiation", "sslcert", "sslkey", "sslpassword", "sslrootcert", "sslcrl",
    "ssl_min_protocol_version", "ssl_max_protocol_version",
)  # fmt: skip
"""What the driver takes in a URL only."""

_KEEPALIVES: Final = (
    ("keepalives_idle", "TCP_KEEPIDLE"),
    ("keepalives_interval", "TCP_KEEPINTVL"),
    ("keepalives_count", "TCP_KEEPCNT"),
    ("tcp_user_timeout", "TCP_USER_TIMEOUT"),
)


@dataclass(frozen=True, slots=True, repr=False)
class PostgresTarget:
    """A server and database.

    ``hosts``: empty for a socket in libpq's usual folders, else localhost. ``ports``: one for each host, else
    a single one. ``values``: the other parameters.
    """

    hosts: tuple[str, ...]
    ports: tuple[int, ...]
    database: str
    user: str
    values: Mapping[str, str]
    sources: Mapping[str, str] = field(default_factory=dict)
    """Where each parameter was written, by libpq's name."""

    @property
    def where(self) -> str:
        """Host, port, database and user, for messages; never the password."""
        places = ",".join(map(place_of, self.hosts or (None,), self.ports))
        return f"PostgreSQL at {places}, database {self.database}, user {self.user}"

    @property
    def label(self) -> str:
        """Hosts and database, for people.

        >>> target_of("postgresql://me:hunter2@a,b:5433/shop", "the URL", environ={}).label
        'PostgreSQL a,b/shop'
        """
        hosts = ",".join(host for host in self.hosts if not host.startswith(("/", "@")))
        return f"PostgreSQL {hosts or 'local'}/{self.database}"

    def elsewhere(self, subject: str) -> str:
        """Return which parts come from somewhere else than ``subject``, and from where, for messages.

        >>> target_of("postgresql://db", "the URL", environ={"PGUSER": "me"}).elsewhere("the URL")
        'user from PGUSER'
        """
        parts: dict[str, list[str]] = {}
        for name in ("host", "port", "dbname", "user", "password"):
            if (source := self.sources.get(name, subject)) != subject:
                parts.setdefault(source, []).append("database" if name == "dbname" else name)
        return ", ".join(f"{' and '.join(names)} from {source}" for source, names in parts.items())

    @property
    def remote_hosts(self) -> list[str]:
        """The hosts that are neither this machine's loopback nor a socket."""
        return [host for host in self.hosts if not _is_here(host)]

    @property
    def verifies_server(self) -> bool:
        """Whether the driver verifies the server's certificate, and that it is this server's."""
        return self.values.get("sslmode") == _VERIFIED

    def patience(self, usual: float) -> float:
        """Return how many seconds connecting may take: ``usual`` unless connect_timeout, which is for each
        host, says otherwise.
        """
        own = self.values.get("connect_timeout")
        return float(own) * max(1, len(self.hosts)) if own else usual

    def arguments(self, host: str | None, port: int, session: str | None) -> dict[str, Any]:
        """Return what the driver takes to connect to one host; None for the usual sockets, then localhost.

        ``session``: the connection's application_name, unless the target has one. Raises ``ValueError`` for a
        file that cannot be used any more.
        """
        try:
            verify_tls_files(self.values, dict.fromkeys(self.values, "TLS"))  # a file may have gone since
        except ConfigError as wrong:
            raise ValueError(str(wrong)) from None
        values = self.values
        tls = {name: values[name] for name in _TO_DRIVER if name in values}
        server_settings: dict[str, str] = {}
        if options := values.get("options"):
            server_settings["options"] = options
        name = values.get("application_name") or values.get("fallback_application_name") or session
        if name and "application_name" not in dict(settings_of(values.get("options", ""))):
            server_settings["application_name"] = name
        extras = {key: values.get(key) for key in ("password", "passfile", "krbsrvname", "gsslib")}
        return {
            **({"dsn": f"postgresql://?{urlencode(tls)}"} if tls else {}),
            "host": host,
            "port": port,
            "database": self.database,
            "user": self.user,
            **{key: value for key, value in extras.items() if value},
            **({"server_settings": server_settings} if server_settings else {}),
            "target_session_attrs": "read-write",
        }

    def keep_alive(self, connection: Any) -> None:
        """Set what the target says of TCP; the driver sets nothing."""
        limits = {name: int(self.values[name]) for name, _ in _KEEPALIVES if name in self.values}
        switch = self.values.get("keepalives")
        if switch is None and not limits:
            return
        link = connection._transport.get_extra_info("socket")  # noqa: SLF001 - the driver has no other way
        if link.family not in (socket.AF_INET, socket.AF_INET6):
            return
        on = switch != "0"
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, int(on))
        for name, option in _KEEPALIVES:
            if limits.get(name) and hasattr(socket, option) and (on or name == "tcp_user_timeout"):
                link.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), limits[name])


def target_of(
    url: str,
    subject: str = "the store's URL",
    *,
    own: frozenset[str] = frozenset(),
    environ: Mapping[str, str] = os.environ,
) -> PostgresTarget:
    """Return the server and database that a URL means.

    ``own``: settings of the server that the connection will overwrite. Raises ``ConfigError``, naming
    ``subject``, for a URL that cannot be read, for a service that no file defines, and for a parameter that
    cannot be honoured.

    >>> target_of("postgresql://me@db/shop", environ={}).where
    'PostgreSQL at db:5432, database shop, user me'
    """
    sources: dict[str, str] = {}
    values: dict[str, str] = {}

    def take(name: str, value: str, source: str) -> None:
        if name not in values and (value or PARAMETERS[name].values is not None or PARAMETERS[name].number):
            values[name], sources[name] = value, source

    parts = parts_of(url, subject)
    try:
        parameters = dict(_url_parameters(parts, subject))
        for name, value in parameters.items():
            take(name, value, subject)
        service = _service_name(parameters, environ, subject)
        if service is not None:
            file, section = _service(service, values.pop("servicefile", ""), environ, subject)
            for name, value in section:
                take(name, value, f"service {service!r} in {file}")
        for name, parameter in PARAMETERS.items():
            if parameter.env and (setting := environ.get(parameter.env)):
                take(name, setting, parameter.env)
        if environ.get("PGREQUIRESSL", "").startswith("1"):
            take("sslmode", "require", "PGREQUIRESSL")
        for name, value in values.items():
            verify(name, value, sources[name])
        verify_tls_files(values, sources)
        verify_options(values.get("options", ""), own, sources.get("options", subject))
        hosts, ports = _places(values.pop("host", ""), values.pop("port", ""), subject)
    except ConfigError as wrong:
        raise ConfigError(scrub(str(wrong), url)) from None  # its cause might show a part of the URL
    user = values.pop("user", "") or _system_user(subject)
    return PostgresTarget(hosts, ports, values.pop("dbname", "") or user, user, values, sources)


def _url_parameters(parts: SplitResult, subject: str) -> Iterator[tuple[str, str]]:
    """Yield the parameters that a URL sets; of two with one name libpq takes the later one."""
    login, _, places = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    hosts, ports = [], []
    for place in places.split(","):
        bracket = place.endswith("]") or ":" not in place
        host, _, port = (place, "", "") if bracket else place.rpartition(":")
        hosts.append(host[1:-1] if host.startswith("[") else host)
        ports.append(port)
    fields = {
        "user": user, "password": password, "host": ",".join(hosts),
        "port": ",".join(ports), "dbname": parts.path.removeprefix("/"),
    }  # fmt: skip
    yield from ((name, unquote(value)) for name, value in fields.items() if value)
    for setting in filter(None, parts.query.split("&")):
        name, _, value = setting.partition("=")
        yield name_of(unquote(name), unquote(value), subject)


def _service_name(parameters: Mapping[str, str], environ: Mapping[str, str], subject: str) -> str | None:
    """Return the name of the service that a URL or the environment names."""
    service = parameters.get("service", environ.get("PGSERVICE"))
    if service == "":
        source = f"{subject}: service=" if "service" in parameters else "PGSERVICE"
        raise ConfigError(f"{source} is empty, and no service has that name: name one, or leave it out")
    return service


def _service(
    service: str, file: str, environ: Mapping[str, str], subject: str
) -> tuple[Path, list[tuple[str, str]]]:
    """Return the file that defines a service, and its parameters."""
    own = file or environ.get("PGSERVICEFILE")
    if own and not Path(own).is_file():
        raise ConfigError(f"{subject} names the service {service!r}: there is no service file {own}")
    folders = [environ["PGSYSCONFDIR"]] if environ.get("PGSYSCONFDIR") else _SYSTEM_FOLDERS
    home = environ.get("HOME") or str(Path.home())
    first = Path(own) if own else Path(home) / ".pg_service.conf"
    files = [
        path for path in (first, *(Path(folder) / "pg_service.conf" for folder in folders)) if path.is_file()
    ]
    for path in files:
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeError) as unread:
            raise ConfigError(
                f"{subject} names the service {service!r}: {path} cannot be read: {unread}"
            ) from None
        section = _section(lines, service, path)
        if section is not None:
            return path, section
    places = ", ".join(map(str, files)) or f"{first}, nor any other service file"
    raise ConfigError(
        f"{subject} names the service {service!r}, which is not defined in {places}: correct the name, or add [{service}] there "
        "(PGSERVICEFILE names another file)"
    )


def _section(lines: list[str], service: str, path: Path) -> list[tuple[str, str]] | None:
    """Return the parameters of a service; None if the file does not define it. The first of two with one name
    counts, as in libpq.
    """
    entries: list[tuple[str, str]] | None = None
    for number, raw in enumerate(lines, 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            if entries is not None:
                break
            entries = [] if line == f"[{service}]" else None
        elif entries is not None:
            name, sign, value = line.partition("=")
            place = f"service {service!r}, line {number} of {path}"
            if not sign:
                raise ConfigError(f"{place}: write name=value, a parameter of libpq per line")
            if name in ("service", "servicefile"):
                raise ConfigError(f"{place}: a service cannot name another one")
            entries.append(name_of(name, value, place))
    return entries


def _places(host: str, port: str, subject: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the hosts and their ports."""
    hosts = tuple(host.split(",")) if host else ()
    if not all(hosts):
        raise ConfigError(
            f"{subject} has an empty host in its list of hosts: name it, or take its comma away"
        )
    texts = [text.strip() for text in port.split(",")]
    if not all(port_in(text) for text in texts if text):
        raise ConfigError(f"{subject}: a port is a number from 1 to {HIGHEST_PORT}")
    ports = [int(text) if text else _PORT for text in texts]
    if len(ports) == 1:
        return hosts, tuple(ports * max(1, len(hosts)))
    if len(ports) != len(hosts):
        raise ConfigError(
            f"{subject} has {len(hosts)} hosts and {len(ports)} ports: write one port for each host, or one for all"
        )
    return hosts, tuple(ports)


def _system_user(subject: str) -> str:
    """Return the user of this process, which libpq takes for a URL without one."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        raise ConfigError(
            f"{subject} names no user, and this process's user has no name: write user@, or set PGUSER"
        ) from None


def place_of(host: str | None, port: int) -> str:
    """Return a host and port for messages; None: the usual sockets, then localhost.

    >>> place_of("::1", 5432)
    '[::1]:5432'
    """
    if host is None or host.startswith("/"):
        return host or f"the local socket or localhost:{port}"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_here(host: str) -> bool:
    address = address_of(host)
    is_loopback = address is not None and address.is_loopback
    return is_loopback or host.startswith(("/", "@")) or host == "localhost"


def with_tls(url: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return a URL that sends nothing to a remote PostgreSQL server before that has proved who it is.

    A URL without an sslmode gets ``sslmode=verify-full``. Raises ``ConfigError`` for any other mode, whether
    the URL, its service or PGSSLMODE has it. Other URLs are returned unchanged.

    >>> with_tls("postgresql://me@db.internal/shop", {})
    'postgresql://me@db.internal/shop?sslmode=verify-full'
    """
    if scheme_of(url) not in ("postgresql", "postgres"):
        return url
    target = target_of(url, environ=environ)
    mode, hosts = target.values.get("sslmode"), target.remote_hosts
    if not hosts or mode == _VERIFIED:
        return url
    if mode:
        raise ConfigError(
            f"sslmode={mode} for {', '.join(dict.fromkeys(hosts))} (of the URL, its service or PGSSLMODE), and require_tls is on: write "
            f"sslmode={_VERIFIED}, or take it away; nothing was sent"
        )
    return (
        f"{url}&sslmode={_VERIFIED}"
        if parts_of(url).query
        else f"{url.removesuffix('?')}?sslmode={_VERIFIED}"
    )
