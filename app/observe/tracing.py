"""Spans for an OpenTelemetry collector. Its libraries are imported only if tracing is on."""

from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.types import Scope

from app.observe.trace import Trace, method_of, route_of
from model_store import LatteMixError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_EXPORT_SECONDS = 5  # including retries: a dead collector must not delay the shutdown


class Tracer:
    """Exports each request as a span with a child span per stage."""

    def __init__(self, provider: "TracerProvider") -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("lattemix")

    def record(
        self, scope: Scope, trace: Trace, status: int, start_ns: int, seconds: float
    ) -> None:
        """Record the spans of a finished request; `start_ns` is since the epoch."""
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        method, route = method_of(scope), route_of(scope)
        attributes: dict[str, str | int] = {
            "http.request.method": method,
            "http.response.status_code": status,
            "lattemix.request_id": trace.request_id,
            "lattemix.sentences": trace.sentences,
            "lattemix.tokens": trace.tokens,
        }
        if route is not None:
            attributes["http.route"] = route
        span = self._tracer.start_span(
            f"{method} {route}" if route is not None else method,
            context=TraceContextTextMapPropagator().extract(Headers(scope=scope), Context()),
            kind=SpanKind.SERVER,
            attributes=attributes,
            start_time=start_ns,
        )
        context, start = set_span_in_context(span, Context()), start_ns
        for stage, spent in trace.stages().items():
            if spent > 0:
                end = start + _nanoseconds(spent)
                self._tracer.start_span(stage, context=context, start_time=start).end(end)
                start = end
        if status >= 500:
            span.set_status(StatusCode.ERROR)
        span.end(start_ns + _nanoseconds(seconds))

    def close(self) -> None:
        """Export the remaining spans. Blocks: do not call it on the event loop."""
        self._provider.shutdown()


def start(endpoint: str, service_version: str) -> Tracer:
    """Return a tracer that exports to the collector with base URL `endpoint`."""
    if not endpoint.startswith(("http://", "https://")):
        raise LatteMixError(
            "LATTEMIX_OTLP_ENDPOINT is the collector's base URL, such as http://localhost:4318."
        )
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise LatteMixError(
            "LATTEMIX_OTLP_ENDPOINT needs OpenTelemetry: pip install 'lattemix[otel]'."
        ) from error
    resource = Resource.create({"service.name": "lattemix", "service.version": service_version})
    # Not the global provider: FastAPI would then trace requests too, query strings included.
    provider = TracerProvider(resource=resource)
    exporter = OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces", timeout=_EXPORT_SECONDS)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Tracer(provider)


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
