"""Counters, gauges and histograms in the Prometheus format."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from app.observe.trace import Trace
from lattemix import __version__
from model_store import Manifest

FailureReason = Literal["error", "nonfinite"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
_SENTENCES = [2**power for power in range(10)]  # 1 to 512
_TOKENS = [2**power for power in range(4, 17)]  # 16 to 65,536
_FILL = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)


class Metrics:
    """Metrics of one service, in its own registry: a process may run several services."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)  # memory, CPU time, open files, start time

        def counter(name: str, help: str, *labels: str) -> Counter:
            return Counter(f"lattemix_{name}", help, labels, registry=self.registry)

        def gauge(name: str, help: str, *labels: str) -> Gauge:
            return Gauge(f"lattemix_{name}", help, labels, registry=self.registry)

        def histogram(
            name: str, help: str, buckets: tuple[float, ...] | list[int], *labels: str
        ) -> Histogram:
            return Histogram(
                f"lattemix_{name}", help, labels, registry=self.registry, buckets=buckets
            )

        requests = counter(
            "requests_total", "Requests by path, method and status.", "path", "method", "status"
        )
        request_seconds = histogram(
            "request_seconds",
            "Duration of requests, from arrival to the end of the response.",
            _SECONDS,
            "path",
        )
        stage_seconds = histogram(
            "stage_seconds", "Time of a request in each stage.", _SECONDS, "stage"
        )
        # Cached: looking up labels is slow, and there are few.
        self._requests = cache(requests.labels)
        self._request_seconds = cache(request_seconds.labels)
        self._stage_seconds = cache(stage_seconds.labels)
        self._rejected = counter("rejected_total", "Failed requests by error type.", "reason")
        self._by_model: dict[str, Any] = {
            "failures": counter(
                "failed_sentences_total",
                "Sentences that a model failed on, by reason.",
                "model",
                "reason",
            ),
            "sentences": counter("sentences_total", "Sentences requested.", "model"),
            "tokens": counter("tokens_total", "Tokens computed, without padding.", "model"),
            "truncated": counter(
                "truncated_total", "Sentences truncated to the model's maximum length.", "model"
            ),
            "cached": counter("cache_hits_total", "Sentences found in the cache.", "model"),
            "missed": counter("cache_misses_total", "Sentences not found in the cache.", "model"),
            "cache_bytes": gauge("cache_bytes", "Memory used by cached sentences.", "model"),
            "queue_sentences": gauge("queue_sentences", "Sentences in the queue.", "model"),
            "queue_tokens": gauge("queue_tokens", "Tokens in the queue.", "model"),
            "batch_sentences": histogram(
                "batch_sentences", "Sentences per batch.", _SENTENCES, "model"
            ),
            "batch_tokens": histogram(
                "batch_tokens", "Tokens per batch, without padding.", _TOKENS, "model"
            ),
            "batch_fill": histogram(
                "batch_fill", "Share of a batch that is not padding.", _FILL, "model"
            ),
            "batch_seconds": histogram(
                "batch_seconds", "Inference time per batch.", _SECONDS, "model"
            ),
        }
        self._info = gauge(
            "info",
            "Model and version in the labels; the value is 1.",
            "model",
            "fingerprint",
            "precision",
            "provider",
            "version",
        )
        self.of_model = cache(self._of_model)

    def _of_model(self, name: str) -> "ModelMetrics":
        """Return the metrics of one model; `of_model` returns the same ones every time."""
        failures = self._by_model["failures"]
        single = {
            key: each.labels(name) for key, each in self._by_model.items() if each is not failures
        }
        return ModelMetrics(failures=lambda reason: failures.labels(name, reason), **single)

    def observe_request(
        self, path: str, method: str, status: int, seconds: float, trace: Trace
    ) -> None:
        """Count a finished request. `path` and `method` are labels: few values, not user input."""
        self._requests(path, method, str(status)).inc()
        self._request_seconds(path).observe(seconds)
        for stage, spent in trace.stages().items():
            # Stages skipped on a cache hit would distort the histogram.
            if spent > 0:
                self._stage_seconds(stage).observe(spent)
        if trace.error_type is not None:
            self._rejected.labels(trace.error_type).inc()
        if trace.model is not None:
            self.of_model(trace.model).observe_texts(trace)

    def set_info(self, name: str, manifest: Manifest, provider: str) -> None:
        """Set the labels of `lattemix_info` for a model, instead of its earlier ones."""
        self._info.remove_by_labels({"model": name})
        labels = (name, manifest.fingerprint, manifest.precision, provider, __version__)
        self._info.labels(*labels).set(1)

    def render(self) -> bytes:
        """Return all metrics as `CONTENT_TYPE`."""
        return generate_latest(self.registry)


@dataclass(frozen=True)
class ModelMetrics:
    """Metrics of one model of a service. Thread-safe."""

    failures: Callable[[FailureReason], Counter]
    sentences: Counter
    tokens: Counter
    truncated: Counter
    cached: Counter
    missed: Counter
    cache_bytes: Gauge
    queue_sentences: Gauge
    queue_tokens: Gauge
    batch_sentences: Histogram
    batch_tokens: Histogram
    batch_fill: Histogram
    batch_seconds: Histogram

    def observe_texts(self, trace: Trace) -> None:
        """Count the texts of a finished request."""
        for counter, count in (
            (self.sentences, trace.sentences),
            (self.tokens, trace.tokens),
            (self.truncated, trace.truncated),
            (self.cached, trace.cached),
            (self.missed, trace.sentences - trace.cached),
        ):
            if count > 0:
                counter.inc(count)

    def observe_batch(
        self, sentences: int, tokens: int, padded_tokens: int, seconds: float
    ) -> None:
        """Count a computed batch."""
        self.batch_sentences.observe(sentences)
        self.batch_tokens.observe(tokens)
        self.batch_fill.observe(tokens / max(padded_tokens, 1))
        self.batch_seconds.observe(seconds)

    def observe_failures(self, reason: FailureReason, sentences: int) -> None:
        """Count sentences that the model failed on."""
        self.failures(reason).inc(sentences)

    def watch(
        self,
        queue_sentences: Callable[[], float],
        queue_tokens: Callable[[], float],
        cache_bytes: Callable[[], float],
    ) -> None:
        """Set functions that return the gauges' values at every scrape."""
        self.queue_sentences.set_function(queue_sentences)
        self.queue_tokens.set_function(queue_tokens)
        self.cache_bytes.set_function(cache_bytes)
