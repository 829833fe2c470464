"""The pages on orders from SQS and from Azure's queues: their files and commands, against the servers of the suites."""

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from makegood.brokers import permissions
from makegood.errors import ConfigError
from tests.brokers.rigs.service_bus import ServiceBusRig
from tests.brokers.rigs.sqs import REGION, SqsRig
from tests.brokers.rigs.storage_queue import ACCOUNT, FIRST, StorageQueueRig
from tests.docs.shell import typed, wait_for_sent
from tests.doors.conftest import Shop

DOCS = Path(__file__).resolve().parents[2] / "docs/build"
FILES = re.compile(r"^```(?:python|toml)\n# (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINES = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


@contextmanager
def followed(page: str, folder: Path, settings: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Do what a page says, with a broker that ``settings`` name, until its notices are sent.

    Yields what each of its commands printed.
    """
    text = (DOCS / page).read_text(encoding="utf-8")
    for name, block in FILES.findall(text):
        (folder / name).write_text(block, encoding="utf-8")
    output: dict[str, str] = {}
    shop = Shop(folder, f"sqlite:///{folder / 'makegood.db'}")
    try:
        for line in "".join(LINES.findall(text)).splitlines():
            if line.startswith("pip "):
                continue
            if line.startswith("makegood run "):
                shop.serve(*line.split()[1:], **settings)
            elif line == "makegood task list":
                until = time.monotonic() + 120
                while "processed" not in typed(line, folder, MAKEGOOD_STORE=shop.url, **settings):
                    assert time.monotonic() < until, "the order became no task, or the task did not end"
                output[line] = typed(line, folder, MAKEGOOD_STORE=shop.url, **settings)
            else:
                output[line] = typed(line, folder, MAKEGOOD_STORE=shop.url, **settings)
        wait_for_sent(3, folder, MAKEGOOD_STORE=shop.url, **settings)
        yield output
    finally:
        shop.close()


@pytest.fixture(scope="module")
def sqs() -> Iterator[SqsRig]:
    """SQS with the page's queues."""
    rig = SqsRig()
    try:
        rig.start()
        yield rig
    finally:
        rig.close()


async def test_an_order_in_sqs_becomes_a_task(sqs: SqsRig, tmp_path: Path) -> None:
    """From the page's first line to the notices; the queue of orders is empty then."""
    address = await sqs.declare("orders")
    await sqs.declare("notices.fifo")
    settings = {
        "MAKEGOOD_BROKERS_MAIN": sqs.target.url,
        "AWS_ENDPOINT_URL": sqs.target.url.partition("endpoint=")[2],
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "shop",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }
    with followed("orders-from-sqs.md", tmp_path, settings) as output:
        assert output["makegood broker permissions main --from orders --to notices.fifo"] == (
            permissions(sqs.target, ["orders"], ["notices.fifo"]) + "\n"
        )
        assert "o-1" in output["makegood task list"]
    assert await sqs.waiting(address, "") == 0


@pytest.fixture(scope="module")
def storage() -> Iterator[StorageQueueRig]:
    """Azurite."""
    rig = StorageQueueRig()
    try:
        try:
            rig.start()
        except ConfigError as absent:
            pytest.skip(str(absent))
        yield rig
    finally:
        rig.close()


async def test_an_order_in_a_storage_queue_becomes_a_task(storage: StorageQueueRig, tmp_path: Path) -> None:
    """From the page's first line to the notices; the queue of orders is empty then."""
    address = await storage.declare("orders")
    await storage.declare("notices")
    place = storage.target.url.partition("@")[2]
    settings = {
        "MAKEGOOD_BROKERS_MAIN": storage.target.url,
        "AZURE_STORAGE_CONNECTION_STRING": (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={FIRST};QueueEndpoint=http://{place}/{ACCOUNT};"
        ),
    }
    with followed("orders-from-storage-queues.md", tmp_path, settings) as output:
        assert output["makegood broker permissions main --from orders --to notices"] == (
            permissions(storage.target, ["orders"], ["notices"]) + "\n"
        )
        assert "o-1" in output["makegood task list"]
    assert await storage.waiting(address, "") == 0


@pytest.fixture(scope="module")
def service_bus() -> Iterator[ServiceBusRig]:
    """The stub."""
    rig = ServiceBusRig()
    try:
        try:
            rig.start()
        except ConfigError as absent:
            pytest.skip(str(absent))
        yield rig
    finally:
        rig.close()


async def test_an_order_in_service_bus_becomes_a_task(service_bus: ServiceBusRig, tmp_path: Path) -> None:
    """From the page's first line to the notices; the queue of orders is empty then."""
    address = service_bus.make("orders")
    service_bus.make("notices")
    text = service_bus.target.url
    settings = {"MAKEGOOD_BROKERS_MAIN": text, "SERVICEBUS_CONNECTION_STRING": text}
    with followed("orders-from-service-bus.md", tmp_path, settings) as output:
        assert output["makegood broker permissions main --from orders --to notices"] == (
            permissions(service_bus.target, ["orders"], ["notices"]) + "\n"
        )
        assert "o-1" in output["makegood task list"]
    assert await service_bus.waiting(address, "") == 0
