"""Every broker's source, on the real server: what is taken, acknowledged, refused, and what comes again."""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from makegood.base.sizes import MIB
from makegood.brokers import BrokerAddress, Delivery, Reader, Source, check
from makegood.brokers.protocol import MOST_BYTES
from makegood.errors import BrokerUnavailableError, ConfigError
from tests.brokers.reading import (
    BEYOND,
    PATIENCE,
    bodies,
    drafts,
    fresh_place,
    in_order,
    nothing_comes,
    opened,
    reading,
    source_at,
    taken,
    until_durable,
)
from tests.brokers.rig import Draft, Rig
from tests.waiting import moment, until

GROUP = "makegood-shop-orders"


async def settled(rig: Rig, address: BrokerAddress) -> None:
    """Wait until the broker has nothing unacknowledged."""

    async def nothing() -> bool:
        return await rig.waiting(address, GROUP) == 0

    await until(nothing, f"{address} to be empty", PATIENCE)


async def test_messages_come_in_order_and_are_gone_once_acknowledged(rig: Rig) -> None:
    address = await rig.declare(fresh_place())
    await rig.publish(address.place, drafts(50))
    async with reading(rig, address) as source:
        deliveries = await taken(source, 50)
        in_order(rig, bodies(deliveries), [draft.body for draft in drafts(50)])
        if rig.takes_ids:
            assert {d.body: d.id for d in deliveries} == {d.body: d.id for d in drafts(50)}
        assert all(delivery.count == 1 for delivery in deliveries)
        await source.acknowledge(deliveries)
        await settled(rig, address)
        await nothing_comes(source)
    async with reading(rig, address, "two") as source:
        await nothing_comes(source)


async def test_ids_differ_unless_a_sender_repeats_one(rig: Rig) -> None:
    """A message that its sender published twice may come once or twice, always under one id."""
    if not (rig.takes_ids or rig.gives_ids):
        pytest.skip(f"{rig.kind}: no message has an id there")
    address = await rig.declare(fresh_place())
    first, second = drafts(2)
    await rig.publish(address.place, [first, first, second])
    async with reading(rig, address) as source:
        deliveries = await taken(source, 2)
        while more := await source.take(5, 1.0):
            deliveries += more
        ids = {body: {d.id for d in deliveries if d.body == body} for body in (first.body, second.body)}
        assert None not in ids[first.body] | ids[second.body]
        assert not ids[first.body] & ids[second.body]
        if rig.takes_ids:
            assert ids == {first.body: {first.id}, second.body: {second.id}}


async def test_a_message_without_an_id_says_so_or_has_one_of_the_broker(rig: Rig) -> None:
    address = await rig.declare(fresh_place())
    await rig.publish(address.place, drafts(3, with_ids=False))
    async with reading(rig, address) as source:
        ids = [delivery.id for delivery in await taken(source, 3)]
    if rig.gives_ids:
        assert None not in ids
        assert len(set(ids)) == 3
    else:
        assert ids == [None] * 3


async def test_what_was_not_acknowledged_comes_again_under_its_id(rig: Rig) -> None:
    """After the reader was closed, to another one. What it acknowledged does not, wherever that was in the batch."""
    address = await rig.declare(fresh_place())
    await rig.publish(address.place, drafts(10))
    async with reading(rig, address) as source:
        before = await taken(source, 10)
        await source.acknowledge(before[:4])
        await until(lambda: _waits(rig, address, 6), "4 acknowledgements", PATIENCE)
    async with reading(rig, address, "two") as source:
        again = await taken(source, 6, beyond=rig.redelivery)
        in_order(rig, bodies(again), bodies(before[4:]))
        assert {d.body: d.id for d in again} == {d.body: d.id for d in before[4:]}
        await source.acknowledge(again)
        await settled(rig, address)


async def _waits(rig: Rig, address: BrokerAddress, count: int) -> bool:
    return await rig.waiting(address, GROUP) == count


