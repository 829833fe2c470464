"""``--codec``: the codec that a command decodes values with.

No setting names it: without the option a command shows values as they are stored.
"""

import click

from makegood.cli.context import Cli
from makegood.cli.import_app import load_codec


def _codec(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        try:
            ctx.ensure_object(Cli).codec = load_codec(value)
        except click.BadParameter as wrong:
            raise click.BadParameter(wrong.message, ctx, param) from wrong


codec_option = click.option(
    "--codec", metavar="MODULE:OBJECT", expose_value=False, callback=_codec,
    help="Decode and encode values with this codec, or with that of this App.",
)  # fmt: skip
"""Gives a command the codec of the values that it shows or states."""
