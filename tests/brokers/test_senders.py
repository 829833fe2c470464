"""Every broker's sender, on the real server: confirmed before it returns, and an end to every wait."""

import asyncio
import gc
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from makegood.base.sizes import KIB, MIB
from makegood.brokers import OutgoingEvent, RefusedTargetError, Sender, open_sender
from makegood.errors import ConfigError, DeliveryError
from tests.brokers.reading import BEYOND, PATIENCE, fresh_place
from tests.brokers.rig import Received, Rig
from tests.waiting import until

TIMEOUT = 20.0
AT_ONCE = 8


def event(name: str, task: str = "task", body: bytes = b'{"n": 1}') -> OutgoingEvent:
    """Return an event to send."""
    return OutgoingEvent(id=name, task=task, body=body)


@asynccontextmanager
async def sending(rig: Rig) -> AsyncIterator[Sender]:
    """A sender to the rig's broker."""
    sender = open_sender(rig.target)
    try:
        yield sender
    finally:
        await sender.close()


async def arrives(sender: Sender, place: str, what: OutgoingEvent) -> None:
    """Send as the notifier does: again under its id, until that is confirmed."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await sender.send(place, what, 5.0)
            except RefusedTargetError:
                raise
            except DeliveryError:
                await asyncio.sleep(0.1)
            else:
                return


async def test_what_was_sent_is_there_with_its_id_and_type(rig: Rig) -> None:
    """At once when `send` has returned."""
    place = (await rig.declare(fresh_place())).place
    async with sending(rig) as sender:
        await sender.send(place, event("e1", body="größer".encode()), TIMEOUT)
        [messages] = await rig.read(place)
    assert messages.body == "größer".encode()
    if rig.takes_ids:
        assert messages.id == "e1"
    assert messages.content_type in (None, "application/cloudevents+json")


async def test_events_of_a_task_are_in_order_and_eight_are_under_way_at_once(rig: Rig) -> None:
    place = (await rig.declare(fresh_place())).place
    async with sending(rig) as sender:

        async def task(number: int) -> None:
            for n in range(10):
                await sender.send(
                    place, event(f"t{number}-{n}", f"t{number}", b"%d %d" % (number, n)), TIMEOUT
                )

        await asyncio.gather(*(task(number) for number in range(AT_ONCE)))
        messages = await rig.read(place)
    assert len(messages) == 10 * AT_ONCE
    for number in range(AT_ONCE):
        own = [item for item in messages if item.body.startswith(b"%d " % number)]
        assert sorted(item.body for item in own) == [b"%d %d" % (number, n) for n in range(10)]
        if rig.keeps_order:
            assert own == sorted(own, key=lambda item: item.body)
        keys = {item.key for item in own}
        assert keys in ({None}, {f"t{number}"})


async def test_a_missing_place_is_refused_for_good_and_holds_up_no_other(rig: Rig) -> None:
    place = (await rig.declare(fresh_place())).place
    async with sending(rig) as sender:
        good = [sender.send(place, event(f"g{n}"), TIMEOUT) for n in range(4)]
        bad = [sender.send(f"{place}-missing", event(f"b{n}"), TIMEOUT) for n in range(4)]
        outcomes = await asyncio.gather(*good, *bad, return_exceptions=True)
        assert outcomes[:4] == [None] * 4
        assert all(isinstance(outcome, RefusedTargetError) for outcome in outcomes[4:]), outcomes
        assert all(f"{place}-missing" in str(outcome) for outcome in outcomes[4:])
        assert len(await rig.read(place)) == 4


async def test_an_event_that_is_too_large_is_refused_for_good(rig: Rig) -> None:
    """And does not take another one's connection with it for long."""
    place = (await rig.declare(fresh_place())).place
    async with sending(rig) as sender:
        with pytest.raises(RefusedTargetError):
            await sender.send(place, event("large", body=b"x" * (rig.most_bytes + 1)), TIMEOUT)
        await arrives(sender, place, event("small"))
        assert [messages.body for messages in await rig.read(place)] == [b'{"n": 1}']


async def test_a_broken_connection_is_replaced(rig: Rig) -> None:
    place = (await rig.declare(fresh_place())).place
    async with sending(rig) as sender:
        await sender.send(place, event("e1"), TIMEOUT)
        await rig.disconnect(place)
        await arrives(sender, place, event("e2", body=b"second"))
        messages = await rig.read(place)
    assert messages[0].body == b'{"n": 1}'
    assert {item.body for item in messages[1:]} == {b"second"}


