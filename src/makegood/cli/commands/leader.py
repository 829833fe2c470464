"""``makegood leader`` and ``makegood election run``: who leads, who led, and commands bound to leading.

``makegood election run`` runs a command only while this process leads.
"""

import asyncio
import contextlib
import shlex
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from makegood.base.clock import SystemClock, iso
from makegood.base.durations import short_duration
from makegood.base.file_paths import check_searchable, exists, file_of
from makegood.base.urls import scheme_of
from makegood.cli import exits
from makegood.cli.client import connect, looking
from makegood.cli.command import Command, Whole
from makegood.cli.context import Cli, Seconds, command, flag, lasting, who_option, why_option
from makegood.cli.render.output import date_time
from makegood.client import as_json
from makegood.election import Election, LeaseStore, LeaseView, Term, TermView, View, open_leases
from makegood.election.command import LedCommand
from makegood.election.settings import belief
from makegood.errors import ConfigError, StoreUnavailableError, WaitExpiredError
from makegood.supervisor.supervisor import LEASE

LAST = 1.0
"""Seconds by which ``--wait`` may be exceeded.

They are for a last read of the store, and for releasing a lease that an unanswered request may have won.
"""


@command()
@click.argument("name", required=False)
@flag("--watch", text="Continue, and show every change.")
@flag("--past", text="Show past terms, and the gaps between them.")
@click.option(
    "--limit", type=Whole(1, 1000), default=20, show_default=True, help="Show at most N past terms."
)
@flag("--step-down", text="Ask the leading Supervisor to step down, so that another leads.")
@why_option("With --step-down: why, for the audit.")
@who_option
def leader(
    cli: Cli,
    /,
    *,
    name: str | None,
    watch: bool,
    past: bool,
    limit: int,
    step_down: bool,
    why: str,
    who: str | None,
) -> None:
    """Show who leads: holder, epoch, seconds left. Without NAME: which Supervisor leads; with NAME: that
    election, whose leases are kept at --store.
    """
    if watch + past + step_down > 1:
        raise click.UsageError("one of --past, --watch and --step-down")
    if step_down and name is not None:
        raise click.UsageError(
            "--step-down is for the leading Supervisor: a leader of your own steps down by term.step_down()"
        )
    if step_down:
        asyncio.run(_step_down(cli, why, who))
        return
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_show(cli, name, watch=watch, past=past, limit=limit))


async def _show(cli: Cli, name: str | None, *, watch: bool, past: bool, limit: int) -> None:
    async with _leases(cli, name) as leases:
        election = Election(name or LEASE, leases, me="onlooker")
        if past:
            _show_past(cli, await election.history(limit))
        elif watch:
            async for view in election.watch(every=1):
                _show_change(cli, name, view)
        else:
            _show_now(cli, name, await leases.read(name or LEASE))


async def _step_down(cli: Cli, why: str, who: str | None) -> None:
    async with connect(cli) as client:
        view = await client.store.leases.read(LEASE)
        holder = await client.step_down(epoch=0 if view is None else view.epoch, why=why, who=who)
    cli.out.result({"asked": holder}, f"{holder} is asked to step down: it does so after its present pass")


@asynccontextmanager
async def _leases(cli: Cli, name: str | None) -> AsyncIterator[LeaseStore]:
    """Open the leases for a name.

    The Supervisor's lease is in the state store. Those of other elections are where --store says, in tables
    of their own.
    """
    if name is None:
        async with looking(cli) as client:
            yield client.store.leases
    else:
        _verify_there(cli.settings.store)
        async with open_leases(cli.settings.store) as leases:
            yield leases


def _verify_there(url: str) -> None:
    """Raise ``ConfigError`` if ``url`` is a SQLite file that does not exist: to look must not create it."""
    if scheme_of(url) != "sqlite":
        return
    place = file_of(url)
    check_searchable(Path(place))
    if not exists(Path(place)):
        raise ConfigError(
            f"{place} does not exist: no election has used this file, or --store names another one"
        )


