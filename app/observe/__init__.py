"""Metrics, logs and traces. None of them contains texts or keys."""

from app.observe.metrics import Metrics, ModelMetrics
from app.observe.middleware import Observe
from app.observe.trace import Trace
from app.observe.tracing import Tracer

__all__ = ["Metrics", "ModelMetrics", "Observe", "Trace", "Tracer"]