async def test_acknowledgements_in_any_order_settle_just_those(rig: Rig) -> None:
    """Brokers that keep one position for all cannot skip: there the rest comes again as well, and is known by its id."""
    address = await rig.declare(fresh_place())
    await rig.publish(address.place, drafts(6))
    async with reading(rig, address) as source:
        first = await taken(source, 6)
        await source.acknowledge([first[4], first[1]])
        await source.acknowledge([first[4]])  # twice is harmless
        await source.acknowledge([])
    async with reading(rig, address, "two") as source:
        again = bodies(await taken(source, 4, beyond=rig.redelivery))
        if rig.has_single_acknowledgements:
            in_order(rig, again, bodies([first[0], first[2], first[3], first[5]]))
        else:
            assert again[0] == first[0].body


@pytest.mark.parametrize("point", ["taken", "acknowledged half", "acknowledged all"])
async def test_a_killed_reader_loses_nothing(rig: Rig, point: str) -> None:
    """A real process, killed after it took, in the middle of its acknowledgements, and behind them."""
    count, count_of_acknowledgements = 8, {"taken": 0, "acknowledged half": 4, "acknowledged all": 8}[point]
    address = await rig.declare(fresh_place())
    await rig.publish(address.place, drafts(count))
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(Path(__file__).with_name("reader_process.py")), stdin=PIPE, stdout=PIPE
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        order = {
            "kind": address.kind,
            "name": address.name,
            "place": address.place,
            "parameters": dict(address.parameters),
            "url": rig.target.url,
            "group": GROUP,
            "count": count,
            "acknowledge": count_of_acknowledgements,
        }
        process.stdin.write(json.dumps(order).encode() + b"\n")
        ids = json.loads(await process.stdout.readline())
        assert await process.stdout.readline() == b"acknowledged\n"
        await until(
            lambda: _waits(rig, address, count - count_of_acknowledgements), "its acknowledgements", PATIENCE
        )
    finally:
        process.kill()
        await process.wait()
    async with reading(rig, address, "two") as source:
        again = await taken(source, count - count_of_acknowledgements, beyond=rig.redelivery)
        assert [d.id for d in again] == ids[count_of_acknowledgements:] or not rig.keeps_order
        assert {d.id for d in again} == set(ids[count_of_acknowledgements:])
        await nothing_comes(source)


async def test_what_is_refused_is_a_dead_letter_and_holds_up_nothing(rig: Rig) -> None:
    address = await rig.declare(fresh_place())
    await rig.publish(address.place, drafts(3))
    async with reading(rig, address) as source:
        assert source.keeps_refusals == rig.has_dead_letters
        if not source.keeps_refusals:
            return  # the relay keeps them in the store
        first, second, third = await taken(source, 3)
        await source.refuse(second, "it is no order")
        await source.acknowledge([first, third])
        await settled(rig, address)
        dead: list[bytes] = []

        async def arrived() -> bool:
            dead.extend(await rig.dead_letters(address.place))
            return bool(dead)

        await until(arrived, "the dead letter", PATIENCE)
        assert dead == [second.body]


async def test_a_pause_holds_what_was_delivered_and_costs_no_try(rig: Rig) -> None:
    address = await rig.declare(fresh_place())
    await rig.publish(address.place, drafts(6))
    async with reading(rig, address, batch=4) as source:
        first = await taken(source, 2)
        await source.pause()
        await source.pause()
        await rig.publish(address.place, drafts(2, "late"))
        await source.acknowledge(first)
        rest = await taken(source, 6)
        published = [draft.body for draft in (*drafts(6), *drafts(2, "late"))]
        in_order(rig, bodies([*first, *rest]), published)
        assert {delivery.count for delivery in rest} == {1}
        await source.acknowledge(rest)
        await settled(rig, address)


async def test_readers_of_one_group_share(rig: Rig) -> None:
    """Each message is one reader's while both are there."""
    address = await rig.declare(fresh_place())
    async with (
        reading(rig, address, "one", batch=5) as one,
        reading(rig, address, "two", batch=5) as two,
    ):
        await rig.publish(address.place, drafts(40))
        deliveries_so_far: list[bytes] = []

        async def work(source: Source) -> None:
            while len(deliveries_so_far) < 40:
                deliveries = await source.take(5, 0.2)
                deliveries_so_far.extend(bodies(deliveries))
                await source.acknowledge(deliveries)

        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(work(one), work(two))
        assert sorted(deliveries_so_far) == sorted(draft.body for draft in drafts(40))


