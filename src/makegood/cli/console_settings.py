"""The console that the settings describe, and its address as it is printed."""

import os
import stat
from dataclasses import fields
from typing import Any, TextIO

from makegood.cli.settings import CliSettings
from makegood.console.options import DEFAULT, ConsoleOptions
from makegood.payload.envelopes import Codec


def console_options(settings: CliSettings, codec: Codec | None = None) -> ConsoleOptions:
    """Return where the console listens, who may use it and what it decodes. Raises ``ConfigError``."""
    names = [field.name for field in fields(ConsoleOptions) if field.name not in ("listen", "codec")]
    options: dict[str, Any] = {name: getattr(settings, f"console_{name}") for name in names}
    return ConsoleOptions(listen=settings.console or DEFAULT, codec=codec, **options)


def link_to_print(link: str, address: str, stream: TextIO, log_format: str = "text") -> str:
    """Return a console's address as it is printed: with its token, except into a log."""
    return address if log_format == "json" or _others_read(stream) else link


def _others_read(stream: TextIO) -> bool:
    """Whether systemd keeps what is written to a stream, or it is a file that other accounts may read."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    if stat.S_ISREG(status.st_mode) and status.st_mode & (stat.S_IRGRP | stat.S_IROTH):
        return True
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"
