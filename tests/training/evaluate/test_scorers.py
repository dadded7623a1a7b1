from collections.abc import Iterator

import httpx
import numpy as np
import pytest

from app.server import create_app
from app.settings import Settings
from lattemix.build.head import Head
from lattemix.client import Client
from lattemix.encoder import Encoder
from lattemix.model import Model
from tests.tiny import SENTENCES
from training.encoding import EncodedCorpus
from training.evaluate.scorers import ServedScorer
from training.evaluate.scores import head_scores, sentence_indices
from training.evaluate.sets import Pairs


@pytest.fixture
def client(settings: Settings) -> Iterator[Client]:
    app = create_app(settings)
    with Client("http://testserver", transport=httpx.ASGITransport(app)) as client:
        yield client
    app.state.service.models.close()


@pytest.fixture
def model(encoder: Encoder) -> ServedScorer:
    return ServedScorer(Model(encoder))


def test_served_scores_match_head_scores(
    head: Head, encoded: EncodedCorpus, model: ServedScorer
) -> None:
    pairs = Pairs("x", SENTENCES[:5], SENTENCES[5:], [0.0] * 5)
    tokens = encoded.backbone.encode(pairs.sentences)
    trained = head_scores(head, tokens, *sentence_indices(pairs))
    served = {metric: scores for (_, metric), scores in model(pairs)}
    assert served.keys() == trained.keys()
    for metric, scores in served.items():
        np.testing.assert_allclose(scores, trained[metric], atol=1e-4)
    assert model.left_out == []


def test_empty_text_gets_the_lowest_score(model: ServedScorer) -> None:
    pairs = Pairs("x", [*SENTENCES[:3], " "], [*SENTENCES[3:6], SENTENCES[0]], [0.0] * 4)
    for (_, metric), scores in model(pairs):
        assert scores[3] == scores[:3].min(), metric
    (note,) = model.left_out
    assert note.startswith("x: the model rejected a pair, which gets the lowest score: ")
    assert "is empty" in note


def test_server_scores_match_model_scores(client: Client, model: ServedScorer) -> None:
    pairs = Pairs("x", SENTENCES, SENTENCES[::-1], [0.0] * 10)  # more than one request may hold
    server = ServedScorer(client)
    expected = {metric: scores for (_, metric), scores in model(pairs)}
    assert server.recommended == "centred"
    assert [method for method, _ in server(pairs)] == [("server", metric) for metric in expected]
    for (_, metric), scores in server(pairs):
        np.testing.assert_allclose(scores, expected[metric], atol=1e-6)
    assert server.left_out == []


def test_pair_rejected_by_the_server_gets_the_lowest_score(client: Client) -> None:
    a = [*SENTENCES[:4], "word " * 200, *SENTENCES[4:]]
    server = ServedScorer(client)
    for (_, metric), scores in server(Pairs("x", a, a[::-1], [0.0] * 11)):
        assert np.isfinite(scores).all()
        assert scores[4] == scores[6] == np.delete(scores, [4, 6]).min(), metric
    assert len(server.left_out) == 2
    assert "LATTEMIX_MAX_CHARACTERS" in server.left_out[0]
