"""Orders from Amazon SQS, and notices to it, by boto3 in threads.

A message that was received is hidden for ``visibility`` seconds and extended while it waits for its commit
(``message_leases``); then it is deleted. SQS counts each receipt: where the queue has a redrive policy, it
moves a message to the dead-letter queue once it was received ``maxReceiveCount`` times and not deleted. There
is no call that refuses a message, so refusals are kept in the store.

SQS gives at most ten messages a call, so a batch is several calls, beside each other. In a FIFO queue, SQS
delivers nothing more of a group until the group's messages that are out were deleted; the calls are made one
after the other there.

boto3's own retries are switched off: a call that is repeated after its answer was lost takes other messages.
"""

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import boto3
from botocore import exceptions as failed
from botocore.config import Config

from makegood.base.daemon_threads import DaemonThreads
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
    Requirements,
    failed_send,
)
from makegood.errors import BrokerUnavailableError, ConfigError, MakegoodError

_CONNECT, _ANSWER = 3, 5
"""Seconds for a connection, and for an answer beyond what a call waits for messages."""
_LONGEST_POLL: Final = 20
_TEN: Final = 10
"""Messages that one call takes, extends or deletes."""
_THREADS: Final = 8
_LONGEST_VISIBILITY: Final = 43_200
_FEW_RECEIPTS: Final = 10
_USUAL_RETENTION: Final = 4 * 86_400

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo")
_TOKEN: Final = re.compile(r"[!-~]{1,128}")
_TAG: Final = re.compile(r"<[^>]*>")
_NOT_IN_XML: Final = re.compile("[\ufffe\uffff]")
_MISSING: Final = frozenset({"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"})
_FORBIDDEN: Final = frozenset(
    {
        "AccessDenied", "AccessDeniedException", "InvalidSecurity", "InvalidClientTokenId", "InvalidAccessKeyId", "SignatureDoesNotMatch",
        "UnrecognizedClientException", "MissingAuthenticationToken", "AuthFailure", "OptInRequired", "ExpiredToken",
        "IncompleteSignature", "403", "KmsAccessDenied", "KmsDisabled", "KmsNotFound", "KmsOptInRequired", "KmsInvalidState",
    }
)  # fmt: skip
"""Codes of answers that no retry changes."""
_UNFIT: Final = frozenset({"InvalidParameterValue", "InvalidMessageContents", "InvalidAddress"})
_SERVERS_FAULT: Final = 500
_UNCONNECTED: Final = (
    failed.EndpointConnectionError, failed.ConnectTimeoutError, failed.NoCredentialsError, failed.PartialCredentialsError,
)  # fmt: skip
"""Faults before anything went out."""
_AWAY: Final = (failed.BotoCoreError, failed.HTTPClientError, OSError)


def open_source(target: Target, address: BrokerAddress, reader: Reader) -> "SqsSource":
    """Return the source of a queue; it connects when it is opened."""
    del reader  # SQS knows no groups: each message is some process's
    return SqsSource(SqsCalls(target, _LONGEST_POLL), address)


def open_sender(target: Target) -> "SqsSender":
    """Return what sends to the queues of an account and region."""
    return SqsSender(SqsCalls(target))


async def check(
    target: Target,
    sources: Sequence[BrokerAddress],
    places: Sequence[str],
    reader: Reader,  # noqa: ARG001 - there are no groups
) -> Answers:
    """Look up each queue."""
    service = SqsCalls(target)

    async def check_place(place: str) -> list[Requirement]:
        await service.attributes(await service.queue_url(place))
        order = (
            "the events of a task in order" if place.endswith(".fifo") else "no order, and may deliver twice"
        )
        return [*service.requirements(), Requirement("ok", f"the queue is there, and keeps {order}")]

    try:
        return await check_each(
            target, sources, lambda each: SqsSource(service, each).examine(), places, check_place
        )
    finally:
        service.close()


def permissions(target: Target, sources: Sequence[str], places: Sequence[str]) -> str:
    """Return an IAM policy for the user or role that makegood runs as."""
    region = urlsplit(target.url).hostname or "*"
    partition = {"cn": "aws-cn", "us-gov": "aws-us-gov"}.get(
        region.rpartition("-")[0].rpartition("-")[0], "aws"
    )
    about = ("sqs:GetQueueUrl", "sqs:GetQueueAttributes")
    parts = (
        ("Take", sources, (*about, "sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility")),
        ("Send", places, (*about, "sqs:SendMessage")),
    )
    statements = [
        {
            "Sid": f"Makegood{sid}",
            "Effect": "Allow",
            "Action": list(actions),
            "Resource": [f"arn:{partition}:sqs:{region}:*:{queue}" for queue in queues],
        }
        for sid, queues, actions in parts
        if queues
    ]
    return json.dumps({"Version": "2012-10-17", "Statement": statements}, indent=2)


