"""The private servers of the lease stores: they outlive a restart of theirs, and nobody who started them."""

import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from examples.orders.free_port import free_port
from makegood.errors import ConfigError
from proofs import servers
from proofs.servers import LeaseServer, ServerKind

OWNER = """
import sys
from proofs.servers import LeaseServer
server = LeaseServer("redis").__enter__()
print(server.port, server._folder, flush=True)
sys.stdin.read()
"""


def test_a_server_ends_with_a_program_that_is_killed(
    lease_server: Callable[[ServerKind], LeaseServer],
) -> None:
    lease_server("redis")  # skips where there is none
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        port, folder = owner.stdout.readline().split()
        with socket.create_connection(("127.0.0.1", int(port)), timeout=60) as way:
            assert Path(folder).is_dir()
            owner.send_signal(signal.SIGKILL)
            with contextlib.suppress(ConnectionResetError):  # it ended without a word
                assert way.recv(1) == b"", "the server lives on"


def test_a_server_that_is_closed_is_gone_with_its_folder(
    lease_server: Callable[[ServerKind], LeaseServer],
) -> None:
    lease_server("redis")
    with LeaseServer("redis") as server:
        folder = server._folder
        assert folder is not None
        assert folder.is_dir()
    assert not folder.exists()
    assert not server._reachable()


@pytest.mark.parametrize("kind", ["redis", "nats", "etcd", "azurite", "zookeeper"])
def test_a_server_whose_port_another_program_took_gets_another_port(
    lease_server: Callable[[ServerKind], LeaseServer], monkeypatch: pytest.MonkeyPatch, kind: ServerKind
) -> None:
    """Whoever answers there is not taken for it."""
    lease_server(kind)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ports = iter((listener.getsockname()[1],))
        monkeypatch.setattr(servers, "free_port", lambda: next(ports, None) or free_port())
        with LeaseServer(kind) as server:
            assert server.port != listener.getsockname()[1]
            assert server._reachable()


def test_a_program_that_is_missing_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ConfigError,
        match=r"no no-such-server on this machine: install it \(Debian: apt-get install some-package\)",
    ):
        servers.program("no-such-server", "some-package")
    monkeypatch.setattr(servers, "_ZOOKEEPER", Path("/no/such.jar"))
    with pytest.raises(ConfigError, match="apt-get install zookeeper"), LeaseServer("zookeeper"):
        pass
