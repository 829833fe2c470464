"""Telemetry: probes and metrics over HTTP, traces, structured logs. All of it is optional, and costs nothing
if unused.

A process that runs roles is watched if it is given a ``Telemetry``. The roles themselves do not know this
package. Metrics need prometheus-client (the extra ``prometheus``). Traces need opentelemetry-api (the extra
``otel``; ``otlp`` includes an SDK). Probes need nothing.
"""

from makegood.base.lazy import names

__getattr__, __dir__, __all__ = names(
    __name__, {"log_lines": "CallFields JsonLines TextLines", "telemetry": "Telemetry"}
)
