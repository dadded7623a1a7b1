"""Requests within limits, rejected items, and servers that are busy, gone or foreign."""

import asyncio
import json
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient

from app.server import create_app
from app.settings import Settings
from lattemix.client import AsyncClient, Client, ServerError
from lattemix.client.connection import IN_FLIGHT
from lattemix.responses import Rejection
from model_store import LatteMixError
from tests.lattemix.client.conftest import (
    PAIRS,
    URL,
    Kind,
    Recorder,
    both,
    call,
    call_with,
    responses,
)
from tests.tiny import SENTENCES

MIXTURE = b64encode(np.zeros((4, 5), "<f4").tobytes()).decode()


def encoded(info: dict[str, Any], *tokens: int) -> dict[str, Any]:
    """A response of `/embed`: one text for each number of tokens."""
    count = len(tokens)
    identity = {"model": info["model"], "fingerprint": info["fingerprint"]}
    rows = {"embeddings": [MIXTURE] * count, "tokens": tokens, "truncated": [False] * count}
    return {**identity, "shape": [4, 5], **rows}


def ok(body: Any) -> httpx.Response:
    return httpx.Response(200, json=body)


@both
def test_requests_stay_within_the_body_limit(kind: Kind, server: Recorder) -> None:
    texts = ["dog ë " * 60 + str(number) for number in range(20)]  # eight would be too large
    assert len(call(kind, server, "iter_encode", texts)) == 20
    sizes = [len(body) for body in server.bodies("/embed")]
    assert max(sizes) <= 4096
    assert sum(sizes) / len(sizes) > 2500, "no more requests than needed"


@both
def test_errors_name_the_position_in_the_callers_list(kind: Kind, server: Recorder) -> None:
    pairs = [*PAIRS[:13], ("a dog", " "), *PAIRS[13:]]
    with pytest.raises(ServerError) as raised:
        call(kind, server, "similarity", pairs)
    assert (raised.value.status, raised.value.error_type) == (400, "Empty")
    assert str(raised.value).startswith("pairs[13][1] is empty")
    with pytest.raises(ServerError, match=r"^inputs\[9\] has 501 characters"):
        call(kind, server, "encode", [*SENTENCES[:9], "x" * 501])


@both
def test_rejected_items_do_not_affect_others(kind: Kind, server: Recorder) -> None:
    valid = call(kind, server, "iter_similarity", PAIRS, ["js"])
    invalid = [("a dog", " "), ("x" * 501, "a"), ("\ud800", "a"), ("x" * 5000, "a")]
    pairs = [invalid[0], *PAIRS[:9], *invalid[1:3], *PAIRS[9:], invalid[3]]
    rows = call(kind, server, "iter_similarity", pairs, ["js"])
    rejections = {i: row for i, row in enumerate(rows) if isinstance(row, Rejection)}
    assert [row.index for row in rejections.values()] == [*rejections] == [0, 10, 11, 33]
    reasons = [row.reason for row in rejections.values()]
    assert reasons[0].startswith("b is empty")
    assert reasons[1].startswith("a has 501 characters")
    assert reasons[2].startswith("a holds a lone surrogate")
    assert "LATTEMIX_MAX_BODY_BYTES" in reasons[3]
    scores = [row.js for row in rows if not isinstance(row, Rejection)]
    np.testing.assert_allclose(scores, [row.js for row in valid], atol=1e-6)


@both
def test_a_rejected_item_costs_one_more_request(kind: Kind, server: Recorder) -> None:
    texts = ["a dog", " ", "a man", "the sea", "", "a ball"]
    rows = call(kind, server, "iter_encode", texts)
    assert [row.index for row in rows if isinstance(row, Rejection)] == [1, 4]
    assert len(server.bodies("/embed")) == 3


@both
@pytest.mark.parametrize(
    "response",
    [
        httpx.Response(422, json={"error": "Metric 'centred' needs.", "error_type": "Validation"}),
        httpx.Response(413, json={"error": "query has 600 characters", "error_type": "TooLarge"}),
        httpx.Response(424, json={"error": "The model failed.", "error_type": "Backend"}),
    ],
)
def test_errors_about_the_request_reject_no_item(
    kind: Kind, info: dict[str, Any], response: httpx.Response
) -> None:
    with pytest.raises(ServerError) as raised:
        call(kind, responses(ok(info), response), "iter_rank", "a", ["b", "c"])
    assert raised.value.status == response.status_code
    assert str(raised.value) == response.json()["error"]


