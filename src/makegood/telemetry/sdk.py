"""Support for OpenTelemetry's SDK: a source of ids, and the set-up of the command line. It needs the extra
``otlp``.

The command line sends its spans by OTLP over HTTP to OTEL_EXPORTER_OTLP_ENDPOINT. A program that has set its
own provider (or was started by ``opentelemetry-instrument``) keeps it. All other settings are OpenTelemetry's
variables: OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER, OTEL_EXPORTER_OTLP_HEADERS and so
on.
"""

import os
from collections.abc import Mapping
from typing import Final

from opentelemetry import context
from opentelemetry import trace as api
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from makegood.telemetry.traces import SettledIds

# seconds for an export, hence at most so long an orderly end waits for a collector that is away
_PATIENCE: Final = 3.0


class TaskIds(SettledIds, IdGenerator):
    """A source of ids for a program's own provider: ``TracerProvider(id_generator=TaskIds())``.

    The ids are random, except for the spans of tasks: every process can compute these, so that attempts of
    different processes are linked.
    """


def inherit(environ: Mapping[str, str]) -> None:
    """Make this process's spans children of the span in TRACEPARENT, if set: for a command that another
    program runs.
    """
    carrier = {name.lower(): environ[name] for name in ("TRACEPARENT", "TRACESTATE") if environ.get(name)}
    context.attach(TraceContextTextMapPropagator().extract(carrier))


def provider(instance: str) -> api.TracerProvider:
    """Return the global provider of spans, after setting one if there was none; ``instance`` names the
    process.
    """
    current = api.get_tracer_provider()
    if not isinstance(current, api.ProxyTracerProvider):
        return current
    attributes = {"service.instance.id": instance}
    if not os.environ.get("OTEL_SERVICE_NAME"):
        attributes["service.name"] = "makegood"
    tracer_provider = TracerProvider(resource=Resource.create(attributes), id_generator=TaskIds())
    has_timeout = any(os.environ.get(f"OTEL_EXPORTER_OTLP_{name}TIMEOUT") for name in ("", "TRACES_"))
    exporter = OTLPSpanExporter() if has_timeout else OTLPSpanExporter(timeout=_PATIENCE)
    tracer_provider.add_span_processor(BatchSpanProcessor(exporter))
    api.set_tracer_provider(tracer_provider)
    return tracer_provider