def _show_now(cli: Cli, name: str | None, view: LeaseView | None) -> None:
    if cli.json:
        cli.out.document(as_json.lease(view, name or LEASE))
    elif view is None or not view.held:
        last = f"; {view.holder} led last, in epoch {view.epoch}" if view is not None and view.holder else ""
        how = "a supervisor with `makegood supervisor` (or `makegood run`)"
        if name:
            how = f"`makegood election run {shlex.quote(name)} -- COMMAND`"
        cli.out.text(f"nobody leads{last}: start {how}")
    else:
        rows = [(view.holder, view.epoch, f"{view.remaining:.1f}", date_time(view.since))]
        cli.out.table(("leader", "epoch", "seconds left", "since"), rows, empty="")


def _show_change(cli: Cli, name: str | None, view: View) -> None:
    if cli.json:
        since = iso(view.since) if view.leader else None
        cli.out.record({"name": name or LEASE, "holder": view.leader, "epoch": view.epoch, "since": since})
    elif view.leader is None:
        cli.out.text(f"nobody leads; the last epoch was {view.epoch}" if view.epoch else "nobody leads")
    else:
        cli.out.text(f"{view.leader} leads in epoch {view.epoch}, since {date_time(view.since)}")


def _show_past(cli: Cli, terms: list[TermView]) -> None:
    documents = ({**asdict(t), "began": iso(t.began), "ended": iso(t.ended)} for t in terms)
    rows = (
        (
            term.epoch, term.holder, date_time(term.began), date_time(term.ended), _ending(term),
            None if term.gap is None else short_duration(term.gap),
        )
        for term in terms
    )  # fmt: skip
    heads = ("epoch", "leader", "from", "to", "ended", "gap before")
    cli.out.listing(documents, heads, rows, empty="nobody ever led")


def _ending(term: TermView) -> str | None:
    if term.ended is None:
        return None
    return "released" if term.released else "ran out"


class Led(Command):
    """A command that is followed by another one, after ``--``.

    Everything before ``--`` is ours, even if it is misspelt.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse ours, and leave the other one as it is."""
        theirs = args[args.index("--") + 1 :] if "--" in args else None
        try:
            words = super().parse_args(ctx, args)
        except click.NoSuchOption as unknown:
            if theirs is not None:
                raise
            message = unknown.format_message().rstrip(".")
            raise click.UsageError(f"{message} (write `--` before COMMAND)", ctx) from None
        if theirs is not None and list(ctx.params["command"]) != theirs and not ctx.resilient_parsing:
            raise click.UsageError("write NAME before `--`, and nothing but COMMAND after it", ctx)
        return words


@command("run", cls=Led)
@click.argument("name")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option(
    "--me", metavar="NAME", help="This candidate's name. [default: host, process and a random part]"
)
@lasting("--ttl", type=Seconds(least=0.1), default="15s", text="How long a lease lasts if it is not renewed.")
@lasting("--wind-down", text="Between SIGTERM and SIGKILL for the command. [default: ttl / 5]")
@lasting("--wait", text="Give up when not leading within this time (exit code 7).")
@lasting("--keep-lease", text="Keep the lease at least this long, even if the command ends earlier.")
@flag("--once", text="When the term is lost, do not contend again (exit code 4).")
def run(
    cli: Cli,
    /,
    *,
    name: str,
    command: tuple[str, ...],
    me: str | None,
    ttl: float,
    wind_down: float | None,
    wait: float | None,
    keep_lease: float | None,
    once: bool,
) -> int:
    """Run COMMAND only while this process leads the election NAME, whose leases are kept at --store. When the
    term ends, makegood stops the command and all that it started, and contends again.

    COMMAND finds MAKEGOOD_ELECTION, MAKEGOOD_CANDIDATE and MAKEGOOD_EPOCH in its environment. The epoch rises
    with every leader: write it with every change.

    Exits with COMMAND's code when it ends by itself (128 + n: by signal n); 0: stopped by SIGTERM; 4: the
    term was lost (--once); 7: did not lead within --wait; 8: did not lead, because the lease store could not
    be reached; 70: the keeper was killed, so the command was stopped; 126, 127: COMMAND cannot be run.
    """
    seconds = ttl / 5 if wind_down is None else wind_down
    _verify(cli.settings.store, ttl, seconds)
    led_command = LedCommand(command, wind_down=seconds, clock=SystemClock())
    options = {"me": me, "ttl": ttl, "wind_down": seconds, "renew": ttl / 4, "timeout": ttl / 4}
    return asyncio.run(
        _Runner(cli, name, led_command, keep_lease=keep_lease or 0.0).run(options, wait, once=once)
    )


