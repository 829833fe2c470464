"""Silent connections to the console of a process that runs roles: they cost no task, no page and no log."""

import base64
import contextlib
import json
import resource
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from makegood.console.limited_server import MOST_CONNECTIONS
from makegood.console.users import hash_password
from tests.doors.conftest import Shop

PASSWORD = "correct horse battery"
SILENT = 1400


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A shop whose store is set up, and whose console has a user."""
    new_shop = Shop(tmp_path)
    settings = tmp_path / "makegood.toml"
    settings.write_text(f'[console_users]\n"ann" = "admin {hash_password(PASSWORD)}"\n', encoding="utf-8")
    settings.chmod(0o600)
    assert new_shop.call("store", "migrate").exit_code == 0
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[1], 4096), before[1]))
    yield new_shop
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    new_shop.close()


@pytest.mark.parametrize("says", [b"", b"GET / HTTP/1.1\r\nX: "])
def test_silent_connections_to_the_console_cost_no_task_and_no_page(shop: Shop, says: bytes) -> None:
    """1,400 of them, on a process that may open 1,024 files; nobody reads its log, which fits into a pipe."""
    process = shop.start("run", "kiosk:kiosk", "--console", "127.0.0.1:0", "--json")
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (1024, 1024))
    assert process.stdout is not None
    address: str = json.loads(process.stdout.readline())["console"]
    host, port = address.removeprefix("http://").split(":")
    files = Path(f"/proc/{process.pid}/fd")
    before = len(list(files.iterdir()))
    strangers: list[socket.socket] = []
    for _ in range(SILENT):
        strangers.append(socket.create_connection((host, int(port))))
        with contextlib.suppress(ConnectionError):  # it was cut off already
            strangers[-1].sendall(says)
    basic = base64.b64encode(f"ann:{PASSWORD}".encode()).decode()
    for n in range(3):
        shop.done("task", "submit", "kiosk:buy", json.dumps({"id": f"o{n}"}), "--wait", "--timeout", "60s")
        page = urllib.request.Request(f"{address}/alerts", headers={"Authorization": f"Basic {basic}"})  # noqa: S310 - our own http
        with urllib.request.urlopen(page, timeout=60) as answer:  # noqa: S310 - our own http
            assert answer.status == 200
    assert len(list(files.iterdir())) <= before + MOST_CONNECTIONS + 20
    code, _, log = shop.stop(process)
    assert (code, "Too many open files" in log) == (0, False)
    for stranger in strangers:
        stranger.close()
