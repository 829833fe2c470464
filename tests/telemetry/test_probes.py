"""Probes tell what is so: not ready until started, while draining, while the store is away; not alive only when a role has died."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as strictly_read

import makegood as mg
from makegood.base.host_port import host_and_port
from makegood.errors import StoreUnavailableError
from makegood.node.node import Node
from makegood.options import Options
from makegood.scheduler.scheduler import Scheduler
from makegood.store.protocol import Store
from makegood.store.views import TaskFigures
from makegood.telemetry import Telemetry
from makegood.telemetry.catalogue import METRICS
from makegood.telemetry.http_server import MOST_AT_ONCE, MOST_HEAD, Answer, Page, Server
from makegood.telemetry.prometheus import Gauges, prometheus
from tests.clocks import HandClock
from tests.conformance.worlds import eventually
from tests.connection_flood import flooding, opened
from tests.telemetry.conftest import QUICK, Numbers, asked, watched
from tests.waiting import moment
from tests.waiting import until as until_so

BEATING = Options(
    heartbeat="10ms", dead_after="1h", poll_every=None, leaderless_after=None, alerts_every=None, drain="20s"
)


async def states(telemetry: Telemetry) -> dict[str, int]:
    """Return the status of every probe."""
    return {name: (await asked(telemetry.address, f"/{name}"))[0] for name in ("livez", "readyz", "startupz")}


async def until(telemetry: Telemetry, name: str, status: int) -> str:
    """Wait until a probe answers so; return what it says."""
    async with asyncio.timeout(60):
        while True:
            code, _, text = await asked(telemetry.address, f"/{name}")
            if code == status:
                return text
            await moment()


async def test_a_node_is_alive_before_it_is_ready_and_ready_once_it_has_started(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the store takes its time the process is up, and neither started nor ready."""
    go, register = asyncio.Event(), store.nodes.register

    async def slow(info: Any) -> int:
        await go.wait()
        return await register(info)

    monkeypatch.setattr(store.nodes, "register", slow)
    telemetry = Telemetry(listen="127.0.0.1:0")
    assert telemetry.address == ""
    node = Node(None, store, roles=("scheduler",), options=QUICK, telemetry=telemetry)
    starting = asyncio.create_task(node.start())
    await eventually(lambda: telemetry.address, "an address")
    assert await states(telemetry) == {"livez": 200, "readyz": 503, "startupz": 503}
    assert (await asked(telemetry.address, "/readyz"))[2] == "not ready: starting\n"
    go.set()
    await starting
    assert await states(telemetry) == {"livez": 200, "readyz": 200, "startupz": 200}
    address = telemetry.address
    await node.stop()
    with pytest.raises(OSError, match=r"refused|Connect call failed"):
        await asked(address, "/livez")


async def test_a_node_that_drains_is_alive_and_not_ready(store: Store) -> None:
    app, start, go = mg.App("shop"), asyncio.Event(), asyncio.Event()

    @app.agent("desk").action(complete_within="20s", undo=mg.NOTHING)
    async def work(x: int) -> int:
        start.set()
        await go.wait()
        return x

    @app.workflow()
    def do(x: int) -> int:
        return work(x)

    telemetry = Telemetry(listen="127.0.0.1:0")
    node = Node(app, store, options=BEATING, telemetry=telemetry)
    await node.start()
    await node.client.submit(do, 1)
    await start.wait()
    stopping = asyncio.create_task(node.stop())
    assert await until(telemetry, "readyz", 503) == "not ready: draining\n"
    assert await states(telemetry) == {"livez": 200, "readyz": 503, "startupz": 200}
    go.set()
    await stopping


