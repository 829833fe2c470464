"""The pages on submitting by message and on hearing back do what they say, with the processes that they name."""

import asyncio
import contextlib
import http.client
import importlib
import json
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import sqlalchemy as sa
import standardwebhooks
from sqlalchemy.ext.asyncio import create_async_engine

import makegood as mg
from makegood.store.views import Filter
from proofs.private_server import PrivateServer
from tests.doors.conftest import Shop
from tests.submission.application_servers import ask, serving
from tests.submission.connections import migrated
from tests.waiting import moment

DOCS = Path(__file__).resolve().parents[2] / "docs/build"
BLOCK = re.compile(r"^```python\n# (\S+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TYPED = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
SECRET = "whsec_bWFrZWdvb2QncyBzZWNyZXRtYWtlZ29v"
QUICK = {"MAKEGOOD_SUPERVISE_EVERY": "500ms", "MAKEGOOD_LEASE": "12s", "MAKEGOOD_LATE_AFTER": "300ms", "MAKEGOOD_HEARTBEAT": "200ms",
    "MAKEGOOD_DEAD_AFTER": "10m"}  # fmt: skip


def write(page: str, folder: Path) -> list[str]:
    """Write a page's files into a folder; returns the lines of its shell blocks."""
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    assert len(blocks) == text.count("```python"), "a block of Python has no file, and is not run"
    for name, block in blocks:
        (folder / name).write_text(block, encoding="utf-8")
    return [line for block in TYPED.findall(text) for line in block.splitlines()]


Load = Callable[[str], ModuleType]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Import one of the page's files."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if (tmp_path / f"{name}.py").exists():
            del sys.modules[name]


@pytest.fixture
def new_shop(tmp_path: Path) -> Iterator[Shop]:
    """A folder with a store, in which commands are typed."""
    shop = Shop(tmp_path)
    shop.done("store", "migrate")
    yield shop
    shop.close()


def until(condition: Callable[[], object]) -> None:
    """Ask until it holds, for two minutes at most."""
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "it did not come to that"


def typed(shop: Shop, line: str) -> str:
    """Type a line of a page as a shell would; returns what it says."""
    command = re.sub(r"^[A-Z]+=\$\((.*)\)$", r"\1", line)
    words = shlex.split(command, comments=True)
    assert words[0] == "makegood", line
    return shop.done(*words[1:])


def piped(shop: Shop, line: str) -> None:
    """Type a line that hands what a command says to SQLite's shell; where that is not installed, do what it does."""
    first, second = line.split(" | ")
    shell, file = shlex.split(second)
    assert shell == "sqlite3"
    if shutil.which(shell):
        subprocess.run([shell, file], cwd=shop.folder, input=typed(shop, first), text=True, check=True)
    else:
        with contextlib.closing(sqlite3.connect(shop.folder / file)) as database:
            database.executescript(typed(shop, first))


def ran(shop: Shop, line: str) -> None:
    """Type a line that runs one of the page's files; it must succeed."""
    python, file = shlex.split(line)
    assert python == "python"
    process = subprocess.run(
        [sys.executable, file], cwd=shop.folder, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr


def test_orders_that_come_by_message_and_from_another_database(
    tmp_path: Path, load: Load, request: pytest.FixtureRequest
) -> None:
    """Everything on the page, and nothing else makes its tables: sent in three ways, one dead letter replayed, one dropped, one
    carried from an outbox.
    """
    new_shop = Shop(tmp_path, f"sqlite:///{tmp_path / 'makegood.db'}")
    request.addfinalizer(new_shop.close)
    migrate, tables, serve, send, *operate, outbox, on_postgres, buy, carry = write(
        "submit-by-message.md", new_shop.folder
    )
    typed(new_shop, migrate)
    ran(new_shop, tables)
    piped(new_shop, outbox)
    sql, _, shell = on_postgres.partition(" | ")
    assert "generated always as identity" in typed(new_shop, sql)
    assert shlex.split(shell) == ["psql", shlex.split(sql)[3]]
    for line in (serve, carry):
        words = shlex.split(line, comments=True)
        assert words[:3] == ["makegood", "inbox", "orders:shop"]
        new_shop.serve(*words[1:])
    typed(new_shop, send)
    for id_ in ("o-13", "o-14"):
        typed(
            new_shop,
            f"""makegood queue send orders '{{"id": "{id_}", "sku": "lamp", "cents": 0}}' --id {id_}""",
        )
    ran(new_shop, buy)

    async def press_twice() -> list[bool]:
        async with mg.Client(new_shop.url) as client:
            return [await load("front").order(client, "w-1", "chair", 5) for _ in range(2)]

    assert asyncio.run(press_twice()) == [True, False]
    until(lambda: {task["key"] for task in new_shop.json("task", "list")} == {"o-1", "w-1", "p-1"})
    until(lambda: not new_shop.json("queue", "list", "orders"))
    outputs = [typed(new_shop, line) for line in operate]
    assert outputs[0].startswith("QUEUE")
    assert "ValueError: 0 cents" in outputs[1]
    assert outputs[2:] == ["o-13 will be sent again\n", "o-14 dropped\n"]
    rows = sqlite3.connect(new_shop.folder / "makegood.db")
    assert rows.execute("select id, sku from orders order by id").fetchall() == [
        ("o-1", "lamp"),
        ("p-1", "desk"),
        ("w-1", "chair"),
    ]
    rows.close()
    tasks = {task["key"]: new_shop.json("task", "show", task["id"]) for task in new_shop.json("task", "list")}
    assert {key: task["reply_to"] for key, task in tasks.items()} == {
        "o-1": None,
        "w-1": "queue:web-7",
        "p-1": "queue:web-7",
    }


def test_a_task_is_told_to_a_queue_and_to_a_webhook(new_shop: Shop) -> None:
    """The commands of the page, and its receiver under uvicorn, with the standard's own library; a forged event is refused."""
    submit, receive, *notices = write("get-notified-of-task-states.md", new_shop.folder)
    with serving(new_shop.folder, "uvicorn", "hooks:app", "--port", "0", HOOK_SECRET=SECRET) as hooks:
        port = hooks.heard(r"running on http://127.0.0.1:(\d+)")[0][1]
        new_shop.serve(
            "run", "shop:shop", MAKEGOOD_WEBHOOK_HOSTS="127.0.0.1 127.0.0.0/8", MAKEGOOD_WEBHOOK_SECRET=SECRET
        )
        task = typed(new_shop, submit).strip()
        events = [json.loads(line.partition("  ")[2]) for line in typed(new_shop, receive).splitlines()]
        assert [(e["data"]["sequence"], e["data"]["state"]) for e in events] == [
            (1, "received"), (2, "processing"), (3, "processed")
        ]  # fmt: skip
        page = re.search(
            r"^```json\n(.*?)^```",
            (DOCS / "get-notified-of-task-states.md").read_text(),
            re.MULTILINE | re.DOTALL,
        )
        assert page is not None
        assert set(json.loads(page[1])) == set(events[-1]["data"])
        assert events[-1]["data"]["task"] == task
        url = f"http://127.0.0.1:{port}/hooks/orders"
        poor = new_shop.call(
            "task", "submit", "shop:place_order", "poor-1", "--reply-to", url, "--wait", "--json"
        )
        assert poor.exit_code == 5, poor.output
        until(lambda: latest(port) == {json.loads(poor.stdout)["id"]: [4, "undone"]})
        assert forged(port) == 401
        until(lambda: not new_shop.json("notices", "list"))
        for line in notices:
            assert typed(new_shop, line) == ""


def talk(
    port: str, method: str, path: str, body: str = "", heads: dict[str, str] | None = None
) -> tuple[int, bytes]:
    """Send a request to the receiver; returns what it answers."""
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=120)
    try:
        connection.request(method, path, body, heads or {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def latest(port: str) -> Any:
    """Return what the receiver was told."""
    return json.loads(talk(port, "GET", "/latest")[1])


def forged(port: str) -> int:
    """Post an event under another secret; returns the status."""
    body, now = '{"data": {}}', datetime.now(UTC)
    signature = standardwebhooks.Webhook("whsec_b3RoZXI=").sign("m-1", now, body)
    heads = {
        "webhook-id": "m-1",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": signature,
    }
    return talk(port, "POST", "/hooks/orders", body, heads)[0]


def test_a_ledger_counts_each_notice_once(
    tmp_path: Path, load: Load, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page's reader: what fails in its transaction is not acknowledged and comes once more, what another reader has is not
    counted, and a notice that was dropped is missed.
    """
    write("get-notified-of-task-states.md", tmp_path)
    ledger, place_order = load("ledger"), load("shop").place_order
    file = tmp_path / "makegood.db"
    with mg.SyncNode(load("shop").shop, f"sqlite:///{file}") as node:
        client = node.client
        task = client.submit(place_order, "o-1", reply_to="queue:ledger")
        assert task.result(timeout="60s") == "paid o-1"
        until(lambda: [view.waiting for view in client.queues()] == [3])
        connection = sqlite3.connect(file)
        connection.executescript(ledger.TABLES)
        queue, brief = client.queue("ledger", lease="1h"), client.queue("ledger", lease="10ms")
        (first,) = queue.receive()
        with monkeypatch.context() as patch:
            patch.setattr(ledger, "HEARD", "insert into nowhere values (?, ?)")
            with pytest.raises(sqlite3.OperationalError):
                ledger.count(queue, connection, first)
        queue.give_back(first)
        (stale,) = brief.receive()
        until(lambda: brief.receive(timeout=0))
        with pytest.raises(LookupError, match="another reader has"):
            ledger.count(brief, connection, stale)
        assert connection.execute("select * from tally").fetchall() == []
        until(
            lambda: (
                (messages := queue.receive(timeout=0)) and ledger.count(queue, connection, messages[0]) == 0
            )
        )
        second = client.messages("ledger")[0].message
        client.drop_messages("ledger", [second.id], waiting=True)

        class DoneError(Exception):
            """What ends the loop."""

        def told(text: str) -> None:
            print(text)
            raise DoneError

        monkeypatch.setattr(ledger, "print", told, raising=False)
        with pytest.raises(DoneError):
            ledger.listen(client, str(file))
        assert client.messages("ledger") == []
        states = connection.execute("select * from tally order by state").fetchall()
        connection.close()
    assert states == [("processed", 1), ("received", 1)]
    assert capsys.readouterr().out == "1 notices missed of a task that is processed\n"


def test_a_shop_learns_every_outcome_while_its_processes_are_killed(
    tmp_path: Path, postgres_url: str, load: Load
) -> None:
    """The page's FastAPI shop on PostgreSQL: its orders and their tasks are one, and each order's end is known in the end.

    A process with every role, perhaps the one that leads, and the shop itself are killed while orders come in.
    """
    write("get-notified-of-task-states.md", tmp_path)
    place = tmp_path / "web.sock"
    shop = {
        "MAKEGOOD_STORE": postgres_url,
        "SHOP": postgres_url.replace("postgresql://", "postgresql+asyncpg://"),
        "QUEUE": "web-e",
    }
    new_shop = Shop(tmp_path, postgres_url)
    tables = sa.create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        with tables.begin() as database:
            database.execute(sa.text("drop table if exists orders"))
            database.execute(
                sa.text(
                    "create table orders (id text primary key, state text not null, sequence int not null)"
                )
            )
        nodes = [new_shop.serve("run", "shop:shop", **QUICK) for _ in range(2)]
        names = [f"{'poor' if n % 5 == 0 else 'good'}-{n}" for n in range(30)]
        with serving(tmp_path, "uvicorn", "web:app", "--uds", str(place), **shop) as first:
            first.heard("running on")
            for n, order in enumerate(names[:20]):
                assert ask(place, "POST", f"/orders/{order}")[0] == 200
                if n == 10:
                    nodes[0].kill()
            assert ask(place, "POST", f"/orders/{names[0]}")[0] == 500, "placed twice"
            first.kill()
        place.unlink()
        with serving(tmp_path, "uvicorn", "web:app", "--uds", str(place), **shop) as second:
            second.heard("running on")
            for order in names[20:]:
                assert ask(place, "POST", f"/orders/{order}")[0] == 200
            states = {order: "undone" if order[0] == "p" else "processed" for order in names}
            until(lambda: ask(place, "GET", "/orders")[1] == states)
            with mg.SyncClient(postgres_url) as client:
                tasks = [task for task in client.find(Filter(limit=1000)) if task.key in states]
                assert {str(task.key): task.state for task in tasks} == states
                assert len(tasks) == len(names)
                # What a shop had noted when it was killed, and not yet acknowledged, comes once more: to a shop that
                # listens, and not before the lease of the killed one has ended.
                until(lambda: client.messages("web-e") == [])
                assert client.messages("web-e", dead=True) == []
            assert ask(place, "GET", "/orders")[1] == states, (
                "an older notice changed what a newer one had said"
            )
    finally:
        new_shop.close()
        with tables.begin() as database:
            database.execute(sa.text("drop table if exists orders"))
        tables.dispose()


def test_the_listener_outlives_an_outage_of_the_database(
    tmp_path: Path, load: Load, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The page's own loop: the server stops while a state is noted, and comes back; the state is noted then, nothing is lost."""
    write("get-notified-of-task-states.md", tmp_path)
    try:
        server = PrivateServer()
        server.start()
    except mg.MakegoodError as why:
        pytest.skip(f"postgres: {why}")
    monkeypatch.setenv("MAKEGOOD_STORE", server.url)
    monkeypatch.setenv("SHOP", server.url.replace("postgresql://", "postgresql+asyncpg://"))
    try:
        migrated(server.url)
        asyncio.run(heard_through_an_outage(load("web"), server, monkeypatch, caplog))
    finally:
        server.discard()
    assert "is not noted yet" in caplog.text


async def heard_through_an_outage(
    web: ModuleType, server: PrivateServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Tell of two states, stop the server before the first is noted, start it once that is to be given back, and wait for both."""
    sequences: list[int] = []
    note, attempts = web.note, 0

    async def noting(data: dict[str, Any]) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            await asyncio.to_thread(server.stop, "immediate")
        await note(data)
        sequences.append(data["sequence"])

    monkeypatch.setattr(web, "note", noting)
    engine = create_async_engine(os.environ["SHOP"])
    async with engine.begin() as database:
        await database.run_sync(web.Base.metadata.create_all)
        await database.execute(
            sa.text("insert into orders (id, state, sequence) values ('o-1', 'placed', 0)")
        )
    await engine.dispose()
    async with web.lifespan(web.app):
        for n, state in ((1, "received"), (2, "processed")):
            await web.client.send("web-1", {"data": {"key": "o-1", "sequence": n, "state": state}})
        async with asyncio.timeout(60):
            while "messages of queue web-1 wait to be settled" not in caplog.text:  # a log rings nobody
                await moment()
            await asyncio.to_thread(server.start)
            while sorted(sequences) != [1, 2] or await web.client.messages("web-1"):  # nor this
                await moment()
        assert await web.orders() == {"o-1": "processed"}
        await web.session.kw["bind"].dispose()
