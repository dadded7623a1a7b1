"""`POST /` and `POST /tokenize`."""

import numpy as np
import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr

from app.server import create_app
from app.settings import Settings
from lattemix.encoder import Encoder
from tests.app.conftest import failure

TEXTS = ["a man is eating", "the sea was calm"]
SOURCE = {"source_sentence": "a man is eating", "sentences": ["a dog", "the sea was calm"]}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/embed", {"inputs": TEXTS}),
        ("/embed", {"inputs": "a dog", "normalize": False, "truncate": True}),
        ("/embed", {"inputs": TEXTS, "format": "sparse"}),
        ("/similarity", {"inputs": SOURCE, "parameters": {}}),
        ("/similarity", {"inputs": SOURCE, "parameters": {"metric": "js"}}),
        ("/similarity", {"inputs": SOURCE, "parameters": {"prompt_name": None}}),
    ],
)
def test_root_answers_like_embed_or_similarity(
    client: TestClient, path: str, body: dict[str, object]
) -> None:
    response = client.post("/", json=body)
    assert response.status_code == 200
    assert response.json() == client.post(path, json=body).json()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"inputs": 1}, "inputs: Input should be a valid list"),
        ({}, "inputs: Field required"),
        ({"inputs": {"sentences": ["a"]}}, "inputs.source_sentence: Field required"),
        ({"inputs": "a", "x": 1}, "x: Extra inputs are not permitted"),
        (
            {"inputs": SOURCE, "parameters": {"prompt_name": "query"}},
            "parameters.prompt_name: models have no prompts; leave it out",
        ),
    ],
)
def test_root_names_the_problem(client: TestClient, body: object, text: str) -> None:
    assert failure(client.post("/", json=body))[2].startswith(text)


def test_root_needs_a_key(settings: Settings) -> None:
    keyed = settings.model_copy(update={"api_keys": (SecretStr("key"),)})
    with TestClient(create_app(keyed)) as client:
        assert client.get("/").status_code == 200
        assert failure(client.post("/", json={"inputs": "a"}))[:2] == (401, "Unauthorized")


def test_tokenize_returns_all_tokens(client: TestClient, encoder: Encoder) -> None:
    texts = ["A man eats!", "dog " * 20]
    rows = client.post("/tokenize", json={"inputs": texts}).json()
    assert [[token["id"] for token in row] for row in rows] == encoder.tokenizer.ids(texts)
    first, *middle, last = rows[0]
    assert (first["text"], first["special"], first["start"]) == ("[CLS]", True, None)
    assert last["special"]
    for token in middle:
        assert texts[0][token["start"] : token["stop"]] == token["text"]
        assert not token["special"]
    plain = client.post("/tokenize", json={"inputs": texts[0], "add_special_tokens": False}).json()
    assert plain == [middle]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"inputs": []}, (400, "Empty", "inputs is empty: send at least one.")),
        (
            {"inputs": "a", "prompt_name": "x"},
            (422, "Validation", "prompt_name: models have no prompts; leave it out."),
        ),
    ],
)
def test_tokenize_rejects_invalid_requests(
    client: TestClient, body: object, expected: tuple[int, str, str]
) -> None:
    assert failure(client.post("/tokenize", json=body)) == expected


def test_info_has_the_fields_of_text_embeddings_inference(client: TestClient) -> None:
    info = client.get("/info").json()
    assert {
        "model_id",
        "model_sha",
        "model_dtype",
        "served_model_name",
        "model_type",
        "max_concurrent_requests",
        "max_input_length",
        "max_batch_tokens",
        "max_batch_requests",
        "max_client_batch_size",
        "auto_truncate",
        "tokenization_workers",
        "version",
        "sha",
        "docker_label",
    } <= info.keys()
    assert info["served_model_name"] == info["model"]


def test_vectors_of_embed_and_openai_are_equal(client: TestClient) -> None:
    vectors = client.post("/embed", json={"inputs": TEXTS}).json()
    data = client.post("/v1/embeddings", json={"input": TEXTS}).json()["data"]
    np.testing.assert_array_equal(vectors, [row["embedding"] for row in data])
