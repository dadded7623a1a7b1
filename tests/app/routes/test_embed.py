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
    body = client.post("/embed", json={"inputs": texts, "format": "dense"}).json()
    assert (body["model"], body["shape"]) == ("tiny", [4, 5])
    assert (body["tokens"], body["truncated"]) == ([6, 22], [False, False])
    np.testing.assert_allclose(body["embeddings"], encoder.encode(texts).mixtures, atol=1e-6)


def test_accepts_a_single_sentence(client: TestClient) -> None:
    body = client.post("/embed", json={"inputs": "a man is eating", "format": "dense"}).json()
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
    request = {"inputs": TEXTS, "format": "dense", "dtype": dtype}
    response = client.post("/embed", json=request, headers=NPY)
    assert response.headers["content-type"] == "application/x-npy"
    array = np.load(BytesIO(response.content), allow_pickle=False)
    assert array.dtype == dtype
    np.testing.assert_allclose(array, mixtures, atol=tolerance)


def test_prefers_json_if_both_are_accepted(client: TestClient) -> None:
    headers = {"accept": "application/json, application/x-npy"}
    assert np.shape(client.post("/embed", json={"inputs": "a"}, headers=headers).json()) == (1, 20)


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
        ({"dtype": "int4"}, "dtype: Input should be 'float32', 'float16', 'int8' or 'binary'"),
        ({"prompt_name": "query"}, "prompt_name: models have no prompts; leave it out"),
        ({"encoding_format": "base64"}, "encoding_format: Input should be 'float'"),
        ({"normalize": 1}, "normalize: Input should be a valid boolean"),
        ({"dimensions": 8}, "dimensions must be a multiple of 5 from 5 to 20, not 8"),
        ({"dimensions": 25}, "dimensions must be a multiple of 5 from 5 to 20, not 25"),
        ({"dtype": "binary", "metric": "cosine"}, "dtype 'binary' stores signs"),
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
        (
            {"dtype": "float16", "format": "dense"},
            {},
            "dtype: float16 applies to base64 and npy, not to dense.",
        ),
        (
            {"dtype": "int8", "format": "base64"},
            {},
            "dtype: int8 applies to vectors, not to mixtures: leave out format.",
        ),
        (
            {"dimensions": 10, "format": "dense"},
            {},
            "dimensions: applies to vectors, not to mixtures: leave out format.",
        ),
        (
            {"metric": "cosine", "format": "dense"},
            {},
            "metric: applies to vectors, not to mixtures: leave out format.",
        ),
        (
            {"dtype": "float16", "format": "sparse"},
            {},
            "dtype: float16 applies to base64 and npy, not to sparse.",
        ),
        ({"format": "sparse"}, NPY, "format: an npy response is always dense, not sparse."),
        ({"format": "base64"}, NPY, "format: an npy response is always dense, not base64."),
        ({"cutoff": 0.5}, {}, "cutoff: applies to the format sparse."),
        ({"cutoff": 0.5, "format": "flat"}, {}, "cutoff: applies to sparse, not to flat."),
        ({"cutoff": 0.5, "format": "dense"}, NPY, "cutoff: applies to sparse, not to npy."),
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


def test_returns_vectors_without_a_format(client: TestClient) -> None:
    request = {"inputs": TEXTS, "normalize": False, "truncate": True, "prompt_name": None}
    vectors = np.array(client.post("/embed", json=request).json())  # [2, 20]
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    (scores,) = client.post("/similarity", json={"pairs": [TEXTS]}).json()["similarities"]
    assert vectors[0] @ vectors[1] == pytest.approx(scores["centred"], abs=1e-5)


def test_vectors_have_the_requested_length_type_and_metric(
    client: TestClient, mixtures: np.ndarray
) -> None:
    request = {"inputs": TEXTS, "metric": "bhattacharyya", "dimensions": 10}
    vectors = np.array(client.post("/embed", json=request).json())
    np.testing.assert_allclose(vectors, np.sqrt(mixtures[:, :2].reshape(2, 10) / 2), atol=1e-6)
    response = client.post("/embed", json=request | {"dtype": "int8"}, headers=NPY)
    array = np.load(BytesIO(response.content), allow_pickle=False)
    assert (array.dtype, array.shape, array.max()) == (np.int8, (2, 10), 127)
    packed = client.post("/embed", json={"inputs": TEXTS, "dtype": "binary"}).json()
    full = np.array(client.post("/embed", json={"inputs": TEXTS}).json())
    assert packed == np.packbits(full > 0, axis=1).tolist()