@both
def test_rejections_keep_their_positions_when_a_request_is_split(
    kind: Kind, info: dict[str, Any]
) -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/info":
            return ok(info)
        texts = json.loads(request.content)["inputs"]
        if "bad" in texts:
            error = {"error": f"inputs[{texts.index('bad')}] is bad", "error_type": "Validation"}
            return httpx.Response(422, json=error)
        if len(texts) > 2:
            return httpx.Response(413, json={"error": "inputs holds 3", "error_type": "TooLarge"})
        if "" in texts:
            error = {"error": f"inputs[{texts.index('')}] is empty", "error_type": "Empty"}
            return httpx.Response(400, json=error)
        return ok(encoded(info, *map(len, texts)))

    texts = ["a", "bad", "", "dddd", "eeeee"]
    rows = call(kind, httpx.MockTransport(handle), "iter_encode", texts)
    rejected = [row.index if isinstance(row, Rejection) else None for row in rows]
    assert rejected == [None, 1, 2, None, None]
    assert [row.tokens for row in rows if not isinstance(row, Rejection)] == [1, 4, 5]


@both
def test_a_proxys_body_limit_splits_requests(kind: Kind, server: Recorder) -> None:
    forward = server.inner.handle_async_request

    async def handle(request: httpx.Request) -> httpx.Response:
        small = len(request.content) < 200
        return await forward(request) if small else httpx.Response(413, text="<html>")

    server.inner.handle_async_request = handle  # type: ignore[method-assign]
    rows = call(kind, server, "iter_encode", SENTENCES)
    assert not any(isinstance(row, Rejection) for row in rows)
    assert len(rows) == 10


@both
def test_concurrent_requests_are_bounded_and_rows_stay_in_order(
    kind: Kind, info: dict[str, Any]
) -> None:
    active, peak = 0, 0
    full = asyncio.Event()

    async def handle(request: httpx.Request) -> httpx.Response:
        nonlocal active, peak
        if request.url.path == "/info":
            return ok(info)
        active += 1
        peak = max(peak, active)
        if active == IN_FLIGHT:
            full.set()
        await asyncio.wait_for(full.wait(), 10)
        numbers = [int(text) for text in json.loads(request.content)["inputs"]]
        for _ in range(50 - numbers[0]):  # the first request finishes last
            await asyncio.sleep(0)
        active -= 1
        return ok(encoded(info, *numbers))

    texts = [str(i) for i in range(50)]
    rows = call(kind, httpx.MockTransport(handle), "iter_encode", texts)
    assert [row.tokens for row in rows] == list(range(50))
    assert peak == IN_FLIGHT


def test_items_are_read_on_the_callers_thread(server: Recorder) -> None:
    threads = set()

    def texts() -> Iterator[str]:
        for text in SENTENCES:
            threads.add(threading.current_thread())
            yield text

    with Client(URL, transport=server) as client:
        assert len(list(client.iter_encode(texts()))) == 10
    assert threads == {threading.current_thread()}


def test_an_iterator_can_be_abandoned(server: Recorder) -> None:
    def endless() -> Iterator[str]:
        while True:
            yield "a dog"

    async def first() -> None:
        async with AsyncClient(URL, transport=server) as client:
            async for row in client.iter_encode(endless()):
                assert not isinstance(row, Rejection)
                break

    with Client(URL, transport=server) as client:
        assert not isinstance(next(client.iter_encode(endless())), Rejection)
    asyncio.run(first())
    assert len(server.bodies("/embed")) <= 2 * IN_FLIGHT


@both
def test_retries_after_the_time_that_a_busy_server_names(
    kind: Kind, info: dict[str, Any], naps: list[float]
) -> None:
    busy = httpx.Response(429, headers={"Retry-After": "7"})
    assert call(kind, responses(busy, busy, ok(info)), "info").model == "tiny"
    assert len(naps) == 2
    assert all(7 <= nap <= 8.75 for nap in naps)


@both
@pytest.mark.parametrize(
    "failure",
    [
        httpx.Response(503, json={"error": "Stopping.", "error_type": "Unhealthy"}),
        httpx.Response(429, headers={"Retry-After": "soon"}),
        httpx.ConnectError("refused"),
        httpx.RemoteProtocolError("gone"),
        httpx.ReadError(""),
    ],
)
def test_retries_transient_failures_with_backoff(
    kind: Kind, info: dict[str, Any], naps: list[float], failure: httpx.Response | Exception
) -> None:
    assert call(kind, responses(failure, failure, failure, ok(info)), "info").model == "tiny"
    assert [0.125 * 2**i <= nap <= 0.25 * 2**i for i, nap in enumerate(naps)] == [True] * 3