async def test_a_node_whose_store_is_away_is_alive_and_not_ready_until_it_is_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One heartbeat that failed is enough, and one that came through; metrics that need the store are left out meanwhile."""

    async def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailableError("the cable is cut")

    async with watched(None, store, roles=("supervisor",), options=BEATING) as (node, telemetry):
        await until(telemetry, "readyz", 200)
        nodes = node.store.nodes
        heartbeat = nodes.heartbeat
        monkeypatch.setattr(nodes, "heartbeat", away)
        monkeypatch.setattr(store.admin, "figures", away)
        assert await until(telemetry, "readyz", 503) == "not ready: the store does not answer\n"
        assert (await states(telemetry))["livez"] == 200
        status, _, text = await asked(telemetry.address, "/metrics")
        assert (status, Numbers(text)("makegood_alerts")) == (200, None)
        monkeypatch.setattr(nodes, "heartbeat", heartbeat)
        await until(telemetry, "readyz", 200)


async def test_many_sleepers_are_counted_once_a_minute(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """And anew by whoever takes the lead."""
    clock, looks = HandClock(), []
    leads, count = [True], {("shop", "do"): 20_000}

    async def figures(
        sleepers: Mapping[tuple[str, str], int] | None = None, *, calendar: float = 0.0
    ) -> TaskFigures:
        assert calendar == clock.wall()
        looks.append(sleepers)
        return TaskFigures({}, {}, {}, count if sleepers is None else sleepers)

    gauges = Gauges(clock)
    node = Node(None, store, roles=("supervisor",), options=QUICK)
    monkeypatch.setattr(node, "leads", lambda: leads[-1])
    monkeypatch.setattr(store.admin, "figures", figures)
    gauges.begin(node)
    for _ in range(40):
        await gauges.refresh()
        clock.forward(2.0)
    assert [n for n, sleepers in enumerate(looks) if sleepers is None] == [0, 30]
    for now in (False, True):
        leads.append(now)
        await gauges.refresh()
    assert looks[40:] == [None]


async def test_a_store_that_does_not_answer_at_all_is_found_out_when_a_life_has_passed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: Any) -> Any:
        await asyncio.Event().wait()

    short = Options(
        heartbeat="10ms", dead_after="30ms", poll_every=None, leaderless_after=None, alerts_every=None
    )
    async with watched(None, store, roles=("scheduler",), options=short) as (node, telemetry):
        monkeypatch.setattr(node.store.nodes, "heartbeat", never)
        await until(telemetry, "readyz", 503)


async def test_livez_says_no_when_a_role_has_died(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for long: the node stops then. Whoever asks in between is told."""
    telemetry = Telemetry(listen="127.0.0.1:0")
    node = Node(None, store, roles=("scheduler",), options=BEATING, telemetry=telemetry)

    async def dies(_: Scheduler) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Scheduler, "run", dies)
    await node.start()
    assert "scheduler has ended" in await until(telemetry, "livez", 503)
    assert "scheduler has ended" in await until(telemetry, "readyz", 503)
    await node.stop()


# Listening


@pytest.mark.parametrize(
    "listen",
    [
        "127.0.0.1",
        ":9000",
        "::1:9000",
        "h:99999",
        "h:port",
        "h:",
        "a b:1",
        "http://h:1",
        "",
        "h:-1",
        "h:٣",
        pytest.param("h:" + "9" * 5000, id="more digits than int takes"),
    ],
)
def test_an_address_that_cannot_be_meant_is_refused_with_what_to_write(listen: str) -> None:
    with pytest.raises(mg.ConfigError, match=r"listen=.*write HOST:PORT, such as 127\.0\.0\.1:9464"):
        Telemetry(listen=listen)
    assert host_and_port("[::1]:80") == ("::1", 80)


async def test_a_port_that_is_taken_is_refused_before_the_store_is_opened(store: Store) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listen = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(mg.ConfigError, match=rf"listen='{listen}'.*in use.*another process"):
            async with (
                watched(None, store, roles=("scheduler",)) as _,
                Node(
                    None,
                    "sqlite:////no/such/folder/x.db",
                    roles=("scheduler",),
                    telemetry=Telemetry(listen=listen),
                ),
            ):
                pass


async def test_one_telemetry_watches_one_node(store: Store) -> None:
    async with watched(None, store, roles=("scheduler",)) as (_, telemetry):
        with pytest.raises(mg.ConfigError, match="make one for each"):
            await Node(None, store, roles=("scheduler",), telemetry=telemetry).start()


async def closed(writer: asyncio.StreamWriter) -> None:
    """Close a connection."""
    writer.close()
    await writer.wait_closed()


async def test_what_is_no_request_for_a_page_gets_an_answer_too() -> None:
    """HEAD has no body; other methods, other paths, other protocols, endless heads and half requests end at once."""

    async def answer(path: str, headers: Any) -> Page:
        return Page(200, f"{path} {headers.get('accept')}\n".encode())

    server = Server("127.0.0.1:0", answer)
    await server.begin()
    where = server.address
    assert (await asked(where, "/x?y=1", "Accept: text/plain"))[::2] == (200, "/x text/plain\n")
    status, headers, text = await asked(where, "/x", method="HEAD")
    assert (status, headers["content-length"], text) == (200, "8", "")
    assert (await asked(where, "/x", method="POST"))[0] == 405
    assert (await asked(where, "/x y"))[0] == 400
    assert (await asked(where, "/", f"X: {'x' * MOST_HEAD}"))[0] == 431
    reader, writer = await asyncio.open_connection("127.0.0.1", int(where.rpartition(":")[2]))
    writer.write(b"GET / HT")
    writer.write_eof()
    assert await reader.read() == b""
    await closed(writer)
    await server.end()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing end because this machine is slow."""
    monkeypatch.setattr("makegood.telemetry.http_server.PATIENCE", 60.0)


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[Server]:
    """Serve pages."""
    server = Server("127.0.0.1:0", answer)
    await server.begin()
    try:
        yield server
    finally:
        await server.end()


async def ok(path: str, headers: Any) -> Page:
    """Answer at once."""
    return Page(200, b"ok\n")


def cut_off(connection: socket.socket) -> bool:
    """Return whether the other end is closed."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
    except BlockingIOError:
        return False


