"""A hundred concurrent clients of a server process, some of which disconnect."""

import asyncio
import json
import random
from collections import Counter
from typing import Any

import httpx

from app.settings import Settings
from model_store import Store
from tests.app.conftest import PATIENCE, eventually, serving
from tests.reliability.conftest import metric_values, raw_post
from tests.reliability.random_requests import ApiRequest, random_requests, same
from tests.transport import AppTransport

CLIENTS, REQUESTS_PER_CLIENT = 100, 3
DISCONNECTING = 20  # clients that disconnect during their second request


async def send_one_by_one(settings: Settings, requests: list[ApiRequest]) -> list[Any]:
    """Return the responses without concurrency and cache."""
    transport = AppTransport(settings.model_copy(update={"cache_bytes": 0}))
    async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
        return [await request.send(client, str(i)) for i, request in enumerate(requests)]


async def send_and_disconnect(url: str, request: ApiRequest, seconds: float) -> None:
    """Disconnect after some seconds, with or without a response."""
    address = httpx.URL(url)
    _, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(raw_post(request.path, json.dumps(request.body).encode()))
    await writer.drain()
    await asyncio.sleep(seconds)
    writer.close()


async def send_concurrently(
    url: str, requests: list[ApiRequest], rng: random.Random
) -> dict[int, Any]:
    """Return the responses by request, without those of disconnected clients."""
    responses: dict[int, Any] = {}

    async def run_client(number: int, client: httpx.AsyncClient) -> None:
        for i in range(number * REQUESTS_PER_CLIENT, (number + 1) * REQUESTS_PER_CLIENT):
            if number < DISCONNECTING and i % REQUESTS_PER_CLIENT == 1:
                await send_and_disconnect(url, requests[i], rng.choice([0, 0.01, 0.1, 1.2]))
            else:
                responses[i] = await requests[i].send(client, f"request-{i}")

    # A connection per request: the server may close a kept-alive one as it is used again.
    limits = httpx.Limits(max_connections=CLIENTS, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE, limits=limits) as client:
        await asyncio.gather(*(run_client(number, client) for number in range(CLIENTS)))
    return responses


def test_concurrent_responses_are_correct_and_counted(store: Store) -> None:
    rng = random.Random(11)
    requests = random_requests(CLIENTS * REQUESTS_PER_CLIENT, rng)
    settings = Settings(store=store.root, model="tiny")
    expected = asyncio.run(send_one_by_one(settings, requests))
    # A small cache, which evicts all the time.
    environment = {"LATTEMIX_CACHE_BYTES": "20000", "LATTEMIX_MAX_WAIT_SECONDS": "60"}
    with serving(store, **environment) as (_, url):
        responses = asyncio.run(send_concurrently(url, requests, rng))
        assert len(responses) == len(requests) - DISCONNECTING
        assert [requests[i] for i in responses if not same(responses[i], expected[i])] == []
        eventually(
            lambda: metric_values(url).total("lattemix_requests_total", "POST") >= len(requests)
        )
        values = metric_values(url)
    sent = Counter(request.path for request in requests)
    completed = Counter(requests[i].path for i in responses)
    for path, count in sent.items():
        by_status = {
            status: values.total("lattemix_requests_total", path, "POST", status)
            for status in ("200", "499")
        }
        assert sum(by_status.values()) == count
        assert by_status["200"] >= completed[path]  # some clients left after the response
    assert values.total("lattemix_requests_total", "POST") == len(requests)  # no other status
    sentences = values.total("lattemix_sentences_total")
    minimum = sum(requests[i].sentences for i in responses)
    assert minimum <= sentences <= sum(request.sentences for request in requests)
    assert sentences == values.total("lattemix_cache_hits_total") + values.total(
        "lattemix_cache_misses_total"
    )
    assert values.total("lattemix_queue_sentences") == values.total("lattemix_queue_tokens") == 0
    assert values.total("lattemix_rejected_total") == 0
