"""A real PgBouncer in front of the server: with pool_mode=transaction it is found out, with pool_mode=session it will do."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from makegood.store.postgres import PostgresStore
from proofs.private_server import PrivateServer
from tests.doors.conftest import Shop

Pooled = Callable[[str], str]


@pytest.fixture
def pooled(tmp_path: Path, server: PrivateServer) -> Iterator[Pooled]:
    """Starts a PgBouncer with a pool_mode; returns the URL through it."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("pgbouncer is not installed: `make` installs it where apt-get may")
    found = urlsplit(server.url)
    with contextlib.ExitStack() as stack:

        def start(mode: str) -> str:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            ini = tmp_path / f"{mode}.ini"
            log = tmp_path / f"{mode}.log"
            ini.write_text(
                f"[databases]\n* = host={found.hostname} port={found.port} user={found.username} password={found.password}\n"
                f"[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port={port}\nauth_type=any\nunix_socket_dir=\n"
                f"pool_mode={mode}\ndefault_pool_size=2\nignore_startup_parameters=extra_float_digits\n",
                encoding="utf-8",
            )
            command = [program, str(ini)]
            if os.geteuid() == 0:  # it refuses to be root; the settings must be readable for whom it becomes
                for folder in (ini, *ini.parents):
                    if folder.is_relative_to(tmp_path.parent.parent):
                        folder.chmod(folder.stat().st_mode | 0o055)
                command[1:1] = ["-u", "nobody"]
            with log.open("wb") as out:
                process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
            stack.callback(process.wait, 10)
            stack.callback(process.kill)
            _listening(port, process, log)
            return f"postgresql://{found.username}@127.0.0.1:{port}/{found.path.lstrip('/')}"

        yield start


def _listening(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait until somebody listens there, for at most 10 s."""
    end = time.monotonic() + 10
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()


async def test_transaction_pooling_is_an_error_with_the_remedy(pooled: Pooled) -> None:
    """Nothing else is asked over it: what one transaction sets, another one does not find."""
    (found,) = await PostgresStore(pooled("transaction")).admin.examine()
    assert (found.check, found.severity) == ("pooling", "error")
    assert "pool_mode=transaction" in found.what
    assert "pool_mode=session" in found.remedy


async def test_session_pooling_will_do(pooled: Pooled) -> None:
    """The same proxy, one session for each connection."""
    found = await PostgresStore(pooled("session")).admin.examine()
    assert [one.severity for one in found if one.check == "pooling"] == ["ok"]


def test_doctor_says_so(pooled: Pooled, server: PrivateServer, tmp_path: Path) -> None:
    """Exit 1 and what to do; beside the proxy the same server is sound but for the durability that it was told to forgo."""
    shop = Shop(tmp_path, pooled("transaction"))
    seen = shop.json("doctor", code=1)
    assert [(one["check"], one["severity"]) for one in seen["findings"]] == [("pooling", "error")]
    straight = shop.json("doctor", "--store", server.url, code=1)
    errors = [one["what"].partition(":")[0] for one in straight["findings"] if one["severity"] == "error"]
    assert errors == ["fsync is off", "full_page_writes is off"]
    assert [
        one["severity"] for one in straight["findings"] if one["check"] in ("schema", "clock", "orphans")
    ] == ["ok"] * 3