async def test_a_take_that_is_cancelled_loses_nothing_and_doubles_nothing(rig: Rig) -> None:
    address = await rig.declare(fresh_place())
    deliveries_so_far: list[Delivery] = []
    async with reading(rig, address) as source:
        for n in range(12):
            take = asyncio.create_task(source.take(1, 5.0))
            for _ in range(n % 4):
                await moment()
            publish = asyncio.create_task(rig.publish(address.place, drafts(1, f"c{n}-")))
            for _ in range(n):
                await asyncio.sleep(0)
            if n % 3 == 0:
                await publish
            take.cancel()
            if not await _was_cancelled(take):
                deliveries_so_far += take.result()
            await publish
        deliveries_so_far += await taken(source, 12 - len(deliveries_so_far), beyond=rig.redelivery)
        published = [draft.body for n in range(12) for draft in drafts(1, f"c{n}-")]
        in_order(rig, bodies(deliveries_so_far), published)
        await source.acknowledge(deliveries_so_far)
        await settled(rig, address)


async def _was_cancelled(task: "asyncio.Task[Sequence[Delivery]]") -> bool:
    await asyncio.wait([task])
    return task.cancelled()


async def test_a_take_of_a_quiet_queue_waits_as_long_as_it_was_told(rig: Rig) -> None:
    address = await rig.declare(fresh_place())
    async with reading(rig, address) as source:
        start = time.monotonic()
        assert await source.take(10, 0.0) == []
        assert time.monotonic() - start < BEYOND
        start = time.monotonic()
        assert await source.take(10, 1.0) == []
        assert 0.9 < time.monotonic() - start < 1.0 + BEYOND