def descriptors() -> int:
    """Return how many files this process has open."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("says", [b"", b"G", b"GET /livez HTTP/1.1\r\nX: "])
async def test_connections_that_say_nothing_make_room_for_one_that_asks(says: bytes) -> None:
    """The oldest of them goes, at once, and its file is closed: no more are open than are allowed."""
    async with serving(ok) as server:
        before = descriptors()
        strangers = [opened(server.address, says) for _ in range(2 * MOST_AT_ONCE)]
        for _ in range(5):
            assert (await asked(server.address, "/livez"))[0] == 200
        await eventually(
            lambda: descriptors() <= before + len(strangers) + MOST_AT_ONCE, "the server's ends are closed"
        )
        assert len(server.connections) <= MOST_AT_ONCE
        assert cut_off(strangers[0])
        assert not cut_off(strangers[-1])
        for stranger in strangers:
            stranger.close()


@pytest.mark.parametrize("says", [b"", b"G"])
async def test_under_a_flood_of_silent_connections_every_probe_is_answered(says: bytes) -> None:
    """As fast as a thread can open them, and each is held: 40 of 40."""
    async with serving(ok) as server:
        run_in_executor = asyncio.get_running_loop().run_in_executor
        with flooding(server.address, says) as under_way:
            assert await run_in_executor(None, under_way.wait, 60)
            assert [(await asked(server.address, "/livez"))[0] for _ in range(40)] == [200] * 40
            assert len(server.connections) <= MOST_AT_ONCE
        assert (await asked(server.address, "/livez"))[0] == 200, "the last: nothing is on its way at the end"


@pytest.mark.usefixtures("patient")
async def test_pages_that_take_long_or_are_not_read_hold_up_no_probe() -> None:
    """The others are told that there are too many of them."""
    go = asyncio.Event()

    async def answer(path: str, headers: Any) -> Page:
        if path == "/metrics":
            await go.wait()
        return Page(200, b"x" * (5_000_000 if path == "/big" else 1))

    async with serving(answer) as server:
        strangers = [
            opened(server.address, f"GET /{path} HTTP/1.1\r\n\r\n".encode())
            for path in ["metrics", "big"] * MOST_AT_ONCE
        ]
        for _ in range(20):
            assert (await asked(server.address, "/livez"))[0] == 200
        assert (await asked(server.address, "/metrics"))[0] == 503
        go.set()
        for stranger in strangers:
            stranger.close()

        async def served() -> bool:
            return (await asked(server.address, "/metrics"))[0] == 200

        await until_so(served)


async def test_a_page_that_fails_is_answered_and_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(path: str, headers: Any) -> Page:
        raise ZeroDivisionError("a defect")

    async with serving(broken) as server:
        for _ in range(20):
            assert (await asked(server.address, "/metrics"))[0] == 500
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "ZeroDivisionError: a defect" in caplog.text


@pytest.mark.parametrize(
    "accept",
    [
        "application/openmetrics-text;version=a.b.c", "application/openmetrics-text; version=", f"application/openmetrics-text;version=9{'9' * 5000}",
        "text/plain; version=1.0.0; escaping=zzz", "application/openmetrics-text; version=1.0.0; escaping=", "text/plain;;;==;version", ";", ",,,",
        'application/openmetrics-text; version=1.0.0; escaping="', "\xff\xfe", "application/openmetrics-text;q=zzz",
    ],
)  # fmt: skip
async def test_a_form_that_cannot_be_meant_gets_the_usual_one(
    store: Store, accept: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with watched(None, store, roles=("scheduler",)) as (_, telemetry):
        caplog.clear()
        status, _, text = await asked(telemetry.address, "/metrics", f"Accept: {accept}")
    assert status == 200
    assert "makegood_" in text
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_probes_are_not_logged(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with watched(None, store, roles=("scheduler",)) as (_, telemetry):
            caplog.clear()
            await states(telemetry)
            assert not [r for r in caplog.records if r.name.startswith("makegood.telemetry")]


# Registries


async def test_a_program_with_its_own_page_has_the_metrics_there(store: Store) -> None:
    """In its registry while the node runs, beside its own; no port is opened."""
    registry = CollectorRegistry(auto_describe=True)
    telemetry = Telemetry(registry=registry)
    async with Node(None, store, roles=("scheduler", "supervisor"), options=QUICK, telemetry=telemetry):
        numbers = Numbers(generate_latest(registry).decode())
        assert numbers("makegood_leader", role="supervisor") is not None
        assert telemetry.address == ""
    assert generate_latest(registry) == b""


async def test_the_form_is_the_one_that_the_scraper_asks_for(store: Store) -> None:
    async with watched(None, store, roles=("scheduler",)) as (_, telemetry):
        _, plain, _ = await asked(telemetry.address, "/metrics")
        _, modern, text = await asked(
            telemetry.address, "/metrics", "Accept: application/openmetrics-text; version=1.0.0"
        )
    assert plain["content-type"].startswith("text/plain")
    assert modern["content-type"].startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")
    names = [family.name for family in strictly_read(text)]  # type: ignore[no-untyped-call]  # the library brings no types for it
    assert len(names) == len(set(names)) == len(METRICS)
    assert prometheus().__name__ == "prometheus_client"
    assert Gauges.__doc__
