"""What the clients ask, and what they make of the answers."""

import asyncio
import json
import threading
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from lattemix.client import AsyncClient, Client, Refusal, ServerError
from lattemix.client.asynchronous import IN_FLIGHT
from lattemix.encoder import Encoder
from lattemix.similarity import similarity
from model_store import LatteMixError
from tests.conftest import SENTENCES
from tests.lattemix.client.conftest import PAIRS, URL, Kind, Recorder, ask, both, in_turn


@both
def test_any_number_of_pairs_in_requests_that_fit(
    kind: Kind, server: Recorder, encoder: Encoder
) -> None:
    answer = ask(kind, server, "similarity", PAIRS, ("cosine", "js"))
    a = encoder.encode([a for a, _ in PAIRS])
    b = encoder.encode([b for _, b in PAIRS])
    for metric in ("cosine", "js"):
        found = [getattr(row, metric) for row in answer.similarities]
        expected = similarity(metric, a.mixtures, b.mixtures)
        np.testing.assert_allclose(found, expected, atol=1e-5)
    assert answer.model == "tiny"
    assert [list(both) for both in answer.tokens] == [
        [x, y] for x, y in zip(a.tokens, b.tokens, strict=True)
    ]
    assert answer.similarities[0].l2 is None
    sizes = [len(json.loads(body)["pairs"]) for body in server.sent("/similarity")]
    assert sizes == [4] * 7 + [2]  # of at most 8 sentences
    assert len(server.sent("/info")) == 1


@both
def test_requests_fit_the_body_limit_too(kind: Kind, server: Recorder) -> None:
    texts = ["dog ë " * 60 + str(number) for number in range(20)]  # eight would be too large
    assert len(ask(kind, server, "embed", texts)) == 20
    sizes = [len(body) for body in server.sent("/embed")]
    assert max(sizes) <= 4096
    assert sum(sizes) / len(sizes) > 2500, "no more requests than needed"


@both
def test_embed_gives_the_models_own_mixtures(
    kind: Kind, server: Recorder, encoder: Encoder
) -> None:
    found = ask(kind, server, "embed", SENTENCES)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, encoder.encode(SENTENCES).mixtures, atol=1e-5)


@both
def test_nothing_asked_is_nothing_answered(kind: Kind, server: Recorder) -> None:
    assert ask(kind, server, "embed", []).shape == (0, 4, 5)
    assert ask(kind, server, "similarity", []).similarities == []
    assert ask(kind, server, "rank", "a dog", []).results == []


@both
def test_rank_orders_across_requests(kind: Kind, server: Recorder, encoder: Encoder) -> None:
    answer = ask(kind, server, "rank", "a dog", SENTENCES, "cosine")
    mixtures = encoder.encode(["a dog", *SENTENCES]).mixtures
    scores = similarity("cosine", np.repeat(mixtures[:1], 10, axis=0), mixtures[1:])
    assert [found.index for found in answer.results] == np.argsort(-scores).tolist()
    np.testing.assert_allclose([found.score for found in answer.results], -np.sort(-scores), 1e-5)
    assert len(server.sent("/rank")) == 2  # seven beside the query, then three
    best = ask(kind, server, "rank", "dog " * 40, SENTENCES, None, 2)
    assert len(best.results) == 2
    assert best.metric == "centred"
    assert best.query_truncated
    in_place = ask(kind, server, "iter_rank", "a dog", SENTENCES, "cosine")
    assert [found.index for found in in_place] == list(range(10))
    np.testing.assert_allclose([found.score for found in in_place], scores, 1e-5)


@both
def test_matrix(kind: Kind, server: Recorder) -> None:
    answer = ask(kind, server, "matrix", ["a dog", "the sea", "a dog"], "cosine", 0.999, 5)
    assert [list(pair) for pair in answer.pairs] == [[0, 2]]
    with pytest.raises(ServerError, match="LATTEMIX_MAX_INPUTS"):
        ask(kind, server, "matrix", SENTENCES)


