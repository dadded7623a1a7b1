"""Ids, headers, log lines and counts of answered requests."""

import asyncio
import re

import pytest
from fastapi.testclient import TestClient
from starlette.types import Receive, Scope, Send

from app.observe import Metrics, Observe
from app.observe.logs import TextFormatter
from tests.app.observe.conftest import COUNTS, TIMES, counted, drive, logged, service


@pytest.mark.parametrize("sent", ["a", "A-z_0.9", "x" * 128])
def test_keeps_a_safe_request_id(
    client: TestClient, caplog: pytest.LogCaptureFixture, sent: str
) -> None:
    response = client.post("/embed/x", headers={"x-request-id": sent})
    assert response.headers["x-request-id"] == sent
    assert response.json() == {"id": sent}
    assert logged(caplog)["id"] == sent


@pytest.mark.parametrize(
    "sent", [b"", b"x" * 129, b"a b", b"a\nb", b"a\r\nset-cookie: x", b"a\n", b"<a>", b"\xe9"]
)
def test_replaces_an_unsafe_request_id(
    metrics: Metrics, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    start, _ = drive(Observe(service(), metrics), headers=[(b"x-request-id", sent)])
    (given,) = [value for name, value in start["headers"] if name == b"x-request-id"]
    assert re.fullmatch(rb"[0-9a-f]{32}", given)
    assert logged(caplog)["id"] == given.decode()


def test_new_request_ids_differ(client: TestClient) -> None:
    first, second = (client.get("/health").headers["x-request-id"] for _ in range(2))
    assert first != second


def test_response_headers_hold_times_and_counts(client: TestClient) -> None:
    headers = client.post("/embed/x").headers
    assert [headers[name] for name in TIMES] == ["1.234", "500.0", "2000.0"]
    assert [headers[name] for name in COUNTS] == ["40", "2"]
    assert (headers["x-model"], headers["x-fingerprint"]) == ("tiny", "3f9a61c0b2d4")
    assert re.fullmatch(r"\d+\.\d{1,3}", headers["x-total-time"])
    assert 0 < float(headers["x-total-time"]) < 60_000
    assert headers["content-type"] == "application/json"


def test_response_without_sentences_has_no_stage_headers(client: TestClient) -> None:
    headers = client.get("/health").headers
    assert "x-total-time" in headers
    assert not headers.keys() & {*TIMES, *COUNTS}


def test_measures_the_total_time(metrics: Metrics, caplog: pytest.LogCaptureFixture) -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.05)
        await send({"type": "http.response.start", "status": 204})
        await asyncio.sleep(0.05)
        await send({"type": "http.response.body"})

    start, _ = drive(Observe(slow, metrics))
    until_start = float(dict(start["headers"])[b"x-total-time"])
    assert until_start >= 50
    assert logged(caplog)["ms"] >= until_start + 50


def test_logs_and_counts_by_route(
    client: TestClient, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    client.post("/embed/private", headers={"x-request-id": "a"})
    fields = logged(caplog)
    assert fields.pop("ms") > 0
    assert fields == {
        "level": "INFO",
        "id": "a",
        "method": "POST",
        "path": "/embed/{name}",
        "status": 200,
        "model": "tiny",
        "sentences": 3,
        "cached": 1,
        "tokens": 40,
        "truncated": 2,
        "tokenization_ms": 1.234,
        "queue_ms": 500.0,
        "inference_ms": 2000.0,
    }
    assert counted(metrics) == {("/embed/{name}", "POST", "200")}
    assert b'lattemix_tokens_total{model="tiny"} 40.0' in metrics.render()


def test_unknown_paths_and_methods_create_no_time_series(
    client: TestClient, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    client.get("/" + "a" * 200)
    assert logged(caplog)["path"] == "/" + "a" * 79
    client.request("BREW", "/nowhere")
    client.request("BREW", "/health")
    assert counted(metrics) == {
        ("other", "GET", "404"),
        ("other", "_OTHER", "404"),
        ("/health", "_OTHER", "405"),
    }
    assert b"aaa" not in metrics.render()


def test_newline_in_a_path_cannot_forge_a_log_line(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    client.get("/x%0a2026-11-16T13:00:00.123Z%20INFO%20request%20status=200")
    assert "\n" in logged(caplog)["path"]
    line = TextFormatter().format(caplog.records[-1])
    assert len(line.splitlines()) == 1
    assert r'path="/x\n2026-11-16T13:00:00.123Z INFO request status=200" status=404' in line


def test_logs_and_counts_no_text_key_or_query(
    client: TestClient, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    headers = {"authorization": "Bearer secret", "cookie": "secret", "x-request-id": "secret sign"}
    client.post("/embed/secret?q=secret", json={"inputs": "secret"}, headers=headers)
    assert logged(caplog)["status"] == 200
    assert "secret" not in TextFormatter().format(caplog.records[-1])
    assert b"secret" not in metrics.render()


@pytest.mark.parametrize(
    ("path", "status", "level"),
    [
        ("/health", 200, "DEBUG"),
        ("/ready", 503, "DEBUG"),
        ("/metrics", 500, "ERROR"),
        ("/late", 503, "ERROR"),
        ("/nowhere", 404, "INFO"),
    ],
)
def test_log_level_by_route_and_status(
    client: TestClient, caplog: pytest.LogCaptureFixture, path: str, status: int, level: str
) -> None:
    assert client.get(path).status_code == status
    assert logged(caplog)["level"] == level


def test_logs_and_counts_the_error_type(
    client: TestClient, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    client.get("/late")
    assert logged(caplog)["error_type"] == "Timeout"
    assert b'lattemix_rejected_total{reason="Timeout"} 1.0' in metrics.render()
