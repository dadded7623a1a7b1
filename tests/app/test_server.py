import re

import numpy as np
import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr

from app.server import create_app
from app.settings import Settings
from lattemix.encoder import Encoder
from tests.app.conftest import failure

JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("path", "body", "expected", "text"),
    [
        ("/similarity", {"pairs": []}, (400, "Empty"), "pairs is empty"),
        (
            "/similarity",
            {"pairs": [["a", " \t"]]},
            (400, "Empty"),
            "pairs[0][1] is empty: the model finds no words",
        ),
        ("/embed", {"inputs": []}, (400, "Empty"), "inputs is empty"),
        ("/embed", {"inputs": ["a", ""]}, (400, "Empty"), "inputs[1] is empty"),
        ("/similarity", {}, (422, "Validation"), "pairs: Field required"),
        (
            "/similarity",
            {"pair": [["a", "b"]]},
            (422, "Validation"),
            "pairs: Field required; pair: Extra inputs are not permitted.",
        ),
        ("/similarity", [], (422, "Validation"), "The body should be a JSON object, sent with"),
        ("/embed", {"inputs": ["a", " ", 1, 2]}, (422, "Validation"), "inputs[2]: Input should be"),
        ("/embed", {"inputs": "a", "k" * 500: 1}, (422, "Validation"), "k…: Extra inputs"),
        (
            "/similarity",
            {"pairs": [["a", "b"]], "metrics": ["js"] * 6},
            (422, "Validation"),
            "metrics: List should have at most 5 items",
        ),
        (
            "/embed",
            {"inputs": ["a", "b" * 501]},
            (413, "TooLarge"),
            "inputs[1] has 501 characters, more than the 500 of LATTEMIX_MAX_CHARACTERS",
        ),
        (
            "/similarity",
            {"pairs": "a"},
            (422, "Validation"),
            "pairs: Input should be a valid list",
        ),
        (
            "/similarity",
            {"pairs": [["a"]]},
            (422, "Validation"),
            "pairs[0]: List should have at least 2 items",
        ),
        ("/similarity", {"pairs": [["a", 1]]}, (422, "Validation"), "pairs[0][1]: Input should be"),
        (
            "/similarity",
            {"pairs": [["a", "b"]], "metrics": ["euclid"]},
            (422, "Validation"),
            "metrics[0]: Input should be 'cosine', 'js', 'l2', 'bhattacharyya' or 'centred'",
        ),
        (
            "/similarity",
            {"pairs": [["a", "b"]], "metrics": []},
            (422, "Validation"),
            "metrics: List should have at least 1 item",
        ),
        ("/embed", {"inputs": ["a"], "x": 1}, (422, "Validation"), "x: Extra inputs are not"),
        (
            "/embed",
            {"inputs": {"a": 1}},
            (422, "Validation"),
            "inputs: Input should be a valid list",
        ),
        (
            "/similarity",
            {"pairs": [["a", "b"]] * 5},
            (413, "TooLarge"),
            "pairs holds 10 sentences, more than the 8 of LATTEMIX_MAX_INPUTS: send several",
        ),
        (
            "/matrix",
            {"inputs": ["a"] * 9},
            (413, "TooLarge"),
            "de-duplicate longer lists with `lattemix dedup`, or raise it.",
        ),
        (
            "/embed",
            {"inputs": "long " * 1000},
            (413, "TooLarge"),
            "The body is larger than the 4,096 bytes of LATTEMIX_MAX_BODY_BYTES",
        ),
    ],
)
def test_rejects_invalid_input(
    client: TestClient, path: str, body: object, expected: tuple[int, str], text: str
) -> None:
    status, kind, message = failure(client.post(path, json=body))
    assert (status, kind) == expected
    assert text in message


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"inputs": "\\ud800"}'])
def test_rejects_invalid_json(client: TestClient, content: bytes) -> None:
    response = client.post("/embed", content=content, headers=JSON)
    assert failure(response)[:2] == (422, "Validation")
    assert client.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b'{"inputs": "a", "\\ud800": 1}', "A field name holds a lone surrogate"),
        (b'{"inputs": {"\\ud800": 1}}', "inputs: holds a lone surrogate"),
        (b'{"pairs": [["a", "\\ud800"]]}', "pairs[0][1]: holds a lone surrogate"),
        (b'{"pairs": [["a", "b"]], "metrics": ["\\ud800"]}', "metrics[0]: holds a lone surrogate"),
    ],
)
def test_names_the_field_with_a_lone_surrogate(
    client: TestClient, content: bytes, text: str
) -> None:
    status, kind, message = failure(client.post("/similarity", content=content, headers=JSON))
    assert (status, kind) == (422, "Validation")
    assert message.startswith(text)


@pytest.mark.parametrize("text", ["\x00", "a\x00b", "\u200b\u200d", "שלום", "🙂", "\u202etxt"])
def test_encodes_unusual_characters(client: TestClient, text: str) -> None:
    response = client.post("/embed", json={"inputs": text})
    assert response.status_code == 200
    assert np.isfinite(response.json()).all()


def test_rejects_form_data(client: TestClient) -> None:
    message = failure(client.post("/embed", data={"inputs": "a"}))[2]
    assert message.endswith("sent with content-type: application/json.")


def test_rejects_unknown_paths_and_methods(client: TestClient) -> None:
    assert failure(client.get("/nowhere"))[:2] == (404, "NotFound")
    response = client.get("/similarity")
    assert failure(response)[:2] == (405, "MethodNotAllowed")
    assert response.headers["allow"] == "POST"


