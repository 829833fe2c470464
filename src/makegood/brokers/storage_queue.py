"""Orders from Azure's storage queues, and notices to them.

The service pushes nothing, so an empty queue is polled after waits that grow from 0.1 to 5 seconds, and once
in each ``take``. A message that was received is hidden for ``visibility`` seconds and extended while it waits
for its commit (``message_leases``); each extension gives it a new receipt, and only the latest one deletes
it. An answer that a message or its receipt is not there means that somebody else has it, or that it is gone.

Bodies: some senders encode the text as base64 (older libraries of .NET, Azure Functions, Event Grid), others
do not. JSON never looks like base64 of JSON, so both are read. What is sent is the plain text.

The SDK's own retries are switched off: a receipt that is repeated after its answer was lost takes other
messages.
"""

import asyncio
import binascii
import re
from base64 import b64decode
from collections.abc import Awaitable, Mapping, Sequence
from importlib import import_module
from os import environ
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec
from aiohttp import ClientConnectorError, ClientSession, DummyCookieJar, TCPConnector
from azure.core import exceptions as failed
from azure.core.pipeline.transport import AioHttpTransport
from azure.storage.queue import QueueMessage
from azure.storage.queue.aio import QueueClient, QueueServiceClient

from makegood.base.urls import scrub
from makegood.brokers.address import BrokerAddress
from makegood.brokers.kinds import Target, check_each, is_elsewhere
from makegood.brokers.message_leases import LeasedSource, MessageLeases, visibility_of
from makegood.brokers.protocol import (
    MOST_BYTES,
    Answers,
    Backlog,
    Delivery,
    MissingPlaceError,
    OutgoingEvent,
    Reader,
    RefusedTargetError,
    Requirement,
    UnsentError,
)
from makegood.errors import BrokerUnavailableError, ConfigError, DeliveryError, MakegoodError

T = TypeVar("T")

