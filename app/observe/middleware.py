"""The outermost middleware: gives every request an id, and measures, counts and logs it."""

import asyncio
import logging
import re
import time
import uuid

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.observe.metrics import Metrics
from app.observe.trace import Trace, method_of, route_of
from app.observe.tracing import Tracer

log = logging.getLogger("lattemix")

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_PROBES = {"/health", "/ready", "/metrics"}
_MAX_PATH = 80  # characters of an unknown path in the log
_CLIENT_CLOSED = 499  # nginx's status code; HTTP has none


class Observe:
    """Gives each request a `Trace`, and each response headers with id and times."""

    def __init__(self, app: ASGIApp, metrics: Metrics, tracer: Tracer | None = None) -> None:
        self.app = app
        self.metrics = metrics
        self.tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and record it when it ends, even by an error."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        trace = Trace(_request_id(scope))
        scope.setdefault("state", {})["trace"] = trace
        start_ns, start = time.time_ns(), time.perf_counter()
        status = 0  # until the response starts
        disconnected = False  # before the response started

        async def receive_observed() -> Message:
            nonlocal disconnected
            message = await receive()
            if message["type"] == "http.disconnect" and not status:
                disconnected = True
            return message

        async def send_observed(message: Message) -> None:
            nonlocal disconnected, status
            starts = message["type"] == "http.response.start"
            if starts:
                headers = _headers(trace, time.perf_counter() - start)
                message = {**message, "headers": [*message.get("headers", []), *headers]}
            try:
                await send(message)
            except OSError:  # the client disconnected (ASGI 2.4)
                disconnected = disconnected or not status
                raise
            if starts:
                status = int(message["status"])

        fault = None
        try:
            await self.app(scope, receive_observed, send_observed)
        except asyncio.CancelledError:
            disconnected = not status
            raise
        except Exception as error:
            # Only the type: the server logs the traceback.
            fault = type(error).__name__
            if not disconnected:
                trace.error_type = trace.error_type or "Internal"
            raise
        finally:
            recorded = _CLIENT_CLOSED if disconnected else status or 500
            if disconnected:
                trace.error_type = None  # no response was sent
            self._record(scope, trace, recorded, start_ns, time.perf_counter() - start, fault)

    def _record(
        self,
        scope: Scope,
        trace: Trace,
        status: int,
        start_ns: int,
        seconds: float,
        fault: str | None,
    ) -> None:
        route = route_of(scope)
        self.metrics.observe_request(route or "other", method_of(scope), status, seconds, trace)
        if self.tracer is not None:
            self.tracer.record(scope, trace, status, start_ns, seconds)
        level = _level(route, status)
        if log.isEnabledFor(level):
            fields = _fields(scope, trace, status, seconds, fault)
            # Not `log.log`, which walks the stack for the caller.
            record = log.makeRecord(log.name, level, "", 0, "request", (), None)
            record.fields = fields
            log.handle(record)


def _request_id(scope: Scope) -> str:
    """Id sent by the client, if it consists of safe characters; otherwise a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return str(value, "ascii")
    return uuid.uuid4().hex


def _headers(trace: Trace, seconds: float) -> list[tuple[bytes, bytes]]:
    """Response headers, named as in text-embeddings-inference."""
    headers = {
        "x-request-id": trace.request_id,
        "x-total-time": str(_milliseconds(seconds)),
        "x-content-type-options": "nosniff",
    }
    if trace.model is not None and trace.fingerprint is not None:
        headers["x-model"] = trace.model
        headers["x-fingerprint"] = trace.fingerprint
    if trace.sentences:
        for stage, spent in trace.stages().items():
            headers[f"x-{stage}-time"] = str(_milliseconds(spent))
        headers["x-compute-tokens"] = str(trace.tokens)
        headers["x-truncated-inputs"] = str(trace.truncated)
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def _level(route: str | None, status: int) -> int:
    # Probes are frequent, and 503 from `/ready` is not an error.
    if route in _PROBES and status != 500:
        return logging.DEBUG
    return logging.ERROR if status >= 500 else logging.INFO


def _fields(
    scope: Scope, trace: Trace, status: int, seconds: float, fault: str | None
) -> dict[str, object]:
    """Fields of the log line. Query, body and headers may hold texts and keys: never log them."""
    fields: dict[str, object] = {
        "id": trace.request_id,
        "method": method_of(scope),
        "path": route_of(scope) or scope["path"][:_MAX_PATH],
        "status": status,
        "ms": _milliseconds(seconds),
    }
    if trace.model is not None:
        fields["model"] = trace.model
    if trace.sentences:
        fields |= {
            "sentences": trace.sentences,
            "cached": trace.cached,
            "tokens": trace.tokens,
            "truncated": trace.truncated,
        }
        for stage, spent in trace.stages().items():
            fields[f"{stage}_ms"] = _milliseconds(spent)
    if trace.error_type is not None:
        fields["error_type"] = trace.error_type
    if fault is not None:
        fields["fault"] = fault
    return fields


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
