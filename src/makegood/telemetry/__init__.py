"""Watching: probes and metrics over HTTP, traces, structured logs. All of it optional, and nothing of it costs when not asked for.

A process that runs roles is watched when it is given a ``Telemetry``; the roles themselves do not know this package. Metrics need
prometheus-client (the extra ``prometheus``), traces opentelemetry-api (``otel``; ``otlp`` brings an SDK too); probes need nothing.
"""

from makegood.base.lazy import names

__getattr__, __dir__, __all__ = names(
    __name__, {"log_lines": "CallFields JsonLines TextLines", "telemetry": "Telemetry"}
)
