"""Checks of users' brokers, for ``makegood broker check`` and ``makegood doctor``."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from makegood.brokers import (
    KINDS,
    BrokerAddress,
    Reader,
    Requirement,
    Source,
    address_of,
    open_sender,
    open_source,
)
from makegood.brokers.kinds import target_for
from makegood.cli.client import looked
from makegood.cli.context import Cli
from makegood.client.client import Client
from makegood.errors import BrokerUnavailableError, ConfigError, StoreError
from makegood.store.views import Finding
from makegood.story.brokers import BrokersView

_READER: Final = Reader("makegood-check", "check")
_PATIENCE: Final = 20.0
"""Seconds after which a broker's check is given up."""


def broker_findings(
    cli: Cli, reads: Sequence[BrokerAddress] = (), sends: Sequence[BrokerAddress] = ()
) -> list[Finding]:
    """Return what is found of the brokers of the settings and of places at them.

    ``reads``, ``sends``: the places; without any, those that running processes take orders from and those
    that ``reply_to_brokers`` names. Raises ``ConfigError`` for one whose broker the settings lack.
    """
    options = cli.settings.options
    targets = options._broker_targets
    if not (reads or sends):
        reads = _running(cli)
        sends = [address_of(text, KINDS) for text in (options.reply_to_brokers or "").split()]
    for address in (*reads, *sends):
        target_for(address, targets)
    if not cli.debug:  # aiormq shows the traceback of each connection that breaks, or that is closed
        logging.getLogger("aiormq").setLevel(logging.CRITICAL)
    return asyncio.run(_examined(cli, reads, sends))


def _running(cli: Cli) -> list[BrokerAddress]:
    """Return the places that running processes take orders from; none if the store does not say."""

    async def read(client: Client) -> BrokersView:
        return await client.brokers()

    try:
        return [address_of(each.address, KINDS) for each in looked(cli, read).sources]
    except StoreError as fault:
        cli.note(f"makegood: which places are read is unknown: {fault}")
        return []


async def _examined(
    cli: Cli, reads: Sequence[BrokerAddress], sends: Sequence[BrokerAddress]
) -> list[Finding]:
    results: list[Finding] = []
    targets = cli.settings.options._broker_targets
    for address in reads:
        results += await _of_source(str(address), open_source(address, targets, _READER))
    for target in targets.values():
        # An entry that ends with a * stands for any place, and is none itself.
        places = {each.place for each in sends if each.name == target.name and not each.place.endswith("*")}
        sender = open_sender(target)
        try:
            async with asyncio.timeout(_PATIENCE):
                results += _findings(target.where, await sender.check(sorted(places)))
        except (BrokerUnavailableError, ConfigError, TimeoutError) as fault:
            results.append(_failed(target.where, fault))
        finally:
            await sender.close()
    return results


async def _of_source(where: str, source: Source) -> list[Finding]:
    try:
        async with asyncio.timeout(_PATIENCE):
            return _findings(where, await source.check())
    except (BrokerUnavailableError, ConfigError, TimeoutError) as fault:
        return [_failed(where, fault)]
    finally:
        await source.close()


def _findings(where: str, requirements: Sequence[Requirement]) -> list[Finding]:
    return [Finding("broker", each.severity, f"{where}: {each.what}", each.remedy) for each in requirements]


def _failed(where: str, fault: Exception) -> Finding:
    why = f"no answer within {_PATIENCE:.0f} s" if isinstance(fault, TimeoutError) else str(fault)
    return Finding(
        "broker", "error", f"{where}: {why}", "see that the broker runs and can be reached from here"
    )
