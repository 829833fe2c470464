"""Commands for queues and notices.

``makegood queue send | receive | ack | list | replay | drop`` and ``makegood notices list | retry |
drop``.
"""

import shlex
from collections.abc import Callable, Sequence
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from makegood.base import ids, sizes
from makegood.base.counts import quantity
from makegood.base.durations import short_duration
from makegood.base.terminal_text import visible_json
from makegood.cli import exits
from makegood.cli.client import report_sent, run_read, run_work
from makegood.cli.codec_option import codec_option
from makegood.cli.command import Whole
from makegood.cli.commands.task import json_value
from makegood.cli.context import Cli, at_most, by_operator, command, flag, lasting, with_options
from makegood.cli.render.output import date_time
from makegood.client import as_json
from makegood.client.client import Client
from makegood.client.queues import LEASE, TRIES, Queue, queue_name
from makegood.console.redaction import Redaction
from makegood.model import notices
from makegood.model.queue_message import QueueMessage
from makegood.payload.codec import UNREADABLE
from makegood.store.queue_records import MessageView

BATCH = 100
"""Messages received in one go."""
MOST_SHOWN = 200
"""Characters of a value in a list of messages."""


# -- send ----------------------------------------------------------------------------------------------------


@command()
@click.argument("name", metavar="NAME")
@click.argument("value", metavar="VALUE|@FILE|-")
@click.option("--id", "id", metavar="ID", help="The message's id: the queue takes each id once.")
@click.option(
    "--reply-to", metavar="TO", help="Where to send the states of its task: queue:NAME or https://…"
)
@click.option(
    "--correlation-id",
    metavar="ID",
    help="Your own id: sent with the message and with every notification about it.",
)
@click.option("--kind", metavar="KIND", default="", help="The kind of message, for its receiver.")
@click.option("--header", "headers", metavar="NAME=TEXT", multiple=True, help="May be repeated.")
@lasting("--delay", default="0", show_default=False, text="Deliver it no earlier than after this long.")
@lasting("--expires", text="Drop it unread after this long.")
@lasting(
    "--remember", default="7d", text="With --id: how long the id is known once the message was acknowledged."
)
@codec_option
def send(cli: Cli, /, *, name: str, value: str, headers: tuple[str, ...], **options: Any) -> int:
    """Put a message into queue NAME: a JSON value, @FILE to read it from a file, or - from stdin. Writes its
    id.

    Exit 4 when the queue has a message of that --id with another value: it stays, and nothing was sent.
    """
    body = json_value(value, msgspec.Raw)
    if wrong_one := [header for header in headers if "=" not in header]:
        raise click.UsageError(f"--header {wrong_one[0]}: NAME=TEXT")
    heads = dict(header.split("=", 1) for header in headers) or None
    answer = run_work(cli, lambda client: client.send(name, body, headers=heads, **options))
    shape = {"id": answer.id, "created": answer.created, "conflict": answer.conflict, "queue": name}
    return report_sent(cli, shape, f"queue {name} knows a message {answer.id}")


# -- receive, ack --------------------------------------------------------------------------------------------


@command()
@click.argument("name", metavar="NAME")
@click.option("--max", "most", type=Whole(1), metavar="N", help="Stop after N messages.")
@flag("--follow", text="Continue as messages arrive, until Ctrl-C (or --max).")
@lasting("--timeout", text="Wait no longer for a message; then exit 7 when there was none at all.")
@flag(
    "--no-ack",
    text="Do not acknowledge: each message is redelivered after --lease unless you run `makegood queue ack` with its receipt.",
)
@lasting("--lease", default=LEASE, text="How long the lease on a message lasts.")
@click.option(
    "--tries", type=Whole(1), default=TRIES, show_default=True, metavar="N",
    help="Deliveries before a message becomes a dead letter.",
)  # fmt: skip
@codec_option
def receive(cli: Cli, /, *, name: str, lease: float, tries: int, **options: Any) -> int:
    """Receive the messages that wait in queue NAME, and write each in a line; with --json as an object.

    Each message is acknowledged once it is written, and leaves the queue then. A message that could not be
    written, because the reader has stopped, returns to the queue. Without --follow or --timeout the command
    receives what waits now, and ends.
    """
    return run_work(
        cli, lambda client: _receive(cli, client.queue(name, lease=lease, tries=tries), **options)
    )


