"""``require_tls``: a PostgreSQL server on another machine gets no password before the way to it is encrypted."""

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.doors.conftest import Shop

pytest.importorskip("asyncpg", reason="postgres: asyncpg is not installed")

ELSEWHERE = "127.1"
"""A name of this machine by which nobody recognises it."""


class Eavesdropper:
    """Stands between: says that it cannot do TLS, asks for the password in the clear, and remembers what it got."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(60)
                try:
                    self._talk(connection)
                except OSError:
                    continue

    def _talk(self, connection: socket.socket) -> None:
        first = connection.recv(1000)
        if first[4:8] == (80877103).to_bytes(4, "big"):
            connection.sendall(b"N")
            first = connection.recv(1000)
        if first:
            connection.sendall(b"R" + (8).to_bytes(4, "big") + (3).to_bytes(4, "big"))
            self.got.append(connection.recv(1000))

    def close(self) -> None:
        """Listen no more."""
        self._socket.close()


@pytest.fixture
def eavesdropper() -> Iterator[Eavesdropper]:
    """One on loopback."""
    with closing(Eavesdropper()) as own_server:
        yield own_server


def test_the_password_is_not_sent_without_tls(shop: Shop, eavesdropper: Eavesdropper) -> None:
    """As a flag, from the environment and from the file; without any of them the password is given away, which the doctor warns of."""
    url = f"postgresql://shop:hunter2@{ELSEWHERE}:{eavesdropper.port}/shop"
    root = {"PGSSLROOTCERT": str(_certificate(shop))}
    for words, environ in ((("--require-tls",), {}), ((), {"MAKEGOOD_REQUIRE_TLS": "on"})):
        for command in (("task", "list"), ("run", "kiosk:kiosk"), ("store", "migrate"), ("leader",)):
            result = shop.call(*command, *words, "--store", url, **root, **environ)
            assert result.exit_code in (2, 8), result.output
            assert "hunter2" not in result.output
    (shop.folder / "makegood.toml").write_text("require_tls = true\n", encoding="utf-8")
    assert shop.call("task", "list", "--store", url, **root).exit_code in (2, 8)
    inbox = shop.call("inbox", "--from", url, **root)
    assert inbox.exit_code in (2, 8), inbox.output
    refusal = shop.call("task", "list", "--store", f"{url}?sslmode=prefer")
    assert refusal.exit_code == 2
    assert "nothing was sent" in refusal.output
    assert eavesdropper.got == []
    shop.call("task", "list", "--no-require-tls", "--store", url)
    assert b"hunter2" in eavesdropper.got[0]


def _certificate(shop: Shop) -> Path:
    """Return a file with some authority's certificate: whose, does not matter here."""
    certificates = ssl.create_default_context().get_ca_certs(binary_form=True)
    if not certificates:
        pytest.skip("this machine knows no certificate authority")
    file = shop.folder / "root.crt"
    file.write_text(ssl.DER_cert_to_PEM_cert(certificates[0]), encoding="ascii")
    return file


def test_the_doctor_warns_of_a_way_without_tls(shop_on_postgres: Shop) -> None:
    shop_on_postgres.done("store", "migrate")
    here = _tls(shop_on_postgres, shop_on_postgres.url)
    assert (here["severity"], here["what"]) == ("ok", "the server is on this machine")
    there = _tls(shop_on_postgres, shop_on_postgres.url.replace("@127.0.0.1:", f"@{ELSEWHERE}:"))
    assert there["severity"] == "warning"
    assert "not encrypted" in there["what"]
    assert "sslmode=verify-full" in there["remedy"]


def _tls(shop: Shop, url: str) -> dict[str, str]:
    result = shop.call("doctor", "--json", "--store", url)
    (finding,) = [f for f in json.loads(result.stdout)["findings"] if f["check"] == "tls"]
    return dict(finding)
