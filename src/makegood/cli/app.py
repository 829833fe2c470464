"""The tree of commands, and the handling of errors.

Groups here only *name* their commands and say what each does. The module of a command is imported when the
command is called, so ``makegood --help`` loads neither rich nor a store nor the actors.
"""

import io
import os
import shlex
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import click

from makegood.cli import exits
from makegood.cli.context import Cli, common
from makegood.cli.render.output import mask
from makegood.errors import MakegoodError

Place = tuple[str, str]
"""Where a command is, "module:attribute" in this package, and what it does, for the list in ``--help``."""

PROCESSES: Mapping[str, Place] = {
    "run": ("commands.run:run", "Run every role of APP in one process."),
    "scheduler": ("commands.run:scheduler", "Run a Scheduler: it puts steps in order and records them."),
    "agent": ("commands.run:agent", "Run the named agents of APP: they call the remote services."),
    "supervisor": ("commands.run:supervisor", "Run a Supervisor: many may run, one leads."),
    "inbox": ("commands.run:inbox", "Run the inboxes of APP: messages become tasks."),
    "console": ("commands.console:console", "Serve the console: pages for operators."),
    "demo": ("commands.demo:demo", "Run the order example: real processes, killed on the way."),
}
TASKS: Mapping[str, Place] = {
    "submit": ("commands.task:submit", "Submit a task of WORKFLOW with the INPUTs."),
    "list": ("commands.task:list_", "List tasks, newest first."),
    "show": ("commands.task:show", "Show a task with its steps."),
    "watch": ("commands.task:watch", "Follow a task live; exit with its outcome."),
    "follow": ("commands.task:follow", "Follow a batch until all its tasks have ended."),
    "history": ("commands.task:history", "Show each transition with its time."),
    "cancel": ("commands.acts:cancel", "Stop tasks and undo what they did."),
    "undo": ("commands.acts:undo", "Undo tasks in error, or processed ones."),
    "resubmit": ("commands.acts:resubmit", "Start tasks in error, or undone ones, again."),
    "settle": ("commands.acts:settle", "State how a step of a task in error really ended."),
    "extend": ("commands.acts:extend", "Move the deadlines of tasks."),
    "wake": ("commands.acts:wake", "Let tasks that sleep continue now."),
    "signal": ("commands.signal:signal", "Send a value to a task that waits for it."),
}
LANES: Mapping[str, Place] = {
    "list": ("commands.lane:list_", "List lanes: who holds each, and how many wait."),
    "show": ("commands.lane:show", "Show who holds a lane, and who waits, in order."),
    "release": ("commands.acts:release_lane", "Take the lanes of a task in error away."),
}
QUEUES: Mapping[str, Place] = {
    "list": ("commands.queue:list_", "List queues, their messages, or dead letters."),
    "send": ("commands.queue:send", "Put a message into a queue."),
    "receive": ("commands.queue:receive", "Receive the messages of a queue."),
    "ack": ("commands.queue:ack", "Acknowledge messages received with --no-ack."),
    "replay": ("commands.queue:replay", "Return dead letters to their queue."),
    "drop": ("commands.queue:drop", "Remove dead letters for good."),
}
NOTICES: Mapping[str, Place] = {
    "list": ("commands.queue:notices_list", "List notices that were not delivered."),
    "retry": ("commands.queue:notices_retry", "Send abandoned notices again."),
    "drop": ("commands.queue:notices_drop", "Drop abandoned notices."),
}
BROKERS: Mapping[str, Place] = {
    "list": ("commands.broker:list_", "List sources and receivers: what waits, and the last error."),
    "check": ("commands.broker:check", "Check whether brokers lose or repeat what they should not."),
    "permissions": ("commands.broker:permissions_", "Print the rights that a broker grants makegood."),
}
STORE: Mapping[str, Place] = {
    "migrate": ("commands.store:migrate", "Bring the store's schema up to date."),
    "grants": ("commands.store:grants", "Print SQL for a PostgreSQL role of its own per kind of process."),
    "status": ("commands.store:status", "Show schema version, missing migrations and row counts."),
    "check": ("commands.store:check", "Verify integrity and durability."),
    "prune": ("commands.store:prune", "Remove tasks that ended long ago."),
    "restored": ("commands.restored:restored", "Record that the store was restored from a backup."),
}
ELECTION: Mapping[str, Place] = {
    "run": ("commands.leader:run", "Run COMMAND only while leading the election NAME.")
}
SCHEDULES: Mapping[str, Place] = {
    "list": ("commands.schedule:list_", "List schedules: when they fire next, and what they skipped."),
    "show": ("commands.schedule:show", "Show a schedule and its next moments."),
    "apply": ("commands.schedule:apply", "Write the schedules that APP declares."),
    "pause": ("commands.schedule:pause", "Let a schedule fire no more, for a time or until it is resumed."),
    "resume": ("commands.schedule:resume", "Let a schedule fire again."),
    "trigger": ("commands.schedule:trigger", "Submit a task of a schedule now."),
    "backfill": ("commands.schedule:backfill", "Submit tasks for moments that have none."),
    "delete": ("commands.schedule:delete", "Remove a schedule; its tasks stay."),
    "next": ("commands.schedule:next_", "Show when a cron text fires, and what clocks do to it."),
}
OPERATING: Mapping[str, Place] = {
    "task": ("app:task", "Submit, follow and operate tasks."),
    "lane": ("app:lane", "Show who holds lanes and who waits; release them."),
    "queue": ("app:queue", "Send and receive messages; dead letters."),
    "notices": ("app:notices", "Show undelivered notices; send them again."),
    "schedule": ("app:schedule", "Show and operate schedules; compute when one fires."),
    "broker": ("app:broker", "Show what waits at your brokers; check them."),
    "agents": ("commands.agents:agents", "Show the processes that run, and their agents."),
    "leader": ("commands.leader:leader", "Show who leads, and who led."),
    "election": ("app:election", "Run a command only while leading."),
    "alerts": ("commands.alerts:alerts", "Show what needs an operator; acknowledge it."),
    "audit": ("commands.alerts:audit", "Show what operators did."),
    "doctor": ("commands.doctor:doctor", "Examine store, clocks, leases, processes and settings."),
    "check": ("commands.check:check", "Check what APP declares, and that waiting steps can run on it."),
    "store": ("app:store", "Set up, check and prune the store."),
}