async def _receive(
    cli: Cli, queue: Queue, *, most: int | None, follow: bool, timeout: float | None, no_ack: bool
) -> int:
    left, count = most, 0
    while left is None or left > 0:
        limit = BATCH if left is None else min(BATCH, left)
        wait = timeout if timeout is not None else None if follow else 0.0
        messages = await queue.receive(limit, timeout=wait if follow or not count else 0.0)
        if not messages:
            break
        await _write(cli, queue, messages, no_ack=no_ack)
        count += len(messages)
        left = None if left is None else left - len(messages)
    if count:
        return exits.DONE
    cli.note(f"makegood: no message waits in queue {queue.name}")
    return exits.DONE if timeout is None else exits.TIMED_OUT


async def _write(cli: Cli, queue: Queue, messages: Sequence[QueueMessage], *, no_ack: bool) -> None:
    """Write messages and acknowledge them; those that could not be written are released."""
    count = 0
    try:
        for message in messages:
            if cli.json:
                cli.out.record(as_json.message(message))
            else:
                receipt = f"{as_json.receipt(message)}  " if no_ack else ""
                cli.out.text(f"{receipt}{message.id}  {one_line(message.body)}")
            count += 1
    finally:
        if not no_ack and not await queue.acknowledge(*messages[:count]):
            cli.note(
                f"makegood: the lease of some messages of queue {queue.name} ended before makegood acknowledged them: they are redelivered"
            )
        if unwritten := messages[count:]:
            await queue.give_back(*unwritten)


def one_line(body: bytes) -> str:
    """Return a body as text on one line; if it is JSON, its value stays the same."""
    return visible_json(body.decode(errors="replace"))


@command()
@click.argument("name", metavar="NAME")
@click.argument("receipts", metavar="RECEIPT...", nargs=-1, required=True)
def ack(cli: Cli, /, *, name: str, receipts: tuple[str, ...]) -> int:
    """Acknowledge messages that `queue receive NAME --no-ack` wrote, by their receipts. Exit 4 if one was
    redelivered since.
    """
    queue_name(name)
    numbers = [as_json.of_receipt(text) for text in receipts]
    if None in numbers:
        raise click.UsageError(
            f"{receipts[numbers.index(None)]!r} is not a receipt: `queue receive {shlex.quote(name)} --no-ack` writes them, such as 12.1"
        )
    ours = [number for number in numbers if number is not None]
    answers = run_work(cli, lambda client: client.store.queues.acknowledge_messages(ours))
    pairs = [*zip(receipts, answers, strict=True)]
    cli.out.result([{"receipt": text, "acknowledged": success} for text, success in pairs])
    for text, success in pairs:
        if not success:
            cli.note(f"makegood: {text} is no longer valid: its message was acknowledged, or redelivered")
    return exits.DONE if all(answers) else exits.REFUSED


# -- list, replay, drop --------------------------------------------------------------------------------------