async def test_a_take_is_limited_in_number_and_bytes(rig: Rig) -> None:
    address = await rig.declare(fresh_place())
    size = min(rig.most_bytes, MIB)
    count = min(200, 2 * MOST_BYTES // size)
    await rig.publish(address.place, [Draft(bytes([97 + n % 26]) * size, f"b{n}") for n in range(count)])
    async with reading(rig, address) as source:
        assert len(await taken(source, 3, limit=3)) == 3
        left = count - 3
        while left:
            batch = await source.take(200, 30.0)
            assert sum(len(delivery.body) for delivery in batch[:-1]) < MOST_BYTES
            left -= len(batch)
            await source.acknowledge(batch)


@pytest.mark.parametrize(
    "body", [b"", b"\xff\xfe\x00", b"not JSON", b'{"open": ', "größer".encode()], ids=repr
)
async def test_any_bytes_arrive_as_they_are(rig: Rig, body: bytes) -> None:
    if not body and not rig.takes_empty:
        pytest.skip(f"{rig.kind}: a message must not be empty there")
    if body.startswith(b"\xff") and not rig.takes_bytes:
        pytest.skip(f"{rig.kind}: a message is text there")
    address = await rig.declare(fresh_place())
    await rig.publish(address.place, [Draft(body, "odd"), *drafts(1)])
    async with reading(rig, address) as source:
        deliveries = await taken(source, 2)
        in_order(rig, bodies(deliveries), [body, drafts(1)[0].body])
        assert not any(delivery.fault for delivery in deliveries)


async def test_the_longest_message_arrives(rig: Rig) -> None:
    address = await rig.declare(fresh_place())
    body = b"x" * rig.most_bytes
    await rig.publish(address.place, [Draft(body, "long")])
    async with reading(rig, address) as source:
        [delivery] = await taken(source, 1)
        assert delivery.body == body
        await source.acknowledge([delivery])
        await settled(rig, address)


async def test_the_backlog_counts_what_nobody_has_acknowledged(rig: Rig) -> None:
    address = await rig.declare(fresh_place())
    await rig.publish(address.place, drafts(7))
    async with reading(rig, address) as source:

        async def is_told(count: int) -> bool:
            waiting = (await source.backlog()).waiting
            return waiting is None or waiting == count

        await until(lambda: is_told(7), "a backlog of 7", PATIENCE)
        deliveries = await taken(source, 3)
        await until(lambda: is_told(7), "a backlog of 7 with 3 taken", PATIENCE)
        await source.acknowledge(deliveries)
        await until(lambda: is_told(4), "a backlog of 4", PATIENCE)


async def test_a_broken_connection_is_an_outage_and_what_it_held_comes_again(rig: Rig) -> None:
    """Broken by an operator while the reader waits; late acknowledgements for it do no harm."""
    address = await rig.declare(fresh_place())
    await rig.publish(address.place, drafts(4))
    async with reading(rig, address) as source:
        before = await taken(source, 4)
        waiting = asyncio.create_task(source.take(10, 10.0))
        await moment()
        await rig.disconnect(address.place)
        try:
            async with asyncio.timeout(10.0 + BEYOND):
                late = await waiting
        except BrokerUnavailableError:
            again = await taken(source, 4, beyond=rig.redelivery)
            assert {d.body: d.id for d in again} == {d.body: d.id for d in before}
            await source.acknowledge(again)
        else:  # the reader is still a member, on new connections
            assert late == []
        await source.acknowledge(before)
        await settled(rig, address)


async def test_a_stopped_broker_holds_up_no_call(rig: Rig) -> None:
    """SIGSTOP: it keeps its connections and answers nothing. What it delivered comes again, once it continues, under the same ids."""
    address = await rig.declare(fresh_place())
    await rig.publish(address.place, drafts(4))
    async with reading(rig, address) as source:
        before = await taken(source, 2, limit=2)
        await asyncio.to_thread(rig.stop)
        try:
            for call in (
                lambda: source.acknowledge(before),
                lambda: source.take(10, 1.0),
                source.pause,
                source.backlog,
                lambda: source.take(10, 1.0),
            ):
                await _bounded(call)
            other = source_at(rig, address, "two")
            with pytest.raises(BrokerUnavailableError):
                await asyncio.wait_for(other.open(), 2 * BEYOND)
            await asyncio.wait_for(other.close(), BEYOND)
        finally:
            await asyncio.to_thread(rig.resume)
        await opened(source)
        ids = {delivery.body: delivery.id for delivery in before}
        async with asyncio.timeout(PATIENCE + rig.redelivery):
            while len(ids) < 4 or await rig.waiting(address, GROUP):
                try:
                    deliveries = await source.take(10, 1.0)
                    assert all(ids.setdefault(d.body, d.id) == d.id for d in deliveries)
                    await source.acknowledge(deliveries)
                except BrokerUnavailableError:
                    await opened(source)
        assert sorted(ids) == sorted(draft.body for draft in drafts(4))


async def _bounded(call: Callable[[], Coroutine[Any, Any, object]]) -> None:
    start = time.monotonic()
    with suppress(BrokerUnavailableError):
        await asyncio.wait_for(call(), 1.0 + 2 * BEYOND)
    assert time.monotonic() - start < 1.0 + BEYOND, "a call took much longer than its wait"


async def test_a_killed_broker_keeps_what_it_confirmed(rig: Rig) -> None:
    """Killed while one reader waits, and started again: what was not acknowledged comes again under its id."""
    if not rig.keeps_over_restart:
        pytest.skip(f"{rig.kind}: this server forgets at a restart; only the real service shows it")
    address = await rig.declare(fresh_place())
    await rig.publish(address.place, drafts(6))
    async with reading(rig, address) as source:
        before = await taken(source, 6)
        await source.acknowledge(before[:2])
        await until(lambda: _waits(rig, address, 4), "2 acknowledgements", PATIENCE)
        await until_durable(rig)
        waiting = asyncio.create_task(source.take(10, 5.0))
        await moment()
        await asyncio.to_thread(rig.kill)
        with pytest.raises(BrokerUnavailableError):
            await asyncio.wait_for(waiting, 5.0 + BEYOND)
        with pytest.raises(BrokerUnavailableError):
            await source.open()
        with pytest.raises(BrokerUnavailableError):
            await source.acknowledge(before[2:])
        await asyncio.to_thread(rig.start)
        # Brokers write acknowledgements in their own time: what was count_of_acknowledgements may come again as well.
        again: dict[bytes, str | None] = {}
        while not again.keys() >= set(bodies(before[2:])):
            [delivery] = await taken(source, 1, beyond=rig.redelivery)
            again[delivery.body] = delivery.id
            await source.acknowledge([delivery])
        assert again.items() <= {d.body: d.id for d in before}.items()

        async def is_settled() -> bool:
            """What comes again does so in the broker's own time."""
            await source.acknowledge(await source.take(10, 1.0))
            return await rig.waiting(address, GROUP) == 0

        await until(is_settled, f"{address} to be empty", PATIENCE)


async def test_a_queue_that_is_made_anew_is_read_and_its_ids_are_new(rig: Rig) -> None:
    """The reader has the old one open. A message of the new one is never taken for one of the old."""
    address = await rig.declare(fresh_place())
    await rig.publish(address.place, drafts(3, with_ids=False))
    async with reading(rig, address) as source:
        old = await taken(source, 3)
        await source.acknowledge(old[:1])
        await rig.delete(address.place)
        assert await rig.declare(address.place) == address
        await rig.publish(address.place, drafts(3, "new", with_ids=False))
        with suppress(BrokerUnavailableError):
            await source.acknowledge(old)
        new: list[Delivery] = []
        async with asyncio.timeout(PATIENCE + rig.redelivery):
            while len(new) < 3:
                try:
                    new += [d for d in await source.take(10, 1.0) if b"new" in d.body]
                except (BrokerUnavailableError, ConfigError):
                    new.clear()
                    await source.close()
                    await opened(source)
        in_order(rig, bodies(new), [draft.body for draft in drafts(3, "new")])
        if rig.gives_ids:
            assert not {d.id for d in old} & {d.id for d in new}
        await source.acknowledge(new)
        await settled(rig, address)


async def test_a_missing_place_is_an_error_of_the_settings(rig: Rig) -> None:
    address = await rig.declare(fresh_place())
    missing = replace(address, place=f"{address.place}-missing")
    source = source_at(rig, missing)
    with pytest.raises(ConfigError, match=missing.place):
        await source.open()
    await source.close()


async def test_a_check_of_many_places_names_each_and_consumes_nothing(rig: Rig) -> None:
    """What is wrong with one place does not keep the others from being checked."""
    first, second = await rig.declare(fresh_place()), await rig.declare(fresh_place())
    await rig.publish(first.place, drafts(1))
    missing = replace(first, place=f"{first.place}-missing")
    for _ in range(2):
        answers = await check(rig.target, [first, missing, second], [second.place], Reader(GROUP, "check"))
        assert answers[-1][0] == str(second), "the place that is sent to"
        severities: dict[str, set[str]] = {}
        for where, one in answers:
            severities.setdefault(where, set()).add(one.severity)
            assert not one.what.startswith(where), "the place is not said twice"
        assert list(severities) == [str(first), str(missing), str(second)]
        assert ["error" in severities[str(each)] for each in (first, missing, second)] == [False, True, False]
    async with reading(rig, first) as source:
        [delivery] = await taken(source, 1)
        assert delivery.count == 1
        await source.acknowledge([delivery])


async def test_a_user_without_rights_is_an_error_of_the_settings(rig: Rig) -> None:
    """It says so without showing the password, and works once the rights are there again."""
    if not rig.checks_rights:
        pytest.skip(f"{rig.kind}: this server lets everybody do all; only the real service shows it")
    address = await rig.declare(fresh_place())
    await rig.publish(address.place, drafts(1))
    source = source_at(rig, address)
    await rig.revoke()
    try:
        with pytest.raises(ConfigError) as refusal:
            await source.open()
        for secret in rig.secrets:
            assert secret not in str(refusal.value)
    finally:
        await rig.grant()
        await source.close()
    async with reading(rig, address) as source:
        await source.acknowledge(await taken(source, 1))
        await settled(rig, address)


async def test_open_and_close_may_be_repeated(rig: Rig) -> None:
    address = await rig.declare(fresh_place())
    await rig.publish(address.place, drafts(2))
    source = source_at(rig, address)
    await source.close()
    with pytest.raises(BrokerUnavailableError):
        await source.take(1, 0.0)
    requirements = await source.open()
    assert all(requirement.severity != "error" for requirement in requirements)
    assert await source.open() == requirements
    assert len(await taken(source, 2)) == 2
    await source.close()
    await source.close()
    with pytest.raises(BrokerUnavailableError):
        await source.take(1, 0.0)
    await opened(source)
    assert len(await taken(source, 2, beyond=rig.redelivery)) == 2
    await source.close()