class Lazy(click.Group):
    """A group that knows its commands by name, in sections, and loads each when it is called."""

    def __init__(self, *args: Any, sections: Mapping[str, Mapping[str, Place]], **options: Any) -> None:
        super().__init__(*args, **options)
        self.sections = sections
        self.places = {name: place for commands in sections.values() for name, place in commands.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of the commands, in order."""
        return list(self.places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Load the command of that name, None when there is none."""
        place = self.places.get(cmd_name)
        if place is None:
            return None
        module, _, attribute = place[0].partition(":")
        command: click.Command = getattr(import_module(f"makegood.cli.{module}"), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command.

        The error for an unknown name lists, in full, the commands of any group that may be meant.
        """
        name = args[0]
        if name not in self.places and not name.startswith("-") and not ctx.resilient_parsing:
            near = suggestions(name, ctx)
            hint = f": did you mean {either([f'`{command}`' for command in near])}?" if near else ""
            raise click.NoSuchCommand(name, f"no such command {name!r}{hint}", ctx=ctx)
        ctx.ensure_object(Cli).path = f"{ctx.command_path} {name}"
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """Write the list of commands without loading any."""
        width = max(len(name) for name in self.places)
        for title, commands in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{width}}", place[1]) for name, place in commands.items()])


MEANT: Mapping[str, tuple[str, ...]] = {
    "retry": ("task resubmit", "task undo"),
    "rerun": ("task resubmit",),
    "restart": ("task resubmit",),
    "rollback": ("task undo",),
    "compensate": ("task undo",),
    "abort": ("task cancel",),
    "stop": ("task cancel",),
    "ack": ("alerts --ack",),
    "acknowledge": ("alerts --ack",),
    "events": ("task history",),
    "log": ("task history",),
    "ps": ("agents",),
    "nodes": ("agents",),
    "serve": ("run",),
    "upgrade": ("store migrate",),
    "init": ("store migrate",),
}
"""What other tools call a command: the commands to suggest for each of these words."""

MOST = 5
"""So many commands at most are suggested."""

_NEAR = 0.7
"""How alike two words must be for one to be a misspelling of the other."""


def every(group: Lazy, ctx: click.Context, *path: str) -> Iterator[tuple[str, ...]]:
    """Yield the path of each command of a group, commands of its groups after it; loads no other module."""
    for name, (place, _) in group.places.items():
        yield (*path, name)
        inner = group.get_command(ctx, name) if place.startswith("app:") else None
        if isinstance(inner, Lazy):
            yield from every(inner, ctx, *path, name)


def suggestions(name: str, ctx: click.Context) -> list[str]:
    """Return the commands, in full, that ``name`` may mean.

    These are the commands that other tools call so, and those of that name in any group; otherwise those
    spelt nearly so. Commands of the group where it was typed come first, and suffice for a misspelling.
    """
    root = ctx.find_root()
    if not isinstance(root.command, Lazy):
        return []
    word, here = name.lower().replace("_", "-"), tuple(ctx.command_path.split()[1:])
    commands = [*every(root.command, ctx)]
    paths = [tuple(spelling.split()) for spelling in MEANT.get(word, ())]
    paths += [path for path in commands if path[-1] == word]
    if not paths:
        near = get_close_matches(word, [path[-1] for path in commands], n=1, cutoff=_NEAR)
        paths = [path for path in commands if path[-1] in near]
        paths = [path for path in paths if path[:-1] == here] or paths
    paths.sort(key=lambda path: path[:-1] != here)
    return [" ".join((root.info_name or "makegood", *path)) for path in dict.fromkeys(paths)][:MOST]


def either(names: Sequence[str]) -> str:
    """Return names as a choice.

    >>> either(["a"]), either(["a", "b", "c"])
    ('a', 'a, b or c')
    """
    return " or ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


class Root(Lazy):
    """The root: turns every error into one sentence on stderr and an exit code."""

    def main(
        self, args: Sequence[str] | None = None, prog_name: str | None = None, *rest: Any, **extra: Any
    ) -> NoReturn:
        """Run a command and exit the process with its code."""
        cli: Cli = extra.setdefault("obj", Cli())
        cli.typed = tuple(sys.argv[1:] if args is None else args)
        if isinstance(sys.stdout, io.TextIOWrapper):  # a letter that its encoding lacks ends no command
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            # This is always the outermost.
            code = super().main(args, prog_name or "makegood", *rest, **{**extra, "standalone_mode": False})
        except click.exceptions.NoArgsIsHelpError as unsaid:
            unsaid.show()
            code = unsaid.exit_code
        except click.ClickException as wrong:
            code = wrong.exit_code
            print_error(cli, wrong, usage(wrong, cli.path))
        except click.Abort:
            code = exits.INTERRUPTED
        except MakegoodError as error:
            code = exits.code_of(error)
            print_error(cli, error, str(error))
        except Exception as defect:  # noqa: BLE001 - whatever it is, it is told in one sentence
            code = exits.FAILED
            what = f"unexpected {type(defect).__name__}: {defect}"
            print_error(cli, defect, f"{what}; run it again with --debug, and report what it shows")
        sys.exit(code if isinstance(code, int) else exits.DONE)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command.

        A reader of its output, such as ``head``, may stop before the end: that ends the command, and is not a
        failure.
        """
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for what is written until the process ends
            ctx.exit(exits.DONE)
        return result


def usage(wrong: click.ClickException, path: str = "") -> str:
    """Return a usage error in one sentence that names what is wrong and says how to get help.

    ``path``: the command that was named, for an error in the form of an option, which does not know it.
    """
    text = " ".join(wrong.format_message().split()).rstrip(".")
    if isinstance(wrong, click.BadParameter) and not isinstance(wrong, click.MissingParameter):
        option = (
            wrong.param.opts[0] if wrong.param is not None and wrong.param.opts[0].startswith("-") else ""
        )
        message = wrong.message.rstrip(".")
        text = message if message.startswith(option) else f"{option}: {message}"
    elif text[1:2].islower():
        text = text[0].lower() + text[1:]
    if isinstance(wrong, click.UsageError) and (wrong.ctx is not None or path):
        see = " See" if text.endswith(("?", "?)")) else "; see"
        text += f"{see} `{wrong.ctx.command_path if wrong.ctx is not None else path} --help`"
    return text


def print_error(cli: Cli, error: BaseException, sentence: str) -> None:
    """Write an error to stderr: one sentence, and with ``--debug`` where it arose."""
    if cli.debug:
        for line in "".join(traceback.format_exception(error)).rstrip().split("\n"):
            cli.note(_unsaid(cli, line))
    cli.note(_unsaid(cli, f"makegood: {sentence}"))


def _unsaid(cli: Cli, text: str) -> str:
    """Return a message without the URLs, and their secrets, that it repeats from the command line.

    click quotes words that it did not expect.
    """
    for word in cli.typed:
        url = word.partition("=")[2] if word.startswith("-") else word
        opaque = ":" in url and "@" in url and not url.lstrip().startswith(("{", "[", '"'))  # those are JSON
        if not (url.partition("://")[2] or opaque) or mask(url) == url:
            continue  # without a rest it has no secret, and may be the beginning of the remedy
        for form in (url, repr(url)[1:-1], " ".join(url.split()), *_words_of_filter(url)):
            text = text.replace(form, mask(url))
    return text


def _words_of_filter(url: str) -> list[str]:
    """Return the words of a URL that may hold a secret as a filter splits them, without quotes and
    backslashes.
    """
    try:
        words = shlex.split(url)
    except ValueError:  # the filter does not read it either, and does not repeat it
        return []
    return [word for word in words if "://" in word or (":" in word and "@" in word)]


def _version(ctx: click.Context, _param: click.Parameter, flag: bool) -> None:
    if flag and not ctx.resilient_parsing:
        metadata = import_module("importlib.metadata")  # slow to load, and wanted only here
        click.echo(f"makegood {metadata.version('makegood')}")
        ctx.exit()


@click.group(
    "makegood",
    cls=Root,
    sections={"Processes": PROCESSES, "Tasks and operation": OPERATING},
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 refused, 5 task undone, 6 task in error, "
    "7 timed out waiting, 8 store unreachable or unwritable, 9 migration needed, 130 interrupted.",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version."
)
@common
def main() -> None:
    """Run sagas: multi-step tasks across remote services that end done, undone, or in an operator's hands.

    APP is module:attribute, such as orders:shop. Settings come from a flag, else MAKEGOOD_* in the
    environment, else makegood.toml or [tool.makegood] in pyproject.toml, else a default.
    """


def _group(name: str, commands: Mapping[str, Place], text: str) -> Lazy:
    return common(Lazy(name, sections={"Commands": commands}, help=text))


task = _group("task", TASKS, "Submit, follow and operate tasks.")
lane = _group(
    "lane", LANES, "Show which tasks hold lanes and which wait; release the lanes of a task in error."
)
broker = _group(
    "broker", BROKERS, "Show users' own brokers, from which orders come and to which notices go; check them."
)
queue = _group("queue", QUEUES, "Send and receive messages; see dead letters and replay them.")
notices = _group(
    "notices", NOTICES, "Show notices to webhooks and brokers that were not delivered, and send them again."
)
store = _group("store", STORE, "Set up, check and prune the store.")
schedule = _group("schedule", SCHEDULES, "Show and operate schedules; compute when one fires.")
election = _group("election", ELECTION, "Elect a leader among processes and hosts.")
