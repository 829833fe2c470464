"""The page on orders from Kafka: its files and commands, against librdkafka's mock cluster."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from makegood.brokers import permissions
from tests.brokers.rigs.kafka import KafkaRig
from tests.docs.shell import typed, wait_for_sent
from tests.doors.conftest import Shop

PAGE = Path(__file__).resolve().parents[2] / "docs/build/orders-from-kafka.md"
FILES = re.compile(r"^```(?:python|toml)\n# (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINES = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def kafka() -> Iterator[KafkaRig]:
    """A cluster."""
    rig = KafkaRig()
    try:
        rig.start()
        yield rig
    finally:
        rig.close()


async def test_an_order_in_kafka_becomes_a_task_and_notices(kafka: KafkaRig, tmp_path: Path) -> None:
    """From the page's first line to the notices."""
    await kafka.declare("orders")
    await kafka.declare("notices")
    text = PAGE.read_text(encoding="utf-8")
    for name, block in FILES.findall(text):
        (tmp_path / name).write_text(block, encoding="utf-8")
    shop = Shop(tmp_path, f"sqlite:///{tmp_path / 'makegood.db'}")
    settings = {"MAKEGOOD_BROKERS_MAIN": kafka.target.url, "KAFKA": f"127.0.0.1:{kafka.port}"}

    def run(line: str) -> str:
        return typed(line, tmp_path, MAKEGOOD_STORE=shop.url, **settings)

    output = {}
    try:
        for line in "".join(LINES.findall(text)).splitlines():
            if line.startswith("pip "):
                continue
            if line.startswith("makegood run "):
                shop.serve(*line.split()[1:], **settings)
                continue
            output[line] = run(line)
            until = time.monotonic() + 120
            while line == "makegood task list" and "processed" not in output[line]:
                assert time.monotonic() < until, "the order became no task, or the task did not end"
                output[line] = run(line)
        wait_for_sent(3, tmp_path, MAKEGOOD_STORE=shop.url, **settings)
    finally:
        shop.close()
    rights = output["makegood broker permissions main --from orders --to notices"]
    assert rights == permissions(kafka.target, ["orders"], ["notices"]) + "\n"
    assert "o-1" in output["makegood task list"]
