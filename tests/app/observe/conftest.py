"""A small service behind the middleware."""

import asyncio
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from fastapi.testclient import TestClient
from starlette.types import ASGIApp, Message

from app.observe import Metrics, Observe, Trace

TIMES = ["x-tokenization-time", "x-queue-time", "x-inference-time"]


COUNTS = ["x-compute-tokens", "x-truncated-inputs"]


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture(autouse=True)
def _every_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "lattemix")


def service() -> FastAPI:
    app = FastAPI()

    @app.post("/embed/{name}")
    async def embed(name: str, request: Request) -> dict[str, str]:
        await request.body()
        trace: Trace = request.state.trace
        trace.tokenization, trace.queue, trace.inference = 0.0012345, 0.5, 2.0
        trace.sentences, trace.tokens, trace.cached, trace.truncated = 3, 40, 1, 2
        trace.model, trace.fingerprint = "tiny", "3f9a61c0b2d4"
        return {"id": trace.request_id}

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/ready")
    async def ready() -> JSONResponse:
        return JSONResponse({"status": "loading"}, 503)

    @app.get("/metrics")
    async def broken() -> None:
        raise RuntimeError("no metrics")

    @app.get("/late")
    async def late(request: Request) -> JSONResponse:
        request.state.trace.error_type = "Timeout"
        return JSONResponse({}, 503)

    return app


@pytest.fixture
def client(metrics: Metrics) -> Iterator[TestClient]:
    with TestClient(Observe(service(), metrics), raise_server_exceptions=False) as client:
        yield client


def logged(caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    """Fields of the only log line."""
    (record,) = [record for record in caplog.records if record.name == "lattemix"]
    assert record.getMessage() == "request"
    fields: dict[str, Any] = {**record.fields, "level": record.levelname}  # type: ignore[attr-defined]
    return fields


def counted(metrics: Metrics) -> set[tuple[str, str, str]]:
    """Path, method and status of the counted requests."""
    matches = re.findall(
        r'lattemix_requests_total\{method="(.*?)",path="(.*?)",status="(.*?)"\} 1\.0',
        metrics.render().decode(),
    )
    return {(path, method, status) for method, path, status in matches}


def drive(
    app: ASGIApp, incoming: list[Message] | None = None, **scope: object
) -> list[dict[str, Any]]:
    """Call the application as a server does, and return its messages."""
    sent: list[dict[str, Any]] = []
    messages = iter(incoming or [{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Message:
        return next(messages)

    async def send(message: Message) -> None:
        sent.append(dict(message))

    async def call() -> None:
        base = {"type": "http", "method": "POST", "path": "/embed/x", "query_string": b""}
        await app({**base, "headers": [], "root_path": "", **scope}, receive, send)

    asyncio.run(call())
    return sent


LEAVING: list[Message] = [
    {"type": "http.request", "body": b"{", "more_body": True},
    {"type": "http.disconnect"},
]
