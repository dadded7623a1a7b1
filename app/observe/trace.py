"""What is known about one request, filled in as it is worked on."""

from dataclasses import dataclass

from starlette.types import Scope

_METHODS = {"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"}


@dataclass
class Trace:
    """The measurements of one request, at `scope["state"]["trace"]`. Times are in seconds."""

    request_id: str
    tokenization: float = 0.0
    queue: float = 0.0
    inference: float = 0.0
    sentences: int = 0
    admitted_sentences: int = 0  # counted by the engine until the request ends
    tokens: int = 0  # computed for this request: neither remembered nor shared
    cached: int = 0  # sentences answered from memory
    truncated: int = 0
    error_type: str | None = None

    def stages(self) -> dict[str, float]:
        """Seconds by stage, in the order in which a request passes through them."""
        return {
            "tokenization": self.tokenization,
            "queue": self.queue,
            "inference": self.inference,
        }


def route_of(scope: Scope) -> str | None:
    """The template of the route that was found, `None` if there was none."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else None


def method_of(scope: Scope) -> str:
    """The request's method; one that HTTP does not define is `_OTHER`, as OpenTelemetry has it."""
    # Clients can make up methods; each would be a new time series.
    method: str = scope["method"]
    return method if method in _METHODS else "_OTHER"
