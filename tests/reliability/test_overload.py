"""More requests than the model can compute."""

import asyncio
import random
import threading
import time
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from app.settings import Settings
from lattemix.session import Session
from tests.app.conftest import PATIENCE, failure, serve_in_thread
from tests.reliability.conftest import metric_values, post_similarity
from tests.reliability.random_requests import ApiRequest, random_requests, same
from tests.reliability.test_concurrency import send_one_by_one
from tests.tiny import SENTENCES

CLIENTS, REQUESTS_PER_CLIENT = 60, 3
SECONDS_PER_TOKEN = 2e-4  # added to the model's own


async def send_all(url: str, requests: list[ApiRequest]) -> list[httpx.Response]:
    """Return the responses in order; each client sends its next request after a response."""
    responses: dict[int, httpx.Response] = {}

    async def run_client(number: int, client: httpx.AsyncClient) -> None:
        for i in range(number, len(requests), CLIENTS):
            responses[i] = await requests[i].post(client, f"request-{i}")

    limits = httpx.Limits(max_connections=CLIENTS, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE, limits=limits) as client:
        await asyncio.gather(*(run_client(number, client) for number in range(CLIENTS)))
    return [responses[i] for i in range(len(requests))]


def slow_down(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Session.run

    def run_slowly(session: Session, ids: NDArray[np.int64], *rest: Any) -> NDArray[np.float32]:
        time.sleep(SECONDS_PER_TOKEN * ids.size)
        return run(session, ids, *rest)

    monkeypatch.setattr(Session, "run", run_slowly)


def test_rejects_with_504_when_scoring_takes_too_long(
    open_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for cached sentences, which do not wait for the model."""
    release = threading.Event()

    def block(*arguments: object) -> None:
        assert release.wait(PATIENCE)

    monkeypatch.setattr("app.routes.rank.matrix", block)
    settings = open_settings.model_copy(update={"request_timeout": 0.3})
    body = {"query": SENTENCES[0], "texts": SENTENCES[1:7]}
    with serve_in_thread(settings) as (server, url):
        for _ in range(6):  # more than there are threads
            response = httpx.post(f"{url}/rerank", json=body, timeout=PATIENCE)
            assert failure(response)[:2] == (504, "Timeout")
        assert (server._host.requests, server._host._sentences) == (0, 0)
        post_similarity(url)
        release.set()


@pytest.mark.parametrize(
    ("setting", "limit"),
    [("max_sentences", 50), ("max_wait_seconds", 0.1), ("max_requests", 10)],
)
def test_rejects_with_429_above_the_limit_and_serves_the_rest(
    open_settings: Settings, monkeypatch: pytest.MonkeyPatch, setting: str, limit: float
) -> None:
    requests = random_requests(CLIENTS * REQUESTS_PER_CLIENT, random.Random(5))
    settings = open_settings.model_copy(
        update={"cache_bytes": 0, "threads": 1, "max_wait_seconds": 3600, setting: limit}
    )
    expected = asyncio.run(send_one_by_one(open_settings, requests))
    slow_down(monkeypatch)
    with serve_in_thread(settings) as (server, url):
        responses = asyncio.run(send_all(url, requests))
        post_similarity(url)
        values = metric_values(url)
        engine = server._models.default.engine
        assert (engine.host.requests, engine.host._sentences, engine._characters) == (0, 0, 0)
    rejected = [response for response in responses if response.status_code == 429]
    assert len(requests) > len(rejected) > len(requests) / 4
    for response in rejected:
        assert 1 <= int(response.headers["retry-after"]) <= 60
        assert f"LATTEMIX_{setting.upper()} is {limit:,}" in response.text
    for request, response, content in zip(requests, responses, expected, strict=True):
        assert response.status_code in (200, 429), response.text
        assert response.status_code == 429 or same(request.content(response), content)
    assert values.total("lattemix_requests_total", "429") == len(rejected)
    assert values.total("lattemix_requests_total", "POST") == len(requests) + 1
    assert values.total("lattemix_rejected_total") == len(rejected)
    assert values.total("lattemix_queue_tokens") == 0
