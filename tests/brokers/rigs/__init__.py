"""The brokers that the suites run on. A rig is imported, and its server started, when its first case runs."""

from importlib import import_module

import pytest

from makegood.errors import MakegoodError
from tests.brokers.rig import Rig

RIGS: dict[str, str] = {
    "nats": "tests.brokers.rigs.nats:NewNatsRig",
    "nats-2.9": "tests.brokers.rigs.nats:NatsRig",
    "rabbitmq-classic": "tests.brokers.rigs.rabbitmq:ClassicRig",
    "rabbitmq-quorum": "tests.brokers.rigs.rabbitmq:QuorumRig",
    "redis": "tests.brokers.rigs.redis:RedisRig",
    "valkey": "tests.brokers.rigs.redis:ValkeyRig",
    "kafka": "tests.brokers.rigs.kafka:KafkaRig",
    "kafka-tansu": "tests.brokers.rigs.kafka:TansuRig",
    "servicebus": "tests.brokers.rigs.service_bus:ServiceBusRig",
    "azure-queue": "tests.brokers.rigs.storage_queue:StorageQueueRig",
    "sqs": "tests.brokers.rigs.sqs:SqsRig",
    "kafka-real": "tests.brokers.rigs.kafka:RealKafkaRig",
}
"""By name: the module and the class of each rig."""

UNFIT: dict[str, dict[str, str]] = {
    "kafka-tansu": {
        "test_the_backlog_counts_what_nobody_has_acknowledged": "tansu 0.6 says that a partition ends in its last batch",
        "test_a_queue_that_is_made_anew_is_read_and_its_ids_are_new": "tansu 0.6 does not keep the note of a commit",
        "test_an_event_that_is_too_large_is_refused_for_good": "tansu 0.6 has no limit for messages",
        "test_what_a_stopped_broker_does_not_take_is_not_kept_in_memory": "each try begins with a refused idempotent producer",
    }
}
"""By rig: the cases that it cannot show, with the reason."""


def open_rig(name: str) -> Rig:
    """Return a rig with its server running. Skips the test, and says why, if it cannot be had here."""
    module, _, attribute = RIGS[name].partition(":")
    try:
        rig: Rig = getattr(import_module(module), attribute)()
        rig.start()
    except (MakegoodError, ImportError) as reason:
        pytest.skip(f"{name}: sources and senders were NOT tested: {reason}")
    return rig