def _verify(store: str, ttl: float, wind_down: float) -> None:
    """Raise ``ConfigError`` for unsound values, in the words of this command."""
    if store.partition(":")[0] == "memory":
        raise ConfigError(
            "--store memory: is in this process alone and excludes nobody: use a file or a server"
        )
    most = belief(ttl) - ttl / 2
    if wind_down >= most:
        raise ConfigError(
            f"--wind-down {short_duration(wind_down)} is too long for --ttl {short_duration(ttl)}: half of the ttl is for a renewal and its answer, so it must be "
            f"below {most:.4g} s; use a longer --ttl or a shorter --wind-down"
        )


class _Runner:
    """One call of ``election run``."""

    def __init__(self, cli: Cli, name: str, command: LedCommand, *, keep_lease: float) -> None:
        self._cli = cli
        self._name = name
        self._command = command
        self._keep_lease = keep_lease

    async def run(self, options: dict[str, Any], wait: float | None, *, once: bool) -> int:
        """Contend and run; return the exit code."""
        async with open_leases(self._cli.settings.store, timeout=options["timeout"]) as leases:
            election = Election(self._name, leases, **options)
            with election.listening():
                async with aclosing(election.terms()) as terms:
                    while (term := await self._next(terms, leases, wait)) is not None:
                        self._cli.note(f"makegood: {election.me} leads {self._name!r}, epoch {term.epoch}")
                        async with term:
                            await self._command.lead(term)
                            if self._keep_lease and self._command.code == 0:
                                await asyncio.sleep(self._keep_lease)
                        if self._command.unkept:
                            self._cli.note(
                                f"makegood: the keeper of the command (keeper.py) was killed, so the command was ended; then the "
                                f"lease of {self._name!r} was released"
                            )
                        if self._command.code is not None:
                            return self._command.code
                        if term.ending == "stepped down":  # any other end is a warning in the log
                            self._cli.note(
                                f"makegood: the term {term.epoch} of {self._name!r} is over: {term.ending}"
                            )
                        if once and term.ending != "stepped down":
                            return exits.REFUSED
        return exits.DONE

    async def _next(
        self, terms: AsyncGenerator[Term, None], leases: LeaseStore, wait: float | None
    ) -> Term | None:
        """Return the next term, None when asked to stop.

        Raises ``WaitExpiredError`` and ``StoreUnavailableError``.
        """
        if wait is None or self._command.runs:
            return await anext(terms, None)
        going = asyncio.ensure_future(anext(terms, None))
        try:
            await asyncio.wait([going], timeout=wait)
            if going.done():
                return going.result()
        finally:
            going.cancel()  # it gives back what it may have got
        # What is unanswered may take its time; whoever gave a time to wait does not.
        looking = asyncio.ensure_future(leases.read(self._name))
        await asyncio.wait([going, looking], timeout=LAST)
        going.cancel()
        await asyncio.wait([going])
        if not going.cancelled() and going.exception() is None:
            looking.cancel()
            return going.result()
        if not looking.done():
            looking.cancel()
            raise StoreUnavailableError(
                f"did not lead {self._name!r} within {short_duration(wait)}: the lease store does not answer"
            )
        view = View.of(looking.result())  # raises when the store is the reason
        raise WaitExpiredError(
            f"did not lead {self._name!r} within {short_duration(wait)}: {view.leader or 'nobody'} leads, epoch {view.epoch}"
        )
