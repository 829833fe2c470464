"""Notices to a broker that dies, refuses and loses its queue, on the real server: an alert each time, and all go when it is back."""

from contextlib import suppress
from pathlib import Path

import makegood as mg
from makegood.errors import DeliveryError
from makegood.messaging.receivers import PROBE
from makegood.model.messages import Act
from makegood.store.protocol import Store
from tests.actors.test_receivers import Sends, submit, texts
from tests.brokers.reading import PATIENCE, fresh_place, until_durable
from tests.brokers.rig import Rig
from tests.conformance.builders import scheduler
from tests.waiting import until

TASKS = range(1, 21)


async def probed(sends: Sends, times: int) -> None:
    """Let the notifier ask the broker so often."""
    for _ in range(times):
        sends.clock.forward(1.2 * PROBE)
        await sends.turns()


async def all_sent(sends: Sends, store: Store) -> None:
    """Wait until nothing is to be sent; a broker may be slow while it starts."""

    async def is_over() -> bool:
        if listeners := await store.notices.listeners():
            await probed(sends, 1)
        return not listeners

    await until(is_over, "all notices to be sent", PATIENCE)


async def test_what_waits_for_a_broker_that_was_down_goes_when_it_is_back(rig: Rig, tmp_path: Path) -> None:
    """Each notice waits for an hour; that the broker is back sends it."""
    place = (await rig.declare(fresh_place())).place
    async with mg.Client(f"sqlite:///{tmp_path}/shop.db", migrate=True) as client:
        store = client.store
        sends = Sends(store, await scheduler(store), rig.target)
        try:
            await until_durable(rig)
            rig.kill()
            await submit(store, TASKS, f"{rig.kind}:main/{place}")
            await sends.turns()
            assert {view.tries for view in await store.notices.listeners()} == {1}
            await probed(sends, 3)
            (text,) = (await texts(store)).values()
            assert rig.has_proxy or "may have arrived" not in text
            assert not any(secret in text for secret in rig.secrets)
            (info,) = sends.receivers.infos()
            assert info.away is not None
            rig.start()
            if not rig.keeps_over_restart:
                await rig.declare(place)

            await all_sent(sends, store)
            assert await texts(store) == {}
            assert sends.receivers.infos()[0].away is None
        finally:
            await sends.notifier.delivery.poster.close()
    assert len({item.body for item in await rig.read(place)}) == len(TASKS)


async def test_lost_rights_and_a_deleted_place_raise_an_alert_at_once(rig: Rig, tmp_path: Path) -> None:
    place = (await rig.declare(fresh_place())).place
    address = f"{rig.kind}:main/{place}"
    async with mg.Client(f"sqlite:///{tmp_path}/shop.db", migrate=True) as client:
        store = client.store
        sends = Sends(store, await scheduler(store), rig.target)
        try:
            await submit(store, [1], address)
            await sends.turns()
            await all_sent(sends, store)
            if rig.checks_rights:
                await rig.revoke()
                try:
                    with suppress(DeliveryError, OSError):
                        await rig.disconnect(place)
                    await submit(store, [2], address)
                    await sends.turns()

                    async def is_known() -> bool:
                        """At once, but for a notice that was sent just when the connection broke."""
                        if not await texts(store):
                            await probed(sends, 1)
                        return list(await texts(store)) == [f"{rig.kind}:main"]

                    await until(is_known, "the alert", PATIENCE)
                finally:
                    await rig.grant()

                async def is_back() -> bool:
                    await probed(sends, 1)
                    return not await texts(store)

                await until(is_back, "the end of the alert", PATIENCE)
            await submit(store, [3], f"{address}-missing")
            await sends.turns()
            assert list(await texts(store)) == [f"{address}-missing"]
            await rig.declare(f"{place}-missing")
            assert await store.notices.retry_notices(Act("a")) == [3]
            await sends.turns()
            assert await texts(store) == {}
        finally:
            await sends.notifier.delivery.poster.close()
