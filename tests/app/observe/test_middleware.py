import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.testclient import TestClient
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.observe import Metrics, Observe, Trace
from app.observe.logs import TextFormatter

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

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            for part in (b"one ", b"two ", b"three"):
                yield part

        return StreamingResponse(parts())

    return app


@pytest.fixture
def client(metrics: Metrics) -> Iterator[TestClient]:
    with TestClient(Observe(service(), metrics), raise_server_exceptions=False) as client:
        yield client


def logged(caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    """The fields of the one line that was logged."""
    (record,) = [record for record in caplog.records if record.name == "lattemix"]
    assert record.getMessage() == "request"
    fields: dict[str, Any] = {**record.fields, "level": record.levelname}  # type: ignore[attr-defined]
    return fields


def counted(metrics: Metrics) -> set[tuple[str, str, str]]:
    """Path, method and status of the requests that were counted."""
    found = re.findall(
        r'lattemix_requests_total\{method="(.*?)",path="(.*?)",status="(.*?)"\} 1\.0',
        metrics.render().decode(),
    )
    return {(path, method, status) for method, path, status in found}


def drive(
    app: ASGIApp, incoming: list[Message] | None = None, **scope: object
) -> list[dict[str, Any]]:
    """Call the application as a server would, and return what it sent."""
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


@pytest.mark.parametrize("sent", ["a", "A-z_0.9", "x" * 128])
def test_a_harmless_request_id_is_kept(
    client: TestClient, caplog: pytest.LogCaptureFixture, sent: str
) -> None:
    response = client.post("/embed/x", headers={"x-request-id": sent})
    assert response.headers["x-request-id"] == sent
    assert response.json() == {"id": sent}
    assert logged(caplog)["id"] == sent


@pytest.mark.parametrize(
    "sent", [b"", b"x" * 129, b"a b", b"a\nb", b"a\r\nset-cookie: x", b"a\n", b"<a>", b"\xe9"]
)
def test_any_other_request_id_is_replaced(
    metrics: Metrics, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    start, _ = drive(Observe(service(), metrics), headers=[(b"x-request-id", sent)])
    (given,) = [value for name, value in start["headers"] if name == b"x-request-id"]
    assert re.fullmatch(rb"[0-9a-f]{32}", given)
    assert logged(caplog)["id"] == given.decode()


def test_new_request_ids_differ(client: TestClient) -> None:
    first, second = (client.get("/health").headers["x-request-id"] for _ in range(2))
    assert first != second


def test_an_answer_says_what_it_took(client: TestClient) -> None:
    headers = client.post("/embed/x").headers
    assert [headers[name] for name in TIMES] == ["1.234", "500.0", "2000.0"]
    assert [headers[name] for name in COUNTS] == ["40", "2"]
    assert re.fullmatch(r"\d+\.\d{1,3}", headers["x-total-time"])
    assert 0 < float(headers["x-total-time"]) < 60_000
    assert headers["content-type"] == "application/json"


def test_an_answer_without_sentences_says_less(client: TestClient) -> None:
    headers = client.get("/health").headers
    assert "x-total-time" in headers
    assert not headers.keys() & {*TIMES, *COUNTS}


def test_the_total_time_is_measured(metrics: Metrics, caplog: pytest.LogCaptureFixture) -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.05)
        await send({"type": "http.response.start", "status": 204})
        await asyncio.sleep(0.05)
        await send({"type": "http.response.body"})

    start, _ = drive(Observe(slow, metrics))
    until_start = float(dict(start["headers"])[b"x-total-time"])
    assert until_start >= 50
    assert logged(caplog)["ms"] >= until_start + 50


def test_a_request_is_logged_and_counted_by_its_route(
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
        "sentences": 3,
        "cached": 1,
        "tokens": 40,
        "truncated": 2,
        "tokenization_ms": 1.234,
        "queue_ms": 500.0,
        "inference_ms": 2000.0,
    }
    assert counted(metrics) == {("/embed/{name}", "POST", "200")}
    assert b"lattemix_tokens_total 40.0" in metrics.render()


def test_unknown_paths_and_methods_make_no_new_series(
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


def test_a_newline_in_a_path_forges_no_line(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    client.get("/x%0a2026-11-16T13:00:00.123Z%20INFO%20request%20status=200")
    assert "\n" in logged(caplog)["path"]
    line = TextFormatter().format(caplog.records[-1])
    assert len(line.splitlines()) == 1
    assert r'path="/x\n2026-11-16T13:00:00.123Z INFO request status=200" status=404' in line


def test_no_sentence_key_or_query_is_logged_or_counted(
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
def test_levels(
    client: TestClient, caplog: pytest.LogCaptureFixture, path: str, status: int, level: str
) -> None:
    assert client.get(path).status_code == status
    assert logged(caplog)["level"] == level


def test_an_error_type_is_logged_and_counted(
    client: TestClient, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    client.get("/late")
    assert logged(caplog)["error_type"] == "Timeout"
    assert b'lattemix_rejected_total{reason="Timeout"} 1.0' in metrics.render()


def test_an_exception_is_recorded_and_goes_on(
    metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("a secret sentence")

    with pytest.raises(RuntimeError, match="a secret sentence"):
        drive(Observe(broken, metrics))
    fields = logged(caplog)
    assert (fields["status"], fields["level"]) == (500, "ERROR")
    assert fields["fault"] == "RuntimeError"
    assert counted(metrics) == {("other", "POST", "500")}
    assert b'lattemix_rejected_total{reason="Internal"} 1.0' in metrics.render()
    assert "a secret sentence" not in TextFormatter().format(caplog.records[-1])


def test_the_answer_to_an_exception_carries_its_id(
    metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    app = service()
    app.middleware_stack = Observe(app.build_middleware_stack(), metrics)
    client = TestClient(app, raise_server_exceptions=False)
    response = client.get("/metrics", headers={"x-request-id": "a"})
    assert (response.status_code, response.headers["x-request-id"]) == (500, "a")
    assert logged(caplog)["fault"] == "RuntimeError"
    with pytest.raises(RuntimeError, match="no metrics"):
        TestClient(app).get("/metrics")


def test_an_exception_after_the_answer_began_keeps_its_status(
    metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("too late")

    with pytest.raises(RuntimeError, match="too late"):
        drive(Observe(broken, metrics))
    fields = logged(caplog)
    assert (fields["status"], fields["fault"]) == (200, "RuntimeError")


def test_no_answer_at_all_is_a_fault(metrics: Metrics) -> None:
    async def silent(scope: Scope, receive: Receive, send: Send) -> None:
        pass

    assert drive(Observe(silent, metrics)) == []
    assert counted(metrics) == {("other", "POST", "500")}


def test_a_client_that_leaves_before_its_answer_is_499(
    metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    async def patient(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    body = {"type": "http.request", "body": b"", "more_body": True}
    assert drive(Observe(patient, metrics), [body, {"type": "http.disconnect"}]) == []
    assert (logged(caplog)["status"], logged(caplog)["level"]) == (499, "INFO")
    assert counted(metrics) == {("other", "POST", "499")}


LEAVING: list[Message] = [
    {"type": "http.request", "body": b"{", "more_body": True},
    {"type": "http.disconnect"},
]


def test_a_client_that_leaves_while_it_sends_is_499_and_no_fault(
    metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ClientDisconnect):
        drive(Observe(service(), metrics), LEAVING)
    assert (logged(caplog)["status"], logged(caplog)["level"]) == (499, "INFO")
    assert counted(metrics) == {("/embed/{name}", "POST", "499")}
    assert b"lattemix_rejected_total{" not in metrics.render()


def test_an_answer_to_a_client_that_has_left_does_not_count(metrics: Metrics) -> None:
    async def polite(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        await send({"type": "http.response.start", "status": 400})
        await send({"type": "http.response.body"})

    start, _ = drive(Observe(polite, metrics), LEAVING)
    assert start["status"] == 400  # passed on: the server knows what to do with it
    assert counted(metrics) == {("other", "POST", "499")}


def test_a_server_that_cannot_send_means_that_the_client_left(
    metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        raise OSError("gone")

    scope = {"type": "http", "method": "GET", "path": "/health", "headers": [], "root_path": ""}
    with pytest.raises(OSError, match="gone"):
        asyncio.run(Observe(service(), metrics)({**scope, "query_string": b""}, receive, send))
    assert logged(caplog)["status"] == 499


def test_an_oserror_of_our_own_is_not_the_clients(metrics: Metrics) -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise FileNotFoundError("model.onnx")

    with pytest.raises(FileNotFoundError):
        drive(Observe(broken, metrics))
    assert counted(metrics) == {("other", "POST", "500")}


def test_a_client_that_leaves_after_its_answer_began_keeps_its_status(metrics: Metrics) -> None:
    async def streaming(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await receive()
        await send({"type": "http.response.body", "body": b""})

    drive(Observe(streaming, metrics), [{"type": "http.disconnect"}])
    assert counted(metrics) == {("other", "POST", "200")}


def test_a_cancelled_request_is_recorded_and_stays_cancelled(
    metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    async def forever(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(60)

    async def scenario() -> None:
        client = httpx.AsyncClient(
            transport=httpx.ASGITransport(Observe(forever, metrics)), base_url="http://test"
        )
        task = asyncio.create_task(client.get("/"))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    assert "fault" not in logged(caplog)
    assert counted(metrics) == {("other", "GET", "499")}


def test_a_stream_passes_piece_by_piece(metrics: Metrics) -> None:
    seen: list[int] = []

    async def streaming(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for part in (b"a", b"b", b""):
            seen.append(len(sent))
            await send({"type": "http.response.body", "body": part, "more_body": bool(part)})

    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    asyncio.run(Observe(streaming, metrics)(scope, receive, send))
    assert seen == [1, 2, 3]  # each was on its way before the next was made
    assert [message.get("body") for message in sent] == [None, b"a", b"b", b""]


def test_a_streamed_answer_is_whole(client: TestClient) -> None:
    response = client.get("/stream")
    assert response.text == "one two three"
    assert "x-request-id" in response.headers


def test_the_applications_own_message_is_left_alone(metrics: Metrics) -> None:
    message: Message = {"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]}

    async def plain(scope: Scope, receive: Receive, send: Send) -> None:
        await send(message)
        await send({"type": "http.response.body"})

    start, _ = drive(Observe(plain, metrics))
    assert start["headers"][0] == (b"a", b"b")
    assert message["headers"] == [(b"a", b"b")]


@pytest.mark.parametrize("kind", ["lifespan", "websocket"])
def test_other_scopes_pass_untouched(metrics: Metrics, kind: str) -> None:
    passed: list[tuple[Scope, Receive, Send]] = []

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        passed.append((scope, receive, send))

    async def receive() -> Message:
        return {}

    async def send(message: Message) -> None:
        pass

    scope: Scope = {"type": kind}
    asyncio.run(Observe(inner, metrics)(scope, receive, send))
    assert passed == [({"type": kind}, receive, send)]


def test_state_of_the_lifespan_is_kept(metrics: Metrics) -> None:
    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["state"]["pool"] == 1
        assert isinstance(scope["state"]["trace"], Trace)
        await send({"type": "http.response.start", "status": 204})

    (start,) = drive(Observe(inner, metrics), state={"pool": 1})
    assert start["status"] == 204
