"""What is peculiar to Azure's storage queues, on Azurite; the suites of sources and senders run on it too."""

import asyncio
import base64
import json
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import quote

import pytest
from azure.core.exceptions import ResourceExistsError

from makegood.brokers import (
    OutgoingEvent,
    RefusedTargetError,
    Target,
    address_of,
    open_sender,
    permissions,
    storage_queue,
)
from makegood.brokers.message_leases import MessageLeases
from makegood.brokers.storage_queue import QueueAccount
from makegood.errors import BrokerUnavailableError, ConfigError, DeliveryError
from tests.brokers.reading import checked, source_at, taken
from tests.brokers.rig import Draft, Rig
from tests.brokers.rigs.storage_queue import FIRST, StorageQueueRig
from tests.waiting import until


@pytest.fixture
def rig(rigs: Callable[[str], Rig]) -> StorageQueueRig:
    """The run's own."""
    rig = rigs("azure-queue")
    assert isinstance(rig, StorageQueueRig)
    return rig


def numbers(count: int) -> list[Draft]:
    """Messages that can be told apart."""
    return [Draft(b"%d" % n) for n in range(count)]


async def test_a_batch_is_several_calls_and_its_extended_messages_can_be_deleted(
    rig: StorageQueueRig,
) -> None:
    """Each extension gives a message a new receipt. The visibility is 8 seconds; another reader waits 13 in vain."""
    address = await rig.declare("hidden")
    await rig.publish("hidden", numbers(70))
    reader, other = source_at(rig, address), source_at(rig, address)
    await reader.open()
    await other.open()
    deliveries = await taken(reader, 65)
    assert {delivery.id == delivery.receipt for delivery in deliveries} == {True}
    assert {delivery.count for delivery in deliveries} == {1}
    assert all(delivery.sent_at for delivery in deliveries)
    await reader.pause()
    await other.acknowledge(await taken(other, 5))
    assert not await other.take(10, 13)
    await reader.acknowledge(deliveries[5:])
    assert (await reader.backlog()).waiting == 5
    await reader.close()
    again = await taken(other, 5)
    assert {delivery.id for delivery in again} == {delivery.id for delivery in deliveries[:5]}
    assert {delivery.count for delivery in again} == {2}
    await other.close()


async def test_a_connection_that_idled_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Azurite closes a connection that idled for 5 seconds: a call on one that it is closing finds no answer."""
    assert storage_queue.KEEP_ALIVE < 5.0
    connections = 0
    end = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nx-ms-approximate-messages-count: 3\r\n\r\n"
                )
        writer.close()
        end.set()

    monkeypatch.setattr(storage_queue, "KEEP_ALIVE", 3.0)
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        account = QueueAccount(
            Target("azure-queue", "main", f"azure-queue://shop:{quote(FIRST, safe='')}@127.0.0.1:{port}")
        )
        assert [await account.look("orders") for _ in range(2)] == [3, 3]
        assert connections == 1
        async with asyncio.timeout(60):
            await end.wait()
        assert await account.look("orders") == 3
        assert connections == 2
        await account.close()


async def test_a_refused_credential_leaves_no_session_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Aiohttp complains of one that nobody has closed."""
    sessions: list[object] = []
    monkeypatch.setattr(storage_queue, "ClientSession", lambda **names: sessions.append(names))
    monkeypatch.setattr(storage_queue, "_identity", lambda: None)
    account = QueueAccount(Target("azure-queue", "main", "azure-queue://shop.queue.core.windows.net"))
    with pytest.raises(ConfigError, match="authenticate"):
        await account.look("orders")
    assert not sessions
    await account.close()


