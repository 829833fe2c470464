"""SQS by moto's server, a process of its own. It keeps nothing over a restart, and checks rights by action alone.

``MAKEGOOD_TEST_SQS=sqs://REGION`` runs ``tests/brokers/test_sqs.py`` on the real service, with the
credentials that boto3 finds.
"""

import asyncio
import json
import sys
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import boto3
from botocore.config import Config

from makegood.brokers import BrokerAddress, Target, address_of
from tests.brokers.rig import Draft, Received
from tests.brokers.rigs.private_server import PrivateProgram, RigBehindAWay

REGION = "eu-west-1"
T = TypeVar("T")

EVERYTHING = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}


class SqsRig(RigBehindAWay):
    """moto's SQS."""

    kind = "sqs"
    gives_ids = True
    takes_ids = False  # in standard queues; FIFO queues have a test of their own
    keeps_over_restart = False
    keeps_order = False
    durable_after = 0.0
    has_single_acknowledgements = True
    takes_empty = False
    has_connection = True
    takes_bytes = False
    checks_rights = True
    has_proxy = True
    redelivery = 12.0
    secrets = ("secret",)
    has_dead_letters = False
    most_bytes = 1 << 20
    visibility = 8

    def __init__(self) -> None:
        words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p"]
        super().__init__(PrivateProgram("moto", lambda _, port: [*words, str(port)]))
        self._admin = ("admin", "admin")
        self._queues: dict[str, Mapping[str, str]] = {}

    @property
    def target(self) -> Target:
        return self.target_of("shop", "secret")

    def target_of(self, key: str, secret: str) -> Target:
        """The broker with other credentials."""
        login = f"{key}:{urllib.request.quote(secret, safe='')}"  # type: ignore[attr-defined]
        return Target("sqs", "main", f"sqs://{login}@{REGION}?endpoint=http://127.0.0.1:{self.way.port}")

    def start(self) -> None:
        self.server.start()
        self._admin = ("admin", "admin")
        self._admin = self.user("admin", EVERYTHING)
        for queue, attributes in self._queues.items():
            self.client().create_queue(QueueName=queue, Attributes=attributes)

    def client(self, service: str = "sqs") -> Any:
        """Return a client past the way."""
        key, secret = self._admin
        return boto3.session.Session(key, secret, region_name=REGION).client(
            service,
            endpoint_url=f"http://127.0.0.1:{self.server.port}",
            config=Config(retries={"total_max_attempts": 1}),
        )

    def user(self, name: str, policy: Mapping[str, Any]) -> tuple[str, str]:
        """Make a user with a policy, and return its access key and secret."""
        iam = self.client("iam")
        iam.create_user(UserName=name)
        iam.put_user_policy(UserName=name, PolicyName="one", PolicyDocument=json.dumps(policy))
        key = iam.create_access_key(UserName=name)["AccessKey"]
        return key["AccessKeyId"], key["SecretAccessKey"]

    @staticmethod
    def in_moto(policy: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a policy as moto understands it: without resources, and with the batches' own actions.

        Amazon has none: "sqs:DeleteMessage" allows DeleteMessageBatch.
        """
        statements = [
            {
                **part,
                "Resource": "*",
                "Action": [*part["Action"], *(f"{action}Batch" for action in part["Action"])],
            }
            for part in policy["Statement"]
        ]
        return {**policy, "Statement": statements}

    def check_rights(self, on: bool) -> None:
        """Let moto check credentials and policies."""
        url = f"http://127.0.0.1:{self.server.port}/moto-api/reset-auth"
        data, headers = b"0" if on else b"1e12", {"Content-Type": "text/plain"}
        urllib.request.urlopen(urllib.request.Request(url, data, headers)).close()

    async def declare(self, place: str) -> BrokerAddress:
        attributes: dict[str, str] = {"FifoQueue": "true"} if place.endswith(".fifo") else {}
        await self.make(place, attributes)
        return address_of(f"sqs:main/{place}?visibility={self.visibility}", {"sqs"})

    async def make(self, place: str, attributes: Mapping[str, str]) -> str:
        """Make a queue with attributes; return its URL."""
        self._queues[place] = attributes
        answer = await _apart(lambda: self.client().create_queue(QueueName=place, Attributes=attributes))
        return str(answer["QueueUrl"])

    async def delete(self, place: str) -> None:
        del self._queues[place]
        client = self.client()
        await _apart(lambda: client.delete_queue(QueueUrl=self.url(place)))

    def url(self, place: str) -> str:
        """A queue's URL."""
        return f"http://127.0.0.1:{self.server.port}/123456789012/{place}"

    async def publish(self, place: str, drafts: Sequence[Draft]) -> None:
        await _apart(lambda: self._publish(place, drafts))

    def _publish(self, place: str, drafts: Sequence[Draft]) -> None:
        client = self.client()
        is_fifo = place.endswith(".fifo")
        for n, draft in enumerate(drafts):
            fifo = (
                {"MessageGroupId": "one", "MessageDeduplicationId": draft.id or f"{place}-{n}"}
                if is_fifo
                else {}
            )
            headers = {
                name: {"DataType": "String", "StringValue": value} for name, value in draft.headers.items()
            }
            client.send_message(
                QueueUrl=self.url(place), MessageBody=draft.body.decode(), MessageAttributes=headers, **fifo
            )

    async def waiting(self, address: BrokerAddress, group: str) -> int:
        answer = await _apart(
            lambda: self.client().get_queue_attributes(
                QueueUrl=self.url(address.place), AttributeNames=["All"]
            )
        )
        names = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
        return sum(int(answer["Attributes"][name]) for name in names)

    async def read(self, place: str) -> list[Received]:
        return await _apart(lambda: self._read(place))

    def _read(self, place: str) -> list[Received]:
        client = self.client()
        replies: list[Received] = []
        while messages := client.receive_message(
            QueueUrl=self.url(place),
            MaxNumberOfMessages=10,
            MessageAttributeNames=["All"],
            MessageSystemAttributeNames=["All"],
        ).get("Messages", []):
            for message in messages:
                system = message["Attributes"]
                replies.append(
                    Received(
                        body=message["Body"].encode(),
                        id=system.get("MessageDeduplicationId"),
                        key=system.get("MessageGroupId"),
                        content_type=message.get("MessageAttributes", {})
                        .get("content-type", {})
                        .get("StringValue"),
                    )
                )
                client.delete_message(QueueUrl=self.url(place), ReceiptHandle=message["ReceiptHandle"])
        return replies

    async def dead_letters(self, place: str) -> list[bytes]:
        raise AssertionError("SQS has no call that refuses a message")

    async def revoke(self) -> None:
        self.check_rights(on=True)

    async def grant(self) -> None:
        self.check_rights(on=False)


async def _apart(call: Callable[[], T]) -> T:
    return await asyncio.to_thread(call)