async def test_a_stopped_broker_is_not_waited_for_and_an_unknown_outcome_keeps_its_id(rig: Rig) -> None:
    place = (await rig.declare(fresh_place())).place
    async with sending(rig) as sender:
        await sender.send(place, event("e1"), TIMEOUT)
        await asyncio.to_thread(rig.stop)
        try:
            start = time.monotonic()
            outcomes = await asyncio.gather(
                *(sender.send(place, event(f"s{n}", body=b"s%d" % n), 1.0) for n in range(AT_ONCE)),
                return_exceptions=True,
            )
            assert time.monotonic() - start < 1.0 + BEYOND
            assert all(isinstance(outcome, DeliveryError) for outcome in outcomes), outcomes
            assert not any(isinstance(outcome, RefusedTargetError) for outcome in outcomes)
        finally:
            await asyncio.to_thread(rig.resume)
        for n in range(AT_ONCE):
            await arrives(sender, place, event(f"s{n}", body=b"s%d" % n))
        messages = await rig.read(place)
    ids = {item.body: set[str | None]() for item in messages}
    for item in messages:
        ids[item.body].add(item.id)
    assert set(ids) == {b'{"n": 1}', *(b"s%d" % n for n in range(AT_ONCE))}
    if rig.takes_ids:
        assert all(ids[b"s%d" % n] == {f"s{n}"} for n in range(AT_ONCE))


async def test_what_a_stopped_broker_does_not_take_is_not_kept_in_memory(rig: Rig) -> None:
    """Events of 32 MiB in all, tried in turn: a buffer without a limit would hold them."""
    place = (await rig.declare(fresh_place())).place
    size = min(rig.most_bytes, 256 * KIB)
    async with sending(rig) as sender:
        await sender.send(place, event("e1"), TIMEOUT)
        await asyncio.to_thread(rig.stop)
        tracemalloc.start()
        try:
            outcomes: list[object] = []
            for turn in range(32 * MIB // size // AT_ONCE):
                outcomes[:] = await asyncio.gather(
                    *(
                        sender.send(place, event(f"m{turn}-{n}", body=b"%c" % (65 + n) * size), 0.2)
                        for n in range(AT_ONCE)
                    ),
                    return_exceptions=True,
                )
                assert all(isinstance(outcome, DeliveryError) for outcome in outcomes), outcomes
            outcomes.clear()
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] < 12 * MIB
        finally:
            tracemalloc.stop()
            await asyncio.to_thread(rig.resume)
        await arrives(sender, place, event("last", body=b"last"))


async def test_an_absent_broker_is_an_error_in_time_and_is_found_again(rig: Rig) -> None:
    """Killed while events are sent, and started again."""
    place = (await rig.declare(fresh_place())).place
    async with sending(rig) as sender:
        await sender.send(place, event("e1", body=b"e1"), TIMEOUT)
        await asyncio.sleep(rig.durable_after)
        many = asyncio.gather(
            *(sender.send(place, event(f"k{n}", body=b"k%d" % n), TIMEOUT) for n in range(200)),
            return_exceptions=True,
        )
        await asyncio.sleep(0.01)
        await asyncio.to_thread(rig.kill)
        outcomes = await asyncio.wait_for(many, TIMEOUT + BEYOND)
        assert all(outcome is None or isinstance(outcome, DeliveryError) for outcome in outcomes), outcomes
        assert not any(isinstance(outcome, RefusedTargetError) for outcome in outcomes)
        start = time.monotonic()
        with pytest.raises(DeliveryError):
            await sender.send(place, event("away"), 2.0)
        assert time.monotonic() - start < 2.0 + BEYOND
        await asyncio.to_thread(rig.start)
        if not rig.keeps_over_restart:
            await rig.declare(place)
        await arrives(sender, place, event("e2", body=b"e2"))
        contents = {item.body for item in await rig.read(place)}
    assert b"e2" in contents
    if rig.keeps_over_restart:
        safe = {b"k%d" % n for n, outcome in enumerate(outcomes) if outcome is None}
        assert safe | {b"e1"} <= contents, "an event was confirmed and lost"


async def test_lost_rights_are_an_error_until_they_are_back(rig: Rig) -> None:
    if not rig.checks_rights:
        pytest.skip(f"{rig.kind}: this server lets everybody do all; only the real service shows it")
    place = (await rig.declare(fresh_place())).place
    async with sending(rig) as sender:
        await sender.send(place, event("e1"), TIMEOUT)
        await rig.revoke()
        try:
            await rig.disconnect(place)
            faults: list[DeliveryError] = []

            async def is_refused() -> bool:
                try:
                    await sender.send(place, event("e2"), TIMEOUT)
                except DeliveryError as fault:
                    faults.append(fault)
                return bool(faults)

            await until(is_refused, "the loss of its rights", PATIENCE)
            assert not isinstance(faults[0], RefusedTargetError)
            assert not any(secret in str(faults[0]) for secret in rig.secrets)
            with pytest.raises(ConfigError):
                await sender.check([place])
        finally:
            await rig.grant()
        await arrives(sender, place, event("e3"))


async def test_a_check_names_what_is_missing(rig: Rig) -> None:
    place = (await rig.declare(fresh_place())).place
    async with sending(rig) as sender:
        assert all(item.severity != "error" for item in await sender.check([place]))
        [error] = [
            item for item in await sender.check([place, f"{place}-missing"]) if item.severity == "error"
        ]
        assert f"{place}-missing" in error.what
        assert error.remedy
        messages: list[Received] = await rig.read(place)
        assert messages == [], "a check sends nothing to a place"


async def test_close_may_be_repeated(rig: Rig) -> None:
    sender = open_sender(rig.target)
    await sender.close()
    place = (await rig.declare(fresh_place())).place
    await sender.send(place, event("e1"), TIMEOUT)
    await sender.close()
    await sender.close()
