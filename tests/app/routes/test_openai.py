"""OpenAI's endpoints, and the shape of errors under `/v1` and `/v2`."""

import base64

import numpy as np
import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr

from app import token_ids
from app.server import create_app
from app.settings import Settings
from lattemix.encoder import Encoder
from tests.app.conftest import failure

TEXTS = ["a man is eating", "the sea was calm and blue"]


@pytest.fixture
def without_tiktoken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_ids, "_cl100k", lambda: None)


def test_lists_the_served_models(client: TestClient, encoder: Encoder) -> None:
    listed = client.get("/v1/models").json()
    (entry,) = listed["data"]
    assert listed["object"] == "list"
    assert entry["created"] == int(encoder.manifest.created.timestamp())
    assert (entry["id"], entry["object"], entry["max_model_len"]) == ("tiny", "model", 16)
    assert entry["fingerprint"] == encoder.manifest.fingerprint
    for name in ("tiny", "tiny:fp32", "tiny%3Afp32"):
        assert client.get(f"/v1/models/{name}").json() == entry


def test_unknown_model_is_a_404_that_lists_the_served_ones(client: TestClient) -> None:
    expected = (404, "NotFound", "There is no model 'a/b' here: choose tiny.")
    assert failure(client.get("/v1/models/a/b")) == expected
    response = client.post("/v1/embeddings", json={"input": "a", "model": "a/b"})
    assert failure(response) == expected
    assert response.json()["error"]["param"] == "model"


def test_dimensions_are_a_prefix_of_the_latent_dims(client: TestClient, encoder: Encoder) -> None:
    request = {"input": TEXTS, "metric": "bhattacharyya", "dimensions": 10}
    data = client.post("/v1/embeddings", json=request).json()["data"]
    mixtures = encoder.encode(TEXTS).mixtures[:, :2].reshape(2, 10)
    np.testing.assert_allclose([row["embedding"] for row in data], np.sqrt(mixtures / 2), atol=1e-6)


def test_base64_is_little_endian_float32(client: TestClient) -> None:
    request = {"input": TEXTS}
    floats = client.post("/v1/embeddings", json=request).json()["data"]
    request["encoding_format"] = "base64"
    encoded = client.post("/v1/embeddings", json=request).json()["data"]
    for number, text in zip(floats, encoded, strict=True):
        decoded = np.frombuffer(base64.b64decode(text["embedding"]), "<f4")
        np.testing.assert_allclose(decoded, number["embedding"], atol=1e-7)


def test_ignores_unknown_fields(client: TestClient) -> None:
    unknown = {"user": "u", "input_type": "query", "truncate_prompt_tokens": 8, "x": {"y": []}}
    response = client.post("/v1/embeddings", json={"input": "a dog"} | unknown)
    assert response.json() == client.post("/v1/embeddings", json={"input": "a dog"}).json()


@pytest.mark.usefixtures("without_tiktoken")
@pytest.mark.parametrize("several", [False, True])
def test_reads_the_models_own_token_ids(
    client: TestClient, encoder: Encoder, several: bool
) -> None:
    rows = encoder.tokenizer.ids(TEXTS)
    body = {"input": rows if several else rows[0]}
    expected = client.post("/v1/embeddings", json={"input": TEXTS if several else TEXTS[0]}).json()
    assert client.post("/v1/embeddings", json=body).json() == expected


@pytest.mark.usefixtures("without_tiktoken")
@pytest.mark.parametrize(
    "change",
    [
        lambda ids: ids[1:-1],  # without special tokens
        lambda ids: [*ids[:-1], 10**9, ids[-1]],
        lambda ids: [ids[0], *ids],
        lambda ids: [],
    ],
)
def test_rejects_token_ids_whose_text_is_not_certain(
    client: TestClient, encoder: Encoder, change: object
) -> None:
    first, second = encoder.tokenizer.ids(TEXTS)
    body = {"input": [first, change(second)]}  # type: ignore[operator]
    status, kind, message = failure(client.post("/v1/embeddings", json=body))
    assert (status, kind) == (422, "Validation")
    assert message.startswith("input[1]: these token ids are not the model's")
    assert "check_embedding_ctx_length=False" in message
    assert "TIKTOKEN_CACHE_DIR" in message  # the package may be there without its vocabulary