def test_failing_model_gives_424(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: Encoder, batch: list[object], alone: bool) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(Encoder, "run", fail)
    response = client.post("/embed", json={"inputs": "secret sentence"})
    assert failure(response)[:2] == (424, "Backend")
    assert "out of memory" not in response.text
    assert "out of memory" in caplog.text
    assert "secret sentence" not in caplog.text
    assert failure(client.get("/ready"))[:2] == (503, "Unhealthy")


def test_internal_error_has_the_same_shape(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(client.app.state, "service")  # type: ignore[attr-defined]
    response = client.get("/info", headers={"x-request-id": "mine"})
    assert failure(response)[:2] == (500, "Internal")
    assert response.headers["x-request-id"] == "mine"


def test_rejects_the_centred_metric_without_a_centre(client: TestClient) -> None:
    client.app.state.service.models.default.engine.encoder.centre = None  # type: ignore[attr-defined]
    assert "centred" not in client.get("/info").json()["metrics"]
    for path, request in {
        "/similarity": {"pairs": [["a", "b"]], "metrics": ["js", "centred"]},
        "/rank": {"query": "a", "texts": ["b"], "metric": "centred"},
        "/rerank": {"query": "a", "texts": ["b"], "metric": "centred"},
        "/matrix": {"inputs": ["a", "b"], "metric": "centred"},
        "/v1/embeddings": {"input": "a", "metric": "centred"},
    }.items():
        status, kind, message = failure(client.post(path, json=request))
        assert (status, kind) == (422, "Validation")
        assert message.startswith("Metric 'centred' needs a model that carries a centre")


def test_all_endpoints_but_probes_and_docs_need_a_key(settings: Settings) -> None:
    keyed = settings.model_copy(update={"api_keys": (SecretStr("s3cret"), SecretStr("other"))})
    with TestClient(create_app(keyed)) as client:
        for path in ("/health", "/ready", "/metrics", "/docs", "/openapi.json"):
            assert client.get(path).status_code == 200
        assert failure(client.get("/info"))[:2] == (401, "Unauthorized")
        rejected = client.post("/embed", json={"inputs": "a"})
        assert failure(rejected)[:2] == (401, "Unauthorized")
        assert rejected.headers["www-authenticate"] == "Bearer"
        for key in ("s3cret", "other"):
            headers = {"authorization": f"Bearer {key}"}
            assert client.post("/embed", json={"inputs": "a"}, headers=headers).status_code == 200
        assert client.get("/openapi.json").json()["components"]["securitySchemes"]
        assert 'lattemix_rejected_total{reason="Unauthorized"} 2.0' in client.get("/metrics").text


def test_cors_allows_only_the_configured_origins(settings: Settings) -> None:
    preflight = {"origin": "https://a.example", "access-control-request-method": "POST"}
    with TestClient(create_app(settings)) as client:
        assert (
            "access-control-allow-origin" not in client.options("/embed", headers=preflight).headers
        )
    allowed = settings.model_copy(
        update={"cors_origins": ("https://a.example",), "api_keys": (SecretStr("k"),)}
    )
    with TestClient(create_app(allowed)) as client:
        response = client.options("/embed", headers=preflight)
        assert response.status_code == 200
        assert response.headers["access-control-allow-origin"] == "https://a.example"
        other = client.options("/embed", headers=preflight | {"origin": "https://b.example"})
        assert "access-control-allow-origin" not in other.headers


def test_responses_report_times_and_tokens(client: TestClient) -> None:
    request = {"inputs": ["a man is eating", "dog " * 20], "truncate": "right"}
    headers = client.post("/embed", json=request, headers={"x-request-id": "abc"}).headers
    assert headers["x-request-id"] == "abc"
    times = [float(headers[f"x-{stage}-time"]) for stage in ("tokenization", "queue", "inference")]
    assert 0 < sum(times) <= float(headers["x-total-time"])
    assert (headers["x-compute-tokens"], headers["x-truncated-inputs"]) == ("22", "1")
    again = client.post("/embed", json=request).headers
    assert again["x-compute-tokens"] == "0"  # cached
    assert again["x-request-id"] != "abc"


def test_logs_neither_sentences_nor_keys(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    keyed = settings.model_copy(update={"api_keys": (SecretStr("s3cret"),)})
    caplog.set_level("DEBUG")
    with TestClient(create_app(keyed)) as client:
        headers = {"authorization": "Bearer s3cret"}
        client.post("/embed?q=hidden", json={"inputs": "private words"}, headers=headers)
        client.post("/embed", json={"inputs": ["private words", 3]}, headers=headers)
        client.post("/embed", json={"inputs": "private"}, headers={"authorization": "Bearer wr0ng"})
    lines = [record.__dict__ for record in caplog.records if record.name == "lattemix"]
    assert [line["fields"]["status"] for line in lines] == [200, 422, 401]
    for secret in ("private", "s3cret", "wr0ng", "hidden"):
        assert not any(secret in str(line) for line in lines)


def test_docs_load_nothing_from_other_hosts(client: TestClient) -> None:
    page = client.get("/docs").text
    sources = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert sources
    for source in sources:
        assert client.get(source).status_code == 200


def test_openapi_documents_every_error(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    model_paths = {
        "/",
        "/similarity",
        "/embed",
        "/rank",
        "/matrix",
        "/explain",
        "/evaluate",
        "/tokenize",
        "/rerank",
        "/v1/embeddings",
        "/v1/rerank",
        "/v1/score",
        "/v2/rerank",
    }
    other_paths = {
        "/health",
        "/ready",
        "/info",
        "/metrics",
        "/latents/{dim}/{class}",
        "/v1/models",
        "/v1/models/{model}",
    }
    assert set(paths) == model_paths | other_paths
    for path in model_paths:
        codes = {"200", "400", "401", "404", "408", "413", "422", "424", "429", "503", "504"}
        assert set(paths[path]["post"]["responses"]) == codes
