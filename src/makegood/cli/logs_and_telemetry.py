"""Logs, probes and metrics of the command line's processes, as the settings ask.

``makegood.telemetry`` is loaded only when one of its features is requested.
"""

import logging
import os
import socket
import sys
from importlib import import_module
from typing import Any

from makegood.base.extras import optional
from makegood.cli.context import Cli
from makegood.telemetry.hooks import Observer
from makegood.telemetry.log_lines import CallFields, JsonLines, TextLines


def set_up_logs(cli: Cli) -> None:
    """Write logs to stderr, as text or as JSON."""
    stream = logging.StreamHandler(sys.stderr)
    stream.addFilter(CallFields())
    stream.setFormatter(JsonLines() if cli.settings.log_format == "json" else TextLines())
    logging.basicConfig(level=cli.settings.log_level.upper(), handlers=[stream])
    if cli.settings.log_level != "debug":
        # A line for each request of an action would drown all others.
        for chatty in ("httpx", "httpx2", "uvicorn"):
            logging.getLogger(chatty).setLevel(logging.WARNING)
        # It writes a traceback for each connection that breaks, beside our own sentence about it.
        logging.getLogger("aiormq").setLevel(logging.ERROR)
        # It writes eight errors a second while a broker is away, of which we write one sentence.
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


def telemetry_of(cli: Cli) -> Observer | None:
    """Return this process's observer, None when there is none."""
    settings = cli.settings
    if settings.listen is None and not settings.traces:
        return None
    traces = _provider() if settings.traces else False
    watcher: Observer = import_module("makegood.telemetry").Telemetry(listen=settings.listen, traces=traces)
    return watcher


def traces_of(cli: Cli) -> Observer | None:
    """Return the observer whose traces a command's submissions join, None when tracing is off.

    TRACEPARENT in the environment names their parent.
    """
    if not cli.settings.traces:
        return None
    provider = _provider()
    import_module("makegood.telemetry.sdk").inherit(os.environ)
    watcher: Observer = import_module("makegood.telemetry").Telemetry(traces=provider)
    return watcher


def _provider() -> Any:
    """Return the provider of spans.

    Raises ``ConfigError`` when OpenTelemetry's SDK or its exporter is not installed.
    """
    message = (
        "traces=on needs OpenTelemetry's SDK and its exporter: `pip install opentelemetry-sdk "
        "opentelemetry-exporter-otlp-proto-http`, or install makegood with its extra (in a checkout `pip install '.[otlp]'`)"
    )
    sdk = optional("makegood.telemetry.sdk", "opentelemetry", message)
    return sdk.provider(f"{socket.gethostname()}-{os.getpid()}")