async def test_a_message_that_somebody_else_has_is_no_fault(
    rig: StorageQueueRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PopReceiptMismatch and MessageNotFound, in answer to an acknowledgement."""
    await rig.declare("stolen")
    await rig.publish("stolen", numbers(2))
    monkeypatch.setattr(MessageLeases, "_keep", lambda _: asyncio.Event().wait())  # it extends nothing
    reader = source_at(rig, address_of("azure-queue:main/stolen?visibility=1", {"azure-queue"}))
    await reader.open()
    deliveries = await taken(reader, 2)
    stolen = []
    async with rig.queue("stolen") as queue:

        async def steal() -> bool:
            stolen.extend([message async for message in queue.receive_messages(visibility_timeout=60)])
            return len(stolen) == 2

        await until(steal, "the messages to appear again")
        await queue.delete_message(stolen[0])
    await reader.acknowledge(deliveries)
    assert (await reader.backlog()).waiting == 1
    await reader.close()


async def test_bodies_are_read_with_and_without_base64(rig: StorageQueueRig) -> None:
    """Both conventions in one queue; what is JSON in neither is left as it is."""
    address = await rig.declare("bodies")
    bodies = [
        b'{"id": 1}',
        base64.b64encode(b'{"id": 2}'),
        b"1234",
        base64.b64encode(b"true"),
        b"not JSON",
        b"aGVsbG8=",
    ]
    await rig.publish("bodies", [Draft(body) for body in bodies])
    reader = source_at(rig, address)
    await reader.open()
    deliveries = await taken(reader, 6)
    assert [delivery.body for delivery in deliveries] == [
        b'{"id": 1}', b'{"id": 2}', b"1234", b"true", b"not JSON", b"aGVsbG8="
    ]  # fmt: skip
    await reader.close()


async def test_a_cancelled_take_loses_nothing(rig: StorageQueueRig) -> None:
    """What it receives afterwards belongs to the next take."""
    address = await rig.declare("cancelled")
    reader = source_at(rig, address)
    await reader.open()
    task = asyncio.create_task(reader.take(5, 10))
    await asyncio.wait({task}, timeout=0.5)
    task.cancel()
    await asyncio.wait({task})
    await rig.publish("cancelled", numbers(1))
    assert [delivery.body for delivery in await reader.take(5, 60)] == [b"0"]
    await reader.close()


async def test_settings_that_cannot_work_are_errors_of_configuration(rig: StorageQueueRig) -> None:
    """Each says what to do; no message shows a key."""
    with pytest.raises(ConfigError, match="there is no such queue"):
        await source_at(rig, address_of("azure-queue:main/nothing", {"azure-queue"})).open()
    with pytest.raises(ConfigError, match="3 to 63 small letters"):
        await source_at(rig, address_of("azure-queue:main/Orders", {"azure-queue"})).open()
    with pytest.raises(ConfigError, match=r"write azure-queue://ACCOUNT.*write a / in a key as %2F"):
        source_at(
            rig,
            address_of("azure-queue:main/a", {"azure-queue"}),
            target=Target("azure-queue", "main", "azure-queue://h/orders"),
        )
    address = await rig.declare("locked")
    wrong = base64.b64encode(b"wrong" * 8).decode()
    with pytest.raises(ConfigError, match="broker permissions main") as error:
        await source_at(rig, address, target=rig.target_of(wrong)).open()
    assert wrong not in str(error.value)


async def test_rights_to_read_process_and_update_are_enough_to_take_and_not_to_send(
    rig: StorageQueueRig,
) -> None:
    """A signature with "rup", the counterpart of the role that `permissions` prints."""
    address = await rig.declare("granted")
    await rig.publish("granted", numbers(1))
    target = rig.target_with("granted", "rup")
    reader = source_at(rig, address, target=target)
    await reader.open()
    assert len(await taken(reader, 1)) == 1
    await reader.close()
    await reader.open()
    deliveries = await taken(reader, 1)
    await reader.acknowledge(deliveries)
    assert (await reader.backlog()).waiting == 0
    await reader.close()
    sender = open_sender(target)
    with pytest.raises(DeliveryError, match="Authoriz") as error:
        await sender.send("granted", OutgoingEvent(id="e", task="t", body=b"{}"), 10)
    assert not isinstance(error.value, RefusedTargetError)
    assert "sig=" not in str(error.value)
    await sender.close()


def test_the_permissions_are_a_role_for_each_use() -> None:
    """Extending is writing; sending is adding, and neither may delete a queue."""
    target = Target("azure-queue", "main", "azure-queue://shop.queue.core.windows.net")
    text = permissions(target, ["orders"], ["notices"])
    roles = [
        json.loads(line.partition(" --role-definition '")[2].rstrip("'").replace("'$ACCOUNT'", "/account"))
        for line in text.splitlines()
        if "role definition" in line
    ]
    verbs = [sorted(action.rpartition("messages/")[2] for action in role["DataActions"]) for role in roles]
    assert verbs == [["process/action", "read", "write"], ["add/action"]]
    assert {len(role["Actions"]) for role in roles} == {1}
    assert text.count("/queues/orders") == text.count("/queues/notices") == 1
    assert "create" not in permissions(target, [], []).lower()


async def test_an_event_is_plain_text_that_does_not_expire(rig: StorageQueueRig) -> None:
    """Letters that XML does not take are escaped; 64 KiB is the limit, and said before the service is asked."""
    await rig.declare("notices")
    sender = open_sender(rig.target)
    await sender.send("notices", OutgoingEvent(id="e", task="t", body=b'{"text":"\xef\xbf\xbf<&"}'), 30)
    async with rig.queue("notices") as queue:
        (message,) = await queue.peek_messages()
        assert json.loads(str(message.content)) == {"text": "\uffff<&"}
        assert message.expires_on is not None
        assert message.expires_on.year > 2100
    fits = OutgoingEvent(id="e", task="t", body=b'"%s"' % (b"x" * 65_534))
    await sender.send("notices", fits, 30)
    with pytest.raises(RefusedTargetError, match="65537 bytes"):
        await sender.send("notices", OutgoingEvent(id="e", task="t", body=fits.body + b" "), 30)
    with pytest.raises(RefusedTargetError, match="QueueNotFound"):
        await sender.send("nothing", OutgoingEvent(id="e", task="t", body=b"{}"), 30)
    requirements = await checked(rig, places=["notices", "nothing"])
    assert [requirement.severity for requirement in requirements] == ["ok", "error"]
    await sender.close()


async def test_a_server_that_is_stopped_or_gone_is_an_outage_within_ten_seconds(rig: StorageQueueRig) -> None:
    """And the next open begins anew."""
    address = await rig.declare("outage")
    reader = source_at(rig, address)
    await reader.open()
    rig.stop()
    try:
        async with asyncio.timeout(60):
            with pytest.raises(BrokerUnavailableError, match="answered"):
                await reader.take(1, 1)
            sender = open_sender(rig.target)
            with pytest.raises(DeliveryError, match="within 1 s"):
                await sender.send("outage", OutgoingEvent(id="e", task="t", body=b"{}"), 1)
            await sender.close()
    finally:
        rig.resume()
    await reader.open()
    rig.kill()
    try:
        with pytest.raises(BrokerUnavailableError):
            await reader.take(1, 1)
    finally:
        rig.start()
    async with rig.queue("outage") as queue:
        with suppress(ResourceExistsError):  # Azurite may have written it before the kill
            await queue.create_queue()
    await reader.open()
    assert not await reader.take(1, 0)
    await reader.close()