def test_large_lists_of_token_ids_are_read(settings: Settings, encoder: Encoder) -> None:
    large = settings.model_copy(update={"max_body_bytes": 1_000_000, "max_inputs": 16})
    rows = encoder.tokenizer.ids(["dog " * 90] * 15)
    with TestClient(create_app(large)) as client:
        spaced = "[" + ",".join(str(row).replace(", ", "," + " " * 20) for row in rows) + "]"
        content = f'{{"input": {spaced}}}'
        assert len(content) > 20_000
        headers = {"content-type": "application/json"}
        response = client.post("/v1/embeddings", content=content, headers=headers)
    assert len(response.json()["data"]) == 15


def test_errors_have_the_shape_of_the_api(settings: Settings) -> None:
    keyed = settings.model_copy(update={"api_keys": (SecretStr("key"),), "key_rate": 0.01})
    with TestClient(create_app(keyed)) as client:
        body = client.get("/v1/models").json()
        assert body["error"]["type"] == "invalid_request_error"
        assert body["error"]["code"] == "Unauthorized"
        headers = {"authorization": "Bearer key"}
        assert client.get("/v1/models", headers=headers).status_code == 200
        body = client.get("/v1/models", headers=headers).json()
        assert (body["error"]["type"], body["error"]["code"]) == ("rate_limit_error", "Overloaded")
        assert set(client.post("/v2/rerank", headers=headers).json()) == {"message"}
        assert set(client.post("/rerank", headers=headers).json()) == {"error", "error_type"}


def test_dot_product_of_openai_unit_vectors_is_the_metric(
    client: TestClient,
) -> None:
    for metric in ("cosine", "bhattacharyya", "centred"):
        body = client.post("/v1/embeddings", json={"input": TEXTS, "metric": metric}).json()
        a, b = (np.array(item["embedding"]) for item in body["data"])
        assert (np.linalg.norm(a), np.linalg.norm(b)) == (pytest.approx(1), pytest.approx(1))
        request = {"pairs": [TEXTS], "metrics": [metric]}
        (scores,) = client.post("/similarity", json=request).json()["similarities"]
        assert a @ b == pytest.approx(scores[metric], abs=1e-5)


def test_openai_response_format(client: TestClient, encoder: Encoder) -> None:
    request = {"input": "a dog", "model": "tiny", "user": "u", "dimensions": 20}
    body = client.post("/v1/embeddings", json=request).json()
    (item,) = body.pop("data")
    assert body == {
        "object": "list",
        "model": "tiny",
        "fingerprint": encoder.manifest.fingerprint,
        "usage": {"prompt_tokens": 4, "total_tokens": 4},
    }
    assert (item["object"], item["index"], len(item["embedding"])) == ("embedding", 0, 20)


@pytest.mark.parametrize(
    ("body", "expected", "text"),
    [
        ({"input": []}, (400, "Empty"), "input is empty"),
        ({"input": ["a", ""]}, (400, "Empty"), "input[1] is empty"),
        ({"input": [1, -2]}, (422, "Validation"), "input[0][1]: Input should be greater than"),
        ({"input": ["a", [1]]}, (422, "Validation"), "input[1]: Input should be a valid string"),
        ({"input": [[1], "a"]}, (422, "Validation"), "input[1]: Input should be a valid list"),
        ({"input": [[1]] * 9}, (413, "TooLarge"), "input holds 9 sentences"),
        ({"input": "a", "dimensions": 8}, (422, "Validation"), "multiple of 5 from 5 to 20, not 8"),
        ({"input": "a", "dimensions": 0}, (422, "Validation"), "dimensions: Input should be"),
        ({"messages": [[]]}, (422, "Validation"), "messages: chat templates are not supported"),
        ({"input": "a", "model": "x"}, (404, "NotFound"), "no model 'x' here: choose tiny"),
        (
            {"input": "a", "dtype": "int8", "encoding_format": "base64"},
            (422, "Validation"),
            "dtype: clients read base64 as float32",
        ),
        ({"input": "a", "metric": "js"}, (422, "Validation"), "metric: Input should be 'cosine'"),
        ({"input": "dog " * 20, "truncate": False}, (413, "TooLarge"), "input[0] has 22 tokens"),
    ],
)
def test_rejects_invalid_openai_requests(
    client: TestClient, body: dict[str, object], expected: tuple[int, str], text: str
) -> None:
    status, kind, message = failure(client.post("/v1/embeddings", json=body))
    assert (status, kind) == expected
    assert text in message


@pytest.mark.parametrize(("truncate", "tokens"), [("right", 16), ("window", 22), (True, 22)])
def test_openai_usage_counts_the_tokens_read(
    client: TestClient, truncate: object, tokens: int
) -> None:
    request = {"input": "dog " * 20, "truncate": truncate}
    body = client.post("/v1/embeddings", json=request).json()
    assert body["usage"]["prompt_tokens"] == tokens
