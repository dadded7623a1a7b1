import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from opentelemetry import trace as api
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from app.observe import Metrics, Observe, Tracer
from app.observe.tracing import start
from model_store import LatteMixError

ROOT = Path(__file__).parents[3]
TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def service(tracer: Tracer) -> TestClient:
    app = FastAPI()

    @app.post("/similarity")
    async def similarity(request: Request) -> None:
        trace = request.state.trace
        trace.tokenization, trace.inference = 0.001, 0.03  # queue: none
        trace.sentences, trace.tokens = 2, 14

    @app.get("/broken")
    async def broken() -> None:
        raise RuntimeError

    return TestClient(Observe(app, Metrics(), tracer), raise_server_exceptions=False)


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def client(exporter: InMemorySpanExporter) -> TestClient:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return service(Tracer(provider))


def named(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def test_exports_a_request_as_a_server_span(
    client: TestClient, exporter: InMemorySpanExporter
) -> None:
    client.post("/similarity?q=secret", headers={"x-request-id": "a"})
    span = named(exporter)["POST /similarity"]
    assert span.kind is SpanKind.SERVER
    assert span.parent is None
    assert span.status.status_code is StatusCode.UNSET
    assert span.attributes == {
        "http.request.method": "POST",
        "http.route": "/similarity",
        "http.response.status_code": 200,
        "lattemix.request_id": "a",
        "lattemix.sentences": 2,
        "lattemix.tokens": 14,
    }


def test_stages_are_consecutive_child_spans(
    client: TestClient, exporter: InMemorySpanExporter
) -> None:
    client.post("/similarity")
    spans = named(exporter)
    assert set(spans) == {"POST /similarity", "tokenization", "inference"}  # no time, no span
    request, first, last = (spans[n] for n in ("POST /similarity", "tokenization", "inference"))
    for child in (first, last):
        assert child.parent is not None
        assert child.parent.span_id == request.context.span_id
        assert child.context.trace_id == request.context.trace_id
    began = request.start_time
    assert began is not None
    assert abs(began - time.time_ns()) < 60 * 10**9
    assert (first.start_time, first.end_time) == (began, began + 1_000_000)
    assert (last.start_time, last.end_time) == (first.end_time, began + 31_000_000)
    assert request.end_time is not None
    assert 0 < request.end_time - began < 60 * 10**9


def test_uses_the_clients_trace_as_parent(
    client: TestClient, exporter: InMemorySpanExporter
) -> None:
    client.post("/similarity", headers={"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01"})
    span = named(exporter)["POST /similarity"]
    assert f"{span.context.trace_id:032x}" == TRACE_ID
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == PARENT_ID


def test_does_not_export_if_the_parent_is_not_sampled(
    client: TestClient, exporter: InMemorySpanExporter
) -> None:
    client.post("/similarity", headers={"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-00"})
    assert named(exporter) == {}


def test_ignores_an_invalid_parent(client: TestClient, exporter: InMemorySpanExporter) -> None:
    client.post("/similarity", headers={"traceparent": "00-zz-1-01"})
    assert named(exporter)["POST /similarity"].parent is None


def test_only_server_errors_set_the_error_status(
    client: TestClient, exporter: InMemorySpanExporter
) -> None:
    client.get("/broken")
    client.get("/secret")
    spans = named(exporter)
    assert spans["GET /broken"].status.status_code is StatusCode.ERROR
    assert spans["GET"].status.status_code is StatusCode.UNSET
    assert "http.route" not in (spans["GET"].attributes or {})
    assert "secret" not in str([span.to_json() for span in spans.values()])


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """Base URL of a collector, and the requests it received."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    received: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            received.append((self.path, body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", received
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("base", "expected"), [("", "/v1/traces"), ("/", "/v1/traces"), ("/otlp/", "/otlp/v1/traces")]
)
def test_close_exports_the_remaining_spans(
    collector: tuple[str, list[tuple[str, bytes]]], base: str, expected: str
) -> None:
    endpoint, received = collector
    tracer = start(endpoint + base, "1.2.3")
    service(tracer).post("/similarity")
    tracer.close()
    ((path, body),) = received
    assert path == expected
    (resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
    about = {item.key: item.value.string_value for item in resource.resource.attributes}
    assert (about["service.name"], about["service.version"]) == ("lattemix", "1.2.3")
    names = {span.name for scope in resource.scope_spans for span in scope.spans}
    assert names == {"POST /similarity", "tokenization", "inference"}


def test_does_not_set_the_global_provider(
    collector: tuple[str, list[tuple[str, bytes]]],
) -> None:
    before = api.get_tracer_provider()
    start(collector[0], "1").close()
    assert api.get_tracer_provider() is before
    assert not isinstance(before, TracerProvider)


def test_names_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(LatteMixError) as caught:
        start("http://localhost:4318", "1")
    assert str(caught.value) == (
        "LATTEMIX_OTLP_ENDPOINT needs OpenTelemetry: pip install 'lattemix[otel]'."
    )


def test_rejects_an_endpoint_without_a_scheme() -> None:
    with pytest.raises(LatteMixError, match="LATTEMIX_OTLP_ENDPOINT is the collector's base URL"):
        start("localhost:4318", "1")


def test_does_not_import_opentelemetry_unless_tracing_is_on() -> None:
    # In a new interpreter without FastAPI, which may import OpenTelemetry itself.
    code = """
import app.observe, sys
print(*[name for name in sys.modules if name.split(".")[0] == "opentelemetry"])
print("app.observe.tracing" in sys.modules)
"""
    command = [sys.executable, "-c", code]
    output = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert output.split() == ["True"]
