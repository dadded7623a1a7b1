from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from app.server import create_app
from app.settings import Settings
from lattemix.client import Client
from lattemix.encoder import Encoder
from model_store import LatteMixError
from tests.conftest import SENTENCES
from training.evaluate.measure import Served
from training.evaluate.remote import Remote
from training.evaluate.sets import Pairs

URL = "http://testserver"


@pytest.fixture
def server(settings: Settings) -> Iterator[httpx.ASGITransport]:
    app = create_app(settings)
    yield httpx.ASGITransport(app)
    app.state.service.engine.close()


def test_a_server_is_measured_by_its_own_answers(
    server: httpx.ASGITransport, encoder: Encoder
) -> None:
    # More pairs than one request may hold.
    pairs = Pairs("mine", SENTENCES, SENTENCES[::-1], [0.0] * 10)
    remote = Remote(f"{URL}/", server)
    found = {metric: scores for (_, metric), scores in remote(pairs)}
    expected = {metric: scores for (_, metric), scores in Served(encoder)(pairs)}
    assert remote.recommended == "centred"
    assert found.keys() == expected.keys()
    for metric, scores in found.items():
        np.testing.assert_allclose(scores, expected[metric], atol=1e-6)
    assert remote.left_out == []


def test_a_pair_the_server_refuses_costs_only_itself(server: httpx.ASGITransport) -> None:
    a = [*SENTENCES[:4], "word " * 200, *SENTENCES[4:]]
    pairs = Pairs("mine", a, a[::-1], [0.0] * 11)
    remote = Remote(URL, server)
    for (_, metric), scores in remote(pairs):
        assert np.isfinite(scores).all()
        assert scores[4] == scores[6] == np.delete(scores, [4, 6]).min(), metric
    assert len(remote.left_out) == 2
    assert (
        "mine: http://testserver rejected pair 4, scored as least similar: a has"
        in remote.left_out[0]
    )
    assert "LATTEMIX_MAX_CHARACTERS" in remote.left_out[0]


def test_an_address_that_is_none() -> None:
    with pytest.raises(LatteMixError, match="http://HOST:PORT does not answer"):
        Remote("http://HOST:PORT")


def test_nobody_answers(naps: list[float]) -> None:
    with pytest.raises(LatteMixError, match=r"http://127\.0\.0\.1:9 does not answer"):
        Remote("http://127.0.0.1:9")
    assert naps != []


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (httpx.Response(200, json={"model": "other"}), "is not a Latte-Mix server"),
        (httpx.Response(404, text="nothing here"), "/info answered 404: nothing here"),
        (httpx.Response(503, json={"error": "Not yet."}), "/info answered 503: Not yet."),
        (httpx.Response(200, text="<html>"), "is not a Latte-Mix server"),
    ],
)
def test_something_else_answers(answer: httpx.Response, problem: str, naps: list[float]) -> None:
    with pytest.raises(LatteMixError, match=problem):
        Remote(URL, httpx.MockTransport(lambda request: answer))


def test_a_busy_server_is_asked_again(server: httpx.ASGITransport, naps: list[float]) -> None:
    with Client(URL, transport=server) as client:
        info: dict[str, Any] = client.info().model_dump(mode="json")
    answers = [httpx.Response(429, headers={"Retry-After": "0"}), httpx.Response(200, json=info)]
    assert Remote(URL, httpx.MockTransport(lambda request: answers.pop(0))).recommended == "centred"
    assert answers == []
    assert len(naps) == 1
