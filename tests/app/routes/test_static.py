"""All endpoints with a static model."""

import io
from base64 import b64decode
from collections.abc import Iterator

import numpy as np
import pytest
from fastapi.testclient import TestClient

from app.server import create_app
from app.settings import Settings
from lattemix.encoder import Encoder
from model_store import Store
from tests.app.conftest import failure
from tests.tiny import SENTENCES

LONG = "the dog likes the sea " * 400


@pytest.fixture(scope="module")
def client(static_store: Store) -> Iterator[TestClient]:
    settings = Settings(store=static_store.root, model="static")
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        yield client


def test_info_has_no_maximum_length(client: TestClient) -> None:
    info = client.get("/info").json()
    assert info["max_input_length"] is None
    assert info["backbone"]["architecture"] == "static"


def test_compares_long_texts_whole(client: TestClient) -> None:
    response = client.post("/similarity", json={"pairs": [[LONG, LONG.strip()]], "truncate": False})
    assert response.status_code == 200
    (row,), (tokens,) = response.json()["similarities"], response.json()["tokens"]
    assert row == {"cosine": 1.0}
    assert response.json()["truncated"] == [[False, False]]
    assert tokens == [2000, 2000]
    assert response.headers["x-truncated-inputs"] == "0"
    assert response.headers["x-compute-tokens"] == "4000"


@pytest.mark.parametrize("format", ["dense", "flat", "sparse", "base64", "npy"])
def test_embeds_in_all_formats(client: TestClient, static_encoder: Encoder, format: str) -> None:
    expected = static_encoder.encode([LONG, *SENTENCES]).mixtures
    body = {"inputs": [LONG, *SENTENCES], "format": "dense" if format == "npy" else format}
    if format == "sparse":
        body["cutoff"] = 0
    headers = {"accept": "application/x-npy"} if format == "npy" else {}
    response = client.post("/embed", json=body, headers=headers)
    assert response.status_code == 200
    if format == "npy":
        found = np.load(io.BytesIO(response.content))
    elif format == "base64":
        rows = [b64decode(row) for row in response.json()["embeddings"]]
        found = np.array([np.frombuffer(row, "<f4") for row in rows])
    elif format == "sparse":
        found = np.array([row["values"] for row in response.json()["embeddings"]])
    else:
        found = np.array(response.json()["embeddings"])
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-6)


def test_counts_all_tokens_for_openai_clients(client: TestClient) -> None:
    response = client.post("/v1/embeddings", json={"input": [LONG, "a dog"]})
    assert response.json()["usage"]["prompt_tokens"] == 2002


def test_ranks_and_compares_all(client: TestClient) -> None:
    body = {"query": SENTENCES[3], "texts": [*SENTENCES, LONG]}
    ranked = client.post("/rank", json=body).json()
    assert ranked["results"][0]["index"] == 3
    assert not any(ranked["truncated"]["texts"])
    pairs = client.post("/matrix", json={"inputs": [*SENTENCES, SENTENCES[3]]}).json()["pairs"]
    assert pairs[0] == [3, len(SENTENCES)]


def test_explains_the_first_tokens_of_a_long_text(client: TestClient) -> None:
    body = {"pair": [LONG, "a dog"]}
    explained = client.post("/explain", json=body).json()
    assert (explained["truncated"][0], len(explained["a"]["tokens"])) == (True, 512)
    status, kind, message = failure(client.post("/explain", json=body | {"truncate": False}))
    assert (status, kind) == (413, "TooLarge")
    assert message.startswith("pair[0] has 2,000 tokens, more than the limit of 512: shorten it")


def test_names_the_text_without_words(client: TestClient) -> None:
    body = {"pairs": [["a dog", "a man"], ["the sea", "unknownword"]]}
    status, kind, message = failure(client.post("/similarity", json=body))
    assert (status, kind) == (400, "Empty")
    assert message.startswith("pairs[1][1] is empty")
