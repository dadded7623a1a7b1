import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.observe import Metrics, Trace
from app.observe.metrics import CONTENT_TYPE


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample as a scraper reads it, by name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return samples(metrics)[f"lattemix_{name}", tuple(sorted(labels.items()))]


def busy() -> Trace:
    return Trace(
        "id", 0.001, 0.2, 0.03, sentences=5, tokens=40, cached=2, truncated=1, error_type="Backend"
    )


def test_every_metric_is_there_and_of_its_kind() -> None:
    metrics = Metrics()
    metrics.observe_request("/embed", "POST", 424, 0.25, busy())
    metrics.observe_batch(3, 40, 64, 0.03)
    metrics.observe_failure("nonfinite")
    metrics.describe("default", "int8", "cpu", "1.2.3")
    families = text_string_to_metric_families(metrics.render().decode())
    # The parser takes `_total` off a counter; the library adds a `_created` gauge to each.
    kinds = {
        family.name.removeprefix("lattemix_"): family.type
        for family in families
        if not family.name.endswith("_created") and family.name.startswith("lattemix_")
    }
    assert kinds == {
        "requests": "counter",
        "request_seconds": "histogram",
        "stage_seconds": "histogram",
        "rejected": "counter",
        "failed_sentences": "counter",
        "sentences": "counter",
        "tokens": "counter",
        "truncated": "counter",
        "cache_hits": "counter",
        "cache_misses": "counter",
        "cache_bytes": "gauge",
        "queue_sentences": "gauge",
        "queue_tokens": "gauge",
        "batch_sentences": "histogram",
        "batch_tokens": "histogram",
        "batch_fill": "histogram",
        "batch_seconds": "histogram",
        "info": "gauge",
    }


def test_a_request_is_counted() -> None:
    metrics = Metrics()
    for _ in range(2):
        metrics.observe_request("/embed", "POST", 424, 0.25, busy())
    assert value(metrics, "requests_total", path="/embed", method="POST", status="424") == 2
    assert value(metrics, "request_seconds_count", path="/embed") == 2
    assert value(metrics, "request_seconds_sum", path="/embed") == pytest.approx(0.5)
    assert value(metrics, "request_seconds_bucket", path="/embed", le="0.1") == 0
    assert value(metrics, "request_seconds_bucket", path="/embed", le="0.25") == 2
    assert value(metrics, "stage_seconds_sum", stage="tokenization") == pytest.approx(0.002)
    assert value(metrics, "stage_seconds_sum", stage="queue") == pytest.approx(0.4)
    assert value(metrics, "stage_seconds_sum", stage="inference") == pytest.approx(0.06)
    assert value(metrics, "rejected_total", reason="Backend") == 2
    names = ("sentences", "tokens", "truncated", "cache_hits", "cache_misses")
    assert [value(metrics, f"{name}_total") for name in names] == [10, 80, 2, 4, 6]


def test_a_stage_that_was_skipped_has_no_time() -> None:
    metrics = Metrics()
    metrics.observe_request("/embed", "POST", 200, 0.01, Trace("id", 0.001, sentences=1, cached=1))
    stages = {dict(labels).get("stage") for name, labels in samples(metrics) if "stage" in name}
    assert stages == {"tokenization"}
    assert not any("rejected_total" in name for name, _ in samples(metrics))


def test_an_unfinished_trace_is_counted_all_the_same() -> None:
    metrics = Metrics()
    metrics.observe_request("/embed", "POST", 500, 0.01, Trace("id", sentences=0, cached=3))
    assert value(metrics, "cache_misses_total") == 0
    assert value(metrics, "cache_hits_total") == 3


def test_a_batch_is_counted_by_size_fill_and_time() -> None:
    metrics = Metrics()
    metrics.observe_batch(sentences=3, tokens=48, padded_tokens=64, seconds=0.03)
    assert value(metrics, "batch_sentences_sum") == 3
    assert value(metrics, "batch_tokens_sum") == 48
    assert value(metrics, "batch_fill_sum") == 0.75
    assert value(metrics, "batch_fill_bucket", le="0.7") == 0
    assert value(metrics, "batch_fill_bucket", le="0.8") == 1
    assert value(metrics, "batch_seconds_sum") == 0.03


def test_batches_may_be_counted_from_several_threads() -> None:
    metrics = Metrics()

    def work() -> None:
        for _ in range(500):
            metrics.observe_batch(1, 2, 4, 0.001)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert value(metrics, "batch_tokens_sum") == 4000


def test_gauges_are_read_when_they_are_rendered() -> None:
    metrics, queue = Metrics(), [3.0, 40.0, 1e6]
    metrics.watch(lambda: queue[0], lambda: queue[1], lambda: queue[2])
    names = ("queue_sentences", "queue_tokens", "cache_bytes")
    assert [value(metrics, name) for name in names] == [3, 40, 1e6]
    queue[:] = [0, 1, 2]
    assert [value(metrics, name) for name in names] == [0, 1, 2]


def test_info_says_what_runs() -> None:
    metrics = Metrics()
    metrics.describe("default", "int8", "cpu", "1.2.3")
    labels = {"model": "default", "precision": "int8", "provider": "cpu", "version": "1.2.3"}
    assert value(metrics, "info", **labels) == 1


def test_the_process_is_measured_too() -> None:
    families = {f.name: f for f in text_string_to_metric_families(Metrics().render().decode())}
    for name in ("process_resident_memory_bytes", "process_start_time_seconds"):
        (sample,) = families[name].samples
        assert sample.value > 0


def test_two_services_in_one_process_do_not_share_counts() -> None:
    first, second = Metrics(), Metrics()
    first.observe_batch(1, 1, 1, 0.1)
    assert value(first, "batch_sentences_count") == 1
    assert value(second, "batch_sentences_count") == 0


def test_the_content_type_is_the_format_that_is_rendered() -> None:
    assert CONTENT_TYPE == "text/plain; version=0.0.4; charset=utf-8"
    assert Metrics().render().startswith(b"# HELP ")
