"""Consoles that listen, and a browser: all tests of this folder share one of each.

Without a browser they are skipped aloud; in CI that is a failure.
"""

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from makegood.console.app import create_app
from makegood.store import open_store
from tests.browser.chromium import Chromium, Page, chromium, found
from tests.browser.sample import fill


class Listening(NamedTuple):
    """A console that listens. ``under``: the path that it is mounted at."""

    url: str
    under: str
    store: str
    task: int

    def at(self, path: str) -> str:
        """Return the address of a page."""
        return f"{self.url}{self.under}{path}"


@pytest.fixture(scope="session")
def browser() -> Iterator[Chromium]:
    """A browser."""
    if (program := found()) is None:
        reason = "chromium: there is none: scripts/chromium.sh installs it, or set MAKEGOOD_CHROMIUM"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with chromium(program) as running:
        yield running


@pytest.fixture
def page(browser: Chromium) -> Iterator[Page]:
    """A tab of its own, with the width of a laptop."""
    new_page = browser.page()
    new_page.call("Network.clearBrowserCookies")  # the choices of another test's visitor
    new_page.look(width=1280)
    yield new_page
    new_page.close()


@pytest.fixture(scope="session")
def consoles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Listening]]:
    """Consoles at the root and under a base path, each on a store of its own that has something to show."""
    with (
        _served(tmp_path_factory.mktemp("root"), "") as root,
        _served(tmp_path_factory.mktemp("base"), "/ops/makegood") as base,
    ):
        yield {"root": root, "base": base}


class _served:  # noqa: N801 - it is used like a function
    """Serve a console from a thread of its own."""

    def __init__(self, folder: Path, under: str) -> None:
        self._folder = folder
        self._under = under
        self._ready = threading.Event()
        self._server: uvicorn.Server | None = None
        self._found: Listening | None = None
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Listening:
        """Start; return where it listens."""
        self._thread.start()
        self._ready.wait()
        if self._found is None:
            raise RuntimeError("the console did not start") from self._failed
        return self._found

    def __exit__(self, *_: object) -> None:
        """Stop."""
        if self._server is not None:
            self._server.should_exit = True
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as failure:
            self._failed = failure
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        url = f"sqlite:///{self._folder}/shop.db"
        store = open_store(url)
        await store.open(migrate=True)
        task = await fill(store)
        await store.close()
        console = create_app(url, insecure=True)
        app: Any = console
        if self._under:
            app = Starlette(
                routes=[Mount(self._under, console)], lifespan=_opened(console.open, console.close)
            )
        listening = socket.create_server(("127.0.0.1", 0))  # who comes before the server is ready, waits
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        port = listening.getsockname()[1]
        self._found = Listening(f"http://127.0.0.1:{port}", self._under, url, task)
        self._ready.set()
        await self._server.serve([listening])


def _opened(start: Callable[[], Any], stop: Callable[[], Any]) -> Any:
    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await start()
        yield
        await stop()

    return lifespan
