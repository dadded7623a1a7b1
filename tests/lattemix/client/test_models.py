"""Clients of a server with several models, and of one whose model is replaced."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient

from app.server import create_app
from app.settings import Settings
from lattemix import Client, FingerprintError, LatteMixError, Model, ServerError
from lattemix.encoder import Encoder
from tests.lattemix.client.conftest import PAIRS, URL, Kind, Recorder, both, call, call_with
from tests.tiny import SENTENCES


@pytest.fixture(scope="module")
def app(two_models: Settings) -> Iterator[Any]:
    app = create_app(two_models)
    with TestClient(app):
        yield app


@pytest.fixture
def server(app: Any) -> Recorder:
    return Recorder(httpx.ASGITransport(app))


class Replaced(httpx.AsyncBaseTransport):
    """A server that replaces its model: after some responses the fingerprint is another."""

    def __init__(self, inner: httpx.AsyncBaseTransport, after: int) -> None:
        self.inner = inner
        self.remaining = after

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self.inner.handle_async_request(request)
        self.remaining -= 1
        if self.remaining >= 0:
            return response
        body = json.loads(await response.aread())
        return httpx.Response(response.status_code, json={**body, "fingerprint": "0123456789ab"})


@both
def test_calls_the_chosen_model(kind: Kind, server: Recorder, static_encoder: Encoder) -> None:
    chosen = {"model": "static:fp32"}
    assert call_with(chosen, kind, server, "info").model == "static"
    assert call(kind, server, "info").model == "tiny"
    mixtures = call_with(chosen, kind, server, "encode", SENTENCES)
    np.testing.assert_allclose(mixtures, Model(static_encoder).encode(SENTENCES), atol=1e-5)
    assert call_with(chosen, kind, server, "explain", *PAIRS[1]).model == "static"
    assert call_with(chosen, kind, server, "matrix", SENTENCES[:3]).model == "static"
    assert len(call_with(chosen, kind, server, "rank", "a dog", SENTENCES)) == 10
    assert len(call_with(chosen, kind, server, "iter_similarity", PAIRS)) == 30


@both
def test_requests_with_a_model_stay_within_the_body_limit(kind: Kind, server: Recorder) -> None:
    texts = ["dog " * 100 + str(number) for number in range(20)]
    call_with({"model": "static"}, kind, server, "encode", texts)
    assert max(len(body) for body in server.bodies("/embed")) <= 4096


@both
def test_names_an_unknown_model(kind: Kind, server: Recorder) -> None:
    with pytest.raises(ServerError, match="no model 'other' here: choose tiny, static") as raised:
        call_with({"model": "other"}, kind, server, "encode", "a dog")
    assert raised.value.status == 404


@both
@pytest.mark.parametrize("after", [1, 2, 3])  # responses, the first from /info
@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("encode", (SENTENCES * 2,)),
        ("similarity", (PAIRS,)),
        ("rank", ("a dog", SENTENCES * 2)),
        ("iter_encode", (SENTENCES * 2,)),
        ("iter_similarity", (PAIRS,)),
        ("iter_rank", ("a dog", SENTENCES * 2)),
    ],
)
def test_a_model_replaced_during_a_call_is_an_error(
    kind: Kind, server: Recorder, method: str, arguments: tuple[Any, ...], after: int
) -> None:
    fingerprint = call(kind, server, "info").fingerprint
    with pytest.raises(FingerprintError) as raised:
        call(kind, Replaced(server, after), method, *arguments)
    assert str(raised.value) == (
        f"The server replaced model tiny: its fingerprint was {fingerprint} and is now "
        "0123456789ab. Repeat the call."
    )


def test_the_repeated_call_uses_the_new_model(server: Recorder) -> None:
    with Client(URL, transport=Replaced(server, after=2)) as client:
        client.similarity(*PAIRS[0])
        with pytest.raises(FingerprintError):
            client.similarity(*PAIRS[0])
        client.similarity(*PAIRS[0])
        assert len(server.bodies("/info")) == 2


def test_a_single_response_of_a_new_model_is_no_error(server: Recorder) -> None:
    with Client(URL, transport=Replaced(server, after=2)) as client:
        client.similarity(*PAIRS[0])
        assert client.explain(*PAIRS[0]).fingerprint == "0123456789ab"
        client.similarity(*PAIRS[0])  # with the information about the new model


@both
def test_rank_mixtures_compares_without_the_server(
    kind: Kind, server: Recorder, encoder: Encoder
) -> None:
    model = Model(encoder)
    mixtures, fingerprint = model.encode(SENTENCES), model.info().fingerprint
    options: dict[str, Any] = {"fingerprint": fingerprint, "metric": "js"}
    results = call(kind, server, "rank_mixtures", "a dog", mixtures, **options)
    expected = model.rank("a dog", SENTENCES, metric="js")
    assert [result.index for result in results] == [result.index for result in expected]
    assert [json.loads(body)["inputs"] for body in server.bodies("/embed")] == [["a dog"]]


@both
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fingerprint": "0123456789ab"}, "mixtures: the fingerprint is 0123456789ab, and model"),
        ({"metric": "centred"}, "which the server does not send: choose among cosine, js, l2"),
        ({"metric": None}, "which the server does not send"),  # the recommended one
        ({"metric": "x"}, "Unknown metric 'x'"),
        ({"top_k": 0}, "top_k is 0"),
    ],
)
def test_rank_mixtures_rejects_what_it_cannot_compare(
    kind: Kind, server: Recorder, encoder: Encoder, changes: dict[str, Any], message: str
) -> None:
    options = {"fingerprint": encoder.manifest.fingerprint, "metric": "cosine", **changes}
    with pytest.raises(LatteMixError, match=message):
        call(kind, server, "rank_mixtures", "a dog", [], **options)