@both
def test_explain(kind: Kind, server: Recorder, encoder: Encoder) -> None:
    a, b = SENTENCES[2:4]
    answer = ask(kind, server, "explain", a, b, "js")
    mixtures = encoder.encode([a, b]).mixtures
    assert answer.metric == "js"
    assert answer.similarity == pytest.approx(*similarity("js", mixtures[:1], mixtures[1:]), 1e-5)
    assert [word.text for word in answer.b.words] == b.split()
    with pytest.raises(ServerError, match=r"pair\[1\] has 22 tokens"):
        ask(kind, server, "explain", a, "dog " * 20, None, False)


@both
def test_an_error_names_the_place_in_the_callers_list(kind: Kind, server: Recorder) -> None:
    pairs = [*PAIRS[:13], ("a dog", " "), *PAIRS[13:]]
    with pytest.raises(ServerError) as raised:
        ask(kind, server, "similarity", pairs)
    assert raised.value.status == 400
    assert raised.value.error_type == "Empty"
    assert str(raised.value).startswith("pairs[13][1] is empty")
    with pytest.raises(ServerError, match=r"^inputs\[9\] has 501 characters"):
        ask(kind, server, "embed", [*SENTENCES[:9], "x" * 501])
    with pytest.raises(ServerError, match=r"^inputs\[8\] has 42 tokens"):
        ask(kind, server, "embed", [*SENTENCES[:8], "dog " * 40], False)


@both
def test_what_is_refused_costs_only_itself(kind: Kind, server: Recorder) -> None:
    sound = ask(kind, server, "iter_similarity", PAIRS, ["js"])
    bad = [("a dog", " "), ("x" * 501, "a"), ("\ud800", "a"), ("x" * 5000, "a")]
    pairs = [bad[0], *PAIRS[:9], *bad[1:3], *PAIRS[9:], bad[3]]
    found = ask(kind, server, "iter_similarity", pairs, ["js"])
    places = [place for place, row in enumerate(found) if isinstance(row, Refusal)]
    assert places == [0, 10, 11, 33]
    reasons = [found[place].reason for place in places]
    assert [found[place].index for place in places] == places
    assert reasons[0].startswith("pairs[0][1] is empty")
    assert reasons[1].startswith("pairs[10][0] has 501 characters")
    assert reasons[2].startswith("pairs[11][0]: holds a lone surrogate")
    assert "LATTEMIX_MAX_BODY_BYTES" in reasons[3]
    scores = [row.js for row in found if not isinstance(row, Refusal)]
    np.testing.assert_allclose(scores, [row.js for row in sound], atol=1e-6)


@both
def test_streams_say_what_was_cut(kind: Kind, server: Recorder) -> None:
    short, long = ask(kind, server, "iter_embed", ["a dog", "dog " * 40])
    assert (short.tokens, short.truncated) == (4, False)
    assert (long.tokens, long.truncated) == (42, True)


@both
@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(422, json={"error": "Metric 'centred' needs.", "error_type": "Validation"}),
        httpx.Response(413, json={"error": "query has 600 characters", "error_type": "TooLarge"}),
        httpx.Response(424, json={"error": "The model failed.", "error_type": "Backend"}),
    ],
)
def test_a_fault_of_the_whole_is_not_blamed_on_the_items(
    kind: Kind, info: dict[str, Any], answer: httpx.Response
) -> None:
    server = in_turn(httpx.Response(200, json=info), answer)
    with pytest.raises(ServerError) as raised:
        ask(kind, server, "iter_rank", "a", ["b", "c"])
    assert raised.value.status == answer.status_code
    assert str(raised.value) == answer.json()["error"]


@both
def test_a_refused_item_costs_one_request_more(kind: Kind, server: Recorder) -> None:
    texts = ["a dog", " ", "a man", "the sea", "", "a ball"]
    found = ask(kind, server, "iter_embed", texts)
    assert [place for place, row in enumerate(found) if isinstance(row, Refusal)] == [1, 4]
    assert [row.index for row in found if isinstance(row, Refusal)] == [1, 4]
    assert found[4].reason.startswith("inputs[4] is empty")
    assert len(server.sent("/embed")) == 3