class SqsCalls:
    """Calls of SQS in threads, each with a time limit; faults in makegood's words."""

    def __init__(self, target: Target, longest_poll: int = 0) -> None:
        self._longest_poll = longest_poll
        parts = urlsplit(target.url)
        fields = parse_qs(parts.query, keep_blank_values=True)
        if not parts.hostname or parts.path.strip("/") or parts.port or fields.keys() - {"endpoint"}:
            raise ConfigError(
                f"{target.where}: write sqs://REGION, or sqs://REGION?endpoint=http://host:port for another service"
            )
        if bool(parts.username) != bool(parts.password):
            raise ConfigError(
                f"{target.where}: write access key and secret, sqs://KEY:SECRET@REGION (percent-encoded), or neither: then "
                "boto3 finds them in the environment, a profile or the machine's role"
            )
        self.target = target
        self.where = target.where
        self.endpoint = fields.get("endpoint", [None])[0]
        self._region = parts.hostname
        self._login = (unquote(parts.username or "") or None, unquote(parts.password or "") or None)
        self._threads: DaemonThreads | None = None
        self._client: Any = None
        self._opening = asyncio.Lock()
        self._slots = asyncio.Semaphore(_THREADS)

    @property
    def is_open(self) -> bool:
        """Whether there is a client."""
        return self._client is not None

    async def open(self) -> Any:
        """Return the client. To make one takes a quarter of a second of CPU: it is made in a thread."""
        async with self._opening:
            if self._client is None:
                if self._threads is None:
                    self._threads = DaemonThreads(_THREADS, "makegood-sqs")
                    self._slots = asyncio.Semaphore(_THREADS)
                try:
                    self._client = await asyncio.get_running_loop().run_in_executor(self._threads, self._make)
                except (failed.BotoCoreError, ValueError) as fault:
                    raise self.config_error(str(fault)) from None
            return self._client

    def _make(self) -> Any:
        key, secret = self._login
        session = boto3.session.Session(
            aws_access_key_id=key, aws_secret_access_key=secret, region_name=self._region
        )
        config = Config(
            retries={"mode": "standard", "total_max_attempts": 1},
            connect_timeout=_CONNECT,
            read_timeout=self._longest_poll + _ANSWER,
            max_pool_connections=_THREADS,
            tcp_keepalive=True,
        )
        return session.client("sqs", endpoint_url=self.endpoint, config=config)

    def begin(self, call: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Call a function in a thread, whatever becomes of those who wait for it."""
        assert self._threads is not None
        future = self._threads.submit(call)
        future.add_done_callback(_forget)
        return future

    async def call(self, verb: str, **arguments: Any) -> Mapping[str, Any]:
        """Call SQS. Raises ``BrokerUnavailableError``, ``ConfigError``."""
        future = await self.begin_in_turn(verb, **arguments)
        answer: Mapping[str, Any] = await self.answer(future, _CONNECT + _ANSWER)
        return answer

    async def begin_in_turn(self, verb: str, **arguments: Any) -> "asyncio.Future[Any]":
        """Call SQS once a thread is free: nothing is kept for threads that hang."""
        client = await self.open()
        slots = self._slots
        await slots.acquire()
        future = self.begin(partial(getattr(client, verb), **arguments))
        future.add_done_callback(lambda _: slots.release())
        return future

    async def answer(self, future: "asyncio.Future[Any]", timeout: float | None) -> Any:
        """Return what a call returned, or raise its fault in makegood's words."""
        try:
            return await asyncio.wait_for(asyncio.shield(future), timeout)
        except TimeoutError:
            raise BrokerUnavailableError(f"{self.where}: SQS has not answered within {timeout:g} s") from None
        except (failed.NoCredentialsError, failed.PartialCredentialsError) as fault:
            raise self.config_error(str(fault)) from None
        except failed.ClientError as fault:
            raise self.meaning(fault) from None
        except _AWAY as fault:
            raise BrokerUnavailableError(f"{self.where}: {self.clean(fault)}") from None

    def meaning(self, fault: Any) -> MakegoodError:
        """Separate faults that no retry mends from those that may pass."""
        code = code_of(fault)
        message = str(fault.response.get("Error", {}).get("Message", ""))
        text = f"{code}: {' '.join(_TAG.sub(' ', message).split())}"
        if code in _MISSING:
            return ConfigError(
                f"{self.where}: there is no such queue in {self._region} ({self.clean(text)}): make it, or correct its name"
            )
        if code.partition(".")[0] in _FORBIDDEN or code.rpartition(".")[2] in _FORBIDDEN:
            return self.config_error(
                f"SQS refuses this user or role ({text}): `makegood broker permissions {self.target.name} --from PLACE --to PLACE` prints the policy that it needs"
            )
        return BrokerUnavailableError(f"{self.where}: SQS answers {self.clean(text)}")

    def config_error(self, text: str) -> ConfigError:
        """Return an error that names the broker, and shows no secret."""
        return ConfigError(f"{self.where}: {self.clean(text)}")

    def clean(self, text: object) -> str:
        """Return a foreign text without the URL's secrets."""
        return scrub(str(text), self.target.url)

    async def queue_url(self, queue: str) -> str:
        """Return a queue's URL. Raises ``ConfigError`` if there is none of that name."""
        if _NAME.fullmatch(queue) is None:
            raise ConfigError(
                f"{self.where}/{queue}: a queue of SQS has up to 80 letters, digits, _ and -, and perhaps .fifo at the end"
            )
        try:
            return str((await self.call("get_queue_url", QueueName=queue))["QueueUrl"])
        except ConfigError as fault:
            raise ConfigError(str(fault).replace(self.where, f"{self.where}/{queue}", 1)) from None

    async def attributes(self, url: str) -> Mapping[str, str]:
        """Return a queue's attributes."""
        answer = await self.call("get_queue_attributes", QueueUrl=url, AttributeNames=["All"])
        return dict(answer.get("Attributes", {}))

    def requirements(self) -> Requirements:
        """Return what is to be said of the way to the service."""
        result = Requirements()
        if self.endpoint and not self.endpoint.startswith("https://") and is_elsewhere(self.endpoint):
            what = f"the endpoint of {self.where} is on another machine, and not encrypted"
            result.add("warning", what, "write an https:// endpoint")
        return result

    def close(self) -> None:
        """Drop the client. A call that is out ends by itself, in a daemon thread."""
        self._client = None
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown()


class SqsSource(LeasedSource):
    """A queue of SQS that orders are taken from.

    One call waits for the first message; if it was full, others fill the batch.
    """

    def __init__(self, service: SqsCalls, address: BrokerAddress) -> None:
        self._visibility = visibility_of(address, _LONGEST_VISIBILITY)
        super().__init__(address, "SQS", self._visibility, _CONNECT + _ANSWER)
        self._sqs = service
        self._queue = address.place
        self._calls: set[_Receipts] = set()
        self._url = ""
        self._is_fifo = address.place.endswith(".fifo")
        self._attributes: Mapping[str, str] = {}

    async def examine(self) -> Sequence[Requirement]:
        """Look up the queue and check it."""
        self._url = await self._sqs.queue_url(self._queue)
        self._attributes = await self._sqs.attributes(self._url)
        return self._requirements()

    def _requirements(self) -> Sequence[Requirement]:
        return [*self._sqs.requirements(), *_requirements_of(self._attributes)]

    async def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Delete the messages, ten a call; those that are not ours any more come again."""
        leases = await self._usable()
        receipts = await leases.remove(delivery.receipt for delivery in deliveries)
        for _ in range(2):  # SQS may fail to delete single messages, by its own fault: they get a second try
            async with self._close_on_fault():
                answers = await self._in_tens("delete_message_batch", receipts)
            receipts = {name: receipts[name] for name, is_ours in answers if not is_ours}
            if not receipts:
                return

    async def backlog(self) -> Backlog:
        """Return SQS's own, approximate number: in the queue, in flight, and delayed."""
        await self._usable()
        attributes = await self._sqs.attributes(self._url)
        names = ("", "NotVisible", "Delayed")
        return Backlog(sum(int(attributes.get(f"ApproximateNumberOfMessages{name}", 0)) for name in names))

    async def _interrupt(self, receiving: asyncio.Task[None]) -> dict[str, str]:
        receipts = await super()._interrupt(receiving)
        for call in self._calls:
            call.is_over = True
            receipts |= call.receipts
        self._calls.clear()
        return receipts

    async def _release(self, receipts: Mapping[str, str]) -> None:
        if self._sqs.is_open:
            await self._in_tens("change_message_visibility_batch", receipts, 0)

    async def _disconnect(self) -> None:
        self._sqs.close()

    async def _receive(self, leases: MessageLeases, limit: int, wait: float) -> None:
        messages = await self._call(leases, limit, min(int(wait), _LONGEST_POLL))
        if not messages and wait < 1:
            await asyncio.sleep(wait)  # SQS waits for whole seconds
        if len(messages) < _TEN or len(messages) >= limit:
            return
        size = sum(len(message["Body"]) for message in messages)
        rest = min(limit - len(messages), (MOST_BYTES - size) * len(messages) // max(1, size))
        if self._is_fifo:
            while rest > 0 and (messages := await self._call(leases, rest, 0)):
                rest -= len(messages)
        else:
            await asyncio.gather(*(self._call(leases, rest - at, 0) for at in range(0, rest, _TEN)))

    async def _call(self, leases: MessageLeases, limit: int, wait: int) -> Sequence[Mapping[str, Any]]:
        client = await self._sqs.open()
        arguments = {
            "QueueUrl": self._url,
            "MaxNumberOfMessages": min(limit, _TEN),
            "WaitTimeSeconds": wait,
            "VisibilityTimeout": self._visibility,
            "MessageAttributeNames": ["All"],
            "MessageSystemAttributeNames": ["All"],
        }
        call = _Receipts(asyncio.get_running_loop().time)
        self._calls.add(call)
        future = self._sqs.begin(partial(call.receive, client, arguments))
        messages: Sequence[Mapping[str, Any]] = await self._sqs.answer(future, None)
        self._calls.discard(call)
        for message in messages:
            if leases.add(message["MessageId"], message["ReceiptHandle"], call.since):
                self._ready.append(self._delivery(message))
        return messages

    def _delivery(self, message: Mapping[str, Any]) -> Delivery:
        body = message["Body"].encode()
        system = message.get("Attributes", {})
        headers = {
            name: value["StringValue"]
            for name, value in message.get("MessageAttributes", {}).items()
            if "StringValue" in value
        }
        sent_at = system.get("SentTimestamp")
        return Delivery(
            receipt=message["MessageId"],
            body=body,
            id=_id(
                message["MessageId"],
                body,
                system,
                by_group=self._attributes.get("DeduplicationScope") == "messageGroup",
            ),
            headers=headers,
            kind=headers.get("ce_type", ""),
            correlation_id=headers.get("correlation_id"),
            reply_to=headers.get("reply_to"),
            sent_at=None if sent_at is None else int(sent_at) / 1000,
            count=int(system.get("ApproximateReceiveCount", 1)),
        )

    async def _extend(self, receipts: Mapping[str, str]) -> Mapping[str, str | None]:
        answers = await self._in_tens("change_message_visibility_batch", receipts, self._visibility)
        return {name: receipts[name] if is_ours else None for name, is_ours in answers}

    async def _in_tens(
        self, verb: str, receipts: Mapping[str, str], visibility: int | None = None
    ) -> list[tuple[str, bool]]:
        """Make a call for messages. Return their names, each with whether SQS did what was asked."""
        more = {} if visibility is None else {"VisibilityTimeout": visibility}
        names = list(receipts)
        tens = [names[at : at + _TEN] for at in range(0, len(names), _TEN)]
        answers = await asyncio.gather(
            *(
                self._sqs.call(
                    verb,
                    QueueUrl=self._url,
                    Entries=[
                        {"Id": str(n), "ReceiptHandle": receipts[name], **more} for n, name in enumerate(ten)
                    ],
                )
                for ten in tens
            )
        )
        result: list[tuple[str, bool]] = []
        for ten, answer in zip(tens, answers, strict=True):
            wrong = {int(entry["Id"]) for entry in answer.get("Failed", [])}
            result += [(name, n not in wrong) for n, name in enumerate(ten)]
        return result


class _Receipts:
    """A call that receives. If its source was closed meanwhile, it shows what it received to others again."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.is_over = False
        self.receipts: dict[str, str] = {}
        self.since = now()
        """The latest moment before the messages were hidden, as far as that is known; by ``now``."""

    def receive(self, client: Any, arguments: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """Receive, in a thread."""
        messages: Sequence[Mapping[str, Any]] = client.receive_message(**arguments).get("Messages", [])
        self.since = max(self.since, self._now() - _ANSWER)
        self.receipts = {message["MessageId"]: message["ReceiptHandle"] for message in messages}
        if messages and self.is_over:
            entries = [
                {"Id": str(n), "ReceiptHandle": receipt, "VisibilityTimeout": 0}
                for n, receipt in enumerate(self.receipts.values())
            ]
            client.change_message_visibility_batch(QueueUrl=arguments["QueueUrl"], Entries=entries)
        return messages


class SqsSender:
    """Sends to the queues of an account and region."""

    def __init__(self, service: SqsCalls) -> None:
        self.where = service.where
        self._service = service
        self._urls: dict[str, str] = {}

    async def send(self, place: str, event: OutgoingEvent, timeout: float) -> None:
        """Send; in a FIFO queue the task is the group, the event's id the deduplication id, for 5 minutes."""
        arguments: dict[str, Any] = {
            "MessageBody": _NOT_IN_XML.sub(lambda letter: f"\\u{ord(letter[0]):04x}", event.body.decode()),
            "MessageAttributes": {"content-type": {"DataType": "String", "StringValue": event.content_type}},
        }
        if place.endswith(".fifo"):
            arguments |= {"MessageGroupId": _token(event.task), "MessageDeduplicationId": _token(event.id)}
        began = False
        try:
            async with asyncio.timeout(timeout):
                if place not in self._urls:
                    about = await self._service.begin_in_turn("get_queue_url", QueueName=place)
                    self._urls[place] = (await asyncio.shield(about))["QueueUrl"]
                call = await self._service.begin_in_turn(
                    "send_message", QueueUrl=self._urls[place], **arguments
                )
                began = True
                await asyncio.shield(call)
        except TimeoutError:
            text = TimeoutError(f"SQS has not confirmed within {timeout:g} s")
            raise failed_send(f"{self.where}/{place}", text, began=began) from None
        except failed.ClientError as fault:
            self._urls.pop(place, None)
            if code_of(fault) in _MISSING | _UNFIT:
                error = MissingPlaceError if code_of(fault) in _MISSING else RefusedTargetError
                raise error(f"{self.where}/{place}: {self._service.clean(fault)}") from None
            # An answer that it is the sender's fault says that SQS has kept nothing.
            began = began and fault.response["ResponseMetadata"]["HTTPStatusCode"] >= _SERVERS_FAULT
            raise failed_send(
                f"{self.where}/{place}", Exception(self._service.clean(fault)), began=began
            ) from self._service.meaning(fault)
        except (ConfigError, *_AWAY) as fault:
            began = began and not isinstance(fault, _UNCONNECTED)
            reason = fault if isinstance(fault, ConfigError) else None
            raise failed_send(
                f"{self.where}/{place}", Exception(self._service.clean(fault)), began=began
            ) from reason

    async def close(self) -> None:
        """Drop the client."""
        self._urls.clear()
        self._service.close()


def code_of(fault: Any) -> str:
    """Return the code of an answer."""
    return str(fault.response.get("Error", {}).get("Code", ""))


def _forget(future: "asyncio.Future[Any]") -> None:
    """Look at the exception of a call that nobody waits for any more, or asyncio reports it."""
    if not future.cancelled():
        future.exception()


def _token(text: str) -> str:
    return text if _TOKEN.fullmatch(text) else hashlib.sha256(text.encode()).hexdigest()


def _id(message_id: str, body: bytes, system: Mapping[str, str], *, by_group: bool) -> str:
    """Return a message's name: its sender's deduplication id, else SQS's own.

    A deduplication id that SQS made of the body names an order no better than the body does: two equal orders
    are two orders. And where ids count within a group only, the group belongs to the name.
    """
    token = system.get("MessageDeduplicationId")
    if token is None or token == hashlib.sha256(body).hexdigest():
        return message_id
    return f"{system.get('MessageGroupId', '')} {token}" if by_group else token


def _requirements_of(attributes: Mapping[str, str]) -> Requirements:
    """Return what a queue's attributes say about losses."""
    answers = Requirements()
    policy = attributes.get("RedrivePolicy")
    if policy:
        most = int(json.loads(policy).get("maxReceiveCount", 0))
        what = f"SQS moves a message to the dead-letter queue when it was received {most} times and not deleted; a crash or a deployment counts"
        if most < _FEW_RECEIPTS:
            answers.add("warning", what, f"set maxReceiveCount to {_FEW_RECEIPTS} or more")
        else:
            answers.add("ok", what)
    retention = int(attributes.get("MessageRetentionPeriod", _USUAL_RETENTION))
    what = f"SQS deletes a message that nobody took within {retention / 86_400:g} days, without a word"
    if retention < _USUAL_RETENTION:
        answers.add("warning", what, "set MessageRetentionPeriod to 1209600, 14 days")
    else:
        answers.add("ok", what)
    return answers