@command("list")
@click.argument("name", metavar="[NAME]", required=False)
@flag("--dead", text="Dead letters: messages that could not be handled.")
@at_most()
def list_(cli: Cli, /, *, name: str | None, dead: bool, limit: int) -> None:
    """List the queues; with NAME the messages that wait in it, with --dead those that could not be handled.
    Listing does not lease any message.
    """
    if name is not None or dead:
        views = run_read(cli, lambda client: client.messages(name, dead=dead, limit=limit))
        _messages(cli, views, name, dead=dead)
        if not views and name in cli.settings.options._broker_targets:
            cli.note(
                f"makegood: {name} is a broker of the settings: `makegood broker list` shows the queue of each place that orders are taken from"
            )
        return
    queues = run_read(cli, lambda client: client.queues())[:limit]
    rows = (
        (
            v.queue, v.waiting, v.taken, v.delayed, v.dead, sizes.size_text(v.bytes),
            None if v.oldest is None else short_duration(v.oldest), "yes" if v.read else "never",
        )
        for v in queues
    )  # fmt: skip
    heads = ("queue", "waiting", "taken", "delayed", "dead", "size", "oldest", "read")
    cli.out.listing(map(as_json.queue, queues), heads, rows, empty="no message in any queue")


def _messages(cli: Cli, views: list[MessageView], name: str | None, *, dead: bool) -> None:
    where = "any queue" if name is None else f"queue {name}"
    views = list(map(_mask, views))
    rows = (
        (
            v.message.queue, v.message.id, date_time(v.message.sent_at), v.message.tries, _state(v), v.message.error,
            _excerpt(one_line(v.message.body)),
        )
        for v in views
    )  # fmt: skip
    heads = ("queue", "id", "sent", "tries", "state", "error", "value")
    empty = f"no {'dead letter' if dead else 'message'} in {where}"
    cli.out.listing(map(as_json.mail, views), heads, rows, empty=empty, folds=False)


def _excerpt(value: str) -> str:
    whole = len(value) <= MOST_SHOWN
    return value if whole else f"{value[:MOST_SHOWN]}… ({len(value):,} characters: --json shows them)"


def _mask(view: MessageView) -> MessageView:
    """Return a message whose secret values are covered; one that is not JSON stays as it is."""
    try:
        msgspec.json.decode(view.message.body, type=msgspec.Raw)
    except UNREADABLE:
        return view
    body = Redaction().raw(view.message.body) or b""
    return replace(view, message=replace(view.message, body=body))


def _state(view: MessageView) -> str:
    if view.state == "dead":
        return f"dead since {date_time(view.ended)}"
    if view.due <= 0:
        return "waiting"
    return f"taken by {view.taken_by}" if view.taken_by else f"in {short_duration(view.due)}"


def _which(choice: tuple[str, ...], *, everything: bool, what: str) -> None:
    if bool(choice) == everything:
        raise click.UsageError(f"say which: {what}..., or --all")


