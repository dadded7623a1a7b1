"""The outermost layer: it names, times, counts, traces and logs every request."""

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
_LONGEST_PATH = 80
_CLIENT_LEFT = 499  # nginx's number for it; HTTP has none


class Observe:
    """Gives each request a `Trace`, and its answer headers that say what it took."""

    def __init__(self, app: ASGIApp, metrics: Metrics, tracer: Tracer | None = None) -> None:
        self.app = app
        self.metrics = metrics
        self.tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and record it once it has ended, however it ends."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        trace = Trace(_request_id(scope))
        scope.setdefault("state", {})["trace"] = trace
        began, clock = time.time_ns(), time.perf_counter()
        status = 0  # until an answer has begun
        left = False  # the client, before that

        async def watched() -> Message:
            nonlocal left
            message = await receive()
            if message["type"] == "http.disconnect" and not status:
                left = True
            return message

        async def stamped(message: Message) -> None:
            nonlocal left, status
            starts = message["type"] == "http.response.start"
            if starts:
                headers = _headers(trace, time.perf_counter() - clock)
                message = {**message, "headers": [*message.get("headers", []), *headers]}
            try:
                await send(message)
            except OSError:  # how a server says, by ASGI 2.4, that the client has left
                left = left or not status
                raise
            if starts:
                status = int(message["status"])

        fault = None
        try:
            await self.app(scope, watched, stamped)
        except asyncio.CancelledError:
            left = not status  # whoever waited for it does no longer
            raise
        except Exception as error:
            # Only the type: the server logs the traceback of what it gets to see.
            fault = type(error).__name__
            if not left:
                trace.error_type = trace.error_type or "Internal"
            raise
        finally:
            final = _CLIENT_LEFT if left else status or 500
            if left:
                trace.error_type = None  # nobody was told
            self._record(scope, trace, final, began, time.perf_counter() - clock, fault)

    def _record(
        self,
        scope: Scope,
        trace: Trace,
        status: int,
        began: int,
        seconds: float,
        fault: str | None,
    ) -> None:
        route = route_of(scope)
        self.metrics.observe_request(route or "other", method_of(scope), status, seconds, trace)
        if self.tracer is not None:
            self.tracer.record(scope, trace, status, began, seconds)
        level = _level(route, status)
        if log.isEnabledFor(level):
            fields = _fields(scope, trace, status, seconds, fault)
            # Not `log.log`, which would look for the line of code that called it.
            record = log.makeRecord(log.name, level, "", 0, "request", (), None)
            record.fields = fields
            log.handle(record)


def _request_id(scope: Scope) -> str:
    """The client's own id if it is harmless everywhere we repeat it, else a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return str(value, "ascii")
    return uuid.uuid4().hex


def _headers(trace: Trace, seconds: float) -> list[tuple[bytes, bytes]]:
    """What an answer says about itself, named as text-embeddings-inference names it."""
    headers = {
        "x-request-id": trace.request_id,
        "x-total-time": str(_milliseconds(seconds)),
        "x-content-type-options": "nosniff",
    }
    if trace.sentences:
        for stage, spent in trace.stages().items():
            headers[f"x-{stage}-time"] = str(_milliseconds(spent))
        headers["x-compute-tokens"] = str(trace.tokens)
        headers["x-truncated-inputs"] = str(trace.truncated)
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def _level(route: str | None, status: int) -> int:
    # Probes come every few seconds, and a 503 is how `/ready` says "not yet".
    if route in _PROBES and status != 500:
        return logging.DEBUG
    return logging.ERROR if status >= 500 else logging.INFO


def _fields(
    scope: Scope, trace: Trace, status: int, seconds: float, fault: str | None
) -> dict[str, object]:
    """The log line. No query, body or header is in it: they may hold sentences and keys."""
    fields: dict[str, object] = {
        "id": trace.request_id,
        "method": method_of(scope),
        "path": route_of(scope) or scope["path"][:_LONGEST_PATH],
        "status": status,
        "ms": _milliseconds(seconds),
    }
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
