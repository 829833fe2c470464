"""Every route of the table: who may use it, what every answer carries, and that nothing can be reached beside the table."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

import makegood as mg
from makegood.console.app import create_app
from makegood.console.reads import Reads
from makegood.console.security_headers import POLICY
from makegood.console.visits import Route, Visit, page
from tests.console.asking import Browser
from tests.console.consoles import migrated, path_of


def table() -> list[Route]:
    """Return all routes."""
    return list(create_app("sqlite:///nowhere.db", insecure=True).routes)


async def nothing(visit: Visit) -> Response:
    """Answer with nothing."""
    return Response()


@pytest.mark.parametrize("route", table(), ids=lambda route: f"{route.methods[0]} {route.path}")
async def test_every_answer_carries_the_headers(route: Route, tmp_path: Path) -> None:
    """Pages, files, refusals and what does not exist alike; only hashed files are kept by a browser."""
    async with create_app(await migrated(tmp_path), insecure=True) as app:
        response = await Browser(app).ask(route.methods[0], path_of(route), b"", {})
        assert response.headers["content-security-policy"] == POLICY
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "same-origin"
        assert response.headers["cache-control"] == "no-store"


async def test_a_file_is_kept_forever_under_the_hash_of_its_content(tmp_path: Path) -> None:
    """The page names it; another hash of the same file does not exist."""
    async with create_app(await migrated(tmp_path), insecure=True) as app:
        browser = Browser(app)
        text = (await browser.get("/")).text
        path = text.split('rel="stylesheet" href="')[1].split('"')[0]
        response = await browser.get(path)
        assert (response.status, response.headers["content-type"]) == (200, "text/css; charset=utf-8")
        assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
        other = path.replace(path.split("/")[2], "0" * 16)
        assert (await browser.get(other)).status == 404


async def test_what_is_not_in_the_table_does_not_exist(tmp_path: Path) -> None:
    """Neither an unknown path, nor another method of a known one; both get a page of the console."""
    async with create_app(await migrated(tmp_path), insecure=True) as app:
        assert (await Browser(app).get("/nothing")).status == 404
        wrong = await Browser(app).ask("DELETE", "/", b"", {})
        assert (wrong.status, wrong.headers["allow"]) == (405, "GET")
        program = await Browser(app).get("/api/v1/nothing")
        assert (program.status, program.headers["content-type"]) == (404, "application/problem+json")
        assert "There is no such page." in (await Browser(app).get("/tasks/../../etc/passwd")).text


def test_a_route_says_who_may_use_it() -> None:
    """One without a known role cannot be made, and neither can one that changes something for viewers, or by GET."""
    with pytest.raises(mg.ConfigError, match="is none of everyone, viewer, operator, admin"):
        Route(path="/x", role="", kind="page", respond=nothing)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="role"):
        Route(path="/x", kind="page", respond=nothing)  # type: ignore[call-arg]
    with pytest.raises(mg.ConfigError, match="a viewer changes nothing"):
        Route(path="/x", role="viewer", kind="act", respond=nothing, methods=("POST",))
    with pytest.raises(mg.ConfigError, match="operator commands are POST requests"):
        Route(path="/x", role="operator", kind="act", respond=nothing)
    with pytest.raises(mg.ConfigError, match="operator commands are POST requests"):
        Route(path="/x", role="operator", kind="page", respond=nothing, methods=("POST",))


async def test_links_begin_where_the_console_is_mounted(tmp_path: Path) -> None:
    """Under ``root_path``, and under the prefix that a listed proxy names; a stranger's prefix counts for nothing."""
    url = await migrated(tmp_path)
    async with create_app(url, proxies=["127.0.0.1"], resolve_user=lambda _: "ann") as app:
        mount = Browser(app, root="/ops")
        assert 'href="/ops/static/' in (await mount.get("/")).text
        behind = await mount.get("/", x_forwarded_prefix="/outer/path")
        assert 'href="/outer/path/ops/static/' in behind.text
        assert 'href="/ops/static/' in (await mount.get("/", x_forwarded_prefix='"><script>')).text
        stranger = Browser(app, client="192.0.2.1")
        assert 'href="/static/' in (await stranger.get("/", x_forwarded_prefix="/outer")).text


async def test_fragments_are_the_page_s_own_elements(tmp_path: Path) -> None:
    """By block and by id alike; one that the page does not have is not found."""
    async with create_app(await migrated(tmp_path), insecure=True) as app:
        browser = Browser(app)
        text = (await browser.get("/")).text
        for name in ("verdict", "nav", "keys"):
            response = await browser.get(f"/?fragment={name}")
            assert response.status == 200
            assert response.text in text
            assert f'id="{name}"' in response.text
        assert (await browser.get("/?fragment=nothing")).status == 404


async def test_a_url_is_opened_and_closed_with_the_lifespan(tmp_path: Path) -> None:
    """A client that is given stays open when the application ends."""
    url = await migrated(tmp_path)
    app = create_app(url, insecure=True)
    async with app:
        assert (await Browser(app).get("/")).status == 200
    with pytest.raises(mg.ClosedError):
        await app.client.find()
    async with mg.Client(url) as client:
        async with create_app(client, insecure=True) as app:
            assert (await Browser(app).get("/")).status == 200
        assert await client.find() == []


async def test_a_store_that_does_not_answer_is_a_page(tmp_path: Path) -> None:
    """Not a broken one: the console's own, which says so, and the next request finds the store."""

    async def broken(reads: Reads, query: Mapping[str, str]) -> dict[str, Any]:
        raise mg.StoreUnavailableError("the disk is away")

    async with create_app(await migrated(tmp_path), insecure=True) as app:
        app.answer([page("/x", broken, "overview.html")])
        response = await Browser(app).get("/x")
        assert (response.status, response.headers["retry-after"]) == (503, "5")
        assert "The store does not answer" in response.text
        assert "the disk is away" in response.text
