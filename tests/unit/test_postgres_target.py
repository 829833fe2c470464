"""Which server and database a store's URL means: the same as libpq's answer, or a refusal that says why."""

import asyncio
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from psycopg import pq

from makegood.base.postgres_hosts import PostgresHosts
from makegood.base.postgres_parameters import PARAMETERS
from makegood.base.postgres_target import PostgresTarget, target_of, with_tls
from makegood.base.urls import parts_of
from makegood.errors import ConfigError
from makegood.store import open_store
from makegood.store.postgres import connection

REMOTE = "postgresql://me:pw@db.internal:5433/shop"
NOBODY = {"PGUSER": "me", "PGDATABASE": "there", "HOME": "/nonexistent", "PGSYSCONFDIR": "/nonexistent"}

SERVICES = """\
# what this machine's programs use
[shopper]
host=wrong
[shop]
host=db.shop
port=6000
dbname=orders
user=seller
password=it=s
sslmode=verify-full
host=second
[bare]
[syntax]
host
[nested]
service=shop
[odd]
hots=db
[fixed]
hostaddr=10.0.0.1
"""


@pytest.fixture
def services(tmp_path: Path) -> dict[str, str]:
    file = tmp_path / "services.conf"
    file.write_text(SERVICES)
    return {**NOBODY, "PGSERVICEFILE": str(file)}


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    certificate, key = tmp_path / "client.crt", tmp_path / "client.key"
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=me",
         "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


def settled(url: str, environ: dict[str, str]) -> dict[str, str]:
    """Return what makegood takes a URL for, as libpq's parameters."""
    target = target_of(url, environ=environ)
    settings = {"user": target.user, "dbname": target.database, "port": ",".join(map(str, target.ports))}
    if target.hosts:
        settings["host"] = ",".join(target.hosts)
    return settings | {name: target.values[name] for name in ("password", "sslmode") if name in target.values}


