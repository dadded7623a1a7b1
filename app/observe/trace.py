"""Measurements of one request."""

from dataclasses import dataclass

from starlette.types import Scope

_METHODS = {"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"}


@dataclass
class Trace:
    """Measurements of one request, in `scope["state"]["trace"]`. Times are in seconds."""

    request_id: str
    tokenization: float = 0.0
    queue: float = 0.0
    inference: float = 0.0
    sentences: int = 0
    admitted_sentences: int = 0  # counted by the engine until the request ends
    tokens: int = 0  # computed for this request: neither cached nor shared with an earlier one
    cached: int = 0  # sentences found in the cache
    truncated: int = 0
    error_type: str | None = None
    model: str | None = None  # served name
    fingerprint: str | None = None  # of the model's weights

    def stages(self) -> dict[str, float]:
        """Seconds per stage, in order."""
        return {
            "tokenization": self.tokenization,
            "queue": self.queue,
            "inference": self.inference,
        }


def route_of(scope: Scope) -> str | None:
    """Path template of the matched route, if any."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else None


def method_of(scope: Scope) -> str:
    """HTTP method; `_OTHER`, as in OpenTelemetry, if it is not a standard one."""
    # Clients can invent methods, and each would be a new time series.
    method: str = scope["method"]
    return method if method in _METHODS else "_OTHER"
