"""What the service tells its operator: metrics, logs and traces, none of which shows a text."""

from app.observe.metrics import Metrics
from app.observe.middleware import Observe
from app.observe.trace import Trace
from app.observe.tracing import Tracer

__all__ = ["Metrics", "Observe", "Trace", "Tracer"]