def test_retry_after_is_bounded(info: dict[str, Any], naps: list[float]) -> None:
    busy = httpx.Response(429, headers={"Retry-After": "86400"})
    call("sync", responses(busy, ok(info)), "info")
    assert naps[0] <= 75


@both
@pytest.mark.parametrize("retries", [0, 3])
def test_gives_up_after_the_last_retry(kind: Kind, naps: list[float], retries: int) -> None:
    unhealthy = httpx.Response(503, json={"error": "Not yet.", "error_type": "Unhealthy"})
    server = responses(*[unhealthy] * (retries + 1))
    with pytest.raises(ServerError, match=r"^Not yet\.$") as raised:
        call_with({"retries": retries}, kind, server, "info")
    assert (raised.value.status, raised.value.error_type) == (503, "Unhealthy")
    assert len(naps) == retries
    server = responses(*[httpx.ConnectError("refused")] * (retries + 1))
    with pytest.raises(LatteMixError, match=f"^{URL} does not answer: refused\\.$"):
        call_with({"retries": retries}, kind, server, "info")


@both
@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (httpx.Response(500, json={"error": "Why?", "error_type": "Internal"}), r"^Why\?$"),
        (httpx.Response(404, text="nothing"), f"^{URL}/info answered 404: nothing$"),
        (httpx.Response(502, json=["odd"]), f'^{URL}/info answered 502: \\["odd"\\]$'),
        (httpx.Response(200, text="<html>"), f"^{URL} is not a Latte-Mix server.$"),
        (httpx.Response(200, json={"model": "x"}), f"^{URL} is not a Latte-Mix server.$"),
        (httpx.ReadTimeout(""), f"^{URL} does not answer: ReadTimeout.$"),
    ],
)
def test_raises_other_failures_at_once(
    kind: Kind, naps: list[float], failure: httpx.Response | Exception, message: str
) -> None:
    with pytest.raises(LatteMixError, match=message):
        call(kind, responses(failure), "info")
    assert naps == []


@both
@pytest.mark.parametrize(
    "change",
    [
        lambda body: body["embeddings"].pop(),
        lambda body: body["embeddings"].__setitem__(0, "AAAA"),
        lambda body: body["truncated"].pop(),
    ],
)
def test_rejects_responses_that_do_not_match_the_request(
    kind: Kind, info: dict[str, Any], change: Callable[[dict[str, Any]], object]
) -> None:
    body = encoded(info, 4, 4)
    assert len(call(kind, responses(ok(info), ok(body)), "encode", ["a", "b"])) == 2
    change(body)
    with pytest.raises(LatteMixError, match="is not a Latte-Mix server"):
        call(kind, responses(ok(info), ok(body)), "encode", ["a", "b"])


@both
@pytest.mark.parametrize("url", ["http://HOST:PORT", "localhost:8000", "ftp://server"])
def test_names_an_invalid_url(kind: Kind, url: str, naps: list[float]) -> None:
    with pytest.raises(LatteMixError, match=f"^{url} does not answer: "):
        call_with({"url": url}, kind, None, "info")
    assert naps == []


@both
def test_sends_the_api_key(
    kind: Kind, info: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def authorization(**settings: Any) -> str | None:
        server = responses(ok(info))
        call_with(settings, kind, server, "info")
        header: str | None = server.requests[0].headers.get("Authorization")
        return header

    assert authorization() is None
    assert authorization(api_key="mine") == "Bearer mine"
    monkeypatch.setenv("LATTEMIX_API_KEY", "theirs\n")
    assert authorization() == "Bearer theirs"
    assert authorization(api_key="mine") == "Bearer mine"
    assert authorization(api_key="") is None
    with pytest.raises(LatteMixError, match="not plain ASCII") as raised:
        authorization(api_key="geheimniß")
    assert "geheim" not in str(raised.value)


@both
def test_accepts_only_requests_with_the_api_key(kind: Kind, settings: Settings) -> None:
    guarded = settings.model_copy(update={"api_keys": Settings(api_keys="secret").api_keys})
    app = create_app(guarded)
    server = httpx.ASGITransport(app)
    with TestClient(app):
        with pytest.raises(ServerError, match="needs a key") as raised:
            call(kind, server, "info")
        assert raised.value.status == 401
        assert call_with({"api_key": "secret"}, kind, server, "info").model == "tiny"
