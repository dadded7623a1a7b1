"""Existing OpenAI and Hugging Face clients against a running server."""

import numpy as np
import openai
import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError

from lattemix.encoder import Encoder
from lattemix.similarity import similarity

SOURCE, OTHERS = "a man is eating", ["someone is having lunch", "the sea was calm"]


def test_openai_embeddings(server: str, encoder: Encoder) -> None:
    client = openai.OpenAI(base_url=f"{server}/v1", api_key="unused")
    response = client.embeddings.create(model="any", input=[SOURCE, *OTHERS])
    vectors = np.array([item.embedding for item in response.data])
    mixtures = encoder.encode([SOURCE, *OTHERS]).mixtures
    metric = encoder.manifest.recommended_metric
    expected = similarity(metric, mixtures[[0, 0]], mixtures[1:], encoder.centre)
    np.testing.assert_allclose(vectors[1:] @ vectors[0], expected, atol=1e-5)
    assert response.model == "tiny"
    assert response.usage.prompt_tokens == sum(encoder.encode([SOURCE, *OTHERS]).tokens)


def test_openai_with_bhattacharyya_vectors(server: str, encoder: Encoder) -> None:
    client = openai.OpenAI(base_url=f"{server}/v1", api_key="unused")
    response = client.embeddings.create(
        model="any",
        input=SOURCE,
        encoding_format="float",
        extra_body={"metric": "bhattacharyya"},
    )
    mixture = encoder.encode([SOURCE]).mixtures[0]
    expected = np.sqrt(mixture.ravel() / len(mixture))
    np.testing.assert_allclose(response.data[0].embedding, expected, atol=1e-6)


def test_openai_shows_the_error_message(server: str) -> None:
    client = openai.OpenAI(base_url=f"{server}/v1", api_key="unused", max_retries=0)
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model="any", input=["a", " "])
    assert str(caught.value.body).startswith("input[1] is empty")


def test_hugging_face_sentence_similarity(server: str, encoder: Encoder) -> None:
    client = InferenceClient(f"{server}/similarity")
    scores = client.sentence_similarity(SOURCE, OTHERS)
    mixtures = encoder.encode([SOURCE, *OTHERS]).mixtures
    metric = encoder.manifest.recommended_metric
    expected = similarity(metric, mixtures[[0, 0]], mixtures[1:], encoder.centre)
    assert scores == pytest.approx(expected.tolist(), abs=1e-6)


def test_hugging_face_shows_the_error_message(server: str) -> None:
    with pytest.raises(HfHubHTTPError, match=r"inputs\.sentences\[0\] is empty"):
        InferenceClient(f"{server}/similarity").sentence_similarity(SOURCE, [" "])
