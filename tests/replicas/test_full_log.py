"""The disk under a PostgreSQL server's own log runs full: the server ends itself, and nothing acknowledged is lost."""

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import makegood as mg
from makegood.errors import ConfigError, StoreUnavailableError
from proofs.private_server import PrivateServer
from tests.replicas.load_and_audit import BRISK, Load, balanced, ended, gather
from tests.replicas.remote_service import Order, Service, shop
from tests.replicas.small_disks import small_disk, stuff
from tests.waiting import until


@pytest.fixture
def tight_disk() -> Iterator[tuple[PrivateServer, Path]]:
    """A server of its own, and the small disk on which its log lies."""
    try:
        server = PrivateServer()
    except ConfigError as missing:
        pytest.skip(f"postgres: {missing}")
    with server, small_disk("40m", server.data.stat()) as disk:
        server.stop()
        log = server.data / "pg_wal"
        subprocess.run(["cp", "--archive", f"{log}/.", str(disk)], check=True)
        shutil.rmtree(log)
        log.symlink_to(disk)
        server.start()
        yield server, disk
        server.stop()


def spill(server: PrivateServer, ballast: Path) -> None:
    """Fill the disk of a server's log, and let it begin one file of its log after another until it cannot."""
    stuff(ballast)
    for _ in range(20):
        try:
            server.run("select pg_logical_emit_message(true, '', 'x'), pg_switch_wal()", database="postgres")
        except (OSError, StoreUnavailableError):
            return
    pytest.fail("the server had room for its log all the time")


async def test_a_server_that_dies_of_a_full_disk_under_its_log_loses_nothing(
    tight_disk: tuple[PrivateServer, Path],
) -> None:
    """PostgreSQL ends itself when its log has no room, here under load. Callers are told of an outage; when there is room and the
    server is back, the same processes go on: what was acknowledged is there, what was refused is not, and all ends whole.
    """
    server, disk = tight_disk
    service = Service()
    orders = shop(service)

    def back() -> bool:
        try:
            server.start()
            return bool(server.run("select 1", database="postgres"))
        except (OSError, StoreUnavailableError):
            return False

    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(mg.Node(orders.app, server.url, options=BRISK))
        load = Load(await stack.enter_async_context(mg.Client(server.url)), orders, "load")
        going = await gather(load)
        await load.beyond(20)
        await asyncio.to_thread(spill, server, disk / "ballast")
        await until(lambda: asyncio.to_thread(lambda: not server.running), "the server to end")
        with pytest.raises(StoreUnavailableError, match="is PostgreSQL running there"):
            await node.client.submit(orders.place_order, Order("refused"), key="refused")
        (disk / "ballast").unlink()
        await until(lambda: asyncio.to_thread(back), "the server to be back")
        load.back.set()
        await load.beyond(10)
        load.stop()
        await asyncio.gather(*going)
        views = await ended(node.client)
        assert views.keys() == set(load.acknowledged)
        assert not views.keys() & {*load.unwritten, "refused"}
        await balanced(node.client, service, views)
