"""The pages on orders from NATS and from Redis Streams do what they say, on a private server."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from makegood.errors import MakegoodError
from proofs.servers import LeaseServer, ServerKind
from tests.docs.test_messages_howto import typed, until
from tests.doors.conftest import Shop

DOCS = Path(__file__).resolve().parents[2] / "docs/build"
FILES = re.compile(r"^```(?:python|toml)\n# (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TYPED = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Callable[[ServerKind], LeaseServer]:
    """Returns a private server of a kind."""

    def start(kind: ServerKind) -> LeaseServer:
        try:
            running = LeaseServer(kind).__enter__()
        except MakegoodError as reason:
            pytest.skip(f"{kind}: the page was NOT tested: {reason}")
        request.addfinalizer(running.close)
        return running

    return start


@pytest.mark.parametrize(
    ("page", "kind", "port"),
    [("orders-from-nats.md", "nats", 4222), ("orders-from-redis-streams.md", "redis", 6379)],
)
def test_a_page_from_its_first_line_to_its_last(
    page: str,
    kind: ServerKind,
    port: int,
    tmp_path: Path,
    server: Callable[[ServerKind], LeaseServer],
) -> None:
    """Its files and commands, with the server's port, up to the notices."""
    running = server(kind)
    text = (DOCS / page).read_text(encoding="utf-8").replace(f":{port}", f":{running.port}")
    files = FILES.findall(text)
    assert len(files) == text.count("```python") + text.count("```toml"), (
        "a block has no file, and is not run"
    )
    assert [name for name, _ in files] == ["makegood.toml", "streams.py", "orders.py", "send.py"]
    lines = [line for block in TYPED.findall(text) for line in block.splitlines()]
    install, streams, migrate, check, run, send, tasks, brokers = lines
    assert install == f"pip install 'makegood[{kind}]'"
    shop = Shop(tmp_path, f"sqlite:///{tmp_path / 'makegood.db'}")
    try:
        for name, block in files:
            (tmp_path / name).write_text(block, encoding="utf-8")
        program(tmp_path, streams)
        program(tmp_path, streams)  # a second time finds what is there
        typed(shop, migrate)
        assert "exists" in typed(shop, check)
        shop.serve(*run.split()[1:])
        program(tmp_path, send)
        until(lambda: {task["key"] for task in shop.json("task", "list")} == {"o-1", "o-2"})
        until(lambda: {task["state"] for task in shop.json("task", "list")} == {"processed"})
        assert "o-1" in typed(shop, tasks)
        assert page_address(text) in typed(shop, brokers)
        until(lambda: [each["sent"] for each in shop.json("broker", "list")["receivers"]] == [6])
    finally:
        shop.close()


def program(folder: Path, line: str) -> None:
    """Run a line that runs one of the page's programs."""
    python, name = line.split()
    assert python == "python"
    subprocess.run([sys.executable, name], cwd=folder, check=True, timeout=60)


def page_address(text: str) -> str:
    """Return the address of the page's inbox."""
    match = re.search(r'@shop\.inbox\("(.*)"\)', text)
    assert match is not None
    return match[1]
