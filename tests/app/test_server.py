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
    ("path", "body", "expected", "says"),
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
        ("/similarity", {"pairs": "a"}, (422, "Validation"), "pairs: Input should be a valid list"),
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
            "pairs holds 10 sentences, more than the 8 of LATTEMIX_MAX_INPUTS",
        ),
        (
            "/embed",
            {"inputs": "long " * 1000},
            (413, "TooLarge"),
            "The body is larger than the 4,096 bytes of LATTEMIX_MAX_BODY_BYTES",
        ),
    ],
)
def test_bad_input_gets_its_code_and_a_sentence(
    client: TestClient, path: str, body: object, expected: tuple[int, str], says: str
) -> None:
    status, kind, message = failure(client.post(path, json=body))
    assert (status, kind) == expected
    assert says in message


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"inputs": "\\ud800"}'])
def test_a_body_that_is_no_text(client: TestClient, content: bytes) -> None:
    response = client.post("/embed", content=content, headers=JSON)
    assert failure(response)[:2] == (422, "Validation")
    assert client.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"inputs": "a", "\\ud800": 1}', "A field name holds a lone surrogate"),
        (b'{"inputs": {"\\ud800": 1}}', "inputs: holds a lone surrogate"),
        (b'{"pairs": [["a", "b"]], "metrics": ["\\ud800"]}', "metrics[0]: holds a lone surrogate"),
    ],
)
def test_names_a_lone_surrogate_wherever_it_is(
    client: TestClient, content: bytes, says: str
) -> None:
    status, kind, message = failure(client.post("/similarity", content=content, headers=JSON))
    assert (status, kind) == (422, "Validation")
    assert message.startswith(says)


@pytest.mark.parametrize("text", ["\x00", "a\x00b", "\u200b\u200d", "שלום", "🙂", "\u202etxt"])
def test_odd_but_real_text_is_answered(client: TestClient, text: str) -> None:
    response = client.post("/embed", json={"inputs": text})
    assert response.status_code == 200
    assert np.isfinite(response.json()["embeddings"]).all()


def test_a_form_is_told_what_to_send(client: TestClient) -> None:
    message = failure(client.post("/embed", data={"inputs": "a"}))[2]
    assert message.endswith("sent with content-type: application/json.")


def test_unknown_places_and_methods(client: TestClient) -> None:
    assert failure(client.get("/nowhere"))[:2] == (404, "NotFound")
    response = client.get("/similarity")
    assert failure(response)[:2] == (405, "MethodNotAllowed")
    assert response.headers["allow"] == "POST"


def test_a_failing_model_is_the_backends_fault(
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


def test_a_fault_of_our_own_has_the_same_shape(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(client.app.state, "service")  # type: ignore[attr-defined]
    response = client.get("/info", headers={"x-request-id": "mine"})
    assert failure(response)[:2] == (500, "Internal")
    assert response.headers["x-request-id"] == "mine"


def test_a_model_without_a_centre_refuses_the_centred_metric(client: TestClient) -> None:
    client.app.state.service.engine.encoder.centre = None  # type: ignore[attr-defined]
    assert "centred" not in client.get("/info").json()["metrics"]
    for path, request in {
        "/similarity": {"pairs": [["a", "b"]], "metrics": ["js", "centred"]},
        "/rank": {"query": "a", "candidates": ["b"], "metric": "centred"},
        "/rerank": {"query": "a", "texts": ["b"], "metric": "centred"},
        "/matrix": {"inputs": ["a", "b"], "metric": "centred"},
        "/v1/embeddings": {"input": "a", "metric": "centred"},
    }.items():
        status, kind, message = failure(client.post(path, json=request))
        assert (status, kind) == (422, "Validation")
        assert message.startswith("Metric 'centred' needs a model that carries a centre")


def test_keys_are_asked_for_everywhere_but_at_the_probes(settings: Settings) -> None:
    keyed = settings.model_copy(update={"api_keys": (SecretStr("s3cret"), SecretStr("other"))})
    with TestClient(create_app(keyed)) as client:
        for path in ("/health", "/ready", "/metrics", "/docs", "/openapi.json"):
            assert client.get(path).status_code == 200
        assert failure(client.get("/info"))[:2] == (401, "Unauthorized")
        refused = client.post("/embed", json={"inputs": "a"})
        assert failure(refused)[:2] == (401, "Unauthorized")
        assert refused.headers["www-authenticate"] == "Bearer"
        for key in ("s3cret", "other"):
            headers = {"authorization": f"Bearer {key}"}
            assert client.post("/embed", json={"inputs": "a"}, headers=headers).status_code == 200
        assert client.get("/openapi.json").json()["components"]["securitySchemes"]
        assert 'lattemix_rejected_total{reason="Unauthorized"} 2.0' in client.get("/metrics").text


def test_other_sites_may_call_only_where_they_are_let(settings: Settings) -> None:
    asked = {"origin": "https://a.example", "access-control-request-method": "POST"}
    with TestClient(create_app(settings)) as client:
        assert "access-control-allow-origin" not in client.options("/embed", headers=asked).headers
    open_to_a = settings.model_copy(
        update={"cors_origins": ("https://a.example",), "api_keys": (SecretStr("k"),)}
    )
    with TestClient(create_app(open_to_a)) as client:
        preflight = client.options("/embed", headers=asked)
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == "https://a.example"
        elsewhere = client.options("/embed", headers=asked | {"origin": "https://b.example"})
        assert "access-control-allow-origin" not in elsewhere.headers


def test_answers_say_what_they_took(client: TestClient) -> None:
    request = {"inputs": ["a man is eating", "dog " * 20]}
    headers = client.post("/embed", json=request, headers={"x-request-id": "abc"}).headers
    assert headers["x-request-id"] == "abc"
    times = [float(headers[f"x-{stage}-time"]) for stage in ("tokenization", "queue", "inference")]
    assert 0 < sum(times) <= float(headers["x-total-time"])
    assert (headers["x-compute-tokens"], headers["x-truncated-inputs"]) == ("22", "1")
    again = client.post("/embed", json=request).headers
    assert again["x-compute-tokens"] == "0"  # remembered
    assert again["x-request-id"] != "abc"


def test_no_sentence_and_no_key_is_logged(
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


def test_the_pages_of_documentation_fetch_nothing_from_others(client: TestClient) -> None:
    page = client.get("/docs").text
    sources = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert sources
    for source in sources:
        assert client.get(source).status_code == 200


def test_the_openapi_document_names_every_error(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    asked = {"/similarity", "/embed", "/v1/embeddings", "/rank", "/rerank", "/matrix", "/explain"}
    told = {"/health", "/ready", "/info", "/metrics", "/latents/{dim}/{class}"}
    assert set(paths) == asked | told
    for path in asked:
        codes = {"200", "400", "401", "408", "413", "422", "424", "429", "503", "504"}
        assert set(paths[path]["post"]["responses"]) == codes
