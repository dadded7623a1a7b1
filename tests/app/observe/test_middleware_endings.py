"""Requests that end by errors, disconnects or cancellation are recorded and passed on unchanged."""

import asyncio

import httpx
import pytest
from fastapi.testclient import TestClient
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from app.observe import Metrics, Observe, Trace
from app.observe.logs import TextFormatter
from tests.app.observe.conftest import LEAVING, counted, drive, logged, service


def test_records_and_reraises_an_exception(
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


def test_error_response_has_the_request_id(
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


def test_exception_after_the_response_started_keeps_its_status(
    metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("too late")

    with pytest.raises(RuntimeError, match="too late"):
        drive(Observe(broken, metrics))
    fields = logged(caplog)
    assert (fields["status"], fields["fault"]) == (200, "RuntimeError")


def test_missing_response_counts_as_500(metrics: Metrics) -> None:
    async def silent(scope: Scope, receive: Receive, send: Send) -> None:
        pass

    assert drive(Observe(silent, metrics)) == []
    assert counted(metrics) == {("other", "POST", "500")}


def test_disconnect_before_the_response_is_499(
    metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    async def patient(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    body = {"type": "http.request", "body": b"", "more_body": True}
    assert drive(Observe(patient, metrics), [body, {"type": "http.disconnect"}]) == []
    assert (logged(caplog)["status"], logged(caplog)["level"]) == (499, "INFO")
    assert counted(metrics) == {("other", "POST", "499")}


def test_disconnect_while_sending_the_body_is_499_and_no_error(
    metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ClientDisconnect):
        drive(Observe(service(), metrics), LEAVING)
    assert (logged(caplog)["status"], logged(caplog)["level"]) == (499, "INFO")
    assert counted(metrics) == {("/embed/{name}", "POST", "499")}
    assert b"lattemix_rejected_total{" not in metrics.render()


def test_response_after_a_disconnect_is_499(metrics: Metrics) -> None:
    async def polite(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        await send({"type": "http.response.start", "status": 400})
        await send({"type": "http.response.body"})

    start, _ = drive(Observe(polite, metrics), LEAVING)
    assert start["status"] == 400  # passed on to the server
    assert counted(metrics) == {("other", "POST", "499")}


def test_oserror_of_send_is_a_disconnect(
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


def test_oserror_of_the_application_is_500(metrics: Metrics) -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise FileNotFoundError("model.onnx")

    with pytest.raises(FileNotFoundError):
        drive(Observe(broken, metrics))
    assert counted(metrics) == {("other", "POST", "500")}


def test_disconnect_after_the_response_started_keeps_its_status(metrics: Metrics) -> None:
    async def streaming(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await receive()
        await send({"type": "http.response.body", "body": b""})

    drive(Observe(streaming, metrics), [{"type": "http.disconnect"}])
    assert counted(metrics) == {("other", "POST", "200")}


def test_records_and_propagates_cancellation(
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


def test_passes_a_stream_on_without_buffering(metrics: Metrics) -> None:
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
    assert seen == [1, 2, 3]  # each was sent before the next was produced
    assert [message.get("body") for message in sent] == [None, b"a", b"b", b""]


def test_does_not_modify_the_applications_message(metrics: Metrics) -> None:
    message: Message = {"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]}

    async def plain(scope: Scope, receive: Receive, send: Send) -> None:
        await send(message)
        await send({"type": "http.response.body"})

    start, _ = drive(Observe(plain, metrics))
    assert start["headers"][0] == (b"a", b"b")
    assert message["headers"] == [(b"a", b"b")]


@pytest.mark.parametrize("kind", ["lifespan", "websocket"])
def test_passes_other_scopes_unchanged(metrics: Metrics, kind: str) -> None:
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


def test_keeps_the_lifespan_state(metrics: Metrics) -> None:
    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["state"]["pool"] == 1
        assert isinstance(scope["state"]["trace"], Trace)
        await send({"type": "http.response.start", "status": 204})

    (start,) = drive(Observe(inner, metrics), state={"pool": 1})
    assert start["status"] == 204
