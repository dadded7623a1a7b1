import base64
from io import BytesIO

import numpy as np
import pytest
from fastapi.testclient import TestClient

from lattemix.encoder import Encoder
from tests.app.conftest import failure

TEXTS = ["a man is eating", "the sea was calm and blue"]
NPY = {"accept": "application/x-npy"}


@pytest.fixture
def mixtures(encoder: Encoder) -> np.ndarray:
    return encoder.encode(TEXTS).mixtures  # [2, 4, 5]


def test_returns_mixtures(client: TestClient, encoder: Encoder) -> None:
    texts = ["a man is eating", "dog " * 20]
    body = client.post("/embed", json={"inputs": texts}).json()
    assert (body["model"], body["shape"]) == ("tiny", [4, 5])
    assert (body["tokens"], body["truncated"]) == ([6, 22], [False, False])
    np.testing.assert_allclose(body["embeddings"], encoder.encode(texts).mixtures, atol=1e-6)


def test_accepts_a_single_sentence(client: TestClient) -> None:
    body = client.post("/embed", json={"inputs": "a man is eating"}).json()
    assert np.shape(body["embeddings"]) == (1, 4, 5)


def test_flat_is_one_row_per_sentence(client: TestClient, mixtures: np.ndarray) -> None:
    body = client.post("/embed", json={"inputs": TEXTS, "format": "flat"}).json()
    np.testing.assert_allclose(body["embeddings"], mixtures.reshape(2, 20), atol=1e-6)


@pytest.mark.parametrize("cutoff", [0.0, 0.2, 1.0])
def test_sparse_contains_weights_from_the_cutoff(
    client: TestClient, mixtures: np.ndarray, cutoff: float
) -> None:
    request = {"inputs": TEXTS, "format": "sparse", "cutoff": cutoff}
    for sparse, mixture in zip(
        client.post("/embed", json=request).json()["embeddings"], mixtures, strict=True
    ):
        restored = np.zeros(20)
        restored[sparse["indices"]] = sparse["values"]
        flat = mixture.ravel()
        np.testing.assert_allclose(restored, np.where(flat >= cutoff, flat, 0), atol=1e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float16", 1e-3)])
def test_base64_is_the_bytes_of_flat(
    client: TestClient, mixtures: np.ndarray, dtype: str, tolerance: float
) -> None:
    request = {"inputs": TEXTS, "format": "base64", "dtype": dtype}
    for text, mixture in zip(
        client.post("/embed", json=request).json()["embeddings"], mixtures, strict=True
    ):
        decoded = np.frombuffer(base64.b64decode(text), np.dtype(dtype).newbyteorder("<"))
        np.testing.assert_allclose(decoded, mixture.ravel(), atol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float16", 1e-3)])
def test_npy_is_one_array(
    client: TestClient, mixtures: np.ndarray, dtype: str, tolerance: float
) -> None:
    request = {"inputs": TEXTS, "dtype": dtype}
    response = client.post("/embed", json=request, headers=NPY)
    assert response.headers["content-type"] == "application/x-npy"
    array = np.load(BytesIO(response.content), allow_pickle=False)
    assert array.dtype == dtype
    np.testing.assert_allclose(array, mixtures, atol=tolerance)


def test_prefers_json_if_both_are_accepted(client: TestClient) -> None:
    headers = {"accept": "application/json, application/x-npy"}
    assert client.post("/embed", json={"inputs": "a"}, headers=headers).json()["shape"] == [4, 5]


def test_npy_response_reports_truncation_in_a_header(client: TestClient) -> None:
    request = {"inputs": ["a", "dog " * 20], "truncate": "right"}
    response = client.post("/embed", json=request, headers=NPY)
    assert response.headers["x-truncated-inputs"] == "1"


def test_errors_are_json_if_npy_was_requested(client: TestClient) -> None:
    response = client.post("/embed", json={"inputs": []}, headers=NPY)
    assert failure(response)[:2] == (400, "Empty")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"format": "xml"}, "format: Input should be 'dense', 'flat', 'sparse' or 'base64'"),
        ({"cutoff": 2}, "cutoff: Input should be less than or equal to 1"),
        ({"dtype": "int8"}, "dtype: Input should be 'float32' or 'float16'"),
        ({"truncate": "maybe"}, "truncate: Input should be 'error', 'right', 'left', 'window'"),
        ({"truncate": 1}, "truncate: should be a string or a boolean"),
        ({"truncation_direction": "up"}, "truncation_direction: Input should be 'right' or 'left'"),
    ],
)
def test_rejects_invalid_options(
    client: TestClient, options: dict[str, object], expected: str
) -> None:
    status, kind, message = failure(client.post("/embed", json={"inputs": "a"} | options))
    assert (status, kind) == (422, "Validation")
    assert expected in message


@pytest.mark.parametrize(
    ("options", "headers", "expected"),
    [
        ({"dtype": "float16"}, {}, "dtype: float16 applies to base64 and npy, not to dense."),
        (
            {"dtype": "float16", "format": "sparse"},
            {},
            "dtype: float16 applies to base64 and npy, not to sparse.",
        ),
        ({"format": "sparse"}, NPY, "format: an npy response is always dense, not sparse."),
        ({"format": "base64"}, NPY, "format: an npy response is always dense, not base64."),
        ({"cutoff": 0.5}, {}, "cutoff: applies to sparse, not to dense."),
        ({"cutoff": 0.5}, NPY, "cutoff: applies to sparse, not to npy."),
    ],
)
def test_rejects_options_without_effect(
    client: TestClient, options: dict[str, object], headers: dict[str, str], expected: str
) -> None:
    response = client.post("/embed", json={"inputs": "a"} | options, headers=headers)
    assert failure(response) == (422, "Validation", expected)


@pytest.mark.parametrize("headers", [{}, NPY])
def test_accepts_default_options_without_effect(
    client: TestClient, headers: dict[str, str]
) -> None:
    defaults = {"format": "dense", "dtype": "float32", "cutoff": 0.01}
    response = client.post("/embed", json={"inputs": "a"} | defaults, headers=headers)
    assert response.status_code == 200


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


def test_openai_response_format(client: TestClient) -> None:
    request = {"input": "a dog", "model": "text-embedding-3-small", "user": "u", "dimensions": 20}
    body = client.post("/v1/embeddings", json=request).json()
    (item,) = body.pop("data")
    assert body == {
        "object": "list",
        "model": "tiny",
        "usage": {"prompt_tokens": 4, "total_tokens": 4},
    }
    assert (item["object"], item["index"], len(item["embedding"])) == ("embedding", 0, 20)


@pytest.mark.parametrize(
    ("body", "expected", "text"),
    [
        ({"input": []}, (400, "Empty"), "input is empty"),
        ({"input": ["a", ""]}, (400, "Empty"), "input[1] is empty"),
        ({"input": [1, 2]}, (422, "Validation"), "input: token ids belong to another model's"),
        ({"input": [[1, 2]]}, (422, "Validation"), "input: token ids belong to another model's"),
        ({"input": "a", "dimensions": 8}, (422, "Validation"), "vectors have 20; leave it out"),
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