@both
def test_refusals_of_two_kinds_stay_in_their_places(kind: Kind, info: dict[str, Any]) -> None:
    """One item is refused by name, the rest is too much at once, and then another is refused."""

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/info":
            return httpx.Response(200, json=info)
        texts = json.loads(request.content)["inputs"]
        if "bad" in texts:
            error = {"error": f"inputs[{texts.index('bad')}] is bad", "error_type": "Validation"}
            return httpx.Response(422, json=error)
        if len(texts) > 2:
            return httpx.Response(413, json={"error": "inputs holds 3", "error_type": "TooLarge"})
        if "" in texts:
            error = {"error": f"inputs[{texts.index('')}] is empty", "error_type": "Empty"}
            return httpx.Response(400, json=error)
        mixture = b64encode(np.zeros((4, 5), "<f4").tobytes()).decode()
        answer = {"model": "tiny", "shape": [4, 5], "embeddings": [mixture] * len(texts)}
        answer |= {"tokens": [len(text) for text in texts], "truncated": [False] * len(texts)}
        return httpx.Response(200, json=answer)

    texts = ["a", "bad", "", "dddd", "eeeee"]
    found = ask(kind, httpx.MockTransport(handle), "iter_embed", texts)
    refused = [row.index if isinstance(row, Refusal) else None for row in found]
    assert refused == [None, 1, 2, None, None]
    tokens = [row.tokens for row in found if not isinstance(row, Refusal)]
    assert tokens == [1, 4, 5]


@both
def test_a_proxys_limit_is_met_by_halving(kind: Kind, server: Recorder, info: Any) -> None:
    whole = server.inner.handle_async_request

    async def handle(request: httpx.Request) -> httpx.Response:
        small = len(request.content) < 200
        return await whole(request) if small else httpx.Response(413, text="<html>")

    server.inner.handle_async_request = handle  # type: ignore[method-assign]
    found = ask(kind, server, "iter_embed", SENTENCES)
    assert not any(isinstance(row, Refusal) for row in found)
    assert len(found) == 10


@both
def test_a_few_requests_are_in_flight_and_answers_stay_in_order(
    kind: Kind, info: dict[str, Any]
) -> None:
    active, most = 0, 0
    full = asyncio.Event()

    async def handle(request: httpx.Request) -> httpx.Response:
        nonlocal active, most
        if request.url.path == "/info":
            return httpx.Response(200, json=info)
        active += 1
        most = max(most, active)
        if active == IN_FLIGHT:
            full.set()
        await asyncio.wait_for(full.wait(), 10)
        inputs = json.loads(request.content)["inputs"]
        for _ in range(50 - int(inputs[0])):  # the first to come is the last to be done
            await asyncio.sleep(0)
        active -= 1
        embeddings = ["A" * 106 + "A="] * len(inputs)
        tokens = [int(text) for text in inputs]
        body = {"model": "m", "shape": [4, 5], "embeddings": embeddings, "tokens": tokens}
        return httpx.Response(200, json=body | {"truncated": [False] * len(inputs)})

    found = ask(kind, httpx.MockTransport(handle), "iter_embed", [str(i) for i in range(50)])
    assert [row.tokens for row in found] == list(range(50))
    assert most == IN_FLIGHT


def test_items_are_read_where_they_are_asked_for(server: Recorder) -> None:
    threads = set()

    def texts() -> Iterator[str]:
        for text in SENTENCES:
            threads.add(threading.current_thread())
            yield text

    with Client(URL, transport=server) as client:
        assert len(list(client.iter_embed(texts()))) == 10
    assert threads == {threading.current_thread()}


def test_a_stream_can_be_left(server: Recorder) -> None:
    def endless() -> Iterator[str]:
        while True:
            yield "a dog"

    async def asked() -> None:
        async with AsyncClient(URL, transport=server) as client:
            async for row in client.iter_embed(endless()):
                assert not isinstance(row, Refusal)
                break

    with Client(URL, transport=server) as client:
        assert not isinstance(next(client.iter_embed(endless())), Refusal)
    asyncio.run(asked())
    assert len(server.sent("/embed")) <= 2 * IN_FLIGHT


@both
@pytest.mark.parametrize("top_k", [0, -1])
def test_rank_refuses_a_top_k_below_one(kind: Kind, server: Recorder, top_k: int) -> None:
    with pytest.raises(LatteMixError, match=rf"top_k is {top_k}: it should be at least 1"):
        ask(kind, server, "rank", "a dog", ["a man", "the sea"], None, top_k)
