"""The how-to does what it says: its files are taken from the page and run, in their servers where they have one."""

import asyncio
import importlib
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import makegood as mg
from tests.submission.application_servers import ask, serving
from tests.submission.connections import Django, PostgresWorld, SQLiteWorld, World

PAGE = Path(__file__).resolve().parents[2] / "docs/build/submit-in-your-transaction.md"
BLOCK = re.compile(r"^```python\n# (\S+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TABLE = "drop table if exists orders; create table orders (id text primary key)"

Load = Callable[[str], ModuleType]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the page's files."""
    path = tmp_path / "shop"
    path.mkdir()
    text = PAGE.read_text(encoding="utf-8")
    for name, block in BLOCK.findall(text):
        (path / name).write_text(block, encoding="utf-8")
    assert len(BLOCK.findall(text)) == text.count("```python") - 1, "only the first block has no file"
    return path


@pytest.fixture
def load(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Import one of the files."""
    monkeypatch.syspath_prepend(folder)
    for path in folder.iterdir():  # another page has files of the same names
        monkeypatch.delitem(sys.modules, path.stem, raising=False)
    before = set(sys.modules)

    def run(name: str) -> ModuleType:
        return importlib.import_module(name)

    yield run
    for name in set(sys.modules) - before:
        if name in {path.stem for path in folder.iterdir()}:
            del sys.modules[name]


@pytest.fixture
def sqlite(tmp_path: Path) -> SQLiteWorld:
    """A file with the page's table."""
    new_world = SQLiteWorld(tmp_path / "shop.db")
    for statement in TABLE.split(";"):
        new_world.rows(statement)
    return new_world


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[PostgresWorld]:
    """A database with the page's table."""
    new_world = PostgresWorld(postgres_url)
    new_world.rows(TABLE)
    yield new_world
    new_world.rows("drop table orders")


def works(world: World, place: Callable[..., str], *args: Any) -> None:
    """Check that an order is placed whole, and that one that is there already leaves no task."""
    with mg.SyncClient(world.url) as client:
        assert client.find() == []
        place(client, *args, "o-1")
        with pytest.raises((sqlite3.IntegrityError, psycopg.IntegrityError, IntegrityError, OSError)):
            place(client, *args, "o-1")
    assert world.counts() == (1, 1, 1)


async def works_async(world: World, place: Callable[..., Any], *args: Any) -> None:
    """The same, awaited."""
    async with mg.Client(world.url) as client:
        await place(client, *args, "o-1")
        with pytest.raises(
            (asyncpg.IntegrityConstraintViolationError, psycopg.IntegrityError, IntegrityError)
        ):
            await place(client, *args, "o-1")
    assert world.counts() == (1, 1, 1)


def test_the_script(folder: Path) -> None:
    process = subprocess.run(
        [sys.executable, "script.py"], cwd=folder, capture_output=True, text=True, check=True, timeout=60
    )
    assert re.fullmatch(r"[0-9a-z]{13} pending\n", process.stdout)


def test_sqlite3(load: Load, sqlite: SQLiteWorld) -> None:
    connection = sqlite3.connect(sqlite.path)
    works(sqlite, load("with_sqlite3").place, connection)
    connection.close()


def test_sqlalchemy(load: Load, sqlite: SQLiteWorld, postgres: PostgresWorld) -> None:
    module = load("with_sqlalchemy")
    for world, driver in ((sqlite, "sqlite"), (postgres, "postgresql+psycopg")):
        engine = sa.create_engine(f"{driver}://{world.place}")
        works(world, module.place, engine)
        for table in ("orders", "{task}", "{step}"):
            world.rows(f"delete from {table}")
        works(world, module.place_with_a_session, engine)
        engine.dispose()


async def test_sqlalchemy_awaited(load: Load, sqlite: SQLiteWorld) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite://{sqlite.place}")
    async with AsyncSession(engine) as session:
        await works_async(sqlite, load("with_sqlalchemy").place_async, session)
    await engine.dispose()


async def test_asyncpg(load: Load, postgres: PostgresWorld) -> None:
    async with asyncpg.create_pool(postgres.url, min_size=1) as pool:
        await works_async(postgres, load("with_asyncpg").place, pool)


def test_psycopg(load: Load, postgres: PostgresWorld) -> None:
    module = load("with_psycopg")
    works(postgres, module.place, postgres.url)
    postgres.rows("delete from orders; delete from {task}; delete from {step}")
    asyncio.run(works_async(postgres, module.place_async, postgres.url))


def test_django(load: Load, sqlite: SQLiteWorld) -> None:
    door = Django(sqlite, "default")
    module = load("with_django")

    def place(client: mg.SyncClient, order: str) -> str:
        from django.db import IntegrityError as Taken  # noqa: PLC0415 - it wants settings first

        try:
            task: str = module.place(client, order)
        except Taken as error:
            raise OSError from error
        return task

    works(sqlite, place)
    module.connection.close()
    assert door.alias == "default"


def test_many(load: Load, sqlite: SQLiteWorld) -> None:
    module = load("bring_in")

    async def bring_in() -> list[int]:
        async with mg.Client(sqlite.url) as client:
            return [
                await module.bring_in(client, ["a", "b", "c"]),
                await module.bring_in(client, ["b", "c", "d"]),
            ]

    assert asyncio.run(bring_in()) == [3, 1]
    with mg.SyncClient(sqlite.url) as client:
        assert module.bring_in_blocking(client, ["c", "d", "e", "f"]) == 2


def test_fastapi(folder: Path, load: Load, postgres: PostgresWorld) -> None:
    """In its lifespan, under uvicorn: twenty orders at a time, each twice, and their outcome."""
    place = folder / "web.sock"
    with (
        serving(folder, "uvicorn", "web:app", "--uds", str(place), MAKEGOOD_STORE=postgres.url) as server,
        mg.SyncNode(load("shop").shop, postgres.url),
        ThreadPoolExecutor(10) as pool,
    ):
        server.heard("running on")
        answers = list(pool.map(lambda n: ask(place, "POST", f"/orders/o-{n % 20}"), range(40)))
        assert sorted(status for status, _ in answers) == [200] * 20 + [500] * 20
        task = next(body["task"] for status, body in answers if status == 200)
        status, body = ask(place, "GET", f"/tasks/{task}")
        assert (status, body["result"][:9]) == (200, "packed o-")
    assert postgres.counts()[:2] == (20, 20)


def test_flask_under_gunicorn_that_loads_it_first(folder: Path, load: Load, sqlite: SQLiteWorld) -> None:
    """The client was used before the fork, and is used in both children; every order has its task, and is carried out."""
    (folder / "preloaded.py").write_text("from flask_shop import app, client\n\nassert client.find() == []\n")
    place = folder / "web.sock"
    options = ("--preload", "--workers", "2", "--bind", f"unix:{place}", "--access-logfile", "-")
    with (
        serving(
            folder, "gunicorn", *options, "--access-logformat", "served by %(p)s", "preloaded:app",
            MAKEGOOD_STORE=sqlite.url, SHOP=str(sqlite.path),
        ) as server,
        mg.SyncNode(load("shop").shop, sqlite.url) as node,
        ThreadPoolExecutor(4) as pool,
    ):  # fmt: skip
        server.heard("Booting worker", 2)
        statuses: list[int] = []
        tasks: list[str] = []
        processes: set[str] = set()
        while len(processes) < 2 and len(statuses) < 400:
            start = len(statuses)
            for status, body in pool.map(
                lambda n: ask(place, "POST", f"/orders/o-{n // 2}"), range(start, start + 40)
            ):
                statuses.append(status)
                tasks += [body["task"]] if status == 200 else []
            processes = {match[1] for match in server.heard(r"served by <(\d+)>", len(statuses))}
        assert len(processes) == 2
        assert len(tasks) == statuses.count(500) == len(statuses) // 2
        for task in tasks:
            assert node.client.task(task, str).result(timeout="60s")[:9] == "packed o-"
        assert sqlite.counts()[:2] == (len(tasks), len(tasks))


def test_flask_with_threads_and_with_greenlets(folder: Path, load: Load, sqlite: SQLiteWorld) -> None:
    """The gthread workers of gunicorn do, with one client for all threads. gevent is refused by name, at the first call as at the later ones,
    and leaves no order without its task.
    """
    environment = {"MAKEGOOD_STORE": sqlite.url, "SHOP": str(sqlite.path)}
    place = folder / "greenlets.sock"
    with serving(
        folder, "gunicorn", "-k", "gevent", "--bind", f"unix:{place}", "flask_shop:app", **environment
    ) as server:
        server.heard("Booting worker")
        assert [ask(place, "POST", "/orders/g")[0] for _ in range(2)] == [500, 500]
        assert len(server.heard("ConfigError: gevent has patched .* -k gthread", 2)) == 2
    assert sqlite.counts() == (0, 0, 0)
    place = folder / "threads.sock"
    with (
        serving(
            folder, "gunicorn", "-k", "gthread", "--threads", "8", "--bind", f"unix:{place}", "flask_shop:app", **environment
        ) as server,
        ThreadPoolExecutor(8) as pool,
    ):  # fmt: skip
        server.heard("Booting worker")
        statuses = pool.map(lambda n: ask(place, "POST", f"/orders/t-{n}")[0], range(24))
        assert set(statuses) == {200}
    assert sqlite.counts() == (24, 24, 24)


def test_fastapi_with_plain_functions(folder: Path, load: Load, postgres: PostgresWorld) -> None:
    """Its thread pool shares one SyncClient, which the lifespan opens and closes."""
    place = folder / "web.sock"
    with (
        serving(
            folder, "uvicorn", "web_blocking:app", "--uds", str(place), MAKEGOOD_STORE=postgres.url
        ) as server,
        mg.SyncNode(load("shop").shop, postgres.url),
        ThreadPoolExecutor(10) as pool,
    ):
        server.heard("running on")
        answers = list(pool.map(lambda n: ask(place, "POST", f"/orders/o-{n}"), range(20)))
        assert [status for status, _ in answers] == [200] * 20
        status, body = ask(place, "GET", f"/tasks/{answers[0][1]['task']}")
        assert (status, body["result"]) == (200, "packed o-0")
        server.process.terminate()
        server.heard("Application shutdown complete")
    assert postgres.counts()[:2] == (20, 20)


def test_celery_with_its_prefork_pool(folder: Path, load: Load, postgres: PostgresWorld) -> None:
    """The client was used before the fork; six calls in two processes, each order asked for twice."""
    for name in ("in", "control"):
        (folder / name).mkdir()
    (folder / "settings.py").write_text(
        "from celery_shop import app, client, place\n\n"
        "assert client.find() == []\n"
        'app.conf.broker_url = "filesystem://"\n'
        'app.conf.broker_transport_options = {"data_folder_in": "in", "data_folder_out": "in", "control_folder": "control",\n'
        '    "polling_interval": 0.05}\n'
        "app.conf.worker_hijack_root_logger = False\n"
    )
    (folder / "send.py").write_text(
        'from settings import place\n\nfor n in range(6):\n    place.delay(f"o-{n // 2}")\n'
    )
    environment = {"MAKEGOOD_STORE": postgres.url}
    options = (
        "--pool",
        "prefork",
        "--concurrency",
        "2",
        "--loglevel",
        "info",
        "--without-gossip",
        "--without-mingle",
    )
    with serving(folder, "send", **environment) as sender:
        assert sender.process.wait(120) == 0
    with serving(folder, "celery", "-A", "settings", "worker", *options, **environment) as server:
        matches = server.heard(r"(?:(succeeded)|(raised unexpected): IntegrityError)", 6)
        server.kill()
        assert len([match for match in matches if match[1]]) == 3
    assert postgres.counts() == (3, 3, 3)
