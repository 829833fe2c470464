"""Every broker's sender, on the real server: confirmed before it returns, and an end to every wait."""

import asyncio
import gc
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from makegood.base.sizes import KIB, MIB
from makegood.brokers import (
    MissingPlaceError,
    OutgoingEvent,
    Reader,
    RefusedTargetError,
    Sender,
    UnsentError,
    check,
    open_sender,
)
from makegood.brokers.kinds import Target
from makegood.errors import ConfigError, DeliveryError
from tests.brokers.reading import BEYOND, PATIENCE, checked, fresh_place, until_durable
from tests.brokers.rig import Received, Rig
from tests.waiting import until

TIMEOUT = 60.0
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
        assert all(isinstance(outcome, MissingPlaceError) for outcome in outcomes[4:]), outcomes
        assert all(f"{place}-missing" in str(outcome) for outcome in outcomes[4:])
        assert len(await rig.read(place)) == 4


async def test_an_event_that_is_too_large_is_refused_for_good(rig: Rig) -> None:
    """And does not take another one's connection with it for long."""
    place = (await rig.declare(fresh_place())).place
    async with sending(rig) as sender:
        with pytest.raises(RefusedTargetError):
            await sender.send(place, event("large", body=b"x" * (2 * rig.most_bytes)), TIMEOUT)
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
                *(sender.send(place, event(f"s{n}", body=b"s%d" % n), 5.0) for n in range(AT_ONCE)),
                return_exceptions=True,
            )
            assert time.monotonic() - start < 5.0 + BEYOND
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


async def test_what_is_said_to_be_unsent_by_a_stopped_broker_never_arrives(rig: Rig) -> None:
    """And what went out to it may have arrived: nobody says otherwise."""
    place = (await rig.declare(fresh_place())).place
    names = [b"u%d" % n for n in range(AT_ONCE)]
    async with sending(rig) as sender:
        await sender.send(place, event("e1", body=b"e1"), TIMEOUT)
        await asyncio.to_thread(rig.stop)
        try:
            outcomes = await asyncio.gather(
                *(sender.send(place, event(name.decode(), body=name), 5.0) for name in names),
                return_exceptions=True,
            )
            assert all(isinstance(outcome, DeliveryError) for outcome in outcomes), outcomes
            assert not all(isinstance(outcome, UnsentError) for outcome in outcomes), outcomes
        finally:
            await asyncio.to_thread(rig.resume)
        await arrives(sender, place, event("last", body=b"last"))
        contents = {item.body for item in await rig.read(place)}
    unsent = {name for name, outcome in zip(names, outcomes, strict=True) if isinstance(outcome, UnsentError)}
    assert b"last" in contents
    assert not contents & unsent


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
        await until_durable(rig)
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
            await sender.send(place, event("away", body=b"away"), 2.0)
        assert time.monotonic() - start < 2.0 + BEYOND
        tries = 0

        async def is_certain() -> bool:
            """Nothing listens there; a first event may still go out on what is left of each connection."""
            nonlocal tries
            tries += 1
            with pytest.raises(DeliveryError) as error:
                await sender.send(place, event(f"u{tries}", body=b"u%d" % tries), 2.0)
            return isinstance(error.value, UnsentError)

        if not rig.has_proxy:
            await until(is_certain, "an error that says that nothing was sent", PATIENCE)
        await asyncio.to_thread(rig.start)
        if not rig.keeps_over_restart:
            await rig.declare(place)
        await arrives(sender, place, event("e2", body=b"e2"))
        contents = {item.body for item in await rig.read(place)}
    assert b"e2" in contents
    unsent = {b"k%d" % n for n, outcome in enumerate(outcomes) if isinstance(outcome, UnsentError)}
    assert not contents & {*unsent, b"u%d" % tries}, "what surely was not sent has arrived"
    if rig.keeps_over_restart:
        safe = {b"k%d" % n for n, outcome in enumerate(outcomes) if outcome is None}
        assert safe | {b"e1"} <= contents, "an event was confirmed and lost"


NOWHERE = [
    Target("amqp", "main", "amqp://guest@127.0.0.1:1"),
    Target("kafka", "main", "kafka://127.0.0.1:1"),
    Target("nats", "main", "nats://127.0.0.1:1"),
    Target("redis", "main", "redis://127.0.0.1:1"),
    Target("servicebus", "main", "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true;"),
    Target("azure-queue", "main", "azure-queue://devstoreaccount1@127.0.0.1:1"),
    Target("sqs", "main", "sqs://key:secret@eu-west-1?endpoint=http://127.0.0.1:1"),
]  # fmt: skip
"""A broker of each kind where nothing listens."""


@pytest.mark.parametrize("target", NOWHERE, ids=lambda target: target.kind)
async def test_a_refused_connection_is_known_to_have_sent_nothing(target: Target) -> None:
    sender = open_sender(target)
    try:
        for _ in range(2):
            with pytest.raises(UnsentError):
                await sender.send("orders", event("e1"), 10.0)
    finally:
        await sender.close()


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
            if not isinstance(faults[0], UnsentError):  # sent just when the connection broke
                with pytest.raises(UnsentError) as certain:
                    await sender.send(place, event("e2"), TIMEOUT)
                faults.append(certain.value)
            assert isinstance(faults[-1].__cause__, ConfigError)
            assert not any(secret in str(fault) for fault in faults for secret in rig.secrets)
            with suppress(ConfigError):  # of a login; a right is an error of the place
                [error] = await checked(rig, places=[place])
                assert error.severity == "error"
        finally:
            await rig.grant()
        await arrives(sender, place, event("e3"))


async def test_a_check_names_what_is_missing(rig: Rig) -> None:
    place = (await rig.declare(fresh_place())).place
    reader = Reader("makegood-shop-orders", "check")
    answers = await check(rig.target, [], [place, f"{place}-missing"], reader)
    [(where, error)] = [(where, one) for where, one in answers if one.severity == "error"]
    assert where == f"{rig.target.where}/{place}-missing"
    assert error.remedy or "correct its name" in error.what
    messages: list[Received] = await rig.read(place)
    assert messages == [], "a check sends nothing to a place"


async def test_close_may_be_repeated(rig: Rig) -> None:
    sender = open_sender(rig.target)
    await sender.close()
    place = (await rig.declare(fresh_place())).place
    await sender.send(place, event("e1"), TIMEOUT)
    await sender.close()
    await sender.close()
