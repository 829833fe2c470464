"""A proof whose actions, undos or probes ask for a real network fails, whatever wraps or catches the error; and what never answered is named."""

import pytest

from tests.simulation.test_plugin_interruptions import section
from tests.simulation.test_plugin_reports import run

pytest_plugins = ["pytester"]

TRIP = """
import asyncio, concurrent.futures, os, socket, subprocess, urllib.request
import aiohttp, anyio, anyio.to_thread, asyncpg, httpx2, requests

trips = mg.App("trips")
desk = trips.agent("desk")
ADDRESS = ("127.0.0.1", 9)
URL = "http://127.0.0.1:9/"

class Remote:
    bank = call = None

@desk.action(complete_within="5s", retry=mg.NEVER, recover=mg.Recover(threshold=1, wait="1s", extended="1s"))
async def book(order: str) -> str:
    return await Remote.bank.do(order, headers=mg.current_call().headers)

@book.undo
async def cancel(order: str, *, result: str | None) -> None:
    await Remote.bank.undo(result, headers=mg.current_call().headers)

async def by_streams():
    await asyncio.open_connection(*ADDRESS)

async def by_httpx():
    async with httpx2.AsyncClient() as client:
        await client.get(URL)

async def by_anyio():
    await anyio.connect_tcp(*ADDRESS)

async def by_thread_of_anyio():
    await anyio.to_thread.run_sync(socket.create_connection, ADDRESS)

pool = concurrent.futures.ThreadPoolExecutor(1)

async def by_own_pool():
    await asyncio.to_thread(lambda: pool.submit(socket.create_connection, ADDRESS).result())

async def by_requests():
    await asyncio.to_thread(requests.get, URL)

async def by_urllib():
    urllib.request.urlopen(URL)

async def by_subprocess():
    subprocess.run(["true"], check=True)

async def by_subprocess_in_a_thread():
    await asyncio.to_thread(subprocess.run, ["true"])

async def by_shell():
    os.system("true")

async def by_asyncio_subprocess():
    await asyncio.create_subprocess_exec("true")

async def by_aiohttp():
    async with aiohttp.ClientSession() as session, session.get(URL):
        pass

async def by_asyncpg():
    await asyncpg.connect("postgresql://127.0.0.1:9/shop")

async def in_a_group():
    async with asyncio.TaskGroup() as group:
        group.create_task(by_streams())

async def raised_from():
    try:
        await by_streams()
    except mg.ConfigError as refused:
        raise OSError("the desk is away") from refused

@book.probe
async def find(order: str) -> mg.Happened[str] | mg.NotHappened:
    {probe}

@trips.workflow()
def trip(order: str) -> str:
    return book(order)

@pytest.mark.parametrize("call", {calls})
@crash_everywhere(kinds=("kill",), at_most=12)
async def test_trip(world, call):
    Remote.bank, Remote.call = world.service("bank"), globals().get(call)
    task = await world.submit(trip, "o-1")
    await world.run_to_rest()
    task.assert_whole()
"""
RAISES = """await Remote.call()
    return mg.NOT_HAPPENED"""
SWALLOWS = """try:
        await Remote.call()
    except Exception:
        pass
    return mg.NOT_HAPPENED"""
CALLS = {
    "by_streams": "loop.create_connection",
    "by_httpx": "loop.create_connection",
    "by_anyio": "loop.create_connection",
    "by_thread_of_anyio": "Thread.start",
    "by_own_pool": "socket.getaddrinfo",
    "by_requests": "socket.getaddrinfo",
    "by_urllib": "socket.getaddrinfo",
    "by_subprocess": "subprocess.Popen",
    "by_subprocess_in_a_thread": "subprocess.Popen",
    "by_shell": "os.system",
    "by_asyncio_subprocess": "loop.subprocess_exec",
    "by_aiohttp": "loop.sock_connect",
    "by_asyncpg": "loop.create_connection",
    "in_a_group": "loop.create_connection",
    "raised_from": "loop.create_connection",
}


def trips(probe: str, *calls: str) -> str:
    """Return a user's test of a trip with this probe, once for each call that the probe may make."""
    return TRIP.replace("{probe}", probe).replace("{calls}", repr(calls))


@pytest.mark.parametrize("probe", [RAISES, SWALLOWS], ids=["raised", "swallowed"])
def test_a_probe_that_asks_for_a_real_network_fails_the_test(pytester: pytest.Pytester, probe: str) -> None:
    """It is recorded where it is refused: what becomes of the error on its way does not matter."""
    output = run(pytester, trips(probe, *CALLS))
    assert f"{len(CALLS)} failed" in output
    for call, function in CALLS.items():
        failure = section(output, f"test_trip[{call}]")
        message = f"your test said: NotSimulatedError: {function}() was called, and a simulated world has no"
        assert message in failure, call
        assert call == "by_own_pool" or "(step book)" in failure, call  # such a thread does not know the step


@pytest.mark.parametrize(
    ("probe", "hint"),
    [
        (
            "raise OSError('the desk is away')",
            "the probe of trips/desk/book answered in no world of these tests",
        ),
        ("return mg.NOT_HAPPENED", None),
    ],
)
def test_a_probe_that_never_answers_is_named_as_not_proved(
    pytester: pytest.Pytester, probe: str, hint: str | None
) -> None:
    output = run(pytester, trips(probe, "none"))
    assert "1 passed" in output
    assert (hint is None) == ("the probe of trips/desk/book" not in output)
    assert hint is None or hint in output
