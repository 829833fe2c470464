"""``makegood broker``: users' own brokers, from which orders come and to which notices go."""

import click
from msgspec.structs import asdict

from makegood.base.counts import up_to
from makegood.base.durations import short_duration
from makegood.brokers import KINDS, address_of, permissions, targets_of
from makegood.brokers.address import is_address
from makegood.brokers.kinds import target_for
from makegood.cli import exits
from makegood.cli.broker_checks import broker_findings
from makegood.cli.client import run_read
from makegood.cli.commands.doctor import lines_of
from makegood.cli.context import Cli, command
from makegood.client import as_json
from makegood.client.client import Client
from makegood.store.notice_records import COUNTED
from makegood.story.brokers import ReceiverView, SourceView

# -- list ----------------------------------------------------------------------------------------------------


@command("list")
def list_(cli: Cli) -> None:
    """List the places that orders are taken from and the brokers that notices go to: what waits, how old it
    is, what the running processes took, refused or sent, and the last error.
    """
    view = run_read(cli, Client.brokers)
    if cli.json:
        cli.out.document(as_json.brokers(view))
        return
    sources = (
        (
            each.address, each.queue, len(each.readers), each.waiting, each.oldest and short_duration(each.oldest), each.taken, each.refused,
            each.redelivered, _trouble(each),
        )
        for each in view.sources
    )  # fmt: skip
    heads = ("source", "queue", "readers", "waiting", "oldest", "taken", "refused", "redelivered", "error")
    cli.out.table(heads, list(sources), empty="no process takes orders from a broker")
    if view.sources and view.receivers:
        cli.out.text()
    receivers = (
        (
            each.broker, up_to(each.waiting, COUNTED), each.oldest and short_duration(each.oldest), each.sent, each.failed, up_to(each.dead, COUNTED),
            _trouble(each),
        )
        for each in view.receivers
    )  # fmt: skip
    columns = ("notices to", "waiting", "oldest", "sent", "failed", "given up", "error")
    cli.out.table(columns, list(receivers), empty="no notice goes to a broker")


def _trouble(each: SourceView | ReceiverView) -> str:
    return each.error if each.away is None else f"away for {short_duration(each.away)}: {each.error}"


# -- check ---------------------------------------------------------------------------------------------------


@command()
@click.argument("addresses", metavar="[ADDRESS...]", nargs=-1)
@click.option(
    "--to",
    "places",
    metavar="PLACE|ADDRESS",
    multiple=True,
    help="A place that notices go to, at the broker of ADDRESS or as an address; may be repeated.",
)
def check(cli: Cli, /, *, addresses: tuple[str, ...], places: tuple[str, ...]) -> int:
    """Check whether brokers are set up so that nothing is lost or sent twice; each finding has its remedy.

    ADDRESS is a place that orders are taken from, such as amqp:main/orders. Without any: the places that
    running processes take orders from, and those that reply_to_brokers names. It reads, and consumes nothing.
    Exit 1 for an error.
    """
    options = cli.settings.options
    if not options.brokers:
        raise click.UsageError(
            "the settings name no broker: [brokers] in makegood.toml, or MAKEGOOD_BROKERS_NAME"
        )
    reads = [address_of(text, KINDS) for text in addresses]
    brokers = {each.broker for each in reads}
    # A bare name is a place at the broker of the addresses, as for `broker permissions`.
    prefix = f"{brokers.pop()}/" if len(brokers) == 1 else ""
    sends = [
        address_of(text if is_address(text, KINDS) or "//" in text else f"{prefix}{text}", KINDS, "--to")
        for text in places
    ]
    results = broker_findings(cli, reads, sends)
    failed = any(finding.severity == "error" for finding in results)
    if cli.json:
        cli.out.document({"findings": [asdict(finding) for finding in results]})
    else:
        cli.out.lines(line for finding in results for line in lines_of(finding))
    return exits.FAILED if failed else exits.DONE


# -- permissions ---------------------------------------------------------------------------------------------


@command("permissions")
@click.argument("broker", metavar="NAME|URL|ADDRESS")
@click.option(
    "--from",
    "sources",
    metavar="PLACE",
    multiple=True,
    help="A place that orders are taken from; may be repeated.",
)
@click.option(
    "--to",
    "places",
    metavar="PLACE",
    multiple=True,
    help="A place that notices are sent to; may be repeated.",
)
def permissions_(cli: Cli, /, *, broker: str, sources: tuple[str, ...], places: tuple[str, ...]) -> None:
    """Print what the operator of a broker grants makegood, and nothing more: commands, or a policy.

    It connects nowhere. An ADDRESS such as amqp:main/orders is a place that orders are taken from.
    """
    targets = cli.settings.options._broker_targets
    if is_address(broker, KINDS) and not broker.partition(":")[2].startswith("//"):
        address = address_of(broker, KINDS)
        target, sources = target_for(address, targets), (address.place, *sources)
    elif broker in targets:
        target = targets[broker]
    else:
        if "://" not in broker:
            names = ", ".join(sorted(targets)) or "none"
            raise click.UsageError(
                f"{broker!r} is neither a broker of the settings (they have {names}) nor a URL"
            )
        (target,) = targets_of({"broker": broker}).values()
    sources, places = (
        tuple(text.removeprefix(f"{target.where}/") for text in texts) for texts in (sources, places)
    )
    if not sources and not places:
        raise click.UsageError(
            f"say which places: {target.where}/QUEUE for one that orders are taken from, --to QUEUE for one that notices go to"
        )
    text = permissions(target, sources, places)
    cli.out.result({"kind": target.kind, "permissions": text}, *text.splitlines())
