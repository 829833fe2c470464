"""Where a server is, and what ``require_tls`` makes of its URL."""

import pytest

from makegood.base.host_port import remote_hosts, tls_mode, with_tls
from makegood.errors import ConfigError

REMOTE = "postgresql://me:pw@db.internal:5433/shop"


@pytest.mark.parametrize(
    ("url", "environ", "remote"),
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
    url: str, environ: dict[str, str], remote: list[str]
) -> None:
    assert remote_hosts(url, environ) == remote


def test_what_says_nothing_of_tls_gets_the_whole_of_it() -> None:
    assert with_tls(REMOTE, {}) == f"{REMOTE}?sslmode=verify-full"
    assert with_tls(f"{REMOTE}?application_name=x", {}) == f"{REMOTE}?application_name=x&sslmode=verify-full"
    assert with_tls("postgresql:///shop", {"PGHOST": "db"}) == "postgresql:///shop?sslmode=verify-full"


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
def test_what_asks_for_tls_is_left_as_it_is(mode: str) -> None:
    assert with_tls(f"{REMOTE}?sslmode={mode}", {}) == f"{REMOTE}?sslmode={mode}"
    assert with_tls(REMOTE, {"PGSSLMODE": mode}) == REMOTE
    assert tls_mode(f"{REMOTE}?sslmode={mode}", {"PGSSLMODE": "disable"}) == mode


@pytest.mark.parametrize("mode", ["disable", "allow", "prefer", "nonsense"])
def test_what_asks_for_less_is_refused_without_its_password(mode: str) -> None:
    with pytest.raises(ConfigError, match=f"sslmode={mode} for db.internal") as refused:
        with_tls(f"{REMOTE}?sslmode={mode}", {})
    assert "pw" not in str(refused.value)
    with pytest.raises(ConfigError):
        with_tls(REMOTE, {"PGSSLMODE": mode})


@pytest.mark.parametrize(
    "url", ["sqlite:///a.db", "postgresql://me@localhost/shop", "redis://db", "postgresql:///x"]
)
def test_what_crosses_no_network_or_is_no_postgresql_is_left_as_it_is(url: str) -> None:
    assert with_tls(url, {}) == url
