"""More than the model can do, for a while."""

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
from tests.app.conftest import failure
from tests.conftest import SENTENCES
from tests.reliability.conftest import PATIENCE, counted, served, similar
from tests.reliability.questions import Question, questions, same
from tests.reliability.test_concurrency import asked_alone

CLIENTS, EACH = 100, 3  # questions, one after the other
TOKEN_SECONDS = 2e-4  # that each takes longer


async def asked_by_all(url: str, asked: list[Question]) -> list[httpx.Response]:
    """The answers, in order, to what each client asks as soon as it has been answered."""
    answers: dict[int, httpx.Response] = {}

    async def ask(number: int, client: httpx.AsyncClient) -> None:
        for place in range(number, len(asked), CLIENTS):
            answers[place] = await asked[place].post(client, f"question-{place}")

    limits = httpx.Limits(max_connections=CLIENTS, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE, limits=limits) as client:
        await asyncio.gather(*(ask(number, client) for number in range(CLIENTS)))
    return [answers[place] for place in range(len(asked))]


def slow_down(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Session.run

    def slowly(session: Session, ids: NDArray[np.int64], *rest: Any) -> NDArray[np.float32]:
        time.sleep(TOKEN_SECONDS * ids.size)
        return run(session, ids, *rest)

    monkeypatch.setattr(Session, "run", slowly)


def test_scoring_that_takes_too_long_is_given_up(
    open_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of sentences that are remembered, and so wait for no model."""
    finish = threading.Event()

    def slowly(*arguments: object) -> None:
        assert finish.wait(PATIENCE)

    monkeypatch.setattr("app.routes.rank.matrix", slowly)
    settings = open_settings.model_copy(update={"request_timeout": 0.3})
    asked = {"query": SENTENCES[0], "texts": SENTENCES[1:7]}
    with served(settings) as (server, url):
        for _ in range(6):  # more than there are threads
            late = httpx.post(f"{url}/rerank", json=asked, timeout=PATIENCE)
            assert failure(late)[:2] == (504, "Timeout")
        assert (server._engine._requests, server._engine._sentences) == (0, 0)
        similar(url)
        finish.set()


@pytest.mark.parametrize(
    ("limit", "most"),
    [("max_sentences", 50), ("max_wait_seconds", 0.1), ("max_requests", 10)],
)
def test_what_is_too_much_is_refused_and_all_else_answered(
    open_settings: Settings, monkeypatch: pytest.MonkeyPatch, limit: str, most: float
) -> None:
    asked = questions(CLIENTS * EACH, random.Random(5))
    settings = open_settings.model_copy(update={"cache_bytes": 0, "threads": 1, limit: most})
    expected = asyncio.run(asked_alone(open_settings, asked))
    slow_down(monkeypatch)
    with served(settings) as (server, url):
        answers = asyncio.run(asked_by_all(url, asked))
        similar(url)  # at once, since all are answered
        found = counted(url)
        engine = server._engine
        assert (engine._requests, engine._sentences, engine._characters) == (0, 0, 0)
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(asked) > len(refused) > len(asked) / 4
    for answer in refused:
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert f"LATTEMIX_{limit.upper()} is {most:,}" in answer.json()["error"]
    for question, answer, alone in zip(asked, answers, expected, strict=True):
        assert answer.status_code in (200, 429), answer.text
        assert answer.status_code == 429 or same(question.read(answer), alone)
    assert found.total("lattemix_requests_total", "429") == len(refused)
    assert found.total("lattemix_requests_total", "POST") == len(asked) + 1
    assert found.total("lattemix_rejected_total") == len(refused)
    assert found.total("lattemix_queue_tokens") == 0
