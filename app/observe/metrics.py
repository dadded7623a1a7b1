"""Counters, gauges and histograms in the Prometheus format."""

from collections.abc import Callable
from functools import cache
from typing import Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from app.observe.trace import Trace

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
        self._failures = counter(
            "failed_sentences_total", "Sentences that the model failed on, by reason.", "reason"
        )
        self._sentences = counter("sentences_total", "Sentences requested.")
        self._tokens = counter("tokens_total", "Tokens computed, without padding.")
        self._truncated = counter(
            "truncated_total", "Sentences truncated to the model's maximum length."
        )
        self._hits = counter("cache_hits_total", "Sentences found in the cache.")
        self._misses = counter("cache_misses_total", "Sentences not found in the cache.")
        self._cache_bytes = gauge("cache_bytes", "Memory used by cached sentences.")
        self._queue_sentences = gauge("queue_sentences", "Sentences in the queue.")
        self._queue_tokens = gauge("queue_tokens", "Tokens in the queue.")
        self._batch_sentences = histogram("batch_sentences", "Sentences per batch.", _SENTENCES)
        self._batch_tokens = histogram(
            "batch_tokens", "Tokens per batch, without padding.", _TOKENS
        )
        self._batch_fill = histogram("batch_fill", "Share of a batch that is not padding.", _FILL)
        self._batch_seconds = histogram("batch_seconds", "Inference time per batch.", _SECONDS)
        self._info = gauge(
            "info",
            "Model and version in the labels; the value is 1.",
            "model",
            "precision",
            "provider",
            "version",
        )

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
        misses = max(trace.sentences - trace.cached, 0)
        for counter, count in (
            (self._sentences, trace.sentences),
            (self._tokens, trace.tokens),
            (self._truncated, trace.truncated),
            (self._hits, trace.cached),
            (self._misses, misses),
        ):
            if count:
                counter.inc(count)

    def observe_batch(
        self, sentences: int, tokens: int, padded_tokens: int, seconds: float
    ) -> None:
        """Count a computed batch. Thread-safe."""
        self._batch_sentences.observe(sentences)
        self._batch_tokens.observe(tokens)
        self._batch_fill.observe(tokens / max(padded_tokens, 1))
        self._batch_seconds.observe(seconds)

    def observe_failures(self, reason: FailureReason, sentences: int) -> None:
        """Count sentences that the model failed on. Thread-safe."""
        self._failures.labels(reason).inc(sentences)

    def watch(
        self,
        queue_sentences: Callable[[], float],
        queue_tokens: Callable[[], float],
        cache_bytes: Callable[[], float],
    ) -> None:
        """Set functions that return the gauges' values at every scrape."""
        self._queue_sentences.set_function(queue_sentences)
        self._queue_tokens.set_function(queue_tokens)
        self._cache_bytes.set_function(cache_bytes)

    def set_info(self, model: str, precision: str, provider: str, version: str) -> None:
        """Set the labels of `lattemix_info`."""
        self._info.labels(model, precision, provider, version).set(1)

    def render(self) -> bytes:
        """Return all metrics as `CONTENT_TYPE`."""
        return generate_latest(self.registry)
