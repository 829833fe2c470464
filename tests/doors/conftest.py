"""What the tests of the command line share: a shop of their own, calls in this process, calls as processes."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click.testing
import pytest

from makegood.cli import main
from makegood.errors import MakegoodError
from tests.conformance.conftest import databases, pytest_pyfunc_call, runner, store, world

__all__ = [
    "BARE",
    "HERE",
    "Shop",
    "databases",
    "open_shop",
    "pytest_pyfunc_call",
    "runner",
    "shop",
    "shop_on_postgres",
    "store",
    "world",
]

HERE = Path(__file__).parent
BARE = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith("MAKEGOOD_") and name != "NO_COLOR"
}


class Shop:
    """A folder with ``cli_app`` as the module ``kiosk`` and a store in it; ``call`` runs a command on it."""

    def __init__(self, folder: Path, url: str | None = None) -> None:
        self.folder = folder
        self.url = url or f"sqlite:///{folder / 'kiosk.db'}"
        shutil.copy(HERE / "cli_app.py", folder / "kiosk.py")
        self._started: list[subprocess.Popen[str]] = []

    def call(self, *words: str, stdin: str | None = None, **environ: str) -> click.testing.Result:
        """Run a command in this process, on this shop's store, in its folder."""
        runner = click.testing.CliRunner(env={"MAKEGOOD_STORE": self.url, **environ})
        before = Path.cwd()
        os.chdir(self.folder)
        try:
            return runner.invoke(main, list(words), input=stdin)
        finally:
            os.chdir(before)
            for name, module in [*sys.modules.items()]:  # another shop may have a module of this name
                if name != "kiosk" and Path(getattr(module, "__file__", None) or "/").parent == self.folder:
                    del sys.modules[name]

    def done(self, *words: str, stdin: str | None = None) -> str:
        """Run a command that must succeed; return its stdout."""
        result = self.call(*words, stdin=stdin)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *words: str, code: int = 0) -> Any:
        """Run a command with --json; return what its stdout says."""
        result = self.call(*words, "--json")
        assert result.exit_code == code, result.output
        return json.loads(result.stdout)

    def start(self, *words: str, **environ: str) -> subprocess.Popen[str]:
        """Start a command as a process of its own."""
        process = subprocess.Popen(
            [sys.executable, "-m", "makegood", *words],
            cwd=self.folder,
            env={**BARE, "MAKEGOOD_STORE": self.url, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def serve(self, *words: str, **environ: str) -> subprocess.Popen[str]:
        """Start a process that runs roles and wait until they run."""
        process = self.start(*words, "--json", **environ)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate(timeout=120)[1]
        assert json.loads(line)["event"] == "started"
        return process

    def run(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a command as a process to its end."""
        process = self.start(*words, **environ)
        out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def stop(self, process: subprocess.Popen[str], number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Send a signal, and return exit code, stdout and stderr."""
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def close(self) -> None:
        """Kill what still runs."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=120)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A shop whose store is set up and where nothing runs."""
    new_shop = Shop(tmp_path)
    assert new_shop.call("store", "migrate").exit_code == 0
    yield new_shop
    new_shop.close()


@pytest.fixture
def shop_on_postgres(tmp_path: Path) -> Iterator[Shop]:
    """A shop whose store is an empty PostgreSQL database."""
    pytest.importorskip("asyncpg", reason="postgres: asyncpg is not installed")
    from tests.conformance import postgres  # noqa: PLC0415 - asyncpg is an extra

    with ExitStack() as stack:
        try:
            databases = stack.enter_context(postgres.databases())
        except MakegoodError as reason:
            pytest.skip(f"postgres: {reason}")
        url = asyncio.run(databases.create())
        new_shop = Shop(tmp_path, url)
        yield new_shop
        new_shop.close()
        asyncio.run(databases.drop(url))


@pytest.fixture(scope="module")
def open_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A shop in which ``makegood run`` serves, for all tests of a module."""
    new_shop = Shop(tmp_path_factory.mktemp("kiosk"))
    new_shop.serve("run", "kiosk:kiosk")
    yield new_shop
    new_shop.close()
