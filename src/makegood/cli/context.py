"""The context of one command-line call: the flags that every command takes, and the settings behind them.

``--store``, ``--require-tls``, ``--json``, ``--color`` and ``--debug`` are accepted anywhere: before the
command, after it, or between a group and its command.
"""

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any, TypeVar

import click

from makegood.base.durations import seconds
from makegood.base.terminal_text import visible
from makegood.cli.command import Command, SharedOption, Whole
from makegood.cli.render.output import Output, mask
from makegood.cli.settings import COLORS, KNOWN, CliSettings, duration, load
from makegood.errors import ConfigError, TaskNotFoundError
from makegood.payload.envelopes import Codec

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class Cli:
    """One call.

    ``flags`` are settings given on the command line; ``json`` and ``debug`` concern this call only. ``path``:
    the command that was named, as far as it was read. ``typed``: all its words.
    """

    def __init__(self) -> None:
        self.flags: dict[str, object] = {}
        self.json = False
        self.debug = False
        self.path = ""
        self.typed: tuple[str, ...] = ()
        self.codec: Codec | None = None
        """What decodes values, if the command names it: never unless it does."""

    @cached_property
    def settings(self) -> CliSettings:
        """All settings, read once: flag, then MAKEGOOD_*, then file, then default. Raises ``ConfigError``."""
        return load(self.flags)

    @property
    def store(self) -> str:
        """The URL of the store, without its secrets."""
        return mask(self.settings.store)

    @cached_property
    def out(self) -> Output:
        """Where results go."""
        return Output(json=self.json, color=self.settings.color)

    def note(self, text: str) -> None:
        """Print a note on stderr: for people, not a result."""
        print(visible(text), file=sys.stderr, flush=True)

    def confirm(self, question: str) -> bool:
        """Ask. Raises ``click.UsageError`` where nobody can answer."""
        try:
            return click.confirm(question, err=True)
        except click.Abort as nobody:
            if isinstance(nobody.__context__, KeyboardInterrupt):
                raise
            raise click.UsageError(
                "cannot ask for confirmation here: pass --yes. Nothing was changed"
            ) from nobody
        finally:
            if not sys.stdin.isatty():
                self.note("")


pass_cli = click.make_pass_decorator(Cli)


@contextlib.contextmanager
def naming_options(*names: str) -> Iterator[None]:
    """Let errors name options in place of Python's arguments: ``--limit`` for ``limit=``."""
    try:
        yield
    except (ConfigError, TaskNotFoundError) as error:
        argument = rf"(?<![\w:-])({'|'.join(names)})_?=(?=([\w'\"]?))"
        error.args = (re.sub(argument, lambda match: f"--{match[1]}{'=' * bool(match[2])}", str(error)),)
        raise


class Seconds(click.ParamType[float]):
    """An option's value that is a duration; the command gets seconds, at least ``least``."""

    name = "duration"

    def __init__(self, least: float = 0.0) -> None:
        self._least = least

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return seconds; a value that is not a duration is a usage error."""
        try:
            name = param.opts[0] if param is not None else "it"
            return seconds(duration(value, name), name=name, least=self._least)
        except ConfigError as wrong:
            self.fail(str(wrong), param, ctx)


def setting(name: str, *also: str, metavar: str, text: str) -> Callable[[Decorated], Decorated]:
    """Return an option that sets the setting of that name for this call; a wrong value is a usage error.

    ``also``: other names of the option.
    """

    def remember(ctx: click.Context, param: click.Parameter, value: object) -> None:
        if value is not None:
            try:
                KNOWN[name](value, f"--{name.replace('_', '-')}")
            except ConfigError as wrong:
                raise click.BadParameter(str(wrong), ctx, param) from wrong
            ctx.ensure_object(Cli).flags[name] = value

    flag = f"--{name.replace('_', '-')}"
    return click.option(flag, *also, metavar=metavar, expose_value=False, callback=remember, help=text)


def _remember(ctx: click.Context, param: click.Parameter, value: object) -> None:
    cli = ctx.ensure_object(Cli)
    if param.name in ("json", "debug"):
        setattr(cli, param.name, getattr(cli, param.name) or bool(value))
    elif value is not None and param.name is not None:
        cli.flags[param.name] = value


def with_options(*options: Callable[[Any], Any]) -> Callable[[Decorated], Decorated]:
    """Give a command several arguments and options, in this order."""

    def decorate(command: Decorated) -> Decorated:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


_shared = partial(click.option, cls=SharedOption, expose_value=False, callback=_remember)

common = with_options(
    _shared(
        "--store",
        metavar="URL",
        help="sqlite:///file.db or postgresql://user@host/database; else MAKEGOOD_STORE, else sqlite:///makegood.db.",
    ),
    _shared(
        "--require-tls/--no-require-tls",
        default=None,
        help="Refuse to connect to PostgreSQL on another machine without TLS; else MAKEGOOD_REQUIRE_TLS.",
    ),
    _shared("--json", is_flag=True, help="Write JSON to stdout."),
    _shared(
        "--color", type=click.Choice(COLORS), help="Colour and tables: auto asks the terminal and NO_COLOR."
    ),
    _shared("--debug", is_flag=True, help="Show the traceback of an error."),
)
"""Gives a command the options that every command has."""


def command(name: str | None = None, cls: type[Command] = Command) -> Callable[[Callable[..., Any]], Command]:
    """Make a function a command, with the options of every command; it gets the call, a ``Cli``, first."""

    def make_command(function: Callable[..., Any]) -> Command:
        own = vars(function).pop("__click_params__", [])
        call = common(pass_cli(function))
        vars(call)["__click_params__"] += own  # click reads them from the last to the first
        return click.command(name, cls=cls)(call)

    return make_command


def flag(*names: str, text: str) -> Callable[[Decorated], Decorated]:
    """Return an option without a value."""
    return click.option(*names, is_flag=True, help=text)


def lasting(*names: str, text: str, **more: Any) -> Callable[[Decorated], Decorated]:
    """Return an option whose value is a duration; the command gets seconds."""
    options = {"type": Seconds(), "metavar": "DURATION", "show_default": "default" in more, **more}
    return click.option(*names, help=text, **options)


def at_most(default: int = 100) -> Callable[[Decorated], Decorated]:
    """Return the option ``--limit``."""
    limit = Whole(1, 10_000)
    return click.option("--limit", type=limit, default=default, show_default=True, help="Show at most N.")


who_option = click.option("--who", metavar="NAME", help="The operator's name. [default: user@host]")


def why_option(text: str = "Why, for the audit.", **options: Any) -> Callable[[Decorated], Decorated]:
    """Return the option for an operator's reason: every act has it under this one name."""
    return click.option("--reason", "why", metavar="TEXT", help=text, **(options or {"default": ""}))


by_operator = with_options(why_option(), who_option)
"""Gives a command the options of an operator's act: ``why`` and ``who``."""
