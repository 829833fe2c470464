"""Checks of users' brokers, for ``makegood broker check`` and ``makegood doctor``."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from makegood.base.text import words
from makegood.brokers import (
    KINDS,
    BrokerAddress,
    Reader,
    address_of,
    check,
)
from makegood.brokers.kinds import target_for
from makegood.brokers.protocol import Answers
from makegood.cli.client import run_read
from makegood.cli.context import Cli
from makegood.client.client import Client
from makegood.client.queues import queue_name
from makegood.errors import BrokerUnavailableError, ConfigError, StoreError
from makegood.messaging.source_report import group_of
from makegood.store.views import Finding, NodeView

_NAME: Final = "check"
_GROUP: Final = "makegood-check"
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
    if reads or sends:
        by_group = _by_group(cli, reads)
    else:
        by_group, _ = _running(cli)
        sends = [address_of(text, KINDS) for text in (options.reply_to_brokers or "").split()]
    for address in (*chain(*by_group.values()), *sends):
        target_for(address, targets)
    if not cli.debug:  # they write of each connection that breaks, or that is closed
        for client in ("aiormq", "aiokafka"):
            logging.getLogger(client).setLevel(logging.CRITICAL)
    return asyncio.run(_examine(cli, by_group, sends))


def _by_group(cli: Cli, reads: Sequence[BrokerAddress]) -> dict[str, list[BrokerAddress]]:
    """Return places by the names under which running processes read them, or would: such a group may not be
    new to its topic. Where no name matters, or the store does not say, it is that of this check.

    Raises ``ConfigError`` for an address whose queue cannot have its name.
    """
    queues = {address: queue_name(address.queue) for address in reads}
    has_groups = any(KINDS[each.kind].has_groups for each in reads)
    running, store_id = _running(cli, is_quiet=True) if has_groups else ({}, "")
    by_group: dict[str, list[BrokerAddress]] = {}
    for address in reads:
        groups = [
            group
            for group, others in running.items()
            if any((each.name, each.place) == (address.name, address.place) for each in others)
        ]
        for group in groups or [group_of(store_id, queues[address]) if store_id else _GROUP]:
            by_group.setdefault(group, []).append(address)
    return by_group


def _running(cli: Cli, *, is_quiet: bool = False) -> tuple[dict[str, list[BrokerAddress]], str]:
    """Return the places that running processes take orders from, by the name under which they read, and the
    store's id; none if the store does not say, which is noted unless ``is_quiet``.
    """

    async def read(client: Client) -> tuple[list[NodeView], str]:
        return await client.store.nodes.views(), client.store.identity.store_id

    by_group: dict[str, list[BrokerAddress]] = {}
    try:
        nodes, store_id = run_read(cli, read)
    except StoreError as fault:
        if not is_quiet:
            cli.note(f"makegood: which places are read is unknown: {fault}")
        return by_group, ""
    for source in (source for node in nodes if node.state == "alive" for source in node.info.sources):
        address = replace(address_of(source.address, KINDS), parameters=source.parameters)
        addresses = by_group.setdefault(source.group or _GROUP, [])
        if address not in addresses:
            addresses.append(address)
    return by_group, store_id


async def _examine(
    cli: Cli, by_group: Mapping[str, Sequence[BrokerAddress]], sends: Sequence[BrokerAddress]
) -> list[Finding]:
    results: list[Finding] = []
    for target in cli.settings.options._broker_targets.values():
        # An entry that ends with a * stands for any place, and is none itself.
        places = {each.place for each in sends if each.name == target.name and not each.place.endswith("*")}
        reads = [
            (group, [each for each in addresses if each.name == target.name])
            for group, addresses in by_group.items()
        ]
        checks: list[tuple[str, list[BrokerAddress], list[str]]] = [
            (group, addresses, []) for group, addresses in reads if addresses
        ]
        if places or not checks:
            checks.append((_GROUP, [], sorted(places)))
        answers: Answers = []
        try:
            for group, addresses, targets in checks:
                async with asyncio.timeout(_PATIENCE):
                    answers += await check(target, addresses, targets, Reader(group, _NAME))
        except (BrokerUnavailableError, ConfigError, TimeoutError) as fault:
            results.append(_failure(target.where, fault))
        except Exception as defect:
            if cli.debug:
                raise
            what = f"{target.where}: unexpected {words(defect, named=True)}"
            results.append(
                Finding("broker", "error", what, "run it again with --debug, and report what it shows")
            )
        else:
            results += [
                Finding("broker", one.severity, f"{where}: {one.what}", one.remedy) for where, one in answers
            ] or [Finding("broker", "ok", f"{target.where}: it answers")]
    return results


def _failure(where: str, fault: Exception) -> Finding:
    if isinstance(fault, ConfigError):  # it says what to do
        return Finding("broker", "error", str(fault))
    what = f"{where}: no answer within {_PATIENCE:.0f} s" if isinstance(fault, TimeoutError) else str(fault)
    return Finding("broker", "error", what, "see that the broker runs and can be reached from here")
