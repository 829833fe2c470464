"""Messages that a service hides: each is extended until it is settled, or somebody else's."""

import asyncio
from collections.abc import Mapping

import pytest

from makegood.brokers import address_of
from makegood.brokers.message_leases import MessageLeases, visibility_of
from makegood.errors import BrokerUnavailableError, ConfigError
from tests.waiting import until

SHORT = 0.03


class Service:
    """Gives each message a new receipt, but for those that it lost."""

    def __init__(self) -> None:
        self.calls: list[Mapping[str, str]] = []
        self.lost: set[str] = set()
        self.is_away = False
        self.third = asyncio.Event()

    async def extend(self, receipts: Mapping[str, str]) -> Mapping[str, str | None]:
        """Extend messages."""
        self.calls.append(dict(receipts))
        if len(self.calls) >= 3:
            self.third.set()
        if self.is_away:
            raise BrokerUnavailableError("away")
        return {name: None if name in self.lost else f"{receipt}+" for name, receipt in receipts.items()}


def now() -> float:
    """The loop's time."""
    return asyncio.get_running_loop().time()


async def test_a_message_is_extended_until_it_is_removed_and_the_latest_receipt_counts() -> None:
    """One call for all that are nearly due."""
    service = Service()
    leases = MessageLeases(SHORT, service.extend)
    assert leases.add("a", "a1", now())
    assert leases.add("b", "b1", now())
    await service.third.wait()
    receipts = await leases.remove(["a", "other"])
    assert receipts == {"a": "a1" + "+" * len(service.calls)}
    assert set(service.calls[0]) == {"a", "b"}
    assert set(await leases.close()) == {"b"}


async def test_a_message_that_is_not_ours_any_more_is_extended_no_more() -> None:
    """It has no receipt then; when it is delivered again it is new."""
    service = Service()
    service.lost.add("a")
    leases = MessageLeases(SHORT, service.extend)
    leases.add("a", "a1", now())
    leases.add("b", "b1", now())
    await service.third.wait()
    assert [set(call) for call in service.calls[:3]] == [{"a", "b"}, {"b"}, {"b"}]
    assert await leases.remove(["a"]) == {}
    assert leases.add("a", "a2", now())
    await leases.close()


async def test_a_message_that_is_delivered_again_while_it_is_here_is_not_new() -> None:
    """Its extension came too late: the new receipt counts."""
    leases = MessageLeases(60, Service().extend)
    assert leases.add("a", "a1", now())
    assert not leases.add("a", "a2", now())
    assert await leases.remove(["a"]) == {"a": "a2"}
    await leases.close()


async def test_an_outage_ends_the_extending_and_is_kept_for_the_next_call() -> None:
    """The source raises it, and lets go."""
    service = Service()
    service.is_away = True
    leases = MessageLeases(SHORT, service.extend)
    leases.add("a", "a1", now() - 1)

    async def ended() -> bool:
        return leases.fault is not None

    await until(ended, "the fault")
    assert str(leases.fault) == "away"
    assert len(service.calls) == 1
    assert await leases.close() == {"a": "a1"}


def test_what_visibility_may_be() -> None:
    """Whole seconds."""
    address = address_of("sqs:main/orders?visibility=5", {"sqs"})
    assert visibility_of(address, 10) == 5
    assert visibility_of(address_of("sqs:main/orders", {"sqs"}), 100) == 60
    for text in ("0", "11", "1.5", "5s", ""):
        with pytest.raises(ConfigError, match="from 1 to 10"):
            visibility_of(address_of(f"sqs:main/orders?visibility={text}", {"sqs"}), 10)
