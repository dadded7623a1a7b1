import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.observe import Metrics, Trace
from app.observe.metrics import CONTENT_TYPE
from lattemix import __version__
from model_store import Artifact, Manifest


@pytest.fixture
def manifest(artifact: Artifact) -> Manifest:
    return artifact.manifest


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """All samples, by name and labels, as a scraper reads them."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return samples(metrics)[f"lattemix_{name}", tuple(sorted(labels.items()))]


def failed_trace() -> Trace:
    return Trace(
        "id",
        0.001,
        0.2,
        0.03,
        sentences=5,
        tokens=40,
        cached=2,
        truncated=1,
        error_type="Backend",
        model="default",
    )


def test_names_and_types_of_all_metrics(manifest: Manifest) -> None:
    metrics = Metrics()
    metrics.observe_request("/embed", "POST", 424, 0.25, failed_trace())
    metrics.of_model("default").observe_batch(3, 40, 64, 0.03)
    metrics.of_model("default").observe_failures("nonfinite", 1)
    metrics.set_info("default", manifest, "cpu")
    families = text_string_to_metric_families(metrics.render().decode())
    # The parser strips `_total` from counters; the library adds a `_created` gauge to each.
    types = {
        family.name.removeprefix("lattemix_"): family.type
        for family in families
        if not family.name.endswith("_created") and family.name.startswith("lattemix_")
    }
    assert types == {
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


def test_counts_requests() -> None:
    metrics = Metrics()
    for _ in range(2):
        metrics.observe_request("/embed", "POST", 424, 0.25, failed_trace())
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
    assert [value(metrics, f"{name}_total", model="default") for name in names] == [10, 80, 2, 4, 6]


def test_skips_stages_without_time() -> None:
    metrics = Metrics()
    metrics.observe_request("/embed", "POST", 200, 0.01, Trace("id", 0.001, sentences=1, cached=1))
    stages = {dict(labels).get("stage") for name, labels in samples(metrics) if "stage" in name}
    assert stages == {"tokenization"}
    assert not any("rejected_total" in name for name, _ in samples(metrics))


def test_counts_an_incomplete_trace() -> None:
    metrics = Metrics()
    metrics.observe_request(
        "/embed", "POST", 500, 0.01, Trace("id", sentences=0, cached=3, model="fast")
    )
    assert value(metrics, "cache_misses_total", model="fast") == 0
    assert value(metrics, "cache_hits_total", model="fast") == 3


def test_counts_batches_by_size_fill_and_time() -> None:
    metrics = Metrics()
    metrics.of_model("default").observe_batch(
        sentences=3, tokens=48, padded_tokens=64, seconds=0.03
    )
    assert value(metrics, "batch_sentences_sum", model="default") == 3
    assert value(metrics, "batch_tokens_sum", model="default") == 48
    assert value(metrics, "batch_fill_sum", model="default") == 0.75
    assert value(metrics, "batch_fill_bucket", model="default", le="0.7") == 0
    assert value(metrics, "batch_fill_bucket", model="default", le="0.8") == 1
    assert value(metrics, "batch_seconds_sum", model="default") == 0.03


def test_counts_batches_from_several_threads() -> None:
    metrics = Metrics()

    def work() -> None:
        for _ in range(500):
            metrics.of_model("default").observe_batch(1, 2, 4, 0.001)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert value(metrics, "batch_tokens_sum", model="default") == 4000


def test_reads_gauges_when_rendering() -> None:
    metrics, queue = Metrics(), [3.0, 40.0, 1e6]
    metrics.of_model("default").watch(lambda: queue[0], lambda: queue[1], lambda: queue[2])
    names = ("queue_sentences", "queue_tokens", "cache_bytes")
    assert [value(metrics, name, model="default") for name in names] == [3, 40, 1e6]
    queue[:] = [0, 1, 2]
    assert [value(metrics, name, model="default") for name in names] == [0, 1, 2]


def test_info_has_the_labels_of_the_last_model_of_a_name(manifest: Manifest) -> None:
    metrics = Metrics()
    metrics.set_info("default", manifest.model_copy(update={"files": {}}), "cpu")
    metrics.set_info("default", manifest, "cpu")
    metrics.set_info("fast", manifest, "cpu")
    labels = {
        "fingerprint": manifest.fingerprint,
        "precision": "fp32",
        "provider": "cpu",
        "version": __version__,
    }
    assert value(metrics, "info", model="default", **labels) == 1
    assert value(metrics, "info", model="fast", **labels) == 1
    assert sum(name == "lattemix_info" for name, _ in samples(metrics)) == 2


def test_includes_process_metrics() -> None:
    families = {f.name: f for f in text_string_to_metric_families(Metrics().render().decode())}
    for name in ("process_resident_memory_bytes", "process_start_time_seconds"):
        (sample,) = families[name].samples
        assert sample.value > 0


def test_services_in_one_process_have_separate_metrics() -> None:
    first, second = Metrics(), Metrics()
    first.of_model("default").observe_batch(1, 1, 1, 0.1)
    assert value(first, "batch_sentences_count", model="default") == 1
    assert not any("batch_sentences" in name for name, _ in samples(second))


def test_content_type_matches_the_rendered_format() -> None:
    assert CONTENT_TYPE == "text/plain; version=0.0.4; charset=utf-8"
    assert Metrics().render().startswith(b"# HELP ")
