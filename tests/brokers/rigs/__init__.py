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
}
"""By name: the module and the class of each rig."""


def open_rig(name: str) -> Rig:
    """Return a rig with its server running. Skips the test, and says why, if it cannot be had here."""
    module, _, attribute = RIGS[name].partition(":")
    try:
        rig: Rig = getattr(import_module(module), attribute)()
        rig.start()
    except (MakegoodError, ImportError) as reason:
        pytest.skip(f"{name}: sources and senders were NOT tested: {reason}")
    return rig