_CONNECT, _ANSWER = 3.0, 8.0
_PAGE: Final = 32
"""Messages that one call takes."""
_AT_ONCE: Final = 32
"""Calls under way at the same time: messages are extended and deleted one by one."""
KEEP_ALIVE: Final = 3.0
"""Seconds that an idle connection is used again: Azurite closes it after 5. aiohttp repeats a call that met a
closed connection once, and its second connection may be as old as the first.
"""
_SHORTEST_REST, _LONGEST_REST = 0.1, 5.0
_LONGEST_VISIBILITY: Final = 7 * 86_400
_MOST_BYTES: Final = 64 * 1024
_NAME: Final = re.compile(r"(?!.*--)[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_SERVERS_FAULT: Final = 500
_REFUSALS: Final[Mapping[str, type[DeliveryError]]] = {
    "QueueNotFound": MissingPlaceError, "RequestBodyTooLarge": RefusedTargetError, "QueueDisabled": RefusedTargetError,
}  # fmt: skip
_NOT_IN_XML: Final = re.compile("[\ufffe\uffff]")
_GONE: Final = ("MessageNotFound", "PopReceiptMismatch")
_EMULATED: Final = "devstoreaccount1"
_EMULATED_KEY: Final = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""The emulator's account and its published key."""


def open_source(target: Target, address: BrokerAddress, reader: Reader) -> "StorageQueueSource":
    """Return the source of a queue; it connects when it is opened."""
    del reader  # there are no groups: each message is some process's
    return StorageQueueSource(QueueAccount(target), address)


def open_sender(target: Target) -> "StorageQueueSender":
    """Return what sends to the queues of an account."""
    return StorageQueueSender(QueueAccount(target))


async def check(
    target: Target,
    sources: Sequence[BrokerAddress],
    places: Sequence[str],
    reader: Reader,  # noqa: ARG001 - there are no groups
) -> Answers:
    """Look at each queue."""
    account = QueueAccount(target)

    async def check_place(place: str) -> list[Requirement]:
        await account.look(place)
        what = "the queue is there; it keeps no order, and an event may be there twice"
        return [*account.requirements(), Requirement("ok", what)]

    try:
        return await check_each(
            target, sources, lambda each: StorageQueueSource(account, each).examine(), places, check_place
        )
    finally:
        await account.close()


def permissions(target: Target, sources: Sequence[str], places: Sequence[str]) -> str:
    """Return commands of Azure's CLI: a role for each use, given to PRINCIPAL, and SAS instead of it."""
    account = QueueAccount(target).name
    queues = "Microsoft.Storage/storageAccounts/queueServices/queues"
    lines = [
        "PRINCIPAL=...  # the object id of the managed identity or application that makegood runs as",
        f"ACCOUNT=$(az storage account show --name {account} --query id --output tsv)",
    ]
    uses = (
        ("take", sources, ("read", "process/action", "write")),  # to extend a message is to write it
        ("send", places, ("add/action",)),
    )
    for use, names, verbs in uses:
        if not names:
            continue
        role = {
            "Name": f"makegood {use} {account}",
            "Description": f"makegood: {use} messages",
            "Actions": [f"{queues}/read"],
            "DataActions": [f"{queues}/messages/{verb}" for verb in verbs],
            "AssignableScopes": ["SCOPE"],
        }
        text = msgspec.json.encode(role).decode().replace('"SCOPE"', "\"'$ACCOUNT'\"")
        lines.append(f"az role definition create --role-definition '{text}'")
        lines += [
            f'az role assignment create --assignee "$PRINCIPAL" --role "{role["Name"]}" --scope "$ACCOUNT/queueServices/default/queues/{name}"'
            for name in names
        ]
    return "\n".join(lines)


class QueueAccount:
    """Calls of an account's queue service, each with a time limit; faults in makegood's words."""

    def __init__(self, target: Target) -> None:
        parts = urlsplit(target.url)
        if not parts.hostname or parts.path.strip("/"):
            raise ConfigError(
                f"{target.where}: write azure-queue://ACCOUNT.queue.core.windows.net, or "
                "azure-queue://devstoreaccount1@127.0.0.1:10001 for Azurite; write a / in a key as %2F"
            )
        place = parts.netloc.rpartition("@")[2]
        self.target = target
        self.where = target.where
        self.name = parts.username or parts.hostname.partition(".")[0]
        is_account_host = parts.hostname.partition(".")[0] == self.name
        self.url = f"https://{place}" if is_account_host else f"http://{place}/{self.name}"
        self._sas = parts.query
        self._key = unquote(parts.password or "")
        self._service: QueueServiceClient | None = None
        self._credential: Any = None

    def queue(self, name: str) -> QueueClient:
        """Return a queue's client. Raises ``ConfigError`` for a name that no queue has."""
        if _NAME.fullmatch(name) is None:
            raise ConfigError(
                f"{self.where}: {name!r:.80} cannot be a storage queue: a name has 3 to 63 small letters, digits and single hyphens"
            )
        if self._service is None:
            self._credential = self._sas or self._account_key() or _identity()
            try:
                transport = _Transport(connection_timeout=_CONNECT, read_timeout=_ANSWER)
                self._service = QueueServiceClient(
                    self.url, credential=self._credential, retry_total=0, transport=transport, logging_enable=False
                )  # fmt: skip
            except ValueError as bad:
                raise self.config_error(str(bad)) from None
        return self._service.get_queue_client(name)

    def _account_key(self) -> Any:
        key = (
            self._key or environ.get("AZURE_STORAGE_KEY") or (_EMULATED_KEY if self.name == _EMULATED else "")
        )
        return {"account_name": self.name, "account_key": key} if key else None

    async def call(self, work: Awaitable[T]) -> T:
        """Await a call of the SDK. Raises ``BrokerUnavailableError``, ``ConfigError``."""
        try:
            async with asyncio.timeout(_ANSWER):
                return await work
        except TimeoutError:
            raise BrokerUnavailableError(
                f"{self.where}: the storage service has not answered within {_ANSWER:g} s"
            ) from None
        except (failed.AzureError, OSError) as fault:
            raise self.meaning(fault) from None

    async def look(self, name: str) -> int:
        """Return how many messages a queue has. Raises ``BrokerUnavailableError``, ``ConfigError``."""
        try:
            properties = await self.call(self.queue(name).get_queue_properties())
        except ConfigError as fault:
            raise ConfigError(str(fault).replace(self.where, f"{self.where}/{name}", 1)) from None
        return int(properties.approximate_message_count or 0)

    def meaning(self, fault: Exception) -> MakegoodError:
        """Separate faults that no retry mends from those that may pass."""
        text = self.text_of(fault)
        if code_of(fault) == "QueueNotFound":
            return ConfigError(f"{self.where}: there is no such queue ({text}): make it, or correct its name")
        status = getattr(fault, "status_code", 0)
        if status in (401, 403) or isinstance(fault, failed.ClientAuthenticationError):
            return self.config_error(
                f"Azure refuses this key, SAS or identity ({text}): `makegood broker permissions {self.target.name} --from PLACE --to PLACE` prints what it needs; "
                "a clock that is wrong by 15 minutes is refused too"
            )
        return BrokerUnavailableError(f"{self.where}: {text}")

    def config_error(self, text: str) -> ConfigError:
        """Return an error that names the broker, and shows no secret."""
        return ConfigError(f"{self.where}: {scrub(text, self.target.url)}")

    def text_of(self, fault: BaseException) -> str:
        """Return what a fault says, without the URL's secrets."""
        line = str(fault).partition("\n")[0] or type(fault).__name__
        code = code_of(fault)
        return scrub(f"{code}: {line}" if code and code not in line else line, self.target.url)

    def requirements(self) -> list[Requirement]:
        """Return what is to be said of the way to the service."""
        if self.url.startswith("http://") and is_elsewhere(self.url):
            what = f"{self.where} is on another machine, and not encrypted"
            return [
                Requirement("warning", what, "name the account's own host: ACCOUNT.queue.core.windows.net")
            ]
        return []

    async def close(self) -> None:
        """Close the connections."""
        service, self._service = self._service, None
        credential, self._credential = self._credential, None
        if service is not None:
            await service.close()
        if (leave := getattr(credential, "close", None)) is not None:
            await leave()


class StorageQueueSource(LeasedSource):
    """A storage queue that orders are taken from.

    It receives by calls of 32, until one is not full; an empty queue is polled again after a growing wait.
    """

    def __init__(self, account: QueueAccount, address: BrokerAddress) -> None:
        self._visibility = visibility_of(address, _LONGEST_VISIBILITY)
        super().__init__(address, "a storage queue", self._visibility, _ANSWER + 1)
        self._account = account
        self._name = address.place
        self._is_asking = False
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._rest = _SHORTEST_REST
        self._next_poll = 0.0

    async def examine(self) -> Sequence[Requirement]:
        """See whether the queue is there."""
        await self._account.look(self._name)
        return self._requirements()

    def _requirements(self) -> Sequence[Requirement]:
        what = (
            "a message expires when nobody took it within the time that its sender gave it, 7 days by default"
        )
        return [*self._account.requirements(), Requirement("ok", what)]

    async def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Delete the messages; those that are not ours any more come again."""
        leases = await self._usable()
        receipts = await leases.remove(delivery.receipt for delivery in deliveries)
        queue = self._account.queue(self._name)
        async with self._close_on_fault():
            await asyncio.gather(
                *(self._settle(queue.delete_message(name, receipt)) for name, receipt in receipts.items())
            )

    async def backlog(self) -> Backlog:
        """Return the service's own number, hidden messages included."""
        await self._usable()
        return Backlog(await self._account.look(self._name))

    async def _interrupt(self, receiving: asyncio.Task[None]) -> dict[str, str]:
        if self._is_asking:  # what its call hides would stay hidden
            await asyncio.wait({receiving}, timeout=1)
        return await super()._interrupt(receiving)

    async def _release(self, receipts: Mapping[str, str]) -> None:
        await self._hide(receipts, 0)

    async def _disconnect(self) -> None:
        await self._account.close()

    async def _receive(self, leases: MessageLeases, limit: int, wait: float) -> None:
        now = asyncio.get_running_loop().time
        deadline = now() + wait
        queue = self._account.queue(self._name)
        size = 0
        while len(self._ready) < limit and size < MOST_BYTES:
            # A take that waits shorter than the queue is left alone looks once all the same, at its end.
            await asyncio.sleep(max(0.0, min(self._next_poll, deadline) - now()))
            since = now()
            count = min(_PAGE, limit - len(self._ready))
            self._is_asking = True
            try:
                messages = await self._account.call(_page(queue, count, self._visibility))
            finally:
                self._is_asking = False
            for message in messages:
                if leases.add(message.id, str(message.pop_receipt), since):
                    delivery = _delivery(message)
                    size += len(delivery.body)
                    self._ready.append(delivery)
            if messages:
                self._rest, self._next_poll = _SHORTEST_REST, 0.0
            else:
                self._next_poll = now() + self._rest
                self._rest = min(self._rest * 2, _LONGEST_REST)
            if (self._ready and len(messages) < count) or (not messages and now() >= deadline):
                return

    async def _extend(self, receipts: Mapping[str, str]) -> Mapping[str, str | None]:
        return await self._hide(receipts, self._visibility)

    async def _hide(self, receipts: Mapping[str, str], seconds: int) -> dict[str, str | None]:
        """Hide messages for so many seconds from now. Return their receipts; None: it is not ours."""
        queue = self._account.queue(self._name)
        answers = await asyncio.gather(
            *(
                self._settle(queue.update_message(name, receipt, visibility_timeout=seconds))
                for name, receipt in receipts.items()
            )
        )
        return {
            name: None if answer is None else str(answer.pop_receipt)
            for name, answer in zip(receipts, answers, strict=True)
        }

    async def _settle(self, work: Awaitable[T]) -> T | None:
        """Await a call for one message; None: the message is not ours, or gone."""

        async def settle() -> T | None:
            try:
                return await work
            except failed.HttpResponseError as fault:
                if code_of(fault) in _GONE:
                    return None
                raise

        async with self._at_once:
            return await self._account.call(settle())


class StorageQueueSender:
    """Sends to the queues of an account."""

    def __init__(self, account: QueueAccount) -> None:
        self.where = account.where
        self._account = account

    async def send(self, place: str, event: OutgoingEvent, timeout: float) -> None:
        """Send as plain text that does not expire; a receiver knows a repetition by the event's id."""
        text = _NOT_IN_XML.sub(lambda letter: f"\\u{ord(letter[0]):04x}", event.body.decode())
        size = len(text.encode())
        if size > _MOST_BYTES:
            raise RefusedTargetError(
                f"{self.where}/{place}: the event has {size} bytes, and a storage queue takes 64 KiB"
            )
        try:
            async with asyncio.timeout(timeout):
                await self._account.queue(place).send_message(text, time_to_live=-1)
        except TimeoutError:
            raise DeliveryError(
                f"{self.where}/{place}: the storage service has not confirmed within {timeout:g} s"
            ) from None
        except (failed.AzureError, OSError) as fault:
            error = _REFUSALS.get(code_of(fault), UnsentError if _is_unsent(fault) else DeliveryError)
            raise error(f"{self.where}/{place}: {self._account.text_of(fault)}") from self._account.meaning(
                fault
            )
        except ConfigError as fault:
            raise RefusedTargetError(str(fault)) from None

    async def close(self) -> None:
        """Close the connections."""
        await self._account.close()


def _is_unsent(fault: Exception) -> bool:
    """Whether nothing went out, or the service answered that it was the sender's fault."""
    status = getattr(fault, "status_code", None)
    if status is not None:
        return bool(status < _SERVERS_FAULT)
    # The SDK says "request failed" also of one whose answer was lost.
    return isinstance(getattr(fault, "inner_exception", None), ClientConnectorError)


def code_of(fault: BaseException) -> str:
    """Return the service's code for a fault."""
    code = getattr(fault, "error_code", None)
    return str(getattr(code, "value", code) or "")


class _Transport(AioHttpTransport):  # type: ignore[misc]  # the SDK loads it on demand, without its type
    """The SDK's transport, whose connections end before the service ends them.

    Its session begins with the first call: a client that refuses its credential has none to close.
    """

    session: ClientSession | None

    async def open(self) -> None:
        if self.session is None:
            self.session = ClientSession(
                connector=TCPConnector(keepalive_timeout=KEEP_ALIVE), cookie_jar=DummyCookieJar(), auto_decompress=False, trust_env=True
            )  # fmt: skip
        await super().open()


def _identity() -> Any:
    """Return a credential from what the machine has for Azure."""
    return import_module("azure.identity.aio").DefaultAzureCredential()


async def _page(queue: QueueClient, count: int, visibility: int) -> list[QueueMessage]:
    pages = queue.receive_messages(
        messages_per_page=count, max_messages=count, visibility_timeout=visibility
    ).by_page()
    async for page in pages:
        return [message async for message in page]
    return []


def _delivery(message: QueueMessage) -> Delivery:
    sent_at = message.inserted_on
    return Delivery(
        receipt=message.id,
        body=_body(str(message.content)),
        id=message.id,
        sent_at=None if sent_at is None else sent_at.timestamp(),
        count=int(message.dequeue_count or 1),
    )


def _body(text: str) -> bytes:
    """Return a message's bytes, decoded if only that is JSON.

    >>> _body('{"id": 1}'), _body("eyJpZCI6IDF9"), _body("1234"), _body("hello")
    (b'{"id": 1}', b'{"id": 1}', b'1234', b'hello')
    """
    body = text.encode()
    if text[:1] in ("{", "[", '"') or _is_json(body):
        return body
    try:
        decoded = b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        return body
    return decoded if _is_json(decoded) else body


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True
