import httpx
import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from lattemix import __version__


def samples(response: httpx.Response) -> dict[str, float]:
    """Values of all samples by name and labels."""
    values = {}
    for family in text_string_to_metric_families(response.text):
        for sample in family.samples:
            labels = "".join(f" {name}={value}" for name, value in sorted(sample.labels.items()))
            values[sample.name + labels] = sample.value
    return values


def test_health_and_info(client: TestClient) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    info = client.get("/info").json()
    assert info["model"] == "tiny"
    assert (info["latent_dims"], info["classes"], info["provider"]) == (4, 5, "cpu")
    assert (info["max_input_length"], info["max_client_batch_size"]) == (16, 8)
    assert info["version"] == __version__
    assert info["parity"]["largest_difference"] < 1e-5


@pytest.mark.parametrize("path", ["/", "/health", "/ready", "/metrics", "/info"])
def test_head_has_the_headers_of_get(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 200
    response = client.head(path)
    assert response.status_code == 200
    assert response.headers["content-type"] == client.get(path).headers["content-type"]


@pytest.mark.parametrize("path", ["/info", "/latents/0/0", "/v1/models/tiny"])
def test_get_responses_name_model_and_fingerprint(client: TestClient, path: str) -> None:
    response = client.get(path)
    assert response.headers["x-model"] == "tiny"
    assert response.headers["x-fingerprint"] == response.json()["fingerprint"]


def test_info_has_text_embeddings_inference_fields(client: TestClient) -> None:
    info = client.get("/info").json()
    assert (info["model_id"], info["model_dtype"]) == ("tiny:fp32", "fp32")
    assert len(info["model_sha"]) == 64
    assert info["model_type"] == {"embedding": {"pooling": "mixture"}}
    assert info["max_batch_tokens"] >= 256
    assert (info["max_concurrent_requests"], info["auto_truncate"]) == (512, True)


def test_ready_fails_while_draining(client: TestClient) -> None:
    assert client.get("/ready").json() == {"status": "ready"}
    client.app.state.service.models.host.draining = True  # type: ignore[attr-defined]
    response = client.get("/ready")
    assert (response.status_code, response.json()["error_type"]) == (503, "Unhealthy")
    assert client.get("/health").status_code == 200


def test_metrics_count_requests_sentences_and_batches(client: TestClient) -> None:
    for inputs in (["a man is eating", "dog " * 20], ["a man is eating", "a dog"], []):
        client.post("/embed", json={"inputs": inputs, "truncate": "right"})
    values = samples(client.get("/metrics"))
    assert values["lattemix_requests_total method=POST path=/embed status=200"] == 2
    assert values["lattemix_requests_total method=POST path=/embed status=400"] == 1
    assert values["lattemix_rejected_total reason=Empty"] == 1
    assert values["lattemix_sentences_total model=tiny"] == 4
    assert values["lattemix_truncated_total model=tiny"] == 1
    assert values["lattemix_tokens_total model=tiny"] == 6 + 16 + 4
    assert (
        values["lattemix_cache_hits_total model=tiny"],
        values["lattemix_cache_misses_total model=tiny"],
    ) == (1, 3)
    assert values["lattemix_cache_bytes model=tiny"] > 3 * 4 * 5 * 4
    assert (
        values["lattemix_queue_sentences model=tiny"],
        values["lattemix_queue_tokens model=tiny"],
    ) == (0, 0)
    assert values["lattemix_batch_tokens_sum model=tiny"] == 6 + 16 + 4
    assert (
        0
        < values["lattemix_batch_fill_sum model=tiny"]
        <= values["lattemix_batch_fill_count model=tiny"]
    )
    for stage in ("tokenization", "queue", "inference"):
        assert values[f"lattemix_stage_seconds_count stage={stage}"] == 2
    fingerprint = client.get("/info").json()["fingerprint"]
    info = f"lattemix_info fingerprint={fingerprint} model=tiny precision=fp32 provider=cpu"
    assert values[f"{info} version={__version__}"] == 1