def _of_many(what: str, all_of_them: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Make a function an operator's act on named items, or on all: it takes ``chosen`` and ``everything``."""
    argument = click.argument("chosen", metavar=f"[{what}]...", nargs=-1)
    every = flag("--all", "everything", text=all_of_them)
    return with_options(argument, every, by_operator)


@command()
@click.argument("name", metavar="NAME")
@click.option(
    "--value",
    metavar="JSON|@FILE|-",
    help="With one ID: what replaces the message's value; the audit keeps both.",
)
@_of_many("ID", "All dead letters of the queue.")
def replay(cli: Cli, /, **options: Any) -> int:
    """Return dead letters of queue NAME to it, and close their alerts."""
    return _revive(cli, **options, drop=False)


@command()
@click.argument("name", metavar="NAME")
@flag("--waiting", text="Waiting messages that no receiver has, instead of dead letters.")
@flag("--yes", "-y", text="With --all --waiting: do not ask.")
@_of_many("ID", "All dead letters of the queue; with --waiting, all waiting messages.")
def drop(cli: Cli, /, *, waiting: bool, yes: bool, **options: Any) -> int:
    """Remove dead letters of queue NAME for good, and close their alerts; with --waiting messages that nobody
    has received.

    --all --waiting shows how many messages wait, and asks for confirmation.
    """
    return _revive(cli, **options, drop=True, waiting=waiting, yes=yes)


def _revive(
    cli: Cli,
    *,
    name: str,
    chosen: tuple[str, ...],
    everything: bool,
    drop: bool,
    who: str | None,
    why: str,
    value: str | None = None,
    waiting: bool = False,
    yes: bool = False,
) -> int:
    _which(chosen, everything=everything, what="ID")
    if value is not None and len(chosen) != 1:
        raise click.UsageError("--value is for one message: name it by its ID")
    body = msgspec.UNSET if value is None else json_value(value, msgspec.Raw)
    if waiting and everything and not yes:
        queues = run_read(cli, lambda client: client.queues())
        message_count = sum(view.waiting + view.delayed for view in queues if view.queue == name)
        if message_count and not cli.confirm(
            f"drop {quantity(message_count, 'message')} that wait{'s' * (message_count == 1)} in queue {name}?"
        ):
            cli.note("nothing was done")
            cli.out.result({"dropped": [], "missing": []})
            return exits.DONE

    async def run(client: Client) -> list[str]:
        ids = None if everything else chosen
        if drop:
            return await client.drop_messages(name, ids, waiting=waiting, who=who, why=why)
        return await client.replay_messages(name, ids, value=body, who=who, why=why)

    what = f"message that waits in queue {name}" if waiting else f"dead letter in queue {name}"
    return _report_outcome(cli, run_work(cli, run), chosen, what, drop=drop)


def _report_outcome(cli: Cli, names: list[str], choice: Sequence[str], what: str, *, drop: bool) -> int:
    """Write the outcome for each chosen item; return the exit code: 3 when one of them did not exist."""
    missing = [name for name in choice if name not in names]
    lines = [f"{name} {'dropped' if drop else 'will be sent again'}" for name in names]
    cli.out.result({"dropped" if drop else "again": names, "missing": missing}, *lines)
    if not names and not choice and not cli.json:
        cli.note(f"no {what}")
    for name in missing:
        cli.note(f"makegood: there is no {what} with the id {name}")
    return exits.NOT_FOUND if missing else exits.DONE


# -- notices -------------------------------------------------------------------------------------------------


@command("list")
@flag("--dead", text="Only abandoned ones.")
@at_most()
def notices_list(cli: Cli, /, *, dead: bool, limit: int) -> None:
    """List notices to webhooks and brokers that were not delivered, abandoned ones first."""
    views = run_read(cli, lambda client: client.notices(dead=dead, limit=limit))
    rows = (
        (
            ids.show(v.task), notices.safe_address(v.url), v.last - v.sent, v.tries,
            "abandoned" if v.due is None else "due" if v.due <= 0 else f"in {short_duration(v.due)}", v.error,
        )
        for v in views
    )  # fmt: skip
    heads = ("task", "to", "unsent", "tries", "state", "error")
    cli.out.listing(map(as_json.listener, views), heads, rows, empty="no pending notifications")


@command("retry")
@_of_many("TASK", "For all tasks.")
def notices_retry(cli: Cli, /, **options: Any) -> int:
    """Send the abandoned notices of these tasks again, and close their alerts."""
    return _resend(cli, **options, drop=False)


@command("drop")
@_of_many("TASK", "For all tasks.")
def notices_drop(cli: Cli, /, **options: Any) -> int:
    """Drop the unsent notifications of these tasks, with --all the abandoned ones, and close their
    alerts.
    """
    return _resend(cli, **options, drop=True)


def _resend(
    cli: Cli, *, chosen: tuple[str, ...], everything: bool, drop: bool, who: str | None, why: str
) -> int:
    _which(chosen, everything=everything, what="TASK")

    async def run(client: Client) -> list[str]:
        verb = client.drop_notices if drop else client.retry_notices
        if everything:
            return await verb(who=who, why=why)
        return [notice for task in chosen for notice in await verb(task, who=who, why=why)]

    what = "unsent notice" if drop and not everything else "abandoned notice"
    return _report_outcome(cli, run_work(cli, run), chosen, what, drop=drop)