def of_libpq(url: str, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return what libpq itself takes it for: what the URL sets, then the service, the environment, the
    defaults.
    """
    for name in [name for name in os.environ if name.startswith("PG")]:
        monkeypatch.delenv(name)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    keywords = {o.keyword.decode(): o.val.decode() for o in pq.Conninfo.parse(url.encode()) if o.val}
    if service := keywords.get("service"):
        monkeypatch.setenv("PGSERVICE", service)
    usual = {o.keyword.decode(): o.val.decode() for o in pq.Conninfo.get_defaults() if o.val}
    values = {**usual, **keywords}
    hosts, ports = values.get("host", "").split(","), values["port"].split(",")
    if len(ports) == 1:
        ports *= len(hosts)
    settings = {"user": values["user"], "dbname": values.get("dbname") or values["user"]}
    settings["port"] = ",".join(port or "5432" for port in ports)
    settings |= {name: values[name] for name in ("host", "password", "sslmode") if name in values}
    return {name: value for name, value in settings.items() if (name, value) != ("sslmode", "prefer")}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://", "postgresql:///", "postgres://@/", "postgresql://db", "postgresql://db/", "postgresql://u@db:7/x",
        "postgresql://u:@db/x", "postgresql:///?service=shop", "postgresql://?service=shop", "postgresql:///x?service=shop",
        "postgresql://other/?service=shop", "postgresql://?service=bare", "postgresql://u:p%40ss@[::1]:7000/x%20y",
        "postgresql://a,b/x", "postgresql://a:1,b/x", "postgresql:///x?host=a,b&port=1,2", "postgresql:///x?host=a,b&port=7",
        "postgresql:///x?host=/run/pg&user=f%20g", "postgresql://%2Frun%2Fpg/x", "postgresql://a/x?host=b&dbname=y&user=w&port=9",
        "postgresql://a/x?password=a+b", "postgresql://a/x?sslmode=require&sslmode=verify-ca", "postgresql://a/x?ssl=true",
        "postgresql://a/?dbname=", "postgresql://?user=&port=", "postgresql://[fd00::7]/x",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "more",
    [
        {}, {"PGHOST": "envhost", "PGPORT": "5999", "PGPASSWORD": "envpw"}, {"PGSERVICE": "shop"},
        {"PGSERVICE": "shop", "PGHOST": "envhost", "PGDATABASE": "", "PGSSLMODE": "disable"}, {"PGDATABASE": ""},
    ],
)  # fmt: skip
def test_a_url_means_what_libpq_takes_it_for(
    url: str, more: dict[str, str], services: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = services | more
    assert settled(url, environ) == of_libpq(url, environ, monkeypatch)


def test_without_any_name_the_user_is_the_system_user(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"HOME": "/nonexistent", "PGSYSCONFDIR": "/nonexistent", "LOGNAME": "another"}
    assert settled("postgresql://", environ) == of_libpq("postgresql://", environ, monkeypatch)


@pytest.mark.parametrize(
    "url", ["postgresql://?service=shopp", "postgresql:///?service=shopp", "postgresql://db/x?service=Shop"]
)
def test_a_service_that_no_file_defines_is_refused(url: str, services: dict[str, str]) -> None:
    with pytest.raises(
        ConfigError, match=r"names the service 'S?s?hopp?', which is not defined in .*services.conf"
    ):
        target_of(url, environ=services)
    with pytest.raises(ConfigError, match="names the service 'gone'"):
        target_of("postgresql:///", environ=services | {"PGSERVICE": "gone"})
    with pytest.raises(ConfigError, match="URL: service= is empty, and no service has that name"):
        target_of("postgresql://db/x?service=", environ=services | {"PGSERVICE": "shop"})
    with pytest.raises(ConfigError, match="PGSERVICE is empty, and no service has that name"):
        target_of("postgresql:///", environ=services | {"PGSERVICE": ""})
    with pytest.raises(ConfigError, match="no service file /nonexistent/none"):
        target_of(url, environ=services | {"PGSERVICEFILE": "/nonexistent/none"})
    with pytest.raises(ConfigError, match="nor any other service file"):
        target_of(url, environ=NOBODY)


@pytest.mark.parametrize(
    ("service", "why"),
    [
        ("syntax", "write name=value"), ("nested", "a service cannot name another one"), ("odd", "no parameter 'hots'"),
        ("fixed", r"service 'fixed' in .*hostaddr=10.0.0.1 cannot be honoured: write the address as the host"),
    ],
)  # fmt: skip
def test_a_service_that_cannot_be_honoured_is_refused_with_its_place(
    service: str, why: str, services: dict[str, str]
) -> None:
    with pytest.raises(ConfigError, match=why):
        target_of(f"postgresql://?service={service}", environ=services)


def test_a_service_is_looked_up_where_libpq_looks(tmp_path: Path) -> None:
    """PGSERVICEFILE or ~/.pg_service.conf, then PGSYSCONFDIR; a byte order mark and CRLF change nothing."""
    home, system = tmp_path / "home", tmp_path / "etc"
    home.mkdir()
    system.mkdir()
    (home / ".pg_service.conf").write_bytes(b"\xef\xbb\xbf[mine]\r\nhost=a\r\n[both]\r\nhost=mine\r\n")
    (system / "pg_service.conf").write_text("[theirs]\nhost=b\n[both]\nhost=theirs\n")
    environ = NOBODY | {"HOME": str(home), "PGSYSCONFDIR": str(system)}
    hosts = {
        name: target_of(f"postgresql://?service={name}", environ=environ).hosts
        for name in ("mine", "theirs", "both")
    }
    assert hosts == {"mine": ("a",), "theirs": ("b",), "both": ("mine",)}


def test_every_parameter_of_libpq_is_known() -> None:
    """The test runs with libpq 18: a newer one may know more, which makegood then refuses as unknown."""
    theirs = {o.keyword.decode(): (o.envvar or b"").decode() for o in pq.Conninfo.get_defaults()}
    ours = {name: parameter.env for name, parameter in PARAMETERS.items()}
    assert {name: env for name, env in theirs.items() if ours.get(name) != env} == {
        "client_encoding": "PGCLIENTENCODING"
    }
    assert set(ours) - set(theirs) == {"servicefile"}


REFUSED = [
    ("hostaddr", "10.0.0.1"), ("channel_binding", "require"), ("gssencmode", "require"), ("target_session_attrs", "standby"),
    ("target_session_attrs", "read-only"), ("target_session_attrs", "prefer-standby"), ("load_balance_hosts", "random"),
    ("require_auth", "scram-sha-256"), ("requirepeer", "postgres"), ("replication", "database"), ("sslcompression", "1"),
    ("sslcertmode", "require"), ("sslcrldir", "/etc/crl"), ("sslsni", "0"), ("sslkeylogfile", "/k"), ("sslmode", "verify_full"),
    ("sslmode", ""), ("sslrootcert", "system"), ("sslnegotiation", "later"), ("ssl_min_protocol_version", "TLSv9"),
    ("min_protocol_version", "3.2"), ("client_encoding", "LATIN1"), ("connect_timeout", "0"), ("connect_timeout", "soon"),
    ("connect_timeout", ""), ("keepalives", "yes"), ("keepalives_idle", "1m"), ("gsslib", "other"), ("gssdelegation", "1"),
    ("scram_client_key", "abcd"), ("oauth_issuer", "https://x"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_what_cannot_be_honoured_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"the store's URL: {name}(={re.escape(value)})? cannot be honoured: \w"
    ):
        target_of(f"postgresql://db/x?{name}={value.replace('/', '%2F')}", environ=NOBODY)
    if value and (env := PARAMETERS[name].env):
        with pytest.raises(ConfigError, match=f"{env}: {name}"):
            target_of("postgresql://db/x", environ=NOBODY | {env: value})


@pytest.mark.parametrize(
    "name", ["pool_size", "sslmod", "search_path", "ssl", "statement_timeout", "jit", "command_timeout"]
)
def test_an_unknown_parameter_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"there is no parameter '{name}'( \(did you mean '\w+'\?\))?: \w"):
        target_of(f"postgresql://db/x?{name}=1", environ=NOBODY)


@pytest.mark.parametrize(
    "options", ["-c%20jit=on", "--statement-timeout=5s", "-clock_timeout=1", "-c%20synchronous_commit=off"]
)
def test_options_that_makegood_would_overwrite_are_refused(options: str) -> None:
    own = connection._FIXED
    with pytest.raises(ConfigError, match=r"options set \w+.*take it away"):
        target_of(f"postgresql://db/x?options={options}", own=own, environ=NOBODY)
    with pytest.raises(ConfigError, match="PGOPTIONS: options set jit"):
        target_of("postgresql://db/x", own=own, environ=NOBODY | {"PGOPTIONS": "-c work_mem=1MB -c jit=off"})


class NoConnection:
    """What a driver returns that connects to nothing."""

    def terminate(self) -> None:
        """Do nothing."""

    def is_closed(self) -> bool:
        """Return that it is open."""
        return False

    def get_server_pid(self) -> int:
        """Return a number."""
        return 1

    async def execute(self, _: str) -> None:
        """Agree: no proxy is in between."""


async def at_once(_: object) -> None:
    """Prepare nothing."""


async def arguments(url: str, environ: dict[str, str], **more: Any) -> dict[str, Any]:
    """Return what the driver is given for the first host."""
    options: dict[str, Any] = {}

    async def driver(**how: Any) -> NoConnection:
        options.update(how)
        return NoConnection()

    await PostgresHosts(target_of(url, environ=environ)).connect(driver, limit=6.0, ready=at_once, **more)
    assert options.pop("timeout") == pytest.approx(6.0 / (url.count(",") + 1), rel=0.1)  # its share
    return options


async def test_the_driver_is_given_what_was_settled_and_nothing_else(
    services: dict[str, str], pair: tuple[Path, Path]
) -> None:
    root = pair[0].rename(pair[0].with_name("a b.crt"))
    path = str(root).replace(" ", "%20")
    url = f"postgresql://u:p@10.0.0.1,10.0.0.2:2/x?options=-c%20work_mem=1MB&sslrootcert={path}&sslmode=verify-ca&passfile=/p&krbsrvname=k"
    assert await arguments(url, services, session="makegood-client") == {
        "dsn": f"postgresql://?{urlencode({'sslmode': 'verify-ca', 'sslrootcert': str(root)})}",
        "host": "10.0.0.1", "port": 5432, "user": "u", "database": "x", "password": "p", "passfile": "/p", "krbsrvname": "k",
        "server_settings": {"options": "-c work_mem=1MB", "application_name": "makegood-client"},
        "target_session_attrs": "read-write",
    }  # fmt: skip
    bare = await arguments("postgresql://", NOBODY)
    assert bare == {
        "host": None, "port": 5432, "user": "me", "database": "there", "target_session_attrs": "read-write",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("query", "environ", "name"),
    [
        ("?application_name=mine&fallback_application_name=other", {}, "mine"),
        ("?fallback_application_name=other", {}, "other"),
        ("", {"PGAPPNAME": "env"}, "env"),
        ("", {}, "ours"),
        ("?options=-c%20application_name=opt", {}, None),
    ],
)
async def test_a_session_has_the_name_that_the_target_gives_it(
    query: str, environ: dict[str, str], name: str | None
) -> None:
    options = await arguments(f"postgresql://10.0.0.1/x{query}", NOBODY | environ, session="ours")
    assert options["server_settings"].get("application_name") == name


def test_connecting_may_take_what_the_url_says_for_each_host() -> None:
    assert target_of("postgresql://a,b/x?connect_timeout=7", environ=NOBODY).patience(10) == 14
    assert target_of("postgresql://a,b/x", environ=NOBODY).patience(10) == 10
    assert target_of("postgresql:///x", environ=NOBODY | {"PGCONNECT_TIMEOUT": "3"}).patience(10) == 3


def test_an_unknown_parameter_behind_a_password_is_not_shown() -> None:
    with pytest.raises(ConfigError) as error:
        target_of("postgresql://db/x?password=hun&ter2zzzz=1", environ=NOBODY)
    assert "ter2zzzz" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("postgresql://a,,b/x", "an empty host"), ("postgresql://a,b,c/x?port=1,2", "3 hosts and 2 ports"),
        ("postgresql://a/x?port=70000", "a port is a number"), ("postgresql://a/x?port=x", "a port is a number"),
    ],
)  # fmt: skip
def test_places_that_do_not_fit_are_refused(url: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        target_of(url, environ=NOBODY)


def remote(url: str, environ: dict[str, str]) -> PostgresTarget:
    return target_of(url, environ=NOBODY | environ)


@pytest.mark.parametrize(
    ("url", "environ", "hosts"),
    [
        ("postgresql:///shop", {}, []),
        ("postgresql:///shop", {"PGHOST": "db"}, ["db"]),
        ("postgresql://me@localhost:5432/shop", {}, []),
        ("postgresql://me@127.0.0.53/shop", {}, []),
        ("postgresql://me@[::1]:5432/shop", {}, []),
        ("postgresql://me@[fd00::7]:5432/shop", {}, ["fd00::7"]),
        ("postgresql://me@%2Fvar%2Frun/shop", {}, []),
        ("postgresql:///shop?host=/var/run", {"PGHOST": "db"}, []),
        ("postgresql://localhost/shop?host=db", {}, ["db"]),
        ("postgres://me@localhost,db1,127.0.0.1,db2:1/shop", {}, ["db1", "db2"]),
        ("postgresql://me@127.1/shop", {}, ["127.1"]),
        (REMOTE, {}, ["db.internal"]),
    ],
)
def test_a_host_is_remote_unless_it_is_plainly_this_machine(
    url: str, environ: dict[str, str], hosts: list[str]
) -> None:
    assert remote(url, environ).remote_hosts == hosts


def test_what_says_nothing_of_tls_gets_the_whole_of_it(services: dict[str, str]) -> None:
    assert with_tls(REMOTE, {}) == f"{REMOTE}?sslmode=verify-full"
    assert with_tls(f"{REMOTE}?application_name=x", {}) == f"{REMOTE}?application_name=x&sslmode=verify-full"
    assert with_tls("postgresql:///shop", {"PGHOST": "db"}) == "postgresql:///shop?sslmode=verify-full"
    assert with_tls("postgresql://db/shop?", {}) == "postgresql://db/shop?sslmode=verify-full"
    assert with_tls("PostgreSQL://db/shop", {}) == "PostgreSQL://db/shop?sslmode=verify-full"
    Path(services["PGSERVICEFILE"]).write_text("[plain]\nhost=db\n[weak]\nhost=db\nsslmode=prefer\n")
    assert with_tls("postgresql://?service=plain", services).endswith("&sslmode=verify-full")
    with pytest.raises(ConfigError, match="sslmode=prefer for db"):
        with_tls("postgresql://?service=weak", services)


def test_what_asks_for_the_whole_of_tls_is_left_as_it_is() -> None:
    """Wherever it does: of two modes in a URL the later one counts, and the URL counts before the environment."""
    whole = f"{REMOTE}?sslmode=verify-full"
    assert with_tls(whole, {}) == whole
    assert with_tls(REMOTE, {"PGSSLMODE": "verify-full"}) == REMOTE
    assert with_tls(whole, {"PGSSLMODE": "disable"}) == whole
    twice = f"{REMOTE}?sslmode=require&sslmode=verify-full"
    assert with_tls(twice, {}) == twice
    assert remote(twice, {}).values["sslmode"] == "verify-full"
    assert (remote(whole, {}).verifies_server, remote(f"{REMOTE}?sslmode=verify-ca", {}).verifies_server) == (
        True,
        False,
    )


@pytest.mark.parametrize(
    ("url", "environ"),
    [
        ("postgresql://me:pw@db.internal/shop?sslmode=verify-full&sslmode=require", {}),
        ("postgresql://me:pw@localhost,db.internal/shop?sslmode=require", {}),
        ("postgresql://me:pw@localhost/shop?host=db.internal&sslmode=require", {}),
        ("postgresql://me:pw@/shop?sslmode=verify-ca", {"PGHOST": "/run,db.internal"}),
        ("postgresql://me:pw@db.internal/shop?ssl=true", {}),
        ("postgresql://me:pw@db.internal/shop", {"PGREQUIRESSL": "1"}),
        ("postgresql://me:pw@db.internal/shop", {"PGSSLMODE": "verify-ca"}),
    ],
)
def test_nothing_less_comes_in_by_another_way(url: str, environ: dict[str, str]) -> None:
    """A second mode, one host of several, JDBC's name, a variable."""
    with pytest.raises(ConfigError, match=r"for db\.internal .*require_tls is on: write sslmode=verify-full"):
        with_tls(url, environ)


@pytest.mark.parametrize("mode", ["disable", "allow", "prefer", "require", "verify-ca"])
def test_what_asks_for_less_is_refused_without_its_password(mode: str) -> None:
    with pytest.raises(ConfigError, match=f"sslmode={mode} for db.internal") as error:
        with_tls(f"{REMOTE}?sslmode={mode}", {})
    assert "pw" not in str(error.value)
    with pytest.raises(ConfigError):
        with_tls(REMOTE, {"PGSSLMODE": mode})


@pytest.mark.parametrize(
    "url", ["sqlite:///a.db", "postgresql://me@localhost/shop", "redis://db", "postgresql:///x"]
)
def test_what_crosses_no_network_or_is_no_postgresql_is_left_as_it_is(url: str) -> None:
    assert with_tls(url, {}) == url


# -- files for TLS, and what cannot be read ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sslrootcert", "sslcert", "sslkey", "sslcrl"])
@pytest.mark.parametrize("where", ["the URL", "the environment", "a service"])
def test_a_missing_file_is_refused_by_parameter_and_name_at_once(
    name: str, where: str, tmp_path: Path
) -> None:
    """It would pass for an outage, over which a process waits."""
    missing = tmp_path / "gone.pem"
    url, environ = "postgresql://db/x", dict(NOBODY)
    if where == "the URL":
        url += f"?{name}={missing}"
    elif where == "the environment":
        environ[name.replace("ssl", "PGSSL").upper()] = str(missing)
    else:
        (tmp_path / "services").write_text(f"[shop]\n{name}={missing}\n")
        environ |= {"PGSERVICEFILE": str(tmp_path / "services"), "PGSERVICE": "shop"}
    with pytest.raises(ConfigError, match=rf"{name}={missing} cannot be read \(no such file"):
        target_of(url, environ=environ)
    assert target_of(f"{url}{'&' if '?' in url else '?'}sslmode=disable", environ=environ).database == "x"


def test_a_file_that_is_none_or_holds_something_else_is_refused(
    tmp_path: Path, pair: tuple[Path, Path]
) -> None:
    certificate, key = pair
    text = tmp_path / "text.pem"
    text.write_text("hello\n")
    for query, pattern in (
        (f"sslrootcert={tmp_path}", rf"sslrootcert={tmp_path} cannot be read \(is a directory\)"),
        (f"sslrootcert={text}", r"sslrootcert=.* holds no certificate in PEM form"),
        (f"sslcrl={text}", r"sslcrl=.* holds no list of revoked certificates"),
        (f"sslcert={text}&sslkey={key}", r"sslcert=.*text.pem holds no certificate"),
        (
            f"sslcert={certificate}&sslkey={text}",
            r"sslkey=.*text.pem holds no private key .* that fits sslcert=",
        ),
        (f"sslcert={certificate}", "without an sslkey holds no private key"),
    ):
        with pytest.raises(ConfigError, match=pattern):
            target_of(f"postgresql://db/x?{query}", environ=NOBODY)
    assert target_of(f"postgresql://db/x?sslcert={certificate}&sslkey={key}", environ=NOBODY).database == "x"


def test_a_file_that_has_gone_since_is_named_when_a_connection_is_made(pair: tuple[Path, Path]) -> None:
    target = target_of(f"postgresql://db/x?sslrootcert={pair[0]}", environ=NOBODY)
    pair[0].unlink()
    with pytest.raises(ValueError, match=r"sslrootcert=.* cannot be read"):
        target.arguments("db", 5432, None)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("sslmode", "required", "it may be disable, allow, prefer, require, verify-ca, verify-full (did you mean 'require'?)"),
        ("sslnegotiation", "tls", "it may be postgres, direct"),
        ("ssl_min_protocol_version", "1.2", "it may be TLSv1, TLSv1.1, TLSv1.2, TLSv1.3"),
        ("keepalives", "on", "it may be 0, 1"),
        ("gsslib", "gss", "it may be gssapi, sspi"),
    ],
)  # fmt: skip
def test_an_unknown_value_of_a_list_is_refused_with_the_list(name: str, value: str, text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        target_of(f"postgresql://db/x?{name}={value}", environ=NOBODY)


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("postgresql://me:hunter%zz@db/x", "its password"), ("postgresql://m%e@db/x", "its user"), ("postgresql://d%/x", "its host"),
        ("postgresql://db/x%2", "its database or path"), ("postgresql://db/x?sslmode=%zz", "its parameter sslmode"),
        ("postgresql://db/x?sslmode=prefer&hunter2=%zz", "one of its parameters"), ("nats://me:hunter%zz@db/x", "its password"),
    ],
)  # fmt: skip
def test_a_bad_percent_escape_is_refused_by_the_part_that_has_it(url: str, part: str) -> None:
    with pytest.raises(
        ConfigError, match=f"without two hexadecimal digits after it in {part}: write %25"
    ) as error:
        parts_of(url)
    assert "hunter" not in str(error.value)
    with pytest.raises(ConfigError, match="has %00 in"):
        parts_of(
            url.replace("%zz", "%00").replace("m%e", "m%00").replace("d%/", "d%00/").replace("x%2", "x%00")
        )


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
async def test_a_server_without_tls_is_named_with_what_to_do(mode: str, pair: tuple[Path, Path]) -> None:
    """Not as an outage, over which a process would wait. The server here answers as one whose ssl is off."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        writer.write(b"N")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        url = f"postgresql://me:hunter2@127.0.0.1:{port}/x?sslmode={mode}&sslrootcert={pair[0]}"
        with pytest.raises(
            ConfigError, match="answers without TLS, and sslmode asks for it: switch TLS on"
        ) as error:
            await open_store(url).open()
    assert "hunter2" not in str(error.value)
